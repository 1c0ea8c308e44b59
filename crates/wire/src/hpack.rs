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
//! let decoded = Decoder::new(4_096).decode(&block, 65_536, &mut text, |_, field| fields.push(field))?;
//! assert_eq!(decoded, Decoded::Whole);
//! assert_eq!((fields[0].name.of(&text), fields[0].value.of(&text)), (&b":status"[..], &b"200"[..]));
//! assert_eq!((fields[1].name.of(&text), fields[1].value.of(&text)), (&b"content-type"[..], &b"text/plain"[..]));
//! # Ok::<(), weftwork_wire::hpack::HpackFault>(())
//! ```

mod encode;
mod fault;
mod huffman;
mod integer;
mod static_table;
mod table;

use crate::head::Span;

pub use encode::{encode_field, encode_status};
pub use fault::HpackFault;

use static_table::ENTRIES;
use table::{ENTRY_OVERHEAD, Table, TableField};

/// Past so many times the limit, decoding ends.
const LIMIT_FACTOR_MAX: usize = 4;

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
}

/// Decodes the field blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

/// What a block is decoded with.
struct Block<'b, F> {
    rest: &'b [u8],
    text: &'b mut Vec<u8>,
    field: F,
    /// Bytes of all fields so far, each counted as name + value + 32.
    counted: usize,
    bytes_max: usize,
}

/// A string of a block, as it came.
#[derive(Clone, Copy)]
struct Str<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

impl Decoder {
    /// `table_bytes_max` is the SETTINGS_HEADER_TABLE_SIZE that this end announces. Announce 4,096, the default, or more: a
    /// lower value would hold only after the peer's acknowledgement. Memory is allocated when the peer uses the table,
    /// at most `table_bytes_max` for text and a quarter of it for the entries.
    pub fn new(table_bytes_max: u16) -> Decoder {
        Decoder { table: Table::new(table_bytes_max) }
    }

    /// Decodes one whole field block. The text of each field, name and value, is appended to `text`, and then `field` is
    /// called. `field` may change the text that is there, and remove any of it.
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
        field: impl FnMut(&mut Vec<u8>, DecodedField),
    ) -> Result<Decoded, HpackFault> {
        let mut block = Block { rest: block, text, field, counted: 0, bytes_max };
        block.table_sizes(&mut self.table)?;
        while let Some((&first, rest)) = block.rest.split_first() {
            block.rest = rest;
            match first {
                0x80.. => block.indexed(&self.table, first)?,
                0x40..0x80 => block.literal(&mut self.table, first, 6, true)?,
                0x20..0x40 => return Err(HpackFault::TableSizeMisplaced),
                // Without indexing, and never indexed: nothing is passed on as it came.
                0x00..0x20 => block.literal(&mut self.table, first, 4, false)?,
            }
        }
        Ok(if block.counted <= bytes_max { Decoded::Whole } else { Decoded::TooLarge })
    }
}

impl<'b, F: FnMut(&mut Vec<u8>, DecodedField)> Block<'b, F> {
    /// Reads the sizes of the dynamic table that a block may start with: the smallest since the last block, and the
    /// current one (RFC 7541 §4.2).
    #[inline(always)]
    fn table_sizes(&mut self, table: &mut Table) -> Result<(), HpackFault> {
        for _ in 0..2 {
            let [first @ 0x20..0x40, rest @ ..] = self.rest else { return Ok(()) };
            self.rest = rest;
            let size = integer::read(*first, 5, &mut self.rest)?;
            table.resize(size as usize)?;
        }
        Ok(())
    }

    /// A field that is in a table whole (RFC 7541 §6.1).
    #[inline(always)]
    fn indexed(&mut self, table: &Table, first: u8) -> Result<(), HpackFault> {
        let index = integer::read(first, 7, &mut self.rest)? as usize;
        let field = entry(table, index)?;
        let size = field.text.len() + ENTRY_OVERHEAD;
        if !self.counts(size)? {
            return Ok(());
        }
        let start = self.text.len();
        self.text.extend_from_slice(field.text);
        let (name_len, name_index) = (field.name_len, field.name_index);
        self.give(start, name_len, name_index);
        Ok(())
    }

