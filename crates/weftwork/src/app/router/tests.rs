//! Tests that each request reaches its handler, and that each mistake in the routes is reported.

mod methods;
mod mistakes;
mod patterns;
mod states;

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use proptest::prelude::*;

use super::pattern::{Pattern, is_under, join};
use super::*;
use crate::message::{Blocking, Request, RequestLine, Response, blocks, unbuffered};
use crate::{HandlerExt, Next, State, TestClient};

/// Answers with a name, the path and the captures.
fn show(name: &'static str) -> impl Handler {
    move |req: &mut Request<'_>| {
        let params: Vec<String> = req.params().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{name} {}{} [{}]", req.mounted_at(), req.path(), params.join(" "))
    }
}

#[track_caller]
fn check(router: Router, cases: &[(&str, &str)]) {
    assert_eq!(router.errors(), []);
    let mut client = TestClient::new(router);
    for (request, wanted) in cases {
        let (method, target) = request.split_once(' ').unwrap();
        let answer = client.request(method.parse().unwrap(), target).send();
        let allow = answer.header("allow").map(|allow| format!(" {allow}")).unwrap_or_default();
        let told = match answer.status.as_u16() {
            200 => answer.text().to_owned(),
            status => format!("{status}{allow}"),
        };
        assert_eq!(told, *wanted, "{request}");
    }
}

#[test]
fn what_is_literal_is_compared_as_it_was_sent() {
    let router = Router::new().get("/admin/{name}", show("admin")).mount("/files", show("files"));
    let cases = [
        ("GET /admin/%61", "admin /admin/%61 [name=%61]"),
        ("GET /%61dmin/a", "404"),
        ("GET /%66iles/a", "404"),
    ];
    check(router, &cases);
}

#[test]
fn a_suffix_that_leads_nowhere_hides_no_other_route() {
    let router = Router::new()
        .get("/{repo}.git/info", show("git"))
        .get("/{repo}/{*path}", show("web"))
        .post("/{a}.j/a", show("j"))
        .post("/{a}/{b}", show("two"));
    check(
        router,
        &[
            ("GET /a.git/info", "git /a.git/info [repo=a]"),
            ("GET /a.git/HEAD", "web /a.git/HEAD [repo=a.git path=HEAD]"),
            ("GET /a.git/info/refs", "web /a.git/info/refs [repo=a.git path=info/refs]"),
            ("HEAD /a.git/HEAD", ""),
            ("POST /x.j/a", "j /x.j/a [a=x]"),
            ("POST /x.j/b", "two /x.j/b [a=x.j b=b]"),
            ("PUT /x.j/b", "405 GET, HEAD, POST, OPTIONS"),
        ],
    );
}

#[test]
fn a_suffix_that_leads_nowhere_gives_no_less_literal_route() {
    let router = Router::new()
        .get("/git/{repo}.git/info", show("git"))
        .get("/git/{repo}/{page}", show("web"))
        .get("/git/{repo}.tar/{page}", show("tar"))
        .get("/{*rest}", show("rest"));
    check(
        router,
        &[
            ("GET /git/a.git/info", "git /git/a.git/info [repo=a]"),
            ("GET /git/a.git/log", "web /git/a.git/log [repo=a.git page=log]"),
            ("GET /git/a.tar/log", "tar /git/a.tar/log [repo=a page=log]"),
            ("GET /git/a/log", "web /git/a/log [repo=a page=log]"),
            ("GET /git/a.git/log/1", "rest /git/a.git/log/1 [rest=git/a.git/log/1]"),
            ("GET /git/a.git", "rest /git/a.git [rest=git/a.git]"),
            ("GET /other", "rest /other [rest=other]"),
        ],
    );
}

