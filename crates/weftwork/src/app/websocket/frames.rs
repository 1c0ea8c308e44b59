//! Messages to and from bytes: tungstenite, with no socket of its own.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message as Whole};

use super::Message;

pub(super) const CLOSE_NORMAL: u16 = 1000;
pub(super) const CLOSE_AWAY: u16 = 1001;
pub(super) const CLOSE_PROTOCOL: u16 = 1002;
pub(super) const CLOSE_TEXT: u16 = 1007;
pub(super) const CLOSE_TOO_LARGE: u16 = 1009;
pub(super) const CLOSE_ERROR: u16 = 1011;

/// A reason is what is left of a control frame's 125 bytes behind the code (RFC 6455 section 5.5).
const REASON_BYTES_MAX: usize = 123;

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

/// Makes messages of bytes. Of what the protocol has to answer nothing is written: that is the caller's.
pub(super) struct Incoming(WebSocketContext);

impl Incoming {
    /// `read_bytes`: how much is read at once, and held while the connection is idle.
    pub(super) fn new(message_bytes_max: usize, read_bytes: usize) -> Incoming {
        let config = WebSocketConfig::default()
            .read_buffer_size(read_bytes)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        Incoming(WebSocketContext::new(Role::Server, Some(config)))
    }

    pub(super) fn next(&mut self, source: &mut dyn Read) -> Result<Got, Failed> {
        match self.0.read(&mut OneWay(source)) {
            Ok(Whole::Text(text)) => Ok(Got::Message(Message::Text(text.as_str().to_owned()))),
            Ok(Whole::Binary(bytes)) => Ok(Got::Message(Message::Binary(bytes))),
            Ok(Whole::Ping(bytes)) => Ok(Got::Ping(bytes)),
            // A raw frame never comes from reading.
            Ok(Whole::Pong(_) | Whole::Frame(_)) => Ok(Got::Pong),
            Ok(Whole::Close(said)) => {
                Ok(Got::Close(said.map(|said| (said.code.into(), said.reason.as_str().to_owned()))))
            }
            Err(Error::Io(error)) => Err(Failed::Io(error)),
            Err(Error::Utf8(why)) => Err(Failed::Fault(CLOSE_TEXT, why)),
            Err(Error::Capacity(error)) => Err(Failed::Fault(CLOSE_TOO_LARGE, error.to_string())),
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => Err(Failed::Ended),
            Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                Err(Failed::Ended)
            }
            Err(error) => Err(Failed::Fault(CLOSE_PROTOCOL, error.to_string())),
        }
    }
}

/// Reads, and forgets what is written.
struct OneWay<'r>(&'r mut dyn Read);

impl Read for OneWay<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
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

pub(super) fn close(code: u16, reason: &str) -> Vec<u8> {
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
