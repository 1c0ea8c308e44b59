//! Compresses messages with permessage-deflate (RFC 7692): negotiation, frames to send, received messages.
//!
//! Each message is compressed by itself (`no_context_takeover` in both directions). An idle socket then holds no
//! memory for compression, and a hub compresses a message once for all its sockets.

use std::sync::{Mutex, PoisonError};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use http::{HeaderValue, header};

use crate::message::Request;
use crate::message::large_stack::with_large_stack;

const NAME: &[u8] = b"permessage-deflate";

/// Size of the smallest message that is compressed. Shorter messages hardly become smaller.
const DEFLATED_BYTES_MIN: usize = 128;

/// End of each compressed message, which is not sent (RFC 7692 section 7.2.1).
const TAIL: &[u8] = &[0x00, 0x00, 0xff, 0xff];

/// An empty last block. If it does not end the stream, the message was not complete.
const LAST_BLOCK: &[u8] = &[0x01, 0x00, 0x00, 0xff, 0xff];

/// The largest window, in bits.
const WINDOW_BITS_MAX: u8 = 15;

/// Idle compressors and decompressors, a few for all threads. One takes up to 300 KiB and some time to allocate.
static COMPRESSORS: Mutex<Vec<Compress>> = Mutex::new(Vec::new());
static DECOMPRESSORS: Mutex<Vec<Decompress>> = Mutex::new(Vec::new());
const IDLE_MAX: usize = 4;

/// What was negotiated for one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deflate {
    /// Window of our compressor, in bits: 9 to 15.
    window_bits: u8,
    /// Whether the client has limited that window.
    is_limited: bool,
}

impl Deflate {
    /// Returns the first offer of the client that can be accepted.
    pub(super) fn negotiated(req: &Request<'_>) -> Option<Deflate> {
        req.elements(header::SEC_WEBSOCKET_EXTENSIONS).find_map(Deflate::of_offer)
    }

    /// Parses one offer. An offer with a parameter that is unknown, repeated or invalid is declined (RFC 7692
    /// section 7.1), and so is a window of 8 bits, which zlib does not have.
    fn of_offer(offer: &[u8]) -> Option<Deflate> {
        let mut parts = offer.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        parts.next().filter(|name| name.eq_ignore_ascii_case(NAME))?;
        let mut deflate = Deflate { window_bits: WINDOW_BITS_MAX, is_limited: false };
        let mut seen: Vec<&[u8]> = Vec::new();
        for part in parts {
            let (name, value) = match part.iter().position(|&byte| byte == b'=') {
                Some(at) => (part[..at].trim_ascii_end(), Some(unquoted(part[at + 1..].trim_ascii_start()))),
                None => (part, None),
            };
            match (name, value) {
                (b"server_no_context_takeover" | b"client_no_context_takeover", None) => {}
                (b"server_max_window_bits", Some(bits)) => {
                    let window_bits = window_bits(bits).filter(|bits| *bits > 8)?;
                    deflate = Deflate { window_bits, is_limited: true };
                }
                // Our decompressor has the largest window, so the client may choose any.
                (b"client_max_window_bits", None) => {}
                (b"client_max_window_bits", Some(bits)) => drop(window_bits(bits)?),
                _ => return None,
            }
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
        }
        Some(deflate)
    }

