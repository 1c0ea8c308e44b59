//! The dynamic table (RFC 7541 §2.3.2 and §4).

use std::collections::VecDeque;

use super::fault::HpackFault;

/// What an entry counts beside its text (RFC 7541 §4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;
/// The size that holds until the peer changes it (RFC 9113 §6.5.2).
const SIZE_DEFAULT: usize = 4_096;
/// The first allocation. A client that repeats a handful of fields needs no more.
const CAPACITY_MIN: usize = 256;

/// Fields in the order of their arrival. Their text is one run of bytes, so that an entry is copied at once: each new
/// entry goes to the end, and the bytes of evicted entries are dropped when the end is reached.
/// The overhead of an entry, which holds no bytes here, leaves room enough between two such moves.
#[derive(Clone, Debug)]
pub(super) struct Table {
    text: Vec<u8>,
    /// The oldest first. At most `size_max / 32`.
    entries: VecDeque<Entry>,
    /// How many bytes were dropped in front of `text`, modulo 2^16.
    dropped: u16,
    /// As RFC 7541 §4.1 counts.
    size: usize,
    /// What the peer has chosen.
    size_max: usize,
    /// What this end has announced, and the most bytes that `text` takes.
    bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Counted from the first byte that ever was in the table, modulo 2^16.
    start: u16,
    name_len: u16,
    value_len: u16,
    name_index: u8,
    is_checked: bool,
}

/// The name at the start of a field's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) len: usize,
    /// In the static table, or 0.
    pub(super) index: u8,
    /// The field was found valid before.
    pub(super) is_checked: bool,
}

/// An entry, as the decoder reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableField<'t> {
    /// Name and value, one after the other.
    pub(super) text: &'t [u8],
    pub(super) name: Name,
}

impl Table {
    pub(super) fn new(bytes_max: u16) -> Table {
        let bytes_max = usize::from(bytes_max);
        Table {
            text: Vec::new(),
            entries: VecDeque::new(),
            dropped: 0,
            size: 0,
            size_max: bytes_max.min(SIZE_DEFAULT),
            bytes_max,
        }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Returns the entry that is the `age`th newest, from 0.
    #[inline(always)]
    pub(super) fn get(&self, age: usize) -> Option<TableField<'_>> {
        // An age past the oldest wraps, and is past the newest.
        let entry = self.entries.get(self.entries.len().wrapping_sub(age + 1))?;
        let start = usize::from(entry.start.wrapping_sub(self.dropped));
        let name_len = usize::from(entry.name_len);
        let text = self.text.get(start..)?.get(..name_len + usize::from(entry.value_len))?;
        Some(TableField {
            text,
            name: Name { len: name_len, index: entry.name_index, is_checked: entry.is_checked },
        })
    }

    /// Inserts a field. Its bytes are `text`. A field that is larger than the table empties the table (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, text: &[u8], name: Name) {
        let size = text.len() + ENTRY_OVERHEAD;
        if size > self.size_max {
            return self.clear();
        }
        self.evict(self.size_max - size);
        if self.text.len() + text.len() > self.text.capacity() {
            self.make_room(text.len());
        }
        let start = self.dropped.wrapping_add(self.text.len() as u16);
        // The table is at most 65,535 bytes.
        let (name_len, value_len) = (name.len as u16, (text.len() - name.len) as u16);
        self.text.extend_from_slice(text);
        self.entries.push_back(Entry {
            start,
            name_len,
            value_len,
            name_index: name.index,
            is_checked: false,
        });
        self.size += size;
    }

    /// Notes that the newest entry is valid. If the last field was too large, there is no entry.
    #[inline]
    pub(super) fn check_newest(&mut self) {
        if let Some(entry) = self.entries.back_mut() {
            entry.is_checked = true;
        }
    }

    /// Sets the maximum size, as the peer asks (RFC 7541 §4.3).
    pub(super) fn resize(&mut self, size_max: usize) -> Result<(), HpackFault> {
        if size_max > self.bytes_max {
            return Err(HpackFault::TableSizeTooLarge);
        }
        self.size_max = size_max;
        self.evict(size_max);
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.text.clear();
        self.size = 0;
    }

    /// Removes the oldest entries until the rest has at most `size` bytes.
    #[inline]
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_front() else { return };
            self.size -= usize::from(entry.name_len) + usize::from(entry.value_len) + ENTRY_OVERHEAD;
        }
        if self.entries.is_empty() {
            self.text.clear();
        }
    }

    /// Drops the bytes of evicted entries, and grows if that is not enough.
    #[cold]
    fn make_room(&mut self, len: usize) {
        if let Some(oldest) = self.entries.front() {
            let evicted = oldest.start.wrapping_sub(self.dropped);
            self.text.drain(..usize::from(evicted));
            self.dropped = self.dropped.wrapping_add(evicted);
        }
        let needed = self.text.len() + len;
        if needed > self.text.capacity() {
            let capacity = needed.max(2 * self.text.capacity()).max(CAPACITY_MIN).min(self.bytes_max);
            self.text.reserve_exact(capacity - self.text.len());
        }
    }
}

#[cfg(test)]
impl Table {
    /// Returns the size, as RFC 7541 counts.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes that are allocated.
    pub(super) fn bytes_held(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}
