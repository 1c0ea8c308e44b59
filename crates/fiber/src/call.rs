//! The result of a blocking call. The fiber always gets one, even if it stops waiting or the call is never
//! made.

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
    /// The call was dropped before it was made.
    Dropped,
    /// The fiber took the result, or waits no longer.
    LeakReport,
}

/// State that the fiber and the calling thread share.
pub(crate) struct CallResult<T>(Mutex<State<T>>);

impl<T> CallResult<T> {
    pub(crate) fn new() -> Arc<CallResult<T>> {
        Arc::new(CallResult(Mutex::new(State::Awaited)))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calling thread's side. The fiber is woken even if this is dropped.
pub(crate) struct Reply<T> {
    slot: Arc<CallResult<T>>,
    remote: Remote,
    fiber: Key,
}

/// The fiber's side. If it is dropped before the call starts, the call is cancelled.
pub(crate) struct Call<'a, T> {
    slot: Arc<CallResult<T>>,
    /// Dropped last, when no fiber waits any more. The drop of the job then wakes no fiber.
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

    /// Returns the result of the call, if it has ended.
    ///
    /// # Panics
    ///
    /// Panics if the call panicked, or if it will never be made.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.slot.lock();
        if matches!(*state, State::Awaited) {
            return None;
        }
        let end = mem::replace(&mut *state, State::LeakReport);
        drop(state);
        match end {
            State::Ended(Ok(value)) => Some(value),
            State::Ended(Err(payload)) => resume_unwind(payload),
            State::Dropped => panic!("a blocking call was dropped before it was made"),
            State::Awaited | State::LeakReport => None,
        }
    }
}

impl<T> Drop for Call<'_, T> {
    fn drop(&mut self) {
        let end = mem::replace(&mut *self.slot.lock(), State::LeakReport);
        // The fiber may be unwinding, and a second panic must not occur.
        catch_panic(|| drop(end));
    }
}
