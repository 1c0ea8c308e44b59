//! A pool of threads: one queue of jobs, and a source of events that idle threads watch.
//!
//! A job that is submitted wakes one idle thread, or has one started, unless a thread is on its way to the queue already.
//! A thread that takes a job and leaves others behind does the same for the next thread. So threads are woken and
//! started one at a time, and a thread that comes back from its work in the meantime takes what is there without a wake-up.

mod next;
mod request;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, lock};

/// Time without new threads after the system has refused one. What the system lacks comes back when other threads end or
/// when an administrator raises a limit. Neither is a matter of milliseconds, and each try costs a system call.
pub(super) const SPAWN_BACKOFF: Duration = Duration::from_secs(1);

/// How long a thread watches for events before it parks, if another one watches. An idle moment of many clients is shorter.
const WATCH_TIMEOUT: Duration = Duration::from_millis(20);

/// Where threads of a pool watch for work that comes by itself, beside the queue.
pub(super) trait EventSource {
    type Event;
    /// An event may come.
    fn expects_events(&self) -> bool;
    /// Waits for an event, for [`EventSource::wake_one`], or for the timeout.
    fn watch(&self, timeout: Duration) -> Watched<Self::Event>;
    /// Ends the wait of one thread. If no thread waits, the next one does not wait.
    fn wake_one(&self);
}

/// What ended a wait for events.
pub(super) enum Watched<E> {
    #[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
    Event(E),
    Woken,
    TimedOut,
}

/// A pool that works off its queue alone.
pub(super) struct NoEvents;

impl EventSource for NoEvents {
    type Event = std::convert::Infallible;

    fn expects_events(&self) -> bool {
        false
    }

    fn watch(&self, _: Duration) -> Watched<Self::Event> {
        Watched::TimedOut
    }

    fn wake_one(&self) {}
}

/// What a thread does next.
#[derive(Debug)]
pub(super) enum Work<J, E> {
    Job(J),
    Event(E),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Idle threads that stay when there is no work.
    pub(super) idle_kept: usize,
    pub(super) threads_max: usize,
    /// Threads beyond `threads_max`, for jobs in front alone.
    pub(super) spare: usize,
    /// Jobs that wait while every thread is busy.
    pub(super) queue_max: usize,
    /// The last idle thread that takes work has another one started ahead.
    pub(super) starts_ahead: bool,
    /// A thread without work for this long exits, unless it is one of those that stay.
    pub(super) keep_alive: Duration,
}

pub(super) struct ThreadPool<J, S> {
    state: Mutex<State<J>>,
    /// Notified when the last thread has left.
    empty: Condvar,
    /// Length of the queue, to be read without the lock.
    queued: AtomicUsize,
    /// Threads that wait for an event, or are about to.
    watching: AtomicUsize,
    /// Threads that are parked, or are about to be, and were not woken. Changed with the lock held.
    parked: AtomicUsize,
    /// Wakes one parked thread.
    unparked: Condvar,
    /// A thread was woken or started, and has not looked at the queue yet.
    on_its_way: AtomicBool,
    /// Idle threads that are kept for a job that may be submitted in front.
    reserved: AtomicUsize,
    /// Threads that have work.
    busy: AtomicUsize,
    /// When a thread came back from its work last, in nanoseconds since the start.
    returned: AtomicU64,
    /// Mean time between two returns, in nanoseconds.
    return_gap: AtomicU64,
    started: Instant,
    limits: Limits,
    pub(super) source: S,
}

struct State<J> {
    queue: VecDeque<J>,
    /// Jobs at the front of the queue that were submitted there.
    urgent: usize,
    threads: usize,
    /// Wake-ups for parked threads that no thread has had yet.
    wakeups: usize,
    closed: bool,
    /// The system has refused a thread: no other is started before then.
    backoff: Option<Instant>,
    /// One thread that waits is to time out. loom has no clock.
    #[cfg(loom)]
    expires: bool,
}

/// The pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolStats {
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) queued: usize,
}

impl<J> State<J> {
    /// How many more threads may be started now.
    fn startable(&self, limits: &Limits) -> usize {
        self.startable_up_to(limits.threads_max)
    }

