//! How does Linux wake one thread of many that wait for the same listeners? One epoll(7) for all of them.
//!
//! A plain poll(2) in each would wake every thread for every connection. Here a listener is reported once, to
//! one thread, and not again before that thread has accepted and says so ([`Bell::listen_again`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

const RING: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

#[derive(Debug)]
pub(in crate::engine::pool) struct Bell {
    epoll: OwnedFd,
    /// Each write is one event, for one thread (edge-triggered); nobody ever reads it.
    ring: OwnedFd,
}

impl Bell {
    /// `stop` wakes everybody when it becomes readable.
    pub(in crate::engine::pool) fn new(stop: BorrowedFd<'_>) -> io::Result<Bell> {
        let bell = Bell {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            ring: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        epoll::add(&bell.epoll, &bell.ring, EventData::new_u64(RING), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&bell.epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(bell)
    }

    pub(in crate::engine::pool) fn hang_at(&self, door: usize, listener: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, listener, EventData::new_u64(door as u64), ONCE)?)
    }

    /// Wakes one thread.
    pub(in crate::engine::pool) fn ring(&self) {
        // It can only fail when the count is full, after 2^64 rings.
        let _ = rustix::io::write(&self.ring, &1_u64.to_ne_bytes());
    }

    /// Waits; the listener at which somebody waits, if it was that.
    pub(in crate::engine::pool) fn wait(&self, patience: Duration) -> Option<usize> {
        let mut event = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
        let timeout = Timespec::try_from(patience).ok();
        let (told, _) = epoll::wait(&self.epoll, &mut event, timeout.as_ref()).ok()?;
        match told.first()?.data.u64() {
            RING | STOP => None,
            door => usize::try_from(door).ok(),
        }
    }

    /// The thread that was told of a listener has accepted there: the next may be told.
    pub(in crate::engine::pool) fn listen_again(&self, door: usize, listener: impl AsFd) {
        if let Err(error) = epoll::modify(&self.epoll, listener, EventData::new_u64(door as u64), ONCE) {
            log::error!("a listener is not watched any more: {error}");
        }
    }

    /// Forgets the listeners. A closed one has left the epoll by itself.
    pub(in crate::engine::pool) fn take_down(&self) {}
}

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "every kind of bell has the same tests")]
#[path = "tests.rs"]
mod tests;
