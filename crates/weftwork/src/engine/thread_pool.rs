//! A pool of threads: one queue of jobs, and a source of events that idle threads watch.
//!
//! A job that is submitted wakes one idle thread, or has one started, unless a thread is on its way to the queue already.
//! A thread that takes a job and leaves others behind does the same for the next thread. So threads are woken and
//! started one at a time, and a thread that comes back from its work in the meantime takes what is there without a wake-up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Guard, Mutex, Ordering, lock};

/// Time without new threads after the system has refused one. What the system lacks comes back when other threads end or
/// when an administrator raises a limit. Neither is a matter of milliseconds, and each try costs a system call.
pub(super) const SPAWN_BACKOFF: Duration = Duration::from_secs(1);

/// How long a thread watches for events before it parks, if another one watches. An idle moment of many clients is shorter.
const WATCH_TIMEOUT: Duration = Duration::from_millis(20);

/// If a thread has come back within this time, the next one is expected to. To wake a thread on a busy core takes 50 us.
const RETURNS_SOON: Duration = Duration::from_micros(100);

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
    /// Threads that are parked, or are about to be.
    parked: AtomicUsize,
    /// Wakes one parked thread.
    unparked: Condvar,
    /// A thread was woken or started, and has not looked at the queue yet.
    on_its_way: AtomicBool,
    /// When a thread came back from its work last, in nanoseconds since the start.
    returned: AtomicU64,
    started: Instant,
    limits: Limits,
    pub(super) source: S,
}

struct State<J> {
    queue: VecDeque<J>,
    threads: usize,
    /// Wake-ups for parked threads that no thread has had yet.
    wakeups: usize,
    closed: bool,
    /// The system has refused a thread: no other is started before then.
    backoff: Option<Instant>,
}

/// What became of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Submitted<J> {
    /// A thread comes for it.
    Taken,
    /// All threads are busy, and there may be no more: it waits for the next one that is free.
    Queued,
    /// The queue is full, or the server stops.
    Rejected(J),
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
        if self.closed || self.backoff.is_some_and(|until| Instant::now() < until) {
            return 0;
        }
        limits.threads_max.saturating_sub(self.threads)
    }
}

impl<J, S: EventSource> ThreadPool<J, S> {
    pub(super) fn new(limits: Limits, source: S) -> ThreadPool<J, S> {
        let state = State { queue: VecDeque::new(), threads: 0, wakeups: 0, closed: false, backoff: None };
        ThreadPool {
            state: Mutex::new(state),
            empty: Condvar::new(),
            queued: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            unparked: Condvar::new(),
            on_its_way: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            started: Instant::now(),
            limits,
            source,
        }
    }

    /// Gives a job to the pool. `spawn` starts a thread that is counted already.
    pub(super) fn submit(&self, job: J, spawn: impl Fn()) -> Submitted<J> {
        let mut state = lock(&self.state);
        let free = self.idle() + state.startable(&self.limits);
        if state.closed || state.queue.len() >= free + self.limits.queue_max {
            return Submitted::Rejected(job);
        }
        let is_late = state.queue.len() >= free;
        state.queue.push_back(job);
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
        if is_late { Submitted::Queued } else { Submitted::Taken }
    }

