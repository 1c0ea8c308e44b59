//! The threads that an engine has started: kept to be joined, and started before they have their work.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::standby::{Berth, Standby};

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

    /// All handles, to be joined.
    pub(super) fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a thread that `standby` has counted. It has no job yet: if the system refuses it, the job is
    /// still the caller's, and the thread is counted out again.
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
        let own = berth.clone();
        match Builder::new().name("weft".into()).spawn(move || work(&own)) {
            Ok(thread) => {
                berth.start(job);
                self.keep(thread);
                Ok(())
            }
            Err(error) => {
                log::error!("the system refuses another thread: {error}");
                standby.leave();
                Err(job)
            }
        }
    }
}
