//! Tests that the pattern of the matching route is reported as it was written.

use super::*;
use crate::middleware::BodyLimit;

/// Answers with the pattern, whatever the router would have answered.
fn told(req: &mut Request<'_>, next: Next<'_>) -> Response {
    let pattern = next.pattern(req).unwrap_or_else(|| "none".into());
    Response::text("")
        .with_header(header::HeaderName::from_static("x-pattern"), HeaderValue::try_from(pattern).unwrap())
}

fn none(_: &mut Request<'_>) -> StatusCode {
    unreachable!("nobody is called")
}

#[test]
fn a_pattern_includes_its_prefix() {
    let inner = || Router::new().get("/", none).get("/{id}", none).mount("/raw", none);
    let router = Router::new()
        .get("/", none)
        .get("/users/me", none)
        .get("/users/{id}", blocks(unbuffered(none)))
        .post("/a b/{*rest}", none)
        .nest("/nested", inner().fallback(none))
        .mount("/mounted/", inner().with(BodyLimit::new(1)))
        .mount("/erased", Arc::new(inner()) as Arc<dyn Handler>)
        .mount("/files", none);
    let cases = [
        ("GET /", "/"),
        ("HEAD /", "/"),
        ("POST /", "none"),
        ("GET /users/me", "/users/me"),
        ("GET /users/7?a=/users/me", "/users/{id}"),
        ("GET /users/", "none"),
        ("POST /a%20b/c/d", "/a b/{*rest}"),
        ("GET /nested", "/nested"),
        ("GET /nested/7", "/nested/{id}"),
        ("GET /nested/raw/7", "/nested/raw/{*rest}"),
        ("GET /nested/7/8", "none"),
        ("GET /mounted", "/mounted"),
        ("GET /mounted/7", "/mounted/{id}"),
        ("GET /mounted/7/8", "none"),
        ("GET /mounted/raw/x", "/mounted/raw/{*rest}"),
        ("GET /erased/7", "/erased/{id}"),
        ("GET /files", "/files/{*rest}"),
        ("GET /files/a/b", "/files/{*rest}"),
        ("OPTIONS *", "none"),
    ];
    assert_eq!(router.errors(), []);
    let mut client = TestClient::new(router.with(told));
    for (request, wanted) in cases {
        let (method, target) = request.split_once(' ').unwrap();
        let answer = client.request(method.parse().unwrap(), target).send();
        assert_eq!(answer.header("x-pattern").unwrap_or("none"), wanted, "{request}");
    }
}

#[test]
fn a_pattern_is_known_within_a_mount_and_after_a_fallback() {
    let within = Router::new().get("/{id}", none).with(told);
    let files = none.with(told);
    let behind = Router::new().get("/behind/{id}", none);
    let router = Router::new().mount("/at", within).mount("/files", files).fallback(behind.with(told));
    let mut client = TestClient::new(Router::new().mount("/out", router));
    for (target, wanted) in [
        ("/out/at/7", "/out/at/{id}"),
        ("/out/at", "none"),
        ("/out/files/7", "/out/files/{*rest}"),
        ("/out/behind/7", "/out/behind/{id}"),
        ("/out/nobody", "none"),
    ] {
        assert_eq!(client.get(target).send().header("x-pattern"), Some(wanted), "{target}");
    }
}

#[test]
fn a_handler_without_routes_has_none() {
    assert_eq!(TestClient::new(none.with(told)).get("/x").send().header("x-pattern"), Some("none"));
}
