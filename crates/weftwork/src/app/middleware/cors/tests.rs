//! Tests who may read a response, and that no known CORS mistake is possible.

use std::time::Duration;

use super::*;
use crate::app::middleware::HandlerExt;
use crate::message::testing::Canned;
use crate::{Router, TestClient};

const APP: &str = "https://app.example";

/// Returns the CORS fields of the answer, one on each line.
fn ask(cors: Cors, method: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let site = (|_: &mut Request<'_>| "x").with(cors);
    let response = Canned::asking(method, "/", fields).call(&site);
    let told = response
        .header_lines()
        .iter()
        .filter(|(name, _)| name == header::VARY || name.as_str().starts_with("access-control-"));
    let lines = told.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
    (response.status().as_u16(), lines.collect())
}

fn listed() -> Cors {
    Cors::origins([APP, "http://localhost:3000"]).unwrap()
}

fn allows(cors: Cors, origin: &str) -> bool {
    let (status, fields) = ask(cors, "GET", &[("Origin", origin)]);
    assert_eq!(status, 200);
    fields.contains("access-control-allow-origin")
}

#[test]
fn a_listed_origin_may_read() {
    let expected = "vary: origin\naccess-control-allow-origin: https://app.example\n";
    assert_eq!(ask(listed(), "GET", &[("Origin", APP)]), (200, expected.into()));
    let expected = format!("{expected}access-control-allow-credentials: true\n");
    assert_eq!(ask(listed().credentials().unwrap(), "GET", &[("Origin", APP)]), (200, expected));
    assert!(allows(listed(), "http://localhost:3000"));
}

/// Prefixes, suffixes, patterns and `null`: known mistakes of other libraries.
#[test]
fn an_unlisted_origin_may_not_read() {
    for origin in [
        "null",
        "",
        "*",
        "https://app.example.evil.example",
        "https://evilapp.example",
        "http://app.example",
        "https://app.example:8443",
        "https://APP.example",
        "https://app.example/",
        "https://sub.app.example",
        "http://localhost",
        "http://localhost:30001",
        "https://app.example, https://evil.example",
    ] {
        let (status, fields) = ask(listed().credentials().unwrap(), "GET", &[("Origin", origin)]);
        assert_eq!((status, fields.as_str()), (200, "vary: origin\n"), "{origin}");
    }
    let twice = [("Origin", APP), ("Origin", "https://evil.example")];
    assert_eq!(ask(listed(), "GET", &twice).1, "vary: origin\n");
}

/// A cached response must say that it depends on the origin, also if the request had none.
#[test]
fn every_answer_varies() {
    assert_eq!(ask(listed(), "GET", &[]), (200, "vary: origin\n".into()));
}

#[test]
fn any_origin_is_a_star_and_never_reflected() {
    let expected = "access-control-allow-origin: *\n";
    assert_eq!(ask(Cors::any_origin(), "GET", &[("Origin", APP)]), (200, expected.into()));
    assert_eq!(ask(Cors::any_origin(), "GET", &[("Origin", "null")]), (200, expected.into()));
    assert_eq!(ask(Cors::any_origin(), "GET", &[]), (200, expected.into()), "caches hand it to others");
    let error = Cors::any_origin().credentials().unwrap_err();
    assert!(error.message().contains("list the origins"), "{error}");
}

#[test]
fn a_preflight_is_answered_here() {
    let cors = listed()
        .methods([Method::GET, Method::DELETE])
        .headers(["X-Key", "content-type"])
        .unwrap()
        .max_age(Duration::from_secs(600));
    let asked = [("Origin", APP), ("Access-Control-Request-Method", "DELETE")];
    let expected = "vary: origin\naccess-control-allow-origin: https://app.example\n\
        access-control-allow-methods: GET, DELETE\naccess-control-allow-headers: x-key, content-type\n\
        access-control-max-age: 600\n";
    assert_eq!(ask(cors, "OPTIONS", &asked), (204, expected.into()));
}

/// An API with a token needs `authorization`, and JSON needs `content-type`.
#[test]
fn a_preflight_allows_the_headers_that_it_asks_for_unless_they_are_listed() {
    let post = ("Access-Control-Request-Method", "POST");
    for (cors, origin) in [(Cors::any_origin(), "*"), (listed(), APP), (listed().credentials().unwrap(), APP)]
    {
        let varies = if origin == "*" { "" } else { "vary: origin\n" };
        let credentials = if cors.credentials { "access-control-allow-credentials: true\n" } else { "" };
        let grant = format!(
            "{varies}access-control-allow-origin: {origin}\n{credentials}\
             access-control-allow-methods: GET, HEAD, POST\nvary: access-control-request-headers\n"
        );
        let fields =
            [("Origin", APP), post, ("Access-Control-Request-Headers", "authorization,Content-Type, b@d")];
        let allowed = format!("{grant}access-control-allow-headers: authorization, content-type\n");
        assert_eq!(ask(cors, "OPTIONS", &fields), (204, allowed));
    }
    let (status, fields) = ask(Cors::any_origin(), "OPTIONS", &[("Origin", APP), post]);
    assert!(status == 204 && !fields.contains("allow-headers"), "{fields}");
    let fields = [("Origin", APP), post, ("Access-Control-Request-Headers", "authorization")];
    let told = ask(listed().headers(["x-key"]).unwrap(), "OPTIONS", &fields).1;
    assert!(
        told.contains("access-control-allow-headers: x-key\n") && !told.contains("authorization"),
        "{told}"
    );
}

#[test]
fn a_preflight_of_an_unlisted_origin_is_refused() {
    let asked = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "DELETE")];
    assert_eq!(ask(listed(), "OPTIONS", &asked), (403, "vary: origin\n".into()));
}

