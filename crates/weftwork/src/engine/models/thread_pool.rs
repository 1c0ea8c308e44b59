//! Models of the thread pool: every job finds a thread, and every thread ends.
//!
//! A job that is lost leaves a thread that waits for it for ever, which loom reports as a deadlock. A thread that is parked
//! has no timeout here, except after [`ThreadPool::expire`].

use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::engine::thread_pool::{EventSource, Limits, NoEvents, ThreadPool, Watched, Work};

/// A source of events that come when a model says so. As with an eventfd, several wake-ups may be one.
#[derive(Default)]
struct Events {
    state: Mutex<Pending>,
    changed: Condvar,
    /// A thread that watches while another one does returns at once, as after its timeout. It parks then.
    has_one_watcher: bool,
}

#[derive(Default)]
struct Pending {
    is_woken: bool,
    events: usize,
    watchers: usize,
}

impl Events {
    fn with_one_watcher() -> Events {
        Events { has_one_watcher: true, ..Events::default() }
    }

    fn bring(&self) {
        self.state.lock().unwrap().events += 1;
        self.changed.notify_one();
    }
}

impl EventSource for Events {
    type Event = ();

    fn expects_events(&self) -> bool {
        true
    }

    fn watch(&self, timeout: Duration) -> Watched<()> {
        let mut state = self.state.lock().unwrap();
        let may_wait = !timeout.is_zero() && !(self.has_one_watcher && state.watchers > 0);
        state.watchers += 1;
        while may_wait && !state.is_woken && state.events == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.watchers -= 1;
        if state.events > 0 {
            state.events -= 1;
            return Watched::Event(());
        }
        match std::mem::take(&mut state.is_woken) {
            true => Watched::Woken,
            false => Watched::TimedOut,
        }
    }

    fn wake_one(&self) {
        self.state.lock().unwrap().is_woken = true;
        self.changed.notify_one();
    }
}

fn limits(threads_max: usize) -> Limits {
    Limits {
        idle_kept: 1,
        threads_max,
        spare: 0,
        queue_max: 9,
        starts_ahead: false,
        keep_alive: Duration::ZERO,
    }
}

type TestPool<S> = Arc<ThreadPool<u32, S>>;

fn pool<S: EventSource>(limits: Limits, source: S) -> TestPool<S> {
    Arc::new(ThreadPool::new(limits, source))
}

/// Starts a thread of the pool, and counts it.
fn start<S, T>(pool: &TestPool<S>, work: impl FnOnce(&TestPool<S>) -> T + 'static) -> thread::JoinHandle<T>
where
    S: EventSource + 'static,
    T: 'static,
{
    assert!(pool.count_in());
    let pool = pool.clone();
    thread::spawn(move || {
        pool.note_arrival();
        work(&pool)
    })
}

fn no_spawn() {
    panic!("all threads are there");
}

fn take_job<S: EventSource>(pool: &TestPool<S>, spawn: &impl Fn()) -> u32 {
    loop {
        let work = pool.next(false, spawn);
        if work.is_some() {
            pool.note_done();
        }
        match work {
            Some(Work::Job(job)) => return job,
            Some(Work::Event(_)) => {}
            None => panic!("the pool is open, and the thread is to stay"),
        }
    }
}

/// Waits for two jobs, and returns their sum.
fn take_two<S: EventSource>(pool: &TestPool<S>) -> u32 {
    take_job(pool, &no_spawn) + take_job(pool, &no_spawn)
}

fn submits<S: EventSource + 'static>(pool: &TestPool<S>, job: u32) -> thread::JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn(move || assert!(pool.submit(job, no_spawn).is_ok()))
}

/// Two threads submit a job each, while the only thread of the pool takes a job and goes to wait.
fn two_submit<S: EventSource + 'static>(source: impl Fn() -> S + Send + Sync + 'static) {
    loom::model(move || {
        let pool = pool(limits(1), source());
        let worker = start(&pool, take_two);
        let other = submits(&pool, 2);
        assert!(pool.submit(1, no_spawn).is_ok());
        other.join().unwrap();
        assert_eq!(worker.join().unwrap(), 3);
    });
}

#[test]
fn loom_thread_pool_two_submit_to_a_thread_that_parks() {
    two_submit(|| NoEvents);
}

#[test]
fn loom_thread_pool_two_submit_to_a_thread_that_watches() {
    two_submit(Events::default);
}

