//! The threads that an engine has started: kept to be joined, and started before they have their work.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::parker::Parker;
use super::thread_pool::{REFUSED_FOR, ThreadPool};
use crate::transport::budget::contain_log;
use crate::transport::context::Context;
use crate::transport::counters::Counters;

/// Who starts threads for others does so this often; then another thread goes on with it.
///
/// The kernel is fair: on a busy core, who has used up a slice waits until all others had as much. With 360 runnable
/// threads that is 150 to 400 ms for each millisecond, and connections wait for their thread meanwhile. A new thread
/// runs within two milliseconds, and has 0.7 ms (Linux 6.18); a start takes 40 us, 130 with cold caches. Of 400
/// connections at once, nine in ten are answered within 0.1 s after up to 4 starts each; 6 fail in one run of eight, 16 mostly
/// (docs/performance.md).
pub(super) const SPAWNS_PER_TURN: usize = 4;

/// For a line of the log.
pub(super) const WHAT_LIMITS_THREADS: &str = "What limits threads: pids.max of the cgroup (docker --pids-limit, systemd \
    TasksMax), RLIMIT_NPROC (ulimit -u), memory";

/// Handles of the threads that may still run.
#[derive(Debug, Default)]
pub(super) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// In tests, the system refuses more threads than these.
    #[cfg(test)]
    given_max: Mutex<Option<usize>>,
}

impl Threads {
    pub(super) fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = self.lock();
        drop_ended(&mut threads);
        threads.push(thread);
    }

    /// To be called by each thread that is about to end: the stack of one that has ended is there until its handle is dropped.
    pub(super) fn sweep(&self) {
        drop_ended(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for every thread to end, for at most `patience`; how many have not.
    pub(super) fn join(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let mut left = 0;
        loop {
            // Some of them start others: what was started while they were taken comes with the next.
            let threads = self.take();
            if threads.is_empty() {
                return left;
            }
            left += super::join_within(threads, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Starts and keeps a thread; `threads` there are with it.
    pub(super) fn spawn(
        &self,
        name: &str,
        #[cfg_attr(not(test), allow(unused_variables))] threads: impl FnOnce() -> usize,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.given_max.lock().unwrap().is_some_and(|max| threads() > max) {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        self.keep(Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn give_at_most(&self, threads: usize) {
        *self.given_max.lock().unwrap() = Some(threads);
    }

    /// All handles, to be joined.
    pub(super) fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.lock())
    }

    /// Starts a thread that `standby` has counted, and that finds its job when it begins. If the system refuses
    /// it, the job is the caller's again, the thread is counted out, and `standby` knows that there is none to be had.
    pub(super) fn start<J>(
        &self,
        standby: &ThreadPool<J>,
        job: J,
        work: impl FnOnce(&Arc<Parker<J>>) + Send + 'static,
    ) -> Result<(), J>
    where
        J: Send + 'static,
    {
        let parker = Parker::new();
        parker.start(job);
        let own = parker.clone();
        match self.spawn("weft", || standby.count().0, move || work(&own)) {
            Ok(()) => Ok(()),
            Err(error) => {
                if let Some(threads) = standby.note_refusal() {
                    // A log that panics must not take the job along: it may be a loop, with its connections.
                    contain_log(|| log_spawn_error(&error, threads));
                }
                parker.first().map_or(Ok(()), Err)
            }
        }
    }
}

fn drop_ended(threads: &mut Vec<JoinHandle<()>>) {
    threads.retain(|thread| !thread.is_finished());
}

pub(super) fn log_spawn_error(error: &io::Error, threads: usize) {
    log::error!(
        "the system refuses another thread ({error}); this server has {threads}, requests wait for one of them, and the \
         next try comes after {REFUSED_FOR:?}. {WHAT_LIMITS_THREADS}"
    );
}

/// An upgraded connection ends, for want of a thread. Its client has read that it is upgraded: only the log can say why.
pub(super) fn shed_upgrade(cx: &Context) {
    Counters::count(&cx.counters.shed);
    let knobs = cx.settings.show(&["threads_max", "queue_max"]);
    cx.warn_of_want(format_args!(
        "an upgraded connection was ended, there is no thread for it ({knobs}). {WHAT_LIMITS_THREADS}"
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
            threads.sweep();
            threads.lock().is_empty()
        });
    }
}
