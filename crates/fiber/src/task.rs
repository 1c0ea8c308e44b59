//! State of one fiber for the scheduler.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::context::Context;
use crate::timers::TimerKey;

/// The closure of a fiber.
pub(crate) trait Body {
    fn run(self: Box<Self>);
    /// Called if there is no stack to run on.
    fn refuse(self: Box<Self>, error: io::Error);
}

/// Runs `act` and discards a panic. It comes from a destructor that no fiber waits for, and dropping its
/// payload could panic again.
pub(crate) fn catch_panic(act: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
        std::mem::forget(payload);
    }
}

/// Payload that unwinds a cancelled fiber.
pub(crate) struct CancelUnwind;

/// Returns whether a payload of [`catch_unwind`] is not a panic, but an interruption: the fiber was cancelled,
/// or a [`timeout`](crate::timeout) around the call has elapsed. Code that handles panics should pass it on
/// with [`resume_unwind`](std::panic::resume_unwind).
///
/// ```
/// use std::panic::catch_unwind;
/// use std::time::Duration;
/// use weftwork_fiber::{is_interruption, run, sleep, timeout};
///
/// run(|| {
///     timeout(Duration::from_millis(1), || {
///         let caught = catch_unwind(|| sleep(Duration::from_secs(60))).unwrap_err();
///         assert!(is_interruption(&*caught));
///     })
/// })?
/// .unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_interruption(payload: &(dyn Any + Send)) -> bool {
    payload.is::<CancelUnwind>() || payload.is::<ElapsedUnwind>()
}

/// Payload that unwinds a fiber up to the `timeout` of this number.
pub(crate) struct ElapsedUnwind(pub(crate) u64);

/// A `timeout` around the current code of a fiber.
pub(crate) struct Scope {
    pub(crate) id: u64,
    /// End of the time limit.
    pub(crate) at: Instant,
    pub(crate) timer: TimerKey,
    pub(crate) elapsed: bool,
}

pub(crate) enum Stage {
    /// Not started and without a stack, so that ten thousand short fibers spawned at once share a few stacks.
    Spawned(Box<dyn Body>),
    Suspended(Context),
    Running,
}

pub(crate) struct Task {
    pub(crate) stage: Stage,
    /// Whether the fiber is in the run queue.
    pub(crate) queued: bool,
    /// Whether the fiber was granted what it waited for.
    pub(crate) granted: bool,
    pub(crate) cancelled: bool,
    /// Active timeouts, the outermost first.
    pub(crate) scopes: Vec<Scope>,
}

impl Task {
    /// Creates a task that is about to be queued.
    pub(crate) fn new(body: Box<dyn Body>) -> Self {
        let stage = Stage::Spawned(body);
        Task { stage, queued: true, granted: false, cancelled: false, scopes: Vec::new() }
    }

    /// Returns the payload to unwind with, if the fiber is interrupted. Of its timeouts, those that ended `by`
    /// then count.
    pub(crate) fn interruption(&self, by: Option<Instant>) -> Option<Box<dyn Any + Send>> {
        if self.cancelled {
            return Some(Box::new(CancelUnwind));
        }
        // The outermost timeout, because inner ones end with it.
        let in_time = |scope: &&Scope| scope.elapsed && by.is_none_or(|moment| scope.at <= moment);
        let scope = self.scopes.iter().find(in_time)?;
        Some(Box::new(ElapsedUnwind(scope.id)))
    }
}

/// A closure from another thread, which cannot be joined.
pub(crate) struct Detached(Box<dyn FnOnce() + Send>);

impl Detached {
    pub(crate) fn new(f: Box<dyn FnOnce() + Send>) -> Self {
        Detached(f)
    }
}

impl Body for Detached {
    fn run(self: Box<Self>) {
        // The panic hook has reported the panic, and no handle gets the payload.
        drop(catch_unwind(AssertUnwindSafe(self.0)));
    }

    fn refuse(self: Box<Self>, _error: io::Error) {}
}
