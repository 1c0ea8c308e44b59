//! Keeps the handles of an engine's threads, and the state of a thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::log_caught_panic;
use super::thread_pool::{EventSource, SPAWN_BACKOFF, ThreadPool, Work};
use crate::transport::context::Context;
use crate::transport::events::{Event, ShedReason};
use crate::transport::log_queue::log_line;
use crate::transport::thread_memory;
use crate::transport::{BufferPool, CallSlot, DateCache};

/// Text for log lines.
pub(super) const THREAD_LIMITS: &str = "What limits threads: pids.max of the cgroup (docker --pids-limit, systemd \
    TasksMax), RLIMIT_NPROC (ulimit -u), memory";

/// Handles of threads that may still run.
#[derive(Debug, Default)]
pub(super) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// In tests, the number of threads that the system allows.
    #[cfg(test)]
    given_max: Mutex<Option<usize>>,
}

impl Threads {
    fn keep(&self, thread: JoinHandle<()>) {
        self.reap();
        self.lock().push(thread);
    }

    /// Drops the handles of threads that have ended. Each thread calls this before it ends, because a stack is kept
    /// until its handle is dropped.
    pub(super) fn reap(&self) {
        self.lock().retain(|thread| !thread.is_finished());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for every thread to end, for at most `timeout`. Returns how many have not ended.
    pub(super) fn join(&self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        let mut left = 0;
        loop {
            // Threads start other threads. Threads that were started meanwhile are joined in the next round.
            let threads = self.take();
            if threads.is_empty() {
                return left;
            }
            left += super::join_within(threads, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Starts and keeps a thread.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.keep(thread_memory::spawn_first(name, work)?);
        Ok(())
    }

    /// Returns the number of threads that have not ended.
    pub(super) fn len(&self) -> usize {
        self.reap();
        self.lock().len()
    }

    #[cfg(test)]
    pub(super) fn give_at_most(&self, threads: usize) {
        *self.given_max.lock().unwrap() = Some(threads);
    }

    /// Returns all handles.
    pub(super) fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.lock())
    }

    /// Runs a pool thread until the pool retires it. `spawn` starts another thread. `then` gets what the work has left, when
    /// the thread counts as free again.
    ///
    /// A panic outside of handlers is a bug of Weftwork. It costs the connection that was being served.
    pub(super) fn work<J, S: EventSource, R>(
        &self,
        pool: &ThreadPool<J, S>,
        spawn: &impl Fn(),
        mut perform: impl FnMut(Work<J, S::Event>) -> R,
        then: impl Fn(R),
    ) {
        let mut leave = LeavePool { threads: self, pool, is_counted: true };
        let mut had_job = false;
        pool.note_arrival();
        while let Some(work) = pool.next(had_job, spawn) {
            had_job = matches!(work, Work::Job(_));
            let done = catch_unwind(AssertUnwindSafe(|| perform(work)));
            pool.note_done();
            match done {
                Ok(left) => then(left),
                Err(_) => log_caught_panic(),
            }
        }
        leave.is_counted = false;
    }

    /// Starts a thread that the pool has counted. If the system refuses it, the thread is counted out, and the log says so.
    ///
    /// `is_first`: it is one of those that the engine needs. Others leave room for allocations.
    pub(super) fn start<J: Send + 'static, S: EventSource>(
        &self,
        pool: &ThreadPool<J, S>,
        is_first: bool,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        #[cfg(test)]
        let is_refused = self.given_max.lock().unwrap().is_some_and(|max| pool.stats().threads > max);
        #[cfg(not(test))]
        let is_refused = false;
        let started = match (is_refused, is_first) {
            (true, _) => Err(rustix::io::Errno::AGAIN.into()),
            (false, true) => self.spawn("weft", work),
            (false, false) => thread_memory::spawn("weft", work).map(|thread| self.keep(thread)),
        };
        if let Err(error) = &started
            && let Some(threads) = pool.note_spawn_error()
        {
            log_spawn_error(error, threads);
        }
        started
    }
}

/// The state of a thread.
pub(super) struct ThreadState {
    pub(super) dates: DateCache,
    pub(super) pool: BufferPool,
    pub(super) slot: Arc<CallSlot>,
}

impl ThreadState {
    pub(super) fn new(cx: &Context) -> ThreadState {
        ThreadState {
            dates: DateCache::new(cx.clock.now()),
            pool: BufferPool::of_thread(&cx.shared_budget),
            slot: cx.watchdog.call_slot(),
        }
    }
}

/// Counts a thread out of its pool, unless the pool has done so.
struct LeavePool<'a, J, S: EventSource> {
    threads: &'a Threads,
    pool: &'a ThreadPool<J, S>,
    is_counted: bool,
}

impl<J, S: EventSource> Drop for LeavePool<'_, J, S> {
    fn drop(&mut self) {
        self.threads.reap();
        if self.is_counted {
            self.pool.leave();
        }
    }
}

pub(super) fn log_spawn_error(error: &io::Error, threads: usize) {
    log_line!(
        Error,
        "the system refuses another thread ({error}); this server has {threads}, requests wait for one of them, and the \
         next try comes after {SPAWN_BACKOFF:?}. {THREAD_LIMITS}"
    );
}

/// Ends an upgraded connection for which no thread is free. The client has already read the 101, so only the log can
/// name the reason.
pub(super) fn shed_upgrade(cx: &Context) {
    cx.record(Event::Shed(ShedReason::NoThread));
    let limits = cx.settings.show(&["threads_max", "queue_max"]);
    cx.warn_resources(format_args!(
        "an upgraded connection was ended, there is no thread for it ({limits}). {THREAD_LIMITS}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::burst::eventually;

    #[test]
    fn of_threads_that_have_ended_nothing_is_kept() {
        let threads = Threads::default();
        (0..20).for_each(|_| threads.keep(std::thread::spawn(|| ())));
        eventually("they have ended", || {
            threads.reap();
            threads.lock().is_empty()
        });
    }
}
