//! A connection that speaks another protocol from now on: what a handler gets of it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "websocket")]
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::{HeaderValue, StatusCode, header};

use super::exchange::Line;
use super::feed::Feed;
use super::response::{Lasting, Payload, Response};

/// Takes a connection over. An error is logged; the connection ends either way.
pub(crate) type Take = Box<dyn FnOnce(Upgraded) -> io::Result<()> + Send>;

/// A connection that was upgraded, or is a tunnel: bytes in both directions, and nothing else.
///
/// Reads give what the client sent behind its request first, then what comes. A read or a write that has to
/// wait blocks its thread, or suspends its fiber where it runs on one. When the server begins to stop, the next
/// read that would wait fails once, with [`io::ErrorKind::ConnectionAborted`]: a protocol that has a farewell says
/// it then, and may read on until the server's drain deadline; from there on every read and write fails like that.
///
/// The connection ends when all of it is dropped. Where that is done by the time that the function which took it over returns
/// `Ok`, the client still has the time of the setting `linger_timeout` to end its side, so that a reset does not take from it what
/// was written last; less, where others wait for the thread.
///
/// A client that says nothing for the time of the setting `upgrade_idle_timeout` fails the read that waits for it, with
/// [`io::ErrorKind::TimedOut`]; one whose machine has vanished is found out by the kernel within two minutes.
pub struct Upgraded {
    reader: UpgradedReader,
    writer: UpgradedWriter,
}

/// The reading half of an [`Upgraded`] connection.
pub struct UpgradedReader {
    line: Arc<dyn Line>,
    early: Bytes,
    timeout: Option<Duration>,
    told: bool,
}

/// The writing half of an [`Upgraded`] connection. Nothing is gathered: each write is a system call.
pub struct UpgradedWriter {
    line: Arc<dyn Line>,
    timeout: Option<Duration>,
}

impl Upgraded {
    pub(crate) fn new(
        line: Arc<dyn Line>,
        early: Bytes,
        idle_timeout: Duration,
        write_timeout: Duration,
    ) -> Upgraded {
        let timeout = (!idle_timeout.is_zero()).then_some(idle_timeout);
        Upgraded {
            reader: UpgradedReader { line: line.clone(), early, timeout, told: false },
            writer: UpgradedWriter { line, timeout: Some(write_timeout) },
        }
    }

    /// Both halves, which may go to different threads or fibers.
    pub fn split(self) -> (UpgradedReader, UpgradedWriter) {
        (self.reader, self.writer)
    }

    /// The halves, for those who need both at once.
    pub fn halves(&mut self) -> (&mut UpgradedReader, &mut UpgradedWriter) {
        (&mut self.reader, &mut self.writer)
    }

    /// The other end of the connection; none on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.reader.line.peer_addr()
    }
}

impl UpgradedReader {
    /// How long a read may wait before it fails with [`io::ErrorKind::TimedOut`]; none: for ever. The default is the
    /// setting `upgrade_idle_timeout`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The server's drain deadline has passed: everything is cut.
    pub(crate) fn is_closing(&self) -> bool {
        self.line.is_closing()
    }

    /// The setting `heartbeat`.
    #[cfg(feature = "websocket")]
    pub(crate) fn heartbeat(&self) -> Duration {
        self.line.heartbeat()
    }

    /// The setting `linger_timeout`.
    #[cfg(feature = "websocket")]
    pub(crate) fn linger_timeout(&self) -> Duration {
        self.line.linger_timeout()
    }

    /// Whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.line.is_stopping()
    }

    /// The other end of the connection; none on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.line.peer_addr()
    }
}

impl UpgradedWriter {
    /// How long a write may wait for the client to take some of it; none: for ever. The default is the setting
    /// `write_timeout`. A client that takes something, but on average less than `rate_bytes_min`, fails it as well.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.line.limit_unread(timeout);
    }

    /// Ends this side: the client reads the end of the stream behind what was written.
    pub fn shutdown(&mut self) {
        self.line.shutdown_write();
    }

    /// Ends this side, and reads on until the client ends its own, for as long as the setting `linger_timeout` says: what was
    /// sent last is not lost to a reset then (RFC 9112 section 9.6).
    #[cfg(feature = "websocket")]
    pub(crate) fn linger(&mut self) {
        self.line.shutdown_write();
        let until = Instant::now() + self.line.linger_timeout();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // That the server stops is no reason to stop lingering.
            match self.line.read(&mut [0; 1024], Some(left), &mut true) {
                Ok(1..) if !left.is_zero() => {}
                _ => return self.line.note_linger(),
            }
        }
    }

    /// For who has to cut it while another thread writes.
    #[cfg(feature = "websocket")]
    pub(crate) fn line(&self) -> Arc<dyn Line> {
        self.line.clone()
    }

    /// Ends both directions: whoever reads on another thread sees the end.
    pub fn cut(&mut self) {
        self.line.cut();
    }
}

