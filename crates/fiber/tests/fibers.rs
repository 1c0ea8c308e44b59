//! Tests that fibers start, end, panic, are cancelled and time out as documented.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weftwork_fiber::sync::{Mutex, Semaphore, channel, oneshot};
use weftwork_fiber::{
    Config, Elapsed, JoinError, Runtime, blocking, in_fiber, run, run_with, sleep, spawn, timeout, yield_now,
};

const LONG: Duration = Duration::from_secs(3_600);
/// The timeout for work that takes no time at all.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Records in a shared log that it was dropped.
struct Noted(&'static str, Rc<RefCell<Vec<&'static str>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

fn log() -> Rc<RefCell<Vec<&'static str>>> {
    Rc::default()
}

#[test]
fn run_returns_the_value_after_all_fibers_ended() {
    let log = log();
    let theirs = Rc::clone(&log);
    let value = run(move || {
        spawn(move || {
            yield_now();
            theirs.borrow_mut().push("straggler");
        });
        7
    });
    assert_eq!((value.unwrap(), &**log.borrow()), (7, &["straggler"][..]));
}

#[test]
fn fibers_interleave_where_they_yield() {
    let log = log();
    let shared = Rc::clone(&log);
    run(move || {
        for names in [["a1", "a2"], ["b1", "b2"]] {
            let log = Rc::clone(&shared);
            spawn(move || {
                log.borrow_mut().push(names[0]);
                yield_now();
                log.borrow_mut().push(names[1]);
            });
        }
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["a1", "b1", "a2", "b2"]);
}

#[test]
fn in_fiber_tells_where_we_are() {
    assert!(!in_fiber());
    assert!(run(in_fiber).unwrap());
    assert!(!in_fiber());
    assert!(!blocking(in_fiber));
}

#[test]
fn a_thread_has_one_runtime_at_a_time() {
    let first = Runtime::new().unwrap();
    assert_eq!(Runtime::new().unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    drop(first);
    Runtime::new().unwrap();
}

#[test]
fn a_panic_comes_out_of_join_with_its_payload() {
    let result = run(|| spawn(|| -> () { panic!("number {}", std::process::id()) }).join()).unwrap();
    let Err(JoinError::Panicked(payload)) = result else { panic!("not a panic: {result:?}") };
    assert_eq!(*payload.downcast_ref::<String>().unwrap(), format!("number {}", std::process::id()));
}

#[test]
fn a_panic_of_the_first_fiber_comes_out_of_run_after_the_others_unwound() {
    let log = log();
    let noted = Noted("other", Rc::clone(&log));
    let result = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            spawn(move || {
                let _noted = noted;
                sleep(LONG);
            });
            yield_now();
            panic!("first")
        })
    }));
    assert_eq!(*result.unwrap_err().downcast_ref::<&str>().unwrap(), "first");
    assert_eq!(*log.borrow(), ["other"]);
}

/// The thread does not unwind yet, so the wait of another fiber that has caught its cancelling ends like any
/// other wait.
#[test]
fn a_panic_of_the_first_fiber_does_not_wait_for_fibers_that_catch_the_cancelling() {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let caught = catch_unwind(|| {
            run(|| {
                spawn(|| {
                    let _ = catch_unwind(|| sleep(LONG));
                    sleep(LONG);
                });
                yield_now();
                panic!("first");
            })
        });
        sender.send(*caught.unwrap_err().downcast::<&str>().unwrap()).unwrap();
    });
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok("first"));
}

#[test]
fn catch_unwind_and_destructors_work_across_a_suspension() {
    let log = log();
    let shared = Rc::clone(&log);
    run(move || {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _outer = Noted("outer", Rc::clone(&shared));
            yield_now();
            let _inner = Noted("inner", Rc::clone(&shared));
            sleep(Duration::from_millis(1));
            panic!("after two waits");
        }));
        assert!(caught.is_err() && !std::thread::panicking());
        yield_now();
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["inner", "outer"]);
}

#[test]
fn other_fibers_do_not_see_that_a_fiber_unwinds() {
    struct WaitsInDrop(Rc<Cell<bool>>);
    impl Drop for WaitsInDrop {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            yield_now();
            sleep(Duration::from_millis(2));
            assert_eq!(blocking(|| 3), 3);
            assert!(!self.0.get(), "another fiber ran while this one unwound");
        }
    }
    run(|| {
        let other_ran = Rc::new(Cell::new(false));
        let waits = WaitsInDrop(Rc::clone(&other_ran));
        let panicker = spawn(move || {
            let _waits = waits;
            panic!("unwinding");
        });
        let other = spawn(move || {
            assert!(!std::thread::panicking());
            other_ran.set(true);
        });
        assert!(matches!(panicker.join(), Err(JoinError::Panicked(_))));
        other.join().unwrap();
    })
    .unwrap();
}

