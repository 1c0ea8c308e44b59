//! Runs a test and a handler on another thread in lockstep. The test sets a time limit and waits until the
//! handler has reached it.
//!
//! Only one side runs at any moment, so a test always has the same result.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::TestConnection;
use crate::message::drop_caught::drop_payload;
use crate::transport::Tick;

/// Maximum time of the system's clock. A handler that takes longer waits for something that will not happen.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The side of the thread that drives the connection.
pub(super) struct Lockstep {
    limits: Receiver<Tick>,
    yields: Sender<()>,
    limit: Cell<Tick>,
}

impl Lockstep {
    /// Returns how far the clock may move.
    pub(super) fn limit(&self) -> Tick {
        self.limit.get()
    }

    /// Yields to the test after everything up to the limit is done. Returns false if the test has ended.
    pub(super) fn yield_to_test(&self) -> bool {
        let next = self.yields.send(()).ok().and_then(|()| self.limits.recv().ok());
        next.inspect(|limit| self.limit.set(*limit)).is_some()
    }
}

/// The side of the test.
pub(super) struct Driver {
    /// `None` after the test has ended.
    limits: Option<Sender<Tick>>,
    yields: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts a thread that drives `connection` as soon as it gets a limit.
    ///
    /// # Panics
    /// Panics if the system has no thread left.
    #[track_caller]
    pub(super) fn new(mut connection: TestConnection) -> Driver {
        let (limits, of_test) = channel();
        let (of_handler, yields) = channel();
        let drive = move || {
            let Ok(first) = of_test.recv() else { return };
            connection.lockstep =
                Some(Lockstep { limits: of_test, yields: of_handler, limit: Cell::new(first) });
            loop {
                let Some(until) = connection.lockstep.as_ref().map(Lockstep::limit) else { return };
                connection.advance_until(until);
                // The handler may have yielded meanwhile, and the limit may have moved.
                let is_met = |lockstep: &Lockstep| lockstep.limit() == until;
                if connection
                    .lockstep
                    .as_ref()
                    .is_some_and(|lockstep| is_met(lockstep) && !lockstep.yield_to_test())
                {
                    return;
                }
            }
        };
        match std::thread::Builder::new().name("test events".into()).spawn(drive) {
            Ok(thread) => Driver { limits: Some(limits), yields, thread: Some(thread) },
            Err(error) => panic!("cannot start a thread for the handler of a test: {error}"),
        }
    }

    /// Runs the other side, and the clock, up to `limit`.
    ///
    /// # Panics
    /// Panics if the other side does not yield.
    #[track_caller]
    pub(super) fn run(&mut self, limit: Tick) {
        if self.limits.as_ref().is_none_or(|limits| limits.send(limit).is_err()) {
            return;
        }
        if self.yields.recv_timeout(STEP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            // Then the drop does not wait for the thread.
            self.thread = None;
            panic!(
                "the handler did not yield within {STEP_TIMEOUT:?}: it waits for something other than its client and the time"
            );
        }
    }
}

/// Tells the handler that the client has disconnected, and waits for its end.
impl Drop for Driver {
    fn drop(&mut self) {
        self.limits = None;
        if let Some(thread) = self.thread.take() {
            // A panic of a handler ends in its response. A panic of the test client was already printed.
            thread.join().unwrap_or_else(drop_payload);
        }
    }
}