impl Read for UpgradedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.early.is_empty() {
            let count = self.early.len().min(into.len());
            self.early.copy_to_slice(&mut into[..count]);
            return Ok(count);
        }
        self.line.read(into, self.timeout, &mut self.told)
    }
}

impl Write for UpgradedWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.line.write(data, self.timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Upgraded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl Write for Upgraded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.writer.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What becomes of the bytes of an upgraded connection that has no thread: see [`Response::upgrade_fed`].
///
/// The event loop calls it, so it must be quick and must not wait. Dropping it is the sign that the connection
/// is over.
pub trait Receive: Send {
    /// Bytes came. Returns how many are done with; the rest, 64 KiB at most, comes again when there is more behind it.
    ///
    /// # Errors
    /// The connection is cut, and the error logged.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Nothing came for the time of the setting `heartbeat`, whatever was sent meanwhile: what a kernel takes for a peer
    /// that has vanished says nothing of the peer. Called again after as long.
    ///
    /// # Errors
    /// The connection is cut, and the error logged.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The server has begun to stop. The default ends the connection behind what waits to be sent.
    ///
    /// Returns whether it should go on until the server's drain deadline, so that the client can answer a farewell.
    fn stopping(&mut self) -> bool {
        false
    }
}

/// How long a client of another protocol may say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// As long as the setting `upgrade_idle_timeout` says.
    Bounded,
    /// As long as it answers when it is asked.
    #[cfg_attr(not(feature = "websocket"), allow(dead_code))]
    Asked,
}

/// What a [`Receive`] has panicked with, and what its peer is to be told.
#[derive(Debug)]
pub(crate) struct ReceiverPanic {
    pub(crate) said: String,
    pub(crate) farewell: Bytes,
}

impl fmt::Display for ReceiverPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl std::error::Error for ReceiverPanic {}

impl Response {
    /// 101: the connection speaks `protocol` from now on, and `take` runs with it once the answer is sent.
    ///
    /// The client must have asked for it (`Connection: upgrade` and an `Upgrade` field), or the answer is 500; a
    /// handler looks first. Its `Upgrade` field must name each protocol that `protocol` does. `take` runs on a thread of its own, which counts against `threads_max`, or on a fiber in
    /// the engine `fibers`. In `reactor` it is the one thing that runs on another thread than the loop's.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use weftwork::http::HeaderValue;
    /// use weftwork::{Request, Response};
    ///
    /// fn echo(_: &mut Request) -> Response {
    ///     Response::upgrade(HeaderValue::from_static("echo"), |mut connection| {
    ///         let mut bytes = [0; 1024];
    ///         loop {
    ///             let count = connection.read(&mut bytes)?;
    ///             if count == 0 {
    ///                 return Ok(());
    ///             }
    ///             connection.write_all(&bytes[..count])?;
    ///         }
    ///     })
    /// }
    /// ```
    pub fn upgrade(
        protocol: HeaderValue,
        take: impl FnOnce(Upgraded) -> io::Result<()> + Send + 'static,
    ) -> Response {
        Response::switch(protocol, Lasting::Take(Box::new(take)))
    }

    /// 101, as [`upgrade`](Response::upgrade), and no thread at all (but in the engine `workers`): the event loop sends
    /// what is brought to `feed`, and calls `receive` with what comes. Closing the feed ends the connection.
    ///
    /// A client that ends its side counts as gone, and so does one that says nothing for the time of the setting
    /// `upgrade_idle_timeout`, which is looked at once in a `heartbeat`.
    pub fn upgrade_fed(protocol: HeaderValue, feed: Feed, receive: impl Receive + 'static) -> Response {
        Response::switch(protocol, Lasting::Fed(feed, Box::new(receive), Silence::Bounded))
    }

    /// The same, for a protocol that finds out by itself whether its client is still there.
    #[cfg(feature = "websocket")]
    pub(crate) fn upgrade_asked(
        protocol: HeaderValue,
        feed: Feed,
        receive: impl Receive + 'static,
    ) -> Response {
        Response::switch(protocol, Lasting::Fed(feed, Box::new(receive), Silence::Asked))
    }

    /// 200 to CONNECT: the connection is a tunnel from now on, and `take` runs with it as with an
    /// [`upgrade`](Response::upgrade). To another method the answer is 500; before the body of
    /// the request was read it is 400.
    pub fn tunnel(take: impl FnOnce(Upgraded) -> io::Result<()> + Send + 'static) -> Response {
        let payload = Payload::Lasting(Box::new(Lasting::Take(Box::new(take))));
        Response { payload, ..Response::new(StatusCode::OK) }
    }

    fn switch(protocol: HeaderValue, lasting: Lasting) -> Response {
        let payload = Payload::Lasting(Box::new(lasting));
        Response { payload, ..Response::new(StatusCode::SWITCHING_PROTOCOLS) }
            .with_header(header::UPGRADE, protocol)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("peer", &self.peer_addr()).finish_non_exhaustive()
    }
}

impl fmt::Debug for UpgradedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradedReader").field("early", &self.early.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for UpgradedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradedWriter").finish_non_exhaustive()
    }
}
