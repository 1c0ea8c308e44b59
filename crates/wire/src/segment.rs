//! Delimits the parts of a response on their way from a request of HTTP/2 to its connection.
//!
//! The thread of a request encodes its response without the connection. The connection cuts the parts into frames, as
//! its windows allow. Both are in one process, so this form is never on a network.

use crate::date::Date;
use crate::hpack::index;

/// Length of the header of a segment.
const HEADER_BYTES: usize = 9;

mod kind {
    pub(super) const INTERIM: u8 = 1;
    pub(super) const HEAD: u8 = 2;
    pub(super) const BODY: u8 = 3;
    pub(super) const TRAILERS: u8 = 4;
    pub(super) const END: u8 = 5;
    /// A head after which the connection is to end.
    pub(super) const CLOSING_HEAD: u8 = 6;
    /// A body after which the response ends.
    pub(super) const WHOLE_BODY: u8 = 7;
    pub(super) const TUNNEL: u8 = 8;
}

/// A part of a response. The bytes follow its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The field block of an interim response, of this length.
    Interim(usize),
    /// The field block of the response, of this length.
    Head {
        /// Length of the field block.
        len: usize,
        /// The handler wants the connection to end after its requests.
        closes: bool,
    },
    /// Bytes of the body.
    Body {
        /// Their number.
        len: u64,
        /// The response ends with them.
        ends: bool,
    },
    /// The field block of the trailers, of this length. The response ends with it.
    Trailers(usize),
    /// The end of the response.
    End,
    /// Another protocol. All bytes that follow are its bytes, until the request ends.
    Tunnel,
}

impl Segment {
    /// Reads the header at the start of `bytes`. Returns its length too, or None if `bytes` are too few.
    ///
    /// The length of a field block is known to fit, because the block was in memory.
    pub fn read(bytes: &[u8]) -> Option<(usize, Segment)> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [kind, length @ ..] = *header;
        let length = u64::from_be_bytes(length);
        let segment = match kind {
            kind::INTERIM => Segment::Interim(length as usize),
            kind::HEAD => Segment::Head { len: length as usize, closes: false },
            kind::CLOSING_HEAD => Segment::Head { len: length as usize, closes: true },
            kind::BODY => Segment::Body { len: length, ends: false },
            kind::WHOLE_BODY => Segment::Body { len: length, ends: true },
            kind::TRAILERS => Segment::Trailers(length as usize),
            kind::TUNNEL => Segment::Tunnel,
            _ => Segment::End,
        };
        Some((HEADER_BYTES, segment))
    }

    /// Returns how many bytes are missing behind `bytes` of a segment: those of its header, or of its field block, which is
    /// sent whole.
    pub fn missing(bytes: &[u8]) -> u32 {
        let whole = match Segment::read(bytes) {
            None => HEADER_BYTES,
            Some((header, Segment::Interim(len) | Segment::Head { len, .. } | Segment::Trailers(len))) => {
                header + len
            }
            Some(_) => 0,
        };
        u32::try_from(whole.saturating_sub(bytes.len())).unwrap_or(u32::MAX)
    }
}

fn header(kind: u8, length: u64) -> [u8; HEADER_BYTES] {
    let mut header = [kind; HEADER_BYTES];
    header[1..].copy_from_slice(&length.to_be_bytes());
    header
}

fn write(kind: u8, length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind, length));
}

fn write_block(kind: u8, out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(kind, 0, out);
    block(out);
    let length = (out.len() - start - HEADER_BYTES) as u64;
    out[start + 1..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn write_interim(out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(kind::INTERIM, out, block);
}

pub(crate) fn write_head(closes: bool, out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(if closes { kind::CLOSING_HEAD } else { kind::HEAD }, out, block);
}

/// Content types of less bytes have their length in one byte of a field block.
const CONTENT_TYPE_BYTES_MAX: usize = 126;
/// Numbers up to this one have at most four digits.
const SHORT_LENGTH_MAX: usize = 9_999;

/// Returns whether [`write_plain`] can write such a response.
#[inline]
pub(crate) fn is_short(content_type: &[u8], body: &[u8]) -> bool {
    (1..=SHORT_LENGTH_MAX).contains(&body.len()) && content_type.len() <= CONTENT_TYPE_BYTES_MAX
}

/// Appends the response that nearly all are: a 200 with Content-Type and a short body. All lengths are known beforehand,
/// so it is written in few pieces. That saves half of the instructions.
#[inline]
pub(crate) fn write_plain(content_type: &[u8], body: &[u8], date: &Date, out: &mut Vec<u8>) {
    const DATE: usize = HEADER_BYTES + 4;
    const TYPE: usize = DATE + 29;
    const START: usize = TYPE + 3;
    let ([a, b, c, d], count) = short_decimal(body.len() as u32);
    let len = (START - HEADER_BYTES) + content_type.len() + 3 + count;
    let mut start = [0; START];
    start[..HEADER_BYTES].copy_from_slice(&header(kind::HEAD, len as u64));
    start[HEADER_BYTES..DATE].copy_from_slice(&[0x80 | index::STATUS, 0x0f, index::DATE - 0x0f, 29]);
    start[DATE..TYPE].copy_from_slice(date.as_bytes());
    start[TYPE..].copy_from_slice(&[0x0f, index::CONTENT_TYPE - 0x0f, content_type.len() as u8]);
    out.extend_from_slice(&start);
    out.extend_from_slice(content_type);
    // A copy of a length that the compiler knows, of which the end is cut off.
    out.extend_from_slice(&[0x0f, index::CONTENT_LENGTH - 0x0f, count as u8, a, b, c, d]);
    out.truncate(out.len() - (4 - count));
    write(kind::WHOLE_BODY, body.len() as u64, out);
    out.extend_from_slice(body);
}

/// Returns the digits of a number up to 9,999, and how many there are.
#[inline]
fn short_decimal(number: u32) -> ([u8; 4], usize) {
    let (mut word, mut rest, mut count) = (0, number, 0);
    loop {
        word = word << 8 | (u32::from(b'0') + rest % 10);
        rest /= 10;
        count += 1;
        if rest == 0 || count == 4 {
            return (word.to_le_bytes(), count);
        }
    }
}

/// Begins a part of a body whose length is unknown.
pub(crate) fn write_part(length: u64, out: &mut Vec<u8>) {
    write(kind::BODY, length, out);
}

/// Begins a body of this length. The response ends with it.
pub(crate) fn write_whole_body(length: u64, out: &mut Vec<u8>) {
    match length {
        0 => write_end(out),
        length => write(kind::WHOLE_BODY, length, out),
    }
}

pub(crate) fn write_trailers(out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(kind::TRAILERS, out, block);
}

/// Begins another protocol.
pub(crate) fn write_tunnel(out: &mut Vec<u8>) {
    write(kind::TUNNEL, 0, out);
}

pub(crate) fn write_end(out: &mut Vec<u8>) {
    write(kind::END, 0, out);
}
