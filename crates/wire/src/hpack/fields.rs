//! Counts the fields of a block, writes their text, and gives them out.

use super::fault::HpackFault;
use super::static_table::name_index;
use super::table::{ENTRY_OVERHEAD, Table, TableField};
use super::{DecodedField, entry, huffman, integer};
use crate::head::Span;

/// Past so many times the limit, decoding ends.
const LIMIT_FACTOR_MAX: usize = 4;

/// The fields of one block.
pub(super) struct Fields<'t, F> {
    pub(super) text: &'t mut Vec<u8>,
    pub(super) field: F,
    /// The bytes of all fields so far, each counted as name + value + 32.
    pub(super) counted: usize,
    pub(super) bytes_max: usize,
}

/// A string of a block, as it came.
#[derive(Clone, Copy)]
struct Str<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

/// A field that came as a literal.
#[derive(Clone, Copy)]
struct Literal<'b> {
    /// None: the name is that of the entry `index`.
    name: Option<Str<'b>>,
    index: usize,
    value: Str<'b>,
    /// It is to be inserted into the dynamic table.
    is_indexed: bool,
}

impl<F: FnMut(&mut Vec<u8>, DecodedField)> Fields<'_, F> {
    /// Takes a field that is whole in a table (RFC 7541 §6.1).
    #[inline(always)]
    pub(super) fn copy(&mut self, entry: TableField<'_>) -> Result<(), HpackFault> {
        if self.count(entry.text.len())? {
            let start = self.text.len();
            self.text.extend_from_slice(entry.text);
            self.give(start, entry.name_len, entry.name_index);
        }
        Ok(())
    }

    /// Takes a field whose value is given, and perhaps its name (RFC 7541 §6.2). Returns what follows the field in the
    /// block.
    pub(super) fn literal<'b>(
        &mut self,
        table: &mut Table,
        first: u8,
        rest: &'b [u8],
    ) -> Result<&'b [u8], HpackFault> {
        let (literal, rest) = Literal::read(first, rest)?;
        let name_len_max = match literal.name {
            Some(name) => name.decoded_len_max(),
            None => entry(table, literal.index)?.name_len,
        };
        let len_max = name_len_max + literal.value.decoded_len_max();
        if self.counted + len_max + ENTRY_OVERHEAD <= self.bytes_max {
            let start = self.text.len();
            let (name_len, name_index) = literal.write(table, self.text)?;
            self.counted += self.text.len() - start + ENTRY_OVERHEAD;
            self.give(start, name_len, name_index);
        } else {
            self.literal_near_limit(table, literal)?;
        }
        Ok(rest)
    }

    /// Takes a literal field that may be past the limit: its length is counted first.
    #[cold]
    fn literal_near_limit(&mut self, table: &mut Table, literal: Literal<'_>) -> Result<(), HpackFault> {
        let name_len = match literal.name {
            Some(name) => name.decoded_len()?,
            None => entry(table, literal.index)?.name_len,
        };
        let len = name_len + literal.value.decoded_len()?;
        let is_within = self.count(len)?;
        if !is_within && !literal.is_indexed {
            return Ok(());
        }
        if !is_within && len + ENTRY_OVERHEAD > table.size_max() {
            // RFC 7541 §4.4
            table.clear();
            return Ok(());
        }
        let start = self.text.len();
        let (name_len, name_index) = literal.write(table, self.text)?;
        if is_within {
            self.give(start, name_len, name_index);
        } else {
            self.text.truncate(start);
        }
        Ok(())
    }

    /// Counts a field. Returns whether it is within the limit.
    #[inline(always)]
    fn count(&mut self, len: usize) -> Result<bool, HpackFault> {
        self.counted += len + ENTRY_OVERHEAD;
        if self.counted <= self.bytes_max {
            return Ok(true);
        }
        let counted_max = self.bytes_max.saturating_mul(LIMIT_FACTOR_MAX);
        if self.counted <= counted_max { Ok(false) } else { Err(HpackFault::FieldsTooLong) }
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
}

impl<'b> Literal<'b> {
    /// Reads a literal, and returns what follows it. The prefix tells whether it is indexed. That it must never be
    /// indexed is no concern of this end, which passes on nothing as it came.
    #[inline(always)]
    fn read(first: u8, rest: &'b [u8]) -> Result<(Literal<'b>, &'b [u8]), HpackFault> {
        let is_indexed = first & 0x40 != 0;
        let prefix_bits = if is_indexed { 6 } else { 4 };
        let (index, rest) = integer::read(first, prefix_bits, rest)?;
        let (name, rest) = if index == 0 {
            let (name, rest) = Str::read(rest)?;
            (Some(name), rest)
        } else {
            (None, rest)
        };
        let (value, rest) = Str::read(rest)?;
        Ok((Literal { name, index, value, is_indexed }, rest))
    }

    /// Appends the text, and inserts the field into the table if it is indexed. Returns the length of the name, and its
    /// index in the static table.
    #[inline(always)]
    fn write(self, table: &mut Table, text: &mut Vec<u8>) -> Result<(usize, u8), HpackFault> {
        let start = text.len();
        let (name_len, name_index) = match self.name {
            Some(name) => {
                name.write(text)?;
                let name = &text[start..];
                (name.len(), name_index(name))
            }
            None => {
                let entry = entry(table, self.index)?;
                text.extend_from_slice(&entry.text[..entry.name_len]);
                (entry.name_len, entry.name_index)
            }
        };
        self.value.write(text)?;
        if self.is_indexed {
            table.insert(&text[start..], name_len, name_index);
        }
        Ok((name_len, name_index))
    }
}

impl<'b> Str<'b> {
    /// Reads a string (RFC 7541 §5.2), and returns what follows it.
    #[inline(always)]
    fn read(block: &'b [u8]) -> Result<(Str<'b>, &'b [u8]), HpackFault> {
        let (&first, rest) = block.split_first().ok_or(HpackFault::Incomplete)?;
        let (len, rest) = integer::read(first, 7, rest)?;
        let (bytes, rest) = rest.split_at_checked(len).ok_or(HpackFault::Incomplete)?;
        Ok((Str { bytes, is_huffman: first & 0x80 != 0 }, rest))
    }

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
