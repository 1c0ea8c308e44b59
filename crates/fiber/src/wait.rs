//! How does a fiber, or a plain thread, wait for a descriptor?

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::poller::Direction;
use crate::scheduler::{self, Core, Place};
use crate::slab::Key;

/// Waits until reading `fd` would not block: bytes, a connection, the end of the stream, or an error.
///
/// In a fiber it suspends the fiber; outside, and in a fiber that unwinds, it blocks the thread. For a descriptor
/// that the runtime [watches](crate::Runtime::watch) it costs one poll(2) if that shows readiness, and no
/// registration in any case; for others the descriptor is registered for the length of the wait.
///
/// # Errors
///
/// `TimedOut` when the deadline has passed, or what the kernel says about the descriptor.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Direction::Read, deadline)
}

/// Waits until writing to `fd` would not block; otherwise as [`wait_readable`].
///
/// # Errors
///
/// As [`wait_readable`].
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Direction::Write, deadline)
}

fn wait(fd: BorrowedFd<'_>, direction: Direction, deadline: Option<Instant>) -> io::Result<()> {
    let Place::Fiber(core, fiber) = scheduler::place() else { return block_thread(fd, direction, deadline) };
    let lasting = core.poller.borrow().find(fd.as_raw_fd()).is_some();
    // Registering tells of readiness that is there already; a registration that lasts may have told it before.
    if lasting && is_ready(fd, direction, Some(Duration::ZERO))? {
        return Ok(());
    }
    let source = Acquired::new(&core, fd, direction)?;
    core.wait_source(fiber, source.key, direction, deadline)
}

struct Acquired<'a> {
    core: &'a Rc<Core>,
    key: Key,
}

impl<'a> Acquired<'a> {
    fn new(core: &'a Rc<Core>, fd: BorrowedFd<'_>, direction: Direction) -> io::Result<Self> {
        let key = core.poller.borrow_mut().acquire(fd.as_raw_fd(), direction.interest())?;
        Ok(Acquired { core, key })
    }
}

impl Drop for Acquired<'_> {
    fn drop(&mut self) {
        self.core.poller.borrow_mut().release(self.key);
    }
}

/// Waits with poll(2).
pub(crate) fn block_thread(
    fd: BorrowedFd<'_>,
    direction: Direction,
    deadline: Option<Instant>,
) -> io::Result<()> {
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match is_ready(fd, direction, left) {
            Ok(true) => return Ok(()),
            Ok(false) if left.is_some_and(|left| left.is_zero()) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_ready(fd: BorrowedFd<'_>, direction: Direction, timeout: Option<Duration>) -> io::Result<bool> {
    let flags = match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, flags)], timeout.as_ref())? > 0)
}
