//! Fields whose text is in the block, with the name or without.

use super::count::Count;
use super::fault::HpackFault;
use super::static_table::name_index;
use super::table::{ENTRY_OVERHEAD, Name, Table};
use super::{entry, huffman, integer};

/// A string of a block, as it came.
#[derive(Clone, Copy)]
struct Str<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

/// A field that came as a literal.
#[derive(Clone, Copy)]
pub(super) struct Literal<'b> {
    /// None: the name is that of the entry `index`.
    name: Option<Str<'b>>,
    index: usize,
    value: Str<'b>,
    /// It is to be inserted into the dynamic table.
    pub(super) is_indexed: bool,
}

impl<'b> Literal<'b> {
    /// Reads a literal, and returns what follows it. The prefix tells whether it is indexed. That it must never be
    /// indexed is no concern of this end, which passes on nothing as it came.
    #[inline(always)]
    pub(super) fn read(first: u8, rest: &'b [u8]) -> Result<(Literal<'b>, &'b [u8]), HpackFault> {
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

    /// Counts the field, appends its text, and inserts the field into the table if it is indexed. None: the field is past
    /// the limit, and its text was not appended.
    pub(super) fn take(
        self,
        table: &mut Table,
        count: &mut Count,
        text: &mut Vec<u8>,
    ) -> Result<Option<Name>, HpackFault> {
        let name_len_max = match self.name {
            Some(name) => name.decoded_len_max(),
            None => entry(table, self.index)?.name.len,
        };
        if !count.has_room(name_len_max + self.value.decoded_len_max()) {
            return self.take_near_limit(table, count, text);
        }
        let start = text.len();
        let name = self.write(table, text)?;
        count.add(text.len() - start)?;
        Ok(Some(name))
    }

    /// The same for a field that may be past the limit: its length is counted first.
    #[cold]
    fn take_near_limit(
        self,
        table: &mut Table,
        count: &mut Count,
        text: &mut Vec<u8>,
    ) -> Result<Option<Name>, HpackFault> {
        let name_len = match self.name {
            Some(name) => name.decoded_len()?,
            None => entry(table, self.index)?.name.len,
        };
        let len = name_len + self.value.decoded_len()?;
        if count.add(len)? {
            return self.write(table, text).map(Some);
        }
        if self.is_indexed && len + ENTRY_OVERHEAD <= table.size_max() {
            let start = text.len();
            self.write(table, text)?;
            text.truncate(start);
        } else if self.is_indexed {
            // RFC 7541 §4.4
            table.clear();
        }
        Ok(None)
    }

    /// Appends the text, and inserts the field into the table if it is indexed.
    #[inline(always)]
    fn write(self, table: &mut Table, text: &mut Vec<u8>) -> Result<Name, HpackFault> {
        let start = text.len();
        let name = match self.name {
            Some(name) => {
                name.write(text)?;
                let name = &text[start..];
                Name { len: name.len(), index: name_index(name), is_checked: false }
            }
            None => {
                let entry = entry(table, self.index)?;
                text.extend_from_slice(&entry.text[..entry.name.len]);
                Name { is_checked: false, ..entry.name }
            }
        };
        self.value.write(text)?;
        if self.is_indexed {
            table.insert(&text[start..], name);
        }
        Ok(name)
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
