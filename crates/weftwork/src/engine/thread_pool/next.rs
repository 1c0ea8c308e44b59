//! The next step of a pool thread: it takes a job, watches for events, parks, or exits.

use std::time::Duration;

use super::{EventSource, State, ThreadPool, WATCH_TIMEOUT, Watched, Work};
use crate::engine::sync::{Guard, Ordering, lock};

/// The error of a closed pool, or of a pool with one thread too many.
struct Closed;

impl<J, S: EventSource> ThreadPool<J, S> {
    /// Waits for work. Returns `None` if the thread must exit, because the server stops or enough other threads are
    /// idle. The thread is then counted out.
    ///
    /// The caller calls [`ThreadPool::note_done`] after the work. If `is_fair`, an event comes before the next job,
    /// because the thread has just had a job.
    pub(in crate::engine) fn next(&self, is_fair: bool, spawn: &impl Fn()) -> Option<Work<J, S::Event>> {
        if is_fair && self.has_queue() && self.source.expects_events() {
            let watched = self.source.watch(Duration::ZERO);
            if let Some(event) = self.arrive(watched, spawn) {
                return Some(event);
            }
        }
        let mut is_patient = true;
        loop {
            match self.take(spawn) {
                Ok(Some(job)) => return Some(Work::Job(job)),
                Ok(None) => {}
                Err(Closed) => return None,
            }
            // The last thread that watches continues as long as events may come.
            let may_watch = is_patient || self.watching() == 0;
            if may_watch && self.source.expects_events() && !self.is_needed_elsewhere() {
                let watched = self.watch();
                is_patient = !matches!(watched, Watched::TimedOut);
                if let Some(work) = self.arrive(watched, spawn) {
                    return Some(work);
                }
            } else if self.park() {
                self.note_arrival();
                is_patient = true;
            } else if self.try_retire() {
                return None;
            }
        }
    }

    /// Whether the thread is reserved.
    fn is_needed_elsewhere(&self) -> bool {
        self.reserved.load(Ordering::SeqCst) > 0 && self.is_reserved(&lock(&self.state), self.parked())
    }

    fn watch(&self) -> Watched<S::Event> {
        self.watching.fetch_add(1, Ordering::SeqCst);
        // A job that was pushed before this thread counted wakes no thread.
        let is_wanted = self.is_wanted(&lock(&self.state), self.parked());
        let watched = if is_wanted { Watched::Woken } else { self.source.watch(WATCH_TIMEOUT) };
        self.watching.fetch_sub(1, Ordering::SeqCst);
        watched
    }

    /// Returns false if no thread was to be woken for the keep-alive time.
    fn park(&self) -> bool {
        let mut state = lock(&self.state);
        // A job that was pushed before this thread counts wakes no thread.
        if self.is_wanted(&state, self.parked()) {
            return true;
        }
        self.parked.fetch_add(1, Ordering::SeqCst);
        state = self.wait_parked(state);
        if state.wakeups > 0 {
            state.wakeups -= 1;
            return true;
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
        state.closed
    }

    #[cfg(not(loom))]
    fn wait_parked<'a>(&self, state: Guard<'a, State<J>>) -> Guard<'a, State<J>> {
        let waited = self
            .unparked
            .wait_timeout_while(state, self.limits.keep_alive, |state| state.wakeups == 0 && !state.closed);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// loom has no clock, so the model waits until the thread is woken, or until [`ThreadPool::expire`].
    #[cfg(loom)]
    fn wait_parked<'a>(&self, mut state: Guard<'a, State<J>>) -> Guard<'a, State<J>> {
        while state.wakeups == 0 && !state.closed && !std::mem::take(&mut state.expires) {
            state = self.unparked.wait(state).unwrap();
        }
        state
    }

    /// Notes that a thread has returned from its wait.
    fn arrive(&self, watched: Watched<S::Event>, spawn: &impl Fn()) -> Option<Work<J, S::Event>> {
        self.note_arrival();
        let Watched::Event(event) = watched else { return None };
        self.busy.fetch_add(1, Ordering::SeqCst);
        // The thread may have been woken for a job, or may have been the last that watched.
        if self.has_queue() || self.is_missed() {
            self.request_thread(spawn);
        }
        Some(Work::Event(event))
    }

    /// Whether no thread watches for events, and no thread will soon.
    fn is_missed(&self) -> bool {
        let is_missed = match self.limits.starts_ahead {
            true => self.stats().idle == 0,
            false => self.source.expects_events() && self.watching() == 0 && self.parked() > 0,
        };
        is_missed && !self.returns_soon()
    }

    /// Notes that the thread on its way has arrived. A new thread must call this, too, before it checks the queue.
    pub(in crate::engine) fn note_arrival(&self) {
        // The swap ensures that this thread sees the job of a thread that saw the flag and has pushed before.
        self.on_its_way.swap(false, Ordering::SeqCst);
    }

    fn take(&self, spawn: &impl Fn()) -> Result<Option<J>, Closed> {
        let mut state = lock(&self.state);
        if state.closed {
            self.count_out(&mut state);
            drop(state);
            // One thread that watches wakes the next.
            self.source.wake_one();
            return Err(Closed);
        }
        // A job in front has needed a spare thread. Now there is one too many.
        if state.threads > self.limits.threads_max && state.urgent == 0 {
            self.count_out(&mut state);
            let has_queue = !state.queue.is_empty();
            drop(state);
            if has_queue {
                // It may have been woken for a job.
                self.request_thread(spawn);
            }
            return Err(Closed);
        }
        if !self.is_wanted(&state, self.parked()) {
            return Ok(None);
        }
        state.urgent = state.urgent.saturating_sub(1);
        let job = state.queue.pop_front();
        self.busy.fetch_add(usize::from(job.is_some()), Ordering::SeqCst);
        self.note_length(&state);
        let is_more = !state.queue.is_empty();
        drop(state);
        if is_more || job.is_some() && self.is_missed() {
            self.request_thread(spawn);
        }
        Ok(job)
    }

    /// Returns false if a job has come, or if too few idle threads would be left.
    fn try_retire(&self) -> bool {
        let mut state = lock(&self.state);
        let is_reserved = self.reserved.load(Ordering::SeqCst) > self.parked();
        let is_spare = self.idle() >= self.limits.idle_kept && !is_reserved;
        let retires = state.queue.is_empty() && !state.closed && is_spare;
        if retires {
            self.count_out(&mut state);
        }
        retires
    }
}
