//! Runs blocking code on separate threads, so that other fibers continue.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use crate::call::{Call, CallResult, Reply};
use crate::large_stack::{call_outlined, on_large_stack_if_possible};
use crate::pool::{Pool, PoolFull};
use crate::scheduler::{self, Location};

/// Default of [`set_blocking_threads_max`]. It is enough for the database pool and file reads of a busy server,
/// and small enough that the stacks do not matter.
const THREADS_MAX: usize = 512;

/// The process-wide pool of [`blocking`].
static POOL: LazyLock<BlockingPool> = LazyLock::new(|| BlockingPool::new(THREADS_MAX, usize::MAX));

/// A separate pool of threads for blocking calls. It limits the threads, and the calls that wait for a thread.
///
/// Threads are started when needed. A thread ends after 10 s without work, or when the pool is dropped. On
/// drop, calls in progress run to their end, and calls that wait for a thread are dropped without running.
///
/// ```
/// use std::rc::Rc;
/// use weftwork_fiber::{BlockingPool, run};
///
/// let pool = Rc::new(BlockingPool::new(4, 100));
/// assert_eq!(run(move || pool.blocking(|| 7))?, Ok(7));
/// # std::io::Result::Ok(())
/// ```
pub struct BlockingPool(Arc<Pool>);

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl BlockingPool {
    /// Creates a pool of at most `threads_max` threads (0 counts as 1). At most `waiting_max` calls wait for a
    /// thread.
    pub fn new(threads_max: usize, waiting_max: usize) -> BlockingPool {
        BlockingPool(Pool::new(threads_max, waiting_max))
    }

    /// Asks this function before a thread is started. If the answer is false, the thread is refused as if the system had
    /// refused it. Default: always true.
    #[must_use]
    pub fn may_start(self, may_start: fn() -> bool) -> BlockingPool {
        self.0.set_may_start(may_start);
        self
    }

    /// Runs `f` like [`blocking()`], on a thread of this pool. If `blocking()` would run `f` directly, so does
    /// this function, even if the pool is full. If a waiting call is cancelled, its place is free at once.
    ///
    /// # Errors
    ///
    /// Fails if the pool is full. `f` is dropped.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics, or if the pool is dropped before `f` starts.
    pub fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, PoolFull> {
        let (core, fiber) = match scheduler::location() {
            Location::Fiber(core, fiber) => (core, fiber),
            // Blocking code may need more stack than a fiber has.
            Location::Unwinding => return Ok(on_large_stack_if_possible(f)),
            Location::Thread => return Ok(call_outlined(f)),
        };
        // Checked first. Later a thread would already have `f`, and its value would be lost.
        core.unwind_if_interrupted(fiber);
        let slot = CallResult::new();
        let reply = Reply::new(&slot, core.remote(), fiber);
        let queued = self.0.submit(Box::new(move || reply.send(catch_unwind(AssertUnwindSafe(f)))))?;
        let call = Call::new(slot, queued);
        loop {
            core.suspend(fiber);
            if let Some(value) = call.take() {
                return Ok(value);
            }
            core.unwind_if_interrupted(fiber);
        }
    }

    /// Returns the number of threads, including idle ones.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Returns the number of threads in a call, including calls that no fiber waits for any more.
    pub fn busy(&self) -> usize {
        self.0.busy()
    }

    /// Returns how often the system refused to start a thread. If the pool had no thread at all, the caller ran
    /// the call itself, and its other fibers waited.
    pub fn threads_refused(&self) -> u64 {
        self.0.refusals()
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        // The fibers of waiting calls are gone, because they borrow the pool.
        self.0.close();
    }
}

/// Runs `f` on a thread of the process-wide pool and suspends the fiber meanwhile. Outside a fiber, and in a
/// fiber that unwinds, `f` runs directly.
///
/// Use it for code that would block every fiber of the thread: files, name look-ups, database drivers, long
/// computations.
///
/// If the fiber is cancelled, or a [`timeout`](crate::timeout) around the call elapses, a waiting `f` is
/// dropped. If `f` has started, it runs to its end, and its value is dropped. If a fiber was interrupted
/// earlier and caught the interruption, `f` is dropped and never runs.
///
/// If there is no thread and the system starts none, the fiber's own thread runs `f` and all waiting calls, and
/// all its fibers wait. In this case, and in a fiber that unwinds, `f` has a
/// [large stack](crate::on_large_stack). If there is no memory for one, `f` runs on the stack of the fiber.
///
/// # Panics
///
/// Panics if `f` panics.
pub fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    match POOL.blocking(f) {
        Ok(value) => value,
        Err(PoolFull) => unreachable!("any number of calls may wait for the process's pool"),
    }
}

/// Sets the maximum number of threads of [`blocking`], in the whole process. Default: 512. 0 counts as 1.
/// Further calls wait in a queue. Threads are started when needed and end after 10 s without work. If the
/// maximum grows and calls wait, threads are started at once. If it shrinks, surplus threads end after their
/// current call.
pub fn set_blocking_threads_max(threads: usize) {
    POOL.0.set_threads_max(threads);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{JoinError, run, spawn, timeout, yield_now};

    #[test]
    fn a_fiber_whose_call_is_never_made_gets_an_error() {
        let joined = run(|| {
            let pool = Rc::new(BlockingPool::new(1, 1));
            let (first, second) = (Rc::clone(&pool), Rc::clone(&pool));
            let (enters, has_entered) = mpsc::channel();
            let (go, wait) = mpsc::channel();
            let busy = spawn(move || {
                first.blocking(move || {
                    enters.send(()).unwrap();
                    wait.recv().unwrap();
                })
            });
            let waits = spawn(move || timeout(Duration::from_secs(5), || second.blocking(|| ())));
            yield_now();
            has_entered.recv().unwrap();
            pool.0.close();
            let joined = waits.join();
            go.send(()).unwrap();
            busy.join().unwrap().unwrap();
            joined
        });
        assert!(matches!(joined, Ok(Err(JoinError::Panicked(_)))), "{joined:?}");
    }
}
