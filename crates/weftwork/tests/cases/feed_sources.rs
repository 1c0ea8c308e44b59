//! Tests that the future that fills a feed is polled by the connection of the feed, has its time with others, and is dropped as
//! soon as nobody reads the feed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weftwork::{Feed, FeedLimits, FeedSender, Request, Response, Running};

use super::CASE;
use crate::support::{Client, Gate, Guarantee, eventually, is_logged, keep_log};

/// What the test and the futures of a server share.
#[derive(Default)]
struct Shared {
    is_ready: AtomicBool,
    sent: AtomicUsize,
    drops: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
    /// Polls of `/blocks` after the first stop here.
    gate: Gate,
}

impl Shared {
    fn pending(&self) -> usize {
        self.wakers.lock().unwrap().len()
    }

    fn finish(&self) {
        self.is_ready.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn has_dropped(&self, count: usize) {
        eventually("the futures are dropped", || self.drops.load(Ordering::SeqCst) == count);
    }
}

/// Is ready when the test says so.
struct Signalled(Arc<Shared>);

impl Future for Signalled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.is_ready.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        self.0.wakers.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Signalled {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn start() -> (Running, Arc<Shared>) {
    let shared = Arc::<Shared>::default();
    let theirs = shared.clone();
    let handler = move |req: &mut Request| respond(req.path(), theirs.clone());
    (CASE.bind("127.0.0.1:0").start(handler).unwrap(), shared)
}

fn respond(path: &str, shared: Arc<Shared>) -> Response {
    let (sender, feed) = Feed::new(FeedLimits::default());
    Response::feed(match path {
        "/long" => feed.with_source(async move {
            let part = vec![b'x'; 64 << 10];
            // 16 MiB, more than the buffers of both kernels.
            while shared.sent.load(Ordering::SeqCst) < 256 {
                if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() || sender.send(part.clone()).is_err() {
                    return;
                }
                shared.sent.fetch_add(1, Ordering::SeqCst);
            }
        }),
        "/wait" => feed.with_source(two_parts(sender, Signalled(shared), || ())),
        "/panics" => {
            feed.with_source(two_parts(sender, Signalled(shared), || panic!("the poll of a source")))
        }
        "/blocks" => {
            let blocks = shared.clone();
            feed.with_source(two_parts(sender, Signalled(shared), move || blocks.gate.pass()))
        }
        _ => return Response::text("hello"),
    })
}

async fn two_parts(sender: FeedSender, signalled: Signalled, then: impl FnOnce()) {
    sender.send("one, ").unwrap();
    signalled.await;
    then();
    sender.send("two").unwrap();
}

/// Sends a request, and returns its client after the first part.
fn begin(server: &Running, shared: &Shared, path: &str) -> Client {
    let (mut client, before) = (Client::connect(server), shared.pending());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("the future is polled", || shared.pending() > before);
    client
}

#[test]
fn a_source_fills_its_feed_when_it_is_woken() {
    let (server, shared) = start();
    let mut client = begin(&server, &shared, "/wait");
    shared.finish();
    client.answer().is(200, "one, two");
    shared.has_dropped(1);
    // The connection goes on.
    client.get("/wait").is(200, "one, two");
    client.get("/").is(200, "hello");
}

#[test]
fn a_slow_client_holds_up_its_source() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_bytes();
    let sent = || shared.sent.load(Ordering::SeqCst);
    // It stands still before all is sent.
    let mut before = usize::MAX;
    eventually("the source waits", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut before, sent()) == before
    });
    assert!(before < 256, "{before} parts");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, 256 * (64 << 10)));
}

#[test]
fn a_client_that_leaves_drops_the_source() {
    let (server, shared) = start();
    for (turn, leave) in [drop as fn(Client), Client::reset].into_iter().enumerate() {
        leave(begin(&server, &shared, "/wait"));
        shared.has_dropped(turn + 1);
    }
}

#[test]
fn a_source_that_panics_cuts_its_response() {
    keep_log();
    let (server, shared) = start();
    let client = begin(&server, &shared, "/panics");
    shared.finish();
    client.breaks_off();
    is_logged(&["the future that fills a feed panicked at GET /panics: ", "the poll of a source"]);
    shared.has_dropped(1);
    Client::connect(&server).get("/").is(200, "hello");
}

#[test]
fn a_poll_that_blocks_holds_up_nobody() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let (server, shared) = start();
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let mut blocked: Vec<Client> = (0..4).map(|_| begin(&server, &shared, "/blocks")).collect();
    shared.finish();
    shared.gate.wait_for(4);
    for client in &mut others {
        client.get("/").is(200, "hello");
    }
    shared.gate.open();
    for client in &mut blocked {
        client.answer().is(200, "one, two");
    }
}

#[test]
fn a_stop_waits_for_the_end_of_a_source() {
    let (server, shared) = start();
    let mut client = begin(&server, &shared, "/wait");
    let status = server.status();
    let stops = std::thread::spawn(move || server.shutdown(Duration::from_secs(20)));
    eventually("the server stops", || status.is_stopping());
    shared.finish();
    client.answer().is(200, "one, two");
    drop(client);
    assert_eq!(stops.join().unwrap().cut, 0);
}