#[test]
fn in_a_fiber_that_unwinds_sync_does_not_wait() {
    struct Receives(weftwork_fiber::sync::Receiver<()>, Rc<Cell<bool>>);
    impl Drop for Receives {
        fn drop(&mut self) {
            self.1.set(self.0.recv().is_err());
        }
    }
    let (_sender, receiver) = channel(1);
    let refused = Rc::new(Cell::new(false));
    let receives = Receives(receiver, Rc::clone(&refused));
    run(move || {
        let fiber = spawn(move || {
            let _receives = receives;
            sleep(LONG);
        });
        yield_now();
        fiber.cancel();
        assert!(matches!(fiber.join(), Err(JoinError::Cancelled)));
    })
    .unwrap();
    assert!(refused.get());
}

/// Cancels a fiber that waits in `wait`. Its destructors must have run, and its join must report the
/// cancelling.
fn check_cancelled_in(wait: impl FnOnce() + 'static) {
    let log = log();
    let noted = Noted("dropped", Rc::clone(&log));
    let started = Instant::now();
    run(move || {
        let fiber = spawn(move || {
            let _noted = noted;
            wait();
        });
        yield_now();
        assert!(!fiber.is_finished());
        fiber.cancel();
        let result = fiber.join();
        assert!(matches!(result, Err(JoinError::Cancelled)), "{result:?}");
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["dropped"]);
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn cancel_unwinds_from_every_kind_of_wait() {
    let (sender, receiver) = channel::<()>(1);
    check_cancelled_in(move || receiver.recv().unwrap());
    drop(sender);
    let (sender, _receiver) = channel(1);
    check_cancelled_in(move || (0..2).for_each(|value| sender.send(value).unwrap()));
    let (_sender, receiver) = oneshot::<()>();
    check_cancelled_in(move || receiver.recv().unwrap());
    let (one, _two) = weftwork_fiber::net::UnixStream::pair().unwrap();
    check_cancelled_in(move || drop(std::io::Read::read(&mut &one, &mut [0; 1])));
    check_cancelled_in(|| sleep(LONG));
    check_cancelled_in(|| drop(Semaphore::new(0).acquire()));
    check_cancelled_in(|| drop(spawn(|| sleep(Duration::from_millis(20))).join()));
    check_cancelled_in(|| timeout(LONG, || sleep(LONG)).unwrap());
    let (go, stop) = std::sync::mpsc::channel::<()>();
    check_cancelled_in(move || blocking(move || stop.recv().unwrap_or(())));
    drop(go);
}

#[test]
fn a_fiber_cancelled_before_it_begins_never_runs() {
    let log = log();
    let noted = Noted("dropped", Rc::clone(&log));
    run(move || {
        let fiber = spawn(move || {
            let noted = noted;
            panic!("ran with {}", noted.0)
        });
        fiber.cancel();
        assert!(matches!(fiber.join(), Err::<(), _>(JoinError::Cancelled)));
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["dropped"]);
}

#[test]
fn a_fiber_that_catches_the_cancelling_gets_it_again_and_its_value_stands() {
    let result = run(|| {
        let fiber = spawn(|| {
            let first = catch_unwind(|| sleep(LONG)).is_err();
            let second = catch_unwind(|| sleep(LONG)).is_err();
            (first, second)
        });
        yield_now();
        fiber.cancel();
        fiber.join().unwrap()
    });
    assert_eq!(result.unwrap(), (true, true));
}

#[test]
fn a_fiber_may_cancel_itself() {
    let (cancelled, went_on) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (cancels, goes_on) = (Rc::clone(&cancelled), Rc::clone(&went_on));
    run(move || {
        let (send, receive) = oneshot::<weftwork_fiber::JoinHandle<()>>();
        let fiber = spawn(move || {
            receive.recv().unwrap().cancel();
            cancels.set(true);
            yield_now();
            goes_on.set(true);
        });
        let (finished_send, finished) = oneshot();
        spawn(move || finished_send.send(()));
        send.send(fiber).unwrap();
        finished.recv().unwrap();
    })
    .unwrap();
    assert_eq!((cancelled.get(), went_on.get()), (true, false));
}

#[test]
fn a_mutex_on_its_way_to_a_cancelled_fiber_goes_to_the_next() {
    run(|| {
        let mutex = Rc::new(Mutex::new(0));
        let held = mutex.lock();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let mutex = Rc::clone(&mutex);
                spawn(move || *mutex.lock() += 1)
            })
            .collect();
        yield_now();
        drop(held);
        waiters[0].cancel();
        let results: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().is_ok()).collect();
        assert_eq!((results, *mutex.lock()), (vec![false, true], 1));
    })
    .unwrap();
}

