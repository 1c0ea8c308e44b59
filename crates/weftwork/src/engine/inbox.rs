//! The messages to one loop. A message that comes while the loop goes to sleep wakes it (loom model).

use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// Messages that were sent to a loop and not yet read.
pub(super) struct Inbox<T> {
    /// `None`: the loop has ended, and reads no more messages.
    messages: Mutex<Option<Vec<T>>>,
    /// The loop waits for the poller, or is about to: a thread that sends a message has to wake it.
    asleep: AtomicBool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox { messages: Mutex::new(Some(Vec::new())), asleep: AtomicBool::new(false) }
    }

    /// Sends a message. True: the caller must wake the loop. If the loop has ended, the message is dropped.
    #[must_use]
    pub(super) fn push(&self, message: T) -> bool {
        let mut messages = lock(&self.messages);
        let Some(open) = messages.as_mut() else { return false };
        open.push(message);
        drop(messages);
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// The loop ends: messages that were sent are dropped, and so are all later ones.
    pub(super) fn close(&self) {
        let messages = lock(&self.messages).take();
        drop(messages);
    }

    /// True: there is no message, and from now on `push` says when to wake. False: there is a message, do not sleep.
    pub(super) fn prepare_park(&self) -> bool {
        // A swap, which costs as much as a store on x86, so that loom can check `wake`: loom has no single order of
        // all SeqCst accesses.
        self.asleep.swap(true, Ordering::SeqCst);
        if lock(&self.messages).as_ref().is_none_or(Vec::is_empty) {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The loop is awake again, for whatever reason.
    pub(super) fn unpark(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// True: the loop slept, and the caller must wake it. False: a change made before (SeqCst) is seen by a loop that
    /// checks after [`Inbox::prepare_park`].
    #[must_use]
    pub(super) fn wake(&self) -> bool {
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// Takes all messages, in the order of arrival. `into` must be empty.
    pub(super) fn take_all(&self, into: &mut Vec<T>) {
        if let Some(messages) = lock(&self.messages).as_mut() {
            std::mem::swap(messages, into);
        }
    }
}
