//! Who asked for what, and what came of it: one line for each request, written by a thread of its own.

mod entry;
mod sink;
#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use entry::Entry;
use http::StatusCode;
use sink::Sink;

use super::{Middleware, Next};
use crate::error::{Error, Result};
use crate::message::{BodyWriter, Request, Response, StreamFilter};

/// How a line of an [`AccessLog`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `client - user [time] "request line" status bytes seconds`: the Common Log Format and the duration.
    Common,
    /// The same with `"referer" "user agent"` before the duration.
    Combined,
    /// One object a line, with the fields of `Combined` by name, the route's [pattern](Next::pattern), the request's id
    /// and trace (where [`RequestIds`](super::RequestIds) runs), and `whole`: false when a streamed body ended early.
    Json,
}

/// Writes a line for each request when its response is known; when that streams, when it is over.
///
/// - **Nothing waits for the log.** Lines go through a queue of [`AccessLog::LINES_MAX`], and of 8 MiB, to a thread that
///   writes them in batches. When the writer cannot keep up, lines are dropped and [counted](AccessLog::dropped).
/// - **Nobody can forge a line.** What the client sent (target, referer, agent, user) is escaped: quotes,
///   backslashes and every byte that is not printable ASCII are `\xHH`. In JSON quotes and backslashes have a backslash before
///   them, and such a byte is `\u00HH`, as nobody knows its encoding; the user and the route, which are UTF-8, read as they were.
/// - The client is [`Request::client_addr`]: behind a trusted proxy not the proxy.
/// - `bytes` are those of the body that the handler produced (before chunking); `seconds` go from the call
///   of this middleware to the line. A response that is a whole text or file is sent after that, so a slow
///   client shows only in streams; of one that other threads feed, no bytes are counted. A handler that panics is logged with its 500,
///   and with the user, id and trace that the request had by then.
///
/// - What the server refuses before any handler runs leaves no line: malformed heads (400, 414, 431), heads and bodies
///   that come too late (408), and 503 where threads or descriptors are used up. They are logged by `log`, at the level
///   info, and counted ([`Running::counts`](crate::Running::counts)).
///
/// Add it last, so that it is outermost. Lines that wait when the last clone of it goes are still written,
/// for a second at most.
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
    /// Lines that may wait to be written. 8,192 lines of some 200 bytes are 1.6 MB, and a tenth of a second of a
    /// busy server.
    pub const LINES_MAX: usize = 8192;

    /// Writes to `writer`, which may block as it likes.
    ///
    /// # Errors
    /// The thread that writes could not be started.
    pub fn to(format: LogFormat, writer: impl Write + Send + 'static) -> Result<AccessLog> {
        let sink = Sink::start(Box::new(writer), AccessLog::LINES_MAX);
        let sink = sink.map_err(|error| Error::io("cannot start the thread of the access log", error))?;
        Ok(AccessLog { format, sink: Arc::new(sink) })
    }

    /// Writes to the standard output.
    ///
    /// # Errors
    /// As [`to`](AccessLog::to).
    pub fn to_stdout(format: LogFormat) -> Result<AccessLog> {
        AccessLog::to(format, io::stdout())
    }

    /// Appends to the file at `path`, which is made if it is not there. Rotate it by copy and truncation.
    ///
    /// # Errors
    /// The file cannot be opened, and as [`to`](AccessLog::to).
    pub fn to_file(format: LogFormat, path: impl AsRef<Path>) -> Result<AccessLog> {
        let path = path.as_ref();
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file =
            file.map_err(|error| Error::io(format!("cannot open the access log {}", path.display()), error))?;
        AccessLog::to(format, file)
    }

    /// Lines that were not written, because the queue was full or the writer failed.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped()
    }
}

impl Middleware for AccessLog {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        // Made first, so that a panic leaves a line too.
        let mut line = PendingLine { entry: Entry::new(self.format, req, &next), sink: self.sink.clone() };
        let response = {
            let guard = RecordOnDrop { req, entry: &mut line.entry };
            next.run(&mut *guard.req)
        };
        line.entry.record_response(&response);
        response.filter_stream(line)
    }
}

/// What was learnt of a request while it was handled is in its entry at the end, also when that is a panic.
struct RecordOnDrop<'l, 'c> {
    req: &'l mut Request<'c>,
    entry: &'l mut Entry,
}

impl Drop for RecordOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.entry.record_identity(self.req);
    }
}

/// Writes its entry when it is dropped: with the response, or with the stream that it watches.
struct PendingLine {
    entry: Entry,
    sink: Arc<Sink>,
}

impl StreamFilter for PendingLine {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        out.write_all(data)?;
        self.entry.bytes += data.len() as u64;
        Ok(())
    }

    fn finish(&mut self, _: &mut BodyWriter<'_>) -> io::Result<()> {
        self.entry.whole = true;
        Ok(())
    }

    fn failed(&mut self, instead: Option<StatusCode>) {
        if let Some(status) = instead {
            self.entry.status = status;
        }
    }

    fn answered(&mut self, response: &Response) {
        self.entry.record_response(response);
    }
}

impl Drop for PendingLine {
    fn drop(&mut self) {
        self.sink.submit(self.entry.line());
    }
}
