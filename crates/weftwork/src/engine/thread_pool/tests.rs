//! Tests of the thread pool without other threads, except where a thread has to wait.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use super::*;
use crate::engine::testing::burst::eventually;

const LIMITS: Limits = Limits {
    idle_kept: 1,
    threads_max: 9,
    spare: 0,
    queue_max: 9,
    starts_ahead: false,
    keep_alive: Duration::from_secs(60),
};

type TestPool<S = NoEvents> = ThreadPool<u32, S>;

fn pool(limits: Limits) -> TestPool {
    ThreadPool::new(limits, NoEvents)
}

/// Starts no thread, although the pool counts one.
fn start_none() {}

fn no_start() {
    panic!("a thread was to be started");
}

/// Takes the next job, as a new thread does.
#[track_caller]
fn take<S: EventSource>(pool: &TestPool<S>, spawn: &impl Fn()) -> u32 {
    pool.note_arrival();
    match pool.next(false, spawn) {
        Some(Work::Job(job)) => job,
        Some(Work::Event(_)) => panic!("an event"),
        None => panic!("the thread was to exit"),
    }
}

/// Counts one more busy thread.
fn occupy(pool: &TestPool) {
    assert!(pool.submit(0, start_none).is_ok());
    take(pool, &no_start);
}

/// Finishes work as busy threads do. The last one finishes in a minute, because the test may be slow.
fn come_back_all_the_time<S: EventSource>(pool: &TestPool<S>) {
    let later = Instant::now() + Duration::from_secs(60);
    (0..100).for_each(|_| pool.note_return(later));
}

#[test]
fn a_refusal_is_news_once_and_bounds_what_is_started() {
    let pool = pool(Limits { queue_max: 1, ..LIMITS });
    (0..2).for_each(|_| occupy(&pool));
    assert!(pool.count_in() && pool.count_in());
    assert_eq!(pool.note_spawn_error(), Some(3));
    assert_eq!(pool.note_spawn_error(), None);
    assert_eq!(pool.stats(), PoolStats { threads: 2, idle: 0, queued: 0 });
    assert!(!pool.has_thread() && pool.has_room() && !pool.count_in());
    assert_eq!(pool.submit(1, no_start), Ok(()));
    assert!(!pool.has_room());
    assert_eq!(pool.submit(2, no_start), Err(2));
    let begun = Instant::now();
    while !pool.has_thread() {
        assert!(begun.elapsed() < 10 * SPAWN_BACKOFF, "the system is never asked again");
        std::thread::sleep(Duration::from_millis(1));
    }
    let started = Cell::new(0);
    pool.request_thread(&|| started.set(started.get() + 1));
    assert_eq!(started.get(), 1);
    assert_eq!(pool.note_spawn_error(), Some(2), "it is news again");
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let pool = pool(Limits { threads_max: 1, queue_max: 2, ..LIMITS });
    occupy(&pool);
    assert!(!pool.has_queue() && !pool.has_thread());
    assert_eq!(pool.submit(1, no_start), Ok(()));
    assert!(pool.has_queue() && pool.has_room());
    assert_eq!(pool.submit(2, no_start), Ok(()));
    assert!(!pool.has_room());
    assert_eq!(pool.submit(3, no_start), Err(3));
    assert_eq!(pool.stats(), PoolStats { threads: 1, idle: 0, queued: 2 });
    // The one thread takes the job that has waited longest.
    pool.note_done();
    assert_eq!(take(&pool, &no_start), 1);
    pool.note_done();
    assert_eq!(take(&pool, &no_start), 2);
    assert_eq!(pool.stats(), PoolStats { threads: 1, idle: 0, queued: 0 });
}

/// An idle thread takes one job, so the queue may be longer by one.
#[test]
fn idle_threads_make_room() {
    let pool = pool(Limits { threads_max: 1, queue_max: 0, ..LIMITS });
    assert!(pool.count_in() && pool.has_thread());
    assert_eq!(pool.submit(1, no_start), Ok(()));
    assert!(!pool.has_thread());
    assert_eq!(pool.submit(2, no_start), Err(2));
}

#[test]
fn a_job_in_front_is_taken_first_and_never_rejected() {
    let pool = pool(Limits { threads_max: 1, queue_max: 1, ..LIMITS });
    occupy(&pool);
    assert_eq!(pool.submit(1, no_start), Ok(()));
    assert!(!pool.is_starved());
    pool.submit_front(2, false, no_start);
    assert!(pool.is_starved());
    pool.note_done();
    assert!(!pool.is_starved(), "a thread is free for it");
    assert_eq!([take(&pool, &no_start), take(&pool, &no_start)], [2, 1]);
}

