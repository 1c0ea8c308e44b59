//! How does Linux wake one thread of many that wait for the same listeners? One epoll(7) for all of them.
//!
//! A plain poll(2) in each would wake every thread for every connection. Here a listener is reported once, to
//! one thread, and not again before that thread has accepted and says so ([`Bell::listen_again`]). Kept connections wait
//! for their next request at the same poller.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::Timespec;

use crate::engine::shared_poller::{PollEvent, SharedPoller};

pub(in crate::engine::pool) struct Bell {
    pub(in crate::engine::pool) members: SharedPoller,
}

impl Bell {
    /// `stop` wakes everybody when it becomes readable.
    pub(in crate::engine::pool) fn new(stop: BorrowedFd<'_>) -> io::Result<Bell> {
        let members = SharedPoller::open()?;
        members.wake_all_by(stop)?;
        Ok(Bell { members })
    }

    pub(in crate::engine::pool) fn hang_at(&self, door: usize, listener: impl AsFd) -> io::Result<()> {
        self.members.watch(door, listener)
    }

    /// Wakes one thread.
    pub(in crate::engine::pool) fn ring(&self) {
        self.members.ring();
    }

    /// Waits; for the listener at which somebody waits, or for a member.
    pub(in crate::engine::pool) fn wait(&self, patience: Duration) -> PollEvent {
        self.members.wait(Timespec::try_from(patience).ok().as_ref())
    }

    /// The thread that was told of a listener has accepted there: the next may be told.
    pub(in crate::engine::pool) fn listen_again(&self, door: usize, listener: impl AsFd) {
        if let Err(error) = self.members.watch_again(door, listener) {
            log::error!("a listener is not watched any more: {error}");
        }
    }

    /// Forgets the listeners. A closed one has left the epoll by itself; one that somebody else holds as well tells one thread,
    /// which finds it gone and does not watch it again.
    pub(in crate::engine::pool) fn take_down(&self) {}
}

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "every kind of bell has the same tests")]
#[path = "tests.rs"]
mod tests;
