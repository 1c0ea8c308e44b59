//! What a call needs of the room that it runs in: the time, and ways to wait.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::transport::Tick;
use crate::transport::context::{Context, Stage};

/// What a socket has to be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Read,
    Write,
    Either,
}

/// What a blocked thread needs from the room it runs in: a way to wait for one socket.
pub(crate) trait Wait {
    /// What time it is, as exactly as costs nothing.
    fn now(&self) -> Tick;

    /// The same, as exactly as handlers need it.
    fn moment(&self) -> Instant {
        Instant::now()
    }

    /// Returns when `fd` is ready.
    ///
    /// # Errors
    /// `TimedOut` at `until`; `ConnectionAborted` as soon as the server has moved on from `stage`; `ResourceBusy` where no
    /// thread may wait just now.
    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()>;

    /// The same, until the server cuts its connections.
    fn ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick) -> io::Result<()> {
        self.ready_in(fd, ready, until, Stage::Draining)
    }

    /// A call moved bytes, or is about to, without a wait: a client may be quick enough that there never is one. Where
    /// others share the thread, they have their turn now and then.
    fn let_others(&self) {}

    /// [`Wait::let_others`], and what a wait says of the server.
    ///
    /// # Errors
    /// `ConnectionAborted` when the server cuts its connections.
    fn go_on(&self, cx: &Context) -> io::Result<()> {
        self.let_others();
        if cx.stage() == Stage::Closing { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Whether a panic that was caught is none, but the room ending the call: it has to go on.
    fn is_cancelled(&self, _panic: &(dyn Any + Send)) -> bool {
        false
    }

    /// Whether it is none, but the room having no thread for what the call wants to do.
    fn is_overload(&self, _panic: &(dyn Any + Send)) -> bool {
        false
    }
}
