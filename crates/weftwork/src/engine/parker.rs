//! Where does one thread sleep until it is given work?

use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Mutex, lock};

/// Where one thread sleeps.
pub(super) struct Parker<J> {
    wakeup: Mutex<Wakeup<J>>,
    changed: Condvar,
}

pub(super) enum Wakeup<J> {
    None,
    Job(J),
    Exit,
}

impl<J> Parker<J> {
    pub(super) fn new() -> Arc<Parker<J>> {
        Arc::new(Parker { wakeup: Mutex::new(Wakeup::None), changed: Condvar::new() })
    }

    /// Lays down the first work of a thread, before there is one: nobody has to be woken for it.
    pub(super) fn start(&self, job: J) {
        *lock(&self.wakeup) = Wakeup::Job(job);
    }

    pub(super) fn wake(&self, wakeup: Wakeup<J>) {
        *lock(&self.wakeup) = wakeup;
        self.changed.notify_one();
    }

    /// The first work, once.
    pub(super) fn first(&self) -> Option<J> {
        match std::mem::replace(&mut *lock(&self.wakeup), Wakeup::None) {
            Wakeup::Job(job) => Some(job),
            Wakeup::Exit | Wakeup::None => None,
        }
    }

    /// The wakeup that came, or none after `patience`.
    #[cfg(not(loom))]
    pub(super) fn sleep(&self, patience: Duration) -> Wakeup<J> {
        let wakeup = lock(&self.wakeup);
        let waited =
            self.changed.wait_timeout_while(wakeup, patience, |wakeup| matches!(wakeup, Wakeup::None));
        let mut wakeup = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        std::mem::replace(&mut *wakeup, Wakeup::None)
    }

    /// loom has no clock: the model waits until there is an wakeup.
    #[cfg(loom)]
    pub(super) fn sleep(&self, _: Duration) -> Wakeup<J> {
        let mut wakeup = lock(&self.wakeup);
        while matches!(*wakeup, Wakeup::None) {
            wakeup = self.changed.wait(wakeup).unwrap();
        }
        std::mem::replace(&mut *wakeup, Wakeup::None)
    }
}
