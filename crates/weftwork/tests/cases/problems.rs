//! Tests the shape that the user gives to the responses of the library itself.

use std::time::Duration;

use weftwork::http::StatusCode;
use weftwork::{
    HandlerExt, IntoResponse, Json, Next, Path, Problem, Request, Response, Result, Router, Running, text,
};

use super::CASE;
use crate::support::{Answer, Client, is_logged, keep_log};

fn shape(status: StatusCode, problem: &Problem, req: Option<&Request>) -> Response {
    let path = req.map_or("no request", |req| req.path());
    assert!(path != "/shape-panics", "the shape panics, as asked");
    text(format!("{} at {path}: {problem}", status.as_u16()))
}

/// A header of this middleware is in each response, whatever its shape.
fn marked(req: &mut Request, next: Next) -> Response {
    let response = next.run(req);
    let has_problem = response.problem().is_some();
    response.with_header("x-problem", has_problem.to_string())
}

fn fails(_: &mut Request) -> Result<String> {
    Err(std::io::Error::other("the disk is gone"))?
}

fn start() -> Running {
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail("busy");
    let site = Router::new()
        .get("/home", || "home")
        .get("/numbers/{number}", |Path(number): Path<u8>| number.to_string())
        .post("/json", |Json(number): Json<u8>| number.to_string())
        .get("/fail", fails)
        .get("/panic", |_: &mut Request| -> &str { panic!("as asked") })
        .get("/shape-panics", busy)
        .get("/late", move || busy().into_response().with_delay(Duration::from_millis(1)))
        .get("/unwritable", || "tea".into_response().with_header("content-length", "7"))
        .get("/mine", || (StatusCode::NOT_FOUND, "mine"))
        .get("/replaced", move || busy().into_response().with_body("replaced"));
    let server = CASE.bind("127.0.0.1:0").problems(shape).settings(|s| s.body_bytes_max(8));
    server.start(site.with(marked)).unwrap()
}

fn request(running: &Running, line: &str, rest: &str) -> Answer {
    let mut client = Client::connect(running);
    client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{rest}"));
    client.answer()
}

#[track_caller]
fn has_shape(answer: &Answer, status: u16, path: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"), "{answer:?}");
    assert!(answer.text().starts_with(&format!("{status} at {path}: ")), "{answer:?}");
}

#[test]
fn responses_of_routers_arguments_and_handlers_have_the_shape() {
    keep_log();
    let running = start();
    let json = |kind: &str, body: &str| {
        format!("Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    for (status, line, rest) in [
        (404, "GET /nowhere", "\r\n".to_owned()),
        (405, "DELETE /home", "\r\n".to_owned()),
        (400, "GET /numbers/tea", "\r\n".to_owned()),
        (415, "POST /json", json("text/csv", "7")),
        (400, "POST /json", json("application/json", "tea")),
        (422, "POST /json", json("application/json", "\"tea\"")),
        (413, "POST /json", json("application/json", "123456789")),
        (500, "GET /fail", "\r\n".to_owned()),
    ] {
        let answer = request(&running, line, &rest);
        has_shape(&answer, status, line.split(' ').nth(1).unwrap());
        assert_eq!(answer.field("x-problem"), Some("true"), "{answer:?}");
    }
    assert!(request(&running, "DELETE /home", "\r\n").field("allow").is_some_and(|names| names.contains("GET")));
    is_logged(&["a handler failed at GET /fail: the disk is gone"]);

    let mut client = Client::connect(&running);
    client.send("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.closes()), (404, false), "{answer:?}");
    client.get("/home").is(200, "home");
}

#[test]
fn responses_of_the_connection_have_the_shape() {
    keep_log();
    let running = start();
    has_shape(&request(&running, "GET /panic", "\r\n"), 500, "/panic");
    has_shape(&request(&running, "GET /unwritable", "\r\n"), 500, "/unwritable");
    has_shape(&request(&running, "GET /late", "\r\n"), 503, "no request");
    has_shape(&request(&running, "GET /home", "Expect: a miracle\r\n\r\n"), 417, "no request");
}

#[test]
fn other_responses_stay_as_they_are() {
    let running = start();
    request(&running, "GET /mine", "\r\n").is(404, "mine");
    request(&running, "GET /replaced", "\r\n").is(503, "replaced");
}

#[test]
fn a_shape_that_panics_leaves_the_default() {
    keep_log();
    let running = start();
    let mut client = Client::connect(&running);
    let answer = client.get("/shape-panics");
    assert_eq!((answer.status, answer.field("content-type")), (503, Some("application/problem+json")));
    assert!(answer.text().contains("\"detail\":\"busy\""), "{answer:?}");
    is_logged(&["the function of Server::problems panicked: the shape panics, as asked"]);
    client.get("/home").is(200, "home");
}
