//! Threads that wait for work, and work that waits for threads.
//!
//! The threads are a stack, so that the one that ran last runs next and its memory is warm. The work is a
//! bounded queue, which is only used when every thread there may be is busy. Both are behind one lock, so
//! that no thread parks while something waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::parker::{Parker, Wakeup};
use super::sync::{AtomicBool, Condvar, Guard, Mutex, Ordering, lock};

/// When the system has refused a thread, it is asked again after this. What it lacks comes back when other threads end,
/// or an administrator raises a limit: neither is a matter of milliseconds, and each try costs a system call.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(1);

/// The parked threads of a server, and how many threads there are at all. `J` is what they are given to do.
pub(super) struct ThreadPool<J> {
    state: Mutex<State<J>>,
    /// PollEvent when the last thread has left.
    empty: Condvar,
    /// Something is in the queue: to be asked without the lock.
    has_queue: AtomicBool,
    limits: Limits,
}

/// How many threads and how much waiting work there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Parked threads that stay when they are not needed.
    pub(super) kept: usize,
    pub(super) threads_max: usize,
    pub(super) queue_max: usize,
}

struct State<J> {
    parked: Vec<Arc<Parker<J>>>,
    queue: VecDeque<J>,
    threads: usize,
    /// Calls in progress that may turn out to block: for each of them a thread is kept free.
    risks: usize,
    closed: bool,
    shortage: Option<SpawnBackoff>,
}

/// The system gives no more threads than these, as far as is known.
#[derive(Clone, Copy, Debug)]
struct SpawnBackoff {
    threads: usize,
    /// Then it is asked again.
    until: Instant,
}

impl<J> State<J> {
    /// Threads that are parked or may still be started, and that no risk needs.
    fn spare(&self, limits: &Limits) -> usize {
        let startable = self.threads_max(limits).saturating_sub(self.threads);
        (self.parked.len() + startable).saturating_sub(self.risks)
    }

    /// What the settings allow, or what the system gives just now.
    fn threads_max(&self, limits: &Limits) -> usize {
        match self.shortage {
            Some(shortage) if Instant::now() < shortage.until => shortage.threads.min(limits.threads_max),
            _ => limits.threads_max,
        }
    }

    fn may_have_thread(&self, limits: &Limits) -> bool {
        !self.parked.is_empty() || self.threads < self.threads_max(limits)
    }
}

/// The state at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolStats {
    /// Threads that are not parked.
    pub(super) busy: usize,
    pub(super) queued: usize,
}

/// What became of a job that was given away.
#[derive(Debug)]
pub(super) enum Submitted<J> {
    /// A parked thread has it.
    Taken,
    /// Nobody was parked: the caller has to start a thread with it, which is counted already.
    Spawn(J),
    /// All threads are in use, or the server stops.
    Rejected(J),
}

impl<J> Submitted<J> {
    /// Has `start` start the thread that is wanted. The job comes back where nobody takes it.
    pub(super) fn or_start(self, start: impl FnOnce(J) -> Result<(), J>) -> Result<(), J> {
        match self {
            Submitted::Taken => Ok(()),
            Submitted::Spawn(job) => start(job),
            Submitted::Rejected(job) => Err(job),
        }
    }
}

impl<J> ThreadPool<J> {
    pub(super) fn new(limits: Limits) -> ThreadPool<J> {
        let state = State {
            parked: Vec::new(),
            queue: VecDeque::new(),
            threads: 0,
            risks: 0,
            closed: false,
            shortage: None,
        };
        ThreadPool {
            state: Mutex::new(state),
            empty: Condvar::new(),
            has_queue: AtomicBool::new(false),
            limits,
        }
    }

    /// Hands `job` to the thread that was parked last, or says that one has to be started. Refused when every
    /// thread is in use, or needed for a risk.
    pub(super) fn give(&self, job: J) -> Submitted<J> {
        let state = lock(&self.state);
        if state.spare(&self.limits) == 0 {
            return Submitted::Rejected(job);
        }
        let kept = state.risks;
        self.hand_over(state, job, kept)
    }

    /// As [`give`](ThreadPool::give), for the job that comes before all others. `at_risk`: a thread was kept free for
    /// it, and is by now either used or not needed.
    pub(super) fn give_at_any_rate(&self, job: J, at_risk: bool) -> Submitted<J> {
        let mut state = lock(&self.state);
        state.risks -= usize::from(at_risk);
        self.hand_over(state, job, 0)
    }