#[test]
fn a_job_in_front_has_a_thread_only_if_one_can_take_it() {
    let pool = pool(Limits { threads_max: 1, ..LIMITS });
    occupy(&pool);
    assert!(!pool.has_thread_in_front(false));
    pool.note_done();
    assert!(pool.has_thread_in_front(false));
    pool.submit_front(1, false, no_start);
    assert!(!pool.has_thread_in_front(false), "the thread is for the first one");
    assert_eq!(take(&pool, &no_start), 1);
}

#[test]
fn a_closed_pool_takes_no_job() {
    let pool = ThreadPool::new(Limits { threads_max: 2, ..LIMITS }, NoEvents);
    let job = Arc::new(());
    assert!(pool.submit(job.clone(), start_none).is_ok());
    drop(pool.close());
    assert_eq!(pool.stats(), PoolStats { threads: 1, idle: 1, queued: 0 });
    assert!(!pool.has_queue() && pool.submit(job.clone(), no_start).is_err());
    pool.submit_front(job.clone(), false, no_start);
    assert_eq!(Arc::strong_count(&job), 1, "each of them was dropped");
    assert!(!pool.count_in());
    assert!(pool.next(false, &no_start).is_none());
    assert_eq!(pool.wait_until_empty(Duration::ZERO), 0);
}

/// A job owns values of the user, which may ask for the number of threads when they are dropped.
#[test]
fn jobs_are_dropped_without_the_lock() {
    type Asking<'a> = ThreadPool<Asks<'a>, NoEvents>;
    struct Asks<'a> {
        pool: &'a Mutex<Weak<Asking<'a>>>,
        was_free: &'a AtomicBool,
    }
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            let pool = lock(self.pool).upgrade().unwrap();
            self.was_free.store(pool.state.try_lock().is_ok(), Ordering::Relaxed);
        }
    }
    let (place, was_free) = (Mutex::new(Weak::new()), AtomicBool::new(false));
    let pool: Arc<Asking<'_>> = Arc::new(ThreadPool::new(LIMITS, NoEvents));
    *lock(&place) = Arc::downgrade(&pool);
    let job = || Asks { pool: &place, was_free: &was_free };
    assert!(pool.submit(job(), start_none).is_ok());
    drop(pool.close());
    assert!(was_free.swap(false, Ordering::Relaxed), "when the pool closes");
    pool.submit_front(job(), false, no_start);
    assert!(was_free.swap(false, Ordering::Relaxed), "when it is closed");
}

#[test]
fn threads_are_started_one_at_a_time() {
    let pool = pool(LIMITS);
    let started = Cell::new(0);
    let spawn = || started.set(started.get() + 1);
    (1..=3).for_each(|job| assert!(pool.submit(job, spawn).is_ok()));
    assert_eq!(started.get(), 1, "one is on its way");
    for job in 1..=3 {
        // The thread that takes a job starts the next thread for the remaining jobs.
        assert_eq!(take(&pool, &spawn), job);
        assert_eq!(started.get(), (job + 1).min(3));
    }
    assert_eq!(pool.stats(), PoolStats { threads: 3, idle: 0, queued: 0 });
}

/// No job waits for a thread that died on its way.
#[test]
fn a_thread_that_leaves_is_on_its_way_no_more() {
    let pool = pool(LIMITS);
    let started = Cell::new(0);
    let spawn = || started.set(started.get() + 1);
    assert!(pool.submit(1, spawn).is_ok());
    pool.leave();
    assert!(pool.submit(2, spawn).is_ok());
    assert_eq!((started.get(), pool.stats().threads), (2, 1));
}

/// Threads finish so often that a job starts no thread. The monitor does.
#[test]
fn a_thread_is_added_if_all_are_busy() {
    let pool = pool(Limits { threads_max: 2, ..LIMITS });
    let started = Cell::new(0);
    let spawn = || started.set(started.get() + 1);
    assert!(pool.count_busy());
    come_back_all_the_time(&pool);
    assert!(pool.submit(1, spawn).is_ok());
    assert_eq!(started.get(), 0);
    (0..2).for_each(|_| pool.add_thread(&spawn));
    assert_eq!((started.get(), pool.stats().threads, pool.is_at_limit()), (1, 2, true));
}

