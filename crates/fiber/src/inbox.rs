//! Messages from other threads to a runtime. No message lacks a wake-up, and one wake-up serves many messages.

use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// A caller of `push` or `notify` that gets `true` must wake the runtime, which reads the inbox after each
/// wait.
pub(crate) struct Inbox<M> {
    // `None` after the runtime is gone.
    messages: Mutex<Option<Vec<M>>>,
    // True from the first message until the runtime reads, so that there is one system call per batch.
    notified: AtomicBool,
}

impl<M> Inbox<M> {
    pub(crate) fn new() -> Inbox<M> {
        Inbox { messages: Mutex::new(Some(Vec::new())), notified: AtomicBool::new(false) }
    }

    /// Adds a message. `None` if the runtime is gone, and the message is dropped.
    pub(crate) fn push(&self, message: M) -> Option<bool> {
        self.lock().as_mut()?.push(message);
        Some(self.notify())
    }

    /// Makes the runtime read the inbox, even if it is empty.
    pub(crate) fn notify(&self) -> bool {
        // The caller that sets the flag wakes the runtime. A caller that finds it set relies on the runtime's
        // later `swap` in `take`, which sees what was pushed before.
        !self.notified.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns whether `take` has anything to do.
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Takes the messages.
    pub(crate) fn take(&self) -> Vec<M> {
        if !self.is_notified() || !self.notified.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Rejects messages from now on. Returns those that were not read.
    pub(crate) fn close(&self) -> Vec<M> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<M>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p weftwork-fiber --lib --release loom`
#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::sync::Condvar;
    use loom::thread;

    use super::*;

    /// The waker of a poller. It ends one wait, however often it was called before the wait.
    #[derive(Default)]
    struct Waker(Mutex<bool>, Condvar);

    impl Waker {
        fn wake(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn wait(&self) {
            let mut woken = self.0.lock().unwrap();
            while !*woken {
                woken = self.1.wait(woken).unwrap();
            }
            *woken = false;
        }
    }

    /// Two threads send while the runtime waits, polls and waits again. It must see both messages, or a sender
    /// would wait forever.
    #[test]
    fn loom_inbox_loses_no_message() {
        loom::model(|| {
            let shared = Arc::new((Inbox::new(), Waker::default()));
            let senders = [1, 2].map(|message| {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.0.push(message) == Some(true) {
                        shared.1.wake();
                    }
                })
            });
            let mut seen: Vec<u32> = Vec::new();
            while seen.len() < 2 {
                shared.1.wait();
                seen.extend(shared.0.take());
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert_eq!(seen.iter().sum::<u32>(), 3);
        });
    }

    /// A thread wakes the runtime while it takes a message. The runtime must wake once more, or poll after the
    /// wake-up.
    #[test]
    fn loom_inbox_forgets_no_knock() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            assert_eq!(inbox.push(()), Some(true));
            let notifies = {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.notify())
            };
            assert_eq!(inbox.take().len(), 1);
            assert_eq!(
                notifies.join().unwrap(),
                inbox.is_notified(),
                "a wake-up, or nothing left to look at"
            );
        });
    }

    /// The runtime is dropped while a thread sends. The message is received or refused, and never left in the
    /// inbox.
    #[test]
    fn loom_inbox_keeps_nothing_for_a_runtime_that_is_gone() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let message = std::sync::Arc::new(());
            let sends = {
                let (inbox, message) = (inbox.clone(), message.clone());
                thread::spawn(move || inbox.push(message).is_some())
            };
            let seen = inbox.close().len();
            assert_eq!(sends.join().unwrap(), seen == 1);
            assert_eq!(std::sync::Arc::strong_count(&message), 1);
        });
    }
}