    /// Gives a job to the pool that comes before all others and is never rejected. It is dropped if the server has stopped.
    pub(super) fn submit_front(&self, job: J, spawn: impl Fn()) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.queue.push_front(job);
        self.note_length(&state);
        drop(state);
        self.request_thread(&spawn);
    }

    /// As [`submit_front`](ThreadPool::submit_front) if a thread can take the job now. Otherwise gives it back.
    pub(super) fn try_submit_front(&self, job: J, spawn: impl Fn()) -> Result<(), J> {
        let state = lock(&self.state);
        if self.idle() + state.startable(&self.limits) <= state.queue.len() {
            return Err(job);
        }
        drop(state);
        self.submit_front(job, spawn);
        Ok(())
    }

    /// Wakes an idle thread or starts one, unless one is on its way.
    pub(super) fn request_thread(&self, spawn: &impl Fn()) {
        while !self.on_its_way.swap(true, Ordering::SeqCst) {
            // Not loads, which may be of counts from before a thread went to wait.
            if self.watching.fetch_add(0, Ordering::SeqCst) > 0 {
                return self.source.wake_one();
            }
            // On a busy core a wake-up puts the waker aside. A thread that comes back soon does not.
            let returns_soon = self.returns_soon();
            if !returns_soon {
                if self.parked.fetch_add(0, Ordering::SeqCst) > 0 {
                    return self.unpark_one();
                }
                if self.count_in() {
                    return spawn();
                }
            }
            // A job may have been pushed meanwhile, by a thread that saw one on its way.
            self.on_its_way.swap(false, Ordering::SeqCst);
            if self.queued() == 0 || self.watching() == 0 && (returns_soon || self.parked() == 0) {
                return;
            }
        }
    }

    fn unpark_one(&self) {
        lock(&self.state).wakeups += 1;
        self.unparked.notify_one();
    }

    /// Starts a thread, whether one is on its way or comes back soon.
    pub(super) fn add_thread(&self, spawn: &impl Fn()) {
        if self.watching() > 0 {
            self.source.wake_one();
        } else if self.parked() > 0 {
            self.unpark_one();
        } else if self.count_in() {
            spawn();
        }
    }

    /// Counts a thread that is about to be started. False: there may be no more.
    pub(super) fn count_in(&self) -> bool {
        let mut state = lock(&self.state);
        let may_start = state.startable(&self.limits) > 0;
        state.threads += usize::from(may_start);
        may_start
    }

    /// The system has refused a thread that was counted. Returns how many threads there are, if this is news.
    pub(super) fn note_spawn_error(&self) -> Option<usize> {
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

    /// Waits for work. `None`: the thread has to exit, since the server stops, or since other idle threads are enough. It is
    /// counted out then.
    ///
    /// `is_fair`: an event comes before the next job, as the thread has just had a job.
    pub(super) fn next(&self, is_fair: bool, spawn: &impl Fn()) -> Option<Work<J, S::Event>> {
        if is_fair && self.has_queue() && self.source.expects_events() {
            let watched = self.source.watch(Duration::ZERO);
            if let Some(work) = self.arrive(watched, spawn) {
                return Some(work);
            }
        }
        let mut is_patient = true;
        loop {
            match self.take(spawn) {
                Ok(Some(job)) => return Some(Work::Job(job)),
                Ok(None) => {}
                Err(Closed) => return None,
            }
            // The last thread that watches goes on, for as long as events may come.
            if self.source.expects_events() && (is_patient || self.watching.load(Ordering::SeqCst) == 0) {
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

    fn watch(&self) -> Watched<S::Event> {
        self.watching.fetch_add(1, Ordering::SeqCst);
        // A job that was pushed before this thread counted wakes no thread.
        let watched = if self.is_wanted() { Watched::Woken } else { self.source.watch(WATCH_TIMEOUT) };
        self.watching.fetch_sub(1, Ordering::SeqCst);
        watched
    }

    /// False: nothing was to be done for the keep-alive time.
    fn park(&self) -> bool {
        self.parked.fetch_add(1, Ordering::SeqCst);
        let mut state = lock(&self.state);
        let is_woken = |state: &mut State<J>| state.wakeups > 0 || state.closed || !state.queue.is_empty();
        if !is_woken(&mut state) {
            state = self.wait_parked(state, is_woken);
        }
        let woken = is_woken(&mut state);
        state.wakeups = state.wakeups.saturating_sub(1);
        drop(state);
        self.parked.fetch_sub(1, Ordering::SeqCst);
        woken
    }

    #[cfg(not(loom))]
    fn wait_parked<'a>(
        &self,
        state: Guard<'a, State<J>>,
        is_woken: impl Fn(&mut State<J>) -> bool,
    ) -> Guard<'a, State<J>> {
        let waited =
            self.unparked.wait_timeout_while(state, self.limits.keep_alive, |state| !is_woken(state));
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// loom has no clock: the model waits until the thread is woken.
    #[cfg(loom)]
    fn wait_parked<'a>(
        &self,
        mut state: Guard<'a, State<J>>,
        is_woken: impl Fn(&mut State<J>) -> bool,
    ) -> Guard<'a, State<J>> {
        while !is_woken(&mut state) {
            state = self.unparked.wait(state).unwrap();
        }
        state
    }

    fn is_wanted(&self) -> bool {
        self.has_queue() || lock(&self.state).closed
    }

    /// A thread has come back from its wait.
    fn arrive(&self, watched: Watched<S::Event>, spawn: &impl Fn()) -> Option<Work<J, S::Event>> {
        self.note_arrival();
        let Watched::Event(event) = watched else { return None };
        // It may have been woken for a job, or have been the last that watched.
        if self.has_queue() || self.is_missed() && (self.limits.starts_ahead || self.parked() > 0) {
            self.request_thread(spawn);
        }
        Some(Work::Event(event))
    }

    /// No thread waits for what may come, and none will soon.
    fn is_missed(&self) -> bool {
        let is_missed = match self.limits.starts_ahead {
            true => self.idle() == 0,
            false => self.source.expects_events() && self.watching.load(Ordering::SeqCst) == 0,
        };
        is_missed && !self.returns_soon()
    }

    /// The thread that was on its way is here. To be called by a new thread, too, before it looks at the queue.
    pub(super) fn note_arrival(&self) {
        // A swap: a thread that saw the flag has pushed its job before, and this thread sees that job.
        self.on_its_way.swap(false, Ordering::SeqCst);
    }

    fn take(&self, spawn: &impl Fn()) -> Result<Option<J>, Closed> {
        let mut state = lock(&self.state);
        if state.closed {
            self.count_out(&mut state);
            drop(state);
            // One thread that watches tells the next.
            self.source.wake_one();
            return Err(Closed);
        }
        let job = state.queue.pop_front();
        self.note_length(&state);
        let is_more = !state.queue.is_empty();
        drop(state);
        if is_more || job.is_some() && self.is_missed() && (self.limits.starts_ahead || self.parked() > 0) {
            self.request_thread(spawn);
        }
        Ok(job)
    }

    /// False: a job has come, or too few idle threads would be left.
    fn try_retire(&self) -> bool {
        let mut state = lock(&self.state);
        let retires = state.queue.is_empty() && !state.closed && self.idle() >= self.limits.idle_kept;
        if retires {
            self.count_out(&mut state);
        }
        retires
    }

    /// A thread that was counted ends, for another reason than that [`ThreadPool::next`] has retired it.
    pub(super) fn leave(&self) {
        self.count_out(&mut lock(&self.state));
    }

    fn count_out(&self, state: &mut State<J>) {
        state.threads -= 1;
        if state.threads == 0 {
            self.empty.notify_all();
        }
    }

    fn note_length(&self, state: &State<J>) {
        self.queued.store(state.queue.len(), Ordering::SeqCst);
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::SeqCst)
    }

    /// Jobs wait: this is no time to wait for a client.
    #[inline]
    pub(super) fn has_queue(&self) -> bool {
        self.queued() > 0
    }

    /// A job of this kind waits.
    pub(super) fn is_queued(&self, is_of_kind: impl Fn(&J) -> bool) -> bool {
        self.has_queue() && lock(&self.state).queue.iter().any(is_of_kind)
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
        self.idle() > 0 || lock(&self.state).startable(&self.limits) > 0
    }

    /// Another job would find a thread, or a place in the queue.
    pub(super) fn has_room(&self) -> bool {
        let state = lock(&self.state);
        state.queue.len() < self.idle() + state.startable(&self.limits) + self.limits.queue_max
    }

    /// All threads that the settings allow are there.
    pub(super) fn is_at_limit(&self) -> bool {
        lock(&self.state).threads >= self.limits.threads_max
    }

    /// A thread has come back from its work.
    #[inline]
    pub(super) fn note_return(&self, at: Instant) {
        let nanos = at.saturating_duration_since(self.started).as_nanos() as u64;
        self.returned.store(nanos, Ordering::Relaxed);
    }

    /// A thread came back so short a while ago that the next one is taken to come back sooner than a thread could be woken.
    fn returns_soon(&self) -> bool {
        let returned = Duration::from_nanos(self.returned.load(Ordering::Relaxed));
        !returned.is_zero() && self.started.elapsed() < returned + RETURNS_SOON
    }

    pub(super) fn stats(&self) -> PoolStats {
        let state = lock(&self.state);
        PoolStats { threads: state.threads, idle: self.idle(), queued: state.queue.len() }
    }

    /// Takes all jobs that wait.
    pub(super) fn drain_queue(&self) -> VecDeque<J> {
        let mut state = lock(&self.state);
        let queue = std::mem::take(&mut state.queue);
        self.note_length(&state);
        queue
    }

    /// Ends every thread that is idle, and each of the others after its work.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        // Not under the lock: what the jobs own may be the user's, and ask how many threads there are.
        drop(self.drain_queue());
        self.unparked.notify_all();
        self.source.wake_one();
    }

    /// Waits until every thread has left, at most for the timeout. Returns how many have not.
    #[cfg(not(loom))]
    pub(super) fn wait_until_empty(&self, timeout: Duration) -> usize {
        let state = lock(&self.state);
        let waited = self.empty.wait_timeout_while(state, timeout, |state| state.threads > 0);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.threads
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

/// The pool is closed.
struct Closed;

#[cfg(all(test, not(loom)))]
mod tests;
