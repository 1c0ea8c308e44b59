//! How a thread waits for one socket: poll(2), with the peer's deadline and the server's end in view.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::conn::{Readiness, Wait};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};

/// Waits on this thread. Nothing else is held up by it.
pub(super) struct ThreadWait<'a> {
    cx: &'a Context,
    /// The last look at the clock.
    looked: Cell<Option<Instant>>,
}

impl<'a> ThreadWait<'a> {
    pub(super) fn new(cx: &'a Context) -> ThreadWait<'a> {
        ThreadWait { cx, looked: Cell::new(None) }
    }

    /// When it was last asked for the time, exactly. Whoever has made a call with it need not look again.
    pub(super) fn last_look(&self) -> Instant {
        self.looked.get().unwrap_or_else(Instant::now)
    }
}

impl Wait for ThreadWait<'_> {
    fn now(&self) -> Tick {
        let now = Instant::now();
        self.looked.set(Some(now));
        self.cx.clock.at(now)
    }

    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        wait_in(self.cx, fd, ready, until, stage)
    }
}

/// The same, for what may be used on any thread.
pub(super) struct OwnedThreadWait(pub(super) Arc<Context>);

impl OwnedThreadWait {
    fn here(&self) -> ThreadWait<'_> {
        ThreadWait::new(&self.0)
    }
}

impl Wait for OwnedThreadWait {
    fn now(&self) -> Tick {
        self.here().now()
    }

    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.here().ready_in(fd, ready, until, stage)
    }
}

/// As [`Wait::ready_in`].
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
    poll_until(cx, fd, event, until, cx.moved_on_from(stage))
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
        // A deadline that no clock can reach is no deadline.
        let timeout = Timespec::try_from(left).ok();
        // At least once: what came before the time was up counts, also where nobody could look, as the process was stopped.
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if !fds[1].revents().is_empty() => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// epoll(7) waits for whole milliseconds and rounds up. A short wait for a fiber's timer ends on time by one more
/// system call: 100 clients of a handler that sleeps for 1 ms are answered in 1.57 ms, and not in 1.89.
const FINE_MAX: Duration = Duration::from_millis(20);

/// Whether a wait is worth a finer clock than a poller's: see [`until_readable`].
pub(super) fn is_fine(patience: Duration) -> bool {
    patience < FINE_MAX && !patience.subsec_nanos().is_multiple_of(1_000_000)
}

/// Waits for a descriptor by a clock that is finer than a poller's. It may return early.
pub(super) fn until_readable(fd: BorrowedFd<'_>, patience: Duration) {
    let timeout = Timespec::try_from(patience).ok();
    set_timer_slack(SLACK_NANOS);
    // Whatever it says: the look at the events that follows tells.
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref());
    set_timer_slack(0);
}

/// By how much the kernel may end such a wait later than asked for: a microsecond. It takes 50 elsewhere, to have timers end
/// together, but a loop has one for all who wait. 100 clients of a handler that sleeps for 1 ms in a fiber are answered
/// in 1.10 ms so, and not in 1.24 (docs/performance.md).
const SLACK_NANOS: u64 = 1000;

/// 0: as the thread had it at first. Where it is refused, waits end a little later.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_timer_slack(nanos: u64) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(nanos));
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_timer_slack(_: u64) {}