#[test]
fn routes_are_found_by_method_and_path() {
    let router = Router::new()
        .get("/", show("home"))
        .get("/users/{id}", show("user"))
        .get("/users/me", show("me"))
        .put("/users/{name}", show("put"))
        .post("/users", show("new"))
        .delete("/users/{id}", show("delete"))
        .patch("/users/{id}", show("patch"))
        .get("/files/{*path}", show("file"))
        .get("/img/{name}.png", show("png"))
        .any("/any", show("any"))
        .get("/any", show("get"))
        .head("/own", show("head"))
        .options("/own", show("options"))
        .route(Method::from_bytes(b"PURGE").unwrap(), "/own", show("purge"))
        .get("/a b/ü", show("spelt"));
    check(
        router,
        &[
            ("GET /", "home / []"),
            ("GET /users/7", "user /users/7 [id=7]"),
            ("GET /users/me", "me /users/me []"),
            ("PUT /users/me", "put /users/me [name=me]"),
            ("POST /users", "new /users []"),
            ("PATCH /users/a%20b", "patch /users/a%20b [id=a%20b]"),
            ("GET /files/a/b", "file /files/a/b [path=a/b]"),
            ("GET /img/x.png", "png /img/x.png [name=x]"),
            ("GET /any", "get /any []"),
            ("PURGE /any", "any /any []"),
            ("OPTIONS /any", "any /any []"),
            ("OPTIONS /own", "options /own []"),
            ("PURGE /own", "purge /own []"),
            ("GET /a%20b/%C3%BC", "spelt /a%20b/%C3%BC []"),
            ("HEAD /own", ""),
            ("HEAD /users/7", ""),
            ("GET /users/", "404"),
            ("GET /nothing", "404"),
            ("POST /", "405 GET, HEAD, OPTIONS"),
            ("POST /users/me", "405 GET, HEAD, PUT, DELETE, PATCH, OPTIONS"),
            ("OPTIONS /users/me", "204 GET, HEAD, PUT, DELETE, PATCH, OPTIONS"),
            ("OPTIONS /nothing", "404"),
        ],
    );
}

#[test]
fn nests_and_mounts() {
    let inner = Router::new().get("/", show("inner")).get("/{b}", show("b")).fallback(show("inner else"));
    let mounted = Router::new().get("/", show("mounted")).get("/{c}", show("c"));
    let router = Router::new()
        .nest("/in/{a}", Router::new().get("/", show("prefix")).get("/{b}", show("deep")))
        .nest("/nest/", inner)
        .mount("/m", mounted)
        .mount("/m/long", show("long"))
        .mount("/", |req: &mut Request<'_>| match req.path() {
            "/root" => Response::text("root"),
            _ => Response::decline(),
        })
        .get("/m/own", show("own"))
        .fallback(|| (StatusCode::GONE, "nobody"));
    check(
        router,
        &[
            ("GET /in/1", "prefix /in/1 [a=1]"),
            ("GET /in/1/2", "deep /in/1/2 [a=1 b=2]"),
            ("GET /nest", "inner /nest []"),
            ("GET /nest/x", "b /nest/x [b=x]"),
            ("GET /nest/x/y", "inner else /nest/x/y []"),
            ("GET /nested", "410"),
            ("GET /m", "mounted /m/ []"),
            ("GET /m/", "mounted /m/ []"),
            ("GET /m/x", "c /m/x [c=x]"),
            ("GET /m/own", "own /m/own []"),
            ("GET /m/long/x", "long /m/long/x []"),
            ("GET /m/x/y", "410"),
            ("POST /m/x", "405 GET, HEAD, OPTIONS"),
            ("GET /root", "root"),
            ("GET /", "410"),
            ("POST /in/1", "405 GET, HEAD, OPTIONS"),
        ],
    );
}

/// The longer end is found first, whatever the order of registration.
#[test]
fn a_handler_declines_to_one_that_is_as_literal() {
    let declines = |_: &mut Request<'_>| Response::decline();
    let gz = |req: &mut Request<'_>| req.param("name").unwrap_or_default().into_owned();
    let earlier = Router::new().get("/{name}.gz", gz).get("/{name}.tar.gz", declines);
    let later = Router::new().get("/{name}.tar.gz", declines).get("/{name}.gz", gz);
    for router in [earlier, later] {
        assert_eq!(TestClient::new(router).get("/x.tar.gz").send().text(), "x.tar");
    }
}

