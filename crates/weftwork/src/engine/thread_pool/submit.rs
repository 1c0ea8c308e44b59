//! Puts jobs into the queue: at its end, in front, or as trials between these.

use super::{EventSource, ThreadPool};
use crate::engine::sync::{Ordering, lock};

impl<J, S: EventSource> ThreadPool<J, S> {
    /// Submits a job. Returns the job if the queue is full. `spawn` starts a thread that is already counted.
    pub(in crate::engine) fn submit(&self, job: J, spawn: impl Fn()) -> Result<(), J> {
        let mut state = lock(&self.state);
        if state.closed || !self.has_room_in(&state) {
            return Err(job);
        }
        state.queue.push_back(job);
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
        Ok(())
    }

    /// Submits a job that is probably quick: in front of the jobs that wait, except for those that were [submitted in
    /// front](ThreadPool::submit_front). One thread beyond `threads_max` may be started for such jobs. Returns the job if the
    /// queue is full and that thread has work.
    pub(in crate::engine) fn submit_trial(&self, job: J, spawn: impl Fn()) -> Result<(), J> {
        let mut state = lock(&self.state);
        let threads = self.without_work(&state) + state.startable_up_to(self.limits.threads_max + 1);
        // One may wait beyond `queue_max`, because the thread of the last trial may be about to return.
        if state.closed || threads < state.trials && !self.has_room_in(&state) {
            return Err(job);
        }
        let at = state.urgent + state.trials;
        state.queue.insert(at, job);
        state.trials += 1;
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
        Ok(())
    }

    /// Puts a trial behind all jobs. Returns the job unless the thread that has taken it is beyond `threads_max`.
    pub(in crate::engine) fn postpone_trial(&self, job: J) -> Option<J> {
        let mut state = lock(&self.state);
        if state.closed || state.threads <= self.limits.threads_max {
            return Some(job);
        }
        state.queue.push_back(job);
        self.note_length(&state);
        None
    }

    /// Submits a job in front of all others. The job is never rejected. It is dropped if the server has stopped.
    /// `has_reserve` tells whether a thread is [reserved](ThreadPool::reserve) for the job. That ends here.
    pub(in crate::engine) fn submit_front(&self, job: J, has_reserve: bool, spawn: impl Fn()) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.queue.push_front(job);
        state.urgent += 1;
        // With the lock held. Later, the thread would count twice, and a job could be rejected for which a thread is free.
        self.reserved.fetch_sub(usize::from(has_reserve), Ordering::SeqCst);
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
    }
}
