//! Routes of the demo: examples to look at, to try, and to measure.

mod live;
mod page;

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Serialize;
use weftwork::http::{HeaderValue, StatusCode, header};
use weftwork::{Error, Handler, IntoResponse, Request, Response, Routes, routes};

use self::live::Live;
use crate::probes::Probes;

/// Maximum time that `/slow`, `/wait` and `/later` take.
const SLOW_MS_MAX: u64 = 60_000;
const SLOW_MS: u64 = 100;
/// Maximum length of a body that `/echo` reads whole. For a short body, that is cheaper than streaming.
const GATHERED_BYTES_MAX: u64 = 64 << 10;
/// Maximum part of a longer body that `/echo` holds at once. With half of it, an echo of 1 MiB took 1 % more CPU.
const ECHO_BYTES: usize = 256 << 10;

/// Routes of the demo.
#[derive(Routes)]
enum Demo {
    #[get("/")]
    Page,
    #[quick]
    #[get("/ready")]
    Ready,
    #[quick]
    #[get("/metrics")]
    Metrics,
    #[get("/health")]
    #[quick]
    Health,
    #[get("/json")]
    Json,
    #[get("/headers")]
    Headers,
    #[get("/nocontent")]
    NoContent,
    #[get("/slow?{ms}&{us}")]
    Slow { ms: Option<u64>, us: Option<u64> },
    #[get("/wait?{ms}")]
    Wait { ms: Option<u64> },
    #[get("/later?{ms}")]
    Later { ms: Option<u64> },
    #[post("/echo")]
    Echo,
    #[get("/events")]
    Events,
    #[get("/ws/echo")]
    Socket,
    #[post("/upload")]
    Upload,
    #[any("/files/{*path}")]
    File { path: String },
}

/// Routes with the descriptions on the page.
const ROUTES: [(Demo, &str); 15] = [
    (Demo::Page, "this page"),
    (Demo::Health, "OK: the smallest response"),
    (Demo::Ready, "200, or 503 from the moment on at which the server is told to stop"),
    (Demo::Metrics, "numbers for Prometheus"),
    (Demo::Json, "a value as JSON, serialized for each request"),
    (Demo::Headers, "the header fields of your request, unchanged"),
    (Demo::NoContent, "204 without a body"),
    (
        Demo::Slow { ms: None, us: None },
        "a handler that blocks its thread for ?ms=100 (or ?us=). Other requests do not wait",
    ),
    (Demo::Wait { ms: None }, "a handler that waits for ?ms=100 with weftwork::sleep"),
    (Demo::Later { ms: None }, "a response that is sent ?ms=100 later, without a thread"),
    (Demo::Echo, "the body of your request. A large body is sent back in pieces, whatever its size"),
    (Demo::Events, "a clock as server-sent events, with one thread for all clients"),
    (Demo::Socket, "a WebSocket that echoes each message"),
    (Demo::Upload, "a form with files, or any body. The bytes are counted and dropped"),
    (Demo::File { path: String::new() }, "sample files with entity tags and range requests"),
];

/// Returns the demo. It reads the state of its server through `probes`.
pub(crate) fn demo(probes: Probes) -> impl Handler {
    let live = Live::new();
    let answer = move |route: Demo, req: &mut Request<'_>| match route {
        Demo::Page => page::page(probes.status()),
        Demo::Health => Probes::health(),
        Demo::Ready => probes.ready(),
        Demo::Metrics => probes.metrics(req),
        Demo::Json => Response::json(&Message { message: "Hello, World!" }),
        Demo::Headers => headers(req),
        Demo::NoContent => Response::new(StatusCode::NO_CONTENT),
        Demo::Slow { ms, us } => {
            let time = us.map_or_else(|| time(ms), |us| Duration::from_micros(us).min(time(Some(u64::MAX))));
            pause(time, "blocked\n", std::thread::sleep)
        }
        Demo::Wait { ms } => pause(time(ms), "waited\n", weftwork::sleep),
        Demo::Later { ms } => Response::text("later\n").with_delay(time(ms)),
        Demo::Echo => echo(req),
        Demo::Events => live.events(req),
        Demo::Socket => live::socket(req),
        Demo::Upload => live::upload(req),
        Demo::File { .. } => live.files(req),
    };
    let nothing = || (StatusCode::NOT_FOUND, "not found: see / for the routes\n");
    routes(answer).fallback(nothing)
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

fn echo(req: &mut Request<'_>) -> Response {
    // The body is read before the response head is sent. So a client that waits for 100 Continue gets it, and a
    // malformed body gets a status.
    if let Err(error) = req.body().limit(u64::MAX).fill_buf() {
        return Error::from(error).into_response();
    }
    let content_type = req.header_values(header::CONTENT_TYPE).next();
    let content_type = content_type.and_then(|value| HeaderValue::from_bytes(value).ok());
    let response = match req.body_left() {
        Some(length) if length <= GATHERED_BYTES_MAX => match req.body().bytes() {
            Ok(body) => Response::bytes(body),
            Err(error) => return Error::from(error).into_response(),
        },
        Some(length) => {
            // All parts have the same length, because a part shorter than the buffer would be copied once more.
            let parts = length.div_ceil(ECHO_BYTES as u64);
            echo_by_piece((length / parts) as usize, false).with_header(header::CONTENT_LENGTH, length.into())
        }
        // A client that sends chunks may wait for a response to each chunk.
        None => echo_by_piece(ECHO_BYTES, true),
    };
    match content_type {
        Some(content_type) => response.with_content_type(content_type),
        None => response,
    }
}

fn echo_by_piece(bytes: usize, at_once: bool) -> Response {
    Response::stream(move |out| {
        let mut part = Vec::with_capacity(bytes);
        while out.read_request_buf(&mut part)? > 0 {
            out.write_all(&part)?;
            part.clear();
            if at_once {
                out.flush()?;
            }
        }
        Ok(())
    })
}

fn headers(req: &Request<'_>) -> Response {
    let mut text = Vec::new();
    for (name, value) in req.header_lines() {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    Response::text(text)
}

fn pause(time: Duration, did: &'static str, pause: fn(Duration)) -> Response {
    pause(time);
    Response::text(did)
}

fn time(ms: Option<u64>) -> Duration {
    Duration::from_millis(ms.unwrap_or(SLOW_MS).min(SLOW_MS_MAX))
}
