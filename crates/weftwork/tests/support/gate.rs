//! A gate that handlers wait at until the test opens it. The test can wait until they have arrived.

use std::sync::{Condvar, Mutex, PoisonError};

use super::TIMEOUT;

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inside: usize,
    open: bool,
}

impl Gate {
    /// Waits until the gate is open. Handlers call this.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, TIMEOUT * 2, |state| !state.open);
        waited.unwrap_or_else(PoisonError::into_inner).0.inside -= 1;
    }

    /// Waits until `count` handlers wait here.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, TIMEOUT, |state| state.inside < count);
        let inside = waited.unwrap_or_else(PoisonError::into_inner).0.inside;
        assert!(inside >= count, "{inside} of {count} handlers have come");
    }

    /// Returns how many handlers wait here.
    pub(crate) fn inside(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).inside
    }

    /// Lets all handlers pass, now and later.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.changed.notify_all();
    }

    /// Makes all later handlers wait again.
    pub(crate) fn shut(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open = false;
    }
}
