//! Where does code run that blocks and cannot be told otherwise?

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use crate::call::{Call, CallResult, Reply};
use crate::large_stack::{call_outlined, on_large_stack_if_possible};
use crate::pool::{Pool, PoolFull};
use crate::scheduler::{self, Location};

/// The default of [`set_blocking_threads_max`]: as many blocking calls at once as a busy server's database pool and
/// file reads need, and few enough that their stacks do not matter.
const THREADS_MAX: usize = 512;

/// The pool of the process, for [`blocking`].
static POOL: LazyLock<BlockingPool> = LazyLock::new(|| BlockingPool::new(THREADS_MAX, usize::MAX));

/// Threads for calls that block, apart from the process's: at most so many at once, and at most so many calls that
/// wait for one of them.
///
/// Threads are started when needed and end after 10 s without work, or when the pool is dropped: a call that is in
/// progress then runs to its end, and one that waits for a thread is dropped and never runs.
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
    /// A pool of at most `threads_max` threads (0 counts as 1), for which at most `waiting_max` calls wait.
    pub fn new(threads_max: usize, waiting_max: usize) -> BlockingPool {
        BlockingPool(Pool::new(threads_max, waiting_max))
    }

    /// As [`blocking()`], on a thread of this pool. Where that just runs `f`, it does so however full the pool is. A call
    /// that is taken back makes room for another at once.
    ///
    /// # Errors
    ///
    /// The pool is full; `f` is dropped.
    ///
    /// # Panics
    ///
    /// As `f` does, and where the pool is gone before `f` has begun.
    pub fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, PoolFull> {
        let (core, fiber) = match scheduler::location() {
            Location::Fiber(core, fiber) => (core, fiber),
            // What blocks may need more stack than a fiber has.
            Location::Unwinding => return Ok(on_large_stack_if_possible(f)),
            Location::Thread => return Ok(call_outlined(f)),
        };
        // Later `f` would be with a thread already, and nobody there for what it gives.
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

    /// Threads there are now, those without work among them.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Threads that are in a call now; also where nobody waits for its end any more.
    pub fn busy(&self) -> usize {
        self.0.busy()
    }

    /// How often the system has refused it a thread. Where it had none then, the caller made the call by itself, and its
    /// other fibers waited.
    pub fn threads_refused(&self) -> u64 {
        self.0.refusals()
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        // The fibers of the calls that wait are gone, or they could not call this.
        self.0.close();
    }
}

/// Runs `f` on a thread of the process's pool for blocking calls, the fiber suspended meanwhile. Outside a fiber,
/// and in one that unwinds, it just runs `f`.
///
/// For what would stall every fiber of the thread: files, name look-ups, database drivers, long computations.
///
/// If the fiber is cancelled, or a [`timeout`](crate::timeout) around the call elapses, `f` is taken back and dropped
/// as long as it waits for a thread; once it has begun it runs to its end, and its value is dropped. In a fiber that was
/// interrupted before, and caught that, `f` is dropped and never runs.
///
/// If there is no thread and the system gives none, the fiber's own thread runs `f` and whatever else waits, and all
/// its fibers wait for that. There, and in a fiber that unwinds, `f` has a [large stack](crate::on_large_stack), or that
/// of the fiber if there is no memory for one.
///
/// # Panics
///
/// As `f` does.
pub fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    match POOL.blocking(f) {
        Ok(value) => value,
        Err(PoolFull) => unreachable!("any number of calls may wait for the process's pool"),
    }
}

/// Sets how many threads [`blocking`] uses at most, in the whole process; further calls wait in a queue. The default
/// is 512, and 0 counts as 1. Threads are started when needed and end after 10 s without work. Where calls wait and more
/// are allowed now, they are started at once; where fewer are, those too many end with the call they are in.
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
    fn a_fiber_whose_call_will_never_be_made_is_told() {
        let told = run(|| {
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
            let told = waits.join();
            go.send(()).unwrap();
            busy.join().unwrap().unwrap();
            told
        });
        assert!(matches!(told, Ok(Err(JoinError::Panicked(_)))), "{told:?}");
    }
}