/// A thread that has finished its work checks the queue next.
#[test]
fn no_thread_is_started_while_another_is_about_to_look_at_the_queue() {
    let pool = pool(LIMITS);
    occupy(&pool);
    pool.note_done();
    assert!(pool.submit(1, no_start).is_ok());
    let started = Cell::new(0);
    pool.note_arrival();
    let Some(Work::Job(1)) = pool.next(false, &no_start) else { panic!("it takes the job") };
    assert!(pool.submit(2, || started.set(1)).is_ok());
    assert_eq!(started.get(), 1, "it is busy");
}

#[test]
fn the_pool_is_short_only_if_no_thread_can_be_started() {
    let pool = pool(Limits { threads_max: 2, ..LIMITS });
    assert!(pool.submit(1, start_none).is_ok());
    assert!(pool.has_queue() && !pool.is_short(), "a thread is on its way");
    assert_eq!(take(&pool, &no_start), 1);
    assert!(pool.submit(2, start_none).is_ok());
    assert!(!pool.is_short(), "a second thread may be started");
    assert_eq!(take(&pool, &no_start), 2);
    assert!(pool.submit(3, no_start).is_ok());
    assert!(pool.is_short(), "both threads are busy");
    pool.note_done();
    assert!(!pool.is_short(), "a thread is about to check the queue");
}

#[test]
fn the_last_idle_thread_has_another_one_started_ahead_if_that_is_wanted() {
    for (starts_ahead, threads) in [(false, 1), (true, 2)] {
        let pool = pool(Limits { starts_ahead, ..LIMITS });
        assert!(pool.submit(1, start_none).is_ok());
        assert_eq!(take(&pool, &start_none), 1);
        assert_eq!(pool.stats().threads, threads);
    }
}

#[test]
fn idle_threads_retire_except_those_that_stay() {
    let pool = pool(Limits { keep_alive: Duration::from_millis(1), ..LIMITS });
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| {
            assert!(pool.count_in());
            scope.spawn(|| pool.next(false, &no_start).is_some())
        });
        eventually("two have retired", || pool.stats().threads == 1);
        // Many times the keep-alive time.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(pool.stats().threads, 1);
        assert!(pool.submit(1, no_start).is_ok());
        let took = threads.map(|thread| thread.join().unwrap());
        assert_eq!(took.into_iter().filter(|took| *took).count(), 1);
    });
}

#[test]
fn a_thread_that_is_kept_does_not_retire() {
    let limits = Limits { idle_kept: 0, threads_max: 1, keep_alive: Duration::from_millis(1), ..LIMITS };
    let pool = pool(limits);
    assert!(pool.count_in());
    pool.reserved.fetch_add(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let kept = scope.spawn(|| pool.next(false, &no_start).is_some());
        std::thread::sleep(Duration::from_millis(30));
        assert!(pool.submit(1, no_start).is_ok());
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(pool.stats(), PoolStats { threads: 1, idle: 1, queued: 1 });
        pool.unreserve(no_start);
        assert!(kept.join().unwrap(), "it takes the job");
    });
}

#[test]
fn a_reserve_keeps_one_parked_thread_from_other_jobs() {
    let pool = pool(Limits { threads_max: 1, ..LIMITS });
    occupy(&pool);
    assert!(!pool.reserve(no_start), "no thread is parked");
    pool.note_done();
    std::thread::scope(|scope| {
        let parked = scope.spawn(|| pool.next(false, &no_start).is_some());
        eventually("it is parked", || pool.parked() == 1);
        assert!(pool.reserve(no_start) && !pool.reserve(no_start));
        assert!(pool.submit(1, no_start).is_ok());
        assert!(!pool.has_thread_in_front(false));
        std::thread::sleep(Duration::from_millis(10));
        assert!(pool.has_queue(), "the job waits");
        pool.unreserve(no_start);
        assert!(parked.join().unwrap());
        assert!(!pool.has_queue());
    });
}

#[test]
fn a_reserved_thread_takes_the_job_in_front() {
    let pool = pool(Limits { threads_max: 1, ..LIMITS });
    assert!(pool.count_in());
    std::thread::scope(|scope| {
        let parked = scope.spawn(|| take(&pool, &no_start));
        eventually("it is parked", || pool.parked() == 1);
        assert!(pool.reserve(no_start));
        assert!(pool.submit(1, no_start).is_ok());
        assert!(pool.has_thread_in_front(true));
        pool.submit_front(2, false, no_start);
        assert_eq!(parked.join().unwrap(), 2);
    });
}

