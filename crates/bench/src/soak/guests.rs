//! Do those get what they are due who behave, but stay long? Each guest is a conversation: what it hears, what it says
//! to that, and whether what it heard is right.

use std::rc::Rc;

use memchr::memmem;

use super::kinds::Kind;
use crate::load::response::ResponseParser;

/// What was heard is not what was due.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong;

pub(super) enum Guest {
    /// Sends a body in chunks, and the next one only when the last one has come back.
    Duplex { parser: ResponseParser, chunks: usize },
    /// Fetches a body that is sent while it is made, and reads it piece by piece.
    Download { parser: ResponseParser },
    /// Upgraded: a WebSocket that wants each message back.
    Socket { heard: Vec<u8>, is_open: bool, sent: u32 },
    /// Listens to a feed.
    Feed { heard: Vec<u8>, is_open: bool },
}

/// Chunks of one request.
const CHUNKS: usize = 50;
const CHUNK_BYTES: usize = 1024;
/// A few seconds of reading at its pace.
const DOWNLOAD_BYTES: usize = 512 << 10;
/// No head, frame or event that is waited for is longer.
const HEARD_BYTES_MAX: usize = 16 << 10;
/// Who expects 100 is let in before any of the body is there: else the server gathers some (`body_ahead_bytes_max`).
const CHAT: &[u8] =
    b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Any key will do, and any mask: nobody listens in.
const UPGRADE: &[u8] = b"GET /ws/echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const LISTEN: &[u8] = b"GET /events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
const MASK: [u8; 4] = [1, 2, 3, 4];

// RFC 6455 §5.2: the first byte of a frame that is a whole message.
const TEXT: u8 = 0x81;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

impl Guest {
    /// None: whoever is of this kind is no guest.
    pub(super) fn of(kind: Kind) -> Option<Guest> {
        Some(match kind {
            Kind::Duplex => Guest::Duplex { parser: ResponseParser::default(), chunks: 1 },
            Kind::Download => {
                Guest::Download { parser: ResponseParser::expecting(Some(Rc::from(download_body()))) }
            }
            Kind::Socket => Guest::Socket { heard: Vec::new(), is_open: false, sent: 0 },
            Kind::Feed => Guest::Feed { heard: Vec::new(), is_open: false },
            _ => return None,
        })
    }

    pub(super) fn first_words(&self) -> Vec<u8> {
        match self {
            Guest::Duplex { .. } => [CHAT, &chunk()].concat(),
            Guest::Download { .. } => download(),
            Guest::Socket { .. } => UPGRADE.to_vec(),
            Guest::Feed { .. } => LISTEN.to_vec(),
        }
    }

    /// Takes what has come, and adds to `words` what it says to that. How many answers these were: bodies, chunks,
    /// messages, or events.
    pub(super) fn hear(&mut self, bytes: &[u8], words: &mut Vec<u8>) -> Result<u64, Wrong> {
        match self {
            Guest::Duplex { parser, chunks } => {
                let ends = answers(parser, bytes)?;
                if ends > 0 {
                    // Nothing may be missing, and the end not come before the client's.
                    let is_whole =
                        ends == 1 && *chunks > CHUNKS && parser.body_bytes() == CHUNKS * CHUNK_BYTES;
                    *chunks = 1;
                    words.extend_from_slice(&[CHAT, &chunk()].concat());
                    return if is_whole { Ok(1) } else { Err(Wrong) };
                }
                if parser.body_bytes() != *chunks * CHUNK_BYTES {
                    return Ok(0);
                }
                *chunks += 1;
                words.extend_from_slice(&if *chunks > CHUNKS { b"0\r\n\r\n".to_vec() } else { chunk() });
                Ok(1)
            }
            Guest::Download { parser } => {
                let ends = answers(parser, bytes)?;
                (0..ends).for_each(|_| words.extend_from_slice(&download()));
                Ok(ends)
            }
            Guest::Socket { heard, is_open, sent } => {
                heard.extend_from_slice(bytes);
                if !*is_open {
                    *is_open = opened(heard, b"HTTP/1.1 101 ")?;
                    words.extend(is_open.then(|| frame(TEXT, &text(*sent))).into_iter().flatten());
                }
                if *is_open { messages(heard, sent, words) } else { Ok(0) }
            }
            Guest::Feed { heard, is_open } => {
                heard.extend_from_slice(bytes);
                *is_open = *is_open || opened(heard, b"HTTP/1.1 200 ")?;
                if *is_open { events(heard) } else { Ok(0) }
            }
        }
    }
}

fn chunk() -> Vec<u8> {
    [format!("{CHUNK_BYTES:x}\r\n").as_bytes(), &[b'c'; CHUNK_BYTES], b"\r\n"].concat()
}

fn download_body() -> Vec<u8> {
    crate::peers::file_bytes(DOWNLOAD_BYTES)
}

fn download() -> Vec<u8> {
    let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {DOWNLOAD_BYTES}\r\n\r\n");
    [head.into_bytes(), download_body()].concat()
}

/// How many answers came to their end, all of them good.
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
fn opened(heard: &mut Vec<u8>, status_line: &[u8]) -> Result<bool, Wrong> {
    match memmem::find(heard, b"\r\n\r\n") {
        Some(end) if heard.starts_with(status_line) => {
            heard.drain(..end + 4);
            Ok(true)
        }
        None if heard.len() <= HEARD_BYTES_MAX => Ok(false),
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
fn messages(heard: &mut Vec<u8>, sent: &mut u32, words: &mut Vec<u8>) -> Result<u64, Wrong> {
    let mut echoes = 0;
    while let [first, length, rest @ ..] = heard.as_slice() {
        let Some(payload) = rest.get(..usize::from(*length)) else { break };
        match *first {
            TEXT if payload == text(*sent) => {
                *sent += 1;
                echoes += 1;
                words.extend(frame(TEXT, &text(*sent)));
            }
            PING => words.extend(frame(PONG, payload)),
            _ => return Err(Wrong),
        }
        let taken = 2 + payload.len();
        heard.drain(..taken);
    }
    Ok(echoes)
}

/// Takes off all up to the last event that has begun.
fn events(heard: &mut Vec<u8>) -> Result<u64, Wrong> {
    const DATA: &[u8] = b"\ndata: ";
    let begun: Vec<usize> = memmem::find_iter(heard, DATA).collect();
    if let Some(last) = begun.last() {
        heard.drain(..last + DATA.len());
    }
    if heard.len() > HEARD_BYTES_MAX { Err(Wrong) } else { Ok(begun.len() as u64) }
}

#[cfg(test)]
mod tests;
