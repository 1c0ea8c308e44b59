//! Tests typed arguments and JSON answers wherever the handler runs, at every depth of the JSON.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weftwork::{Json, Path, Query, Request, Response, Result, Router, Running, State, json};

use super::CASE;
use crate::support::Client;

/// The maximum depth that serde_json reads. One more level is an error.
const LEVELS_MAX: usize = 127;

#[derive(Deserialize)]
struct Filter {
    min: u32,
    tag: Vec<String>,
}

#[derive(Serialize)]
struct Found {
    shelf: u64,
    min: u32,
    tags: usize,
    calls: usize,
}

fn find(State(calls): State<AtomicUsize>, Path(shelf): Path<u64>, Query(filter): Query<Filter>) -> Json<Found> {
    let calls = calls.fetch_add(1, Ordering::Relaxed) + 1;
    Json(Found { shelf, min: filter.min, tags: filter.tag.len(), calls })
}

fn again(req: &mut Request) -> Result<Response> {
    let value: Value = req.body().json()?;
    Ok(json(&value))
}

fn start() -> Running {
    let router = Router::new()
        .get("/shelves/{shelf}", find)
        .post("/again", again)
        .mount("/typed", Router::new().post("/again", |Json(value): Json<Value>| Json(value)))
        .state(AtomicUsize::new(0));
    // Without optimisation, this is enough to drop a value that is nested that deep, and too little to read or
    // write it.
    let server = CASE.bind("127.0.0.1:0").settings(|settings| settings.fiber_stack_bytes(160 << 10));
    server.start(router).expect("the server starts")
}

#[track_caller]
fn post(client: &mut Client, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    client.send(format!("{head}{body}"));
    let answer = client.answer();
    (answer.status, answer.text().to_owned())
}

#[test]
fn arguments_are_taken_from_their_places() {
    let server = start();
    let mut client = Client::connect(&server);
    client.get("/shelves/7?min=3&tag=a&tag=b").is(200, r#"{"shelf":7,"min":3,"tags":2,"calls":1}"#);
    client.get("/shelves/7?min=0").is(200, r#"{"shelf":7,"min":0,"tags":0,"calls":2}"#);
    for (path, field) in [("/shelves/x?min=3", "shelf"), ("/shelves/7?min=x", "min"), ("/shelves/7", "min")] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.field("content-type")), (400, Some("application/problem+json")));
        assert!(answer.text().contains(&format!(r#""field":"{field}""#)), "{answer:?}");
    }
    client.get("/shelves/7?min=1").is(200, r#"{"shelf":7,"min":1,"tags":0,"calls":3}"#);
}

/// A few hundred bytes must not use up a stack.
#[test]
fn json_of_any_depth_costs_its_request_at_most() {
    let server = start();
    let mut client = Client::connect(&server);
    let nested = |levels: usize, open: &str, end: &str| open.repeat(levels) + "1" + &end.repeat(levels);
    for path in ["/again", "/typed/again"] {
        for (open, end, levels) in [
            ("[", "]", LEVELS_MAX),
            (r#"{"a":"#, "}", LEVELS_MAX),
            (r#"[{"a":"#, "}]", LEVELS_MAX / 2),
        ] {
            let deep = nested(levels, open, end);
            assert_eq!(post(&mut client, path, &deep), (200, deep), "{path}");
            assert_eq!(post(&mut client, path, &open.repeat(levels)).0, 400, "{path}: it does not end");
            let (status, told) = post(&mut client, path, &nested(LEVELS_MAX + 1, open, end));
            assert!(status == 400 && told.contains("recursion limit"), "{path}: {told}");
        }
    }
}
