//! Converts between messages and bytes, with tungstenite and without a socket.

use std::io::{self, Cursor, Read, Write};

use bytes::Bytes;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message as Whole};

use super::Message;

pub(super) const CLOSE_NORMAL: u16 = 1000;
pub(super) const CLOSE_AWAY: u16 = 1001;
pub(super) const CLOSE_PROTOCOL: u16 = 1002;
pub(super) const CLOSE_TEXT: u16 = 1007;
pub(super) const CLOSE_TOO_LARGE: u16 = 1009;
pub(super) const CLOSE_ERROR: u16 = 1011;
/// Registered at IANA, but in no RFC.
const CLOSE_BAD_GATEWAY: u16 = 1014;

/// Maximum size of a control frame (RFC 6455 section 5.5). It applies even if messages must be smaller.
const CONTROL_BYTES_MAX: usize = 125;

/// The reason takes the rest of a control frame after the code.
const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// A received message or control frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameEvent {
    Message(Message),
    Ping(Bytes),
    Pong,
    Close(Option<(u16, String)>),
}

/// The reason why nothing was received.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The connection failed. After `WouldBlock` and `TimedOut` it may continue.
    Io(io::Error),
    /// The peer closed the connection without a close frame.
    Eof,
    /// The peer violated the protocol. The fields are the close code and the reason.
    Protocol(u16, String),
}

/// Maximum memory that a socket keeps after a message, unless one read is larger.
const RETAINED_BYTES_MAX: usize = 1 << 10;

/// Maximum size of one read. The buffer is zeroed for each read, even if few bytes arrive.
const READ_BYTES_MAX: usize = 16 << 10;

/// Parses bytes into messages. Replies that the protocol requires are up to the caller.
///
/// tungstenite allocates a frame by the length in its head and keeps the memory. It therefore gets only whole
/// frames, one at a time, and is replaced after a large frame.
pub(super) struct Incoming {
    context: WebSocketContext,
    config: WebSocketConfig,
    frame_bytes_max: usize,
    /// Size of one read, which is held while the connection is idle.
    read_bytes: usize,
    /// Received bytes, used up to `at`.
    buffer: Vec<u8>,
    at: usize,
    /// Size of the largest frame that the context got.
    largest: usize,
    /// Whether the peer has closed or violated the protocol. Later bytes are ignored.
    is_over: bool,
}

impl Incoming {
    pub(super) fn new(message_bytes_max: u64, read_bytes: usize) -> Incoming {
        let message_bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
        let frame_bytes_max = message_bytes_max.max(CONTROL_BYTES_MAX);
        let config = WebSocketConfig::default()
            .read_buffer_size(read_bytes)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(frame_bytes_max));
        Incoming {
            context: WebSocketContext::new(Role::Server, Some(config)),
            config,
            frame_bytes_max,
            read_bytes,
            buffer: Vec::new(),
            at: 0,
            largest: 0,
            is_over: false,
        }
    }

    pub(super) fn next(&mut self, source: &mut dyn Read) -> Result<FrameEvent, FrameError> {
        while !self.is_over {
            match self.missing() {
                Ok(bytes) => {
                    if let Some(event) = self.take(bytes)? {
                        return Ok(event);
                    }
                }
                Err(bytes) => self.fill(bytes, source)?,
            }
        }
        Err(FrameError::Eof)
    }

    /// Returns the size of the next frame, or of a frame that its head makes invalid. The error is the number
    /// of missing bytes.
    fn missing(&self) -> Result<usize, usize> {
        let buffer = &self.buffer[self.at..];
        let mut cursor = Cursor::new(buffer);
        match FrameHeader::parse(&mut cursor) {
            Ok(None) => Err(1),
            Ok(Some((_, length))) if length <= self.frame_bytes_max as u64 => {
                let whole = cursor.position() as usize + length as usize;
                if whole <= buffer.len() { Ok(whole) } else { Err(whole - buffer.len()) }
            }
            Ok(Some(_)) | Err(_) => Ok(buffer.len()),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<Option<FrameEvent>, FrameError> {
        let read = self.context.read(&mut ReadOnly(&self.buffer[self.at..][..bytes]));
        self.at += bytes;
        self.largest = self.largest.max(bytes);
        let event = match read {
            Ok(Whole::Text(text)) => FrameEvent::Message(Message::Text(text.as_str().to_owned())),
            Ok(Whole::Binary(bytes)) => FrameEvent::Message(Message::Binary(bytes)),
            Ok(Whole::Ping(bytes)) => FrameEvent::Ping(bytes),
            // Reading never returns a raw frame.
            Ok(Whole::Pong(_) | Whole::Frame(_)) => FrameEvent::Pong,
            Ok(Whole::Close(said)) => {
                self.is_over = true;
                let frame = &self.buffer[self.at - bytes..self.at];
                let unknown = said.as_ref().filter(|said| said.code == CloseCode::Protocol);
                let given = unknown.and_then(|_| bad_gateway(frame));
                let known = said.map(|said| (said.code.into(), said.reason.as_str().to_owned()));
                FrameEvent::Close(given.or(known))
            }
            // A part of a message that is not the last one.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => {
                self.is_over = true;
                return Err(failed(error));
            }
        };
        // Between two messages, the context has no state that would be lost.
        if matches!(event, FrameEvent::Message(_)) && self.largest > self.retained_max() {
            self.context = WebSocketContext::new(Role::Server, Some(self.config));
            self.largest = 0;
        }
        Ok(Some(event))
    }

    /// Reads once. The buffer grows with the bytes that arrive, not with the length that the head declares.
    fn fill(&mut self, missing: usize, source: &mut dyn Read) -> Result<(), FrameError> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
            self.buffer.shrink_to(self.retained_max());
        }
        let start = self.buffer.len();
        let space = missing.min(start).min(READ_BYTES_MAX).max(self.read_bytes);
        self.buffer.resize(start + space, 0);
        let read = source.read(&mut self.buffer[start..]);
        self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(FrameError::Eof),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(FrameError::Io(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn retained_max(&self) -> usize {
        self.read_bytes.max(RETAINED_BYTES_MAX)
    }

    /// Returns the maximum memory in use.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> usize {
        self.buffer.capacity() + self.largest
    }
}

