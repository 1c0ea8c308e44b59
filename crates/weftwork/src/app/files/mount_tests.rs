//! Tests of files in mounts: same behaviour as at the root, and missing files go to the next mount.

use super::{Files, embedded};
use crate::{Request, Response, Router, TestClient};

static ONE: &[(&str, &[u8])] = &[
    ("index.html", b"<link rel=stylesheet href=style.css>"),
    ("style.css", b"h1 {}"),
    ("docs/index.html", b"docs"),
];
static TWO: &[(&str, &[u8])] = &[("style.css", b"h2 {}"), ("only.txt", b"two")];
const NOTHING: &str = r#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#;

fn one() -> Files {
    embedded(ONE)
}

/// Each case is a path with its status and text, or with the target of its redirect.
#[track_caller]
fn check(router: Router, cases: &[(&str, u16, &str)]) {
    let mut client = TestClient::new(router);
    for (request, status, wanted) in cases {
        let (method, path) = request.split_once(' ').unwrap();
        let answer = client.request(method.parse().unwrap(), path).send();
        let told = match answer.header("location").or(answer.header("allow")) {
            Some(value) => value.to_owned(),
            None => answer.text().to_owned(),
        };
        assert_eq!((answer.status.as_u16(), told.as_str()), (*status, *wanted), "{request}");
    }
}

/// A router compares the path as sent. Every path that leads to a file must therefore be visible to the routes
/// before it.
#[test]
fn no_other_spelling_leads_around_a_route() {
    let guarded = Router::new().get("/docs/{*rest}", || "guarded").mount("/sub", one()).mount("/", one());
    check(
        guarded,
        &[
            ("GET /docs/index.html", 200, "guarded"),
            ("GET /%64ocs/index.html", 301, "/docs/index.html"),
            ("GET /docs%2Findex.html", 404, NOTHING),
            ("GET //docs/index.html", 404, NOTHING),
            ("GET /./docs/index.html", 404, NOTHING),
            ("GET /sub/%64ocs/?%61", 301, "/sub/docs/?%61"),
            ("GET /sub/%64ocs/%2e%2e/index.html", 404, NOTHING),
            ("HEAD /style%2Ecss", 301, "/style.css"),
            ("POST /style%2Ecss", 405, "GET, HEAD"),
        ],
    );
}

#[test]
fn redirects_stay_within_a_mount() {
    let index = "<link rel=stylesheet href=style.css>";
    let nested = Router::new().mount("/inner", one());
    let router = Router::new()
        .mount("/static", one())
        .mount("/outer", nested)
        .mount("/under", one().under("/sub"))
        .mount("/in", one().under("/my files/"))
        .mount("/", one());
    check(
        router,
        &[
            ("GET /static", 301, "/static/"),
            ("GET /static?a=b", 301, "/static/?a=b"),
            ("GET /static/", 200, index),
            ("GET /static/docs", 301, "/static/docs/"),
            ("GET /static/docs?a", 301, "/static/docs/?a"),
            ("GET /static/docs/", 200, "docs"),
            ("GET /outer/inner", 301, "/outer/inner/"),
            ("GET /outer/inner/docs", 301, "/outer/inner/docs/"),
            ("GET /outer/inner/", 200, index),
            ("GET /under/sub", 301, "/under/sub/"),
            ("GET /under/sub/docs", 301, "/under/sub/docs/"),
            ("GET /in/my%20files/docs/", 200, "docs"),
            ("GET /in/my%20files/docs", 301, "/in/my%20files/docs/"),
            ("GET /", 200, index),
            ("GET /docs", 301, "/docs/"),
        ],
    );
    let alone = super::file(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let mut client = TestClient::new(Router::new().mount("/manifest", alone));
    assert_eq!(client.get("/manifest").send().status, 200);
}

#[test]
fn what_is_not_there_is_left_to_the_next() {
    let page = |req: &mut Request<'_>| Response::text(format!("no {}", req.path()));
    let router = || Router::new().mount("/", one()).mount("/", embedded(TWO));
    check(
        router().fallback(page),
        &[
            ("GET /style.css", 200, "h1 {}"),
            ("GET /only.txt", 200, "two"),
            ("GET /missing", 200, "no /missing"),
            ("POST /missing", 200, "no /missing"),
            ("GET /missing%2Dx", 200, "no /missing%2Dx"),
            ("POST /missing%2Dx", 200, "no /missing%2Dx"),
            ("GET /only%2Etxt", 301, "/only.txt"),
            ("POST /only.txt", 405, "GET, HEAD"),
            ("OPTIONS /style.css", 405, "GET, HEAD"),
        ],
    );
    check(router(), &[("GET /missing", 404, NOTHING)]);
    let page_of = Router::new().mount("/", one().single_page("index.html")).fallback(page);
    check(
        page_of,
        &[("GET /users/7", 200, "<link rel=stylesheet href=style.css>"), ("GET /a.js", 200, "no /a.js")],
    );
    let files = one();
    let chosen = move |req: &mut Request<'_>| files.send(req, "missing");
    check(
        Router::new().get("/chosen", chosen).fallback(page),
        &[("GET /chosen", 404, r#"{"title":"Not Found","status":404,"detail":"there is no such file"}"#)],
    );
}

/// A path that has a route of its own is not a file's, whatever the method.
#[test]
fn routes_beside_files_keep_their_methods() {
    let router =
        Router::new().post("/api", || "posted").post("/", || "form").mount("/", one()).fallback(|| "nothing");
    check(
        router,
        &[
            ("POST /api", 200, "posted"),
            ("GET /api", 405, "POST, OPTIONS"),
            ("DELETE /api", 405, "POST, OPTIONS"),
            ("OPTIONS /api", 204, "POST, OPTIONS"),
            ("GET /", 200, "<link rel=stylesheet href=style.css>"),
            ("POST /", 200, "form"),
            ("DELETE /", 405, "GET, HEAD, POST, OPTIONS"),
            ("OPTIONS /", 204, "GET, HEAD, POST, OPTIONS"),
            ("OPTIONS /style.css", 405, "GET, HEAD"),
        ],
    );
}
