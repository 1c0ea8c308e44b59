//! A future that is polled by a connection.

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use super::drop_caught::{DropEach, drop_caught, drop_payload};
use super::feed::WakeConn;

/// A future whose output becomes a `T` in the poll that has it.
pub(super) trait PollInto<T>: Send {
    fn poll_into(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T>;
}

impl<F: Future<Output = ()> + Send> PollInto<()> for F {
    fn poll_into(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx)
    }
}

/// A future, and what it has returned.
pub(super) struct PendingFuture<T> {
    /// None after it has returned.
    future: Option<Pin<Box<dyn PollInto<T>>>>,
    output: Option<Box<T>>,
    wakeup: Arc<Wakeup>,
}

impl<T> PendingFuture<T> {
    /// Takes a future that wants to be polled.
    pub(super) fn new(future: impl PollInto<T> + 'static) -> PendingFuture<T> {
        let wakeup = Wakeup::default();
        wakeup.lock().is_woken = true;
        PendingFuture { future: Some(Box::pin(future)), output: None, wakeup: Arc::new(wakeup) }
    }

    /// Polls the future, unless it has returned already.
    pub(super) fn poll(&mut self) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        // A wake-up during the poll asks for another one.
        self.wakeup.lock().is_woken = false;
        let waker = Waker::from(self.wakeup.clone());
        let mut cx = Context::from_waker(&waker);
        let polled =
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll_into(&mut cx))).unwrap_or_else(|panic| {
                // While the panic unwinds, another one of the future's destructor would end the process.
                drop_caught(self.future.take()).unwrap_or_else(drop_payload);
                resume_unwind(panic)
            });
        let Poll::Ready(output) = polled else { return Poll::Pending };
        self.output = Some(Box::new(output));
        self.future = None;
        Poll::Ready(())
    }

    pub(super) fn take_output(&mut self) -> Option<Box<T>> {
        self.output.take()
    }

    pub(super) fn is_woken(&self) -> bool {
        self.wakeup.lock().is_woken
    }

    /// Wakes the connection when the future wants to be polled. Returns false if it wants that already.
    pub(super) fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut state = self.wakeup.lock();
        if !state.is_woken {
            state.waiter = Some((wakes.clone(), key));
        }
        !state.is_woken
    }
}

/// What wakers of a future change. Any thread may wake, also during a poll and after the future has gone.
#[derive(Default)]
struct Wakeup {
    state: Mutex<WakeState>,
}

#[derive(Default)]
struct WakeState {
    is_woken: bool,
    /// Connection to wake. The connection sets it when it has nothing else to do.
    waiter: Option<(Arc<dyn WakeConn>, usize)>,
}

impl Wakeup {
    fn lock(&self) -> MutexGuard<'_, WakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_woken, true) {
            return;
        }
        let waiter = state.waiter.take();
        drop(state);
        if let Some((wakes, key)) = waiter {
            wakes.wake(key);
        }
    }
}

impl<T> Drop for PendingFuture<T> {
    /// Wakers may outlive their future, and need not keep the connection's loop. The destructor of the future may panic during
    /// another panic.
    fn drop(&mut self) {
        let mut each = DropEach::default();
        each.drop_value(self.future.take());
        let waiter = {
            let mut state = self.wakeup.lock();
            state.is_woken = true;
            state.waiter.take()
        };
        drop(waiter);
    }
}

impl<T> fmt::Debug for PendingFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingFuture").field("is_woken", &self.is_woken()).finish_non_exhaustive()
    }
}
