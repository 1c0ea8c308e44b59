//! A flag that ends the work of the ACME thread, also while the thread waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.lock() = true;
        self.0.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.lock()
    }

    /// Waits, and returns whether the work has to stop.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
