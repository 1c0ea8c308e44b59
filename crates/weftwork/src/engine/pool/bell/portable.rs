//! How are the threads at the door woken where there is no epoll(7)? With poll(2): all of them, for every
//! connection. One gets it, the others go on waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Threads keep the listeners open while they wait: so long, at most, after the server has closed them.
const LOOK_UP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(in crate::engine::pool) struct Bell {
    stop: OwnedFd,
    heard: OwnedFd,
    ring: OwnedFd,
    doors: RwLock<Arc<Vec<OwnedFd>>>,
}

impl Bell {
    /// `stop` wakes everybody when it becomes readable.
    pub(in crate::engine::pool) fn new(stop: BorrowedFd<'_>) -> io::Result<Bell> {
        let (heard, ring) = rustix::pipe::pipe()?;
        for fd in [&heard, &ring] {
            rustix::io::ioctl_fioclex(fd)?;
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(Bell { stop: stop.try_clone_to_owned()?, heard, ring, doors: RwLock::default() })
    }

    pub(in crate::engine::pool) fn hang_at(&self, _door: usize, listener: impl AsFd) -> io::Result<()> {
        let mut doors = self.doors.write().unwrap_or_else(PoisonError::into_inner);
        let fd = listener.as_fd().try_clone_to_owned()?;
        Arc::get_mut(&mut doors).map(|doors| doors.push(fd)).ok_or(io::ErrorKind::ResourceBusy.into())
    }

    /// Wakes at least one thread.
    pub(in crate::engine::pool) fn ring(&self) {
        // A full pipe wakes them as well.
        let _ = rustix::io::write(&self.ring, &[0]);
    }

    /// Waits; the listener at which somebody waits, if it was that.
    pub(in crate::engine::pool) fn wait(&self, patience: Duration) -> Option<usize> {
        let doors = self.doors.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut fds: Vec<_> = [&self.stop, &self.heard]
            .into_iter()
            .chain(doors.iter())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        poll(&mut fds, Timespec::try_from(patience.min(LOOK_UP)).ok().as_ref()).ok()?;
        if !fds[1].revents().is_empty() {
            // Taken by one thread; the others find nothing, and wait on.
            let _ = rustix::io::read(&self.heard, &mut [0; 1]);
            return None;
        }
        fds.iter().skip(2).position(|fd| !fd.revents().is_empty())
    }

    /// Every wait listens.
    pub(in crate::engine::pool) fn listen_again(&self, _door: usize, _listener: impl AsFd) {}

    /// Forgets the listeners.
    pub(in crate::engine::pool) fn take_down(&self) {
        *self.doors.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }
}