    /// So many of the parked threads are `kept`: they are there already, one that is to be started may be refused.
    fn hand_over(&self, mut state: Guard<'_, State<J>>, job: J, kept: usize) -> Submitted<J> {
        if state.closed {
            return Submitted::Rejected(job);
        }
        if state.parked.len() > kept
            && let Some(parker) = state.parked.pop()
        {
            drop(state);
            parker.wake(Wakeup::Job(job));
            return Submitted::Taken;
        }
        if state.threads >= state.threads_max(&self.limits) {
            return Submitted::Rejected(job);
        }
        state.threads += 1;
        Submitted::Spawn(job)
    }

    /// As [`give`](ThreadPool::give), but a job that is refused waits for the first thread that is free, if the
    /// queue has room.
    pub(super) fn give_or_queue(&self, job: J) -> Submitted<J> {
        match self.give(job) {
            Submitted::Rejected(job) => {
                self.queue(job).map_or_else(Submitted::Rejected, |()| Submitted::Taken)
            }
            given => given,
        }
    }

    /// The job waits for the first thread that is free. Gives it back when the queue is full.
    pub(super) fn queue(&self, job: J) -> Result<(), J> {
        let mut state = lock(&self.state);
        if state.closed || state.queue.len() >= self.limits.queue_max {
            return Err(job);
        }
        state.queue.push_back(job);
        self.settle(state);
        Ok(())
    }

    /// Hands the job that has waited longest to a thread of its own, if there may be one more and any waits.
    pub(super) fn call_for_queue(&self) -> Option<Submitted<J>> {
        let mut state = lock(&self.state);
        if state.spare(&self.limits) == 0 {
            return None;
        }
        let job = state.queue.pop_front()?;
        self.note(&state);
        let kept = state.risks;
        Some(self.hand_over(state, job, kept))
    }

    /// What waits is for the caller, who is not counted, where there is no thread and the system gives none. It is counted from
    /// here on, and leaves `next` for the first thread that is free, itself perhaps. Threads that have left such a job are none.
    pub(super) fn take_alone(&self, next: J, is_left: impl Fn(&J) -> bool) -> Option<J> {
        let mut state = lock(&self.state);
        let left = state.queue.iter().filter(|job| is_left(job)).count();
        if state.threads > left || state.may_have_thread(&self.limits) {
            return None;
        }
        let at = state.queue.iter().position(|job| !is_left(job))?;
        let job = state.queue.remove(at);
        state.queue.push_front(next);
        state.threads += 1;
        job
    }

