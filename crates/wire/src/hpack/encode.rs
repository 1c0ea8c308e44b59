//! Writes field blocks.
//!
//! No dynamic table: then a block depends on no other, and any thread writes it, in any order. No Huffman code: it
//! would take a quarter off the text, and several times the instructions.

use http::StatusCode;

use super::integer;
use super::static_table::{ENTRIES, name_index};

/// First bytes of the representations (RFC 7541 §6), without their prefix.
const INDEXED: u8 = 0x80;
const WITHOUT_INDEXING: u8 = 0x00;
const NEVER_INDEXED: u8 = 0x10;

/// Index of `:status 200`, and of the name `:status`.
const STATUS: u8 = 8;

/// Appends a field. `name` is in lower case. Values that are secrets are marked, so that no proxy puts them into a
/// table: `authorization`, `cookie`, `proxy-authorization` and `set-cookie` (RFC 7541 §7.1.3).
#[inline]
pub fn encode_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let index = name_index(name.as_bytes());
    if index == 0 {
        out.push(WITHOUT_INDEXING);
        string(name.as_bytes(), out);
        return string(value, out);
    }
    encode_static(index, value, out);
}

/// Appends the field whose name is the entry `index` of the static table.
#[inline]
fn encode_static(index: u8, value: &[u8], out: &mut Vec<u8>) {
    // Authorization, cookie, proxy-authorization, set-cookie.
    let is_secret = matches!(index, 23 | 32 | 49 | 55);
    if !is_secret && let Some(whole) = whole(index, value) {
        return out.push(INDEXED | whole);
    }
    let pattern = if is_secret { NEVER_INDEXED } else { WITHOUT_INDEXING };
    integer::write(pattern, 4, usize::from(index), out);
    string(value, out);
}

/// Finds the entry that has this value, among those with the name of the entry `index`.
#[inline]
fn whole(index: u8, value: &[u8]) -> Option<u8> {
    let entries = &ENTRIES[usize::from(index)..];
    let same_name = entries.iter().take_while(|entry| entry.name_index == index);
    let at = same_name.enumerate().find(|(_, entry)| entry.value() == value)?.0;
    Some(index + at as u8)
}

/// Appends `:status`. Common statuses are one byte.
#[inline]
pub fn encode_status(status: StatusCode, out: &mut Vec<u8>) {
    if status == StatusCode::OK {
        return out.push(INDEXED | STATUS);
    }
    encode_static(STATUS, status.as_str().as_bytes(), out);
}

#[inline]
fn string(text: &[u8], out: &mut Vec<u8>) {
    integer::write(0, 7, text.len(), out);
    out.extend_from_slice(text);
}
