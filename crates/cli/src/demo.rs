//! Routes of the demo: examples to look at, to try, and to measure.

mod block;
mod examples;
mod live;
mod page;

use std::io::{BufRead, Write};
use std::sync::LazyLock;
use std::time::Duration;

use serde::Serialize;
use weftwork::http::{HeaderValue, StatusCode, header};
use weftwork::middleware::Csrf;
use weftwork::{Error, Handler, IntoResponse, Middleware, Next, Request, Response, Routes, routes};

use self::block::Block;
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
    #[get("/demo.js")]
    Script,
    #[quick]
    #[get("/demo.css")]
    Style,
    #[get("/dashboard")]
    Dashboard,
    #[post("/block?{wait}")]
    Block { wait: Option<bool> },
    #[get("/block/events")]
    BlockEvents,
    #[get("/block.svg")]
    BlockPicture,
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
    #[get("/bytes?{n}")]
    Bytes { n: Option<usize> },
    #[get("/slow?{ms}&{us}&{accepted}")]
    Slow { ms: Option<u64>, us: Option<u64>, accepted: Option<bool> },
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

/// Returns the demo. It reads the state of its server through `probes`.
pub(crate) fn demo(probes: Probes) -> impl Handler {
    let (live, block) = (Live::new(), Block::new());
    let answer = move |route: Demo, req: &mut Request<'_>| match route {
        Demo::Page => page::page(probes.status()),
        Demo::Script => page::script(),
        Demo::Style => page::style(),
        Demo::Dashboard => probes.dashboard(req),
        Demo::Block { wait } => start_block(&block, wait, req),
        Demo::BlockEvents => block.events(req),
        Demo::BlockPicture => block.picture(),
        Demo::Health => Probes::health(),
        Demo::Ready => probes.ready(),
        Demo::Metrics => probes.metrics(req),
        Demo::Json => json(),
        Demo::Headers => headers(req),
        Demo::NoContent => no_content(),
        Demo::Bytes { n } => bytes(n),
        Demo::Slow { ms, us, accepted } => slow(ms, us, accepted.unwrap_or(false)),
        Demo::Wait { ms } => wait(ms),
        Demo::Later { ms } => later(ms),
        Demo::Echo => echo(req),
        Demo::Events => live.events(req),
        Demo::Socket => live::socket(req),
        Demo::Upload => live::upload(req),
        Demo::File { .. } => live.files(req),
    };
    let nothing = || (StatusCode::NOT_FOUND, "not found: see / for the routes\n");
    routes(answer).fallback(nothing)
}

/// Pages of other sites must not start a run.
fn start_block(block: &Block, wait: Option<bool>, req: &mut Request<'_>) -> Response {
    let block = block.clone();
    let start = move |_: &mut Request<'_>| block.start(wait.unwrap_or(false));
    Csrf::new().handle(req, Next::new(&start))
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

fn json() -> Response {
    Response::json(&Message { message: "Hello, World!" })
}

fn no_content() -> Response {
    Response::new(StatusCode::NO_CONTENT)
}

/// What `/bytes` answers with, or the start of it. It is made at the first request.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| vec![b'x'; 1 << 20]);

fn bytes(n: Option<usize>) -> Response {
    let all: &'static [u8] = &BYTES;
    Response::bytes(&all[..n.unwrap_or(all.len()).min(all.len())])
}

/// The bench tells requests that block by their status.
fn slow(ms: Option<u64>, us: Option<u64>, is_accepted: bool) -> Response {
    let time = us.map_or_else(|| time(ms), |us| Duration::from_micros(us).min(time(Some(u64::MAX))));
    std::thread::sleep(time);
    let status = if is_accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
    Response::text("blocked\n").with_status(status)
}

fn wait(ms: Option<u64>) -> Response {
    weftwork::sleep(time(ms));
    Response::text("waited\n")
}

fn later(ms: Option<u64>) -> Response {
    Response::text("later\n").with_delay(time(ms))
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
            echo_by_piece((length / parts) as usize, false).with_header(header::CONTENT_LENGTH, length)
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

fn time(ms: Option<u64>) -> Duration {
    Duration::from_millis(ms.unwrap_or(SLOW_MS).min(SLOW_MS_MAX))
}
