//! The thread pool: one queue of jobs, and a source of events that idle threads watch.
//!
//! A submitted job wakes or starts one thread, unless a thread is already on its way to the queue. A thread that
//! takes a job and leaves other jobs in the queue wakes or starts the next thread. So threads are woken and started
//! one at a time. A thread that finishes its work in the meantime takes a job without a wake-up.

mod next;
mod request;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, lock};

/// Time without new threads after the system has refused one. The system has resources again when other threads end,
/// or when an administrator raises a limit. Both take longer than milliseconds, and each attempt costs a system call.
pub(super) const SPAWN_BACKOFF: Duration = Duration::from_secs(1);

/// Time for which a thread watches for events before it parks, if another thread watches. Many clients are idle for a
/// shorter time.
const WATCH_TIMEOUT: Duration = Duration::from_millis(20);

/// A source of work besides the queue, which the threads of a pool watch.
pub(super) trait EventSource {
    type Event;
    /// Whether an event may come.
    fn expects_events(&self) -> bool;
    /// Waits for an event, for [`EventSource::wake_one`], or for the timeout.
    fn watch(&self, timeout: Duration) -> Watched<Self::Event>;
    /// Ends the wait of one thread. If no thread waits, the next thread does not wait.
    fn wake_one(&self);
}

/// The end of a wait for events.
pub(super) enum Watched<E> {
    #[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
    Event(E),
    Woken,
    TimedOut,
}

/// The source of a pool that has only its queue.
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

/// The next work of a thread.
#[derive(Debug)]
pub(super) enum Work<J, E> {
    Job(J),
    Event(E),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of idle threads that stay when there is no work.
    pub(super) idle_kept: usize,
    pub(super) threads_max: usize,
    /// Threads beyond `threads_max`, for jobs in front alone.
    pub(super) spare: usize,
    /// Maximum number of jobs that wait while every thread is busy.
    pub(super) queue_max: usize,
    /// Whether the last idle thread that takes work starts another thread ahead of need.
    pub(super) starts_ahead: bool,
    /// Time after which a thread without work exits, unless it must stay.
    pub(super) keep_alive: Duration,
}

pub(super) struct ThreadPool<J, S> {
    state: Mutex<State<J>>,
    /// Notified when the last thread has left.
    empty: Condvar,
    /// Length of the queue, for reads without the lock.
    queued: AtomicUsize,
    /// Threads that wait for an event, or are about to.
    watching: AtomicUsize,
    /// Threads that are parked or about to park, and were not woken. Changed only under the lock.
    parked: AtomicUsize,
    /// Wakes one parked thread.
    unparked: Condvar,
    /// Whether a thread was woken or started, and has not checked the queue yet.
    on_its_way: AtomicBool,
    /// Idle threads that are reserved for jobs in front of the queue.
    reserved: AtomicUsize,
    /// Threads that have work.
    busy: AtomicUsize,
    /// The last time at which a thread finished its work, in nanoseconds since the start.
    returned: AtomicU64,
    /// Mean time between two such moments, in nanoseconds.
    return_gap: AtomicU64,
    started: Instant,
    limits: Limits,
    pub(super) source: S,
}

struct State<J> {
    queue: VecDeque<J>,
    /// Number of jobs that were submitted at the front of the queue.
    urgent: usize,
    threads: usize,
    /// Wake-ups for parked threads that no thread has received yet.
    wakeups: usize,
    closed: bool,
    /// If the system has refused a thread: the time before which no thread is started.
    backoff: Option<Instant>,
    /// Whether the wait of one thread must time out. loom has no clock.
    #[cfg(loom)]
    expires: bool,
}

/// The numbers of the pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolStats {
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) queued: usize,
}

impl<J> State<J> {
    /// Number of threads that may still be started.
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

    /// Submits a job. Returns the job if the queue is full. `spawn` starts a thread that is already counted.
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

