//! Routes that stream or accept data: a WebSocket, a clock, an upload, and files.

use std::sync::Once;
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use weftwork::http::{StatusCode, header};
use weftwork::{
    Error, Event, EventHub, Files, Handler, IntoResponse, OverflowStrategy, Request, Response, Result,
    WebSocket, embedded, websocket,
};

/// Interval of the clock.
const TICK: Duration = Duration::from_secs(1);
/// Maximum size of an upload, in bytes. The bytes are counted and dropped, so the limit can be large.
const UPLOAD_BYTES_MAX: u64 = 1 << 30;

static SAMPLES: &[(&str, &[u8])] = &[
    ("index.html", include_bytes!("samples/index.html")),
    ("weave.svg", include_bytes!("samples/weave.svg")),
    ("words.txt", include_bytes!("samples/words.txt")),
];

/// State that these routes share.
pub(super) struct Live {
    clock: EventHub,
    started: Once,
    samples: Files,
}

impl Live {
    pub(super) fn new() -> Live {
        // A slow client gets the current time, and not the times that it has missed.
        let limits = weftwork::FeedLimits {
            messages_max: 2,
            overflow: OverflowStrategy::DropOldest,
            ..weftwork::FeedLimits::default()
        };
        let clock = EventHub::new(limits);
        Live { clock, started: Once::new(), samples: embedded(SAMPLES).under("/files") }
    }

    /// Handles `/events`. One thread ticks for all clients, from the first client on.
    pub(super) fn events(&self, req: &Request<'_>) -> Response {
        self.started.call_once(|| {
            let clock = self.clock.clone();
            let started = Builder::new().name("demo-clock".into()).spawn(move || tick(&clock));
            if let Err(error) = started {
                log::error!("cannot start the clock of /events: {error}");
            }
        });
        self.clock.join(req)
    }

    /// Handles `/files/`.
    pub(super) fn files(&self, req: &mut Request<'_>) -> Response {
        self.samples.call(req)
    }
}

fn tick(clock: &EventHub) {
    let mut number = 0_u64;
    loop {
        std::thread::sleep(TICK);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!("{}.{:03} s since 1970", now.as_secs(), now.subsec_millis());
        clock.send(&Event::new(text).name("tick").id(number.to_string()));
        number += 1;
    }
}

/// Handles `/ws/echo`.
pub(super) fn socket(req: &Request<'_>) -> Response {
    websocket(req, echo)
}

fn echo(mut socket: WebSocket) -> std::io::Result<()> {
    while let Some(message) = socket.read()? {
        socket.send(message)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Received {
    bytes: u64,
    files: Vec<FileReceived>,
}

#[derive(Serialize)]
struct FileReceived {
    name: String,
    bytes: u64,
}

/// Handles `/upload`: a form with files, or any body. The bytes are counted and dropped.
#[inline(never)]
pub(super) fn upload(req: &mut Request<'_>) -> Response {
    match count(req) {
        Ok(received) => Response::json(&received),
        Err(error) => error.into_response(),
    }
}

fn count(req: &mut Request<'_>) -> Result<Received> {
    req.set_body_bytes_max(UPLOAD_BYTES_MAX);
    let content_type = req.header(header::CONTENT_TYPE).unwrap_or_default();
    let mut received = Received { bytes: 0, files: Vec::new() };
    if !content_type.starts_with("multipart/form-data") {
        received.bytes = std::io::copy(&mut req.body(), &mut std::io::sink())?;
        return Ok(received);
    }
    let mut form = req.multipart()?;
    while let Some(mut part) = form.next_part()? {
        let name = part.safe_file_name().unwrap_or_default();
        let bytes = std::io::copy(&mut part, &mut std::io::sink())?;
        received.bytes += bytes;
        received.files.push(FileReceived { name, bytes });
    }
    if received.files.is_empty() {
        return Err(Error::client(StatusCode::BAD_REQUEST, "the form has no parts"));
    }
    Ok(received)
}
