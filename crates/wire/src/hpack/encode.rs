//! Writes field blocks.
//!
//! There is no dynamic table. So a block depends on no other, and any thread writes its block, in any order. There is
//! no Huffman code, because a byte less would cost 80 instructions:
//!
//! | values of Content-Type and Date | bytes | instructions |
//! |---|---|---|
//! | as they are | 56 | 104 |
//! | in Huffman code | 43 | 1,189 |

use http::StatusCode;

use super::index;
use super::integer;
use super::static_table::{ENTRIES, name_index};

/// First bytes of the representations (RFC 7541 §6), without their prefix.
const INDEXED: u8 = 0x80;
const WITHOUT_INDEXING: u8 = 0x00;
const NEVER_INDEXED: u8 = 0x10;
/// Lengths and indices below these are one byte.
const LEN_MIN_LONG: usize = 0x7f;
const INDEX_MIN_LONG: u8 = 0x0f;

/// Appends a field. `name` is in lower case. `authorization`, `cookie`, `proxy-authorization` and `set-cookie` are marked
/// as never indexed, so that no proxy puts a secret into a table (RFC 7541 §7.1.3).
#[inline]
pub fn encode_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    match name_index(name.as_bytes()) {
        0 => encode_named(name.as_bytes(), value, out),
        index => encode_at(index, value, out),
    }
}

/// Appends a field whose name is in the static table.
#[inline]
pub(crate) fn encode_at(name_index: u8, value: &[u8], out: &mut Vec<u8>) {
    // Names that have values in the table. Others have only the empty value, which is not worth a look.
    if matches!(name_index, 2..=16)
        && let Some(index) = whole(name_index, value)
    {
        return out.push(INDEXED | index);
    }
    let pattern = match name_index {
        index::AUTHORIZATION | index::COOKIE | index::PROXY_AUTHORIZATION | index::SET_COOKIE => {
            NEVER_INDEXED
        }
        _ => WITHOUT_INDEXING,
    };
    // One write instead of three is half the instructions.
    if name_index >= INDEX_MIN_LONG && value.len() < LEN_MIN_LONG {
        out.extend_from_slice(&[pattern | INDEX_MIN_LONG, name_index - INDEX_MIN_LONG, value.len() as u8]);
        return out.extend_from_slice(value);
    }
    integer::write(pattern, 4, usize::from(name_index), out);
    string(value, out);
}

/// Appends `:status`. The statuses 200, 204, 206, 304, 400, 404 and 500 are one byte.
#[inline]
pub fn encode_status(status: StatusCode, out: &mut Vec<u8>) {
    if status == StatusCode::OK {
        return out.push(INDEXED | index::STATUS);
    }
    encode_at(index::STATUS, status.as_str().as_bytes(), out);
}

#[inline]
fn encode_named(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if name.len() < LEN_MIN_LONG {
        out.extend_from_slice(&[WITHOUT_INDEXING, name.len() as u8]);
        out.extend_from_slice(name);
    } else {
        out.push(WITHOUT_INDEXING);
        string(name, out);
    }
    string(value, out);
}

/// Finds the entry that has this value, among those with the name of the entry `index`.
#[inline(never)]
fn whole(index: u8, value: &[u8]) -> Option<u8> {
    let entries = &ENTRIES[usize::from(index)..];
    let same_name = entries.iter().take_while(|entry| entry.name_index == index);
    let at = same_name.enumerate().find(|(_, entry)| entry.value() == value)?.0;
    Some(index + at as u8)
}

#[inline(always)]
fn string(text: &[u8], out: &mut Vec<u8>) {
    integer::write(0, 7, text.len(), out);
    out.extend_from_slice(text);
}
