//! Spawning, joining and cancelling fibers.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

use crate::scheduler::{self, Core, Location};
use crate::slab::Key;
use crate::sync::wait_list::WaitList;
use crate::task::{Body, CancelUnwind};

/// The reason why a fiber has no value.
pub enum JoinError {
    /// The fiber panicked. The field is the payload of the panic.
    Panicked(Box<dyn Any + Send>),
    /// The fiber was cancelled, or its runtime was dropped.
    Cancelled,
    /// The fiber never ran, because the kernel had no memory for a stack. With very many fibers, the limit on
    /// Linux is `vm.max_map_count`, with two mappings per fiber.
    NoStack(io::Error),
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => {
                f.debug_tuple("Panicked").field(&panic_text(payload.as_ref())).finish()
            }
            JoinError::Cancelled => f.write_str("Cancelled"),
            JoinError::NoStack(error) => f.debug_tuple("NoStack").field(error).finish(),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => write!(f, "the fiber panicked: {}", panic_text(payload.as_ref())),
            JoinError::Cancelled => f.write_str("the fiber was cancelled"),
            JoinError::NoStack(error) => write!(f, "no memory for the stack of the fiber: {error}"),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JoinError::NoStack(error) => Some(error),
            JoinError::Panicked(_) | JoinError::Cancelled => None,
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}

/// State that a fiber and its handle share.
struct Outcome<T> {
    result: Cell<Option<Result<T, JoinError>>>,
    ended: WaitList,
}

/// The fiber's side of the outcome. It always sets an outcome, at the latest on drop.
struct Promise<T>(Rc<Outcome<T>>);

impl<T> Promise<T> {
    fn set(&self, result: Result<T, JoinError>) {
        self.0.result.set(Some(result));
        self.0.ended.close();
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.0.ended.is_closed() {
            self.set(Err(JoinError::Cancelled));
        }
    }
}

struct Job<F, T> {
    f: F,
    promise: Promise<T>,
}

impl<T, F: FnOnce() -> T> Body for Job<F, T> {
    fn run(self: Box<Self>) {
        let Job { f, promise } = *self;
        promise.set(catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
            if payload.is::<CancelUnwind>() { JoinError::Cancelled } else { JoinError::Panicked(payload) }
        }));
    }

    fn refuse(self: Box<Self>, error: io::Error) {
        self.promise.set(Err(JoinError::NoStack(error)));
    }
}

/// A handle to join or cancel a fiber. Dropping the handle leaves the fiber running.
///
/// The handle belongs to the thread of the fiber:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<weftwork_fiber::JoinHandle<()>>();
/// ```
pub struct JoinHandle<T> {
    outcome: Rc<Outcome<T>>,
    fiber: Option<Key>,
    core: Weak<Core>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Suspends until the fiber has ended, and returns its value.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. A fiber that unwinds cannot wait, so it gets `Cancelled`, unless the other fiber has
    /// already ended.
    ///
    /// # Panics
    ///
    /// Panics outside a fiber if the fiber has not ended. There, call [`Runtime::turn`](crate::Runtime::turn),
    /// or use [`Runtime::block_on`](crate::Runtime::block_on).
    pub fn join(self) -> Result<T, JoinError> {
        // The list has no permits, so this returns when it is closed.
        let _ = self.outcome.ended.acquire("JoinHandle::join");
        self.take_result()
    }

    pub(crate) fn take_result(self) -> Result<T, JoinError> {
        self.outcome.result.take().unwrap_or(Err(JoinError::Cancelled))
    }

    /// Returns whether the fiber has ended, so that [`join`](JoinHandle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.outcome.ended.is_closed()
    }

    /// Cancels the fiber:
    ///
    /// - A fiber that has not started is dropped at once.
    /// - A suspended fiber unwinds when it runs next, so that its destructors run.
    /// - A running fiber (the caller itself) unwinds at its next wait.
    ///
    /// Until the fiber has ended, every further wait unwinds again. A fiber may catch the unwinding with
    /// [`catch_unwind`](std::panic::catch_unwind), but can only return. Its value then counts. What the fiber
    /// waited for is not lost: a mutex, a permit, a channel message or an event goes to the next fiber. The
    /// value of a [`oneshot`](crate::sync::oneshot) has no next fiber.
    ///
    /// The panic hook is not called. Cancelling requires `panic = "unwind"`.
    pub fn cancel(&self) {
        if let (Some(core), Some(fiber)) = (self.core.upgrade(), self.fiber) {
            core.cancel(fiber);
        }
    }
}

pub(crate) fn spawn_on<T: 'static>(core: &Rc<Core>, f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let outcome = Rc::new(Outcome { result: Cell::new(None), ended: WaitList::new(0) });
    let promise = Promise(Rc::clone(&outcome));
    // A closing runtime returns the body, and dropping it sets `Cancelled`.
    let fiber = core.spawn(Box::new(Job { f, promise })).ok();
    JoinHandle { outcome, fiber, core: Rc::downgrade(core) }
}

/// Creates a fiber on this thread. It runs `f` when the caller next waits, or in the next turn of the runtime.
///
/// A fiber never leaves its thread, so `f` and its value need not be `Send`. A panic in `f` ends only that
/// fiber.
///
/// ```
/// let sum = weftwork_fiber::run(|| {
///     let one = weftwork_fiber::spawn(|| 1);
///     let two = weftwork_fiber::spawn(|| 2);
///     one.join().unwrap() + two.join().unwrap()
/// })?;
/// assert_eq!(sum, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// Panics if the thread has no [`Runtime`](crate::Runtime).
pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    match scheduler::current() {
        Some(core) => spawn_on(&core, f),
        None => panic!("weftwork_fiber::spawn on a thread without a fiber runtime: use weftwork_fiber::run"),
    }
}

/// Lets other runnable fibers go first. Outside a fiber it yields the thread. In a fiber that unwinds it does
/// nothing.
pub fn yield_now() {
    match scheduler::location() {
        Location::Fiber(core, fiber) => core.yield_now(fiber),
        Location::Unwinding => {}
        Location::Thread => std::thread::yield_now(),
    }
}

/// Returns whether the caller runs in a fiber.
pub fn in_fiber() -> bool {
    scheduler::current().is_some_and(|core| core.in_fiber())
}
