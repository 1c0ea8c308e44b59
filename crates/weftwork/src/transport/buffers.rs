//! Memory of an active connection: a read buffer, a write buffer, and a parsed head.
//!
//! An idle connection has no buffers. The three parts travel together, so taking and returning them moves one pointer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weftwork_wire::Head;

/// Capacity of a new read buffer: enough for a usual head, or for sixteen pipelined heads.
const INPUT_BYTES: usize = 8 << 10;
/// Number of pooled buffers. They cover a batch of events, so a cycle of a loop allocates nothing.
const POOLED_MAX: usize = 256;
/// Bytes that the pool of a loop may hold: the buffers of a hundred bodies of 64 KiB at once. Grown buffers are shrunk
/// only if they do not fit. Shrinking all buffers above 32 KiB took more than half the time of a 64 KiB echo.
const POOLED_BYTES_MAX: usize = 16 << 20;
/// Bytes that the pool of a thread with a connection of its own may hold. Such a thread uses one pair of buffers at a
/// time. It may receive the buffers of many connections whose first bytes another thread has read, and never take any.
/// With the limit of a loop, each of 100 threads kept 1.6 MB.
const POOLED_BYTES_MAX_ALONE: usize = 64 << 10;
const POOLED_MAX_ALONE: usize = 2;
/// Further bytes that these threads share while they work. A buffer that grew for a long body need not grow again for
/// the next one. Growing took six calls of `mremap(2)` and 60 page faults.
const SURPLUS_BYTES_MAX: usize = 4 << 20;

/// Bytes that may stay in memory for a peer that never reads everything. With a lower limit, bytes would be moved more
/// often.
const SENT_BYTES_MAX: usize = 32 << 10;

/// Bytes and parsed head of an active connection.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Bytes that were read. The current request begins at `start`, and later bytes of the peer follow.
    pub(crate) input: Vec<u8>,
    /// Start of the current request in `input`.
    pub(crate) start: usize,
    /// Part of `input` that is payload and that the handler has not read.
    pub(crate) payload: std::ops::Range<usize>,
    /// Start of the bytes in `input` that are not parsed yet.
    pub(crate) raw: usize,
    /// Bytes to send.
    pub(crate) output: Vec<u8>,
    /// Number of bytes of `output` that were sent.
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

    /// Returns whether nothing is unread and nothing is unsent. An idle connection can then give its buffers back.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.input.len() && self.output.is_empty()
    }

    /// Returns whether no part of a request has arrived. An empty line before a request does not count (RFC 9112
    /// section 2.2).
    pub(crate) fn has_no_request(&self) -> bool {
        matches!(self.unread(), b"" | b"\r" | b"\r\n")
    }

    /// Returns the bytes of the current request and all bytes after it.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Makes space for at least `least` more bytes. Bytes of earlier requests are dropped first.
    pub(crate) fn reserve(&mut self, least: usize) {
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

    /// Removes the gap between the head and the payload that is not read yet: `[head | payload | raw]`.
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

    /// Records that the kernel has accepted these bytes of the output.
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

/// Pool of free buffers. The last returned buffer is used first, because it is still in the cache.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Boxed, so that taking and returning moves a pointer and not 250 bytes.
    #[allow(clippy::vec_box)]
    free: Vec<Box<Buffers>>,
    free_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// Bytes that the pool holds above its own limit.
    lease: BudgetLease,
}

/// Budget that the pools of threads share, in addition to the limit of each pool.
#[derive(Debug, Default)]
pub(crate) struct SharedBudget(AtomicUsize);

/// Share of one pool in the budget. A pool without a budget has no share.
#[derive(Debug, Default)]
struct BudgetLease {
    of: Option<Arc<SharedBudget>>,
    bytes: usize,
}

