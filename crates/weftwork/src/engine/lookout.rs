//! Where nobody is at a door for want of threads, who sees whether there are any again? The thread that has left it, while it waits
//! for its client: what that asks for may last.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::thread_pool::REFUSED_FOR;
use super::thread_wait::ThreadWait;
use crate::conn::{Readiness, Wait};
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::stream::is_timed_out;

/// Looks every [`REFUSED_FOR`].
pub(super) struct Lookout<'a> {
    look: &'a dyn Fn(),
    last: Cell<Tick>,
}

impl<'a> Lookout<'a> {
    pub(super) fn new(now: Tick, look: &'a dyn Fn()) -> Lookout<'a> {
        Lookout { look, last: Cell::new(now) }
    }

    /// When it is to look next.
    pub(super) fn due(&self) -> Tick {
        self.last.get().after(REFUSED_FOR)
    }

    pub(super) fn look_if_due(&self, now: Tick) {
        if now >= self.due() {
            self.last.set(now);
            (self.look)();
        }
    }
}

/// How a handler waits on such a thread.
pub(super) struct OnTheLookout<'a> {
    pub(super) here: ThreadWait<'a>,
    pub(super) lookout: &'a Lookout<'a>,
}

impl Wait for OnTheLookout<'_> {
    fn now(&self) -> Tick {
        self.here.now()
    }

    fn moment(&self) -> Instant {
        self.here.moment()
    }

    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        loop {
            let due = self.lookout.due();
            match self.here.ready_in(fd, ready, until.min(due), stage) {
                Err(error) if is_timed_out(&error) && due < until => {
                    self.lookout.look_if_due(self.here.now())
                }
                waited => return waited,
            }
        }
    }
}