#[test]
fn the_queue_is_drained_with_the_jobs_in_front() {
    let pool = pool(Limits { threads_max: 1, ..LIMITS });
    assert!(pool.submit(1, start_none).is_ok());
    pool.submit_front(2, false, no_start);
    assert_eq!(pool.drain_queue(), [2, 1]);
    assert!(!pool.has_queue());
    // The thread is free for another job in front.
    assert!(pool.has_thread_in_front(false));
    pool.submit_front(3, false, no_start);
    assert_eq!(take(&pool, &no_start), 3);
}

/// The number of events.
#[derive(Default)]
struct Events {
    events: AtomicUsize,
    wakeups: AtomicUsize,
}

impl EventSource for Events {
    type Event = ();

    fn expects_events(&self) -> bool {
        true
    }

    fn watch(&self, _: Duration) -> Watched<()> {
        let took =
            self.events.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |events| events.checked_sub(1));
        if took.is_ok() { Watched::Event(()) } else { Watched::TimedOut }
    }

    fn wake_one(&self) {
        self.wakeups.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn events_and_jobs_take_turns() {
    let pool = TestPool::new(Limits { threads_max: 1, ..LIMITS }, Events::default());
    assert!(pool.count_in());
    (1..=3).for_each(|job| assert!(pool.submit(job, no_start).is_ok()));
    pool.source.events.store(2, Ordering::SeqCst);
    let next = |is_fair| {
        let work = pool.next(is_fair, &no_start).unwrap();
        pool.note_done();
        work
    };
    assert!(matches!(next(false), Work::Job(1)));
    assert!(matches!(next(true), Work::Event(())));
    assert!(matches!(next(false), Work::Job(2)));
    assert!(matches!(next(true), Work::Event(())));
    assert!(matches!(next(true), Work::Job(3)), "no event is there");
}

/// A thread that finishes takes the job sooner than a new or parked thread. A thread that watches wakes up soon.
#[test]
fn threads_that_come_back_all_the_time_spare_starts_and_no_wakeups() {
    let pool = TestPool::new(LIMITS, Events::default());
    come_back_all_the_time(&pool);
    assert!(pool.submit(1, no_start).is_ok());
    pool.watching.fetch_add(1, Ordering::SeqCst);
    assert!(pool.submit(2, no_start).is_ok());
    assert_eq!(pool.source.wakeups.load(Ordering::SeqCst), 1);
}

#[test]
fn threads_that_come_back_now_and_then_spare_no_start() {
    let pool = pool(LIMITS);
    let begun = Instant::now();
    (0..100).for_each(|at| pool.note_return(begun + Duration::from_secs(at)));
    assert!(pool.submit(1, start_none).is_ok());
    assert_eq!(pool.stats().threads, 1);
}

/// A loop gets a leader though all threads are in calls. The thread that comes back then is one too many.
#[test]
fn a_job_in_front_gets_a_spare_thread() {
    let pool = pool(Limits { threads_max: 1, spare: 1, ..LIMITS });
    occupy(&pool);
    let started = Cell::new(0);
    let spawn = || started.set(started.get() + 1);
    assert!(pool.submit(1, spawn).is_ok());
    assert!(!pool.has_thread() && pool.has_thread_in_front(false));
    assert_eq!(started.get(), 0, "a job that waits behind has to wait");
    pool.submit_front(2, false, spawn);
    assert_eq!((started.get(), pool.stats().threads), (1, 2));
    assert!(!pool.has_thread_in_front(false), "there is one spare thread, which has not come yet");
    assert_eq!(take(&pool, &no_start), 2);
    pool.note_done();
    assert!(pool.next(false, &no_start).is_none(), "the first thread exits after its work");
    assert_eq!((pool.stats().threads, pool.stats().queued), (1, 1));
    pool.note_done();
    assert_eq!(take(&pool, &no_start), 1, "and the other one goes on with the queue");
}

/// A thread that was reserved does not count twice, for the job and beside it.
#[test]
fn a_reservation_ends_with_its_job() {
    let pool = pool(Limits { threads_max: 3, queue_max: 0, ..LIMITS });
    occupy(&pool);
    assert!(pool.count_in());
    pool.parked.fetch_add(1, Ordering::SeqCst);
    assert!(pool.reserve(no_start));
    pool.submit_front(1, true, no_start);
    assert_eq!(take(&pool, &no_start), 1);
    assert!(pool.submit(2, start_none).is_ok(), "a third thread may be started");
}