impl BudgetLease {
    /// Returns false if the budget does not have enough left.
    fn set(&mut self, bytes: usize) -> bool {
        let Some(SharedBudget(lent)) = self.of.as_deref() else { return bytes == 0 };
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

impl Drop for BudgetLease {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl BufferPool {
    /// Returns a pool for a loop.
    pub(crate) fn new() -> BufferPool {
        let (free_max, bytes_max) = (POOLED_MAX, POOLED_BYTES_MAX);
        BufferPool { free: Vec::new(), free_max, bytes: 0, bytes_max, lease: BudgetLease::default() }
    }

    /// Returns a pool for a thread that serves one connection after another.
    pub(crate) fn of_thread(shared_budget: &Arc<SharedBudget>) -> BufferPool {
        BufferPool { lease: BudgetLease { of: Some(shared_budget.clone()), bytes: 0 }, ..BufferPool::alone() }
    }

    /// Returns a pool for one connection.
    pub(crate) fn alone() -> BufferPool {
        BufferPool { free_max: POOLED_MAX_ALONE, bytes_max: POOLED_BYTES_MAX_ALONE, ..BufferPool::new() }
    }

    pub(crate) fn take(&mut self) -> Box<Buffers> {
        let Some(buffers) = self.free.pop() else { return Buffers::fresh() };
        self.bytes -= buffers.bytes();
        if self.lease.bytes > 0 {
            self.has_budget_for(0);
        }
        buffers
    }

    pub(crate) fn give_back(&mut self, mut buffers: Box<Buffers>) {
        if self.free.len() < self.free_max {
            buffers.reset();
            if !self.has_budget_for(buffers.bytes()) {
                buffers.shrink();
            }
            self.bytes += buffers.bytes();
            self.free.push(buffers);
        }
    }

    /// Returns the borrowed bytes to the budget while the thread is idle, and frees its buffers for TLS records.
    pub(crate) fn trim(&mut self) {
        #[cfg(feature = "_tls")]
        super::tls::trim_scratch();
        if self.lease.bytes > 0 {
            self.free.iter_mut().for_each(|buffers| buffers.shrink());
            self.bytes = self.free.iter().map(|buffers| buffers.bytes()).sum();
            self.has_budget_for(0);
        }
    }

    /// Borrows missing bytes from the budget, or returns shared_budget bytes.
    fn has_budget_for(&mut self, bytes: usize) -> bool {
        let missing = (self.bytes + bytes).saturating_sub(self.bytes_max);
        missing == self.lease.bytes || self.lease.set(missing)
    }
}

#[cfg(test)]
mod tests {
    //! Tests that pools stay within their limits, and keep grown buffers if there is space.

    use super::*;

    fn grown(bytes: usize) -> Box<Buffers> {
        let mut buffers = Buffers::fresh();
        buffers.input.reserve_exact(bytes);
        buffers
    }

    #[test]
    fn grown_buffers_are_kept_while_there_is_room_and_shrunk_after() {
        let mut pool = BufferPool::new();
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
        let mut pool = BufferPool::new();
        let mut buffers = pool.take();
        buffers.input.extend_from_slice(b"GET / HTTP/1.1\r\n");
        buffers.output.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        (buffers.start, buffers.payload, buffers.raw, buffers.sent) = (1, 2..3, 4, 5);
        pool.give_back(buffers);
        let again = pool.take();
        assert!(again.input.is_empty() && again.output.is_empty());
        assert_eq!((again.start, again.payload, again.raw, again.sent), (0, 0..0, 0, 0));
    }

    /// In the drawing, `<<` ends earlier bytes, `H` is the head, `-` is payload that was read, `P` is payload, `c` is
    /// framing, and `R` is not parsed yet.
    fn in_use() -> Box<Buffers> {
        let mut buffers = Buffers::fresh();
        buffers.input.extend_from_slice(b"<<HHH--PPPPccRR");
        (buffers.start, buffers.payload, buffers.raw) = (2, 7..11, 13);
        buffers
    }

    #[test]
    fn room_is_made_by_dropping_what_was_before() {
        let mut buffers = in_use();
        buffers.reserve(3 * INPUT_BYTES);
        assert!(buffers.input.capacity() - buffers.input.len() >= 3 * INPUT_BYTES);
        assert_eq!(buffers.unread(), b"HHH--PPPPccRR");
        assert_eq!((buffers.start, buffers.payload, buffers.raw), (0, 5..9, 11));
        let mut large = grown(256 << 10);
        large.reserve(1);
        assert!(large.input.capacity() < 300 << 10, "there was room");
    }

    #[test]
    fn compacting_keeps_the_head_and_all_unread_bytes() {
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
        let mut pool = BufferPool::alone();
        pool.give_back(grown(256 << 10));
        assert!(pool.free[0].bytes() < 32 << 10);
    }

    #[test]
    fn threads_keep_large_buffers_while_there_is_room_for_all_of_them() {
        let shared_budget = Arc::new(SharedBudget::default());
        let held = || shared_budget.0.load(Ordering::Relaxed);
        let mut pools: Vec<BufferPool> = (0..100).map(|_| BufferPool::of_thread(&shared_budget)).collect();
        for pool in &mut pools {
            pool.give_back(grown(256 << 10));
        }
        let is_large = |pool: &&BufferPool| pool.bytes > 256 << 10;
        let large = pools.iter().filter(is_large).count();
        assert_eq!(large, SURPLUS_BYTES_MAX / (pools[0].bytes - POOLED_BYTES_MAX_ALONE));
        assert!(held() <= SURPLUS_BYTES_MAX);
        // What one pool borrows, another pool cannot borrow.
        let taken = pools[0].take();
        pools[99].take();
        pools[99].give_back(grown(256 << 10));
        assert_eq!((pools[0].bytes, pools[99].bytes > 256 << 10), (0, true));
        pools[0].give_back(taken);
        assert!(!is_large(&&pools[0]));
        // A trimmed pool has no share either.
        pools[99].trim();
        assert!(!is_large(&&pools[99]));
        pools[0].take();
        pools[0].give_back(grown(256 << 10));
        assert!(is_large(&&pools[0]));
        pools.clear();
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_thread_alone_that_only_gets_buffers_keeps_few() {
        let mut pool = BufferPool::alone();
        (0..100).for_each(|_| pool.give_back(Buffers::fresh()));
        assert_eq!(pool.free.len(), POOLED_MAX_ALONE);
    }
}
