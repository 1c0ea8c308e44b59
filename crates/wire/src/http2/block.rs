//! Writes the frames of a field block.

use super::Http2;
use super::frame::{HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, flag, kind};
use crate::date::Date;
use crate::hpack::index;

/// Sets the size of the dynamic table to 0, as it is (RFC 7541 §6.3).
const TABLE_SIZE_ZERO: u8 = 0x20;

/// A block that is being written at the end of a buffer.
#[derive(Clone, Copy)]
pub(super) struct BlockStart {
    at: usize,
    stream: u32,
}

impl BlockStart {
    /// Appends room for the header of the frame. `resets_table`: see [`Http2Response`](super::Http2Response).
    #[inline]
    pub(super) fn new(stream: u32, resets_table: bool, out: &mut Vec<u8>) -> BlockStart {
        let at = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        if resets_table {
            out.push(TABLE_SIZE_ZERO);
        }
        BlockStart { at, stream }
    }

    /// Completes the block with its frame header, or frame headers.
    #[inline]
    pub(super) fn finish(self, ends: bool, out: &mut Vec<u8>) {
        let len = out.len() - self.at - HEADER_BYTES;
        if len > PAYLOAD_BYTES_MAX {
            return self.split(ends, out);
        }
        let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
        let header = Header { len: len as u32, kind: kind::HEADERS, flags, stream: self.stream };
        out[self.at..][..HEADER_BYTES].copy_from_slice(&header.bytes());
    }

    #[cold]
    fn split(self, ends: bool, out: &mut Vec<u8>) {
        let block = out.split_off(self.at + HEADER_BYTES);
        out.truncate(self.at);
        Http2::write_block(self.stream, &block, false, ends, out);
    }
}

/// Content types of less bytes have their length in one byte.
pub(super) const CONTENT_TYPE_BYTES_MAX: usize = 126;

/// Appends the head that nearly all responses have: a 200 with Content-Type and a short Content-Length. All lengths are known
/// beforehand, so it is written in three pieces. That saves half of the instructions.
#[inline]
pub(super) fn write_plain(stream: u32, content_type: &[u8], length: u64, date: &Date, out: &mut Vec<u8>) {
    const DATE: usize = HEADER_BYTES + 4;
    const TYPE: usize = DATE + 29;
    const START: usize = TYPE + 3;
    let (digits, count) = short_decimal(length);
    let len = (START - HEADER_BYTES) + content_type.len() + 3 + count;
    let header = Header { len: len as u32, kind: kind::HEADERS, flags: flag::END_HEADERS, stream };
    let mut start = [0; START];
    start[..HEADER_BYTES].copy_from_slice(&header.bytes());
    start[HEADER_BYTES..DATE].copy_from_slice(&[0x80 | index::STATUS, 0x0f, index::DATE - 0x0f, 29]);
    start[DATE..TYPE].copy_from_slice(date.as_bytes());
    start[TYPE..].copy_from_slice(&[0x0f, index::CONTENT_TYPE - 0x0f, content_type.len() as u8]);
    out.extend_from_slice(&start);
    out.extend_from_slice(content_type);
    let [a, b, c, d] = digits;
    // A copy of a length that the compiler knows, of which the end is cut off.
    out.extend_from_slice(&[0x0f, index::CONTENT_LENGTH - 0x0f, count as u8, a, b, c, d]);
    out.truncate(out.len() - (digits.len() - count));
}

/// Numbers up to this one have at most four digits.
pub(super) const SHORT_LENGTH_MAX: u64 = 9_999;

/// Returns the digits of such a number, and how many there are.
#[inline]
fn short_decimal(number: u64) -> ([u8; 4], usize) {
    let (mut word, mut rest, mut count) = (0, number as u32, 0);
    loop {
        word = word << 8 | (u32::from(b'0') + rest % 10);
        rest /= 10;
        count += 1;
        if rest == 0 || count == 4 {
            return (word.to_le_bytes(), count);
        }
    }
}