/// Without its two fields it is a request for the handler.
#[test]
fn an_options_request_is_not_always_a_preflight() {
    assert_eq!(ask(listed(), "OPTIONS", &[("Origin", APP)]).0, 200);
    assert_eq!(ask(listed(), "OPTIONS", &[("Access-Control-Request-Method", "GET")]).0, 200);
}

#[test]
fn fields_may_be_exposed() {
    let cors = || listed().exposed(["X-Total"]).unwrap();
    assert!(ask(cors(), "GET", &[("Origin", APP)]).1.contains("access-control-expose-headers: x-total\n"));
    assert!(!ask(cors(), "GET", &[]).1.contains("expose"));
}

#[test]
fn a_function_sees_only_origins() {
    let cors = || Cors::origin_if(|origin| origin != "null" && origin.ends_with(".app.example"));
    assert!(allows(cors(), "https://a.app.example"));
    assert!(!allows(cors(), "https://a.app.example/"));
    assert!(!allows(Cors::origin_if(|_| true), "null"));
    assert!(!allows(Cors::origin_if(|_| true), "x"));
}

/// A handler that grants access itself does not extend what is allowed here.
#[test]
fn a_grant_of_the_handler_is_replaced() {
    let open = |_: &mut Request<'_>| {
        let (star, yes) = (HeaderValue::from_static("*"), HeaderValue::from_static("true"));
        Response::text("x")
            .with_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, star)
            .with_header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes)
    };
    let response = Canned::asking("GET", "/", &[]).call(&open.with(listed()));
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_ORIGIN), None);
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS), None);
    let response = Canned::asking("GET", "/", &[("Origin", APP)]).call(&open.with(listed()));
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_ORIGIN), Some(APP));
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS), None);
    // The same applies to responses that are sent later.
    let brought = move |req: &mut Request<'_>| {
        let (sender, response) = Response::later(Duration::MAX, StatusCode::NO_CONTENT);
        sender.send(open(req)).unwrap();
        response
    };
    let mut client = TestClient::new(brought.with(listed()));
    for (origin, granted) in [("https://evil.example", None), (APP, Some(APP))] {
        let answer = client.get("/").header("origin", origin).send();
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "x"));
        assert_eq!(answer.header("access-control-allow-origin"), granted);
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
}

#[test]
fn mistakes_in_the_settings_are_reported() {
    for origin in
        ["*", "null", "app.example", "https://app.example/", "https://*.example", "https://App.example"]
    {
        assert!(Cors::origins([origin]).is_err(), "{origin}");
    }
    assert!(listed().headers(["a b"]).is_err());
    assert!(listed().headers(["*"]).is_err());
    assert!(listed().exposed(["a\r\nb"]).is_err());
}