    /// A field whose value is given, and perhaps its name (RFC 7541 §6.2).
    fn literal(
        &mut self,
        table: &mut Table,
        first: u8,
        prefix_bits: u32,
        is_indexed: bool,
    ) -> Result<(), HpackFault> {
        let index = integer::read(first, prefix_bits, &mut self.rest)? as usize;
        let name = if index == 0 { Some(self.string()?) } else { None };
        let value = self.string()?;
        let name_len_max = match name {
            Some(name) => name.decoded_len_max(),
            None => entry(table, index)?.name_len,
        };
        let size_max = name_len_max + value.decoded_len_max() + ENTRY_OVERHEAD;
        let is_given = if self.counted + size_max <= self.bytes_max {
            true
        } else {
            let name_len = name.map_or(Ok(name_len_max), Str::decoded_len)?;
            let size = name_len + value.decoded_len()? + ENTRY_OVERHEAD;
            let is_given = self.counts(size)?;
            self.counted -= size;
            if !is_given && (!is_indexed || size > table.size_max()) {
                self.counted += size;
                if is_indexed {
                    table.clear();
                }
                return Ok(());
            }
            is_given
        };
        let start = self.text.len();
        let (name_len, name_index) = self.write_name(table, name, index)?;
        value.write(self.text)?;
        self.counted += self.text.len() - start + ENTRY_OVERHEAD;
        if is_indexed {
            table.insert(&self.text[start..], name_len, name_index);
        }
        if is_given {
            self.give(start, name_len, name_index);
        } else {
            self.text.truncate(start);
        }
        Ok(())
    }

    #[inline(always)]
    fn write_name(
        &mut self,
        table: &Table,
        name: Option<Str<'_>>,
        index: usize,
    ) -> Result<(usize, u8), HpackFault> {
        let Some(name) = name else {
            let TableField { text, name_len, name_index } = entry(table, index)?;
            self.text.extend_from_slice(&text[..name_len]);
            return Ok((name_len, name_index));
        };
        let start = self.text.len();
        name.write(self.text)?;
        let name = &self.text[start..];
        Ok((name.len(), static_table::name_index(name)))
    }

    /// Counts a field. Returns whether it is within the limit.
    #[inline(always)]
    fn counts(&mut self, size: usize) -> Result<bool, HpackFault> {
        self.counted += size;
        if self.counted <= self.bytes_max {
            return Ok(true);
        }
        if self.counted / LIMIT_FACTOR_MAX > self.bytes_max {
            Err(HpackFault::FieldsTooLong)
        } else {
            Ok(false)
        }
    }

    /// Gives out the field whose text starts at `start` and ends with the text.
    #[inline(always)]
    fn give(&mut self, start: usize, name_len: usize, name_index: u8) {
        let value = start + name_len;
        let value_len = self.text.len() - value;
        let field = DecodedField {
            name: Span { start: start as u32, len: name_len as u32 },
            value: Span { start: value as u32, len: value_len as u32 },
            name_index,
        };
        (self.field)(self.text, field);
    }

    /// Reads a string (RFC 7541 §5.2).
    #[inline(always)]
    fn string(&mut self) -> Result<Str<'b>, HpackFault> {
        let (&first, rest) = self.rest.split_first().ok_or(HpackFault::Incomplete)?;
        self.rest = rest;
        let len = integer::read(first, 7, &mut self.rest)? as usize;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(HpackFault::Incomplete)?;
        self.rest = rest;
        Ok(Str { bytes, is_huffman: first & 0x80 != 0 })
    }
}

impl Str<'_> {
    #[inline(always)]
    fn decoded_len_max(self) -> usize {
        if self.is_huffman { huffman::decoded_len_max(self.bytes.len()) } else { self.bytes.len() }
    }

    fn decoded_len(self) -> Result<usize, HpackFault> {
        if self.is_huffman { huffman::decoded_len(self.bytes) } else { Ok(self.bytes.len()) }
    }

    /// Appends the decoded string.
    #[inline(always)]
    fn write(self, text: &mut Vec<u8>) -> Result<(), HpackFault> {
        if !self.is_huffman {
            text.extend_from_slice(self.bytes);
            return Ok(());
        }
        let start = text.len();
        text.resize(start + self.decoded_len_max(), 0);
        let len = huffman::decode(self.bytes, &mut text[start..])?;
        text.truncate(start + len);
        Ok(())
    }
}

/// Returns the entry of an index, of either table (RFC 7541 §2.3.3).
#[inline(always)]
fn entry(table: &Table, index: usize) -> Result<TableField<'_>, HpackFault> {
    if let Some(field) = ENTRIES.get(index) {
        if index == 0 {
            return Err(HpackFault::IndexUnknown);
        }
        let (text, name_len) = (field.text, usize::from(field.name_len));
        return Ok(TableField { text, name_len, name_index: field.name_index });
    }
    table.get(index - ENTRIES.len()).ok_or(HpackFault::IndexUnknown)
}

#[cfg(test)]
mod tests;
