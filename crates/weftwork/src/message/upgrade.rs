//! Upgraded connections: another protocol takes the place of HTTP.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
#[cfg(feature = "websocket")]
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::{HeaderValue, StatusCode, header};

use super::drop_caught::Guarded;
use super::exchange::UpgradedIo;
use super::feed::Feed;
use super::response::{LongLived, Payload, Response};

/// Function that runs an upgraded connection. An error is logged, and the connection closes in any case.
pub(crate) type UpgradeFn = Box<dyn FnOnce(Upgraded) -> io::Result<()> + Send>;

/// An upgraded connection or a tunnel: bytes in both directions.
///
/// A read first returns the bytes that the client sent after its request, and then what arrives. A read or a write that
/// must wait blocks its thread, or suspends its fiber.
///
/// At a stop of the server, a read that would wait fails once, with [`io::ErrorKind::ConnectionAborted`], for many
/// connections one after another (see [`drain_timeout`](crate::Settings::drain_timeout)). A
/// protocol with a final message sends it then, and may read on until the server's drain deadline. After that, every read
/// and write fails with the same error.
///
/// The connection closes when all of it is dropped. If it was dropped before the function returns `Ok`, the client
/// still gets the time of the setting `linger_timeout` to close its side. Then a reset does not destroy the last bytes.
/// The time is shorter if other work waits for the thread.
///
/// If a client sends nothing for the time of the setting `upgrade_idle_timeout`, the waiting read fails with
/// [`io::ErrorKind::TimedOut`]. If its machine has vanished, the kernel detects that within two minutes.
pub struct Upgraded {
    reader: UpgradedReader,
    writer: UpgradedWriter,
}

/// Reading half of an [`Upgraded`] connection.
pub struct UpgradedReader {
    line: Arc<dyn UpgradedIo>,
    early: Bytes,
    timeout: Option<Duration>,
    stop_sent: bool,
}

/// Writing half of an [`Upgraded`] connection. Writes are not buffered: each write is a system call. Over HTTP/2, at most
/// 64 KiB wait for the client's window.
pub struct UpgradedWriter {
    line: Arc<dyn UpgradedIo>,
    timeout: Option<Duration>,
}

impl Upgraded {
    pub(crate) fn new(
        line: Arc<dyn UpgradedIo>,
        early: Bytes,
        idle_timeout: Duration,
        write_timeout: Duration,
    ) -> Upgraded {
        let timeout = (!idle_timeout.is_zero()).then_some(idle_timeout);
        Upgraded {
            reader: UpgradedReader { line: line.clone(), early, timeout, stop_sent: false },
            writer: UpgradedWriter { line, timeout: Some(write_timeout) },
        }
    }

    /// Splits the connection into halves, which may move to different threads or fibers.
    pub fn split(self) -> (UpgradedReader, UpgradedWriter) {
        (self.reader, self.writer)
    }

    /// Returns both halves at once.
    pub fn halves(&mut self) -> (&mut UpgradedReader, &mut UpgradedWriter) {
        (&mut self.reader, &mut self.writer)
    }

    /// Returns the peer of the connection, or None on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.reader.line.peer_addr()
    }
}

impl UpgradedReader {
    /// Sets how long a read may wait before it fails with [`io::ErrorKind::TimedOut`]. None means no limit. Default:
    /// the setting `upgrade_idle_timeout`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns whether the server's drain deadline has passed.
    pub(crate) fn is_closing(&self) -> bool {
        self.line.is_closing()
    }

    /// Returns the setting `heartbeat`.
    #[cfg(feature = "websocket")]
    pub(crate) fn heartbeat(&self) -> Duration {
        self.line.heartbeat()
    }

    /// Returns the setting `linger_timeout`.
    #[cfg(feature = "websocket")]
    pub(crate) fn linger_timeout(&self) -> Duration {
        self.line.linger_timeout()
    }

