//! The wait list that every primitive here uses.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use crate::scheduler::{self, Core, Location};
use crate::slab::Key;

/// A counter of permits with a queue. A permit goes directly to the fiber that has waited longest, so the order
/// is fair. If that fiber is cancelled before it runs, the permit goes to the next one.
pub(crate) struct WaitList {
    permits: Cell<usize>,
    closed: Cell<bool>,
    waiters: RefCell<VecDeque<Key>>,
}

/// There will be no permit: the list is closed, or the caller is a fiber that unwinds and cannot wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoPermit;

/// Borrows nothing, because writing the text may suspend the fiber.
impl fmt::Debug for WaitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitList").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl WaitList {
    pub(crate) const fn new(permits: usize) -> Self {
        WaitList {
            permits: Cell::new(permits),
            closed: Cell::new(false),
            waiters: RefCell::new(VecDeque::new()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn permits(&self) -> usize {
        self.permits.get()
    }

    /// Takes a permit if there is one.
    pub(crate) fn try_acquire(&self) -> bool {
        let permits = self.permits.get();
        self.permits.set(permits.saturating_sub(1));
        permits > 0
    }

    /// Takes a permit and waits for it if necessary. A closed list still grants the permits that it has.
    ///
    /// # Panics
    ///
    /// Panics if it would have to wait outside a fiber. `what` is the call that the message names.
    pub(crate) fn acquire(&self, what: &str) -> Result<(), NoPermit> {
        if self.try_acquire() {
            return Ok(());
        }
        if self.closed.get() {
            return Err(NoPermit);
        }
        let (core, fiber) = match scheduler::location() {
            Location::Fiber(core, fiber) => (core, fiber),
            Location::Unwinding => return Err(NoPermit),
            Location::Thread => {
                panic!("{what} must wait, which is only possible in a fiber: spawn one, or use the try_ form")
            }
        };
        self.waiters.borrow_mut().push_back(fiber);
        let waiter = Waiter { wait_list: self, core: &core, fiber };
        loop {
            core.suspend(fiber);
            if core.take_grant(fiber) {
                std::mem::forget(waiter);
                return Ok(());
            }
            if self.closed.get() {
                // A permit for another fiber, which was cancelled, may have come back.
                return if self.try_acquire() { Ok(()) } else { Err(NoPermit) };
            }
            core.unwind_if_interrupted(fiber);
        }
    }

    /// Adds a permit, returned or new.
    pub(crate) fn release(&self) {
        while let Some(waiter) = self.pop() {
            if scheduler::current().is_some_and(|core| core.grant(waiter)) {
                return;
            }
        }
        self.permits.set(self.permits.get() + 1);
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        while let Some(waiter) = self.pop() {
            if let Some(core) = scheduler::current() {
                core.wake(waiter);
            }
        }
    }

    fn pop(&self) -> Option<Key> {
        self.waiters.borrow_mut().pop_front()
    }
}

/// Removes a fiber from the list if its wait is interrupted.
struct Waiter<'a> {
    wait_list: &'a WaitList,
    core: &'a Core,
    fiber: Key,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.core.take_grant(self.fiber) {
            self.wait_list.release();
        } else {
            let mut waiters = self.wait_list.waiters.borrow_mut();
            // If all fibers are cancelled, each is the first or the last. Checking both ends avoids quadratic
            // time.
            if waiters.back() == Some(&self.fiber) {
                waiters.pop_back();
            } else if let Some(at) = waiters.iter().position(|waiter| *waiter == self.fiber) {
                waiters.remove(at);
            }
        }
    }
}
