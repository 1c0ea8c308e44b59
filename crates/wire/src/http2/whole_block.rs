//! Puts a field block that was encoded before into frames.

use super::Http2;
use super::frame::{Header, PAYLOAD_BYTES_MAX, flag, kind};

/// Size update of a dynamic table to 0 (RFC 7541 §6.3). A peer that has lowered the size of our table waits for it
/// (§4.2), and others ignore it.
const TABLE_RESET: u8 = 0x20;

impl Http2 {
    /// Appends HEADERS with `block`, and CONTINUATION for what does not fit into 16,384 bytes. `resets_table` is for the
    /// first block after the peer has changed the size of our table.
    pub fn write_block(stream: u32, block: &[u8], resets_table: bool, ends: bool, out: &mut Vec<u8>) {
        let reset_len = usize::from(resets_table);
        let first = block.len().min(PAYLOAD_BYTES_MAX - reset_len);
        let (part, mut rest) = block.split_at(first);
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        let end_headers = |rest: &[u8]| if rest.is_empty() { flag::END_HEADERS } else { 0 };
        let len = (reset_len + first) as u32;
        let flags = end_stream | end_headers(rest);
        out.extend_from_slice(&Header { len, kind: kind::HEADERS, flags, stream }.bytes());
        if resets_table {
            out.push(TABLE_RESET);
        }
        out.extend_from_slice(part);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
            rest = behind;
            let (len, flags) = (part.len() as u32, end_headers(rest));
            out.extend_from_slice(&Header { len, kind: kind::CONTINUATION, flags, stream }.bytes());
            out.extend_from_slice(part);
        }
    }
}