#[test]
fn a_handler_declines_to_the_next() {
    let declines = |req: &mut Request<'_>| match req.param("id").as_deref() {
        Some("7") | None => Response::text("taken"),
        Some(_) => Response::decline(),
    };
    let router = || {
        Router::new()
            .get("/users/me", |_: &mut Request<'_>| Response::decline())
            .get("/users/{id}", declines)
            .any("/{*rest}", show("rest"))
    };
    check(
        router(),
        &[
            ("GET /users/7", "taken"),
            ("GET /users/8", "rest /users/8 [rest=users/8]"),
            ("GET /users/me", "rest /users/me [rest=users/me]"),
            ("POST /users/8", "rest /users/8 [rest=users/8]"),
        ],
    );
    for any_first in [true, false] {
        let get = |_: &mut Request<'_>| Response::decline();
        let router = match any_first {
            true => Router::new().any("/x", show("any")).get("/x", get),
            false => Router::new().get("/x", get).any("/x", show("any")),
        };
        let router = router.head("/x", get).any("/{*rest}", show("rest"));
        check(router, &[("GET /x", "any /x []"), ("POST /x", "any /x []"), ("HEAD /x", "")]);
    }
    let only = Router::new().get("/a", |_: &mut Request<'_>| Response::decline());
    check(only, &[("GET /a", "404"), ("POST /a", "405 GET, HEAD, OPTIONS")]);
    let answered = |_: &mut Request<'_>| Response::decline().with_status(StatusCode::OK);
    check(
        Router::new().get("/{a}", answered).fallback(show("next")),
        &[("GET /a", r#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#)],
    );
}

#[test]
fn middleware_goes_around_one_handler_or_a_router() {
    let mark = |req: &mut Request<'_>, next: Next<'_>| {
        let response = next.run(req);
        let seen = HeaderValue::from_static("marked");
        if response.is_declined() { response } else { response.with_header(header::VIA, seen) }
    };
    let router = Router::new()
        .get("/one", show("one").with(mark))
        .get("/two", show("two"))
        .mount("/sub", Router::new().get("/x", show("x")).with(mark));
    let mut client = TestClient::new(router);
    assert_eq!(client.get("/one").send().header("via"), Some("marked"));
    assert_eq!(client.get("/two").send().header("via"), None);
    assert_eq!(client.get("/sub/x").send().header("via"), Some("marked"));
    assert_eq!(client.get("/sub/y").send().status, 404);
    // The fields that middleware adds around a declining handler are on the resulting 404.
    let say = |req: &mut Request<'_>, next: Next<'_>| {
        next.run(req).with_header(header::VIA, HeaderValue::from_static("marked"))
    };
    let declines = |_: &mut Request<'_>| Response::decline();
    for router in [
        Router::new().get("/x", declines.with(say)),
        Router::new().mount("/x", declines.with(say)),
        Router::new().get("/x", declines).mount("/x", declines.with(say)),
        Router::new().get("/x", declines).get("/{a}", declines.with(say)),
    ] {
        let mut client = TestClient::new(router);
        let answer = client.get("/x").send();
        assert_eq!((answer.status.as_u16(), answer.header("via")), (404, Some("marked")));
    }
}

/// A response of middleware for a handler that declined is an answer, also for an outer router.
#[test]
fn a_decline_that_middleware_replaces_is_a_response() {
    type Page = fn(Response) -> Response;
    let body: Page = |response| response.with_body("a page");
    let status: Page = |mut response| {
        response.set_status(StatusCode::GONE);
        response
    };
    let content_type: Page =
        |response| response.with_content_type(HeaderValue::from_static("application/json"));
    let header: Page = |mut response| {
        response.set_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    };
    let other: Page = |response| response.with_header(header::VIA, HeaderValue::from_static("a"));
    let answer = |page: Page| {
        let around = move |req: &mut Request<'_>, next: Next<'_>| page(next.run(req));
        let site = Router::new().mount("/api", Router::new().with(around)).fallback(|| "the fallback");
        let answer = TestClient::new(site).get("/api/x").send();
        let content_type = answer.header("content-type").unwrap_or_default().to_owned();
        (answer.status.as_u16(), content_type, answer.text().to_owned())
    };
    let told = |status, kind: &str, text: &str| (status, kind.to_owned(), text.to_owned());
    let (problem, json) = ("application/problem+json", "application/json");
    let nothing = r#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#;
    assert_eq!(answer(body), told(404, problem, "a page"));
    assert_eq!(answer(status), told(410, problem, r#"{"title":"Gone","status":410}"#));
    assert_eq!(answer(content_type), told(404, json, nothing));
    assert_eq!(answer(header), told(404, json, nothing));
    assert_eq!(answer(other), told(200, "text/plain; charset=utf-8", "the fallback"));
}

#[test]
fn engines_learn_each_route_by_itself() {
    let router = Router::new()
        .get("/users/{id}", show("user"))
        .get("/users/{id}/posts", show("posts"))
        .get("/report", blocks(show("report")))
        .mount("/m", Router::new().get("/{a}", show("a")).get("/{a}/b", show("b")))
        .mount("/n", Router::new().get("/{a}", show("a")));
    let learned = |path: &str| router.blocking(&RequestLine::new(&Method::GET, path.as_bytes()));
    assert_eq!(learned("/users/7"), learned("/users/8"));
    assert_eq!(learned("/m/1"), learned("/m/2"));
    assert_eq!((learned("/report"), learned("/nothing")), (Blocking::Always, Blocking::Never));
    let different = ["/users/7", "/users/7/posts", "/m/1", "/m/1/b", "/n/1"].map(learned);
    for (at, one) in different.iter().enumerate() {
        assert!(matches!(one, Blocking::Learn { .. }) && !different[..at].contains(one), "{at}");
    }
}

#[test]
fn prefixes_are_joined_at_slashes() {
    assert_eq!(join("/a", "/"), "/a");
    assert_eq!(join("/a/", "/b"), "/a/b");
    assert_eq!(join("/", "/b"), "/b");
    assert_eq!(join("", "/"), "/");
    assert!(is_under("/a", "/a") && is_under("/a/b", "/a") && !is_under("/ab", "/a"));
}

proptest! {
    /// Tested one by one, patterns match the same paths as matchit, with the same captures.
    #[test]
    fn a_pattern_is_what_matchit_makes_of_it(
        parts in prop::collection::vec("a|b|ab|\\{x\\}|a\\{y\\}|\\{z\\}b", 1..4),
        rest in any::<bool>(),
        path in "(/(a|b|ab|aab|)){1,4}",
    ) {
        let text = format!("/{}{}", parts.join("/"), if rest { "/{*rest}" } else { "" });
        let Ok(pattern) = Pattern::parse(&text) else { return Ok(()) };
        let mut tree = matchit::Router::new();
        tree.insert(text.clone(), ()).unwrap();
        let theirs = tree.at(&path).ok().map(|found| found.params.iter().map(|(_, value)| value).collect::<Vec<_>>());
        let ours = pattern.captures(&path).map(|ranges| ranges.into_iter().map(|range| &path[range]).collect());
        prop_assert_eq!(ours, theirs, "{} {}", text, path);
    }
}

#[test]
fn each_route_says_whether_its_body_is_read_ahead() {
    let router = Router::new()
        .post("/form", show("form"))
        .post("/talk", unbuffered(show("talk")))
        .mount("/m", Router::new().post("/talk", unbuffered(show("talk"))).post("/form", show("form")))
        .post("/inner", unbuffered(show("talk")).with(|req: &mut Request, next: Next| next.run(req)));
    let ahead = |path: &str| router.reads_ahead(&RequestLine::new(&Method::POST, path.as_bytes()));
    for path in ["/form", "/m/form", "/nothing", "/m/nothing"] {
        assert!(ahead(path), "{path}");
    }
    for path in ["/talk", "/m/talk", "/inner"] {
        assert!(!ahead(path), "{path}");
    }
}

#[test]
fn a_404_within_a_mount_has_what_its_middleware_adds() {
    let marked = |name: &'static str| {
        Router::new().get("/a", show("a")).with(move |req: &mut Request<'_>, next: Next<'_>| {
            next.run(req).try_with_header("x-by", name).unwrap()
        })
    };
    let site = || Router::new().mount("/api", marked("api")).mount("/api/deep", marked("deep"));
    let mut client = TestClient::new(site());
    for (path, status, by) in [
        ("/api/a", 200, Some("api")),
        ("/api/b", 404, Some("api")),
        ("/api/deep/b", 404, Some("deep")),
        ("/b", 404, None),
    ] {
        let answer = client.get(path).send();
        assert_eq!((answer.status.as_u16(), answer.header("x-by")), (status, by), "{path}");
    }
    let answer = TestClient::new(site().fallback(show("else"))).get("/api/b").send();
    assert_eq!((answer.status.as_u16(), answer.header("x-by")), (200, None));
}
