//! Clients that behave and stay long. Each is a conversation: what it reads, what it sends to that, and whether what it read is right.

use std::rc::Rc;

use memchr::memmem;

use crate::kinds::Kind;
use weftwork_bench::ResponseParser;

/// The bytes that were read are wrong.
#[derive(Debug, PartialEq)]
pub(crate) struct Wrong;

pub(crate) enum Session {
    /// Sends a body in chunks, and the next one only when the last one has come back.
    Duplex { parser: ResponseParser, chunks: usize },
    /// Fetches a body that is sent while it is made, and reads it piece by piece.
    Download { parser: ResponseParser },
    /// Upgraded: a WebSocket that wants each message back.
    Socket { input: Vec<u8>, is_open: bool, sent: u32 },
    /// Listens to a feed.
    Feed { input: Vec<u8>, is_open: bool },
}

/// Chunks of one request.
const CHUNKS: usize = 50;
const CHUNK_BYTES: usize = 1024;
/// A few seconds of reading at its pace.
const DOWNLOAD_BYTES: usize = 512 << 10;
/// No head, frame or event that is waited for is longer.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// With `Expect: 100-continue` the handler is called before any of the body is there. Else the server gathers some
/// (`body_ahead_bytes_max`).
const CHAT: &[u8] =
    b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Any key will do, and any mask.
const UPGRADE: &[u8] = b"GET /ws/echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const LISTEN: &[u8] = b"GET /events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
const MASK: [u8; 4] = [1, 2, 3, 4];

// RFC 6455 §5.2: the first byte of a frame that is a whole message.
const TEXT: u8 = 0x81;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

impl Session {
    /// Returns the session of a kind. None: the kind is hostile.
    pub(crate) fn of(kind: Kind) -> Option<Session> {
        Some(match kind {
            Kind::Duplex => Session::Duplex { parser: ResponseParser::default(), chunks: 1 },
            Kind::Download => {
                Session::Download { parser: ResponseParser::expecting(Some(Rc::from(download_body()))) }
            }
            Kind::Socket => Session::Socket { input: Vec::new(), is_open: false, sent: 0 },
            Kind::Feed => Session::Feed { input: Vec::new(), is_open: false },
            _ => return None,
        })
    }

    pub(crate) fn first_bytes(&self) -> Vec<u8> {
        match self {
            Session::Duplex { .. } => [CHAT, &chunk()].concat(),
            Session::Download { .. } => download(),
            Session::Socket { .. } => UPGRADE.to_vec(),
            Session::Feed { .. } => LISTEN.to_vec(),
        }
    }

    /// Takes what has come, and adds to `output` what it sends to that. Returns the number of answers: bodies, chunks, messages, or
    /// events.
    pub(crate) fn read(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<u64, Wrong> {
        match self {
            Session::Duplex { parser, chunks } => {
                let ends = answers(parser, bytes)?;
                if ends > 0 {
                    // Nothing may be missing, and the end not come before the client's.
                    let is_whole =
                        ends == 1 && *chunks > CHUNKS && parser.body_bytes() == CHUNKS * CHUNK_BYTES;
                    *chunks = 1;
                    output.extend_from_slice(&[CHAT, &chunk()].concat());
                    return if is_whole { Ok(1) } else { Err(Wrong) };
                }
                if parser.body_bytes() != *chunks * CHUNK_BYTES {
                    return Ok(0);
                }
                *chunks += 1;
                output.extend_from_slice(&if *chunks > CHUNKS { b"0\r\n\r\n".to_vec() } else { chunk() });
                Ok(1)
            }
            Session::Download { parser } => {
                let ends = answers(parser, bytes)?;
                (0..ends).for_each(|_| output.extend_from_slice(&download()));
                Ok(ends)
            }
            Session::Socket { input, is_open, sent } => {
                input.extend_from_slice(bytes);
                if !*is_open {
                    *is_open = opened(input, b"HTTP/1.1 101 ")?;
                    output.extend(is_open.then(|| frame(TEXT, &text(*sent))).into_iter().flatten());
                }
                if *is_open { messages(input, sent, output) } else { Ok(0) }
            }
            Session::Feed { input, is_open } => {
                input.extend_from_slice(bytes);
                *is_open = *is_open || opened(input, b"HTTP/1.1 200 ")?;
                if *is_open { events(input) } else { Ok(0) }
            }
        }
    }
}

fn chunk() -> Vec<u8> {
    [format!("{CHUNK_BYTES:x}\r\n").as_bytes(), &[b'c'; CHUNK_BYTES], b"\r\n"].concat()
}

fn download_body() -> Vec<u8> {
    weftwork_bench::file_bytes(DOWNLOAD_BYTES)
}

fn download() -> Vec<u8> {
    let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {DOWNLOAD_BYTES}\r\n\r\n");
    [head.into_bytes(), download_body()].concat()
}

/// Returns the number of answers that came to their end, all of them good.
fn answers(parser: &mut ResponseParser, mut bytes: &[u8]) -> Result<u64, Wrong> {
    let mut answers = 0;
    while !bytes.is_empty() {
        let (used, answer) = parser.feed(bytes).map_err(|_| Wrong)?;
        bytes = &bytes[used..];
        match answer {
            None => {}
            Some(answer) if answer.status == 200 && answer.right => answers += 1,
            Some(_) => return Err(Wrong),
        }
    }
    Ok(answers)
}

/// Takes the head off, once it is whole.
fn opened(input: &mut Vec<u8>, status_line: &[u8]) -> Result<bool, Wrong> {
    match memmem::find(input, b"\r\n\r\n") {
        Some(end) if input.starts_with(status_line) => {
            input.drain(..end + 4);
            Ok(true)
        }
        None if input.len() <= INPUT_BYTES_MAX => Ok(false),
        _ => Err(Wrong),
    }
}

fn text(number: u32) -> Vec<u8> {
    format!("message {number}").into_bytes()
}

/// A short frame, masked as a client's have to be.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let masked = payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [first, 0x80 | payload.len() as u8].into_iter().chain(MASK).chain(masked).collect()
}

/// Takes whole frames off: the echo of the last message is answered by the next one, a ping by a pong.
fn messages(input: &mut Vec<u8>, sent: &mut u32, output: &mut Vec<u8>) -> Result<u64, Wrong> {
    let mut echoes = 0;
    while let [first, length, rest @ ..] = input.as_slice() {
        let Some(payload) = rest.get(..usize::from(*length)) else { break };
        match *first {
            TEXT if payload == text(*sent) => {
                *sent += 1;
                echoes += 1;
                output.extend(frame(TEXT, &text(*sent)));
            }
            PING => output.extend(frame(PONG, payload)),
            _ => return Err(Wrong),
        }
        let taken = 2 + payload.len();
        input.drain(..taken);
    }
    Ok(echoes)
}

/// Takes off all up to the last event that has begun.
fn events(input: &mut Vec<u8>) -> Result<u64, Wrong> {
    const DATA: &[u8] = b"\ndata: ";
    let begun: Vec<usize> = memmem::find_iter(input, DATA).collect();
    if let Some(last) = begun.last() {
        input.drain(..last + DATA.len());
    }
    if input.len() > INPUT_BYTES_MAX { Err(Wrong) } else { Ok(begun.len() as u64) }
}

#[cfg(test)]
mod tests;
