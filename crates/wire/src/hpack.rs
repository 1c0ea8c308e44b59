//! Reads and writes field blocks of HTTP/2 (HPACK, RFC 7541).
//!
//! [`Decoder`] has the dynamic table of one direction of one connection. It counts each field against a limit before it
//! writes the text of the field, so a reference of one byte to a large entry costs no more than the limit allows.
//! [`encode_field`] and [`encode_status`] need no state.
//!
//! ```
//! use weftwork_wire::hpack::{Decoded, Decoder, encode_field, encode_status};
//!
//! let mut block = Vec::new();
//! encode_status(http::StatusCode::OK, &mut block);
//! encode_field("content-type", b"text/plain", &mut block);
//!
//! let (mut text, mut fields) = (Vec::new(), Vec::new());
//! let decoded = Decoder::new(4_096).decode(&block, 65_536, &mut text, |_, field| {
//!     fields.push(field);
//!     true
//! })?;
//! assert_eq!(decoded, Decoded::Whole);
//! assert_eq!((fields[0].name.of(&text), fields[0].value.of(&text)), (&b":status"[..], &b"200"[..]));
//! assert_eq!((fields[1].name.of(&text), fields[1].value.of(&text)), (&b"content-type"[..], &b"text/plain"[..]));
//! # Ok::<(), weftwork_wire::hpack::HpackFault>(())
//! ```

mod count;
mod encode;
mod fault;
mod huffman;
pub mod index;
mod integer;
mod literal;
mod static_table;
mod table;

use crate::head::Span;

pub(crate) use encode::encode_at;
pub use encode::{encode_field, encode_status};
pub use fault::HpackFault;

use count::Count;
use literal::Literal;
use static_table::ENTRIES;
use table::{Name, Table, TableField};

/// Result of a block without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Every field was given out.
    Whole,
    /// The fields are longer than the limit. Those past the limit were not given out.
    TooLarge,
}

/// A field of a block, as spans of the decoded text. Nothing of it is checked: names may be no tokens, or in upper case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedField {
    /// The name.
    pub name: Span,
    /// The value. It follows the name in the text.
    pub value: Span,
    /// Index of the first entry of the static table with this name (RFC 7541, appendix A), or 0 if no entry has this name.
    /// It does not depend on how the peer encoded the name.
    pub name_index: u8,
    /// The field is an entry of the dynamic table that was given out before, and was found valid then.
    pub is_checked: bool,
}

/// Decodes the field blocks of one direction of a connection, in their order.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: Table,
}

impl Decoder {
    /// `table_bytes_max` is the SETTINGS_HEADER_TABLE_SIZE that this end announces. Announce 4,096, the default, or more: a
    /// lower value would hold only after the peer's acknowledgement. Memory is allocated when the peer uses the table,
    /// at most `table_bytes_max` for text and a quarter of it for the entries.
    pub fn new(table_bytes_max: u16) -> Decoder {
        Decoder { table: Table::new(table_bytes_max) }
    }

    /// Decodes one whole field block. The text of each field, name and value, is appended to `text`, and then `field` is
    /// called. `field` may change the text that is there, and remove any of it. It returns whether the field is valid. That
    /// is remembered for a field that the peer inserts into the dynamic table: see [`DecodedField::is_checked`].
    ///
    /// A field counts its name, its value and 32 (RFC 9113 §6.5.2) against `bytes_max`, before its text is appended. Past
    /// the limit, fields are decoded only for the dynamic table. So `text` grows by at most `bytes_max`, and in passing
    /// by the size of the table.
    ///
    /// # Errors
    /// The rule that the peer broke. The dynamic table is out of step then, and the connection has to end.
    pub fn decode(
        &mut self,
        block: &[u8],
        bytes_max: usize,
        text: &mut Vec<u8>,
        mut field: impl FnMut(&mut Vec<u8>, DecodedField) -> bool,
    ) -> Result<Decoded, HpackFault> {
        let mut rest = table_sizes(&mut self.table, block)?;
        let mut count = Count { bytes: 0, bytes_max };
        while let Some((&first, after)) = rest.split_first() {
            let start = text.len();
            let (name, is_inserted) = match first {
                0x80.. => {
                    let index;
                    (index, rest) = integer::read(first, 7, after)?;
                    let TableField { text: bytes, name } = entry(&self.table, index)?;
                    if !count.add(bytes.len())? {
                        continue;
                    }
                    text.extend_from_slice(bytes);
                    (name, false)
                }
                0x20..0x40 => return Err(HpackFault::TableSizeMisplaced),
                _ => {
                    let literal;
                    (literal, rest) = Literal::read(first, after)?;
                    let Some(name) = literal.take(&mut self.table, &mut count, text)? else { continue };
                    (name, literal.is_indexed)
                }
            };
            // The only call: so it is inlined.
            let decoded = DecodedField::at(start, name, text.len());
            if field(text, decoded) && is_inserted {
                self.table.check_newest();
            }
        }
        Ok(if count.is_within() { Decoded::Whole } else { Decoded::TooLarge })
    }
}

impl DecodedField {
    /// Returns the field whose text starts at `start` and ends at `end`.
    #[inline(always)]
    fn at(start: usize, name: Name, end: usize) -> DecodedField {
        let value = start + name.len;
        DecodedField {
            name: Span { start: start as u32, len: name.len as u32 },
            value: Span { start: value as u32, len: (end - value) as u32 },
            name_index: name.index,
            is_checked: name.is_checked,
        }
    }
}

/// Reads the sizes of the dynamic table that a block may start with: the smallest since the last block, and the current
/// one (RFC 7541 §4.2). Returns what follows them.
#[inline(always)]
fn table_sizes<'b>(table: &mut Table, mut block: &'b [u8]) -> Result<&'b [u8], HpackFault> {
    for _ in 0..2 {
        let [first @ 0x20..0x40, rest @ ..] = block else { break };
        let (size, rest) = integer::read(*first, 5, rest)?;
        table.resize(size)?;
        block = rest;
    }
    Ok(block)
}

/// Returns the entry of an index, of either table (RFC 7541 §2.3.3).
#[inline(always)]
fn entry(table: &Table, index: usize) -> Result<TableField<'_>, HpackFault> {
    match ENTRIES.get(index) {
        Some(entry) if index > 0 => {
            let name = Name { len: entry.name_len.into(), index: entry.name_index, is_checked: false };
            Ok(TableField { text: entry.text, name })
        }
        Some(_) => Err(HpackFault::IndexUnknown),
        None => table.get(index - ENTRIES.len()).ok_or(HpackFault::IndexUnknown),
    }
}

#[cfg(test)]
mod tests;
