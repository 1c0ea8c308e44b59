//! Access log: one line for each request, written by a separate thread.

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

/// Format of the lines of an [`AccessLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// `client - user [time] "request line" status bytes seconds`: the Common Log Format with the duration.
    Common,
    /// The Common format with `"referer" "user agent"` before the duration.
    Combined,
    /// One JSON object per line. It has the fields of `Combined` by name, the [pattern](Next::pattern) of the
    /// route, and `whole`, which is false if a streamed body ended early. If [`RequestIds`](super::RequestIds)
    /// runs, the object also has the id and the trace of the request.
    Json,
}

/// Writes a line for each request when its response is known. For a streamed response, the line is written at
/// its end.
///
/// - **Requests never wait for the log.** Lines go through a queue to a thread that writes them in batches. The
///   queue holds [`AccessLog::LINES_MAX`] lines and 8 MiB. If the writer is too slow, lines are dropped and
///   [counted](AccessLog::dropped).
/// - **Clients cannot forge lines.** Everything from the client (target, referer, agent, user) is escaped.
///   Quotes, backslashes and every byte that is not printable ASCII become `\xHH`. In JSON, quotes and
///   backslashes get a backslash, and such a byte becomes `\u00HH`, because its encoding is unknown. The user
///   and the route are UTF-8 and stay readable.
/// - The client is [`Request::client_addr`], so behind a trusted proxy it is not the proxy.
/// - `bytes` counts the body that the handler produced, before chunking. `seconds` is measured from the call of
///   this middleware to the line. A response that is a whole text or file is sent after that, so a slow client
///   is visible only in streams. The bytes of a feed are not counted. If a handler panics, the line has status
///   500 and the user, id and trace known so far.
///
/// - Requests that the server rejects before any handler runs have no line. Examples are malformed heads (400,
///   414, 431), heads and bodies that arrive too late (408), and 503 without a free thread or descriptor. They
///   are logged with the crate `log` at level info, and counted ([`Running::stats`](crate::Running::stats)).
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

    /// Appends to the file at `path` and creates it if necessary. To rotate the file, copy and truncate it.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. Otherwise the same as [`to`](AccessLog::to).
    pub fn to_file(format: LogFormat, path: impl AsRef<Path>) -> Result<AccessLog> {
        let path = path.as_ref();
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file =
            file.map_err(|error| Error::io(format!("cannot open the access log {}", path.display()), error))?;
        AccessLog::to(format, file)
    }

    /// Returns the number of lines that were not written, because the queue was full or the writer failed.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped()
    }
}

impl Middleware for AccessLog {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        // Created first, so that a panic leaves a line too.
        let mut line = PendingLine { entry: Entry::new(self.format, req, &next), sink: self.sink.clone() };
        let response = {
            let guard = RecordOnDrop { req, entry: &mut line.entry };
            next.run(&mut *guard.req)
        };
        line.entry.record_response(&response);
        response.filter_stream(line)
    }
}

/// Records what the handler added to the request, even if the handler panics.
struct RecordOnDrop<'l, 'c> {
    req: &'l mut Request<'c>,
    entry: &'l mut Entry,
}

impl Drop for RecordOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.entry.record_identity(self.req);
    }
}

/// Writes its line when it is dropped: with the response, or at the end of the stream.
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
