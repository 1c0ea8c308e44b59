//! Tests that all answers of the library itself have one form, and that log details stay in the log.

use std::io;

use weftwork::http::StatusCode;
use weftwork::middleware::RequestIds;
use weftwork::{Bytes, Error, HandlerExt, Request, Response, Result, Router, unbuffered};

use super::CASE;
use crate::support::{Answer, Client, is_logged, keep_log};

fn router() -> Router {
    Router::new()
        .get("/fails", |_: &mut Request| -> Result<&str> { Err(Error::internal("the password is 1234")) })
        .get("/panics", |_: &mut Request| -> &str { panic!("the password is 1234") })
        .get("/unwritten", |_: &mut Request| Response::stream(|_| Err(io::Error::other("the password is 1234"))))
        .get("/gone", |_: &mut Request| -> Result<&str> { Err(Error::client(StatusCode::GONE, "it \"was\" here")) })
        .get("/none", |_: &mut Request| None::<&str>)
        .post("/body", |req: &mut Request| -> Result<Bytes> { Ok(req.body().bytes()?) })
}

/// Returns the detail of a problem, after a check that the answer is one.
#[track_caller]
fn detail(answer: &Answer, status: u16, title: &str) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{answer:?}");
    let start = format!(r#"{{"title":"{title}","status":{status},"detail":""#);
    let detail = answer.text().strip_prefix(&start).and_then(|rest| rest.strip_suffix(r#""}"#));
    detail.unwrap_or_else(|| panic!("{start} does not begin {answer:?}")).to_owned()
}

#[test]
fn refusals_are_problem_documents() {
    let running = CASE.bind("127.0.0.1:0").settings(|s| s.body_bytes_max(3)).start(router()).unwrap();
    let ask = |method: &str, path: &str| {
        let mut client = Client::connect(&running);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfour"));
        client.answer()
    };
    let nothing = "there is nothing here";
    assert_eq!(detail(&ask("GET", "/nothing"), 404, "Not Found"), nothing);
    assert_eq!(detail(&ask("GET", "/none"), 404, "Not Found"), nothing);
    let other = ask("POST", "/fails");
    assert_eq!(detail(&other, 405, "Method Not Allowed"), "/fails allows GET, HEAD, OPTIONS, not POST");
    assert_eq!(other.field("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(detail(&ask("GET", "/gone"), 410, "Gone"), r#"it \"was\" here"#);
    let large = detail(&ask("POST", "/body"), 413, "Payload Too Large");
    assert_eq!(large, "the request body is larger than the 3 bytes that are allowed here");
    for path in ["/fails", "/panics", "/unwritten"] {
        let said = detail(&ask("GET", path), 500, "Internal Server Error");
        assert_eq!(said, "something went wrong on the server", "{path}");
    }
}

#[test]
fn head_gets_the_same_without_the_body() {
    let running = CASE.bind("127.0.0.1:0").start(router()).unwrap();
    for path in ["/nothing", "/fails", "/panics"] {
        let length = |answer: Answer| answer.field("content-length").unwrap().to_owned();
        let get = length(Client::connect(&running).get(path));
        let mut client = Client::connect(&running);
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        assert_eq!(length(client.answer_to_head()), get, "{path}");
        client.ends();
    }
}

/// Returns a path that no other test requests.
fn path(name: &str) -> String {
    format!("/{}/{name}", module_path!().replace("::", "-"))
}

/// This connects a line of the log with the answer that a client reports.
#[test]
fn lines_of_the_log_end_with_the_id_of_their_request() {
    keep_log();
    let site = |req: &mut Request| -> Result<Response> {
        match req.path().rsplit('/').next() {
            Some("fails") => Err(Error::internal("not today")),
            Some("panics") => panic!("not today"),
            Some("stream-panics") => Ok(Response::stream(|_| panic!("not today"))),
            _ => Ok(Response::decline()),
        }
    };
    let running = CASE.bind("127.0.0.1:0").start(site.with(RequestIds::new())).unwrap();
    for name in ["fails", "panics", "stream-panics"] {
        let path = path(name);
        let mut client = Client::connect(&running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-of-{name}\r\n\r\n"));
        assert_eq!(client.answer().status, 500);
        let line = is_logged(&["ERROR a handler", &path, "not today"]);
        assert!(line.ends_with(&format!(", request id-of-{name}")), "{line}");
        // An error has its place in the source.
        assert_eq!(line.contains("not today (crates/"), name == "fails", "{line}");
    }
}

/// Each request of a connection has its own id, or no id.
#[test]
fn a_request_id_is_not_kept_for_the_next_request() {
    keep_log();
    let named = (|_: &mut Request| "named").with(RequestIds::new());
    let fails = |_: &mut Request| -> Result<&str> { Err(Error::internal("not today")) };
    let path = path("next");
    let running = CASE.bind("127.0.0.1:0").start(Router::new().get("/named", named).get(&path, fails)).unwrap();
    let mut client = Client::connect(&running);
    client.get("/named").is(200, "named");
    assert_eq!(client.get(&path).status, 500);
    let line = is_logged(&[&path, "not today"]);
    assert!(!line.contains(", request "), "{line}");
}

/// A handler behind a decoder has a `Request` of its own.
#[cfg(feature = "compression")]
#[test]
fn the_request_id_is_known_inside_a_decoder() {
    use weftwork::middleware::Decompression;
    keep_log();
    let site = |_: &mut Request| -> &str { panic!("not today") };
    let site = site.with(RequestIds::new()).with(Decompression::new()).with(RequestIds::new());
    let running = CASE.bind("127.0.0.1:0").start(site).unwrap();
    let path = path("decoded");
    let mut client = Client::connect(&running);
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: gz\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(client.answer().status, 500);
    assert!(is_logged(&[&path]).ends_with("not today, request gz"));
}

#[test]
fn a_body_error_is_logged_with_its_rule_or_its_limit() {
    keep_log();
    let site = |req: &mut Request| -> Result<Bytes> { Ok(req.body().bytes()?) };
    let server = CASE.bind("127.0.0.1:0").settings(|s| s.body_ahead_bytes_max(0).chunk_extension_bytes_max(1));
    let running = server.start(unbuffered(site)).unwrap();
    let path = path("malformed");
    for (chunk, said, logged) in [
        ("zz", "A chunk does not start with its size in hexadecimal digits.", "(RFC 9112 §7.1)"),
        ("1;aa", "The chunk extensions of the body are too long.", "(RFC 9112 §7.1.1; chunk_extension_bytes_max is 1B)"),
    ] {
        let mut client = Client::connect(&running);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}\r\nx\r\n"));
        let answer = client.answer();
        assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{answer:?}");
        assert!(answer.text().contains(said) && !answer.text().contains("chunk_extension"), "{answer:?}");
        is_logged(&[&path, said, logged]);
    }
}

#[cfg(feature = "multipart")]
#[test]
fn a_form_that_is_too_large_is_logged_with_its_limit() {
    use weftwork::multipart::MultipartLimits;
    keep_log();
    let site = |req: &mut Request| -> Result<()> {
        let mut limits = MultipartLimits::default();
        limits.parts_max = 0;
        req.multipart()?.limits(limits).form()?;
        Ok(())
    };
    let running = CASE.bind("127.0.0.1:0").start(site).unwrap();
    let path = path("form");
    let form = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
    let mut client = Client::connect(&running);
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: {}\r\n\r\n{form}", form.len()));
    assert_eq!(detail(&client.answer(), 413, "Payload Too Large"), "the request body is a form with more than 0 parts");
    is_logged(&[&path, "parts_max is 0"]);
}
