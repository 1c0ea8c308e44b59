//! A WebSocket with a thread or a fiber: reading waits, and so does writing to a client that is slow.

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Message;
use super::frames::{self, FrameError, FrameEvent, Incoming};
use super::outgoing::Outgoing;
use crate::message::{Upgraded, UpgradedReader};
use crate::transport::stream::is_timed_out;

/// Read at once: most messages fit, and a thread or a fiber costs more than this anyway.
const READ_BYTES: usize = 4 << 10;

/// A WebSocket, as [`WebSockets::accept`](super::WebSockets::accept) gives it.
///
/// Pings are answered, and sent when the client is silent for the time of the setting `heartbeat`; one that says
/// nothing for as long again is gone. When the server stops, the client is told (1001), and has the
/// time of the setting `linger_timeout` to answer; reads give what it says meanwhile.
pub struct WebSocket {
    reader: WebSocketReader,
    writer: WebSocketWriter,
}

/// The reading half of a [`WebSocket`]. It also answers pings and closes, so somebody has to read.
pub struct WebSocketReader {
    line: UpgradedReader,
    incoming: Incoming,
    outgoing: Arc<Outgoing>,
    protocol: Option<&'static str>,
    /// A ping was sent, and nothing has come since.
    ping_sent: bool,
    /// The client was told that the server stops.
    stop_sent: bool,
    /// We have closed, and the client may answer until then.
    close_deadline: Option<Instant>,
    is_over: bool,
}

/// The writing half of a [`WebSocket`]. Clones write to the same socket; messages are never mixed.
#[derive(Clone)]
pub struct WebSocketWriter {
    outgoing: Arc<Outgoing>,
}

impl WebSocket {
    pub(super) fn new(
        line: Upgraded,
        protocol: Option<&'static str>,
        message_bytes_max: usize,
        waiting_bytes_max: usize,
    ) -> WebSocket {
        let (mut line, writer) = line.split();
        line.set_timeout(Some(line.heartbeat()));
        let outgoing = Arc::new(Outgoing::new(writer, waiting_bytes_max));
        let incoming = Incoming::new(message_bytes_max, READ_BYTES);
        let reader = WebSocketReader {
            line,
            incoming,
            outgoing: outgoing.clone(),
            protocol,
            ping_sent: false,
            stop_sent: false,
            close_deadline: None,
            is_over: false,
        };
        WebSocket { reader, writer: WebSocketWriter { outgoing } }
    }

    pub(super) fn outgoing(&self) -> &Arc<Outgoing> {
        &self.writer.outgoing
    }

    /// The next message; none: the socket is closed, by either side.
    ///
    /// # Errors
    /// As [`WebSocketReader::read`].
    pub fn read(&mut self) -> io::Result<Option<Message>> {
        self.reader.read()
    }

    /// Sends a message, and waits while the client is slow.
    ///
    /// # Errors
    /// As [`WebSocketWriter::send`].
    pub fn send(&mut self, message: impl Into<Message>) -> io::Result<()> {
        self.writer.send(message)
    }

    /// Closes the socket with a code (1000: all is well) and a reason of up to 123 bytes. Read on until none
    /// comes: the client may have sent something before it knew. It has the time of the setting `linger_timeout` for that, from
    /// the next read on, or from when a read that waits already is over (after `heartbeat` at most). Codes of your own are 4000 to 4999; one that must not
    /// be sent (1005, say, or anything below 1000) is sent as 1011, and logged.
    ///
    /// # Errors
    /// As [`WebSocketWriter::send`].
    pub fn close(&mut self, code: u16, reason: &str) -> io::Result<()> {
        self.writer.close(code, reason)
    }

    /// Both halves, which may go to different threads or fibers.
    pub fn split(self) -> (WebSocketReader, WebSocketWriter) {
        (self.reader, self.writer)
    }

    /// The sub-protocol that was agreed on.
    pub fn protocol(&self) -> Option<&'static str> {
        self.reader.protocol
    }

    /// The other end of the connection; none on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.reader.line.peer_addr()
    }
}

