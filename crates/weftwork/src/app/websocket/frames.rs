//! Messages to and from bytes: tungstenite, with no socket of its own.

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
/// Registered at IANA, and in no RFC.
const CLOSE_BAD_GATEWAY: u16 = 1014;

/// As much may be in a control frame (RFC 6455 section 5.5), however small messages have to be.
const CONTROL_BYTES_MAX: usize = 125;

/// A reason is what is left of a control frame behind the code.
const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Message(Message),
    Ping(Bytes),
    Pong,
    Close(Option<(u16, String)>),
}

/// Why nothing did.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection said so; with `WouldBlock` and `TimedOut` it may go on.
    Io(io::Error),
    /// The peer ended without a word.
    Ended,
    /// The peer broke the protocol: the code that tells it so, and how.
    Fault(u16, String),
}

/// A socket that has got a message keeps no more than this of the memory that it took, or what is read at once.
const KEPT_BYTES: usize = 1 << 10;

/// Room is made for no more than this at once, as it is zeroed for each read, however little comes.
const READ_BYTES_MAX: usize = 16 << 10;

/// Makes messages of bytes. Of what the protocol has to answer nothing is written: that is the caller's.
///
/// tungstenite makes room for a frame by the length that its head declares, and keeps it. So it is given whole frames
/// alone, one at a time, and is made anew behind a large one.
pub(super) struct Incoming {
    context: WebSocketContext,
    config: WebSocketConfig,
    frame_bytes_max: usize,
    /// How much is read at once, and held while the connection is idle.
    read_bytes: usize,
    /// What has come; up to `at` it is done with.
    held: Vec<u8>,
    at: usize,
    /// The largest frame that the context was given.
    largest: usize,
    /// The peer has closed, or broken the protocol: what follows is nothing.
    over: bool,
}

impl Incoming {
    pub(super) fn new(message_bytes_max: usize, read_bytes: usize) -> Incoming {
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
            held: Vec::new(),
            at: 0,
            largest: 0,
            over: false,
        }
    }

    pub(super) fn next(&mut self, source: &mut dyn Read) -> Result<Got, Failed> {
        while !self.over {
            match self.missing() {
                Ok(bytes) => {
                    if let Some(got) = self.take(bytes)? {
                        return Ok(got);
                    }
                }
                Err(bytes) => self.fill(bytes, source)?,
            }
        }
        Err(Failed::Ended)
    }

    /// How many bytes can be judged, a whole frame or one that is refused for its head; or else how many are missing.
    fn missing(&self) -> Result<usize, usize> {
        let held = &self.held[self.at..];
        let mut cursor = Cursor::new(held);
        match FrameHeader::parse(&mut cursor) {
            Ok(None) => Err(1),
            Ok(Some((_, length))) if length <= self.frame_bytes_max as u64 => {
                let whole = cursor.position() as usize + length as usize;
                if whole <= held.len() { Ok(whole) } else { Err(whole - held.len()) }
            }
            Ok(Some(_)) | Err(_) => Ok(held.len()),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<Option<Got>, Failed> {
        let read = self.context.read(&mut OneWay(&self.held[self.at..][..bytes]));
        self.at += bytes;
        self.largest = self.largest.max(bytes);
        let got = match read {
            Ok(Whole::Text(text)) => Got::Message(Message::Text(text.as_str().to_owned())),
            Ok(Whole::Binary(bytes)) => Got::Message(Message::Binary(bytes)),
            Ok(Whole::Ping(bytes)) => Got::Ping(bytes),
            // A raw frame never comes from reading.
            Ok(Whole::Pong(_) | Whole::Frame(_)) => Got::Pong,
            Ok(Whole::Close(said)) => {
                self.over = true;
                Got::Close(said.map(|said| (said.code.into(), said.reason.as_str().to_owned())))
            }
            // A part of a message, and not the last one.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => {
                self.over = true;
                return Err(failed(error));
            }
        };
        // Between two messages it knows nothing that would be lost.
        if matches!(got, Got::Message(_)) && self.largest > self.kept() {
            self.context = WebSocketContext::new(Role::Server, Some(self.config));
            self.largest = 0;
        }
        Ok(Some(got))
    }

    /// Reads once. Room is made by what has come, and not by what its head declares.
    fn fill(&mut self, missing: usize, source: &mut dyn Read) -> Result<(), Failed> {
        if self.at > 0 {
            self.held.drain(..self.at);
            self.at = 0;
            self.held.shrink_to(self.kept());
        }
        let start = self.held.len();
        let room = missing.min(start).min(READ_BYTES_MAX).max(self.read_bytes);
        self.held.resize(start + room, 0);
        let read = source.read(&mut self.held[start..]);
        self.held.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(Failed::Ended),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(Failed::Io(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn kept(&self) -> usize {
        self.read_bytes.max(KEPT_BYTES)
    }

    /// As much memory as this may hold.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> usize {
        self.held.capacity() + self.largest
    }
}

fn failed(error: Error) -> Failed {
    match error {
        Error::Io(error) => Failed::Io(error),
        Error::Utf8(why) => Failed::Fault(CLOSE_TEXT, why),
        Error::Capacity(error) => Failed::Fault(CLOSE_TOO_LARGE, error.to_string()),
        Error::ConnectionClosed | Error::AlreadyClosed => Failed::Ended,
        error => Failed::Fault(CLOSE_PROTOCOL, error.to_string()),
    }
}

/// Gives what is there and forgets what is written.
struct OneWay<'b>(&'b [u8]);

impl Read for OneWay<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(into)
    }
}

impl Write for OneWay<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message as one frame, as a server sends it to every client alike.
pub(super) fn message(message: &Message) -> Vec<u8> {
    match message {
        Message::Text(text) => data(text.as_bytes(), Data::Text),
        Message::Binary(bytes) => data(bytes, Data::Binary),
    }
}

fn data(bytes: &[u8], kind: Data) -> Vec<u8> {
    // The header alone is tungstenite's to write, so that the payload is copied once.
    let frame = Frame::message(Bytes::new(), OpCode::Data(kind), true);
    let mut out = Vec::with_capacity(bytes.len() + 10);
    // Writing to a vector does not fail.
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

/// A close. A code that must not be sent (RFC 6455 section 7.4) is a mistake of ours, and becomes the one for that.
pub(super) fn close(code: u16, reason: &str) -> Vec<u8> {
    // tungstenite does not know all that are registered.
    let code = if CloseCode::from(code).is_allowed() || code == CLOSE_BAD_GATEWAY {
        code
    } else {
        log::error!("a WebSocket is closed with 1011: {code} must not be sent (RFC 6455 section 7.4)");
        CLOSE_ERROR
    };
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    control(Frame::close(Some(CloseFrame { code: CloseCode::from(code), reason: reason[..end].into() })))
}

/// The answer to a peer's close: its own code, or none if it gave none or a forbidden one.
pub(super) fn close_reply(said: Option<&(u16, String)>) -> Vec<u8> {
    match said {
        Some((code, _)) => close(*code, ""),
        None => control(Frame::close(None)),
    }
}

fn control(frame: Frame) -> Vec<u8> {
    let mut out = Vec::with_capacity(frame.len());
    // Writing to a vector does not fail.
    let _ = frame.format(&mut out);
    out
}
