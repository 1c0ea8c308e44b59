//! Buffers of a thread for records on their way. A connection uses them only within a call.

use std::cell::Cell;

use super::session::RECORD_BYTES_MAX;

/// Bytes of records that are read at once.
pub(super) const INPUT_BYTES: usize = 64 << 10;
/// Output that a thread keeps. Responses of usual size need no more.
const OUTPUT_BYTES_KEPT: usize = 72 << 10;

#[derive(Default)]
pub(super) struct Scratch {
    /// Of constant length, so that nothing is cleared before a read.
    pub(super) input: Vec<u8>,
    /// Records with plaintext.
    pub(super) sealed: Output,
    /// Records about the session.
    pub(super) control: Vec<u8>,
    /// Plaintext from two places, for one record.
    pub(super) joined: Vec<u8>,
}

/// Bytes behind each other. Their space is not cleared again for each use.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    used: usize,
}

impl Output {
    /// Returns space for `count` bytes behind those that are in use.
    pub(super) fn space(&mut self, count: usize) -> &mut [u8] {
        let end = self.used + count;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.used..end]
    }

    /// Counts bytes of the space as used.
    pub(super) fn advance(&mut self, count: usize) {
        self.used += count;
        debug_assert!(self.used <= self.buffer.len());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    fn clear(&mut self) {
        self.used = 0;
        self.buffer.truncate(OUTPUT_BYTES_KEPT);
        self.buffer.shrink_to(OUTPUT_BYTES_KEPT);
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Calls `act` with the buffers of this thread.
#[inline]
pub(super) fn with_scratch<R>(act: impl FnOnce(&mut Scratch) -> R) -> R {
    // Without thread-local storage, at the end of a thread, the buffers are made for this call.
    let mut scratch = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = act(&mut scratch);
    scratch.sealed.clear();
    scratch.control.clear();
    scratch.joined.clear();
    let _ = SCRATCH.try_with(|cell| cell.set(Some(scratch)));
    result
}

/// Frees the buffers of a thread that becomes idle.
pub(crate) fn trim_scratch() {
    let _ = SCRATCH.try_with(Cell::take);
}

impl Scratch {
    /// Returns the input, with these bytes at its start, and space for at least one record after them.
    pub(super) fn input_after(&mut self, kept: &[u8]) -> &mut [u8] {
        let wanted = INPUT_BYTES.max(kept.len() + RECORD_BYTES_MAX);
        if self.input.len() < wanted {
            self.input.resize(wanted, 0);
        }
        self.input[..kept.len()].copy_from_slice(kept);
        &mut self.input
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::BufferPool;

    #[test]
    fn an_idle_thread_has_no_buffers_for_records() {
        with_scratch(|scratch| scratch.input_after(b"").len());
        assert!(with_scratch(|scratch| scratch.input.len()) >= INPUT_BYTES, "they are kept between calls");
        BufferPool::alone().trim();
        assert_eq!(with_scratch(|scratch| scratch.input.len()), 0);
    }
}
