//! The thread pool for blocking calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::large_stack::on_large_stack_if_possible;
use crate::scheduler;
use crate::task::catch_panic;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct State {
    /// Waiting jobs by number, the oldest first.
    jobs: BTreeMap<u64, Job>,
    /// Number of jobs submitted so far.
    submitted: u64,
    /// Threads about to check for jobs: idle, just started, or notified and not yet awake.
    idle: usize,
    threads: usize,
    threads_max: usize,
    /// Maximum number of calls that wait for a thread.
    waiting_max: usize,
    /// Asked before a thread is started.
    may_start: fn() -> bool,
    /// Whether the pool is closed. Idle threads then end at once.
    closed: bool,
}

/// The waiting calls, and the threads that run one call at a time.
pub(crate) struct Pool {
    state: Mutex<State>,
    wake: Condvar,
    /// Number of threads that the system refused to start.
    refusals: AtomicU64,
}

/// A waiting job. On drop, the job is removed if no thread has taken it.
pub(crate) struct Queued<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let job = self.pool.lock().jobs.remove(&self.number);
        // The fiber may be unwinding, and a second panic must not occur.
        catch_panic(|| drop(job));
    }
}

/// All threads of a [`BlockingPool`](crate::BlockingPool) are in use, and the maximum number of calls is
/// waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFull;

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all threads for blocking calls are in use, and the queue is full")
    }
}

impl std::error::Error for PoolFull {}

impl Pool {
    /// Creates a pool without threads. It has at most `threads_max` threads (0 counts as 1) and `waiting_max`
    /// waiting calls.
    pub(crate) fn new(threads_max: usize, waiting_max: usize) -> Arc<Pool> {
        let state = State {
            jobs: BTreeMap::new(),
            submitted: 0,
            idle: 0,
            threads: 0,
            threads_max: threads_max.max(1),
            waiting_max,
            may_start: || true,
            closed: false,
        };
        Arc::new(Pool { state: Mutex::new(state), wake: Condvar::new(), refusals: AtomicU64::new(0) })
    }

    pub(crate) fn set_may_start(&self, may_start: fn() -> bool) {
        self.lock().may_start = may_start;
    }

    /// Returns the number of threads, including idle ones.
    pub(crate) fn threads(&self) -> usize {
        self.lock().threads
    }

    /// Returns the number of threads in a call.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.threads - state.idle
    }

    /// Returns how often the system refused to start a thread.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Sets the maximum number of threads. If calls wait and more threads are allowed, starts them.
    pub(crate) fn set_threads_max(self: &Arc<Pool>, threads: usize) {
        let mut state = self.lock();
        state.threads_max = threads.max(1);
        let waiting = state.jobs.len().saturating_sub(state.idle);
        let more = waiting.min(state.threads_max.saturating_sub(state.threads));
        state.threads += more;
        state.idle += more;
        drop(state);
        (0..more).for_each(|_| self.start());
    }

    /// Closes the pool: drops waiting jobs and ends the threads.
    pub(crate) fn close(&self) {
        let jobs = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.wake.notify_all();
        // A panic in one drop must not prevent the others.
        jobs.into_values().for_each(|job| catch_panic(|| drop(job)));
    }

    /// Runs `job` on an existing or new thread. If there is no thread and the system starts none, the caller
    /// runs it.
    pub(crate) fn submit(self: &Arc<Pool>, job: Job) -> Result<Queued<'_>, PoolFull> {
        let mut state = self.lock();
        let waiting = state.jobs.len().checked_sub(state.idle);
        let may_start = state.threads < state.threads_max;
        if !may_start && waiting.is_some_and(|waiting| waiting >= state.waiting_max) {
            return Err(PoolFull);
        }
        state.submitted += 1;
        let queued = Queued { pool: self, number: state.submitted };
        state.jobs.insert(queued.number, job);
        if waiting.is_some() && may_start {
            state.threads += 1;
            state.idle += 1;
            drop(state);
            self.start();
        } else {
            drop(state);
            self.wake.notify_one();
        }
        Ok(queued)
    }

    fn start(self: &Arc<Pool>) {
        let (own, may_start) = (Arc::clone(self), self.lock().may_start);
        let start = || thread::Builder::new().name("fiber-blocking".into()).spawn(move || own.work());
        if may_start() && start().is_ok() {
            return;
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.threads -= 1;
        state.idle -= 1;
        if state.threads > 0 {
            return;
        }
        // No thread will take the jobs, so the caller runs them all. Another thread's job may be among them,
        // whose thread was refused too.
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        // Blocking code may need more stack than a fiber has. Cancelling the caller must not interrupt the
        // jobs.
        on_large_stack_if_possible(|| scheduler::outside_fibers(|| jobs.into_values().for_each(catch_panic)));
    }

    fn work(&self) {
        let mut state = self.lock();
        state.idle -= 1;
        loop {
            if state.threads > state.threads_max {
                // This thread may be the only one that was notified of a job.
                state.threads -= 1;
                self.wake.notify_one();
                return;
            }
            if let Some((_, job)) = state.jobs.pop_first() {
                drop(state);
                // A panic can only come from a value that no fiber took.
                catch_panic(job);
                state = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;
    use std::sync::mpsc;

    use super::*;

    /// Panics without a payload that takes memory, because nothing frees it.
    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new(()));
        }
    }

    #[test]
    fn a_queued_job_that_panics_when_it_is_dropped_keeps_no_other_from_being_dropped() {
        let pool = Pool::new(1, 3);
        let wait_list = Arc::new(Mutex::new(()));
        let held = wait_list.lock().unwrap();
        let theirs = Arc::clone(&wait_list);
        let (ends, ended) = mpsc::channel::<()>();
        let _busy = pool.submit(Box::new(move || drop(theirs.lock()))).unwrap();
        let _waits = [1, 2].map(|_| {
            let (ends, panics) = (ends.clone(), Panics);
            pool.submit(Box::new(move || std::mem::forget((ends, panics)))).unwrap()
        });
        drop(ends);
        pool.close();
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        drop(held);
    }
}