    /// For what cannot be refused: the job is the next that a thread takes. Dropped if the server stops.
    pub(super) fn queue_first(&self, job: J) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.queue.push_front(job);
        self.settle(state);
    }

    /// A thread that has parked does not look at the queue any more: if one is to spare, it is called.
    fn settle(&self, mut state: Guard<'_, State<J>>) {
        let to_spare = state.parked.len() > state.risks && !state.queue.is_empty();
        let called = if to_spare { state.parked.pop().zip(state.queue.pop_front()) } else { None };
        self.note(&state);
        drop(state);
        if let Some((parker, job)) = called {
            parker.wake(Wakeup::Job(job));
        }
    }

    /// Somebody is about to do what may block, and holds what another thread would then have to take. True: a parked
    /// thread is kept for that until [`ThreadPool::risk_is_over`] or [`ThreadPool::give_at_any_rate`]. False: none is parked
    /// that nobody else needs, do not do it. One that could be started is no promise: the system may refuse it.
    pub(super) fn risk(&self) -> bool {
        let mut state = lock(&self.state);
        let granted = state.parked.len() > state.risks;
        state.risks += usize::from(granted);
        granted
    }

    /// The end of a risk that was granted and did not come true.
    pub(super) fn risk_is_over(&self) {
        let mut state = lock(&self.state);
        state.risks -= 1;
        self.settle(state);
    }

    /// Another job would find a thread.
    pub(super) fn has_thread(&self) -> bool {
        lock(&self.state).may_have_thread(&self.limits)
    }

    /// Another job would find a thread, or a place in the queue.
    pub(super) fn has_room(&self) -> bool {
        let state = lock(&self.state);
        state.may_have_thread(&self.limits) || state.queue.len() < self.limits.queue_max
    }

    /// For whom a job was refused just now: there are no more threads than these, and none of them is parked. Whether the system
    /// may give another by now is not asked: it would not be the refusal's answer, and the job would wait for that thread.
    pub(super) fn has_only(&self, count: usize) -> bool {
        let state = lock(&self.state);
        !state.closed && state.threads <= count && state.parked.is_empty()
    }

    /// What waits where there is no thread, and so nobody to take it.
    pub(super) fn take_deserted(&self) -> VecDeque<J> {
        let mut state = lock(&self.state);
        let deserted = if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        self.note(&state);
        deserted
    }

    /// All threads that the settings allow are there: who gets none now waits for one of them.
    pub(super) fn is_at_limit(&self) -> bool {
        lock(&self.state).threads >= self.limits.threads_max
    }

    /// Work waits for a thread: this is no time to wait for a client.
    pub(super) fn has_queue(&self) -> bool {
        self.has_queue.load(Ordering::Relaxed)
    }

    /// A job of this kind waits for a thread.
    pub(super) fn is_queued(&self, is_of_kind: impl Fn(&J) -> bool) -> bool {
        self.has_queue() && lock(&self.state).queue.iter().any(is_of_kind)
    }

    /// A thread takes what waits in the queue, or parks until it is given a job. None: it has to end, after
    /// [`ThreadPool::leave`].
    ///
    /// It ends when the server stops, and when it was not needed for `patience` and enough others are parked.
    pub(super) fn wait(&self, parker: &Arc<Parker<J>>, patience: Duration) -> Option<J> {
        {
            let mut state = lock(&self.state);
            if let Some(job) = state.queue.pop_front() {
                self.note(&state);
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.parked.push(parker.clone());
        }
        loop {
            match parker.sleep(patience) {
                Wakeup::Job(job) => return Some(job),
                Wakeup::Exit => return None,
                Wakeup::None if self.may_leave(parker) => return None,
                Wakeup::None => {}
            }
        }
    }

    /// Takes a parker off the stack if others are enough. False also when a job is already on its way to it.
    fn may_leave(&self, parker: &Arc<Parker<J>>) -> bool {
        let mut state = lock(&self.state);
        let place = state.parked.iter().position(|other| Arc::ptr_eq(other, parker));
        match place {
            Some(place) if state.parked.len() > self.limits.kept.max(state.risks) => {
                state.parked.remove(place);
                true
            }
            _ => false,
        }
    }

    /// A thread that was counted ends.
    pub(super) fn leave(&self) {
        self.count_out(&mut lock(&self.state));
    }

    fn count_out(&self, state: &mut State<J>) {
        state.threads -= 1;
        if state.threads == 0 {
            self.empty.notify_all();
        }
    }

    /// The system has refused a thread that was counted: for [`REFUSED_FOR`], no more are promised or started than there
    /// are. How many that is, when it is news.
    pub(super) fn note_refusal(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        self.count_out(&mut state);
        let (threads, now) = (state.threads, Instant::now());
        let known = state.shortage.filter(|shortage| now < shortage.until);
        let until = known.map_or(now + REFUSED_FOR, |shortage| shortage.until);
        state.shortage = Some(SpawnBackoff { threads, until });
        known.is_none().then_some(threads)
    }

    /// Wakes every parked thread to end it, and lets no other park.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let parked = std::mem::take(&mut state.parked);
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        for parker in parked {
            parker.wake(Wakeup::Exit);
        }
        // Not under the lock: what the jobs hold may be the user's, and ask how many threads there are.
        drop(queue);
    }

    /// Threads there are, and how many of them are parked.
    pub(super) fn count(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.threads, state.parked.len())
    }

    pub(super) fn stats(&self) -> PoolStats {
        let state = lock(&self.state);
        PoolStats { busy: state.threads - state.parked.len(), queued: state.queue.len() }
    }

    fn note(&self, state: &State<J>) {
        self.has_queue.store(!state.queue.is_empty(), Ordering::Relaxed);
    }

    /// Waits until no thread is left, for at most `patience`. Returns how many are.
    #[cfg(not(loom))]
    pub(super) fn wait_until_empty(&self, patience: Duration) -> usize {
        let state = lock(&self.state);
        let waited = self.empty.wait_timeout_while(state, patience, |state| state.threads > 0);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.threads
    }

    /// loom has no clock: the model waits until they are gone.
    #[cfg(loom)]
    pub(super) fn wait_until_empty(&self, _: Duration) -> usize {
        let mut state = lock(&self.state);
        while state.threads > 0 {
            state = self.empty.wait(state).unwrap();
        }
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