/// The order in which jobs end: the first one after the second.
#[derive(Default)]
struct Done {
    jobs: Mutex<u32>,
    changed: Condvar,
}

impl Done {
    fn work(&self, job: u32) {
        let mut jobs = self.jobs.lock().unwrap();
        while job == 1 && *jobs == 0 {
            jobs = self.changed.wait(jobs).unwrap();
        }
        *jobs += 1;
        self.changed.notify_all();
    }

    fn wait_for(&self, count: u32) {
        let mut jobs = self.jobs.lock().unwrap();
        while *jobs < count {
            jobs = self.changed.wait(jobs).unwrap();
        }
    }
}

/// Two jobs are submitted while two threads go to wait. The second job is not left to the thread that is busy with the first.
fn two_take<S: EventSource + 'static>(source: impl Fn() -> S + Send + Sync + 'static) {
    loom::model(move || {
        let pool = pool(limits(2), source());
        let done = Arc::new(Done::default());
        let workers = [(); 2].map(|()| {
            let done = done.clone();
            start(&pool, move |pool| done.work(take_job(pool, &no_spawn)))
        });
        (1..=2).for_each(|job| assert!(pool.submit(job, no_spawn).is_ok()));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn loom_thread_pool_wakes_a_second_thread_that_parks() {
    two_take(|| NoEvents);
}

#[test]
fn loom_thread_pool_wakes_a_second_thread_that_watches() {
    two_take(Events::default);
}

#[test]
fn loom_thread_pool_wakes_the_thread_that_watches_and_the_one_that_parks() {
    two_take(Events::with_one_watcher);
}

/// An event and a job come at the same time: the thread that was woken for the job may take the event.
#[test]
fn loom_thread_pool_an_event_hides_no_job() {
    loom::model(|| {
        let pool = pool(limits(1), Events::default());
        let worker = start(&pool, |pool| {
            let (mut jobs, mut events) = (0, 0);
            while (jobs, events) != (1, 1) {
                match pool.next(jobs > 0, &no_spawn) {
                    Some(Work::Job(_)) => jobs += 1,
                    Some(Work::Event(())) => events += 1,
                    None => panic!("the pool is open"),
                }
                pool.note_done();
            }
        });
        let brings = {
            let pool = pool.clone();
            thread::spawn(move || pool.source.bring())
        };
        assert!(pool.submit(1, no_spawn).is_ok());
        brings.join().unwrap();
        worker.join().unwrap();
    });
}

/// The threads of a pool that has them started.
struct Starter<S> {
    pool: TestPool<S>,
    threads: Arc<Mutex<Vec<thread::JoinHandle<()>>>>,
    done: Arc<Done>,
}

impl<S> Clone for Starter<S> {
    fn clone(&self) -> Starter<S> {
        Starter { pool: self.pool.clone(), threads: self.threads.clone(), done: self.done.clone() }
    }
}

impl<S: EventSource + 'static> Starter<S> {
    fn new(limits: Limits, source: S) -> Starter<S> {
        Starter { pool: pool(limits, source), threads: Arc::default(), done: Arc::default() }
    }

    /// Starts a thread that is counted already. To it, an event is as the first job.
    fn start(&self) {
        let shared = self.clone();
        let thread = thread::spawn(move || {
            shared.pool.note_arrival();
            while let Some(work) = shared.pool.next(false, &|| shared.start()) {
                match work {
                    Work::Job(job) => shared.done.work(job),
                    Work::Event(_) => shared.done.work(1),
                }
                shared.pool.note_done();
            }
        });
        self.threads.lock().unwrap().push(thread);
    }

    fn submit(&self, job: u32) {
        assert!(self.pool.submit(job, || self.start()).is_ok());
    }

    /// Waits for so many jobs, and then for every thread.
    fn end(self, jobs: u32) {
        self.done.wait_for(jobs);
        drop(self.pool.close());
        assert_eq!(self.pool.wait_until_empty(Duration::ZERO), 0);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// The second job is not left to the thread that is busy with the first.
#[test]
fn loom_thread_pool_starts_a_second_thread() {
    loom::model(|| {
        let starter = Starter::new(limits(2), NoEvents);
        (1..=2).for_each(|job| starter.submit(job));
        starter.end(2);
    });
}

/// The thread that a job has woken takes an event, and is busy with it until the job is done: the job gets another thread.
#[test]
fn loom_thread_pool_starts_a_thread_for_a_job_behind_an_event() {
    loom::model(|| {
        let starter = Starter::new(limits(2), Events::default());
        assert!(starter.pool.count_in());
        starter.start();
        starter.pool.source.bring();
        starter.submit(2);
        starter.end(2);
    });
}

/// A job comes as the only thread has been idle for too long: the thread takes the job, or another one is started.
#[test]
fn loom_thread_pool_submit_against_retire() {
    loom::model(|| {
        let starter = Starter::new(Limits { idle_kept: 0, ..limits(1) }, NoEvents);
        assert!(starter.pool.count_in());
        starter.start();
        starter.pool.expire();
        starter.submit(2);
        starter.end(1);
    });
}

/// A thread takes a job as its wait times out, and is busy: the next job gets another thread.
#[test]
fn loom_thread_pool_starts_a_thread_after_a_wait_that_timed_out() {
    loom::model(|| {
        let starter = Starter::new(Limits { idle_kept: 0, ..limits(2) }, NoEvents);
        assert!(starter.pool.count_in());
        starter.start();
        starter.pool.expire();
        (1..=2).for_each(|job| starter.submit(job));
        starter.end(2);
    });
}

/// The system refuses a thread for one job, while the thread that is there does that job and goes to wait. The other job was
/// submitted before the refusal was known: it is not left behind.
#[test]
fn loom_thread_pool_a_refused_thread_strands_no_job() {
    loom::model(|| {
        let pool = pool(limits(2), NoEvents);
        let worker = start(&pool, |pool| {
            let refuse = || {
                pool.note_spawn_error();
            };
            take_job(pool, &refuse) + take_job(pool, &refuse)
        });
        let is_refused = std::cell::Cell::new(false);
        let refuse = || {
            if !is_refused.replace(true) {
                // As another thread does meanwhile.
                assert!(pool.submit(2, no_spawn).is_ok());
            }
            pool.note_spawn_error();
        };
        assert!(pool.submit(1, refuse).is_ok());
        if !is_refused.get() {
            assert!(pool.submit(2, || _ = pool.note_spawn_error()).is_ok());
        }
        assert_eq!(worker.join().unwrap(), 3);
    });
}

/// The server stops while two threads go to wait: both end.
fn close_ends_both<S: EventSource + 'static>(source: impl Fn() -> S + Send + Sync + 'static) {
    loom::model(move || {
        let pool = pool(limits(2), source());
        let workers = [(); 2].map(|()| start(&pool, |pool| assert!(pool.next(false, &no_spawn).is_none())));
        drop(pool.close());
        assert_eq!(pool.wait_until_empty(Duration::ZERO), 0);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn loom_thread_pool_close_ends_threads_that_park() {
    close_ends_both(|| NoEvents);
}

#[test]
fn loom_thread_pool_close_ends_threads_that_watch() {
    close_ends_both(Events::default);
}

#[test]
fn loom_thread_pool_close_ends_the_thread_that_watches_and_the_one_that_parks() {
    close_ends_both(Events::with_one_watcher);
}

/// A thread is kept for a job in front while another job is submitted. The job in front has the thread, and the other job has
/// it after that.
#[test]
fn loom_thread_pool_keeps_a_thread_for_a_reserve() {
    loom::model(|| {
        let pool = pool(limits(1), NoEvents);
        let worker = start(&pool, |pool| [(); 2].map(|()| take_job(pool, &no_spawn)));
        let other = submits(&pool, 2);
        let is_granted = pool.reserve(no_spawn);
        if is_granted {
            assert!(pool.has_thread_in_front(true), "it was promised");
        }
        pool.submit_front(1, is_granted, no_spawn);
        other.join().unwrap();
        let taken = worker.join().unwrap();
        assert!(taken == [1, 2] || !is_granted && taken == [2, 1], "{taken:?}");
    });
}

/// A job is submitted while the only thread is kept, and then is not: the job is not forgotten.
#[test]
fn loom_thread_pool_takes_the_queue_up_after_a_reserve() {
    loom::model(|| {
        let pool = pool(limits(1), NoEvents);
        let worker = start(&pool, |pool| take_job(pool, &no_spawn));
        let other = submits(&pool, 1);
        if pool.reserve(no_spawn) {
            pool.unreserve(no_spawn);
        }
        other.join().unwrap();
        assert_eq!(worker.join().unwrap(), 1);
    });
}
