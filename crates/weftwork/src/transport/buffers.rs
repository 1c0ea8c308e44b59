//! The memory of a connection that is in use: one read buffer, one write buffer, one parsed head.
//!
//! An idle connection has none of it. The three travel together, so taking and giving back is one pointer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weftwork_wire::Head;

/// Fresh read buffers hold this much: a usual head, or sixteen pipelined ones.
const INPUT_BYTES: usize = 8 << 10;
/// This many stay pooled: a batch of events, so a turn allocates nothing.
const POOLED_MAX: usize = 256;
/// A loop pools so much: the buffers of a hundred bodies of 64 KiB at once. Buffers that grew are shrunk when there
/// is no room for them as they are: to shrink all that grew past 32 KiB took more than half the time of a 64 KiB echo.
const POOLED_BYTES_MAX: usize = 16 << 20;
/// A thread with a connection of its own pools so much: it has one pair of buffers at a time. But it may be given
/// those of one connection after another whose first bytes were read elsewhere, and never take any: with no bound but
/// that of a loop, each of 100 threads kept 1.6 MB.
const POOLED_BYTES_MAX_ALONE: usize = 64 << 10;
const POOLED_MAX_ALONE: usize = 2;
/// The threads of a server that have connections of their own pool so much more, all together, while they are at work: what grew
/// for a long body need not grow again for the next. It took six calls of `mremap(2)` and the faults of 60 pages for each.
const SURPLUS_BYTES_MAX: usize = 4 << 20;

/// A peer that never takes all leaves this much of what was sent in memory, no more. Less would be moved more often.
const SENT_BYTES_MAX: usize = 32 << 10;

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

    /// Nothing of a request: at most the empty line that a client may send before one (RFC 9112 section 2.2).
    pub(crate) fn has_no_request(&self) -> bool {
        matches!(self.unread(), b"" | b"\r" | b"\r\n")
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

    /// So many more bytes of what is to be sent are with the kernel.
    #[inline(always)]
    pub(crate) fn note_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent >= SENT_BYTES_MAX {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn reset(&mut self) {
        self.input.clear();
        self.output.clear();
        (self.start, self.raw, self.sent) = (0, 0, 0);
        self.payload = 0..0;
    }

    fn shrink(&mut self) {
        self.input.shrink_to(INPUT_BYTES);
        self.output.shrink_to(INPUT_BYTES / 4);
    }

    fn bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }
}

/// Buffers that wait for a connection; last in, first out, so that the warm ones are used.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Boxed as they travel: taking and giving back moves a pointer, not the 250 bytes behind it.
    #[allow(clippy::vec_box)]
    free: Vec<Box<Buffers>>,
    free_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// What it holds beyond that.
    loan: Loan,
}

/// How much the pools of threads hold together, beyond what each of them may.
#[derive(Debug, Default)]
pub(crate) struct Surplus(AtomicUsize);

/// One pool's part of it. Nothing where there is none.
#[derive(Debug, Default)]
struct Loan {
    of: Option<Arc<Surplus>>,
    bytes: usize,
}

