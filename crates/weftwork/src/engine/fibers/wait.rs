//! The waits of fibers. A wait suspends the fiber, and its thread goes on.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftwork_fiber::{Interest, Signal, in_fiber, is_interruption, wait_for};

use super::Fibers;
use super::executor::FiberExecutor;
use crate::conn::{IoWait, Readiness};
use crate::engine::blocking::{BlockingHook, Work};
use crate::engine::thread_wait::{self, ThreadWait};
use crate::engine::threads::THREAD_LIMITS;
use crate::message::thread_wakeup::ThreadWakeup;
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::log_queue::log_line;

/// Waits for a client by suspending the fiber.
pub(super) struct FiberWait<'a> {
    pub(super) cx: &'a Context,
    /// The loop of the thread, for a request of a connection.
    pub(super) executor: Option<&'a FiberExecutor>,
}

impl IoWait for FiberWait<'_> {
    fn now(&self) -> Tick {
        self.cx.clock.now()
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        if self.cx.stage() == Stage::Closing {
            return thread_wait::wait_in(self.cx, fd, ready, until, stage);
        }
        // A deadline beyond the range of the clock is no deadline.
        let until = Instant::now().checked_add(self.cx.clock.now().until(until));
        let interest = match ready {
            Readiness::Read => Interest::Readable,
            Readiness::Write => Interest::Writable,
            Readiness::Either => Interest::Both,
        };
        // A fiber that unwinds cannot be suspended, so its wait fails. Other fibers must not wait for its client.
        if stage != Stage::Running {
            return wait_for(fd, interest, until);
        }
        let waited = DRAINING.with(|draining| draining.wait_for(fd, interest, until));
        waited.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => io::ErrorKind::ConnectionAborted.into(),
            _ => error,
        })
    }

    fn yield_budget(&self) {
        let calls = CALLS.get() + 1;
        CALLS.set(calls % CALL_BUDGET);
        if calls == CALL_BUDGET {
            // A fiber that only yields is resumed many times before the loop runs.
            weftwork_fiber::sleep(Duration::ZERO);
        }
    }

    fn exchange_frames(&self) {
        if let Some(executor) = self.executor {
            executor.turn();
        }
    }

    fn is_cancelled(&self, panic: &(dyn Any + Send)) -> bool {
        is_interruption(panic)
    }

    fn is_overload(&self, panic: &(dyn Any + Send)) -> bool {
        is_overload(panic)
    }
}

/// Waits by suspending the calling fiber if it is a fiber of this server, or by blocking. An upgraded connection may
/// be used anywhere, also on fibers that do not see the stop of this server.
pub(super) struct OwnedFiberWait(pub(super) Arc<Context>);

impl OwnedFiberWait {
    fn here<T>(&self, wait: impl FnOnce(&dyn IoWait) -> T) -> T {
        match in_fiber() && OWNER.get() == Arc::as_ptr(&self.0) {
            true => wait(&FiberWait { cx: &self.0, executor: None }),
            false => wait(&ThreadWait::new(&self.0)),
        }
    }
}

impl IoWait for OwnedFiberWait {
    fn now(&self) -> Tick {
        self.0.clock.now()
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.here(|wait| wait.wait_ready(fd, ready, until, stage))
    }

    fn yield_budget(&self) {
        self.here(|wait| wait.yield_budget());
    }

    fn is_cancelled(&self, panic: &(dyn Any + Send)) -> bool {
        is_interruption(panic)
    }

    fn is_overload(&self, panic: &(dyn Any + Send)) -> bool {
        is_overload(panic)
    }
}

/// Number of calls that move bytes for the fibers of a thread before the loop runs. Each call moves up to 256 KiB of
/// a body, or as much as the buffer of the handler holds.
const CALL_BUDGET: u32 = 8;

thread_local! {
    /// The server of this thread's fibers.
    static OWNER: Cell<*const Context> = const { Cell::new(std::ptr::null()) };
    /// Calls since the loop last ran.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Ends the waits of this thread's fibers that must notice that the server drains.
    static DRAINING: Signal = const { Signal::new() };
}

/// Assigns the fibers of this thread to this server.
pub(super) fn own_thread(cx: &Arc<Context>) {
    OWNER.set(Arc::as_ptr(cx));
}

/// Wakes the fibers of this thread that wait for upgraded clients, because the server drains.
pub(super) fn tell_of_drain() {
    DRAINING.with(Signal::set);
}

/// Runs blocking work on a thread of the server's pool, and suspends the fiber meanwhile.
pub(super) struct FiberBlocking(pub(super) Arc<Fibers>);

impl FiberBlocking {
    #[cold]
    fn log_spawn_error(&self) {
        let threads = self.0.blocking.threads();
        if self.0.refusals.take(self.0.cx.clock.now()).is_some() {
            log_line!(
                Error,
                "the system refuses another thread for weftwork::blocking; {threads} are there, and where there is none, the \
                 call stops a loop and all its connections. {THREAD_LIMITS}"
            );
        }
    }
}

/// Unwinds a call if no thread is free for its work now or soon.
struct Overload;

fn is_overload(panic: &(dyn Any + Send)) -> bool {
    panic.is::<Overload>()
}

impl BlockingHook for FiberBlocking {
    fn blocking(&self, work: Work) {
        let pool = &self.0.blocking;
        let refused = pool.threads_refused();
        let done = pool.blocking(work);
        if pool.threads_refused() != refused {
            self.log_spawn_error();
        }
        if done.is_err() {
            // The caller expects a value, which does not exist. The panic hook is not called, because this is no
            // error.
            resume_unwind(Box::new(Overload));
        }
    }

    fn sleep(&self, duration: Duration) {
        weftwork_fiber::sleep(duration);
    }

    fn park(&self, wakeup: &ThreadWakeup) {
        wakeup.park_with(|fd| weftwork_fiber::wait_readable(fd, None));
    }
}
