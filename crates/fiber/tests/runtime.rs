//! Tests that a runtime in the loop of another program turns, watches, wakes and ends as documented.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use weftwork_fiber::sync::channel;
use weftwork_fiber::{
    Config, Interest, JoinError, Ready, Runtime, RuntimeGone, sleep, spawn, timeout, wait_for, wait_readable,
    wait_writable, yield_now,
};

const LONG: Duration = Duration::from_secs(3_600);

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// Writes until the peer must read.
fn fill(mut socket: &UnixStream) {
    while socket.write(&[0; 4096]).is_ok() {}
}

/// Runs one turn that does not wait.
fn turn(runtime: &Runtime) -> Vec<Ready> {
    let mut ready = Vec::new();
    runtime.turn(Some(Duration::ZERO), &mut ready).unwrap();
    ready
}

fn finish(runtime: &Runtime) {
    while runtime.has_work() {
        runtime.turn(None, &mut Vec::new()).unwrap();
    }
}

#[test]
fn a_watched_descriptor_is_reported_once_an_edge() {
    let runtime = Runtime::new().unwrap();
    let (ours, mut theirs) = pair();
    runtime.watch(&ours, Interest::Readable, 7).unwrap();
    assert_eq!(turn(&runtime), []);
    theirs.write_all(b"x").unwrap();
    assert_eq!(turn(&runtime), [Ready { token: 7, readable: true, writable: false, closed: false }]);
    assert_eq!(turn(&runtime), []);
    runtime.rearm(&ours).unwrap();
    assert_eq!(turn(&runtime).len(), 1, "rearm reports what is there already");
    drop(theirs);
    assert!(turn(&runtime)[0].closed);
    runtime.unwatch(&ours).unwrap();
    assert_eq!(turn(&runtime), []);
}

#[test]
fn watching_twice_or_not_at_all_is_an_error() {
    let runtime = Runtime::new().unwrap();
    let (ours, _theirs) = pair();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(runtime.unwatch(&ours)), std::io::ErrorKind::NotFound);
    assert_eq!(kind(runtime.rearm(&ours)), std::io::ErrorKind::NotFound);
    runtime.watch(&ours, Interest::Both, 1).unwrap();
    assert_eq!(kind(runtime.watch(&ours, Interest::Both, 2)), std::io::ErrorKind::AlreadyExists);
    runtime.unwatch(&ours).unwrap();
    runtime.watch(&ours, Interest::Writable, 3).unwrap();
    assert!(matches!(turn(&runtime)[..], [Ready { token: 3, writable: true, readable: false, .. }]));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(kind(runtime.watch(&file, Interest::Readable, 4)), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_fiber_that_waits_for_a_watched_descriptor_takes_the_event() {
    let runtime = Runtime::new().unwrap();
    let (ours, mut theirs) = pair();
    let ours = Rc::new(ours);
    runtime.watch(&*ours, Interest::Readable, 7).unwrap();
    let socket = Rc::clone(&ours);
    let fiber = runtime.spawn(move || wait_readable(socket.as_fd(), None));
    assert_eq!(turn(&runtime), []);
    assert!(!fiber.is_finished());
    theirs.write_all(b"x").unwrap();
    assert_eq!(turn(&runtime), []);
    assert!(fiber.is_finished());

    // The byte is still unread and its edge has been consumed: the wait reads before it sleeps.
    let socket = Rc::clone(&ours);
    let again = runtime.spawn(move || wait_readable(socket.as_fd(), None));
    turn(&runtime);
    assert!(again.is_finished());

    // The other direction joins the registration.
    let socket = Rc::clone(&ours);
    let writer = runtime.spawn(move || wait_writable(socket.as_fd(), None));
    finish(&runtime);
    assert!(writer.is_finished());
    theirs.write_all(b"y").unwrap();
    assert_eq!(turn(&runtime)[0].token, 7, "the watch outlives the fibers' waits");
}

#[test]
fn a_wait_for_either_ends_with_the_first() {
    let runtime = Runtime::new().unwrap();
    for is_watched in [false, true] {
        let (ours, mut theirs) = pair();
        let ours = Rc::new(ours);
        if is_watched {
            runtime.watch(&*ours, Interest::Both, 7).unwrap();
            assert_eq!(turn(&runtime).len(), 1, "there is room");
        }
        fill(&ours);
        let wait = || {
            let socket = Rc::clone(&ours);
            runtime.spawn(move || wait_for(socket.as_fd(), Interest::Both, None))
        };
        let waiting = wait();
        assert_eq!(turn(&runtime), []);
        assert!(!waiting.is_finished());
        theirs.write_all(b"x").unwrap();
        assert_eq!(turn(&runtime), [], "the fiber has it");
        assert!(waiting.is_finished());
        (&*ours).read_exact(&mut [0]).unwrap();
        let waiting = wait();
        turn(&runtime);
        assert!(!waiting.is_finished());
        while !waiting.is_finished() {
            assert!(theirs.read(&mut [0; 4096]).unwrap() > 0);
            turn(&runtime);
        }
        if is_watched {
            runtime.unwatch(&*ours).unwrap();
        }
    }
}

/// The fiber never waits, and the descriptor that it reads is not the watched one.
#[test]
fn a_fiber_that_finds_a_watched_descriptor_ready_each_time_lets_others_run() {
    let runtime = Runtime::new().unwrap();
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").unwrap();
    runtime.watch(&ours, Interest::Readable, 7).unwrap();
    let done = Rc::new(Cell::new(false));
    let is_done = Rc::clone(&done);
    let looks = runtime.spawn(move || {
        let mut looks = 0;
        while !is_done.get() && looks < 100_000 {
            wait_readable(ours.as_fd(), None).unwrap();
            looks += 1;
        }
        looks
    });
    runtime.spawn(move || done.set(true));
    finish(&runtime);
    let looks = runtime.block_on(|| looks.join().unwrap()).unwrap();
    assert!(looks < 100_000, "the other one never ran");
}

#[test]
fn two_fibers_may_wait_for_one_descriptor() {
    let runtime = Runtime::new().unwrap();
    let (ours, mut theirs) = pair();
    let ours = Rc::new(ours);
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let socket = Rc::clone(&ours);
            runtime.spawn(move || wait_readable(socket.as_fd(), None))
        })
        .collect();
    turn(&runtime);
    theirs.write_all(b"x").unwrap();
    finish(&runtime);
    waiters.into_iter().for_each(|waiter| runtime.block_on(|| waiter.join().unwrap().unwrap()).unwrap());
}

