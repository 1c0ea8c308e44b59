//! Tests which form of a path a server receives, and which form routes and middleware in front compare.

use http::{HeaderValue, header};

use super::super::Proxy;
use crate::message::Request;
use crate::middleware::ResponseCache;
use crate::{HandlerExt, IntoResponse, Response, Router, Running, Server, TestClient};

/// A server that answers with the target that it got.
fn echo_target() -> (Running, String) {
    let behind = Server::bind("127.0.0.1:0").unwrap().start(|req: &mut Request<'_>| req.target().to_owned());
    let behind = behind.unwrap();
    let url = format!("http://{}", behind.local_addr().unwrap());
    (behind, url)
}

/// The server gets the path as it was sent. Routes and middleware in front compare its normal form.
#[test]
fn a_path_is_forwarded_as_sent_and_guarded_in_its_normal_form() {
    let (_behind, url) = echo_target();
    let guard = |req: &mut Request<'_>, next: crate::Next<'_>| match req.path().starts_with("/api/closed") {
        true => "refused".into_response(),
        false => next.run(req),
    };
    let site = || Router::new().get("/api/admin", || "guarded").get("/secret", || "secret");
    let to = || Proxy::to(&url).unwrap();
    let below = |prefix: &'static str| move |target: &str| target.replacen(prefix, "", 1);
    type Forwarded = Box<dyn Fn(&str) -> String>;
    let sites: [(Router, Forwarded); 5] = [
        (site().any("/api/{*rest}", to()), Box::new(str::to_owned)),
        (site().any("/api/{*rest}", to().strip_prefix("/api")), Box::new(below("/api"))),
        (site().mount("/api", to()), Box::new(below("/api"))),
        (site().mount("/", Router::new().mount("/api", to())), Box::new(below("/api"))),
        (site().nest("/api", Router::new().fallback(to())), Box::new(str::to_owned)),
    ];
    for (number, (site, forwarded)) in sites.into_iter().enumerate() {
        let mut client = TestClient::new(site.with(guard));
        for target in [
            "/api/a//b",
            "/api//x/",
            "/api/%7Eann/%61",
            "/api/a/./b",
            "/api/a/../b?c=%61//..",
            "/api/a/%2E%2e/b",
            "/api/a%2Fb",
            "/api/web/https://a.example/%7Eb",
            "/api/b/.",
        ] {
            let answer = client.get(target).send();
            assert_eq!((answer.status.as_u16(), answer.text()), (200, &*forwarded(target)), "site {number}");
        }
        for target in
            ["/api/%61dmin", "/api//admin", "/api/./admin", "/api/x/../admin", "/api/x/%2e%2E/%61dmin"]
        {
            assert_eq!(client.get(target).send().text(), "guarded", "site {number}: {target}");
        }
        for target in ["/api//closed", "/api/%63losed/x", "/api/a/../closed", "/api/closed"] {
            assert_eq!(client.get(target).send().text(), "refused", "site {number}: {target}");
        }
        for target in [
            "/api/../secret",
            "/api/%2e%2e/secret",
            "/api/a/../../secret",
            "/api/..",
            "/api/../../x",
            "/api/a%2F..%2fadmin",
            "/api/..;/admin",
            "/api/a%5C../b",
            "/api/a//../admin",
        ] {
            let refused = client.get(target).send();
            assert_eq!(refused.status.as_u16(), 400, "site {number}: {target}: {}", refused.text());
        }
    }
}

/// Routes of other handlers keep the form that was sent, as links of typed routes need it.
#[test]
fn a_path_that_goes_elsewhere_is_not_changed() {
    let (_behind, url) = echo_target();
    let shown = |req: &mut Request<'_>| req.path().to_owned();
    let site = Router::new().get("/own/{*rest}", shown).fallback(Proxy::to(&url).unwrap());
    let mut client = TestClient::new(site);
    for target in ["/own/%61//b", "/own/./x/.."] {
        assert_eq!(client.get(target).send().text(), target);
    }
    assert_eq!(client.get("/%7E//x").send().text(), "/%7E//x");
    assert_eq!(client.get("/x/../own/a").send().text(), "/own/a");
}

/// A path that leads to the mount of another proxy in its normal form is not that path to either server.
#[test]
fn a_path_between_two_proxies_is_refused() {
    let (_behind, url) = echo_target();
    let to = || Proxy::to(&url).unwrap();
    let mut client = TestClient::new(Router::new().mount("/a", to()).mount("/b", to()).fallback(to()));
    let site = Router::new().mount("/a", to()).mount("/a/x", to());
    // Its normal form belongs to the second one, and the rest of it as sent is no path.
    let refused = TestClient::new(site).get("/a/x%41/../x/y").send();
    assert!(
        refused.status.as_u16() == 400 && refused.text().contains("a segment . or .."),
        "{}",
        refused.text()
    );
    for (target, status) in [("/a/../b/x", 400), ("/%61/x", 400), ("/c/../a/x", 400), ("/c/../d", 200)] {
        assert_eq!(client.get(target).send().status.as_u16(), status, "{target}");
    }
}

/// A function that calls the proxy has seen the path as it was sent.
#[test]
fn a_path_that_nobody_saw_in_its_normal_form_is_refused_by_its_rule() {
    let below = Proxy::to("http://127.0.0.1:1/base").unwrap().strip_prefix("/api");
    let mut client = TestClient::new(move |req: &mut Request<'_>| crate::Handler::call(&below, req));
    for (target, rule) in [
        ("/api/%61dmin", "must not be encoded in a path (RFC 3986 section 6.2.2.2)"),
        ("/api/./admin", "must not have a segment . or .., encoded or not (RFC 3986 section 6.2.2.3)"),
        ("/api/x/%2e%2E/admin", "must not have a segment . or .."),
        ("/api//admin", "must not have an empty segment"),
    ] {
        let refused = client.get(target).send();
        assert_eq!(refused.status.as_u16(), 400, "{target}");
        assert!(refused.text().contains(rule), "{}", refused.text());
    }
    // Nothing listens at the port, so the request reached the connection attempt.
    for target in ["/api/a%2Fb", "/api/a/", "/api/web/https://a.example/b?c=%61//../."] {
        assert_eq!(client.get(target).send().status.as_u16(), 502, "{target}");
    }
}

/// The server may answer differently to each form.
#[test]
fn a_cache_in_front_keeps_the_forms_apart() {
    let (_behind, url) = echo_target();
    let buffered = |req: &mut Request<'_>, next: crate::Next<'_>| {
        let response = Response::text(req.target().to_owned()).with_status(next.run(req).status());
        response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"))
    };
    let site = Router::new().fallback(Proxy::to(&url).unwrap()).with(buffered).with(ResponseCache::new());
    let mut client = TestClient::new(site);
    for target in ["/a/b", "/a//b", "/a/./b", "/%61/b", "/a/b"] {
        assert_eq!(client.get(target).send().text(), target);
    }
}
