//! Counts the fields of a block against the limit.

use super::fault::HpackFault;
use super::table::ENTRY_OVERHEAD;

/// Past so many times the limit, decoding ends.
const LIMIT_FACTOR_MAX: usize = 4;

/// The bytes of all fields so far, each counted as name + value + 32.
pub(super) struct Count {
    pub(super) bytes: usize,
    pub(super) bytes_max: usize,
}

impl Count {
    /// Counts a field whose name and value have `len` bytes. Returns whether it is within the limit.
    #[inline(always)]
    pub(super) fn add(&mut self, len: usize) -> Result<bool, HpackFault> {
        self.bytes += len + ENTRY_OVERHEAD;
        match self.is_within() {
            false if self.bytes > self.bytes_max.saturating_mul(LIMIT_FACTOR_MAX) => {
                Err(HpackFault::FieldsTooLong)
            }
            is_within => Ok(is_within),
        }
    }

    /// Whether a field with at most `len` bytes is within the limit for certain.
    #[inline(always)]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.bytes + len + ENTRY_OVERHEAD <= self.bytes_max
    }

    #[inline(always)]
    pub(super) fn is_within(&self) -> bool {
        self.bytes <= self.bytes_max
    }
}