/// A preflight grants a request to its own router. Otherwise the permission of one router would apply to
/// another.
#[test]
fn a_preflight_for_the_route_of_another_is_granted_nothing() {
    let api = || Router::new().delete("/items/{id}", || "item").with(listed().methods([Method::DELETE]));
    let other = || Router::new().delete("/account", || "account");
    let sites = [
        ("/api", Router::new().delete("/api/account", || "account").mount("/api", api())),
        ("", Router::new().delete("/account", || "account").mount("/", api())),
        ("", Router::new().mount("/", api()).mount("/", other())),
        ("", Router::new().mount("/", other()).mount("/", api())),
        ("", Router::new().mount("/", api()).fallback(other())),
        ("/in", Router::new().mount("/in", Router::new().mount("/", api()).mount("/", other()))),
    ];
    for (at, (prefix, site)) in sites.into_iter().enumerate() {
        let mut client = TestClient::new(site);
        let mut granted = |path: &str, method: &str| {
            let preflight = client.options(format!("{prefix}{path}")).header("origin", APP);
            let answer = preflight.header("access-control-request-method", method).send();
            let methods = answer.header("access-control-allow-methods").map(str::to_owned);
            let is_grant = |name: &HeaderName| name.as_str().starts_with("access-control-");
            assert_eq!(answer.headers.keys().any(is_grant), methods.is_some(), "{at}: {answer:?}");
            methods
        };
        assert_eq!(granted("/account", "DELETE"), None, "{at}");
        assert_eq!(granted("/items/1", "DELETE").as_deref(), Some("DELETE"), "{at}");
        assert_eq!(granted("/items/1", "PUT"), None, "{at}");
        assert_eq!(granted("/nothing", "DELETE"), None, "{at}");
    }
}

/// Whichever handler answers: neither the router nor a handler for OPTIONS grants what Cors does not.
#[test]
fn a_preflight_that_is_not_answered_here_is_granted_nothing() {
    let grants = |_: &mut Request<'_>| {
        let mut response = Response::new(StatusCode::NO_CONTENT);
        for name in ["origin", "methods", "headers", "credentials"] {
            let name = HeaderName::try_from(format!("access-control-allow-{name}")).unwrap();
            response.set_header(name, HeaderValue::from_static("*"));
        }
        response.set_header(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        response
    };
    let cors = || listed().credentials().unwrap().exposed(["x-total"]).unwrap();
    let sites = [
        (Router::new().get("/x", || "x").with(cors()), Some("origin")),
        (Router::new().get("/x", || "x").with(Cors::any_origin()), None),
        (Router::new().get("/x", || "x").options("/x", grants).with(cors()), Some("origin")),
    ];
    for (at, (site, varies)) in sites.into_iter().enumerate() {
        let mut client = TestClient::new(site);
        let asked = client.options("/x").header("origin", APP);
        let answer = asked.header("access-control-request-method", "POST").send();
        assert_eq!((answer.status, answer.header("vary")), (StatusCode::NO_CONTENT, varies), "{at}");
        let told: Vec<_> =
            answer.headers.keys().filter(|name| name.as_str().starts_with("access-")).collect();
        assert!(told.is_empty(), "{at}: {told:?}");
        let answer = client.get("/x").header("origin", APP).send();
        assert!(answer.header("access-control-allow-origin").is_some(), "{at}");
    }
}

#[test]
fn a_handler_exposes_no_more_than_is_allowed() {
    let handler = |_: &mut Request<'_>| {
        Response::text("x").with_header(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"))
    };
    let exposed = |cors: Cors| {
        let answer = TestClient::new(handler.with(cors)).get("/").header("origin", APP).send();
        answer.header("access-control-expose-headers").map(str::to_owned)
    };
    assert_eq!(exposed(listed()), None);
    assert_eq!(exposed(listed().exposed(["x-total"]).unwrap()).as_deref(), Some("x-total"));
}

/// `*` does not stand for `authorization`, so the headers of the preflight are named.
#[test]
fn permissive_grants_all_but_credentials() {
    let expected = "access-control-allow-origin: *\naccess-control-expose-headers: *\n";
    assert_eq!(ask(Cors::permissive(), "GET", &[("Origin", APP)]), (200, expected.into()));
    let fields = [
        ("Origin", APP),
        ("Access-Control-Request-Method", "PATCH"),
        ("Access-Control-Request-Headers", "authorization"),
    ];
    let site = Router::new().patch("/", || "x").with(Cors::permissive());
    let response = Canned::asking("OPTIONS", "/", &fields).call(&site);
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_METHODS), Some("*"));
    assert_eq!(response.header(header::ACCESS_CONTROL_ALLOW_HEADERS), Some("authorization"));
    assert!(response.header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS).is_none());
    assert!(Cors::permissive().credentials().is_err());
}
