//! How other threads bring a loop something: put it in, and wake the loop if it sleeps.

use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// What was brought to a loop and not yet taken in.
pub(super) struct Inbox<T> {
    /// None: nobody will take them any more.
    letters: Mutex<Option<Vec<T>>>,
    /// The loop waits for the poller, or is about to: whoever brings something has to wake it.
    asleep: AtomicBool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox { letters: Mutex::new(Some(Vec::new())), asleep: AtomicBool::new(false) }
    }

    /// Brings a letter. True: the caller has to wake the loop. It is dropped if the loop has ended.
    #[must_use]
    pub(super) fn put(&self, letter: T) -> bool {
        let mut letters = lock(&self.letters);
        let Some(open) = letters.as_mut() else { return false };
        open.push(letter);
        drop(letters);
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// The loop ends: what was brought is dropped, and whatever comes from now on.
    pub(super) fn close(&self) {
        let letters = lock(&self.letters).take();
        drop(letters);
    }

    /// True: nothing is there, and from now on `put` says when to wake. False: do not sleep, there is something.
    pub(super) fn try_sleep(&self) -> bool {
        // A swap, which costs what a store does on x86, so that loom can show what `nudge` promises: it knows of no one order of all SeqCst
        // accesses.
        self.asleep.swap(true, Ordering::SeqCst);
        if lock(&self.letters).as_ref().is_none_or(Vec::is_empty) {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The loop is up again, for whatever reason.
    pub(super) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// True: the loop slept and the caller has to wake it; nothing was brought. False: what was changed before (SeqCst) is seen by
    /// a loop that looks at it behind [`Inbox::try_sleep`].
    #[must_use]
    pub(super) fn nudge(&self) -> bool {
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// Takes everything, in the order it came. `into` is empty before.
    pub(super) fn take_all(&self, into: &mut Vec<T>) {
        if let Some(letters) = lock(&self.letters).as_mut() {
            std::mem::swap(letters, into);
        }
    }
}
