//! The messages to one loop. A message that comes while the loop goes to sleep wakes it (loom model).

use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// What was brought to a loop and not yet taken in.
pub(super) struct Inbox<T> {
    /// None: nobody will take them any more.
    messages: Mutex<Option<Vec<T>>>,
    /// The loop waits for the poller, or is about to: a thread that sends a message has to wake it.
    asleep: AtomicBool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox { messages: Mutex::new(Some(Vec::new())), asleep: AtomicBool::new(false) }
    }

    /// Brings a message. True: the caller has to wake the loop. It is dropped if the loop has ended.
    #[must_use]
    pub(super) fn push(&self, message: T) -> bool {
        let mut messages = lock(&self.messages);
        let Some(open) = messages.as_mut() else { return false };
        open.push(message);
        drop(messages);
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// The loop ends: what was brought is dropped, and whatever comes from now on.
    pub(super) fn close(&self) {
        let messages = lock(&self.messages).take();
        drop(messages);
    }

    /// True: nothing is there, and from now on `push` says when to wake. False: do not sleep, there is something.
    pub(super) fn prepare_park(&self) -> bool {
        // A swap, which costs what a store does on x86, so that loom can show what `wake` promises: it knows of no one order of all SeqCst
        // accesses.
        self.asleep.swap(true, Ordering::SeqCst);
        if lock(&self.messages).as_ref().is_none_or(Vec::is_empty) {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The loop is up again, for whatever reason.
    pub(super) fn unpark(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// True: the loop slept and the caller has to wake it; nothing was brought. False: what was changed before (SeqCst) is seen by
    /// a loop that looks at it behind [`Inbox::prepare_park`].
    #[must_use]
    pub(super) fn wake(&self) -> bool {
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// Takes everything, in the order it came. `into` is empty before.
    pub(super) fn take_all(&self, into: &mut Vec<T>) {
        if let Some(messages) = lock(&self.messages).as_mut() {
            std::mem::swap(messages, into);
        }
    }
}
