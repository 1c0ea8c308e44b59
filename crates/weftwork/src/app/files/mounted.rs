//! Are files the same at a mount as they are at the root, and does what they lack come to the next?

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

/// A path, and the status with the text, or where it leads to.
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

/// A router compares what was sent: whatever leads to a file has to be what a route in front can see.
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

/// Names with what a path may have as it is, with what it may not, and beyond ASCII.
static NAMED: &[(&str, &[u8])] = &[
    ("c++/x.html", b"file"),
    ("\u{fc}/x.html", b"file"),
    ("a|b/x.html", b"file"),
    ("[a]/@:^.html", b"file"),
];

/// Follows one redirect, which has to lead to what is answered with 200.
#[track_caller]
fn followed(client: &mut TestClient, path: &str) -> String {
    let first = client.get(path).send();
    let Some(location) = first.header("location").map(str::to_owned) else {
        assert_eq!(first.status, 200, "{path}");
        return first.text().to_owned();
    };
    assert_eq!(first.status, 301, "{path}");
    let second = client.get(&location).send();
    assert_eq!(second.status, 200, "{path}, {location}");
    second.text().to_owned()
}

#[test]
fn what_need_not_be_encoded_leads_around_no_route_either() {
    let guarded = Router::new()
        .get("/c++/{*rest}", || "guarded")
        .get("/\u{fc}/{*rest}", || "guarded")
        .get("/a|b/{*rest}", || "guarded")
        .get("/[a]/{*rest}", || "guarded");
    let mut client = TestClient::new(guarded.mount("/", embedded(NAMED)));
    for path in [
        "/c++/x.html",
        "/c%2B%2B/x.html",
        "/c%2b+/x.html",
        "/%C3%BC/x.html",
        "/%c3%bc/x.html",
        "/a|b/x.html",
        "/a%7Cb/x.html",
        "/a%7cb/x.html",
        "/[a]/@:^.html",
        "/%5ba]/%40%3a%5e.html",
    ] {
        assert_eq!(followed(&mut client, path), "guarded", "{path}");
    }
    // Nothing of the file is told, not even how long it is.
    assert_eq!(client.get("/c%2B%2B/x.html").header("range", "bytes=9-").send().status, 301);
    assert_eq!(client.get("/c%2B%2B/missing").send().status, 404);
}

/// Whatever its name is, and however that is sent.
#[test]
fn one_redirect_at_most_leads_to_a_file() {
    let ascii = (1..=0x7f).map(char::from).filter(|c| !['/', '\\'].contains(c));
    let names: Vec<&str> =
        ascii.chain("\u{fc}\u{20ac}\u{1f600}".chars()).map(|c| &*format!("a{c}b").leak()).collect();
    let assets: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, name.as_bytes())).collect();
    let mut client = TestClient::new(Router::new().mount("/in", embedded(assets.leak())));
    for name in names {
        let upper: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut sent = vec![upper.to_lowercase(), upper.replace("%61", "a").replace("%62", "b"), upper];
        sent.push(sent[1].to_lowercase());
        if is_sent_raw(name.as_bytes()[1]) {
            sent.push(name.to_owned());
        }
        for path in sent {
            assert_eq!(followed(&mut client, &format!("/in/{path}")), name, "{path}");
        }
    }
}

fn is_sent_raw(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@[]|^".contains(&byte)
}

/// What is no file here may be a path to whoever is asked next, and is then left as it was sent.
#[test]
fn only_what_leads_to_a_file_is_redirected() {
    let page = |req: &mut Request<'_>| Response::text(format!("no {}", req.path()));
    let router = Router::new().mount("/", embedded(NAMED)).fallback(page);
    check(
        router,
        &[
            ("GET /users/a%40b.example", 200, "no /users/a%40b.example"),
            ("POST /users/a%40b.example", 200, "no /users/a%40b.example"),
            ("GET /%c3%a9", 200, "no /%c3%a9"),
            ("GET /c%2B%2B/x.html?a=%2B", 301, "/c++/x.html?a=%2B"),
            ("POST /c%2B%2B/x.html", 405, "GET, HEAD"),
        ],
    );
    let app = Router::new().mount("/", one().single_page("index.html"));
    check(app, &[("GET /search/c%2B%2B", 200, "<link rel=stylesheet href=style.css>")]);
}

/// The place of a mount is compared as it was sent, and so is not written anew; that of `under` is.
#[test]
fn a_prefix_has_its_spelling() {
    let router = Router::new()
        .mount("/c%2B%2B", embedded(NAMED))
        .mount("/under", embedded(NAMED).under("/a|\u{fc}"))
        .mount("/", one());
    check(
        router,
        &[
            ("GET /c%2B%2B/c%2B%2B/x.html", 301, "/c%2B%2B/c++/x.html"),
            ("GET /c%2B%2B/c++/x.html", 200, "file"),
            ("GET /c%2B%2B/c%2B%2B?a", 301, "/c%2B%2B/c++/?a"),
            ("GET /under/a|%c3%bc/c++/x.html", 301, "/under/a%7C%C3%BC/c++/x.html"),
            ("GET /under/a%7C%C3%BC/c++/x.html", 200, "file"),
            ("GET /%64ocs", 301, "/docs"),
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

/// A path that has a route of its own is not one of the files, whatever the method.
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
