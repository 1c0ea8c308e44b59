//! Services of the engine for a call: the time, and ways to wait.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::message::WakeConn;
use crate::transport::context::{Context, Stage};
use crate::transport::{Stream, Tick};

/// Event for which a socket waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Read,
    Write,
    Either,
}

impl Readiness {
    /// Returns the descriptor that a thread waits for, and its event. One request of HTTP/2 has no socket: its descriptor is
    /// readable when what it waits for is ready.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub(crate) fn of(self, stream: &Stream) -> io::Result<(BorrowedFd<'_>, Readiness)> {
        match stream.memory() {
            Some(memory) if memory.is_pollable() => {
                let fd = memory.fd(self != Readiness::Write, self != Readiness::Read)?;
                Ok((fd, Readiness::Read))
            }
            _ => Ok((stream.as_fd(), self)),
        }
    }
}

/// Lets a blocked thread wait for a socket.
pub(crate) trait IoWait {
    /// Returns the time, as exactly as it is available without cost.
    fn now(&self) -> Tick;

    /// Returns the time, as exactly as handlers need it.
    fn moment(&self) -> Instant {
        Instant::now()
    }

    /// Returns when `fd` is ready.
    ///
    /// # Errors
    /// `TimedOut` at `until`, `ConnectionAborted` as soon as the server has moved on from `stage`, or `ResourceBusy` if
    /// no thread may wait at the moment.
    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()>;

    /// Waits like that until the server cuts its connections.
    fn ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick) -> io::Result<()> {
        self.wait_ready(fd, ready, until, Stage::Draining)
    }

    /// Called when a call moves bytes without a wait, because a quick client may never cause one. If the thread is
    /// shared, other work has its turn now and then.
    fn yield_budget(&self) {}

    /// Lets the loop of this thread go on once, if it may have the connection of the request of HTTP/2 that calls. A handler
    /// that goes on without a wait would keep the frames of its connection from their client, and those of its client from
    /// itself.
    fn exchange_frames(&self) {}

    /// Returns the loop that goes on during a wait on this thread. A wait ends only if its loop is woken.
    fn event_loop(&self) -> Option<Arc<dyn WakeConn>> {
        None
    }

    /// Returns whether the waits of a test move its clock, so that nothing else ends them.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Calls [`IoWait::yield_budget`], and checks the state of the server like a wait.
    ///
    /// # Errors
    /// `ConnectionAborted` when the server cuts its connections.
    fn check(&self, cx: &Context) -> io::Result<()> {
        self.yield_budget();
        if cx.stage() == Stage::Closing { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Returns whether a caught panic is the engine ending the call, so that it must continue.
    fn is_cancelled(&self, _panic: &(dyn Any + Send)) -> bool {
        false
    }

    /// Returns whether it is the engine, because no thread is free for a blocking call.
    fn is_overload(&self, _panic: &(dyn Any + Send)) -> bool {
        false
    }
}
