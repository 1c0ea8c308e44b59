//! Gets a thread for a job: wakes or starts a thread, unless a thread comes anyway.

use std::time::{Duration, Instant};

use super::{EventSource, SPAWN_BACKOFF, State, ThreadPool};
use crate::engine::sync::{Ordering, lock};

/// If threads finish work more often than this, no thread is woken. The next thread that finishes takes the job
/// sooner, because waking a thread on a busy core takes 50 us.
const RETURNS_SOON: Duration = Duration::from_micros(100);
/// Upper limit of a counted time between two returns, in nanoseconds.
pub(super) const RETURN_GAP_MAX: u64 = 1_000_000;

impl<J, S: EventSource> ThreadPool<J, S> {
    /// Wakes an idle thread or starts a thread, unless one is on its way.
    pub(in crate::engine) fn request_thread(&self, spawn: &impl Fn()) {
        while !self.on_its_way.swap(true, Ordering::SeqCst) {
            // These are not loads, which might read counts from before a thread went to wait.
            if self.watching.fetch_add(0, Ordering::SeqCst) > 0 {
                return self.source.wake_one();
            }
            // On a busy core, a wake-up suspends the waking thread. A thread that finishes soon does not. A job in
            // front does not wait for such a thread, because it may be a loop with waiting connections.
            let returns_soon = self.returns_soon() && lock(&self.state).urgent == 0;
            if !returns_soon {
                if self.unpark_one() {
                    return;
                }
                if self.count_in_if_busy() {
                    spawn();
                    if self.on_its_way.load(Ordering::SeqCst) {
                        return;
                    }
                    // The thread has arrived already, or the system has refused it.
                }
            }
            // A thread that saw the flag may have pushed a job meanwhile.
            self.on_its_way.swap(false, Ordering::SeqCst);
            if self.queued() == 0 || self.watching() == 0 && (returns_soon || !self.can_be_served()) {
                return;
            }
        }
    }

    /// Wakes a parked thread, which no longer counts as parked. Returns false if no thread is parked.
    fn unpark_one(&self) -> bool {
        let mut state = lock(&self.state);
        if self.parked() == 0 {
            return false;
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
        state.wakeups += 1;
        drop(state);
        self.unparked.notify_one();
        true
    }

    /// Starts a thread, even if another is on its way or finishes soon.
    pub(in crate::engine) fn add_thread(&self, spawn: &impl Fn()) {
        if self.watching() > 0 {
            self.source.wake_one();
        } else if !self.unpark_one() && self.count_in_if_busy() {
            spawn();
        }
    }

    /// Counts a thread like [`count_in`](ThreadPool::count_in), unless a thread is about to check the queue anyway.
    fn count_in_if_busy(&self) -> bool {
        let mut state = lock(&self.state);
        let may_start = self.may_start(&state);
        state.threads += usize::from(may_start);
        may_start
    }

    fn may_start(&self, state: &State<J>) -> bool {
        // Not a load, for the same reason as in `request_thread`: a thread may have taken an event meanwhile.
        let startable = match state.urgent {
            0 => state.startable(&self.limits),
            _ => state.startable_in_front(&self.limits),
        };
        self.busy.fetch_add(0, Ordering::SeqCst) >= state.threads && startable > 0
    }

    /// Whether a thread is parked, or all are busy and another thread may be started.
    fn can_be_served(&self) -> bool {
        let state = lock(&self.state);
        self.parked() > 0 || self.may_start(&state)
    }

    /// Counts a thread that is about to start. Returns false at the limit.
    pub(in crate::engine) fn count_in(&self) -> bool {
        let mut state = lock(&self.state);
        let may_start = state.startable(&self.limits) > 0;
        state.threads += usize::from(may_start);
        may_start
    }

    /// Counts a thread that has work for the rest of a test. Returns false at the limit.
    #[cfg(test)]
    pub(in crate::engine) fn count_busy(&self) -> bool {
        let is_counted = self.count_in();
        self.busy.fetch_add(usize::from(is_counted), Ordering::SeqCst);
        is_counted
    }

    /// Notes that the system has refused a counted thread. Returns the number of threads if the refusal is new.
    pub(in crate::engine) fn note_spawn_error(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        self.count_out(&mut state);
        let now = Instant::now();
        let is_known = state.backoff.is_some_and(|until| now < until);
        state.backoff = Some(now + SPAWN_BACKOFF);
        let threads = state.threads;
        drop(state);
        self.on_its_way.swap(false, Ordering::SeqCst);
        (!is_known).then_some(threads)
    }

    /// Notes that a thread has finished its work at this time.
    #[inline]
    pub(in crate::engine) fn note_return(&self, at: Instant) {
        let nanos = at.saturating_duration_since(self.started).as_nanos() as u64;
        let gap = nanos.saturating_sub(self.returned.swap(nanos, Ordering::Relaxed)).min(RETURN_GAP_MAX);
        // Two threads that count at once may lose one update. The value is an estimate.
        let mean = (self.return_gap.load(Ordering::Relaxed) * 7 + gap) / 8;
        self.return_gap.store(mean, Ordering::Relaxed);
    }

    /// Whether threads finish so often that the next one is sooner than a woken thread.
    pub(super) fn returns_soon(&self) -> bool {
        if self.return_gap.load(Ordering::Relaxed) >= RETURNS_SOON.as_nanos() as u64 {
            return false;
        }
        let returned = Duration::from_nanos(self.returned.load(Ordering::Relaxed));
        self.started.elapsed() < returned + RETURNS_SOON
    }
}
