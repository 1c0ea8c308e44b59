//! How does a test hold a handler that waits on a thread of its own? It says how far time may go, and waits until that is reached.
//!
//! One of both sides runs at any moment, so a test sees the same each time.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::TestConnection;
use crate::transport::Tick;

/// Of the system's time: a handler that takes longer waits for something that does not come.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The end of the thread that drives the connection.
pub(super) struct Lockstep {
    limits: Receiver<Tick>,
    yields: Sender<()>,
    limit: Cell<Tick>,
}

impl Lockstep {
    /// How far time may go.
    pub(super) fn limit(&self) -> Tick {
        self.limit.get()
    }

    /// Nothing is left to do up to the limit: the test has its turn. False: it is not interested any more.
    pub(super) fn yield_to_test(&self) -> bool {
        let next = self.yields.send(()).ok().and_then(|()| self.limits.recv().ok());
        next.inspect(|limit| self.limit.set(*limit)).is_some()
    }
}

/// The test's end.
pub(super) struct Driver {
    /// None: the test has let go.
    limits: Option<Sender<Tick>>,
    yields: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// A thread that drives `connection`, as soon as it is told how far.
    ///
    /// # Panics
    /// The system has no thread left.
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
                // The handler may have given turns meanwhile, and time may go further since.
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
            Err(error) => panic!("a thread for the handler of a test could not be had: {error}"),
        }
    }

    /// Lets the other side go on, and time up to `limit`.
    ///
    /// # Panics
    /// It does not come to an end.
    #[track_caller]
    pub(super) fn run(&mut self, limit: Tick) {
        if self.limits.as_ref().is_none_or(|limits| limits.send(limit).is_err()) {
            return;
        }
        if self.yields.recv_timeout(STEP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            // Nobody waits for it when this is dropped.
            self.thread = None;
            panic!(
                "the handler gave no answer in {STEP_TIMEOUT:?}: it waits for something else than its client and the time"
            );
        }
    }
}

/// Its handler learns that the client has left, and is over when this is.
impl Drop for Driver {
    fn drop(&mut self) {
        self.limits = None;
        if let Some(thread) = self.thread.take() {
            // A panic of a handler ends in its response; one of our own was printed.
            let _ = thread.join();
        }
    }
}
