//! The memory of a connection that is in use: one read buffer, one write buffer, one parsed head.
//!
//! An idle connection has none of it. The three travel together, so taking and giving back is one pointer.

use weftwork_wire::Head;

/// Fresh read buffers hold this much: a usual head, or sixteen pipelined ones.
const INPUT_BYTES: usize = 8 << 10;
/// Buffers that grew past this (a large body or response) are shrunk before they are pooled.
const POOLED_BYTES_MAX: usize = 32 << 10;
/// This many stay pooled in a loop: a batch of events, so a turn allocates nothing. 4 MiB at most.
const POOLED_MAX: usize = 256;

/// The bytes and the parsed head of a connection in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// What was read: from `start` the request in progress, behind it whatever else the peer sent.
    pub(crate) input: Vec<u8>,
    /// Where in `input` the request in progress begins.
    pub(crate) start: usize,
    /// The part of `input` that is payload and that the handler has not taken.
    pub(crate) payload: std::ops::Range<usize>,
    /// Where in `input` the bytes begin that nobody has looked at.
    pub(crate) raw: usize,
    /// What is still to be sent.
    pub(crate) output: Vec<u8>,
    /// How much of `output` has been sent.
    pub(crate) sent: usize,
    pub(crate) head: Head,
}

impl Buffers {
    fn fresh() -> Box<Buffers> {
        Box::new(Buffers {
            input: Vec::with_capacity(INPUT_BYTES),
            output: Vec::with_capacity(INPUT_BYTES / 4),
            ..Buffers::default()
        })
    }

    /// Nothing unread, nothing unsent: an idle connection can do without.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.input.len() && self.output.is_empty()
    }

    /// Bytes of the request in progress and all behind it.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Makes room for at least `least` more bytes, first by dropping what requests before this one left.
    pub(crate) fn make_room(&mut self, least: usize) {
        if self.start > 0 {
            let start = std::mem::take(&mut self.start);
            self.input.drain(..start);
            self.raw -= start;
            self.payload = self.payload.start - start..self.payload.end - start;
        }
        if self.input.capacity() - self.input.len() < least {
            self.input.reserve(least.max(INPUT_BYTES));
        }
    }

    /// Closes the gap that payload already taken has left behind the head: `[head | payload | raw]`.
    pub(crate) fn compact(&mut self, head_end: usize) {
        let payload = self.payload.clone();
        if payload.start > head_end {
            self.input.copy_within(payload.clone(), head_end);
            self.payload = head_end..head_end + payload.len();
        }
        if self.raw > self.payload.end {
            self.input.drain(self.payload.end..self.raw);
            self.raw = self.payload.end;
        }
    }

    fn reset(&mut self) {
        self.input.clear();
        self.output.clear();
        (self.start, self.raw, self.sent) = (0, 0, 0);
        self.payload = 0..0;
        if self.input.capacity() > POOLED_BYTES_MAX {
            self.input = Vec::with_capacity(INPUT_BYTES);
        }
        if self.output.capacity() > POOLED_BYTES_MAX {
            self.output = Vec::with_capacity(INPUT_BYTES / 4);
        }
    }
}

/// Buffers that wait for a connection; last in, first out, so that the warm ones are used.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Boxed as they travel: taking and giving back moves a pointer, not the 250 bytes behind it.
    #[allow(clippy::vec_box)]
    free: Vec<Box<Buffers>>,
}

impl Pool {
    pub(crate) fn take(&mut self) -> Box<Buffers> {
        self.free.pop().unwrap_or_else(Buffers::fresh)
    }

    pub(crate) fn give_back(&mut self, mut buffers: Box<Buffers>) {
        if self.free.len() < POOLED_MAX {
            buffers.reset();
            self.free.push(buffers);
        }
    }
}
