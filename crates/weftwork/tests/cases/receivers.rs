//! Tests that the client of an upgraded connection waits while the receiver of its bytes has no room, and that no byte is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weftwork::http::HeaderValue;
use weftwork::{Feed, FeedLimits, FeedSender, Request, Response, Running, Settings, UpgradeHandler};

use super::CASE;
use crate::support::{Client, TIMEOUT, eventually, noise, over_http2};

const SHORT: Duration = Duration::from_millis(100);

/// More than the connection, the kernel and the client of the test keep together. Windows of HTTP/2 are smaller.
fn large() -> usize {
    if over_http2::is_on() { 4 << 20 } else { 24 << 20 }
}

/// When a receiver has room again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resume {
    /// When the test gives it room.
    Test,
    /// During the poll that finds none.
    Poll,
    /// When another thread gives it room.
    Thread,
}

/// What the test and the receiver share.
#[derive(Default)]
struct Inside {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes for which there is room.
    room: usize,
    waker: Option<Waker>,
    received: Vec<u8>,
    has_ended: bool,
    sender: Option<FeedSender>,
}

impl Inside {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_room(&self, bytes: usize) {
        let mut state = self.lock();
        state.room = state.room.saturating_add(bytes);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    #[track_caller]
    fn waits_for_room(&self) {
        eventually("the receiver is asked for room", || self.lock().waker.is_some());
    }

    #[track_caller]
    fn receives(&self, count: usize) {
        eventually("all bytes arrive", || self.lock().received.len() >= count);
    }

    #[track_caller]
    fn ends(&self) {
        eventually("the receiver is dropped", || self.lock().has_ended);
    }
}

struct Receiver(Arc<Inside>, Resume);

impl UpgradeHandler for Receiver {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut state = self.0.lock();
        if state.room > 0 {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        drop(state);
        match self.1 {
            Resume::Test => {}
            Resume::Poll => self.0.give_room(1000),
            Resume::Thread => {
                let inside = self.0.clone();
                std::thread::spawn(move || inside.give_room(50_000));
            }
        }
        Poll::Pending
    }

    fn on_data(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut state = self.0.lock();
        assert!(state.room > 0, "bytes come only if there is room");
        let count = bytes.len().min(state.room);
        state.room -= count;
        state.received.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
    }
}

fn start(resume: Resume) -> (Running, Arc<Inside>) {
    start_with(resume, |settings| settings)
}

fn start_with(resume: Resume, change: impl FnOnce(Settings) -> Settings) -> (Running, Arc<Inside>) {
    let inside = Arc::<Inside>::default();
    let shared = inside.clone();
    let handler = move |_: &mut Request| {
        let (sender, feed) = Feed::new(FeedLimits::default());
        shared.lock().sender = Some(sender);
        Response::upgrade_fed(HeaderValue::from_static("raw"), feed, Receiver(shared.clone(), resume))
    };
    (CASE.bind("127.0.0.1:0").settings(change).start(handler).unwrap(), inside)
}

#[track_caller]
fn upgraded(server: &Running, early: &str) -> Client {
    let mut client = Client::connect(server);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n{early}"));
    assert_eq!(client.answer_head().status, 101);
    client
}

#[test]
fn a_client_waits_for_room() {
    let (server, inside) = start(Resume::Test);
    let mut client = upgraded(&server, "early");
    inside.waits_for_room();
    let body = noise(large());
    let sent = client.send_aside(body.clone());
    // What the feed sends does not wait for room.
    inside.lock().sender.as_ref().unwrap().send("news").unwrap();
    assert_eq!(client.exactly(4), b"news");
    // Time in which a connection that reads on would read everything.
    std::thread::sleep(SHORT * 2);
    assert!(!sent.is_finished() && inside.lock().received.is_empty(), "it is held back");
    inside.give_room(5);
    inside.receives(5);
    inside.waits_for_room();
    assert!(!sent.is_finished() && inside.lock().received == b"early");
    inside.give_room(usize::MAX);
    sent.join().unwrap().unwrap();
    client.half_close();
    inside.ends();
    assert!(inside.lock().received[5..] == body, "{} bytes", inside.lock().received.len());
}

/// Its waker may be called at any moment.
#[test]
fn no_byte_is_lost_over_many_waits_for_room() {
    for resume in [Resume::Poll, Resume::Thread] {
        let (server, inside) = start(resume);
        let client = upgraded(&server, "");
        let body = noise(2 << 20);
        let sent = client.send_aside(body.clone());
        inside.receives(body.len());
        sent.join().unwrap().unwrap();
        client.half_close();
        inside.ends();
        assert!(inside.lock().received == body);
    }
}

#[test]
fn bytes_before_the_end_arrive_after_a_wait_for_room() {
    let (server, inside) = start(Resume::Test);
    let mut client = upgraded(&server, "");
    inside.waits_for_room();
    client.send("last");
    client.half_close();
    // The connection goes on meanwhile, and knows of the end.
    inside.lock().sender.as_ref().unwrap().send("news").unwrap();
    assert_eq!(client.exactly(4), b"news");
    inside.give_room(100);
    inside.ends();
    assert_eq!(inside.lock().received, b"last");
}

#[test]
fn a_reset_ends_a_wait_for_room() {
    let (server, inside) = start(Resume::Test);
    let mut client = upgraded(&server, "");
    inside.waits_for_room();
    client.send("not read");
    client.reset();
    inside.ends();
    eventually("the connection ends", || server.stats().connections == 0);
}

/// A client that is not read is not silent.
#[test]
fn a_client_has_its_time_again_after_a_wait_for_room() {
    let (server, inside) =
        start_with(Resume::Test, |settings| settings.upgrade_idle_timeout(SHORT).heartbeat(SHORT / 10));
    let mut client = upgraded(&server, "");
    inside.waits_for_room();
    std::thread::sleep(SHORT * 3);
    client.send("still here");
    inside.give_room(usize::MAX);
    inside.receives(10);
    inside.ends();
}

#[test]
fn a_stop_of_the_server_ends_a_wait_for_room() {
    let (server, inside) = start(Resume::Test);
    let mut client = upgraded(&server, "");
    inside.waits_for_room();
    client.send("not read");
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    inside.ends();
    client.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
}
