//! Models of the two ends of a stream, on two threads: no change is lost between a look and the wait that follows it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::transport::stream::Duplex;

/// Counts its wakes. No thread decides by them, so loom need not know of them.
#[derive(Default)]
struct Woken(AtomicUsize);

impl WakeConn for Woken {
    fn wake(&self, _: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn waker() -> (Arc<Woken>, Arc<dyn WakeConn>) {
    let woken = Arc::<Woken>::default();
    (woken.clone(), woken)
}

fn stream() -> Arc<StreamPipe> {
    StreamPipe::new(1, &StreamHub::new(None, None))
}

/// Fills the space for the response, as far as the request may.
fn fill(pipe: &StreamPipe) {
    while pipe.send(&[0; RESPONSE_BYTES_MAX], &[]).is_ok() {}
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

/// Two requests have something for their connection while the connection goes to sleep.
#[test]
fn loom_stream_hub_loses_no_change() {
    loom::model(|| {
        let hub = StreamHub::new(None, None);
        let requests = [1, 3].map(|id| {
            let pipe = StreamPipe::new(id, &hub);
            thread::spawn(move || pipe.close())
        });
        let (woken, wakes) = waker();
        let mut seen = Vec::new();
        hub.take_changed(&mut seen);
        let sleeps = hub.watch(&wakes, 0);
        requests.into_iter().for_each(|request| request.join().unwrap());
        let is_woken = woken.0.load(Ordering::SeqCst) > 0;
        assert!(seen.len() == 2 || !sleeps || is_woken);
        let mut later = Vec::new();
        hub.take_changed(&mut later);
        seen.append(&mut later);
        seen.sort_unstable();
        assert_eq!(seen, [1, 3]);
    });
}

/// The connection looks at a stream while its request writes: the second note is not lost because of the first.
#[test]
fn loom_stream_is_noted_again() {
    loom::model(|| {
        let hub = StreamHub::new(None, None);
        let pipe = StreamPipe::new(1, &hub);
        let request = {
            let pipe = pipe.clone();
            thread::spawn(move || {
                assert_eq!(pipe.send(b"a", &[]).unwrap(), 1);
                assert_eq!(pipe.send(b"b", &[]).unwrap(), 1);
            })
        };
        let mut taken = 0;
        let look = |taken: &mut usize| {
            let mut changed = Vec::new();
            hub.take_changed(&mut changed);
            if !changed.is_empty() {
                pipe.take(|bytes, _| {
                    *taken += bytes.len();
                    (bytes.len(), 0)
                });
            }
        };
        look(&mut taken);
        let (woken, wakes) = waker();
        let sleeps = hub.watch(&wakes, 0);
        request.join().unwrap();
        assert!(taken == 2 || !sleeps || woken.0.load(Ordering::SeqCst) > 0);
        look(&mut taken);
        assert_eq!(taken, 2);
    });
}

/// What the connection does while a request that has found nothing goes to sleep.
fn wakes_a_request(prepare: fn(&StreamPipe), reads: bool, change: fn(&StreamPipe)) {
    loom::model(move || {
        let pipe = stream();
        prepare(&pipe);
        let connection = {
            let pipe = pipe.clone();
            thread::spawn(move || change(&pipe))
        };
        let (woken, wakes) = waker();
        // On a loop.
        let sleeps = pipe.watch(reads, !reads, &wakes, 0);
        connection.join().unwrap();
        assert!(!sleeps || woken.0.load(Ordering::SeqCst) == 1);
    });
    loom::model(move || {
        let pipe = stream();
        prepare(&pipe);
        let connection = {
            let pipe = pipe.clone();
            thread::spawn(move || change(&pipe))
        };
        // On a thread that polls.
        let fd = pipe.fd(reads, !reads).unwrap();
        connection.join().unwrap();
        assert!(is_readable(fd));
        let other = pipe.fd(!reads, reads).unwrap();
        // Only an end is for both directions. There is space unless the request has filled it.
        assert_eq!(is_readable(other), pipe.peer_has_gone() || reads);
    });
}

#[test]
fn loom_stream_wakes_a_reader() {
    wakes_a_request(
        |_| {},
        true,
        |pipe| {
            pipe.give(1, |to| to.push(b'x'));
            pipe.wake_request();
        },
    );
}

#[test]
fn loom_stream_wakes_a_writer() {
    wakes_a_request(fill, false, |pipe| {
        pipe.take(|bytes, _| (bytes.len(), 0));
    });
}

#[test]
fn loom_stream_wakes_both_at_a_reset() {
    wakes_a_request(|_| {}, true, StreamPipe::reset);
    wakes_a_request(fill, false, StreamPipe::reset);
}

/// A thread reads while bytes arrive: its descriptor says at the end whether there are more.
#[test]
fn loom_stream_descriptor_follows_the_bytes() {
    loom::model(|| {
        let pipe = stream();
        let connection = {
            let pipe = pipe.clone();
            thread::spawn(move || {
                pipe.give(1, |to| to.push(b'x'));
                pipe.give(1, |to| to.push(b'y'));
            })
        };
        let _ = pipe.fd(true, false).unwrap();
        let mut got = Vec::with_capacity(8);
        let _ = pipe.recv(&mut got);
        connection.join().unwrap();
        assert_eq!(is_readable(pipe.fd(true, false).unwrap()), got.len() < 2);
        let _ = pipe.recv(&mut got);
        assert_eq!(got.iter().filter(|byte| b"xy".contains(byte)).count(), 2);
        assert!(!is_readable(pipe.fd(true, false).unwrap()));
    });
}