    /// Returns the accepted extension for the response.
    pub(super) fn response(self) -> HeaderValue {
        let Deflate { window_bits, is_limited } = self;
        let mut text =
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover".to_owned();
        if is_limited {
            text += &format!("; server_max_window_bits={window_bits}");
        }
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("permessage-deflate"))
    }

    /// Returns the window as a bit of a set of windows.
    pub(super) fn bit(self) -> u16 {
        1 << self.window_bits
    }

    /// Returns all windows of such a set.
    pub(super) fn of_bits(bits: u16) -> impl Iterator<Item = Deflate> {
        let windows = (9..=WINDOW_BITS_MAX).filter(move |window| bits & (1 << window) != 0);
        windows.map(|window_bits| Deflate { window_bits, is_limited: window_bits < WINDOW_BITS_MAX })
    }

    pub(super) fn window_bits(self) -> u8 {
        self.window_bits
    }

    /// Returns the payload compressed, or `None` if it would not become smaller.
    pub(super) fn compress(self, payload: &[u8]) -> Option<Vec<u8>> {
        if payload.len() < DEFLATED_BYTES_MIN {
            return None;
        }
        with_large_stack(|| self.compress_here(payload))
    }

    fn compress_here(self, payload: &[u8]) -> Option<Vec<u8>> {
        let is_usual = self.window_bits == WINDOW_BITS_MAX;
        let idle = if is_usual { taken(&COMPRESSORS) } else { None };
        let mut compressor = idle
            .unwrap_or_else(|| Compress::new_with_window_bits(Compression::fast(), false, self.window_bits));
        // A byte takes at most nine bits, so all of the output fits.
        let mut out = Vec::with_capacity(payload.len() + payload.len() / 8 + 64);
        let status = compressor.compress_vec(payload, &mut out, FlushCompress::Sync);
        let is_read = status.is_ok() && compressor.total_in() == payload.len() as u64;
        let is_whole = is_read && out.len() < out.capacity() && out.ends_with(TAIL);
        // zlib-rs 0.6.8 does not reset a compressor that holds output: it would panic later.
        if is_usual && is_whole {
            compressor.reset();
            give_back(&COMPRESSORS, compressor);
        }
        out.truncate(out.len().saturating_sub(TAIL.len()));
        (is_whole && out.len() < payload.len()).then_some(out)
    }
}

/// A value that may be quoted (RFC 6455 section 9.1).
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

/// Parses a window: 8 to 15, without leading zeros.
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

fn taken<T>(idle: &Mutex<Vec<T>>) -> Option<T> {
    idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn give_back<T>(idle: &Mutex<Vec<T>>, value: T) {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < IDLE_MAX {
        idle.push(value);
    }
}

/// The reason why a message cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InflateError {
    /// The message is larger than the limit.
    TooLarge,
    /// The bytes are not compressed data, or not all of it.
    Malformed,
}

/// A message that is received in parts and decompressed.
pub(super) struct Inflating {
    decompressor: Decompress,
    out: Vec<u8>,
    bytes_max: usize,
    has_input: bool,
    /// Whether the last bytes have ended a stream.
    has_ended: bool,
}

/// Size of one step.
const STEP_BYTES: usize = 8 << 10;

impl Inflating {
    pub(super) fn new(bytes_max: usize) -> Inflating {
        let decompressor = taken(&DECOMPRESSORS)
            .unwrap_or_else(|| with_large_stack(|| Decompress::new_with_window_bits(false, WINDOW_BITS_MAX)));
        Inflating { decompressor, out: Vec::new(), bytes_max, has_input: false, has_ended: false }
    }

    /// Decompresses the payload of one frame.
    pub(super) fn push(&mut self, payload: &[u8]) -> Result<(), InflateError> {
        self.has_input |= !payload.is_empty();
        with_large_stack(|| self.inflate(payload))
    }

    fn inflate(&mut self, mut input: &[u8]) -> Result<(), InflateError> {
        let mut step = [0; STEP_BYTES];
        loop {
            if self.has_ended && !input.is_empty() {
                // A block that is marked as the last one may be followed by others (RFC 7692 section 7.2.3.5).
                self.decompressor.reset(false);
                self.has_ended = false;
            }
            // At most one byte past the limit is decompressed.
            let space = (self.bytes_max - self.out.len()).saturating_add(1).min(STEP_BYTES);
            let (taken, given) = (self.decompressor.total_in(), self.decompressor.total_out());
            let status = self.decompressor.decompress(input, &mut step[..space], FlushDecompress::None);
            let count = (self.decompressor.total_out() - given) as usize;
            // The limit is checked before anything is kept, and first: what follows the limit cannot change the error.
            if count > self.bytes_max - self.out.len() {
                return Err(InflateError::TooLarge);
            }
            let status = status.map_err(|_| InflateError::Malformed)?;
            input = &input[(self.decompressor.total_in() - taken) as usize..];
            self.out.extend_from_slice(&step[..count]);
            self.has_ended = status == Status::StreamEnd;
            if input.is_empty() && count < space {
                return Ok(());
            }
            if !self.has_ended && count == 0 && status == Status::BufError {
                return Err(InflateError::Malformed);
            }
        }
    }

    /// Returns the message after its last frame.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, InflateError> {
        // Some clients send nothing for an empty message.
        if self.has_input {
            self.push(TAIL)?;
            self.push(LAST_BLOCK)?;
            if !self.has_ended {
                return Err(InflateError::Malformed);
            }
        }
        self.decompressor.reset(false);
        give_back(&DECOMPRESSORS, self.decompressor);
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests;