    /// The same, for jobs in front.
    fn startable_in_front(&self, limits: &Limits) -> usize {
        self.startable_up_to(limits.threads_max + limits.spare)
    }

    fn startable_up_to(&self, threads_max: usize) -> usize {
        if self.closed || self.backoff.is_some_and(|until| Instant::now() < until) {
            return 0;
        }
        threads_max.saturating_sub(self.threads)
    }
}

impl<J, S: EventSource> ThreadPool<J, S> {
    pub(super) fn new(limits: Limits, source: S) -> ThreadPool<J, S> {
        let state = State {
            queue: VecDeque::new(),
            urgent: 0,
            threads: 0,
            wakeups: 0,
            closed: false,
            backoff: None,
            #[cfg(loom)]
            expires: false,
        };
        ThreadPool {
            state: Mutex::new(state),
            empty: Condvar::new(),
            queued: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            unparked: Condvar::new(),
            on_its_way: AtomicBool::new(false),
            reserved: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            returned: AtomicU64::new(0),
            return_gap: AtomicU64::new(request::RETURN_GAP_MAX),
            started: Instant::now(),
            limits,
            source,
        }
    }

    /// Gives a job to the pool, or back if the queue is full. `spawn` starts a thread that is counted already.
    pub(super) fn submit(&self, job: J, spawn: impl Fn()) -> Result<(), J> {
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

    /// Gives a job to the pool that comes before all others and is never rejected. It is dropped if the server has stopped.
    pub(super) fn submit_front(&self, job: J, spawn: impl Fn()) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.queue.push_front(job);
        state.urgent += 1;
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
    }

    /// A thread can take a job now that is [submitted in front](ThreadPool::submit_front). `has_reserve`: one thread is
    /// [reserved](ThreadPool::reserve) for that job.
    pub(super) fn has_thread_in_front(&self, has_reserve: bool) -> bool {
        let state = lock(&self.state);
        self.free_in_front(&state) + usize::from(has_reserve) > state.urgent
    }

    /// Keeps a parked thread for a job that may be [submitted in front](ThreadPool::submit_front). False: no thread is parked. A thread
    /// that would have to be started does not count, since the system may refuse it. Nor does a spare thread: the call that the
    /// thread is kept for would then be one more than `threads_max` allows.
    pub(super) fn reserve(&self, spawn: impl Fn()) -> bool {
        if self.parked() == 0 {
            return false;
        }
        let reserved = self.reserved.fetch_add(1, Ordering::SeqCst);
        let is_granted = reserved < self.parked.fetch_add(0, Ordering::SeqCst);
        if !is_granted {
            // A thread may have gone to wait meanwhile, and have left a job in the queue.
            self.unreserve(spawn);
        }
        is_granted
    }

    /// The job in front was submitted, or is not needed: the thread may take other jobs.
    pub(super) fn unreserve(&self, spawn: impl Fn()) {
        self.reserved.fetch_sub(1, Ordering::SeqCst);
        // Not a load, for the same reason as in `request_thread`.
        if self.queued.fetch_add(0, Ordering::SeqCst) > 0 {
            self.request_thread(&spawn);
        }
    }

    /// A thread that takes other work now would be one of those that are reserved, and no other can be started. `parked`: how many
    /// other threads are.
    fn is_reserved(&self, state: &State<J>, parked: usize) -> bool {
        let reserved = self.reserved.load(Ordering::SeqCst);
        reserved > 0 && reserved > parked + state.startable(&self.limits)
    }

    /// There is work in the queue for a thread beside which so many are parked, or the thread has to exit.
    fn is_wanted(&self, state: &State<J>, parked: usize) -> bool {
        state.closed || state.urgent > 0 || !state.queue.is_empty() && !self.is_reserved(state, parked)
    }

    /// The work that [`ThreadPool::next`] has returned is done.
    pub(super) fn note_done(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// A thread that was counted ends, for another reason than that [`ThreadPool::next`] has retired it.
    pub(super) fn leave(&self) {
        self.count_out(&mut lock(&self.state));
        // It may have died on its way.
        self.note_arrival();
    }

    fn count_out(&self, state: &mut State<J>) {
        state.threads -= 1;
        if state.threads == 0 {
            self.empty.notify_all();
        }
    }

    fn note_length(&self, state: &State<J>) {
        // A swap, which costs what a store does on x86: loom knows of no one order of all SeqCst accesses.
        self.queued.swap(state.queue.len(), Ordering::SeqCst);
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::SeqCst)
    }