#[test]
fn the_last_message_on_its_way_to_a_cancelled_fiber_goes_to_the_next() {
    run(|| {
        let (sender, receiver) = channel(1);
        let receiver = Rc::new(receiver);
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let receiver = Rc::clone(&receiver);
                spawn(move || receiver.recv())
            })
            .collect();
        yield_now();
        sender.send(7).unwrap();
        drop(sender);
        receivers[0].cancel();
        let results: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().ok()).collect();
        assert_eq!(results, [None, Some(Ok(7))]);
    })
    .unwrap();
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&order);
    run(move || {
        let started = Instant::now();
        for ms in [20_u64, 5, 10] {
            let order = Rc::clone(&shared);
            spawn(move || {
                sleep(Duration::from_millis(ms));
                assert!(started.elapsed() >= Duration::from_millis(ms));
                order.borrow_mut().push(ms);
            });
        }
    })
    .unwrap();
    assert_eq!(*order.borrow(), [5, 10, 20]);
}

#[test]
fn timeout_gives_the_value_or_unwinds() {
    let log = log();
    let shared = Rc::clone(&log);
    run(move || {
        assert_eq!(timeout(LONG, || 3), Ok(3));
        let late = timeout(Duration::from_millis(1), || {
            let _noted = Noted("unwound", Rc::clone(&shared));
            sleep(LONG);
        });
        assert_eq!(late, Err(Elapsed));
        sleep(Duration::from_millis(1));
    })
    .unwrap();
    assert_eq!(*log.borrow(), ["unwound"]);
}

#[test]
fn timeouts_nest() {
    let short = Duration::from_millis(1);
    run(move || {
        assert_eq!(timeout(LONG, || timeout(short, || sleep(LONG))), Ok(Err(Elapsed)));
        assert_eq!(timeout(short, || timeout(LONG, || sleep(LONG))), Err(Elapsed));
        assert_eq!(timeout(short, || timeout(short, || sleep(LONG))), Err(Elapsed));
    })
    .unwrap();
}

#[test]
fn a_panic_goes_through_timeout() {
    let result = run(|| spawn(|| timeout(LONG, || -> () { panic!("through") })).join()).unwrap();
    assert!(matches!(result, Err(JoinError::Panicked(_))));
}

#[test]
fn blocking_leaves_the_thread_to_others_and_hands_back_value_and_panic() {
    let (go, wait) = std::sync::mpsc::channel();
    let value = run(move || {
        let blocked = spawn(move || blocking(move || wait.recv().unwrap()));
        // Runs only because the thread is free in the meantime.
        spawn(move || go.send(7).unwrap());
        blocked.join().unwrap()
    });
    assert_eq!(value.unwrap(), 7);
    let result = run(|| spawn(|| blocking(|| -> () { panic!("there") })).join()).unwrap();
    let Err(JoinError::Panicked(payload)) = result else { panic!("not a panic: {result:?}") };
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "there");
}

#[test]
fn many_blocking_calls_all_come_back() {
    let sum = run(|| {
        let calls: Vec<_> = (0..200_u64).map(|n| spawn(move || blocking(move || n))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).sum::<u64>()
    });
    assert_eq!(sum.unwrap(), 199 * 200 / 2);
}

#[test]
fn ten_thousand_fibers_wait_at_once() {
    let total = run_with(&Config::new().stack_bytes(16 << 10), || {
        let gate = Rc::new(Semaphore::new(0));
        let held = gate.available();
        let fibers: Vec<_> = (0..10_000)
            .map(|_| {
                let gate = Rc::clone(&gate);
                spawn(move || timeout(Duration::from_millis(100), || drop(gate.acquire())).is_err())
            })
            .collect();
        held + fibers.into_iter().map(|fiber| usize::from(fiber.join().unwrap())).sum::<usize>()
    });
    assert_eq!(total.unwrap(), 10_000);
}

#[test]
fn a_large_stack_is_lent() {
    let config = Config::new().stack_bytes(16 << 10);
    let sum = run_with(&config, || {
        let work = || [1_u8; 64 << 10].iter().map(|&one| u64::from(one)).sum::<u64>();
        let sum = weftwork_fiber::on_large_stack(work);
        // The fiber stays on its thread, so its values may also be bound to the thread.
        let only_here = Rc::new(7);
        assert_eq!(weftwork_fiber::on_large_stack(|| *only_here), 7);
        yield_now();
        sum + weftwork_fiber::on_large_stack(work)
    });
    assert_eq!(sum.unwrap(), 128 << 10);
    assert_eq!(weftwork_fiber::on_large_stack(|| 7), 7, "outside a fiber");
}

