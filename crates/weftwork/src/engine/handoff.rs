//! Holds an event loop while its leader runs a handler. The thread that takes the loop out leads it.

use super::sync::{AtomicCell, AtomicU64, Ordering};

/// The cell of one loop. `T` is the loop.
pub(super) struct HandoffCell<T> {
    cell: AtomicCell<Option<T>>,
    /// Odd: the loop was released, and may have been retaken since. Even: the leader has reacquired it. Each release
    /// has its own number, so the monitor can tell a leader that gets on from a stuck one without a clock or a lock.
    epoch: AtomicU64,
}

/// Identifies a release. A thread reacquires only what it has released itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

impl<T> HandoffCell<T> {
    pub(super) fn new() -> HandoffCell<T> {
        HandoffCell { cell: AtomicCell::new(None), epoch: AtomicU64::new(0) }
    }

    /// Puts the loop into the cell. The leader may then do something that takes long.
    pub(super) fn release(&self, value: T) -> Ticket {
        // Only the thread with the loop writes the counter, so a plain addition will do. The counter is odd already
        // if the loop was retaken after the last release.
        let epoch = (self.epoch.load(Ordering::Relaxed) + 1) | 1;
        self.epoch.store(epoch, Ordering::Relaxed);
        let before = self.cell.swap(Some(value));
        debug_assert!(before.is_none(), "one loop, one leader");
        Ticket(epoch)
    }

    /// Takes back the loop that `ticket` stands for. `None`: another thread has it.
    ///
    /// The number only keeps a thread that returns late from taking the loop over again. If the thread returns just
    /// as the loop is retaken and released again, it may still win the swap, and leads.
    pub(super) fn reacquire(&self, ticket: Ticket) -> Option<T> {
        if !self.is_mine(ticket) {
            return None;
        }
        let value = self.cell.swap(None)?;
        self.epoch.store(ticket.0 + 1, Ordering::Relaxed);
        Some(value)
    }

    /// Makes the ticket of the last release void, after the loop was taken or given away. The thread that has the ticket can then tell that
    /// the loop is gone, also before the loop is released again.
    pub(super) fn invalidate(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + epoch % 2, Ordering::Relaxed);
    }

    /// False if the loop was retaken and the ticket was made void ([`HandoffCell::invalidate`]).
    pub(super) fn is_mine(&self, ticket: Ticket) -> bool {
        self.epoch.load(Ordering::Relaxed) == ticket.0
    }

    /// The counter, for the monitor to compare with its last value.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes the loop from a leader that is stuck in a handler.
    pub(super) fn retake(&self) -> Option<T> {
        self.cell.swap(None)
    }
}
