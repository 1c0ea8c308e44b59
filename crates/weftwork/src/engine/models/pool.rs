//! The pool's counters: who is at the door, on the bench, asked for.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;

use crate::engine::pool::roster::{Limits, Roster};

/// What is true of the counters whenever nobody is in the middle of something.
fn check(roster: &Roster, threads_max: usize) {
    let count = roster.count();
    assert!(count.at_door <= count.threads && count.threads <= threads_max, "{count:?}");
    assert!(count.at_door > 0 || count.line || count.threads == threads_max, "nobody comes: {count:?}");
}

/// Both threads at the door get a connection at once: exactly one thread is asked for and made.
#[test]
fn loom_pool_makes_exactly_one_thread_more() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 2, at_door_max: 16, threads_max: 4 }));
        assert_eq!(roster.open(), 2);
        let accepted = {
            let roster = roster.clone();
            thread::spawn(move || roster.leave_door())
        };
        let maker = {
            let roster = roster.clone();
            thread::spawn(move || roster.wait_until_asked())
        };
        roster.leave_door();
        accepted.join().unwrap();
        assert!(maker.join().unwrap());
        let count = roster.count();
        assert_eq!((count.threads, count.at_door, count.line), (3, 1, false));
    });
}

/// The maker takes in a second connection while the thread that it has made takes the first one from the queue:
/// there is a thread for each, and one for the door.
#[test]
fn loom_pool_makes_a_thread_for_each_that_waits() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 1, at_door_max: 16, threads_max: 5 }));
        roster.open();
        roster.leave_door();
        assert!(roster.wait_until_asked());
        let queue = Arc::new(Mutex::new(1));
        assert!(roster.one_more(1));
        let made = {
            let (roster, queue) = (roster.clone(), queue.clone());
            thread::spawn(move || {
                let mut queue = queue.lock().unwrap();
                *queue -= 1;
                roster.leave_door();
            })
        };
        *queue.lock().unwrap() += 1;
        assert!(roster.one_more(*queue.lock().unwrap()));
        made.join().unwrap();
        let count = roster.count();
        assert_eq!((count.threads, count.at_door, count.line), (4, 2, false));
    });
}

/// A thread leaves the door while another comes back to it, or dies: somebody is at the door afterwards, or on
/// the way there.
#[test]
fn loom_pool_never_leaves_the_door_alone() {
    for dies in [false, true] {
        loom::model(move || {
            let roster = Arc::new(Roster::new(Limits { standby: 2, at_door_max: 16, threads_max: 3 }));
            roster.open();
            roster.leave_door();
            let back = {
                let roster = roster.clone();
                thread::spawn(move || match dies {
                    true => roster.lose(false),
                    false => assert!(!roster.come_to_door()),
                })
            };
            roster.leave_door();
            back.join().unwrap();
            check(&roster, 3);
        });
    }
}

/// Two threads find that they are not needed, while a third gets a connection: those that stand by stay.
#[test]
fn loom_pool_keeps_its_standby() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 1, at_door_max: 16, threads_max: 3 }));
        roster.open();
        for _ in 0..2 {
            roster.leave_door();
            assert!(roster.wait_until_asked());
        }
        (0..2).for_each(|_| assert!(!roster.come_to_door()));
        let surplus: Vec<_> = (0..2)
            .map(|_| {
                let roster = roster.clone();
                thread::spawn(move || roster.retire())
            })
            .collect();
        roster.leave_door();
        let retired = surplus.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count();
        check(&roster, 3);
        assert_eq!(roster.count().threads, 3 - retired);
    });
}

/// A thread sits down while the other one leaves the door: it is called, or stays.
#[test]
fn loom_pool_calls_from_the_bench() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 2, at_door_max: 1, threads_max: 2 }));
        roster.open();
        let sits = {
            let roster = roster.clone();
            thread::spawn(move || roster.sit_down(Duration::ZERO))
        };
        roster.leave_door();
        assert!(sits.join().unwrap());
        let count = roster.count();
        assert_eq!((count.threads, count.at_door, count.on_bench), (2, 1, 0));
    });
}

/// Threads sit down while one leaves the door, where nobody is to be called, and that ends: somebody is at the door.
#[test]
fn loom_pool_calls_when_the_cores_are_free_again() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 2, at_door_max: 1, threads_max: 2 }));
        roster.open();
        roster.set_cores_full(true);
        let sits = {
            let roster = roster.clone();
            thread::spawn(move || roster.sit_down(Duration::ZERO))
        };
        let left = {
            let roster = roster.clone();
            thread::spawn(move || roster.leave_door())
        };
        roster.set_cores_full(false);
        assert!(sits.join().unwrap());
        left.join().unwrap();
        check(&roster, 2);
    });
}

/// The server stops while one sits down and another is called: nobody is left on the bench.
#[test]
fn loom_pool_close_empties_the_bench() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 3, at_door_max: 1, threads_max: 3 }));
        roster.open();
        let sit = [(); 2].map(|()| {
            let roster = roster.clone();
            thread::spawn(move || roster.sit_down(Duration::ZERO))
        });
        roster.leave_door();
        roster.close();
        sit.into_iter().for_each(|sits| assert!(sits.join().unwrap()));
        let count = roster.count();
        assert_eq!((count.threads, count.at_door, count.on_bench), (3, 2, 0));
    });
}

/// The server stops while the maker goes to sleep, and while a thread is asked for.
#[test]
fn loom_pool_close_wakes_the_maker() {
    loom::model(|| {
        let roster = Arc::new(Roster::new(Limits { standby: 1, at_door_max: 16, threads_max: 2 }));
        roster.open();
        let maker = {
            let roster = roster.clone();
            thread::spawn(move || while roster.wait_until_asked() {})
        };
        let accepted = {
            let roster = roster.clone();
            thread::spawn(move || roster.leave_door())
        };
        roster.close();
        maker.join().unwrap();
        accepted.join().unwrap();
        assert!(!roster.count().line);
    });
}
