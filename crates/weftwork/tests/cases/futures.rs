//! Tests that a response of a future is sent when the future is ready, that its poll is a call like that of a handler, and
//! that the future is dropped as soon as nobody waits for it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weftwork::prelude::StatusCode;
use weftwork::{Engine, IntoResponse, Request, Response, Running, Settings, WaitError, wait};

use super::CASE;
use crate::support::{Client, Gate, Guarantee, eventually, is_logged, keep_log};

const GET: &str = "GET /pending HTTP/1.1\r\nHost: a\r\n\r\n";

/// What the test and the futures of a server share.
#[derive(Default)]
struct Shared {
    is_ready: AtomicBool,
    polls: AtomicUsize,
    drops: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
    /// Ends of waits for a future.
    ends: Mutex<Vec<WaitError>>,
    /// Polls of `/blocks` after the first stop here.
    gate: Gate,
}

impl Shared {
    fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns how many wakers the last polls have left.
    fn pending(&self) -> usize {
        self.wakers.lock().unwrap().len()
    }

    fn has_dropped(&self, count: usize) {
        eventually("the futures are dropped", || self.drops.load(Ordering::SeqCst) == count);
    }
}

/// Is ready when the test says so.
struct Signalled(Arc<Shared>);

impl Future for Signalled {
    type Output = &'static str;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<&'static str> {
        self.0.polls.fetch_add(1, Ordering::SeqCst);
        if self.0.is_ready.load(Ordering::SeqCst) {
            return Poll::Ready("ready");
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

struct PanicsAsItIsDropped;

impl Drop for PanicsAsItIsDropped {
    fn drop(&mut self) {
        panic!("the drop of a future");
    }
}

fn start() -> (Running, Arc<Shared>) {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> (Running, Arc<Shared>) {
    let shared = Arc::<Shared>::default();
    let theirs = shared.clone();
    let handler = move |req: &mut Request| match req.path() {
        "/wait-on" | "/wait-until" => {
            if req.path() == "/wait-until" {
                req.set_deadline(req.now() + Duration::from_millis(50));
            }
            match req.wait(Signalled(theirs.clone())) {
                Ok(text) => Response::text(text),
                Err(end) => {
                    theirs.ends.lock().unwrap().push(end);
                    end.into_response()
                }
            }
        }
        path => respond(path, Signalled(theirs.clone())),
    };
    (CASE.bind("127.0.0.1:0").settings(change).start(handler).unwrap(), shared)
}

fn respond(path: &str, signalled: Signalled) -> Response {
    match path {
        "/ready" => Response::when(async { "at once" }),
        "/wait" => Response::text(wait(signalled)),
        "/pending" => Response::when(signalled),
        "/limited" => Response::when_within(Duration::from_millis(50), StatusCode::GATEWAY_TIMEOUT, signalled),
        "/panics" => Response::when(async move {
            assert_eq!(signalled.await, "something else", "the poll of a future");
        }),
        "/blocks" => Response::when(async move {
            let shared = signalled.0.clone();
            signalled.await;
            shared.gate.pass();
            "went on"
        }),
        "/spins" => {
            let mut signalled = signalled;
            Response::when(poll_fn(move |cx| {
                let polled = Pin::new(&mut signalled).poll(cx);
                cx.waker().wake_by_ref();
                signalled.0.wakers.lock().unwrap().clear();
                polled
            }))
        }
        "/drop-panics" => Response::when(async move {
            let _guard = PanicsAsItIsDropped;
            signalled.await
        }),
        "/again" => Response::when(async move {
            signalled.await;
            Response::when(async { "another" })
        }),
        _ => Response::text("hello"),
    }
}

fn waits(client: &mut Client, shared: &Shared, path: &str) {
    let before = shared.pending();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("the future is polled", || shared.pending() > before);
}

fn finish(shared: &Shared) {
    shared.is_ready.store(true, Ordering::SeqCst);
    shared.wake_all();
}

#[test]
fn a_future_that_is_ready_is_a_response() {
    let (server, _) = start();
    let mut client = Client::connect(&server);
    client.get("/ready").is(200, "at once");
    client.get("/ready").is(200, "at once");
}

#[test]
fn a_future_is_polled_when_it_is_woken() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    for turn in 0..3 {
        shared.is_ready.store(false, Ordering::SeqCst);
        waits(&mut client, &shared, "/pending");
        // It is not ready, so it waits on.
        let late = shared.wakers.lock().unwrap().first().cloned();
        shared.wake_all();
        eventually("it is polled again", || shared.pending() == 1);
        finish(&shared);
        client.answer().is(200, "ready");
        shared.has_dropped(turn + 1);
        // Of a future that has gone.
        late.unwrap().wake();
    }
    client.get("/").is(200, "hello");
    assert_eq!(shared.polls.load(Ordering::SeqCst), 9);
    // A poll is no request.
    assert_eq!(server.stats().requests, 4);
}

/// Ends the threads that wake, also if the test fails.
struct Wakers<'a>(&'a AtomicBool);

impl Drop for Wakers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Wakes from two threads, without a pause. After `polls` polls the futures are ready, and `then` runs.
fn while_woken(shared: &Shared, polls: usize, then: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _wakers = Wakers(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    shared.wake_all();
                }
            });
        }
        eventually("they are polled often", || shared.polls.load(Ordering::SeqCst) > polls);
        shared.is_ready.store(true, Ordering::SeqCst);
        then();
    });
}

