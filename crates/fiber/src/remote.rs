//! How do other threads reach a runtime, without a lost wake-up?

use std::fmt;
use std::sync::Arc;

use mio::Waker;

use crate::inbox::Inbox;
use crate::slab::Key;

/// What other threads ask of a runtime.
pub(crate) enum Message {
    Spawn(Box<dyn FnOnce() + Send>),
    Wake(Key),
}

/// The part of a runtime that other threads see.
struct Shared {
    inbox: Inbox<Message>,
    waker: Waker,
}

/// A handle to a [`Runtime`](crate::Runtime) for other threads: `Send`, `Sync`, and cheap to clone.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("open", &self.0.inbox.is_open()).finish()
    }
}

/// The runtime that a [`Remote`] leads to has been dropped.
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

    /// Runs `f` in a new fiber on the runtime's thread. A panic in `f` ends that fiber only. If the kernel has no memory
    /// for its stack by then ([`NoStack`](crate::JoinError::NoStack)), `f` is dropped without having run, and so it is if the
    /// runtime goes first: who has to know sends something along whose drop tells, such as a channel's sender.
    ///
    /// # Errors
    ///
    /// The runtime is gone; `f` is dropped.
    pub fn spawn(&self, f: impl FnOnce() + Send + 'static) -> Result<(), RuntimeGone> {
        self.send(Message::Spawn(Box::new(f)))
    }

    /// Ends the runtime's wait, so that [`Runtime::turn`](crate::Runtime::turn) returns. A wake-up that comes
    /// between two turns ends the next.
    ///
    /// # Errors
    ///
    /// The runtime is gone.
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
        // A runtime that is gone has unwound the fiber.
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

    /// Whether `take` has anything to do.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.inbox.is_notified()
    }

    /// The messages so far; called by the runtime's thread after each poll.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.0.inbox.take()
    }

    /// Refuses messages from now on; returns those that were not seen.
    pub(crate) fn close(&self) -> Vec<Message> {
        self.0.inbox.close()
    }
}
