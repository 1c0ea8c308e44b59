//! How are the threads at the door woken where there is no epoll(7)? With poll(2): all of them, for every
//! connection. One is told, the others go on waiting, and hear nothing of that listener before that one is done there:
//! else they would not wait at all while nobody may come in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::engine::shared_poller::{PollEvent, SharedPoller};
use crate::transport::system;

/// Threads keep the listeners open while they wait: so long, at most, after the server has closed them.
const LOOK_UP: Duration = Duration::from_millis(100);

pub(in crate::engine::pool) struct Bell {
    /// Nowhere: a thread that keeps a connection waits for it alone.
    #[cfg_attr(any(target_os = "linux", target_os = "android"), allow(dead_code))]
    pub(in crate::engine::pool) members: SharedPoller,
    stop: OwnedFd,
    heard: OwnedFd,
    ring: OwnedFd,
    doors: RwLock<Arc<Vec<Door>>>,
}

#[derive(Debug)]
struct Door {
    listener: OwnedFd,
    /// A thread was told of it, and is not done there yet.
    told: AtomicBool,
}

impl Bell {
    /// `stop` wakes everybody when it becomes readable.
    pub(in crate::engine::pool) fn new(stop: BorrowedFd<'_>) -> io::Result<Bell> {
        let (heard, ring) = system::pipe()?;
        Ok(Bell {
            members: SharedPoller::open()?,
            stop: stop.try_clone_to_owned()?,
            heard,
            ring,
            doors: RwLock::default(),
        })
    }

    pub(in crate::engine::pool) fn hang_at(&self, _door: usize, listener: impl AsFd) -> io::Result<()> {
        let mut doors = self.doors.write().unwrap_or_else(PoisonError::into_inner);
        let door = Door { listener: listener.as_fd().try_clone_to_owned()?, told: AtomicBool::new(false) };
        Arc::get_mut(&mut doors).map(|doors| doors.push(door)).ok_or(io::ErrorKind::ResourceBusy.into())
    }

    /// Wakes at least one thread.
    pub(in crate::engine::pool) fn ring(&self) {
        // A full pipe wakes them as well.
        let _ = rustix::io::write(&self.ring, &[0]);
    }

    /// Waits; for the listener at which somebody waits and of which no other thread was told.
    pub(in crate::engine::pool) fn wait(&self, patience: Duration) -> PollEvent {
        let doors = self.doors.read().unwrap_or_else(PoisonError::into_inner).clone();
        let untold = |(_, door): &(usize, &Door)| !door.told.load(Ordering::SeqCst);
        let watched: Vec<_> = doors.iter().enumerate().filter(untold).collect();
        let listeners = watched.iter().map(|(_, door)| &door.listener);
        let mut fds: Vec<_> = [&self.stop, &self.heard]
            .into_iter()
            .chain(listeners)
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        if poll(&mut fds, Timespec::try_from(patience.min(LOOK_UP)).ok().as_ref()).is_err() {
            return PollEvent::Spurious;
        }
        if !fds[1].revents().is_empty() {
            // Taken by one thread; the others find nothing, and wait on.
            let _ = rustix::io::read(&self.heard, &mut [0; 1]);
            return PollEvent::Spurious;
        }
        let ready = watched.iter().zip(&fds[2..]).filter(|(_, fd)| !fd.revents().is_empty());
        let mut ready = ready.map(|((index, door), _)| (*index, door));
        let told = ready.find(|(_, door)| !door.told.swap(true, Ordering::SeqCst));
        told.map_or(PollEvent::Timeout, |(index, _)| PollEvent::Listener(index))
    }

    /// The thread that was told of a listener has accepted there: the next may be told.
    pub(in crate::engine::pool) fn listen_again(&self, door: usize, _listener: impl AsFd) {
        if let Some(door) = self.doors.read().unwrap_or_else(PoisonError::into_inner).get(door) {
            door.told.store(false, Ordering::SeqCst);
            // Those who wait by now do so without it.
            self.ring();
        }
    }

    /// Forgets the listeners.
    pub(in crate::engine::pool) fn take_down(&self) {
        *self.doors.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }
}

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "every kind of bell has the same tests")]
#[path = "tests.rs"]
mod tests;
