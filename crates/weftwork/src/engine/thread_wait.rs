//! Waits for one socket on a thread with poll(2), until the peer's deadline or the server's next stage.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::conn::{IoWait, Readiness};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};

/// Waits on this thread. The wait delays no other work.
pub(super) struct ThreadWait<'a> {
    cx: &'a Context,
    /// The time of the last look at the clock.
    looked: Cell<Option<Instant>>,
}

impl<'a> ThreadWait<'a> {
    pub(super) fn new(cx: &'a Context) -> ThreadWait<'a> {
        ThreadWait { cx, looked: Cell::new(None) }
    }

    /// Returns when the clock was last read, exactly. After a call, the clock need not be read again.
    pub(super) fn last_look(&self) -> Instant {
        self.looked.get().unwrap_or_else(Instant::now)
    }
}

impl IoWait for ThreadWait<'_> {
    fn now(&self) -> Tick {
        let now = Instant::now();
        self.looked.set(Some(now));
        self.cx.clock.at(now)
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        wait_in(self.cx, fd, ready, until, stage)
    }
}

/// The same wait, for a connection that may be used on any thread.
pub(super) struct OwnedThreadWait(pub(super) Arc<Context>);

impl IoWait for OwnedThreadWait {
    fn now(&self) -> Tick {
        self.0.clock.now()
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        wait_in(&self.0, fd, ready, until, stage)
    }
}

/// Waits as [`IoWait::wait_ready`] does.
pub(super) fn wait_in(
    cx: &Context,
    fd: BorrowedFd<'_>,
    ready: Readiness,
    until: Tick,
    stage: Stage,
) -> io::Result<()> {
    let event = match ready {
        Readiness::Read => PollFlags::IN,
        Readiness::Write => PollFlags::OUT,
        Readiness::Either => PollFlags::IN | PollFlags::OUT,
    };
    poll_until(cx, fd, event, until, cx.stage_fd(stage))
}

/// Waits for a socket. `TimedOut` at `until`, `ConnectionAborted` as soon as `stop` is readable.
pub(super) fn poll_until(
    cx: &Context,
    fd: BorrowedFd<'_>,
    event: PollFlags,
    until: Tick,
    stop: BorrowedFd<'_>,
) -> io::Result<()> {
    loop {
        let left = cx.clock.now().until(until);
        let mut fds = [PollFd::from_borrowed_fd(fd, event), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        // A deadline beyond the range of the clock is no deadline.
        let timeout = Timespec::try_from(left).ok();
        // poll(2) is called at least once. Bytes that arrived before the deadline count, even if the process was
        // stopped at that time.
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if !fds[1].revents().is_empty() => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