    /// Submits a job in front of all others. The job is never rejected. It is dropped if the server has stopped.
    /// `has_reserve` tells whether a thread is [reserved](ThreadPool::reserve) for the job. That ends here.
    pub(super) fn submit_front(&self, job: J, has_reserve: bool, spawn: impl Fn()) {
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

    /// Whether a thread can take a job [in front](ThreadPool::submit_front) now. `has_reserve` tells whether a thread
    /// is [reserved](ThreadPool::reserve) for that job.
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
            // A thread may have gone to wait meanwhile, and may have left a job in the queue.
            self.unreserve(spawn);
        }
        is_granted
    }

    /// Ends the reservation. The job in front was submitted or is not needed, and the thread may take other jobs.
    pub(super) fn unreserve(&self, spawn: impl Fn()) {
        self.reserved.fetch_sub(1, Ordering::SeqCst);
        // This is not a load, for the same reason as in `request_thread`.
        if self.queued.fetch_add(0, Ordering::SeqCst) > 0 {
            self.request_thread(&spawn);
        }
    }

    /// Whether a thread that takes other work now would be a reserved thread, and no other thread can be started.
    /// `parked` is the number of other parked threads.
    fn is_reserved(&self, state: &State<J>, parked: usize) -> bool {
        let reserved = self.reserved.load(Ordering::SeqCst);
        reserved > 0 && reserved > parked + state.startable(&self.limits)
    }

    /// Whether the queue has work for a thread besides which `parked` threads are parked, or the thread must exit.
    fn is_wanted(&self, state: &State<J>, parked: usize) -> bool {
        state.closed || state.urgent > 0 || !state.queue.is_empty() && !self.is_reserved(state, parked)
    }

    /// Notes that the work from [`ThreadPool::next`] is done.
    pub(super) fn note_done(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a thread out that ends, unless [`ThreadPool::next`] has retired it.
    pub(super) fn leave(&self) {
        self.count_out(&mut lock(&self.state));
        // The thread may have died on its way to the queue.
        self.note_arrival();
    }

    fn count_out(&self, state: &mut State<J>) {
        state.threads -= 1;
        if state.threads == 0 {
            self.empty.notify_all();
        }
    }

    fn note_length(&self, state: &State<J>) {
        // A swap costs as much as a store on x86. loom needs it, because loom has no single order of all SeqCst
        // accesses.
        self.queued.swap(state.queue.len(), Ordering::SeqCst);
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::SeqCst)
    }

    /// Whether jobs wait, so that a thread must not wait for a client.
    #[inline]
    pub(super) fn has_queue(&self) -> bool {
        self.queued() > 0
    }

    /// Whether a job in front of the queue waits, and no thread is free for it.
    pub(super) fn is_starved(&self) -> bool {
        self.has_queue() && {
            let state = lock(&self.state);
            state.urgent > self.without_work(&state) + state.startable_in_front(&self.limits)
        }
    }

    /// Whether a job waits for which no thread is free and none can be started. While threads can be started, they take
    /// the jobs, so that no connection has to end for them.
    pub(super) fn is_short(&self) -> bool {
        self.has_queue() && {
            let state = lock(&self.state);
            state.queue.len() > self.free(&state)
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

    /// Number of threads that wait for events.
    pub(super) fn watching(&self) -> usize {
        self.watching.load(Ordering::SeqCst)
    }

    /// Whether another job would find a thread.
    pub(super) fn has_thread(&self) -> bool {
        let state = lock(&self.state);
        self.free(&state) > state.queue.len()
    }

    /// Whether another job would find a thread, or a place in the queue.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_in(&lock(&self.state))
    }

    fn has_room_in(&self, state: &State<J>) -> bool {
        state.queue.len() < self.free(state) + self.limits.queue_max
    }

    /// Number of threads for another job, including threads that may be started.
    fn free(&self, state: &State<J>) -> usize {
        let reserved = self.reserved.load(Ordering::SeqCst);
        (self.without_work(state) + state.startable(&self.limits)).saturating_sub(reserved)
    }

    /// The same, for another job in front.
    fn free_in_front(&self, state: &State<J>) -> usize {
        let reserved = self.reserved.load(Ordering::SeqCst);
        (self.without_work(state) + state.startable_in_front(&self.limits)).saturating_sub(reserved)
    }

    /// Number of threads that wait, or are about to check the queue.
    fn without_work(&self, state: &State<J>) -> usize {
        state.threads.saturating_sub(self.busy.load(Ordering::SeqCst))
    }

    /// Whether all threads that the settings allow exist.
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

    /// Takes all waiting jobs.
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

    /// Waits until every thread has left, for at most the timeout. Returns the number of threads that have not left.
    #[cfg(not(loom))]
    pub(super) fn wait_until_empty(&self, timeout: Duration) -> usize {
        let state = lock(&self.state);
        let waited = self.empty.wait_timeout_while(state, timeout, |state| state.threads > 0);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.threads
    }

    /// Lets the wait of one parked thread time out, or of the next thread that parks.
    #[cfg(loom)]
    pub(super) fn expire(&self) {
        lock(&self.state).expires = true;
        self.unparked.notify_all();
    }

    /// loom has no clock, so the model waits until all threads have left.
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
