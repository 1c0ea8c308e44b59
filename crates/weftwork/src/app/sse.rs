//! Server-sent events: what a page's `EventSource` reads.
//!
//! Two forms. [`sse`] is a handler that writes: it has its thread, or its fiber, and can wait for whatever it tells
//! of. [`EventHub`] tells all of its clients, or some: they hold no thread at all.

mod event;
mod hub;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use http::{HeaderValue, header};

pub use event::Event;
pub use hub::EventHub;

use crate::message::{BodyWriter, Request, Response};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A comment of no words: no page sees it, and whoever stands between knows that the stream lives.
const HEARTBEAT: &[u8] = b":\n\n";

/// A response whose events `write` sends, one by one, on the handler's thread or fiber.
///
/// It ends when `write` returns; the page's `EventSource` then comes again by itself, and says in
/// [`EventWriter::last_event_id`] which event it saw last.
///
/// Each client holds one of the [`threads_max`](crate::Settings::threads_max) threads (512) for as long as it listens, but in the
/// engine `fibers`. Streams that stay open, of each user's own news too, are for an [`EventHub`].
///
/// ```
/// use std::time::Duration;
/// use weftwork::{Event, Request, Response, sse};
///
/// fn countdown(req: &mut Request) -> Response {
///     sse(req, |events| {
///         for left in (0..10).rev() {
///             events.send(&Event::new(left.to_string()).id(left.to_string()))?;
///             if !events.wait(Duration::from_secs(1))? {
///                 break;      // the server stops
///             }
///         }
///         Ok(())
///     })
/// }
/// ```
pub fn sse(
    req: &Request<'_>,
    write: impl FnOnce(&mut EventWriter<'_, '_>) -> io::Result<()> + Send + 'static,
) -> Response {
    let last_event_id = last_event_id(req);
    as_event_stream(Response::stream(move |out| {
        let mut events =
            EventWriter { out, last_event_id, since_last_send: Duration::ZERO, stop_reported: false };
        // The head at once: until it comes, a page's EventSource is not open.
        events.out.flush()?;
        write(&mut events)
    }))
}

/// The fields that an event stream needs: nobody on the way may keep it, or wait for more of it.
fn as_event_stream(response: Response) -> Response {
    response
        .with_content_type(EVENT_STREAM)
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
}

fn last_event_id(req: &Request<'_>) -> Option<String> {
    let value = req.header_values("last-event-id").next()?;
    String::from_utf8(value.to_vec()).ok()
}

/// Sends the events of one stream; see [`sse`].
pub struct EventWriter<'w, 'c> {
    out: &'w mut BodyWriter<'c>,
    last_event_id: Option<String>,
    /// Waited since something was sent.
    since_last_send: Duration,
    /// [`EventWriter::wait`] has said so.
    stop_reported: bool,
}

impl EventWriter<'_, '_> {
    /// The id of the last event that the client has seen, if it comes again and events had ids.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Sends an event at once.
    ///
    /// # Errors
    /// The client has gone, or takes nothing for longer than `write_timeout`.
    pub fn send(&mut self, event: &Event) -> io::Result<()> {
        self.send_bytes(&event.to_bytes())
    }

    /// Sends a comment, which no page sees. [`wait`](EventWriter::wait) does it by itself.
    ///
    /// # Errors
    /// As [`send`](EventWriter::send).
    pub fn heartbeat(&mut self) -> io::Result<()> {
        self.send_bytes(HEARTBEAT)
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.since_last_send = Duration::ZERO;
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Lets this much time pass, with a comment now and then (see the setting `heartbeat`). False: the server has
    /// begun to stop, and the stream should end. The first false comes at once, later ones when the time has passed.
    ///
    /// # Errors
    /// The client has gone: it is noticed at once, not at the next event. Or the server has waited for `drain_timeout`, and cuts its
    /// connections.
    pub fn wait(&mut self, duration: Duration) -> io::Result<bool> {
        let heartbeat = self.out.heartbeat().max(Duration::from_millis(1));
        let mut left = duration;
        // Short waits add up: a writer that looks for news every second may have none for long.
        loop {
            let until_beat = heartbeat.saturating_sub(self.since_last_send);
            let part = left.min(until_beat);
            let runs = self.out.pause(part)?;
            // The first false has come before its time.
            let is_cut_short = !runs && !std::mem::replace(&mut self.stop_reported, true);
            if left <= until_beat || is_cut_short {
                self.since_last_send += part;
                return Ok(runs);
            }
            self.heartbeat()?;
            left -= part;
        }
    }
}

impl fmt::Debug for EventWriter<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").field("last_event_id", &self.last_event_id).finish_non_exhaustive()
    }
}
