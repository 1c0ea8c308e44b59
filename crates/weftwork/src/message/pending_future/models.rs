//! Models of a loop that polls a future, and of its wakers: the loop does not sleep while the future wants to be polled.

use std::future::poll_fn;

use loom::sync::Condvar;
use loom::thread::{self, JoinHandle};

use super::*;

/// A loop that has one connection.
#[derive(Default)]
struct EventLoop {
    has_message: Mutex<bool>,
    sent: Condvar,
}

impl EventLoop {
    /// loom reports a deadlock if no message comes.
    fn wait(&self) {
        let mut has_message = self.has_message.lock().unwrap();
        while !std::mem::take(&mut *has_message) {
            has_message = self.sent.wait(has_message).unwrap();
        }
    }
}

impl WakeConn for EventLoop {
    fn wake(&self, _: usize) {
        *self.has_message.lock().unwrap() = true;
        self.sent.notify_one();
    }
}

/// A value that another thread sends.
#[derive(Default)]
struct Channel {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Channel {
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    fn send(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Returns a future that needs one value of each sender, and the senders.
fn future_of<const N: usize>() -> (PendingFuture<()>, [JoinHandle<()>; N]) {
    let channels = [(); N].map(|()| Arc::<Channel>::default());
    let senders = channels.clone().map(|channel| thread::spawn(move || channel.send()));
    let future = poll_fn(move |cx| {
        // Each channel gets the waker of the last poll.
        let pending = channels.iter().filter(|channel| channel.poll(cx).is_pending()).count();
        if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
    });
    (PendingFuture::new(future), senders)
}

/// The values come while the loop polls, looks for the last time, and sleeps.
fn loop_polls_to_the_end<const N: usize>() {
    loom::model(|| {
        let (mut future, senders) = future_of::<N>();
        let event_loop = Arc::<EventLoop>::default();
        let wakes: Arc<dyn WakeConn> = event_loop.clone();
        while future.poll().is_pending() {
            if future.watch(&wakes, 0) {
                event_loop.wait();
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn loom_pending_future_is_polled_again() {
    loop_polls_to_the_end::<1>();
}

#[test]
fn loom_pending_future_is_polled_again_after_each_of_two_wake_ups() {
    loop_polls_to_the_end::<2>();
}

/// The client leaves while the value comes. A waker may be left, and does not keep the loop.
#[test]
fn loom_pending_future_leaves_its_loop() {
    loom::model(|| {
        let (mut future, [sender]) = future_of::<1>();
        let event_loop = Arc::<EventLoop>::default();
        let wakes: Arc<dyn WakeConn> = event_loop.clone();
        if future.poll().is_pending() {
            future.watch(&wakes, 0);
        }
        drop((future, wakes));
        sender.join().unwrap();
        assert_eq!(Arc::strong_count(&event_loop), 1);
    });
}