#[test]
fn wake_ups_from_many_threads_lose_nothing() {
    let (server, shared) = start();
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        waits(client, &shared, "/pending");
    }
    while_woken(&shared, 500, || {
        for client in &mut clients {
            client.answer().is(200, "ready");
        }
    });
}

/// A future that always wants to be polled has its turn with the others.
#[test]
fn a_future_that_wakes_itself_lets_others_go_on() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    client.send("GET /spins HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is polled again and again", || shared.polls.load(Ordering::SeqCst) > 100);
    let mut others: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    for other in &mut others {
        other.get("/").is(200, "hello");
    }
    shared.is_ready.store(true, Ordering::SeqCst);
    client.answer().is(200, "ready");
}

#[test]
fn a_client_that_leaves_ends_its_future() {
    let (server, shared) = start();
    for (turn, leave) in [drop as fn(Client), Client::reset].into_iter().enumerate() {
        let mut client = Client::connect(&server);
        waits(&mut client, &shared, "/pending");
        leave(client);
        shared.has_dropped(turn + 1);
    }
    assert_eq!(shared.polls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_future_has_a_time_limit() {
    let (server, shared) = start_with(|settings| settings.request_timeout(Duration::from_millis(50)));
    let mut client = Client::connect(&server);
    client.get("/limited").is(504, "");
    shared.has_dropped(1);
    let late = client.get("/pending");
    assert_eq!((late.status, late.field("retry-after")), (503, Some("1")));
    shared.has_dropped(2);
    // After it, wake-ups poll nothing.
    shared.wake_all();
    client.get("/").is(200, "hello");
    assert_eq!(shared.polls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_poll_that_panics_is_a_500() {
    keep_log();
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/panics");
    finish(&shared);
    assert_eq!(client.answer().status, 500);
    is_logged(&["a handler panicked at GET /panics: ", "the poll of a future"]);
    Client::connect(&server).get("/").is(200, "hello");
}

#[test]
fn a_drop_that_panics_costs_its_connection_alone() {
    keep_log();
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/drop-panics");
    drop(client);
    shared.has_dropped(1);
    is_logged(&["the drop of a future"]);
    Client::connect(&server).get("/").is(200, "hello");
}

#[test]
fn a_poll_that_blocks_holds_up_nobody() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let (server, shared) = start();
    let mut blocked: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut blocked {
        waits(client, &shared, "/blocks");
    }
    finish(&shared);
    shared.gate.wait_for(4);
    for client in &mut others {
        client.get("/").is(200, "hello");
    }
    shared.gate.open();
    for client in &mut blocked {
        client.answer().is(200, "went on");
    }
}

/// In `fibers` it suspends its fiber, and no call blocks.
#[test]
fn a_handler_that_waits_for_a_future_holds_up_nobody() {
    let suspends = matches!(CASE.engine, Engine::Fibers { .. });
    if !suspends && !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let (server, shared) = start();
    let mut waiting: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut waiting {
        waits(client, &shared, "/wait");
    }
    for client in &mut others {
        client.get("/").is(200, "hello");
    }
    // They are not ready, and wait on.
    shared.wake_all();
    eventually("they are polled again", || shared.pending() == 4);
    finish(&shared);
    for client in &mut waiting {
        client.answer().is(200, "ready");
    }
}

#[test]
fn a_handler_waits_for_a_future() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        shared.is_ready.store(false, Ordering::SeqCst);
        waits(&mut client, &shared, "/wait");
        finish(&shared);
        client.answer().is(200, "ready");
    }
}

#[test]
fn a_request_waits_for_a_future() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    for turn in 0..3 {
        shared.is_ready.store(false, Ordering::SeqCst);
        waits(&mut client, &shared, "/wait-on");
        // It is not ready, so it waits on.
        shared.wake_all();
        eventually("it is polled again", || shared.pending() == 1);
        finish(&shared);
        client.answer().is(200, "ready");
        shared.has_dropped(turn + 1);
    }
    // A body that nobody reads, and the next request, are no end.
    shared.is_ready.store(false, Ordering::SeqCst);
    client.send("POST /wait-on HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the future is polled", || shared.pending() == 1);
    finish(&shared);
    client.answer().is(200, "ready");
    client.answer().is(200, "hello");
    assert_eq!(*shared.ends.lock().unwrap(), []);
}

