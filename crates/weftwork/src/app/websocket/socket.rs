//! A WebSocket with a thread or a fiber. Reading waits for the client, and so does writing to a slow client.

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Message;
use super::deflate::Deflate;
use super::frames::{self, FrameError, FrameEvent, Incoming};
use super::outgoing::Outgoing;
use crate::message::{Upgraded, UpgradedReader};
use crate::transport::stream::is_timed_out;

/// Size of one read. Most messages fit, and a thread or a fiber costs more memory anyway.
const READ_BYTES: usize = 4 << 10;

/// A WebSocket. [`WebSockets::accept`](super::WebSockets::accept) creates it.
///
/// Pings are answered automatically. If the client is silent for the time of the setting `heartbeat`, it gets a
/// ping. If it stays silent for as long again, it counts as gone. When the server stops, the client gets 1001
/// and has the time of the setting `linger_timeout` to answer. Reads return what the client sends meanwhile.
pub struct WebSocket {
    reader: WebSocketReader,
    writer: WebSocketWriter,
}

/// The reading half of a [`WebSocket`]. It answers pings and close frames, so the program must keep reading.
pub struct WebSocketReader {
    line: UpgradedReader,
    incoming: Incoming,
    outgoing: Arc<Outgoing>,
    protocol: Option<&'static str>,
    /// Whether a ping was sent and nothing has arrived since.
    ping_sent: bool,
    /// Whether the client was told that the server stops.
    stop_sent: bool,
    /// Time until which the client may answer our close frame.
    close_deadline: Option<Instant>,
    is_over: bool,
}

/// The writing half of a [`WebSocket`]. Clones write to the same socket, and messages are never interleaved.
#[derive(Clone)]
pub struct WebSocketWriter {
    outgoing: Arc<Outgoing>,
    deflate: Option<Deflate>,
}

impl WebSocket {
    pub(super) fn new(
        line: Upgraded,
        (protocol, deflate): (Option<&'static str>, Option<Deflate>),
        message_bytes_max: u64,
        waiting_bytes_max: u64,
    ) -> WebSocket {
        let (mut line, writer) = line.split();
        line.set_timeout(Some(line.heartbeat()));
        let outgoing = Arc::new(Outgoing::new(writer, waiting_bytes_max));
        let incoming = Incoming::new(message_bytes_max, READ_BYTES, deflate.is_some());
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
        WebSocket { reader, writer: WebSocketWriter { outgoing, deflate } }
    }

    pub(super) fn outgoing(&self) -> &Arc<Outgoing> {
        &self.writer.outgoing
    }

    /// Returns the next message. `None` means that either side has closed the socket.
    ///
    /// # Errors
    /// Same as [`WebSocketReader::read`].
    pub fn read(&mut self) -> io::Result<Option<Message>> {
        self.reader.read()
    }

    /// Sends a message and waits while the client is slow.
    ///
    /// # Errors
    /// Same as [`WebSocketWriter::send`].
    pub fn send(&mut self, message: impl Into<Message>) -> io::Result<()> {
        self.writer.send(message)
    }

    /// Closes the socket with a code (1000 is the normal one) and a reason of up to 123 bytes. Read on until
    /// `None`, because the client may have sent messages before it saw the close frame. The client has the time
    /// of the setting `linger_timeout`, measured from the next read. If a read is already waiting, the time
    /// starts when that read ends, after `heartbeat` at most.
    ///
    /// Codes for programs are 4000 to 4999. A code that must not be sent, such as 1005 or any code below 1000,
    /// is replaced by 1011 and logged.
    ///
    /// # Errors
    /// Same as [`WebSocketWriter::send`].
    pub fn close(&mut self, code: u16, reason: &str) -> io::Result<()> {
        self.writer.close(code, reason)
    }

    /// Returns both halves, which may move to different threads or fibers.
    pub fn split(self) -> (WebSocketReader, WebSocketWriter) {
        (self.reader, self.writer)
    }

    /// Returns the negotiated sub-protocol.
    pub fn protocol(&self) -> Option<&'static str> {
        self.reader.protocol
    }

    /// Returns the address of the peer, or `None` on a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.reader.line.peer_addr()
    }
}

impl WebSocketReader {
    /// Returns the next message. `None` means that either side has closed the socket.
    ///
    /// # Errors
    /// - The client disconnected without a close frame (`UnexpectedEof`, `ConnectionReset`), did not answer a
    ///   ping (`TimedOut`), or violated the protocol (`InvalidData`). In the last case the client gets the
    ///   reason.
    /// - The server stops, and its drain deadline has passed (`ConnectionAborted`).
    /// - A reply of the reader (pong, ping or close) could not be sent. The client read nothing for
    ///   `write_timeout` (`TimedOut`), its queue is full (`QuotaExceeded`), or it is gone (`BrokenPipe`).
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
            // Sent once. The stop does not wait for a client that does not answer.
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
                io::Error::new(io::ErrorKind::UnexpectedEof, "the client disconnected without a close frame")
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

/// A reader that treats every byte as a sign of life, even a part of a long message.
struct TimedReader<'r> {
    line: &'r mut UpgradedReader,
    ping_sent: &'r mut bool,
    /// Bytes that arrive later are ignored.
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
    /// Sends a message and waits while the client is slow. If another thread is writing, that thread sends the
    /// message too, and this call returns. If the writing thread is the reader, for example with a pong, and
    /// the queue is full, the call waits for space.
    ///
    /// # Errors
    /// The socket is closed (`BrokenPipe`), the client read nothing for `write_timeout` (`TimedOut`), or its
    /// queue is full (`QuotaExceeded`, see [`WebSockets::feed_limits`](super::WebSockets::feed_limits)). After the last
    /// two, the client is disconnected.
    pub fn send(&self, message: impl Into<Message>) -> io::Result<()> {
        self.outgoing.send(frames::message(&message.into(), self.deflate))
    }

    /// Closes the socket. See [`WebSocket::close`].
    ///
    /// # Errors
    /// Same as [`send`](WebSocketWriter::send).
    pub fn close(&self, code: u16, reason: &str) -> io::Result<()> {
        self.outgoing.close(frames::close(code, reason))
    }

    /// Returns whether a message could still be sent.
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