impl Loan {
    /// False: there is not so much.
    fn set(&mut self, bytes: usize) -> bool {
        let Some(Surplus(lent)) = self.of.as_deref() else { return bytes == 0 };
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && lent.fetch_add(more, Ordering::Relaxed) + more > SURPLUS_BYTES_MAX {
            lent.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        if self.bytes > bytes {
            lent.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Pool {
    /// For a loop.
    pub(crate) fn new() -> Pool {
        let (free_max, bytes_max) = (POOLED_MAX, POOLED_BYTES_MAX);
        Pool { free: Vec::new(), free_max, bytes: 0, bytes_max, loan: Loan::default() }
    }

    /// For a thread that serves one connection after another.
    pub(crate) fn of_thread(surplus: &Arc<Surplus>) -> Pool {
        Pool { loan: Loan { of: Some(surplus.clone()), bytes: 0 }, ..Pool::alone() }
    }

    /// For one connection.
    pub(crate) fn alone() -> Pool {
        Pool { free_max: POOLED_MAX_ALONE, bytes_max: POOLED_BYTES_MAX_ALONE, ..Pool::new() }
    }

    pub(crate) fn take(&mut self) -> Box<Buffers> {
        let Some(buffers) = self.free.pop() else { return Buffers::fresh() };
        self.bytes -= buffers.bytes();
        if self.loan.bytes > 0 {
            self.has_room_for(0);
        }
        buffers
    }

    pub(crate) fn give_back(&mut self, mut buffers: Box<Buffers>) {
        if self.free.len() < self.free_max {
            buffers.reset();
            if !self.has_room_for(buffers.bytes()) {
                buffers.shrink();
            }
            self.bytes += buffers.bytes();
            self.free.push(buffers);
        }
    }

    /// The thread has nothing to do: what it has beyond its own is for others.
    pub(crate) fn rest(&mut self) {
        if self.loan.bytes > 0 {
            self.free.iter_mut().for_each(|buffers| buffers.shrink());
            self.bytes = self.free.iter().map(|buffers| buffers.bytes()).sum();
            self.has_room_for(0);
        }
    }

    /// Borrows what is missing, or gives back what is not.
    fn has_room_for(&mut self, bytes: usize) -> bool {
        let missing = (self.bytes + bytes).saturating_sub(self.bytes_max);
        missing == self.loan.bytes || self.loan.set(missing)
    }
}

#[cfg(test)]
mod tests {
    //! What is pooled stays within its bounds, and what grew is kept while there is room.

    use super::*;

    fn grown(bytes: usize) -> Box<Buffers> {
        let mut buffers = Buffers::fresh();
        buffers.input.reserve_exact(bytes);
        buffers
    }

    #[test]
    fn grown_buffers_are_kept_while_there_is_room_and_shrunk_after() {
        let mut pool = Pool::new();
        for _ in 0..POOLED_MAX + 10 {
            pool.give_back(grown(256 << 10));
        }
        assert_eq!(pool.free.len(), POOLED_MAX);
        assert!(pool.free[0].bytes() > 256 << 10);
        assert!(pool.free[POOLED_MAX - 1].bytes() < 32 << 10);
        assert!(pool.bytes < POOLED_BYTES_MAX + POOLED_MAX * 2 * INPUT_BYTES);
        while let Some(buffers) = pool.free.last() {
            assert!(buffers.is_empty());
            pool.take();
        }
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn nothing_of_a_connection_is_left_for_the_next() {
        let mut pool = Pool::new();
        let mut buffers = pool.take();
        buffers.input.extend_from_slice(b"GET / HTTP/1.1\r\n");
        buffers.output.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        (buffers.start, buffers.payload, buffers.raw, buffers.sent) = (1, 2..3, 4, 5);
        pool.give_back(buffers);
        let again = pool.take();
        assert!(again.input.is_empty() && again.output.is_empty());
        assert_eq!((again.start, again.payload, again.raw, again.sent), (0, 0..0, 0, 0));
    }

    /// `<<` ends what was before, `H` is the head, `-` was taken, `P` is payload, `c` framing, and `R` nobody has looked at.
    fn in_use() -> Box<Buffers> {
        let mut buffers = Buffers::fresh();
        buffers.input.extend_from_slice(b"<<HHH--PPPPccRR");
        (buffers.start, buffers.payload, buffers.raw) = (2, 7..11, 13);
        buffers
    }

    #[test]
    fn room_is_made_by_dropping_what_was_before() {
        let mut buffers = in_use();
        buffers.make_room(3 * INPUT_BYTES);
        assert!(buffers.input.capacity() - buffers.input.len() >= 3 * INPUT_BYTES);
        assert_eq!(buffers.unread(), b"HHH--PPPPccRR");
        assert_eq!((buffers.start, buffers.payload, buffers.raw), (0, 5..9, 11));
        let mut large = grown(256 << 10);
        large.make_room(1);
        assert!(large.input.capacity() < 300 << 10, "there was room");
    }

    #[test]
    fn compacting_leaves_the_head_what_was_not_taken_and_what_is_behind() {
        let mut buffers = in_use();
        buffers.compact(5);
        assert_eq!(buffers.input, b"<<HHHPPPPRR");
        assert_eq!((buffers.start, buffers.payload.clone(), buffers.raw), (2, 5..9, 9));
        buffers.compact(5);
        assert_eq!(buffers.input, b"<<HHHPPPPRR");
        buffers.payload = 9..9;
        buffers.compact(5);
        assert_eq!(
            (buffers.input.as_slice(), buffers.payload.clone(), buffers.raw),
            (&b"<<HHHRR"[..], 5..5, 5)
        );
    }

    #[test]
    fn a_thread_alone_keeps_no_large_buffer() {
        let mut pool = Pool::alone();
        pool.give_back(grown(256 << 10));
        assert!(pool.free[0].bytes() < 32 << 10);
    }

    #[test]
    fn threads_keep_large_buffers_while_there_is_room_for_all_of_them() {
        let surplus = Arc::new(Surplus::default());
        let held = || surplus.0.load(Ordering::Relaxed);
        let mut pools: Vec<Pool> = (0..100).map(|_| Pool::of_thread(&surplus)).collect();
        for pool in &mut pools {
            pool.give_back(grown(256 << 10));
        }
        let is_large = |pool: &&Pool| pool.bytes > 256 << 10;
        let large = pools.iter().filter(is_large).count();
        assert_eq!(large, SURPLUS_BYTES_MAX / (pools[0].bytes - POOLED_BYTES_MAX_ALONE));
        assert!(held() <= SURPLUS_BYTES_MAX);
        // What one takes out another has room for.
        let taken = pools[0].take();
        pools[99].take();
        pools[99].give_back(grown(256 << 10));
        assert_eq!((pools[0].bytes, pools[99].bytes > 256 << 10), (0, true));
        pools[0].give_back(taken);
        assert!(!is_large(&&pools[0]));
        // Nor has one that rests any.
        pools[99].rest();
        assert!(!is_large(&&pools[99]));
        pools[0].take();
        pools[0].give_back(grown(256 << 10));
        assert!(is_large(&&pools[0]));
        pools.clear();
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_thread_alone_that_only_gets_buffers_keeps_few() {
        let mut pool = Pool::alone();
        (0..100).for_each(|_| pool.give_back(Buffers::fresh()));
        assert_eq!(pool.free.len(), POOLED_MAX_ALONE);
    }
}
