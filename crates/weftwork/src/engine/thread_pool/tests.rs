//! Is what the system has refused neither promised nor asked for again, for a while? And is the queue bounded?

use std::sync::Weak;

use super::*;
use crate::engine::testing::burst::eventually;

#[test]
fn a_refusal_is_news_once_and_bounds_what_is_promised() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 9, queue_max: 1 });
    for job in 1..=4 {
        assert!(matches!(standby.give(job), Submitted::Spawn(_)));
    }
    assert_eq!(standby.note_refusal(), Some(3));
    assert_eq!(standby.note_refusal(), None);
    assert_eq!(standby.count(), (2, 0));
    assert!(!standby.has_thread() && standby.has_room());
    assert!(matches!(standby.give(5), Submitted::Rejected(5)));
    assert!(matches!(standby.give_or_queue(5), Submitted::Taken));
    assert!(standby.call_for_queue().is_none() && !standby.has_room());
    // One that ends makes room for another.
    standby.leave();
    assert!(matches!(standby.call_for_queue(), Some(Submitted::Spawn(5))));
    let begun = Instant::now();
    while !standby.has_thread() {
        assert!(begun.elapsed() < 10 * REFUSED_FOR, "the system is never asked again");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(standby.give(6), Submitted::Spawn(6)));
    assert_eq!(standby.note_refusal(), Some(2), "it is news again");
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 1, queue_max: 2 });
    assert!(matches!(standby.give_or_queue(1), Submitted::Spawn(1)));
    assert!(!standby.has_queue());
    assert!(matches!(standby.give_or_queue(2), Submitted::Taken) && standby.has_queue());
    assert!(standby.has_room() && standby.queue(3).is_ok());
    assert!(!standby.has_room() && !standby.has_thread());
    assert!(matches!(standby.give_or_queue(4), Submitted::Rejected(4)));
    assert_eq!(standby.queue(4), Err(4));
    assert_eq!(standby.stats(), PoolStats { busy: 1, queued: 2 });
    // The one thread takes what has waited longest.
    let parker = Parker::new();
    assert_eq!(standby.wait(&parker, Duration::ZERO), Some(2));
    assert!(standby.has_queue());
    assert_eq!(standby.wait(&parker, Duration::ZERO), Some(3));
    assert!(!standby.has_queue());
    assert_eq!(standby.stats(), PoolStats { busy: 1, queued: 0 });
}

#[test]
fn nothing_is_taken_on_once_it_is_closed() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 2, queue_max: 2 });
    assert!(matches!(standby.give(1), Submitted::Spawn(1)));
    assert!(standby.queue(2).is_ok());
    standby.close();
    assert_eq!(standby.stats(), PoolStats { busy: 1, queued: 0 });
    assert!(matches!(standby.give(3), Submitted::Rejected(3)));
    assert!(matches!(standby.give_at_any_rate(3, false), Submitted::Rejected(3)));
    assert_eq!(standby.queue(3), Err(3));
    standby.queue_first(3);
    assert_eq!(standby.wait(&Parker::new(), Duration::ZERO), None);
}

/// What a job holds may be the user's, and that may ask how many threads there are when it is dropped.
#[test]
fn jobs_are_dropped_when_nobody_holds_the_lock() {
    struct Asks<'a> {
        standby: &'a Mutex<Weak<ThreadPool<Asks<'a>>>>,
        was_free: &'a AtomicBool,
    }
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            let standby = lock(self.standby).upgrade().unwrap();
            self.was_free.store(standby.state.try_lock().is_ok(), Ordering::Relaxed);
        }
    }
    let (place, was_free) = (Mutex::new(Weak::new()), AtomicBool::new(false));
    let standby = Arc::new(ThreadPool::new(Limits { kept: 1, threads_max: 1, queue_max: 1 }));
    *lock(&place) = Arc::downgrade(&standby);
    let job = || Asks { standby: &place, was_free: &was_free };
    assert!(standby.queue(job()).is_ok());
    standby.close();
    assert!(was_free.swap(false, Ordering::Relaxed), "when it closes");
    standby.queue_first(job());
    assert!(was_free.swap(false, Ordering::Relaxed), "when it is closed");
}

#[test]
fn a_risk_that_is_over_frees_what_was_kept_for_it() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 1, queue_max: 1 });
    assert!(matches!(standby.give(1), Submitted::Spawn(1)));
    assert!(!standby.risk(), "none is parked");
    std::thread::scope(|scope| {
        let parked = scope.spawn(|| standby.wait(&Parker::new(), Duration::from_secs(60)));
        eventually("it is parked", || standby.count() == (1, 1));
        assert!(standby.risk() && !standby.risk());
        assert!(matches!(standby.give(2), Submitted::Rejected(2)));
        standby.risk_is_over();
        assert!(matches!(standby.give(2), Submitted::Taken));
        assert_eq!(parked.join().unwrap(), Some(2));
    });
}

/// The question comes behind a refusal: a second one to the clock would have another answer.
#[test]
fn who_is_alone_is_so_whatever_the_system_may_give_by_now() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 9, queue_max: 1 });
    assert!(matches!(standby.give(1), Submitted::Spawn(1)));
    assert!(standby.has_thread() && standby.has_only(1));
    assert!(matches!(standby.give(2), Submitted::Spawn(2)));
    assert!(!standby.has_only(1));
    standby.leave();
    standby.close();
    assert!(!standby.has_only(1), "at the end no more calls are made");
}

#[test]
fn what_waits_where_no_thread_is_left_is_given_back() {
    let standby = ThreadPool::new(Limits { kept: 1, threads_max: 1, queue_max: 2 });
    assert!(matches!(standby.give(1), Submitted::Spawn(1)));
    assert!(standby.queue(2).is_ok() && standby.queue(3).is_ok());
    assert!(standby.take_deserted().is_empty(), "the one thread comes for them");
    standby.leave();
    assert_eq!(standby.take_deserted(), [2, 3]);
    assert!(!standby.has_queue());
}
