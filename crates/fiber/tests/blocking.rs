//! Tests that the pool for blocking calls keeps to its cap. It runs in a process of its own, because the cap
//! belongs to the process.

use std::panic::catch_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError, RwLock, mpsc};
use std::time::Duration;

use weftwork_fiber::{
    BlockingPool, Elapsed, JoinError, JoinHandle, PoolFull, blocking, is_interruption, run,
    set_blocking_threads_max, sleep, spawn, timeout, yield_now,
};

/// Locked by a test that sets the cap.
static CAP: Mutex<()> = Mutex::new(());

#[test]
fn no_more_calls_run_at_once_than_threads_are_allowed_and_all_come_back() {
    let _cap = CAP.lock().unwrap_or_else(PoisonError::into_inner);
    set_blocking_threads_max(2);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    run(move || {
        for _ in 0..50 {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            spawn(move || {
                blocking(move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            });
        }
    })
    .unwrap();
    assert!((1..=2).contains(&seen.load(Ordering::SeqCst)), "{seen:?}");
}

#[test]
fn a_raised_cap_counts_for_calls_that_wait_already() {
    let _cap = CAP.lock().unwrap_or_else(PoisonError::into_inner);
    set_blocking_threads_max(1);
    let all_in = Arc::new(Barrier::new(3));
    let met = run(move || {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let all_in = Arc::clone(&all_in);
                spawn(move || {
                    blocking(move || all_in.wait());
                })
            })
            .collect();
        yield_now();
        set_blocking_threads_max(3);
        timeout(Duration::from_secs(10), || calls.into_iter().for_each(|call| call.join().unwrap()))
    });
    assert_eq!(met.unwrap(), Ok(()), "three calls never ran at once");
}

#[test]
fn a_lowered_cap_counts_for_the_threads_there_are() {
    let _cap = CAP.lock().unwrap_or_else(PoisonError::into_inner);
    set_blocking_threads_max(3);
    let all_in = Arc::new(Barrier::new(4));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    run(move || {
        let (enters, has_entered) = mpsc::channel();
        let first: Vec<_> = (0..3)
            .map(|_| {
                let (all_in, enters) = (Arc::clone(&all_in), enters.clone());
                spawn(move || {
                    blocking(move || {
                        enters.send(()).unwrap();
                        all_in.wait();
                    });
                })
            })
            .collect();
        yield_now();
        // A call that has not begun would never begin, and the other calls would wait for it.
        first.iter().for_each(|_| has_entered.recv().unwrap());
        let later: Vec<_> = (0..6)
            .map(|_| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                spawn(move || {
                    blocking(move || {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        // Long enough to see other calls, if there are any.
                        std::thread::sleep(Duration::from_millis(20));
                        running.fetch_sub(1, Ordering::SeqCst);
                    })
                })
            })
            .collect();
        yield_now();
        set_blocking_threads_max(1);
        all_in.wait();
        first.into_iter().chain(later).for_each(|call| call.join().unwrap());
    })
    .unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[test]
fn a_pool_that_is_full_refuses() {
    static GATE: RwLock<()> = RwLock::new(());
    let held = GATE.write().unwrap();
    let pool = Rc::new(BlockingPool::new(2, 3));
    let call = {
        let pool = pool.clone();
        move || pool.blocking(move || drop(GATE.read().unwrap()))
    };
    let results = run(move || {
        // Two calls run and three wait.
        let inside: Vec<_> = (0..5).map(|_| spawn(call.clone())).collect();
        yield_now();
        assert_eq!((call(), pool.threads()), (Err(PoolFull), 2));
        drop(held);
        let results: Vec<_> = inside.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        assert_eq!(call(), Ok(()));
        results
    });
    assert_eq!(results.unwrap(), [Ok(()); 5]);
}

/// A value that panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        // The payload takes no memory, because nothing frees it.
        std::panic::resume_unwind(Box::new(()));
    }
}

/// No caller receives the value, so the thread of the call drops it.
#[test]
fn a_value_that_panics_when_it_is_dropped_costs_the_pool_no_thread() {
    static GATE: RwLock<()> = RwLock::new(());
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let held = GATE.write().unwrap();
        let pool = Rc::new(BlockingPool::new(1, 1));
        let value = run(move || {
            let theirs = pool.clone();
            let (enters, has_entered) = mpsc::channel();
            let call = spawn(move || {
                theirs.blocking(move || {
                    enters.send(()).unwrap();
                    drop(GATE.read().unwrap());
                    Panics
                })
            });
            yield_now();
            has_entered.recv().unwrap();
            call.cancel();
            assert!(call.join().is_err());
            drop(held);
            pool.blocking(|| 7)
        });
        sender.send(value.unwrap()).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(Ok(7)));
}

