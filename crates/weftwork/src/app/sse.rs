//! Server-sent events, which a page reads with `EventSource`.
//!
//! There are two forms. [`sse`] is a handler that writes events on its own thread or fiber, so it can wait for
//! anything. [`EventHub`] sends events to all or some of its clients, and they hold no thread.

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

/// An empty comment. Pages do not see it, and intermediaries learn that the stream is alive.
const HEARTBEAT: &[u8] = b":\n\n";

/// Creates a response whose events `write` sends one by one, on the thread or fiber of the handler.
///
/// The stream ends when `write` returns. The `EventSource` of the page then reconnects, and
/// [`EventWriter::last_event_id`] returns the last event that it saw.
///
/// Except in the engine `fibers`, each client holds one of the [`threads_max`](crate::Settings::threads_max)
/// threads (512) while it listens. For streams that stay open, use an [`EventHub`]. It can also send events to
/// a single user.
///
/// An `EventSource` reconnects after a connection that failed or ended. After a response other than 200 with
/// `text/event-stream`, it gives up for good (HTML section 9.2.3). See [`EventHub`] for proxies in front.
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
        // Sent at once, because the `EventSource` of a page opens only when the head arrives.
        events.out.flush()?;
        write(&mut events)
    }))
}

/// Sets the fields of an event stream, so that intermediaries neither store nor buffer it.
fn as_event_stream(response: Response) -> Response {
    response
        .endless()
        .with_content_type(EVENT_STREAM)
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
}

fn last_event_id(req: &Request<'_>) -> Option<String> {
    let value = req.header_values("last-event-id").next()?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Writes the events of one stream. See [`sse`].
pub struct EventWriter<'w, 'c> {
    out: &'w mut BodyWriter<'c>,
    last_event_id: Option<String>,
    /// Time waited since the last send.
    since_last_send: Duration,
    /// Whether [`EventWriter::wait`] has reported the stop.
    stop_reported: bool,
}

impl EventWriter<'_, '_> {
    /// Returns the id of the last event that the client saw, if the client reconnects and events had ids.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Sends an event at once.
    ///
    /// # Errors
    /// Fails if the client is gone, or reads nothing for `write_timeout`.
    pub fn send(&mut self, event: &Event) -> io::Result<()> {
        self.send_bytes(&event.to_bytes())
    }

    /// Sends a comment, which pages do not see. [`wait`](EventWriter::wait) does this automatically.
    ///
    /// # Errors
    /// Same as [`send`](EventWriter::send).
    pub fn heartbeat(&mut self) -> io::Result<()> {
        self.send_bytes(HEARTBEAT)
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.since_last_send = Duration::ZERO;
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Waits for `duration` and sends a comment now and then (see the setting `heartbeat`). Returns false if
    /// the server is stopping, and the stream should end. The first false ends the wait, later ones are
    /// returned when the time has passed. Many streams are told one after another (see
    /// [`drain_timeout`](crate::Settings::drain_timeout)).
    ///
    /// # Errors
    /// Fails as soon as the client disconnects, not only at the next event. Also fails after `drain_timeout`,
    /// when the server closes its connections.
    pub fn wait(&mut self, duration: Duration) -> io::Result<bool> {
        let heartbeat = self.out.heartbeat().max(Duration::from_millis(1));
        let mut left = duration;
        // Short waits add up, because a writer that checks every second may send nothing for long.
        loop {
            let until_beat = heartbeat.saturating_sub(self.since_last_send);
            let part = left.min(until_beat);
            let runs = self.out.pause(part)?;
            // The first false was returned before its time.
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
