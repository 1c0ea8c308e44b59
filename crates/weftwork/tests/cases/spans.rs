// Tests that each request has one span with its fields, and that events of its handler belong to it.

use std::time::Duration;

use weftwork::http::StatusCode;
use weftwork::middleware::{RequestIds, RequestSpans};
use weftwork::{Engine, HandlerExt, Request, Response, Router};

use super::CASE;
use crate::support::spans::{self, Recorded};
use crate::support::{Client, eventually};

/// Returns the span of this path when it is closed.
fn closed(path: &str) -> Recorded {
    let found = || spans::all().into_iter().find(|span| span.field("url.path") == Some(path));
    eventually("the span is closed", || found().is_some_and(|span| span.is_closed));
    found().unwrap()
}

#[test]
fn a_request_has_one_span_with_its_fields() {
    spans::collect();
    // All engines share the collector.
    let base = format!("/{}", CASE.engine).replace(':', "-");
    let on_fiber = matches!(CASE.engine, Engine::Fibers { .. });
    let user = |req: &mut Request| {
        tracing::info!("an event of the handler");
        let span = req.extensions().get::<tracing::Span>().unwrap();
        span.in_scope(|| tracing::info!("an event in the span"));
        "a user"
    };
    let later = |_: &mut Request| {
        let (sender, response) = Response::later(Duration::from_secs(60), StatusCode::NO_CONTENT);
        std::thread::spawn(move || sender.send(StatusCode::BAD_GATEWAY));
        response
    };
    let panics = |_: &mut Request| -> Response { panic!("as asked") };
    let site = Router::new().get("/users/{id}", user).get("/later", later).get("/panics", panics);
    let site = Router::new().mount(&base, site).with(RequestSpans::new()).with(RequestIds::new());
    let running = CASE.bind("127.0.0.1:0").start(site).expect("the server starts");
    let get = |path: &str| Client::connect(&running).get(&format!("{base}{path}")).status;
    assert_eq!([get("/users/7?x=1"), get("/later"), get("/panics"), get("/nowhere")], [200, 502, 500, 404]);

    let span = closed(&format!("{base}/users/7"));
    let route = format!("{base}/users/{{id}}");
    for (name, value) in [
        ("otel.name", Some(format!("GET {route}").as_str())),
        ("otel.kind", Some("server")),
        ("http.request.method", Some("GET")),
        ("http.route", Some(&route)),
        ("client.address", Some("127.0.0.1")),
        ("http.response.status_code", Some("200")),
        ("error.type", None),
        ("otel.status_code", None),
    ] {
        assert_eq!(span.field(name), value, "{name}");
    }
    assert!(span.field("url.scheme").is_some() && span.field("network.protocol.version").is_some());
    assert_eq!(span.field("trace_id").map(str::len), Some(32));
    let events = ["an event of the handler", "an event in the span"];
    assert_eq!(span.events, events[usize::from(on_fiber)..], "a fiber enters no span");

    for (path, status, error) in [("/later", "502", "502"), ("/panics", "500", "500")] {
        let span = closed(&format!("{base}{path}"));
        let got = ["http.response.status_code", "error.type", "otel.status_code"].map(|name| span.field(name));
        assert_eq!(got, [Some(status), Some(error), Some("ERROR")], "{path}");
    }
    let span = closed(&format!("{base}/nowhere"));
    let got = ["http.response.status_code", "http.route", "otel.name"].map(|name| span.field(name));
    assert_eq!(got, [Some("404"), None, Some("GET")]);
}
