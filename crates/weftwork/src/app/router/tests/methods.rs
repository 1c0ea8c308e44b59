//! Tests that a path with routes is answered by them, whatever the method and the mounts beside them.

use super::*;
use crate::middleware::Cors;

fn method(name: &str) -> Method {
    Method::from_bytes(name.as_bytes()).unwrap()
}

#[test]
fn the_fallback_of_what_is_nested_answers_no_405() {
    let api = || Router::new().get("/x", show("x")).fallback(show("else"));
    check(
        Router::new().nest("/api", api()),
        &[
            ("GET /api/x", "x /api/x []"),
            ("POST /api/x", "405 GET, HEAD, OPTIONS"),
            ("OPTIONS /api/x", "204 GET, HEAD, OPTIONS"),
            ("POST /api/y", "else /api/y []"),
            ("POST /api", "else /api []"),
            ("POST /x", "404"),
        ],
    );
    // A handler that declines has left the path to the next one.
    let declines = Router::new().get("/x", |_: &mut Request<'_>| Response::decline()).fallback(show("else"));
    check(
        Router::new().nest("/api", declines),
        &[("GET /api/x", "else /api/x []"), ("POST /api/x", "405 GET, HEAD, OPTIONS")],
    );
}

#[test]
fn the_methods_of_a_path_are_those_of_its_routes_and_of_what_is_mounted_over_it() {
    let over = Router::new().get("/api", show("get")).route(method("PURGE"), "/api", show("purge"));
    let own = |req: &mut Request<'_>| match req.method().as_str() {
        "OPTIONS" => Response::text("mine"),
        _ => Response::decline(),
    };
    let router = Router::new()
        .post("/api", show("post"))
        .route(method("PROPFIND"), "/api", show("propfind"))
        .post("/own", show("post"))
        .mount("/own", own)
        .mount("/", over);
    check(
        router,
        &[
            ("GET /api", "get /api []"),
            ("DELETE /api", "405 GET, HEAD, POST, OPTIONS, PROPFIND, PURGE"),
            ("OPTIONS /api", "204 GET, HEAD, POST, OPTIONS, PROPFIND, PURGE"),
            ("OPTIONS /own", "mine"),
            ("GET /own", "405 POST, OPTIONS"),
        ],
    );
}

/// The client knows only the whole path.
#[test]
fn the_refusal_of_a_method_names_the_whole_path() {
    let api = Router::new().mount("/links", Router::new().post("/", show("add")).post("/x", show("x")));
    let mut client = TestClient::new(Router::new().mount("/api", api));
    for path in ["/api/links", "/api/links/", "/api/links/x"] {
        let said = format!(r#""detail":"{path} allows POST, OPTIONS, not GET"}}"#);
        assert!(client.get(path).send().text().ends_with(&said), "{path}");
    }
}

/// Fields that middleware around a mount adds to its 405 are also on the 405 that names the earlier routes.
#[test]
fn a_method_refused_by_two_keeps_the_headers_of_the_mount() {
    let other =
        |response: Response| response.with_header(header::CONTENT_LANGUAGE, HeaderValue::from_static("la"));
    let inner = Router::new()
        .put("/tea", show("put"))
        .with(move |req: &mut Request<'_>, next: Next<'_>| other(next.run(req)))
        .with(Cors::any_origin());
    let mut client = TestClient::new(Router::new().get("/api/tea", show("get")).mount("/api", inner));
    let refused = client.delete("/api/tea").header("origin", "https://there.example").send();
    assert_eq!((refused.status.as_u16(), refused.header("access-control-allow-origin")), (405, Some("*")));
    assert_eq!(refused.headers.get_all("allow").iter().collect::<Vec<_>>(), ["GET, HEAD, PUT, OPTIONS"]);
    assert!(
        refused.text().contains("/api/tea allows GET, HEAD, PUT, OPTIONS, not DELETE"),
        "{}",
        refused.text()
    );
    let described = (refused.header("content-type"), refused.header("content-language"));
    assert_eq!(described, (Some("application/problem+json"), None));
    let told = client.options("/api/tea").send();
    assert_eq!((told.status.as_u16(), told.header("allow")), (204, Some("GET, HEAD, PUT, OPTIONS")));
}

/// RFC 9110 section 9.3.7: a mount at the root answers for the whole server, too.
#[test]
fn the_methods_of_the_server_are_also_those_of_what_is_mounted_at_its_root() {
    let over = || Router::new().get("/a", show("a"));
    check(Router::new().mount("/", over()), &[("OPTIONS *", "204 GET, HEAD, OPTIONS")]);
    check(
        Router::new().put("/b", show("b")).mount("/", over()),
        &[("OPTIONS *", "204 GET, HEAD, PUT, OPTIONS")],
    );
    check(Router::new().put("/b", show("b")).mount("/m", over()), &[("OPTIONS *", "204 PUT, OPTIONS")]);
}

/// RFC 9110 section 15.5.6: the field must be present, and lists every method.
#[test]
fn methods_without_a_constant_are_allowed_too() {
    let router = Router::new()
        .route(method("PROPFIND"), "/x", show("1"))
        .route(method("PURGE"), "/{any}", show("2"))
        .put("/x", show("3"))
        .route(method("PROPFIND"), "/y", show("4"));
    check(
        router,
        &[
            ("GET /x", "405 PUT, OPTIONS, PROPFIND, PURGE"),
            ("OPTIONS /x", "204 PUT, OPTIONS, PROPFIND, PURGE"),
            ("GET /z", "405 OPTIONS, PURGE"),
            ("OPTIONS *", "204 PUT, OPTIONS, PROPFIND, PURGE"),
        ],
    );
}

#[test]
fn a_path_has_handlers_for_several_methods() {
    use crate::routing::{any, get};
    let purge = method("PURGE");
    let router = Router::new()
        .path("/x", get(show("get")).post(show("post")).route(purge, show("purge")))
        .path("/y", any(show("any")).get(show("get")));
    check(
        router,
        &[
            ("GET /x", "get /x []"),
            ("POST /x", "post /x []"),
            ("PURGE /x", "purge /x []"),
            ("PUT /x", "405 GET, HEAD, POST, OPTIONS, PURGE"),
            ("GET /y", "get /y []"),
            ("DELETE /y", "any /y []"),
        ],
    );
}

#[test]
fn two_handlers_for_one_method_of_a_path_conflict() {
    use crate::routing::get;
    let router = Router::new().path("/x", get(show("one")).get(show("two")));
    assert!(matches!(router.errors(), [RouteError::Conflict { .. }]), "{:?}", router.errors());
}
