//! The routes of the demo: something to look at, to try, and to measure.

mod live;
mod page;

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Serialize;
use weftwork::http::{HeaderValue, Method, StatusCode, header};
use weftwork::{Error, Handler, IntoResponse, Request, Response};

use self::live::Live;
use crate::serving::Window;

/// The longest that `/slow` and `/wait` may take.
const SLOW_MS_MAX: u64 = 60_000;
const SLOW_MS: u64 = 100;
/// How much of a body `/echo` holds at once.
const ECHO_BYTES: usize = 16 << 10;

/// A route, as the page and the refusals tell of it.
struct Route {
    path: &'static str,
    allow: &'static str,
    about: &'static str,
}

const GET: &str = "GET, HEAD";

const ROUTES: [Route; 12] = [
    Route { path: "/", allow: GET, about: "this page" },
    Route { path: "/health", allow: GET, about: "OK, as cheap as an answer can be" },
    Route { path: "/json", allow: GET, about: "a value, serialized for each request" },
    Route { path: "/headers", allow: GET, about: "the fields of your request, as they came" },
    Route { path: "/nocontent", allow: GET, about: "204, no body" },
    Route {
        path: "/slow",
        allow: GET,
        about: "a handler that blocks its thread for ?ms=100; nobody else waits",
    },
    Route { path: "/wait", allow: GET, about: "a handler that waits ?ms=100 by weftwork::sleep" },
    Route {
        path: "/echo",
        allow: "POST",
        about: "the body of your request, sent back while it comes, whatever its size",
    },
    Route {
        path: "/events",
        allow: GET,
        about: "a clock, as server-sent events: one thread for all who look",
    },
    Route { path: "/ws/echo", allow: "GET", about: "a WebSocket that sends back what it gets" },
    Route { path: "/upload", allow: "POST", about: "a form with files, or any body: counted as it comes" },
    Route { path: "/files/", allow: GET, about: "samples, with tags, conditions and ranges" },
];

/// Answers the demo's requests.
pub(crate) struct Demo {
    window: Window,
    live: Live,
}

/// The demo, and the window through which it will look at its server.
pub(crate) fn demo() -> (Demo, Window) {
    let window = Window::default();
    (Demo { window: window.clone(), live: Live::new() }, window)
}

impl Handler for Demo {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let get = matches!(*req.method(), Method::GET | Method::HEAD);
        match req.path() {
            "/health" if get => Response::text("OK"),
            "/json" if get => Response::json(&Message { message: "Hello, World!" }),
            "/echo" if *req.method() == Method::POST => echo(req),
            "/headers" if get => headers(req),
            "/nocontent" if get => Response::new(StatusCode::NO_CONTENT),
            "/slow" if get => pause(req, "blocked", std::thread::sleep),
            "/wait" if get => pause(req, "waited", weftwork::sleep),
            "/events" if get => self.live.events(req),
            "/ws/echo" if get => live::socket(req),
            "/upload" if *req.method() == Method::POST => live::upload(req),
            path if path.starts_with("/files/") => self.live.files(req),
            "/" if get => page::page(&self.window),
            path => refusal(req.method(), path),
        }
    }
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

fn echo(req: &mut Request<'_>) -> Response {
    // Before the head of the answer: who waits for 100 Continue gets it, and a bad body still gets a status.
    if let Err(error) = req.body().limit(u64::MAX).fill_buf() {
        return Error::from(error).into_response();
    }
    let content_type = req.fields().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let content_type = content_type.and_then(|(_, value)| HeaderValue::from_bytes(value).ok());
    // Who sends in chunks may wait for an answer to each; a body of known length is only wanted back.
    let by_piece = req.header(header::TRANSFER_ENCODING).is_some();
    let response = Response::stream(move |out| {
        let mut buffer = [0; ECHO_BYTES];
        loop {
            let count = out.read_request(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            out.write_all(&buffer[..count])?;
            if by_piece {
                out.flush()?;
            }
        }
    });
    match content_type {
        Some(content_type) => response.with_content_type(content_type),
        None => response,
    }
}

fn headers(req: &Request<'_>) -> Response {
    let mut text = Vec::new();
    for (name, value) in req.fields() {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    Response::text(text)
}

fn pause(req: &Request<'_>, did: &str, pause: fn(Duration)) -> Response {
    let ms = match req.query_value("ms") {
        None => SLOW_MS,
        Some(text) => match text.parse::<u64>() {
            Ok(ms) => ms.min(SLOW_MS_MAX),
            Err(_) => {
                return Response::text(format!(
                    "the parameter ms is {text:?}, but has to be a number of milliseconds, {SLOW_MS_MAX} at most\n"
                ))
                .with_status(StatusCode::BAD_REQUEST);
            }
        },
    };
    pause(Duration::from_millis(ms));
    Response::text(format!("{did} for {ms} ms\n"))
}

fn refusal(method: &Method, path: &str) -> Response {
    let Some(route) = ROUTES.iter().find(|route| route.path == path) else {
        return Response::text("there is nothing here; / shows what there is\n")
            .with_status(StatusCode::NOT_FOUND);
    };
    Response::text(format!("{path} takes {}, not {method}\n", route.allow))
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
        .with_header(header::ALLOW, HeaderValue::from_static(route.allow))
}