#[test]
fn a_client_that_leaves_ends_the_wait_of_its_request() {
    let (server, shared) = start();
    for (turn, leave) in [drop as fn(Client), Client::reset].into_iter().enumerate() {
        let mut client = Client::connect(&server);
        waits(&mut client, &shared, "/wait-on");
        leave(client);
        shared.has_dropped(turn + 1);
    }
    eventually("both are told", || *shared.ends.lock().unwrap() == [WaitError::ClientGone; 2]);
    assert_eq!(shared.polls.load(Ordering::SeqCst), 2);
    Client::connect(&server).get("/").is(200, "hello");
}

#[test]
fn a_deadline_ends_the_wait_of_a_request() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    assert_eq!(client.get("/wait-until").status, 503);
    shared.has_dropped(1);
    assert_eq!(*shared.ends.lock().unwrap(), [WaitError::Timeout]);
    client.get("/").is(200, "hello");
}

#[test]
fn a_server_that_cuts_its_connections_ends_the_wait_of_a_request() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/wait-on");
    server.shutdown(Duration::from_millis(100));
    shared.has_dropped(1);
    drop(client);
}

#[test]
fn wake_ups_from_many_threads_end_the_wait_of_a_request() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/wait-on");
    while_woken(&shared, 300, || client.answer().is(200, "ready"));
}

#[test]
fn requests_behind_a_future_are_answered_in_their_turn() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send([plain, GET, plain].concat());
    client.answer().is(200, "hello");
    eventually("the future is polled", || shared.pending() == 1);
    finish(&shared);
    client.answer().is(200, "ready");
    client.answer().is(200, "hello");
}

#[test]
fn a_future_may_return_another_response_to_come() {
    let (server, shared) = start();
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/again");
    finish(&shared);
    client.answer().is(200, "another");
}

#[test]
fn a_stop_waits_for_futures() {
    let (server, shared) = start_with(|settings| settings.drain_timeout(Duration::from_secs(60)));
    let mut client = Client::connect(&server);
    waits(&mut client, &shared, "/pending");
    let status = server.status();
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    eventually("the server stops", || status.is_stopping());
    finish(&shared);
    client.answer().is(200, "ready");
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0));
}

#[test]
fn pending_futures_hold_no_thread() {
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    let (server, shared) = start();
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        waits(client, &shared, "/pending");
    }
    eventually("the threads are free", || server.threads() <= 16);
    finish(&shared);
    for client in &mut clients {
        client.answer().is(200, "ready");
    }
}
