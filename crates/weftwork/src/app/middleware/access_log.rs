//! Access log: one line for each request, written by a separate thread.

mod entry;
mod sink;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use entry::Entry;
use sink::Sink;

use super::{Middleware, Next};
use crate::error::{Error, Result};
use crate::message::observer::{Observer, RefusedRequest, ResponseEnd, ResponseObserver};
use crate::message::{Request, Response};
use crate::transport::log_file::LogFile;

/// Format of the lines of an [`AccessLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// `client - user [time] "request line" status bytes seconds`: the Common Log Format with the duration.
    Common,
    /// The Common format with `"referer" "user agent"` before the duration.
    Combined,
    /// `time status duration bytes client method target` in columns, for people: the time in UTC, to the millisecond,
    /// durations as `1.25 ms`, and bytes as `12.3 KiB`. The reason follows if the request failed.
    Short,
    /// The Short format with the status in the colour of its class, for a terminal. The format does not read
    /// the variable `NO_COLOR`: by convention, programs use `Short` if that is set and not empty.
    Terminal,
    /// One JSON object per line. It has the fields of `Combined` by name, the time to the microsecond, scheme and host,
    /// the [pattern](Next::pattern) of the route, `queued` (the seconds of waiting for a thread), and `whole`, which is
    /// false if the response was not written to its end. `error` has the reason if a request failed, as in
    /// the middleware `Metrics`. If [`RequestIds`](super::RequestIds) runs, the object also has the id and the trace
    /// of the request.
    Json,
}

/// Writes a line for each request when its response was written, or its client has left.
///
/// - **Requests never wait for the log.** Lines go through a queue to a thread that writes them in batches. The
///   queue holds [`AccessLog::LINES_MAX`] lines and 8 MiB. If the writer is too slow, lines are dropped and
///   [counted](AccessLog::dropped).
/// - **Clients cannot forge lines.** Everything from the client (target, referer, agent, user) is escaped.
///   Quotes, backslashes and every byte that is not printable ASCII become `\xHH`. In JSON, quotes and
///   backslashes get a backslash, and such a byte becomes `\u00HH`, because its encoding is unknown. The user
///   and the route are UTF-8 and stay readable.
/// - The client is [`Request::client_addr`], so behind a trusted proxy it is not the proxy.
/// - `bytes` counts the body that was written, before chunking. `seconds` is measured from the arrival of the request to its
///   last byte in the kernel, so a slow client is visible. A request has arrived when the server has read its head and
///   the part of its body that is read ahead. An upgrade ends with its 101.
/// - A client that left before its response was written has the status 499, as in nginx. A client that has closed only its
///   sending side looks the same.
/// - If this middleware is around the whole handler, requests that the server rejects before any handler runs have a
///   line too. Examples are malformed heads (400, 414, 431), heads and bodies that arrive too late (408), and 503
///   without a free thread or descriptor. If the head was not whole, the line has `"-"` for the request line.
///
/// Add this middleware last, so that it is outermost. When its last clone is dropped, waiting lines are still
/// written, for a second at most.
///
/// ```
/// use weftwork::middleware::{AccessLog, LogFormat};
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "hello").with(AccessLog::to_stdout(LogFormat::Combined)?));
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: LogFormat,
    sink: Arc<Sink>,
}

impl AccessLog {
    /// Maximum number of lines in the queue. 8,192 lines of about 200 bytes are 1.6 MB, which is a tenth of a
    /// second of a busy server.
    pub const LINES_MAX: usize = 8192;

    /// Writes to `writer`, which may block.
    ///
    /// # Errors
    /// Fails if the writer thread cannot be started.
    pub fn to(format: LogFormat, writer: impl Write + Send + 'static) -> Result<AccessLog> {
        let sink = Sink::start(Box::new(writer), AccessLog::LINES_MAX);
        let sink = sink.map_err(|error| Error::io("cannot start the thread of the access log", error))?;
        Ok(AccessLog { format, sink: Arc::new(sink) })
    }

    /// Writes to the standard output.
    ///
    /// # Errors
    /// Same as [`to`](AccessLog::to).
    pub fn to_stdout(format: LogFormat) -> Result<AccessLog> {
        AccessLog::to(format, io::stdout())
    }

    /// Appends to the file at `path` and creates it if necessary. To rotate the file, rename it and send SIGUSR1 (see
    /// [`LogFile`]), or copy and truncate it.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. Otherwise the same as [`to`](AccessLog::to).
    pub fn to_file(format: LogFormat, path: impl AsRef<Path>) -> Result<AccessLog> {
        AccessLog::to(format, LogFile::open(path)?)
    }

    /// Returns the number of lines that were not written, because the queue was full or the writer failed.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped()
    }
}

impl Middleware for AccessLog {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let entry = Entry::new(self.format, req, &next);
        let guard = ObserveOnDrop { log: self, entry: Some(entry), req };
        next.run(&mut *guard.req)
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        Some(Arc::new(self.clone()))
    }
}

impl Observer for AccessLog {
    fn on_refusal(&self, request: &RefusedRequest<'_>) -> Box<dyn ResponseObserver> {
        Box::new(PendingLine { entry: Entry::of_refused(self.format, request), sink: self.sink.clone() })
    }
}

/// Records what the handler added to the request, and then waits for the response, even if the handler panics.
struct ObserveOnDrop<'l, 'r, 'c> {
    log: &'l AccessLog,
    entry: Option<Entry>,
    req: &'r mut Request<'c>,
}

impl Drop for ObserveOnDrop<'_, '_, '_> {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.record_identity(self.req);
            self.req.observe(Box::new(PendingLine { entry, sink: self.log.sink.clone() }));
        }
    }
}

/// The line of a request whose response has not ended.
struct PendingLine {
    entry: Entry,
    sink: Arc<Sink>,
}

impl ResponseObserver for PendingLine {
    fn on_end(self: Box<Self>, end: &ResponseEnd) {
        self.sink.submit(self.entry.line(end));
    }
}