/// Returns code and reason of a close frame with the code 1014. tungstenite does not know that code, and reports 1002.
fn bad_gateway(frame: &[u8]) -> Option<(u16, String)> {
    let mut cursor = Cursor::new(frame);
    let (header, _) = FrameHeader::parse(&mut cursor).ok()??;
    let masked = frame.get(cursor.position() as usize..)?;
    let mask = header.mask.unwrap_or_default();
    let payload: Vec<u8> = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    let reason = payload.strip_prefix(&CLOSE_BAD_GATEWAY.to_be_bytes())?;
    Some((CLOSE_BAD_GATEWAY, String::from_utf8_lossy(reason).into_owned()))
}

fn failed(error: Error) -> FrameError {
    match error {
        Error::Io(error) => FrameError::Io(error),
        Error::Utf8(why) => FrameError::Protocol(CLOSE_TEXT, why),
        Error::Capacity(error) => FrameError::Protocol(CLOSE_TOO_LARGE, error.to_string()),
        Error::ConnectionClosed | Error::AlreadyClosed => FrameError::Eof,
        error => FrameError::Protocol(CLOSE_PROTOCOL, error.to_string()),
    }
}

/// A source of the given bytes that ignores writes.
struct ReadOnly<'b>(&'b [u8]);

impl Read for ReadOnly<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(into)
    }
}

impl Write for ReadOnly<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes a message as one frame. Every client gets the same frame.
pub(super) fn message(message: &Message) -> Vec<u8> {
    match message {
        Message::Text(text) => data(text.as_bytes(), Data::Text),
        Message::Binary(bytes) => data(bytes, Data::Binary),
    }
}

fn data(bytes: &[u8], kind: Data) -> Vec<u8> {
    // tungstenite writes only the header, so that the payload is copied once.
    let frame = Frame::message(Bytes::new(), OpCode::Data(kind), true);
    let mut out = Vec::with_capacity(bytes.len() + 10);
    // Cannot fail: writing to a vector does not fail.
    let _ = frame.header().format(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

pub(super) fn ping() -> Vec<u8> {
    control(Frame::ping(Bytes::new()))
}

pub(super) fn pong(bytes: Bytes) -> Vec<u8> {
    control(Frame::pong(bytes))
}

/// Encodes a close frame. A code that must not be sent (RFC 6455 section 7.4) is an error of the program and
/// becomes 1011.
pub(super) fn close(code: u16, reason: &str) -> Vec<u8> {
    // tungstenite does not know all registered codes.
    let code = if CloseCode::from(code).is_allowed() || code == CLOSE_BAD_GATEWAY {
        code
    } else {
        log::error!("closing a WebSocket with 1011: code {code} must not be sent (RFC 6455 section 7.4)");
        CLOSE_ERROR
    };
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    control(Frame::close(Some(CloseFrame { code: CloseCode::from(code), reason: reason[..end].into() })))
}

/// Encodes the reply to a close frame: the same code, or none if it had none or a forbidden one.
pub(super) fn close_reply(said: Option<&(u16, String)>) -> Vec<u8> {
    match said {
        Some((code, _)) => close(*code, ""),
        None => control(Frame::close(None)),
    }
}

fn control(frame: Frame) -> Vec<u8> {
    let mut out = Vec::with_capacity(frame.len());
    // Cannot fail: writing to a vector does not fail.
    let _ = frame.format(&mut out);
    out
}
