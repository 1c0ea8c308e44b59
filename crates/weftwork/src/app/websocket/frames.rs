//! Converts between messages and bytes, with tungstenite and without a socket.

use std::io::{self, Cursor, Read, Write};

use bytes::Bytes;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message as Whole};

use super::Message;
use super::deflate::{Deflate, InflateError, Inflating};
use crate::transport::log_queue::log_line;

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
    message_bytes_max: usize,
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
    /// Whether messages may be compressed.
    deflates: bool,
    unfinished: Unfinished,
}

/// A message whose last frame has not arrived.
enum Unfinished {
    No,
    /// The context has its first frames.
    Plain,
    Deflated {
        is_text: bool,
        inflating: Box<Inflating>,
    },
}

impl Incoming {
    /// `deflates` says whether permessage-deflate was negotiated.
    pub(super) fn new(message_bytes_max: u64, read_bytes: usize, deflates: bool) -> Incoming {
        let message_bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
        let frame_bytes_max = message_bytes_max.max(CONTROL_BYTES_MAX);
        let config = WebSocketConfig::default()
            .read_buffer_size(read_bytes)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(frame_bytes_max));
        Incoming {
            context: WebSocketContext::new(Role::Server, Some(config)),
            config,
            message_bytes_max,
            frame_bytes_max,
            read_bytes,
            buffer: Vec::new(),
            at: 0,
            largest: 0,
            is_over: false,
            deflates,
            unfinished: Unfinished::No,
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
            Ok(Some((header, length))) if length <= self.frame_bytes_max(&header) as u64 => {
                let whole = cursor.position() as usize + length as usize;
                if whole <= buffer.len() { Ok(whole) } else { Err(whole - buffer.len()) }
            }
            Ok(Some(_)) | Err(_) => Ok(buffer.len()),
        }
    }

    /// Returns the maximum size of a frame with this header. Compression makes some data a little larger.
    fn frame_bytes_max(&self, header: &FrameHeader) -> usize {
        let is_deflated = match self.unfinished {
            Unfinished::Deflated { .. } => matches!(header.opcode, OpCode::Data(_)),
            _ => self.deflates && header.rsv1,
        };
        let overhead = if is_deflated { self.message_bytes_max / 256 + 64 } else { 0 };
        self.frame_bytes_max.saturating_add(overhead)
    }

    fn take(&mut self, bytes: usize) -> Result<Option<FrameEvent>, FrameError> {
        let taken = match self.deflated_frame(bytes) {
            Ok(Some(frame)) => self.take_deflated(frame),
            Ok(None) => return self.take_plain(bytes),
            Err(failed) => Err(failed),
        };
        self.at += bytes;
        self.is_over |= taken.is_err();
        taken
    }

    /// Returns the next frame if it belongs to a compressed message. Other frames are for the context.
    fn deflated_frame(&mut self, bytes: usize) -> Result<Option<DeflatedFrame>, FrameError> {
        let frame = &self.buffer[self.at..][..bytes];
        let mut cursor = Cursor::new(frame);
        let Ok(Some((header, length))) = FrameHeader::parse(&mut cursor) else { return Ok(None) };
        let start = cursor.position() as usize;
        let opcode = match header.opcode {
            OpCode::Data(opcode @ (Data::Continue | Data::Text | Data::Binary)) => opcode,
            _ => return Ok(None),
        };
        let is_first = opcode != Data::Continue;
        let begins = is_first && header.rsv1 && self.deflates;
        let has_begun = match self.unfinished {
            Unfinished::Deflated { .. } => true,
            Unfinished::Plain if begins => return Err(violation("a message began within another one")),
            _ => false,
        };
        if !begins && !has_begun {
            self.unfinished = if header.is_final { Unfinished::No } else { Unfinished::Plain };
            return Ok(None);
        }
        if has_begun && is_first {
            return Err(violation("a message began within another one"));
        }
        // RFC 7692 section 6.1: only the first frame of a message has the bit.
        if header.rsv2 || header.rsv3 || (has_begun && header.rsv1) {
            return Err(violation("a reserved bit is set"));
        }
        let Some(mask) = header.mask else { return Err(violation("a frame of a client is not masked")) };
        let is_here = length <= (frame.len() - start) as u64;
        if !is_here {
            return Err(FrameError::Protocol(CLOSE_TOO_LARGE, "the message is too large".to_owned()));
        }
        let payload =
            frame[start..].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        let is_text = begins.then_some(opcode == Data::Text);
        Ok(Some(DeflatedFrame { payload, is_text, is_final: header.is_final }))
    }

    fn take_deflated(&mut self, frame: DeflatedFrame) -> Result<Option<FrameEvent>, FrameError> {
        let failed = |error| match error {
            InflateError::TooLarge => {
                FrameError::Protocol(CLOSE_TOO_LARGE, "the message is too large".to_owned())
            }
            InflateError::Malformed => {
                FrameError::Protocol(CLOSE_TEXT, "the compressed data is malformed".to_owned())
            }
        };
        let unfinished = std::mem::replace(&mut self.unfinished, Unfinished::No);
        let (is_text, mut inflating) = match (frame.is_text, unfinished) {
            (None, Unfinished::Deflated { is_text, inflating }) => (is_text, inflating),
            (is_text, _) => (is_text.unwrap_or_default(), Box::new(Inflating::new(self.message_bytes_max))),
        };
        inflating.push(&frame.payload).map_err(failed)?;
        if !frame.is_final {
            self.unfinished = Unfinished::Deflated { is_text, inflating };
            return Ok(None);
        }
        let bytes = inflating.finish().map_err(failed)?;
        let message = if is_text {
            let text = String::from_utf8(bytes);
            Message::Text(text.map_err(|why| FrameError::Protocol(CLOSE_TEXT, why.to_string()))?)
        } else {
            Message::Binary(bytes.into())
        };
        Ok(Some(FrameEvent::Message(message)))
    }

    fn take_plain(&mut self, bytes: usize) -> Result<Option<FrameEvent>, FrameError> {
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

/// A frame of a compressed message, unmasked.
struct DeflatedFrame {
    payload: Vec<u8>,
    /// Whether the message is text. `None` if it is not the first frame.
    is_text: Option<bool>,
    is_final: bool,
}

fn violation(why: &str) -> FrameError {
    FrameError::Protocol(CLOSE_PROTOCOL, why.to_owned())
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

/// Encodes a message as one frame, compressed if that was negotiated and makes it smaller.
pub(super) fn message(message: &Message, deflate: Option<Deflate>) -> Vec<u8> {
    let (payload, kind) = match message {
        Message::Text(text) => (text.as_bytes(), Data::Text),
        Message::Binary(bytes) => (&bytes[..], Data::Binary),
    };
    match deflate.and_then(|deflate| deflate.compress(payload)) {
        Some(deflated) => data(&deflated, kind, true),
        None => data(payload, kind, false),
    }
}

/// The frames of one message. All clients with the same window get the same frame.
pub(super) struct Encoded<'m> {
    message: &'m Message,
    /// Frames by their window, which is 0 without compression.
    frames: Vec<(u8, Bytes)>,
}

impl Encoded<'_> {
    pub(super) fn new(message: &Message) -> Encoded<'_> {
        Encoded { message, frames: Vec::new() }
    }

    /// Returns the frame for a client.
    pub(super) fn frame(&mut self, deflate: Option<Deflate>) -> Bytes {
        let window = deflate.map_or(0, Deflate::window_bits);
        if let Some((_, frame)) = self.frames.iter().find(|(known, _)| *known == window) {
            return frame.clone();
        }
        let frame = Bytes::from(message(self.message, deflate));
        self.frames.push((window, frame.clone()));
        frame
    }
}

fn data(bytes: &[u8], kind: Data, is_deflated: bool) -> Vec<u8> {
    // tungstenite writes only the header, so that the payload is copied once.
    let mut frame = Frame::message(Bytes::new(), OpCode::Data(kind), true);
    frame.header_mut().rsv1 = is_deflated;
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
        log_line!(
            Error,
            "closing a WebSocket with 1011: code {code} must not be sent (RFC 6455 section 7.4)"
        );
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
