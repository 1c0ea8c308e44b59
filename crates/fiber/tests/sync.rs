//! Tests that channels, mutex and semaphore behave as documented.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use weftwork_fiber::sync::{
    Mutex, RecvError, Semaphore, SendError, TryRecvError, TrySendError, channel, oneshot,
};
use weftwork_fiber::{Interest, Signal, run, spawn, yield_now};

#[test]
fn a_channel_keeps_order_and_holds_back_its_sender() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&log);
    run(move || {
        let (sender, receiver) = channel(2);
        let sent = Rc::clone(&shared);
        spawn(move || {
            for value in 0..4 {
                sender.send(value).unwrap();
                sent.borrow_mut().push(('s', value));
            }
        });
        yield_now();
        for value in receiver {
            shared.borrow_mut().push(('r', value));
        }
    })
    .unwrap();
    let log = log.borrow();
    let of = |who| log.iter().filter(|entry| entry.0 == who).map(|entry| entry.1).collect::<Vec<_>>();
    assert_eq!((of('s'), of('r')), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
    assert_eq!(log[..3], [('s', 0), ('s', 1), ('r', 0)]);
}

#[test]
fn a_channel_works_outside_a_fiber_as_long_as_it_need_not_wait() {
    let (sender, receiver) = channel(1);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    sender.send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    assert_eq!(receiver.recv(), Ok(1));
    sender.clone().try_send(3).unwrap();
    drop(sender);
    assert_eq!((receiver.recv(), receiver.recv()), (Ok(3), Err(RecvError)));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn a_channel_without_its_receiver_gives_values_back() {
    let value = Rc::new(());
    let (sender, receiver) = channel(2);
    sender.send(Rc::clone(&value)).unwrap();
    drop(receiver);
    assert_eq!(Rc::strong_count(&value), 1, "unread values go with the receiver");
    assert!(sender.is_closed());
    assert_eq!(sender.send(Rc::clone(&value)), Err(SendError(Rc::clone(&value))));
    assert_eq!(sender.try_send(Rc::clone(&value)), Err(TrySendError::Closed(value)));
}

#[test]
fn a_sender_that_waits_learns_that_the_receiver_went() {
    run(|| {
        let (sender, receiver) = channel(1);
        sender.send(1).unwrap();
        let waiting = spawn(move || sender.send(2));
        yield_now();
        drop(receiver);
        assert_eq!(waiting.join().unwrap(), Err(SendError(2)));
    })
    .unwrap();
}

#[test]
fn a_receiver_that_waits_learns_that_the_senders_went() {
    run(|| {
        let (sender, receiver) = channel::<()>(1);
        let waiting = spawn(move || receiver.recv());
        let second = sender.clone();
        yield_now();
        drop(sender);
        yield_now();
        assert!(!waiting.is_finished());
        drop(second);
        assert_eq!(waiting.join().unwrap(), Err(RecvError));
    })
    .unwrap();
}

#[test]
fn oneshot_hands_over_once() {
    let (sender, receiver) = oneshot();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    sender.send(7).unwrap();
    assert_eq!(receiver.try_recv(), Ok(7));
    assert_eq!((receiver.try_recv(), receiver.recv()), (Err(TryRecvError::Closed), Err(RecvError)));

    let (sender, receiver) = oneshot();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send(7), Err(SendError(7)));

    run(|| {
        let (sender, receiver) = oneshot::<()>();
        let waiting = spawn(move || receiver.recv());
        yield_now();
        drop(sender);
        assert_eq!(waiting.join().unwrap(), Err(RecvError));
    })
    .unwrap();
}

#[test]
fn a_semaphore_lets_in_so_many_in_order() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let (inside, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (shared, most_seen) = (Rc::clone(&log), Rc::clone(&most));
    run(move || {
        let seats = Rc::new(Semaphore::new(2));
        for guest in 0..5 {
            let (seats, log) = (Rc::clone(&seats), Rc::clone(&shared));
            let (inside, most) = (Rc::clone(&inside), Rc::clone(&most_seen));
            spawn(move || {
                let _seat = seats.acquire();
                inside.set(inside.get() + 1);
                most.set(most.get().max(inside.get()));
                log.borrow_mut().push(guest);
                yield_now();
                inside.set(inside.get() - 1);
            });
        }
    })
    .unwrap();
    assert_eq!((&**log.borrow(), most.get()), (&[0, 1, 2, 3, 4][..], 2));
}

