//! The threads that an engine has started: kept to be joined, and started before they have their work.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::standby::{Berth, Standby};

/// Who starts threads for others does so this often; then another thread goes on with it.
///
/// The kernel is fair: on a busy core, who has used up a slice waits until all others had as much. With 360 runnable
/// threads that is 150 to 400 ms for each millisecond, and connections wait for their thread meanwhile. A new thread
/// runs within two milliseconds, and has 0.7 ms (Linux 6.18); a start takes 40 us, 130 with cold caches. Of 400
/// connections at once, nine in ten are answered within 0.1 s after up to 4 starts each; 6 fail in one run of eight, 16 mostly
/// (docs/performance.md).
pub(super) const STARTS_MAX: usize = 4;

/// Handles of the threads that may still run.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Keeps a handle, and drops those of threads that have ended.
    pub(super) fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
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

    /// All handles, to be joined.
    pub(super) fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a thread that `standby` has counted, and that finds its job when it begins. If the system refuses
    /// it, the job is the caller's again, and the thread is counted out.
    pub(super) fn start<J>(
        &self,
        standby: &Standby<J>,
        job: J,
        work: impl FnOnce(&Arc<Berth<J>>) + Send + 'static,
    ) -> Result<(), J>
    where
        J: Send + 'static,
    {
        let berth = Berth::new();
        berth.start(job);
        let own = berth.clone();
        match Builder::new().name("weft".into()).spawn(move || work(&own)) {
            Ok(thread) => {
                self.keep(thread);
                Ok(())
            }
            Err(error) => {
                log::error!("the system refuses another thread: {error}");
                standby.leave();
                berth.first().map_or(Ok(()), Err)
            }
        }
    }
}