#[test]
fn a_wait_ends_at_its_deadline_in_a_fiber_and_outside() {
    let (ours, _theirs) = pair();
    let wait = move || {
        let deadline = Instant::now() + Duration::from_millis(5);
        let kind = wait_readable(ours.as_fd(), Some(deadline)).unwrap_err().kind();
        assert_eq!((kind, Instant::now() >= deadline), (std::io::ErrorKind::TimedOut, true));
        wait_writable(ours.as_fd(), Some(deadline)).unwrap();
        ours
    };
    let ours = weftwork_fiber::run(wait).unwrap();
    let deadline = Instant::now() + Duration::from_millis(5);
    let kind = wait_readable(ours.as_fd(), Some(deadline)).unwrap_err().kind();
    assert_eq!((kind, Instant::now() >= deadline), (std::io::ErrorKind::TimedOut, true));
    wait_writable(ours.as_fd(), None).unwrap();
}

#[test]
fn a_temporary_wait_leaves_no_registration() {
    let runtime = Runtime::new().unwrap();
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").unwrap();
    let ours = runtime
        .block_on(|| {
            wait_readable(ours.as_fd(), None).unwrap();
            wait_readable(ours.as_fd(), None).unwrap();
            ours
        })
        .unwrap();
    runtime.watch(&ours, Interest::Readable, 1).unwrap();
    assert_eq!(turn(&runtime).len(), 1);
}

#[test]
fn a_remote_spawns_and_wakes_from_another_thread() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime_thread = sender.clone();
        remote
            .spawn(move || {
                yield_now();
                runtime_thread.send(std::thread::current().id()).unwrap();
            })
            .unwrap();
    });
    let ran_on = loop {
        runtime.turn(None, &mut Vec::new()).unwrap();
        if let Ok(id) = receiver.try_recv() {
            break id;
        }
    };
    assert_eq!(ran_on, std::thread::current().id());
    thread.join().unwrap();

    // A wake-up between two turns ends the next turn, which would otherwise wait forever.
    runtime.remote().wake().unwrap();
    runtime.turn(None, &mut Vec::new()).unwrap();
}

#[test]
fn no_message_is_lost_under_contention() {
    const EACH: usize = 10_000;
    let runtime = Runtime::new().unwrap();
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (remote, sender) = (runtime.remote(), sender.clone());
            std::thread::spawn(move || {
                for _ in 0..EACH {
                    let sender = sender.clone();
                    remote.spawn(move || sender.send(()).unwrap()).unwrap();
                }
            })
        })
        .collect();
    let mut seen = 0;
    while seen < 4 * EACH {
        // Without a timeout: a lost wake-up would hang here.
        runtime.turn(None, &mut Vec::new()).unwrap();
        seen += receiver.try_iter().count();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_remote_outlives_its_runtime_and_says_so() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    drop(runtime);
    assert_eq!(remote.wake(), Err(RuntimeGone));
    assert_eq!(remote.spawn(|| ()), Err(RuntimeGone));
}

