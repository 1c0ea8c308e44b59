//! Who hears how a blocking call ends, also when its fiber leaves first, or nobody makes it?

use std::mem;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::pool::Queued;
use crate::remote::Remote;
use crate::slab::Key;
use crate::task::catch_panic;

enum State<T> {
    Awaited,
    Ended(thread::Result<T>),
    /// Who was to make it dropped it.
    Dropped,
    /// Its fiber took what it gave, or waits no longer.
    Abandoned,
}

/// What the fiber and who makes the call have in common.
pub(crate) struct CallResult<T>(Mutex<State<T>>);

impl<T> CallResult<T> {
    pub(crate) fn new() -> Arc<CallResult<T>> {
        Arc::new(CallResult(Mutex::new(State::Awaited)))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's end, which who makes it owes the fiber: the fiber is told even if this is dropped.
pub(crate) struct Reply<T> {
    slot: Arc<CallResult<T>>,
    remote: Remote,
    fiber: Key,
}

/// The fiber's part of a call: dropped before the call has begun, it takes the call back.
pub(crate) struct Call<'a, T> {
    slot: Arc<CallResult<T>>,
    /// Dropped when nobody waits any more: who drops the job then has nobody to wake.
    _queued: Queued<'a>,
}

impl<T> Reply<T> {
    pub(crate) fn new(slot: &Arc<CallResult<T>>, remote: Remote, fiber: Key) -> Reply<T> {
        Reply { slot: Arc::clone(slot), remote, fiber }
    }

    pub(crate) fn send(self, result: thread::Result<T>) {
        self.end(State::Ended(result));
    }

    fn end(&self, end: State<T>) {
        let mut state = self.slot.lock();
        if matches!(*state, State::Awaited) {
            *state = end;
            drop(state);
            self.remote.wake_fiber(self.fiber);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.end(State::Dropped);
    }
}

impl<'a, T> Call<'a, T> {
    pub(crate) fn new(slot: Arc<CallResult<T>>, queued: Queued<'a>) -> Call<'a, T> {
        Call { slot, _queued: queued }
    }

    /// What the call gave, if it has ended.
    ///
    /// # Panics
    ///
    /// As the call did, or it will never be made.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.slot.lock();
        if matches!(*state, State::Awaited) {
            return None;
        }
        let end = mem::replace(&mut *state, State::Abandoned);
        drop(state);
        match end {
            State::Ended(Ok(value)) => Some(value),
            State::Ended(Err(payload)) => resume_unwind(payload),
            State::Dropped => panic!("a blocking call was dropped before it was made"),
            State::Awaited | State::Abandoned => None,
        }
    }
}

impl<T> Drop for Call<'_, T> {
    fn drop(&mut self) {
        let end = mem::replace(&mut *self.slot.lock(), State::Abandoned);
        // The fiber may unwind, which a value that panics must not meet.
        catch_panic(|| drop(end));
    }
}