#[test]
fn a_mutex_stays_locked_across_a_wait_and_is_not_poisoned() {
    run(|| {
        let mutex = Rc::new(Mutex::new(0));
        let adders: Vec<_> = (0..10)
            .map(|_| {
                let mutex = Rc::clone(&mutex);
                spawn(move || {
                    let mut value = mutex.lock();
                    let seen = *value;
                    yield_now();
                    *value = seen + 1;
                })
            })
            .collect();
        yield_now();
        assert!(mutex.try_lock().is_none());
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        let theirs = Rc::clone(&mutex);
        let panicker = spawn(move || {
            let _guard = theirs.lock();
            panic!("with the lock held");
        });
        assert!(panicker.join().is_err());
        assert_eq!(*mutex.lock(), 10);
    })
    .unwrap();
}

/// A call that must wait outside a fiber panics, and the text names the call.
fn check_refused(call: &str, wait: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
    let said = payload.downcast_ref::<String>().unwrap();
    assert!(said.starts_with(&format!("{call} must wait, which is only possible in a fiber")), "{said}");
}

#[test]
fn waiting_outside_a_fiber_panics_and_names_the_call() {
    let (sender, receiver) = channel(1);
    check_refused("Receiver::recv", || receiver.recv().unwrap());
    sender.send(()).unwrap();
    check_refused("Sender::send", || sender.send(()).unwrap());
    let (_sender, receiver) = oneshot::<()>();
    check_refused("OneshotReceiver::recv", || receiver.recv().unwrap());
    let none = Semaphore::new(0);
    check_refused("Semaphore::acquire", || drop(none.acquire()));
    let mutex = Mutex::new(());
    let _locked = mutex.lock();
    check_refused("Mutex::lock", || drop(mutex.lock()));
    let runtime = weftwork_fiber::Runtime::new().unwrap();
    check_refused("JoinHandle::join", || runtime.spawn(|| ()).join().unwrap());
}

/// Accepts text as a slow socket does.
struct Yielding;

impl fmt::Write for Yielding {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        yield_now();
        Ok(())
    }
}

/// Formats `what` while other fibers use it.
#[track_caller]
fn check_formatted_beside<T: fmt::Debug + 'static>(what: T, using: fn(&T)) {
    run(move || {
        let what = Rc::new(what);
        // Always two at a time, at every part of the text.
        let users: Vec<_> = (0..20)
            .map(|user| {
                let what = what.clone();
                spawn(move || {
                    (0..user / 2 * 5).for_each(|_| yield_now());
                    using(&what);
                })
            })
            .collect();
        write!(Yielding, "{what:?}").unwrap();
        users.into_iter().for_each(|user| user.join().unwrap());
    })
    .unwrap();
}

// The text is written to a writer that may suspend the fiber.

#[test]
fn a_mutex_can_be_formatted_while_others_lock_it() {
    check_formatted_beside(Mutex::new([7; 20]), |mutex| mutex.lock()[0] += 1);
    let mutex = Mutex::new(7);
    assert_eq!(format!("{mutex:?}"), "Mutex(7)");
    let _held = mutex.lock();
    assert_eq!(format!("{mutex:?}"), "Mutex(<locked>)");
}

#[test]
fn a_semaphore_can_be_formatted_while_others_wait_for_it() {
    check_formatted_beside(Semaphore::new(1), |semaphore| {
        let _permit = semaphore.acquire();
        yield_now();
    });
}

#[test]
fn a_signal_can_be_formatted_while_others_wait_for_it() {
    check_formatted_beside(Signal::new(), |signal| {
        let (socket, _) = UnixStream::pair().unwrap();
        signal.wait_for(socket.as_fd(), Interest::Readable, None).unwrap();
    });
}
