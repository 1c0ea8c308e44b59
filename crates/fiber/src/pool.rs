//! Which thread makes a blocking call?

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::large_stack::on_large_stack_if_possible;
use crate::scheduler;
use crate::task::catch_panic;

/// An unused thread stays so long for the next call.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct State {
    /// Those that no thread has taken, by their numbers, so the oldest first.
    jobs: BTreeMap<u64, Job>,
    /// Jobs there have been.
    submitted: u64,
    /// Threads that are about to look at the jobs: without one, just started, or notified and not awake yet.
    idle: usize,
    threads: usize,
    threads_max: usize,
    /// Calls that may wait for a thread.
    waiting_max: usize,
    /// Nobody calls any more: threads without work end at once.
    closed: bool,
}

/// The calls that wait, and the threads of which each makes one at a time.
pub(crate) struct Pool {
    state: Mutex<State>,
    wake: Condvar,
    /// How often the system has refused a thread.
    refusals: AtomicU64,
}

/// A job's place among those that wait. Dropped, it takes along a job that no thread has taken.
pub(crate) struct Queued<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let job = self.pool.lock().jobs.remove(&self.number);
        // Whoever waited may unwind, which what the job holds must not meet with a panic.
        catch_panic(|| drop(job));
    }
}

/// Every thread of a [`BlockingPool`](crate::BlockingPool) is in use, and as many calls wait for one as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFull;

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every thread for blocking calls is in use, and too many calls wait for one")
    }
}

impl std::error::Error for PoolFull {}

impl Pool {
    /// A pool without threads yet, of at most `threads_max` (0 counts as 1), for which at most `waiting_max` calls wait.
    pub(crate) fn new(threads_max: usize, waiting_max: usize) -> Arc<Pool> {
        let state = State {
            jobs: BTreeMap::new(),
            submitted: 0,
            idle: 0,
            threads: 0,
            threads_max: threads_max.max(1),
            waiting_max,
            closed: false,
        };
        Arc::new(Pool { state: Mutex::new(state), wake: Condvar::new(), refusals: AtomicU64::new(0) })
    }

    /// Threads there are now, those without work among them.
    pub(crate) fn threads(&self) -> usize {
        self.lock().threads
    }

    /// Threads that are in a call now.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.threads - state.idle
    }

    /// How often the system has refused it a thread.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Where calls wait and more threads are allowed now, they are started.
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

    /// Nobody calls any more: drops what waits, and has the threads end.
    pub(crate) fn close(&self) {
        let jobs = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.wake.notify_all();
        // What panics as it is dropped keeps no other from being dropped.
        jobs.into_values().for_each(|job| catch_panic(|| drop(job)));
    }

    /// Has a thread run `job`, one that is there or a new one; the caller where there is none and none can be started.
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
        let own = Arc::clone(self);
        let started = thread::Builder::new().name("fiber-blocking".into()).spawn(move || own.work());
        if started.is_ok() {
            return;
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.threads -= 1;
        state.idle -= 1;
        if state.threads > 0 {
            return;
        }
        // No thread will come for the jobs: they block the caller rather than wait for ever. All of them, since another's
        // may be there whose thread was refused as well, or that may not have one.
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        // What blocks may need more stack than a fiber has. The caller's being cancelled is nothing to it.
        on_large_stack_if_possible(|| scheduler::outside_fibers(|| jobs.into_values().for_each(catch_panic)));
    }

    fn work(&self) {
        let mut state = self.lock();
        state.idle -= 1;
        loop {
            if state.threads > state.threads_max {
                // It may have been told of a job, and nobody else.
                state.threads -= 1;
                self.wake.notify_one();
                return;
            }
            if let Some((_, job)) = state.jobs.pop_first() {
                drop(state);
                // What panics is a value that nobody took, as it was dropped.
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

    /// Without a payload that would take memory: nobody gives it back.
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
