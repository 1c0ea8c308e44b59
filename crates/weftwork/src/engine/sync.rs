//! The primitives of the hand-offs between threads: the real ones, or loom's models of them.

#[cfg(loom)]
pub(super) use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(super) use loom::sync::MutexGuard as Guard;
#[cfg(not(loom))]
pub(super) use std::sync::MutexGuard as Guard;

#[cfg(not(loom))]
pub(super) use crossbeam_utils::atomic::AtomicCell;

/// loom has no `AtomicCell`. In its models, one swap is one locked exchange.
#[cfg(loom)]
pub(super) struct AtomicCell<T>(Mutex<T>);

#[cfg(loom)]
impl<T> AtomicCell<T> {
    pub(super) fn new(value: T) -> AtomicCell<T> {
        AtomicCell(Mutex::new(value))
    }

    pub(super) fn swap(&self, value: T) -> T {
        std::mem::replace(&mut *self.0.lock().unwrap(), value)
    }
}

/// Locks a mutex. A panic of another thread leaves no broken state under these locks.
#[cfg(not(loom))]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    mutex.lock().unwrap()
}