    /// Returns whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.line.is_stopping()
    }

    /// Returns the peer of the connection, or None on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.line.peer_addr()
    }
}

impl UpgradedWriter {
    /// Sets how long a write may wait for the client. None means no limit. Default: the setting `write_timeout`. A
    /// write also fails if the client reads slower than `rate_bytes_min` on average.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.line.limit_unread(timeout);
    }

    /// Closes this side. The client reads the end of the stream after the written bytes.
    pub fn shutdown(&mut self) {
        self.line.shutdown_write();
    }

    /// Closes this side, and reads on until the client closes its side, for at most the setting `linger_timeout`. Then
    /// a reset does not destroy the last bytes (RFC 9112 section 9.6).
    #[cfg(feature = "websocket")]
    pub(crate) fn linger(&mut self) {
        self.line.shutdown_write();
        let until = Instant::now() + self.line.linger_timeout();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A stop of the server does not end the lingering.
            match self.line.read(&mut [0; 1024], Some(left), &mut true) {
                Ok(1..) if !left.is_zero() => {}
                _ => return self.line.note_linger(),
            }
        }
    }

    /// Returns a handle that cuts the connection while another thread writes.
    #[cfg(feature = "websocket")]
    pub(crate) fn line(&self) -> Arc<dyn UpgradedIo> {
        self.line.clone()
    }

    /// Disconnects the client with a reset. A reader on another thread sees the end.
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
        self.line.read(into, self.timeout, &mut self.stop_sent)
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

/// Receives the bytes of an upgraded connection without a thread. See [`Response::upgrade_fed`].
///
/// The event loop calls the methods, so they must be quick and must not wait. The value is dropped when the connection
/// has ended.
pub trait UpgradeHandler: Send {
    /// Receives bytes, and returns how many are done. The rest, at most 64 KiB, is passed again together with later
    /// bytes.
    ///
    /// # Errors
    /// The connection is cut, and the error is logged.
    fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Polls whether there is room for bytes. The default always has room.
    ///
    /// While there is no room, the connection is not read, so its client has to wait: TCP and HTTP/2 allow it no more bytes. The
    /// messages of the feed are sent meanwhile. The poll is made before the first bytes and again after each call of
    /// [`on_data`](UpgradeHandler::on_data). After `Pending`, wake the waker of `cx` when there is room, from any thread. Bytes
    /// that `on_data` has left are then passed again at once.
    ///
    /// The time without room is no silence of the client. If the client closes its side meanwhile, its bytes arrive first. A
    /// reset, or the close of a Unix socket, ends the connection at once.
    ///
    /// # Errors
    /// The connection is cut, and the error is logged.
    ///
    /// ```
    /// use std::io;
    /// use std::task::{Context, Poll};
    /// use weftwork::http::HeaderValue;
    /// use weftwork::{Feed, FeedLimits, FeedSender, Request, Response, UpgradeHandler};
    ///
    /// /// Sends what it receives to a client, which may read more slowly.
    /// struct Relay(FeedSender);
    ///
    /// impl UpgradeHandler for Relay {
    ///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    ///         self.0.poll_ready(cx).map_err(io::Error::other)
    ///     }
    ///
    ///     fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize> {
    ///         self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
    ///         Ok(bytes.len())
    ///     }
    /// }
    ///
    /// fn echo(_: &mut Request) -> Response {
    ///     let (sender, feed) = Feed::new(FeedLimits::default());
    ///     Response::upgrade_fed(HeaderValue::from_static("echo"), feed, Relay(sender))
    /// }
    /// let mut client = weftwork::TestClient::new(echo).connect();
    /// client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello");
    /// assert!(client.received().ends_with(b"\r\n\r\nhello"));
    /// ```
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Reports that nothing has arrived for the time of the setting `heartbeat`, whatever was sent meanwhile. The
    /// kernel's acknowledgements do not show that the peer is alive. It is called again after the same time.
    ///
    /// # Errors
    /// The connection is cut, and the error is logged.
    fn on_idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reports that the server has begun to stop. The default ends the connection after the waiting messages.
    ///
    /// Returns whether the connection should stay open until the server's drain deadline, so that the client can
    /// confirm a final message.
    fn on_shutdown(&mut self) -> bool {
        false
    }
}

