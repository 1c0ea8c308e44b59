//! Where do threads wait with their next request while others are being started?
//!
//! The kernel is fair: of 400 threads that are ready to run on one core, the one that still has to start others has
//! a 400th of it. So while a burst of connections is taken in, nobody begins anything new, and whoever takes them in
//! has a core nearly alone. 400 connections at once, whose handlers block for 1 ms, on one core (28 runs of 1 s): all are
//! answered within 0.11 s, not 0.25, and the rate afterwards is the same. There is one gate for all cores.

use super::sync::{AtomicU8, Condvar, Guard, Mutex, Ordering, lock};

/// Nobody waits longer, should the burst have no end. 400 starts take 20 to 40 ms.
#[cfg(not(loom))]
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);

const OPEN: u8 = 0;
const SHUT: u8 = 1;
/// Somebody has waited for as long as anybody may: nobody waits any more before the burst is over.
const GIVEN_UP: u8 = 2;

pub(super) struct Gate {
    state: AtomicU8,
    waiting: Mutex<()>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { state: AtomicU8::new(OPEN), waiting: Mutex::new(()), opened: Condvar::new() }
    }

    /// A thread is about to be started for one who waits at the door, and perhaps more.
    pub(super) fn shut(&self) {
        // Submitted up, it stays so.
        let _ = self.state.compare_exchange(OPEN, SHUT, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whoever took the burst in finds nobody at the door any more.
    pub(super) fn open(&self) {
        if self.state.load(Ordering::Relaxed) != OPEN {
            self.let_all_go(OPEN);
        }
    }

    fn let_all_go(&self, state: u8) {
        let waiting = lock(&self.waiting);
        self.state.store(state, Ordering::Relaxed);
        drop(waiting);
        self.opened.notify_all();
    }

    /// Returns when the gate is open, and after 50 ms at the latest. Says whether that took any time.
    #[inline]
    pub(super) fn pass(&self) -> bool {
        let is_shut = self.is_shut();
        if is_shut {
            self.wait();
        }
        is_shut
    }

    fn is_shut(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SHUT
    }

    #[cold]
    fn wait(&self) {
        if !self.wait_until_open(lock(&self.waiting)) {
            self.let_all_go(GIVEN_UP);
        }
    }

    /// False: it is still shut.
    #[cfg(not(loom))]
    fn wait_until_open(&self, waiting: Guard<'_, ()>) -> bool {
        let waited = self.opened.wait_timeout_while(waiting, PATIENCE, |()| self.is_shut());
        !waited.unwrap_or_else(std::sync::PoisonError::into_inner).1.timed_out()
    }

    /// loom has no clock: the model waits until it is open.
    #[cfg(loom)]
    fn wait_until_open(&self, mut waiting: Guard<'_, ()>) -> bool {
        while self.is_shut() {
            waiting = self.opened.wait(waiting).unwrap();
        }
        true
    }

    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_burst_without_an_end_holds_nobody_up_twice() {
        let gate = Gate::new();
        gate.shut();
        assert!(gate.is_shut());
        assert!(gate.pass());
        gate.shut();
        assert!(!gate.pass(), "whoever waited has given up for all");
        gate.open();
        gate.shut();
        assert!(gate.is_shut(), "the next burst is another");
    }
}
