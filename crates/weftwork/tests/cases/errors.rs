//! Tests that an error of a handler is logged, with its request and all its causes.

use std::fmt;

use weftwork::http::StatusCode;
use weftwork::middleware::BodyLimit;
use weftwork::{Error, HandlerExt, Next, Request, Response, Result, Router, TestClient, embedded};

use super::{CASE, proxy_to};
use crate::support::{Client, is_logged, keep_log, logged};

#[derive(Debug)]
struct NoRow(std::num::ParseIntError);

impl fmt::Display for NoRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such row")
    }
}

impl std::error::Error for NoRow {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn fails(_: &mut Request) -> Result<String> {
    "x".parse::<u8>().map_err(NoRow)?;
    Ok("never".into())
}

const CAUSES: &str = "there is no such row: invalid digit";

/// Returns a path that no other test requests.
fn path(name: &str) -> String {
    format!("/{}/{name}", module_path!().replace("::", "-"))
}

#[test]
fn an_error_is_logged_once_with_its_request_and_causes() {
    keep_log();
    let running = CASE.bind("127.0.0.1:0").start(fails).unwrap();
    let mut client = Client::connect(&running);
    for method in ["GET", "POST", "HEAD"] {
        let path = path(method);
        client.send(format!("{method} {path}?secret HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        let answer = if method == "HEAD" { client.answer_to_head() } else { client.answer() };
        assert_eq!((answer.status, answer.closes()), (500, false), "{answer:?}");
        assert!(!answer.text().contains("row"), "the causes are for the log: {answer:?}");
        let line = is_logged(&[&path, CAUSES]);
        assert!(line.starts_with(&format!("ERROR a handler failed at {method} {path}: ")), "{line}");
        assert!(!line.contains("secret"), "{line}");
        assert_eq!(logged(&[&path]).len(), 1);
    }
    let path = path("in-memory");
    assert_eq!(TestClient::new(fails).get(&path).send().status, 500);
    is_logged(&[&path, CAUSES]);
}

#[test]
fn a_custom_error_page_keeps_the_error() {
    keep_log();
    fn sorry(req: &mut Request, next: Next) -> Response {
        let response = next.run(req);
        assert!(response.error().is_some_and(|error| error.to_string().contains(CAUSES)));
        response.with_body("sorry").with_status(StatusCode::BAD_GATEWAY)
    }
    let running = CASE.bind("127.0.0.1:0").start(fails.with(sorry)).unwrap();
    let path = path("own-page");
    Client::connect(&running).get(&path).is(502, "sorry");
    is_logged(&[&path, CAUSES]);
}

#[test]
fn a_replacement_response_does_not_hide_the_error() {
    keep_log();
    #[derive(Debug)]
    struct Named(String);
    impl fmt::Display for Named {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the error of {}", self.0)
        }
    }
    impl std::error::Error for Named {}
    let named = |req: &mut Request| -> Result<String> { Err(Named(req.path().to_owned()))? };
    let replaced = named.with(|req: &mut Request, next: Next| {
        next.run(req);
        Response::text("fine")
    });
    let running = CASE.bind("127.0.0.1:0").start(replaced).unwrap();
    let path = path("replaced");
    Client::connect(&running).get(&path).is(200, "fine");
    is_logged(&["ERROR", "its own answer was not sent", &path]);
}

/// Otherwise a client could write lines that look like the server's.
#[test]
fn client_input_does_not_break_a_log_line() {
    keep_log();
    // As the errors of parsers do.
    fn quotes(req: &mut Request) -> Result<Response> {
        let path = req.path().to_owned();
        let body = req.body().text();
        let said = format!("{path} does not know `{}`", body.as_deref().unwrap_or("a\nb"));
        match path.rsplit('-').next() {
            Some("panicked") => panic!("{said}"),
            Some("streamed") => Ok(Response::stream(|_| Err(std::io::Error::other(said)))),
            _ => Err(Error::internal(said)),
        }
    }
    let replaced = quotes.with(|req: &mut Request, next: Next| {
        let response = next.run(req);
        if req.path().ends_with("replaced") { Response::text("fine") } else { response }
    });
    let running = CASE.bind("127.0.0.1:0").start(replaced.with(BodyLimit::new(19))).unwrap();
    let told = |way: &str, fields_and_body: &str, quoted: &str| {
        let path = path(&format!("quoted-{way}"));
        let mut client = Client::connect(&running);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields_and_body}"));
        is_logged(&[&path, &format!("does not know `{quoted}`")]);
    };
    for way in ["returned", "replaced", "panicked", "streamed"] {
        told(way, "Content-Length: 3\r\n\r\na\nb", r"a\nb");
    }
    // The body is too large, and the error is about that.
    told("blamed", "Transfer-Encoding: chunked\r\n\r\n14\r\n12345678901234567890\r\n0\r\n\r\n", r"a\nb");
    let others = "\r\t\u{1b}\u{85}\u{2028}\u{e9}\"";
    told("others", &format!("Content-Length: {}\r\n\r\n{others}", others.len()), "\\r\\t\\u{1b}\\u{85}\\u{2028}\u{e9}\"");
}

#[test]
fn a_server_logs_its_addresses() {
    keep_log();
    let running = CASE.bind("127.0.0.1:0").start(fails).unwrap();
    let address = running.local_addr().unwrap().to_string();
    // The server of another engine may have had the port before.
    let line = is_logged(&["listening at", &address, &format!("engine {}", CASE.engine)]);
    assert!(line.starts_with("INFO"), "{line}");
}

/// The mount and its handler remove the same prefix, so the handler finds nothing.
#[test]
fn a_prefix_that_is_removed_twice_is_logged_once() {
    keep_log();
    let [of_files, of_proxy] = ["files", "proxy"].map(path);
    let site = Router::new()
        .mount(&of_files, embedded(&[("a", b"a")]).under(&of_files))
        .mount(&of_proxy, proxy_to("127.0.0.1:1").strip_prefix(&of_proxy));
    let running = CASE.bind("127.0.0.1:0").start(site).unwrap();
    let mut client = Client::connect(&running);
    for (mount, option) in [(of_files, "under"), (of_proxy, "strip_prefix")] {
        for _ in 0..2 {
            assert_eq!(client.get(&format!("{mount}/a")).status, 404);
        }
        let line = is_logged(&[&mount, "404"]);
        assert_eq!(line, format!("WARN the handler at {mount} answers 404: the mount has removed the prefix, so leave out {option}({mount:?})"));
        assert_eq!(logged(&[&mount, "404"]).len(), 1);
    }
}
