//! Writes the frames of a field block.

use http::{HeaderName, HeaderValue, header};

use super::frame::{HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, flag, kind};
use crate::date::Date;
use crate::hpack::encode_field;

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
        let mut flags = if ends { flag::END_STREAM } else { 0 };
        let mut kind = kind::HEADERS;
        let mut parts = block.chunks(PAYLOAD_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            let header = Header { len: part.len() as u32, kind, flags, stream: self.stream };
            out.extend_from_slice(&header.bytes());
            out.extend_from_slice(part);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}

/// Whether a field concerns a connection of HTTP/1.1, and must not be sent (RFC 9113 §8.2.2).
#[inline]
fn is_of_connection(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 5] = [
        header::CONNECTION,
        header::UPGRADE,
        header::TRANSFER_ENCODING,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    NAMES.contains(name)
}

/// Appends fields, except for those that concern a connection, and for a TE that is not `trailers`.
pub(super) fn write_fields(fields: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
    for (name, value) in fields {
        if !is_of_connection(name) && (name != header::TE || value == "trailers") {
            encode_field(name.as_str(), value.as_bytes(), out);
        }
    }
}

/// Appends the fields of a response, except for those that the codec writes itself. A Last-Modified after `limit`
/// becomes `limit`: see the same for HTTP/1.1.
#[inline(never)]
pub(super) fn write_given(
    fields: &[(HeaderName, HeaderValue)],
    limit: Option<&Date>,
    is_left_out: impl Fn(&HeaderName) -> bool,
    out: &mut Vec<u8>,
) {
    for (name, value) in fields {
        if name == header::CONTENT_LENGTH || is_of_connection(name) || is_left_out(name) {
            continue;
        }
        let mut value = value.as_bytes();
        if let Some(date) = limit
            && name == header::LAST_MODIFIED
            && date.is_before(value)
        {
            value = date.as_bytes();
        }
        encode_field(name.as_str(), value, out);
    }
}

/// Appends the Date.
#[inline]
pub(super) fn write_date(date: &Date, out: &mut Vec<u8>) {
    // `date` is entry 33 of the static table, and its values have 29 bytes.
    let mut field = [0; 32];
    field[..3].copy_from_slice(&[0x0f, 33 - 15, 29]);
    field[3..].copy_from_slice(date.as_bytes());
    out.extend_from_slice(&field);
}

/// Appends the Content-Type.
#[inline]
pub(super) fn write_content_type(value: &[u8], out: &mut Vec<u8>) {
    if value.len() >= 0x7f {
        return encode_field("content-type", value, out);
    }
    // Entry 31 of the static table.
    out.extend_from_slice(&[0x0f, 31 - 15, value.len() as u8]);
    out.extend_from_slice(value);
}

/// Appends the Content-Length.
#[inline]
pub(super) fn write_content_length(length: u64, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    // Entry 28 of the static table. The field is written from its end, so that it is one copy.
    let mut field = [b'0'; 3 + DIGITS_MAX];
    let mut at = field.len();
    let mut rest = length;
    loop {
        at -= 1;
        field[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || at == 3 {
            break;
        }
    }
    at -= 3;
    field[at..][..3].copy_from_slice(&[0x0f, 28 - 15, (3 + DIGITS_MAX - at - 3) as u8]);
    out.extend_from_slice(&field[at..]);
}
