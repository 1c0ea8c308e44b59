//! A wake-up of a handler that waits for a future on its thread or fiber.

#[cfg(loom)]
mod models;

use std::io;
#[cfg(feature = "fibers")]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Wake;
#[cfg(not(loom))]
use std::{
    sync::OnceLock,
    sync::atomic::{AtomicBool, Ordering, fence},
    thread::{self, Thread},
};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(loom)]
use self::models::{
    OnceLock,
    thread::{self, Thread},
};
use super::WakeConn;
use crate::transport::wake_pipe::WakePipe;

/// What the wakers of a future change, on any thread and also during a poll.
pub(crate) struct ThreadWakeup {
    is_woken: AtomicBool,
    thread: Thread,
    /// Readable after a wake-up. Created before the first wait for a descriptor, as only pending futures need it.
    pipe: OnceLock<WakePipe>,
    /// The loop of this thread, if it goes on meanwhile.
    event_loop: Option<Arc<dyn WakeConn>>,
}

impl ThreadWakeup {
    /// Creates the wake-up of this thread.
    pub(crate) fn new(event_loop: Option<Arc<dyn WakeConn>>) -> ThreadWakeup {
        let (is_woken, thread) = (AtomicBool::new(false), thread::current());
        ThreadWakeup { is_woken, thread, pipe: OnceLock::new(), event_loop }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// Prepares the next wait. A wake-up during the next poll asks for another poll.
    ///
    /// The swap reads the last wake-up. Otherwise the next poll might not see what that waker has changed.
    pub(crate) fn clear(&self) {
        self.is_woken.swap(false, Ordering::SeqCst);
    }

    pub(crate) fn pipe(&self) -> io::Result<&WakePipe> {
        if self.pipe.get().is_none() {
            let _ = self.pipe.set(WakePipe::open()?);
            // Either the next look at `is_woken` sees a waker that came before the pipe, or the waker sees the pipe.
            fence(Ordering::SeqCst);
        }
        self.pipe.get().ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Blocks this thread until a waker is called.
    pub(crate) fn park(&self) {
        while !self.is_woken() {
            thread::park();
        }
    }

    /// Waits with a descriptor that is readable once a waker is called. Without a descriptor, blocks the thread.
    #[cfg(feature = "fibers")]
    pub(crate) fn park_with(&self, wait_readable: impl Fn(BorrowedFd<'_>) -> io::Result<()>) {
        let Ok(pipe) = self.pipe() else { return self.park() };
        while !self.is_woken() {
            if wait_readable(pipe.as_fd()).is_err() {
                return self.park();
            }
            pipe.clear();
        }
    }
}

impl Wake for ThreadWakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::SeqCst) {
            return;
        }
        fence(Ordering::SeqCst);
        if let Some(pipe) = self.pipe.get() {
            pipe.wake();
        }
        if let Some(event_loop) = &self.event_loop {
            // No connection has this key. The loop only ends its wait.
            event_loop.wake(usize::MAX);
        }
        self.thread.unpark();
    }
}