impl WebSocketReader {
    /// The next message; none: the socket is closed, by either side.
    ///
    /// # Errors
    /// - The client has gone without a word (`UnexpectedEof`, `ConnectionReset`), did not answer a ping (`TimedOut`), or
    ///   broke the protocol (`InvalidData`), which it was told.
    /// - The server stops, and its drain deadline has passed (`ConnectionAborted`).
    /// - What this sends by itself (a pong, a ping, a close) could not be sent: the client takes nothing for longer than
    ///   `write_timeout` (`TimedOut`), too much waits for it (`QuotaExceeded`), or it is gone (`BrokenPipe`).
    pub fn read(&mut self) -> io::Result<Option<Message>> {
        while !self.is_over {
            let reader = &mut TimedReader {
                line: &mut self.line,
                ping_sent: &mut self.ping_sent,
                close_deadline: &mut self.close_deadline,
                outgoing: &self.outgoing,
            };
            match self.incoming.next(reader) {
                Ok(event) => {
                    if let Some(message) = self.answer(event)? {
                        return Ok(Some(message));
                    }
                }
                Err(failed) => self.handle_error(failed)?,
            }
        }
        Ok(None)
    }

    fn answer(&mut self, event: FrameEvent) -> io::Result<Option<Message>> {
        match event {
            FrameEvent::Message(message) => return Ok(Some(message)),
            FrameEvent::Pong => {}
            FrameEvent::Ping(bytes) => self.outgoing.send_if_open(frames::pong(bytes))?,
            FrameEvent::Close(said) => {
                self.is_over = true;
                self.outgoing.close(frames::close_reply(said.as_ref()))?;
            }
        }
        Ok(None)
    }

    fn handle_error(&mut self, failed: FrameError) -> io::Result<()> {
        let error = match failed {
            FrameError::Io(error) if is_timed_out(&error) && self.close_deadline.is_some() => {
                self.is_over = true;
                self.outgoing.abort();
                return Ok(());
            }
            FrameError::Io(error) if is_timed_out(&error) && !self.ping_sent => {
                self.ping_sent = true;
                return self.outgoing.send_if_open(frames::ping());
            }
            // It is said once. Who does not answer that has gone, or does not care: the stop is not to wait for it.
            FrameError::Io(error) if error.kind() == io::ErrorKind::ConnectionAborted && !self.stop_sent => {
                self.stop_sent = true;
                return self.outgoing.close(frames::close(frames::CLOSE_AWAY, "the server is stopping"));
            }
            FrameError::Io(error) => error,
            FrameError::Eof if !self.outgoing.is_open() => {
                self.is_over = true;
                return Ok(());
            }
            FrameError::Eof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the client left without a close")
            }
            FrameError::Protocol(code, why) => {
                let _ = self.outgoing.close(frames::close(code, &why));
                io::Error::new(io::ErrorKind::InvalidData, why)
            }
        };
        self.is_over = true;
        Err(error)
    }
}

/// Whatever comes is a sign of life, also a part of a message that is long on its way.
struct TimedReader<'r> {
    line: &'r mut UpgradedReader,
    ping_sent: &'r mut bool,
    /// What comes later is not heard any more, however much it is.
    close_deadline: &'r mut Option<Instant>,
    outgoing: &'r Outgoing,
}

impl Read for TimedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.close_deadline.is_none() && self.outgoing.has_ended() {
            *self.close_deadline = Some(Instant::now() + self.line.linger_timeout());
        }
        if let Some(until) = *self.close_deadline {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.line.set_timeout(Some(left));
        }
        let read = self.line.read(into);
        *self.ping_sent &= read.is_err();
        read
    }
}

impl WebSocketWriter {
    /// Sends a message. It waits while the client is slow, unless another thread is writing already: then that one
    /// sends this message too. Where that is the reader's, which answers a ping, say, and too much waits, it waits for room.
    ///
    /// # Errors
    /// The socket is closed (`BrokenPipe`), the client takes nothing for longer than `write_timeout` (`TimedOut`), or
    /// too much waits for it (`QuotaExceeded`, see [`WebSockets::waiting`](super::WebSockets::waiting)). After the last
    /// two it is cut off.
    pub fn send(&self, message: impl Into<Message>) -> io::Result<()> {
        self.outgoing.send(frames::message(&message.into()))
    }

    /// Closes the socket; see [`WebSocket::close`].
    ///
    /// # Errors
    /// As [`send`](WebSocketWriter::send).
    pub fn close(&self, code: u16, reason: &str) -> io::Result<()> {
        self.outgoing.close(frames::close(code, reason))
    }

    /// Whether a message could still be sent.
    pub fn is_open(&self) -> bool {
        self.outgoing.is_open()
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("peer", &self.peer_addr()).finish_non_exhaustive()
    }
}

impl fmt::Debug for WebSocketReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketReader").field("over", &self.is_over).finish_non_exhaustive()
    }
}

impl fmt::Debug for WebSocketWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketWriter").field("open", &self.is_open()).finish_non_exhaustive()
    }
}
