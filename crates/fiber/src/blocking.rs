//! Where does code run that blocks and cannot be told otherwise?

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::scheduler::{self, Place};

/// The default of [`set_blocking_threads_max`]: as many blocking calls at once as a busy server's database pool and
/// file reads need, and few enough that their stacks do not matter.
const THREADS_MAX: usize = 512;

/// An unused thread stays so long for the next call.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    threads_max: usize,
}

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

static POOL: Pool = Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), idle: 0, threads: 0, threads_max: THREADS_MAX }),
    wake: Condvar::new(),
};

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
    let Place::Fiber(core, fiber) = scheduler::place() else { return f() };
    let slot = Arc::new(Mutex::new(None));
    let (theirs, remote) = (Arc::clone(&slot), core.remote());
    POOL.submit(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        *lock(&theirs) = Some(result);
        remote.wake_fiber(fiber);
    }));
    loop {
        core.park(fiber);
        // The guard must be gone before the fiber is suspended again.
        let result = lock(&slot).take();
        match result {
            Some(Ok(value)) => return value,
            Some(Err(payload)) => resume_unwind(payload),
            None => {}
        }
    }
}

/// Sets how many threads [`blocking`] uses at most, in the whole process; further calls wait in a queue. The default
/// is 512, and 0 counts as 1. Threads are started when needed and end after 10 s without work.
pub fn set_blocking_threads_max(threads: usize) {
    lock(&POOL.state).threads_max = threads.max(1);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn submit(&'static self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        // A thread that was notified but has not woken yet counts as idle still, and its job as queued.
        if state.jobs.len() > state.idle && state.threads < state.threads_max {
            state.threads += 1;
            drop(state);
            self.start();
        } else {
            drop(state);
            self.wake.notify_one();
        }
    }

    fn start(&'static self) {
        let started = thread::Builder::new().name("fiber-blocking".into()).spawn(|| self.work());
        if started.is_ok() {
            return;
        }
        // No thread to be had: if none will come for the job, it blocks the caller rather than wait for ever.
        let mut state = lock(&self.state);
        state.threads -= 1;
        let job = if state.threads == 0 { state.jobs.pop_front() } else { None };
        drop(state);
        if let Some(job) = job {
            job();
        }
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
                continue;
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