#[test]
fn a_turn_waits_no_longer_than_the_next_timer() {
    let runtime = Runtime::new().unwrap();
    assert_eq!((runtime.next_deadline(), runtime.has_work()), (None, false));
    // A timer that expires within the turn leaves no deadline.
    let sleeper = runtime.spawn(|| sleep(LONG));
    assert!(runtime.has_work());
    turn(&runtime);
    assert!(runtime.next_deadline().unwrap() <= Instant::now() + LONG);
    sleeper.cancel();
    let fiber = runtime.spawn(|| sleep(Duration::from_millis(5)));
    while !fiber.is_finished() {
        runtime.turn(Some(LONG), &mut Vec::new()).unwrap();
    }
    assert_eq!((runtime.next_deadline(), runtime.has_work(), runtime.fibers()), (None, false, 0));
}

struct Noted(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
        // A fiber that a destructor spawns while the runtime closes never runs.
        assert!(spawn(|| panic!("ran")).is_finished());
    }
}

#[test]
fn dropping_the_runtime_unwinds_every_fiber() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let runtime = Runtime::new().unwrap();
    let note = |name| Noted(Rc::clone(&log), name);
    let (suspended, unstarted) = (note("suspended"), note("unstarted"));
    let handle = runtime.spawn(move || {
        let _suspended = suspended;
        sleep(LONG);
    });
    turn(&runtime);
    runtime.spawn(move || drop(unstarted));
    drop(runtime);
    log.borrow_mut().sort_unstable();
    assert_eq!(*log.borrow(), ["suspended", "unstarted"]);
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
}

/// The values that panic when they are dropped never ran: a spawned closure, and a closure that another thread
/// sent.
#[test]
fn a_panic_in_a_destructor_keeps_no_other_fiber_from_being_unwound() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            // The payload is not on the heap, because nothing may drop it.
            resume_unwind(Box::new(()));
        }
    }
    for is_sent in [false, true] {
        let runtime = Runtime::new().unwrap();
        let ended = Rc::new(());
        let held = Rc::clone(&ended);
        runtime.spawn(move || {
            let _held = held;
            sleep(LONG);
        });
        runtime.run_ready();
        for panics in [Panics, Panics] {
            let never_runs = move || drop(panics);
            if is_sent {
                runtime.remote().spawn(never_runs).unwrap();
            } else {
                drop(runtime.spawn(never_runs));
            }
        }
        drop(runtime);
        assert_eq!(Rc::strong_count(&ended), 1, "sent: {is_sent}");
    }
}

/// Another fiber held the thread for longer than the timeout of the wait.
#[test]
fn what_came_before_the_deadline_is_no_time_out() {
    let runtime = Runtime::new().unwrap();
    let mut time = Duration::from_millis(20);
    let (waiter, _theirs, deadline) = loop {
        let (ours, mut theirs) = pair();
        let deadline = Instant::now() + time;
        let waiter =
            runtime.spawn(move || wait_readable(ours.as_fd(), Some(deadline)).map_err(|error| error.kind()));
        turn(&runtime);
        let written = theirs.write_all(b"x");
        if Instant::now() < deadline {
            written.unwrap();
            break (waiter, theirs, deadline);
        }
        // A busy machine delayed the test, and the byte may have arrived too late.
        time *= 2;
    };
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    runtime.run_ready();
    assert!(waiter.is_finished());
    assert_eq!(runtime.block_on(|| waiter.join().unwrap()).unwrap(), Ok(()));
}

#[test]
fn dropping_the_runtime_while_the_thread_unwinds_unwinds_its_fibers_too() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&log);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let runtime = Runtime::new().unwrap();
        runtime.spawn(move || {
            let _local = scopeguard(move || shared.borrow_mut().push("unwound"));
            sleep(LONG);
        });
        turn(&runtime);
        std::panic::resume_unwind(Box::new("thread"));
    }));
    assert_eq!(*result.unwrap_err().downcast_ref::<&str>().unwrap(), "thread");
    assert_eq!(*log.borrow(), ["unwound"]);
}

fn scopeguard(f: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(f)
}

