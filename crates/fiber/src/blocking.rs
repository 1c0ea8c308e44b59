//! Where does code run that blocks and cannot be told otherwise?

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::large::{on_large_stack, on_large_stack_or_here};
use crate::scheduler::{self, Place};
use crate::task::contained;

/// The default of [`set_blocking_threads_max`]: as many blocking calls at once as a busy server's database pool and
/// file reads need, and few enough that their stacks do not matter.
const THREADS_MAX: usize = 512;

/// An unused thread stays so long for the next call.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct State {
    jobs: VecDeque<Job>,
    /// Threads that are about to look at the jobs: without one, just started, or notified and not awake yet.
    idle: usize,
    threads: usize,
    threads_max: usize,
    /// Calls that may wait for a thread.
    waiting_max: usize,
    /// Nobody calls any more: threads without work end at once.
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// The pool of the process, for [`blocking`].
static POOL: LazyLock<BlockingPool> = LazyLock::new(|| BlockingPool::new(THREADS_MAX, usize::MAX));

/// Threads for calls that block, apart from the process's: at most so many at once, and at most so many calls that
/// wait for one of them.
///
/// Threads are started when needed and end after 10 s without work, or when the pool is dropped; a call that is in
/// progress then runs to its end.
///
/// ```
/// use std::rc::Rc;
/// use weftwork_fiber::{BlockingPool, run};
///
/// let pool = Rc::new(BlockingPool::new(4, 100));
/// assert_eq!(run(move || pool.blocking(|| 7))?, Ok(7));
/// # std::io::Result::Ok(())
/// ```
pub struct BlockingPool(Arc<Shared>);

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// Every thread of a [`BlockingPool`] is in use, and as many calls wait for one as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFull;

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every thread for blocking calls is in use, and too many calls wait for one")
    }
}

impl std::error::Error for PoolFull {}

impl BlockingPool {
    /// A pool of at most `threads_max` threads (0 counts as 1), for which at most `waiting_max` calls wait.
    pub fn new(threads_max: usize, waiting_max: usize) -> BlockingPool {
        let state = State {
            jobs: VecDeque::new(),
            idle: 0,
            threads: 0,
            threads_max: threads_max.max(1),
            waiting_max,
            closed: false,
        };
        BlockingPool(Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() }))
    }

    /// As [`blocking()`], on a thread of this pool.
    ///
    /// # Errors
    ///
    /// The pool is full; `f` is dropped.
    ///
    /// # Panics
    ///
    /// As `f` does.
    pub fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, PoolFull> {
        let (core, fiber) = match scheduler::place() {
            Place::Fiber(core, fiber) => (core, fiber),
            // What blocks may need more stack than a fiber has.
            Place::Unwinding => return Ok(on_large_stack_or_here(f)),
            Place::Thread => return Ok(f()),
        };
        // Later `f` would be with a thread already, and nobody there for what it gives.
        core.unwind_if_interrupted(fiber);
        let slot = Arc::new(Mutex::new(None));
        let (theirs, remote) = (Arc::clone(&slot), core.remote());
        Shared::submit(
            &self.0,
            Box::new(move || {
                let result = catch_unwind(AssertUnwindSafe(f));
                *lock(&theirs) = Some(result);
                remote.wake_fiber(fiber);
            }),
        )?;
        loop {
            core.park(fiber);
            // The guard must be gone before the fiber is suspended again.
            let result = lock(&slot).take();
            match result {
                Some(Ok(value)) => return Ok(value),
                Some(Err(payload)) => resume_unwind(payload),
                None => {}
            }
        }
    }

    /// Threads there are now, those without work among them.
    pub fn threads(&self) -> usize {
        lock(&self.0.state).threads
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        let jobs = {
            let mut state = lock(&self.0.state);
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.0.wake.notify_all();
        // Their fibers are gone, or they could not call this.
        drop(jobs);
    }
}

/// Runs `f` on a thread of the process's pool for blocking calls, the fiber suspended meanwhile. Outside a fiber,
/// and in one that unwinds, it just runs `f`.
///
/// For what would stall every fiber of the thread: files, name look-ups, database drivers, long computations.
/// If the fiber is cancelled meanwhile, `f` runs to its end and its value is dropped.
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
    let mut state = lock(&POOL.0.state);
    state.threads_max = threads.max(1);
    let waiting = state.jobs.len().saturating_sub(state.idle);
    let more = waiting.min(state.threads_max.saturating_sub(state.threads));
    state.threads += more;
    state.idle += more;
    drop(state);
    (0..more).for_each(|_| Shared::start(&POOL.0));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn submit(pool: &Arc<Shared>, job: Job) -> Result<(), PoolFull> {
        let mut state = lock(&pool.state);
        let waiting = state.jobs.len().checked_sub(state.idle);
        let may_start = state.threads < state.threads_max;
        if !may_start && waiting.is_some_and(|waiting| waiting >= state.waiting_max) {
            return Err(PoolFull);
        }
        state.jobs.push_back(job);
        if waiting.is_some() && may_start {
            state.threads += 1;
            state.idle += 1;
            drop(state);
            Shared::start(pool);
        } else {
            drop(state);
            pool.wake.notify_one();
        }
        Ok(())
    }

    fn start(pool: &Arc<Shared>) {
        let own = Arc::clone(pool);
        let started = thread::Builder::new().name("fiber-blocking".into()).spawn(move || own.work());
        if started.is_ok() {
            return;
        }
        // No thread to be had: if none will come for the jobs, they block the caller rather than wait for ever. All of them:
        // another's may be there whose thread was refused as well, or that may not have one.
        let mut state = lock(&pool.state);
        state.threads -= 1;
        state.idle -= 1;
        let jobs = if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
        drop(state);
        // What blocks may need more stack than a fiber has. The caller's being cancelled is nothing to it.
        on_large_stack(|| scheduler::outside_fibers(|| jobs.into_iter().for_each(contained)));
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        state.idle -= 1;
        loop {
            if state.threads > state.threads_max {
                // It may have been told of a job, and nobody else.
                state.threads -= 1;
                self.wake.notify_one();
                return;
            }
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // What panics is a value that nobody took, as it was dropped.
                contained(job);
                state = lock(&self.state);
                continue;
            }
            if state.closed {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let (woken, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}