#[test]
fn a_panic_comes_back_from_a_large_stack() {
    let done = run(|| {
        let panics = || weftwork_fiber::on_large_stack(|| -> () { panic!("there") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        true
    });
    assert!(done.unwrap());
}

#[test]
fn a_fiber_waits_on_a_large_stack_as_on_its_own() {
    let order = run(|| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..3)
            .map(|fiber| {
                let order = Rc::clone(&order);
                spawn(move || {
                    weftwork_fiber::on_large_stack(|| {
                        for step in 0..3 {
                            let kept = std::hint::black_box([fiber; 64 << 10]);
                            order.borrow_mut().push((step, fiber));
                            yield_now();
                            assert!(kept.iter().all(|&byte| byte == fiber));
                        }
                    });
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        order.take()
    });
    let expected: Vec<(u8, u8)> = (0..3).flat_map(|step| (0..3).map(move |fiber| (step, fiber))).collect();
    assert_eq!(order.unwrap(), expected, "they took turns");
}

#[test]
fn a_fiber_is_cancelled_on_a_large_stack() {
    run(|| {
        let dropped = Rc::new(());
        let held = Rc::clone(&dropped);
        let fiber = spawn(move || {
            weftwork_fiber::on_large_stack(|| {
                let _held = held;
                sleep(Duration::from_secs(60));
            });
        });
        yield_now();
        fiber.cancel();
        assert!(matches!(fiber.join(), Err(JoinError::Cancelled)));
        assert_eq!(Rc::strong_count(&dropped), 1, "its destructors ran");
    })
    .unwrap();
}

/// The values on its stack are intact when the coroutine resumes, on whatever stack and whatever ran in
/// between.
#[test]
fn a_coroutine_of_the_users_own_leaves_a_large_stack_and_comes_back() {
    use corosensei::{Coroutine, CoroutineResult};
    let coroutine = || {
        Coroutine::new(|yielder, ()| {
            let sum = weftwork_fiber::on_large_stack(|| {
                let kept = std::hint::black_box([7_u8; 32 << 10]);
                yielder.suspend(());
                yield_now();
                kept.iter().map(|&byte| u64::from(byte)).sum::<u64>()
            });
            yield_now();
            sum
        })
    };
    let overwrite = || weftwork_fiber::on_large_stack(|| std::hint::black_box([1_u8; 256 << 10])[7]);
    let expected = 7 * (32 << 10);
    let (here, there) = run(move || {
        let mut here = coroutine();
        assert!(matches!(here.resume(()), CoroutineResult::Yield(())));
        sleep(Duration::from_millis(1));
        spawn(overwrite).join().unwrap();
        let elsewhere = spawn(move || here.resume(()).as_return());
        let dropped = spawn(move || assert!(coroutine().resume(()).as_yield().is_some()));
        dropped.join().unwrap();
        let mut there = coroutine();
        assert!(matches!(there.resume(()), CoroutineResult::Yield(())));
        (elsewhere.join().unwrap(), there)
    })
    .unwrap();
    assert_eq!(here, Some(expected), "in another fiber");
    let mut there = there;
    assert_eq!(there.resume(()).as_return(), Some(expected), "on the thread");
}

/// A thread-local value that records its drop.
struct Mark(Cell<bool>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// A thread drops its thread-locals in an order that std chooses. A fiber may use one that has already been
/// dropped.
#[test]
#[cfg_attr(feature = "sanitizer", ignore = "the fiber is leaked on purpose")]
fn a_runtime_in_a_thread_local_unwinds_no_fiber_when_its_thread_ends() {
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
        static MARK: Mark = const { Mark(Cell::new(false)) };
    }
    let (sender, unwound) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        RUNTIME.set(Some(runtime));
        RUNTIME.with_borrow(|runtime| {
            let runtime = runtime.as_ref().unwrap();
            runtime.spawn(move || {
                MARK.with(|mark| {
                    let sent = AssertUnwindSafe(|| sleep(LONG));
                    let payload = catch_unwind(sent).unwrap_err();
                    sender.send(mark.0.get()).unwrap();
                    std::panic::resume_unwind(payload);
                });
            });
            runtime.turn(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        });
    })
    .join()
    .unwrap();
    assert_ne!(unwound.try_recv(), Ok(true), "it saw a value that was dropped");
}