/// Limit for the silence of a client of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdlePolicy {
    /// The time of the setting `upgrade_idle_timeout`.
    Bounded,
    /// As long as it answers heartbeats.
    #[cfg_attr(not(feature = "websocket"), allow(dead_code))]
    Probed,
}

/// Panic of an [`UpgradeHandler`], and the message for its peer.
#[derive(Debug)]
pub(crate) struct UpgradePanic {
    pub(crate) message: String,
    pub(crate) final_message: Bytes,
}

impl fmt::Display for UpgradePanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UpgradePanic {}

/// Middleware may panic while it has the response, and then drops what `take` has captured.
fn guarded(take: impl FnOnce(Upgraded) -> io::Result<()> + Send + 'static) -> UpgradeFn {
    let mut take = Guarded::new(take);
    Box::new(move |upgraded| take.take().map_or(Ok(()), |take| take(upgraded)))
}

impl Response {
    /// Returns 101. The connection then speaks `protocol`, and `take` runs with it after the response was sent.
    ///
    /// Over HTTP/2, an extended CONNECT (RFC 8441) requests it. Its handler sees a GET with an `Upgrade` field, as over
    /// HTTP/1.1. The response is 200, and a stream takes the place of the connection.
    ///
    /// The client must have requested it (`Connection: upgrade` and an `Upgrade` field that names each protocol in
    /// `protocol`). Otherwise the response is 500, so a handler checks first. `take` runs on a thread of its own, which
    /// counts against `threads_max`, or on a fiber in the engine `fibers`. In `reactor`, it is the only code that does
    /// not run on the thread of a loop.
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
        Response::switch(protocol, LongLived::Upgrade(guarded(take)))
    }

    /// Returns 101 like [`upgrade`](Response::upgrade), without a thread (except in the engine `workers`). The event
    /// loop sends the messages of `feed`, and calls `handler` with the bytes that arrive. Closing the feed ends the
    /// connection.
    ///
    /// A client that closes its side counts as gone. So does a client that sends nothing for the time of the setting
    /// `upgrade_idle_timeout`. The loop checks this once in each `heartbeat`.
    pub fn upgrade_fed(
        protocol: HeaderValue,
        feed: Feed,
        handler: impl UpgradeHandler + 'static,
    ) -> Response {
        let handler = Guarded::new(Box::new(handler) as Box<dyn UpgradeHandler>);
        Response::switch(protocol, LongLived::FeedUpgrade(feed, handler, IdlePolicy::Bounded))
    }

    /// Returns the same for a protocol that detects by itself whether its client is alive.
    #[cfg(feature = "websocket")]
    pub(crate) fn upgrade_asked(
        protocol: HeaderValue,
        feed: Feed,
        handler: impl UpgradeHandler + 'static,
    ) -> Response {
        let handler = Guarded::new(Box::new(handler) as Box<dyn UpgradeHandler>);
        Response::switch(protocol, LongLived::FeedUpgrade(feed, handler, IdlePolicy::Probed))
    }

    /// Returns 200 to CONNECT. The connection is then a tunnel, and `take` runs with it as with
    /// [`upgrade`](Response::upgrade). For another method, the response is 500. If the body of the request was not
    /// read, it is 400.
    pub fn tunnel(take: impl FnOnce(Upgraded) -> io::Result<()> + Send + 'static) -> Response {
        let payload = Payload::LongLived(Box::new(LongLived::Upgrade(guarded(take))));
        Response { payload, ..Response::new(StatusCode::OK) }
    }

    fn switch(protocol: HeaderValue, long_lived: LongLived) -> Response {
        let payload = Payload::LongLived(Box::new(long_lived));
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
