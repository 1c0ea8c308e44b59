//! What does the scheduler know about one fiber?

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::context::Context;
use crate::timers::TimerKey;

/// What a fiber was spawned for.
pub(crate) trait Body {
    fn run(self: Box<Self>);
    /// There was no stack to run it on.
    fn refuse(self: Box<Self>, error: io::Error);
}

/// A panic that comes out of `act` is that of a destructor which nobody waits for; its own payload could panic again.
pub(crate) fn catch_panic(act: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
        std::mem::forget(payload);
    }
}

/// Thrown through a fiber that was cancelled.
pub(crate) struct CancelUnwind;

/// Whether what [`catch_unwind`] caught is no panic: the fiber was cancelled, or a [`timeout`](crate::timeout)
/// around the call has elapsed. Code that answers panics should pass it on with
/// [`resume_unwind`](std::panic::resume_unwind).
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

/// Thrown through a fiber up to the `timeout` of this number.
pub(crate) struct ElapsedUnwind(pub(crate) u64);

/// A `timeout` that the fiber is in.
pub(crate) struct Scope {
    pub(crate) id: u64,
    /// When it ends.
    pub(crate) at: Instant,
    pub(crate) timer: TimerKey,
    pub(crate) elapsed: bool,
}

pub(crate) enum Stage {
    /// Without a stack yet: ten thousand short fibers spawned at once then share a few stacks.
    Spawned(Box<dyn Body>),
    Suspended(Context),
    Running,
}

pub(crate) struct Task {
    pub(crate) stage: Stage,
    /// In the run queue.
    pub(crate) queued: bool,
    /// What it waited for was handed to it.
    pub(crate) granted: bool,
    pub(crate) cancelled: bool,
    /// The outermost first.
    pub(crate) scopes: Vec<Scope>,
}

impl Task {
    /// A task that is about to be queued.
    pub(crate) fn new(body: Box<dyn Body>) -> Self {
        let stage = Stage::Spawned(body);
        Task { stage, queued: true, granted: false, cancelled: false, scopes: Vec::new() }
    }

    /// What must be thrown through the fiber, if anything; of its time limits those that ended `by` then.
    pub(crate) fn interruption(&self, by: Option<Instant>) -> Option<Box<dyn Any + Send>> {
        if self.cancelled {
            return Some(Box::new(CancelUnwind));
        }
        // The outermost: what is inside ends with it.
        let in_time = |scope: &&Scope| scope.elapsed && by.is_none_or(|moment| scope.at <= moment);
        let scope = self.scopes.iter().find(in_time)?;
        Some(Box::new(ElapsedUnwind(scope.id)))
    }
}

/// A closure that another thread sent: nobody joins it.
pub(crate) struct Detached(Box<dyn FnOnce() + Send>);

impl Detached {
    pub(crate) fn new(f: Box<dyn FnOnce() + Send>) -> Self {
        Detached(f)
    }
}

impl Body for Detached {
    fn run(self: Box<Self>) {
        // The panic hook has spoken; the payload is nobody's.
        drop(catch_unwind(AssertUnwindSafe(self.0)));
    }

    fn refuse(self: Box<Self>, _error: io::Error) {}
}