#[test]
fn a_socket_outlives_its_runtime_and_joins_the_next() {
    use weftwork_fiber::net;
    let sockets = weftwork_fiber::run(|| {
        let (one, two) = net::UnixStream::pair().unwrap();
        one.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!((&one).read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        (one, two)
    });
    let (one, two) = sockets.unwrap();
    let byte = weftwork_fiber::run(move || {
        one.set_read_timeout(None).unwrap();
        spawn(move || (&two).write_all(b"x").unwrap());
        let mut byte = [0];
        (&one).read_exact(&mut byte).unwrap();
        byte
    });
    assert_eq!(byte.unwrap(), *b"x");
}

/// Tests that a programming error panics, and that the text says what to do.
fn check_panics(says: &str, f: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains(says), "{text}");
}

#[test]
fn misuse_panics_with_a_clear_message() {
    check_panics("without a fiber runtime", || drop(spawn(|| ())));
    check_panics("outside a fiber", || drop(weftwork_fiber::timeout(LONG, String::new)));
    let runtime = Rc::new(Runtime::new().unwrap());
    let same = Rc::clone(&runtime);
    let turned = move || check_panics("in a fiber of the same runtime", || drop(turn(&same)));
    runtime.block_on(turned).unwrap();
}

#[test]
fn runtimes_do_not_nest() {
    let nested = weftwork_fiber::run(|| weftwork_fiber::run(|| ())).unwrap();
    assert_eq!(nested.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

/// The call is refused before the fiber is spawned.
#[test]
fn what_was_to_be_run_within_a_fiber_does_not_run_later() {
    let (runtime, ran) = (Rc::new(Runtime::new().unwrap()), Rc::new(Cell::new(false)));
    let (inner, shared) = (Rc::clone(&runtime), Rc::clone(&ran));
    runtime.spawn(move || {
        let nested = AssertUnwindSafe(|| inner.block_on(move || shared.set(true)));
        assert!(catch_unwind(nested).is_err());
    });
    finish(&runtime);
    assert!(!ran.get());
}

#[test]
fn a_fiber_that_gets_no_stack_says_so() {
    for bytes in [1 << 50, usize::MAX] {
        let runtime = Runtime::with_config(&Config::new().stack_bytes(bytes)).unwrap();
        let fiber = runtime.spawn(|| ());
        finish(&runtime);
        let result = fiber.join();
        assert!(matches!(result, Err(JoinError::NoStack(_))), "{result:?}");
    }
}

/// Nothing joins the fiber, so the captured value must report.
#[test]
fn what_another_thread_sent_is_dropped_where_there_is_no_stack() {
    let runtime = Runtime::with_config(&Config::new().stack_bytes(1 << 50)).unwrap();
    let (sender, receiver) = mpsc::channel::<()>();
    runtime.remote().spawn(move || sender.send(()).unwrap()).unwrap();
    finish(&runtime);
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn a_panic_in_a_destructor_of_what_got_no_stack_ends_no_turn() {
    let runtime = Runtime::with_config(&Config::new().stack_bytes(1 << 50)).unwrap();
    let panics = || scopeguard(|| resume_unwind(Box::new(())));
    let (sent, spawned) = (panics(), panics());
    runtime.remote().spawn(move || drop(sent)).unwrap();
    let fiber = runtime.spawn(move || drop(spawned));
    finish(&runtime);
    assert!(matches!(fiber.join(), Err(JoinError::NoStack(_))));
}

/// A program with a poller of its own: no fiber may wait longer than that poller does.
#[test]
fn a_poller_that_watches_the_runtimes_misses_nothing() {
    const PAIRS: usize = 100;
    // Fewer than the events that arrive at once.
    let runtime = Runtime::with_config(&Config::new().events_max(8)).unwrap();
    let mut outer = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(8);
    let fd = runtime.as_raw_fd();
    outer.registry().register(&mut SourceFd(&fd), mio::Token(0), mio::Interest::READABLE).unwrap();

    let (theirs, fibers): (Vec<_>, Vec<_>) = (0..PAIRS)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (theirs, runtime.spawn(move || wait_readable(ours.as_fd(), None)))
        })
        .unzip();
    assert_eq!(runtime.park_timeout(), Some(Duration::ZERO));
    while runtime.run_ready() {}
    assert_eq!((runtime.park_timeout(), runtime.fibers()), (None, PAIRS));

    theirs.iter().for_each(|mut theirs| theirs.write_all(b"a").unwrap());
    while runtime.fibers() > 0 {
        outer.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert!(!events.is_empty(), "{} fibers were not told", runtime.fibers());
        runtime.turn(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    }
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap().is_ok()));
}

