//! The cell in which an event loop lies while its leader runs a handler. The thread that takes it out leads.

use super::sync::{AtomicCell, AtomicU64, Ordering};

/// The cell of one loop. `T` is the loop.
pub(super) struct HandoffCell<T> {
    cell: AtomicCell<Option<T>>,
    /// Odd: laid down (and perhaps taken away since). Even: taken back. Every laying is another number, so the
    /// watcher can tell a leader that gets on from one that is stuck, without a clock and without a lock.
    epoch: AtomicU64,
}

/// Says which laying it was: a thread takes back only what it has laid down itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

impl<T> HandoffCell<T> {
    pub(super) fn new() -> HandoffCell<T> {
        HandoffCell { cell: AtomicCell::new(None), epoch: AtomicU64::new(0) }
    }

    /// The leader lays its loop down and may do something that takes long.
    pub(super) fn release(&self, value: T) -> Ticket {
        // Only who has the loop writes the counter: a plain addition will do. It is odd already when the loop was taken away
        // from the last laying.
        let epoch = (self.epoch.load(Ordering::Relaxed) + 1) | 1;
        self.epoch.store(epoch, Ordering::Relaxed);
        let before = self.cell.swap(Some(value));
        debug_assert!(before.is_none(), "one loop, one leader");
        Ticket(epoch)
    }

    /// Takes back what `ticket` laid down; none if somebody else leads by now.
    ///
    /// The number only spares a thread that comes back late from taking over again. When it comes back just
    /// as the loop is taken away and laid down again, it may still win the swap, and leads.
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

    /// False when the loop was taken away, and that was said ([`HandoffCell::take_over`]).
    pub(super) fn is_mine(&self, ticket: Ticket) -> bool {
        self.epoch.load(Ordering::Relaxed) == ticket.0
    }

    /// The counter, for the watcher to compare with what it record before.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes the loop from a leader that is stuck in a handler.
    pub(super) fn retake(&self) -> Option<T> {
        self.cell.swap(None)
    }
}