#[test]
fn a_call_begun_by_a_fiber_that_was_interrupted_already_is_not_made() {
    let made = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&made);
    run(move || {
        let pool = Rc::new(BlockingPool::new(1, 10));
        let caught_twice = {
            let pool = Rc::clone(&pool);
            move || {
                let interrupted = catch_unwind(|| sleep(Duration::from_secs(60))).unwrap_err();
                assert!(is_interruption(&*interrupted));
                let _ = pool.blocking(move || theirs.fetch_add(1, Ordering::SeqCst));
            }
        };
        let (cancelled, late) = (spawn(caught_twice.clone()), caught_twice);
        yield_now();
        cancelled.cancel();
        assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
        assert_eq!(timeout(Duration::from_millis(1), late), Err(Elapsed));
        // The one thread has finished all earlier calls by now.
        pool.blocking(|| ()).unwrap();
    })
    .unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

/// The value is ready when the fiber is cancelled, and the fiber drops it as it unwinds.
#[test]
fn a_value_that_panics_when_it_is_dropped_does_not_stop_an_unwinding() {
    let joined = run(|| {
        let pool = Rc::new(BlockingPool::new(1, 1));
        let (first, second) = (Rc::clone(&pool), pool);
        let call = spawn(move || first.blocking(|| Panics).map(std::mem::forget));
        let (enters, has_entered) = mpsc::channel();
        let next = spawn(move || second.blocking(move || enters.send(()).unwrap()));
        yield_now();
        // The one thread has finished the first call. No turn runs here, because a turn would tell the call's
        // fiber.
        has_entered.recv_timeout(Duration::from_secs(10)).unwrap();
        call.cancel();
        next.join().unwrap().unwrap();
        call.join()
    });
    assert!(matches!(joined.unwrap(), Err(JoinError::Cancelled)));
}

#[test]
fn an_abandoned_call_leaves_the_queue_and_is_not_made() {
    let made = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&made);
    run(move || {
        let pool = Rc::new(BlockingPool::new(1, 1));
        let (first, second) = (Rc::clone(&pool), Rc::clone(&pool));
        let (busy, go) = held_up(move |wait| first.blocking(wait).unwrap());
        let call = move || pool.blocking(move || theirs.fetch_add(1, Ordering::SeqCst));
        for _ in 0..2 {
            let waits = spawn(call.clone());
            yield_now();
            waits.cancel();
            assert!(matches!(waits.join(), Err(JoinError::Cancelled)));
            assert_eq!(timeout(Duration::from_millis(1), call.clone()), Err(Elapsed));
        }
        let live = spawn(move || second.blocking(|| 7));
        yield_now();
        go.send(()).unwrap();
        assert_eq!(live.join().unwrap(), Ok(7));
        busy.join().unwrap();
    })
    .unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

#[test]
fn what_a_call_holds_may_panic_as_the_call_is_taken_back() {
    run(|| {
        let pool = Rc::new(BlockingPool::new(1, 1));
        let first = Rc::clone(&pool);
        let (busy, go) = held_up(move |wait| first.blocking(wait).unwrap());
        let waits = spawn(move || {
            let holds = Panics;
            pool.blocking(move || std::mem::forget(holds))
        });
        yield_now();
        waits.cancel();
        assert!(matches!(waits.join(), Err(JoinError::Cancelled)));
        go.send(()).unwrap();
        busy.join().unwrap();
    })
    .unwrap();
}

#[test]
fn an_abandoned_call_of_the_shared_pool_is_not_made() {
    let _cap = CAP.lock().unwrap_or_else(PoisonError::into_inner);
    set_blocking_threads_max(1);
    let made = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&made);
    run(move || {
        let (busy, go) = held_up(blocking);
        let waits = spawn(move || blocking(move || theirs.fetch_add(1, Ordering::SeqCst)));
        yield_now();
        waits.cancel();
        assert!(waits.join().is_err());
        go.send(()).unwrap();
        busy.join().unwrap();
        // The one thread has begun all earlier calls.
        blocking(|| ());
    })
    .unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

#[test]
fn a_call_that_has_begun_runs_to_its_end_though_it_is_abandoned() {
    let (ends, has_ended) = mpsc::channel();
    run(move || {
        let pool = BlockingPool::new(1, 1);
        let (begun, go) = held_up(move |wait| {
            let call = move || {
                wait();
                ends.send(7).unwrap();
            };
            pool.blocking(call).unwrap();
        });
        begun.cancel();
        assert!(matches!(begun.join(), Err(JoinError::Cancelled)));
        go.send(()).unwrap();
    })
    .unwrap();
    assert_eq!(has_ended.recv_timeout(Duration::from_secs(10)), Ok(7));
}

/// Returns a fiber whose call has begun and waits to be released. `call` makes a blocking call of its argument.
fn held_up(call: impl FnOnce(Box<dyn FnOnce() + Send>) + 'static) -> (JoinHandle<()>, mpsc::Sender<()>) {
    let (enters, has_entered) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let fiber = spawn(move || {
        call(Box::new(move || {
            enters.send(()).unwrap();
            wait.recv().unwrap();
        }));
    });
    yield_now();
    has_entered.recv_timeout(Duration::from_secs(10)).unwrap();
    (fiber, go)
}
