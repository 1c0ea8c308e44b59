//! Calls and wakers that wait for an event. Each is told once.

use std::fmt;
use std::task::Waker;

use super::drop_caught::caught;
use crate::error::{OneLine, panic_message};
use crate::transport::log_queue::log_line;

/// A function of the user that is called when an event has happened.
pub(super) type Call = Box<dyn FnOnce() + Send>;

/// Everything that waits for one event.
#[derive(Default)]
pub(super) struct Listeners(Vec<Listener>);

enum Listener {
    Call(Call),
    Waker(Waker),
}

impl Listeners {
    pub(super) fn add_call(&mut self, call: Call) {
        self.0.push(Listener::Call(call));
    }

    /// Adds a waker, or returns it if the same one waits already. It is then dropped without a lock.
    pub(super) fn add_waker(&mut self, waker: Waker) -> Option<Waker> {
        let same = |known: &Listener| matches!(known, Listener::Waker(known) if known.will_wake(&waker));
        if self.0.iter().any(same) {
            return Some(waker);
        }
        self.0.push(Listener::Waker(waker));
        None
    }

    /// Takes all of `other`.
    pub(super) fn append(&mut self, other: &mut Listeners) {
        self.0.append(&mut other.0);
    }

    /// Tells each of them. The caller must hold no lock, because this runs code of the user.
    pub(super) fn tell(self) {
        for listener in self.0 {
            match listener {
                Listener::Call(call) => run(call),
                Listener::Waker(waker) => run(|| waker.wake()),
            }
        }
    }
}

/// Runs a call of the user. A panic is logged, because the thread is the server's or a sender's, and not its own.
pub(super) fn run(call: impl FnOnce()) {
    caught(call, |panic| {
        log_line!(Error, "a callback or a waker panicked: {}", OneLine(panic_message(panic)));
    });
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listeners").field(&self.0.len()).finish()
    }
}