    /// Jobs wait: this is no time to wait for a client.
    #[inline]
    pub(super) fn has_queue(&self) -> bool {
        self.queued() > 0
    }

    /// A job in front of the queue waits, and no thread is free for it.
    pub(super) fn is_starved(&self) -> bool {
        self.has_queue() && {
            let state = lock(&self.state);
            state.urgent > self.without_work(&state) + state.startable_in_front(&self.limits)
        }
    }

    /// Threads that wait for work.
    #[inline]
    pub(super) fn idle(&self) -> usize {
        self.watching.fetch_add(0, Ordering::SeqCst) + self.parked.fetch_add(0, Ordering::SeqCst)
    }

    fn parked(&self) -> usize {
        self.parked.load(Ordering::SeqCst)
    }

    /// Threads that wait for events.
    pub(super) fn watching(&self) -> usize {
        self.watching.load(Ordering::SeqCst)
    }

    /// Another job would find a thread.
    pub(super) fn has_thread(&self) -> bool {
        let state = lock(&self.state);
        self.free(&state) > state.queue.len()
    }

    /// Another job would find a thread, or a place in the queue.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_in(&lock(&self.state))
    }

    fn has_room_in(&self, state: &State<J>) -> bool {
        state.queue.len() < self.free(state) + self.limits.queue_max
    }

    /// Threads that another job would find, with those that may be started.
    fn free(&self, state: &State<J>) -> usize {
        let reserved = self.reserved.load(Ordering::SeqCst);
        (self.without_work(state) + state.startable(&self.limits)).saturating_sub(reserved)
    }

    /// The same, for another job in front.
    fn free_in_front(&self, state: &State<J>) -> usize {
        let reserved = self.reserved.load(Ordering::SeqCst);
        (self.without_work(state) + state.startable_in_front(&self.limits)).saturating_sub(reserved)
    }

    /// Threads that wait, or are about to look at the queue.
    fn without_work(&self, state: &State<J>) -> usize {
        state.threads.saturating_sub(self.busy.load(Ordering::SeqCst))
    }

    /// All threads that the settings allow are there.
    pub(super) fn is_at_limit(&self) -> bool {
        lock(&self.state).threads >= self.limits.threads_max
    }

    pub(super) fn stats(&self) -> PoolStats {
        let state = lock(&self.state);
        PoolStats {
            threads: state.threads,
            idle: state.threads.saturating_sub(self.busy.load(Ordering::SeqCst)),
            queued: state.queue.len(),
        }
    }

    /// Returns how many jobs wait that were not submitted in front.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(super) fn waiting(&self) -> usize {
        let state = lock(&self.state);
        state.queue.len().saturating_sub(state.urgent)
    }

    /// Takes all jobs that wait.
    pub(super) fn drain_queue(&self) -> VecDeque<J> {
        let mut state = lock(&self.state);
        let queue = std::mem::take(&mut state.queue);
        state.urgent = 0;
        self.note_length(&state);
        queue
    }

    /// Ends every thread that is idle, and each of the others after its work. Returns the jobs that wait.
    #[must_use]
    pub(super) fn close(&self) -> VecDeque<J> {
        lock(&self.state).closed = true;
        let jobs = self.drain_queue();
        self.unparked.notify_all();
        self.source.wake_one();
        jobs
    }

    /// Waits until every thread has left, at most for the timeout. Returns how many have not.
    #[cfg(not(loom))]
    pub(super) fn wait_until_empty(&self, timeout: Duration) -> usize {
        let state = lock(&self.state);
        let waited = self.empty.wait_timeout_while(state, timeout, |state| state.threads > 0);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.threads
    }

    /// The wait of one thread that is parked, or of the next one that parks, times out.
    #[cfg(loom)]
    pub(super) fn expire(&self) {
        lock(&self.state).expires = true;
        self.unparked.notify_all();
    }

    /// loom has no clock: the model waits until all threads have left.
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
