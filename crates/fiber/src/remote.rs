//! The handle that other threads use to reach a runtime.

use std::fmt;
use std::sync::Arc;

use mio::Waker;

use crate::inbox::Inbox;
use crate::slab::Key;

/// A request of another thread to a runtime.
pub(crate) enum Message {
    Spawn(Box<dyn FnOnce() + Send>),
    Wake(Key),
}

/// The part of a runtime that other threads see.
struct Shared {
    inbox: Inbox<Message>,
    waker: Waker,
}

/// A handle to a [`Runtime`](crate::Runtime) for other threads. It is `Send`, `Sync`, and cheap to clone.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("open", &self.0.inbox.is_open()).finish()
    }
}

/// The runtime of a [`Remote`] has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeGone;

impl fmt::Display for RuntimeGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fiber runtime has been dropped")
    }
}

impl std::error::Error for RuntimeGone {}

impl Remote {
    pub(crate) fn new(waker: Waker) -> Self {
        Remote(Arc::new(Shared { inbox: Inbox::new(), waker }))
    }

    /// Runs `f` in a new fiber on the thread of the runtime. A panic in `f` ends only that fiber. `f` is
    /// dropped without running if the kernel has no memory for its stack
    /// ([`NoStack`](crate::JoinError::NoStack)), or if the runtime is dropped first. To notice that, move a
    /// value into `f` whose drop tells you, such as the sender of a channel.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is gone. `f` is dropped.
    pub fn spawn(&self, f: impl FnOnce() + Send + 'static) -> Result<(), RuntimeGone> {
        self.send(Message::Spawn(Box::new(f)))
    }

    /// Ends the wait of the runtime, so that [`Runtime::turn`](crate::Runtime::turn) returns. A wake-up between
    /// two turns ends the next one.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is gone.
    pub fn wake(&self) -> Result<(), RuntimeGone> {
        if !self.0.inbox.is_open() {
            return Err(RuntimeGone);
        }
        if self.0.inbox.notify() {
            self.wake_poller();
        }
        Ok(())
    }

    pub(crate) fn wake_fiber(&self, fiber: Key) {
        // If the runtime is gone, it has unwound the fiber.
        let _ = self.send(Message::Wake(fiber));
    }

    fn send(&self, message: Message) -> Result<(), RuntimeGone> {
        if self.0.inbox.push(message).ok_or(RuntimeGone)? {
            self.wake_poller();
        }
        Ok(())
    }

    fn wake_poller(&self) {
        if let Err(error) = self.0.waker.wake() {
            // eventfd and EVFILT_USER fail only for a closed descriptor, and ours is open while `self` lives.
            debug_assert!(false, "the waker failed: {error}");
        }
    }

    /// Returns whether `take` has anything to do.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.inbox.is_notified()
    }

    /// Takes the messages. The thread of the runtime calls it after each poll.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.0.inbox.take()
    }

    /// Rejects messages from now on. Returns those that were not read.
    pub(crate) fn close(&self) -> Vec<Message> {
        self.0.inbox.close()
    }
}