#[test]
fn the_wait_of_a_runtime_ends_with_its_next_timer() {
    let runtime = Runtime::new().unwrap();
    let fiber = runtime.spawn(|| sleep(Duration::from_millis(5)));
    assert!(runtime.run_ready());
    while !fiber.is_finished() {
        let park_timeout = runtime.park_timeout().unwrap();
        assert!(park_timeout <= Duration::from_millis(5));
        std::thread::sleep(park_timeout);
        runtime.run_ready();
    }
    assert_eq!(runtime.park_timeout(), None);
}

/// Another fiber held the thread for longer than the timeout.
#[test]
fn what_came_before_a_timeout_is_there() {
    for looks in [true, false] {
        let runtime = Runtime::new().unwrap();
        let (ours, mut theirs) = pair();
        let time = Duration::from_millis(200);
        let waiter = runtime.spawn(move || timeout(time, || wait_readable(ours.as_fd(), None)).is_ok());
        let (sender, receiver) = channel(1);
        let receives = runtime.spawn(move || timeout(time, || receiver.recv()).is_ok());
        turn(&runtime);
        theirs.write_all(b"x").unwrap();
        sender.try_send(()).unwrap();
        std::thread::sleep(time);
        if looks {
            turn(&runtime);
        } else {
            runtime.run_ready();
        }
        let ended = (waiter.is_finished(), receives.is_finished());
        assert_eq!(ended, (true, true), "looks: {looks}");
        let came = runtime.block_on(|| (waiter.join().unwrap(), receives.join().unwrap())).unwrap();
        assert_eq!(came, (true, true), "looks: {looks}");
    }
}

/// The same applies to an expired timeout: of two expired timeouts the earlier one counts.
#[test]
fn what_was_over_before_a_timeout_is_over_and_no_later_one_is() {
    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_millis(200);
    for (limit, time, in_time) in [(LATE, SOON, true), (SOON, LATE, false)] {
        let runtime = Runtime::new().unwrap();
        let (ours, _theirs) = pair();
        let sleeps = runtime.spawn(move || timeout(limit, || sleep(time)).is_ok());
        let reads = runtime.spawn(move || {
            let told = timeout(limit, || wait_readable(ours.as_fd(), Some(Instant::now() + time)));
            told.is_ok_and(|told| told.unwrap_err().kind() == ErrorKind::TimedOut)
        });
        turn(&runtime);
        std::thread::sleep(2 * LATE);
        runtime.turn(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        let was_over = runtime.block_on(|| (sleeps.join().unwrap(), reads.join().unwrap())).unwrap();
        assert_eq!(was_over, (in_time, in_time), "{limit:?}, {time:?}");
    }
}

#[test]
fn any_number_of_events_may_be_asked_for() {
    let config = Config::new().events_max(usize::MAX);
    assert_eq!(weftwork_fiber::run_with(&config, || 7).unwrap(), 7);
}

/// The event was assigned to a fiber that is cancelled before it runs.
#[test]
fn an_event_on_its_way_to_a_cancelled_fiber_goes_to_the_watcher() {
    let runtime = Rc::new(Runtime::new().unwrap());
    let (ours, mut theirs) = pair();
    let ours = Rc::new(ours);
    runtime.watch(&*ours, Interest::Readable, 7).unwrap();
    let waits = Rc::clone(&ours);
    let waiter = Rc::new(runtime.spawn(move || wait_readable(waits.as_fd(), None)));
    turn(&runtime);
    // Woken by the same poll, before the cancelling.
    let (woken, mut waker) = pair();
    let cancels = Rc::clone(&waiter);
    runtime.spawn(move || {
        wait_readable(woken.as_fd(), None).unwrap();
        cancels.cancel();
    });
    turn(&runtime);
    waker.write_all(b"x").unwrap();
    theirs.write_all(b"x").unwrap();
    let reports: Vec<Ready> = (0..4).flat_map(|_| turn(&runtime)).collect();
    assert!(waiter.is_finished());
    assert_eq!(reports.iter().map(|ready| ready.token).collect::<Vec<_>>(), [7]);
    runtime.unwatch(&*ours).unwrap();
}

#[test]
fn what_is_not_watched_cannot_be_rearmed() {
    let runtime = Runtime::new().unwrap();
    let (ours, _theirs) = pair();
    let ours = Rc::new(ours);
    let waits = Rc::clone(&ours);
    let waiter = runtime.spawn(move || wait_readable(waits.as_fd(), None));
    turn(&runtime);
    assert_eq!(runtime.rearm(&*ours).unwrap_err().kind(), ErrorKind::NotFound);
    waiter.cancel();
    finish(&runtime);
}

/// As in poll(2).
#[test]
fn a_regular_file_is_always_ready() {
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    wait_readable(file.as_fd(), None).unwrap();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(move || wait_readable(file.as_fd(), None)).unwrap().unwrap();
}
