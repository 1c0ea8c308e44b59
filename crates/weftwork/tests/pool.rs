//! Tests the guarantees of the recycling pool: which thread accepts, which connection is parked, and which
//! client is refused.

#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use support::{Client, EngineCase, Gate, Site, TIMEOUT, eventually, is_logged, keep_log};
use weftwork::http::{StatusCode, header};
use weftwork::{Engine, Request, Response, Running, Server, Settings};

/// Shorter than any deadline that could end a connection by itself.
const AT_ONCE: Duration = Duration::from_secs(6);

fn pool(standby: usize, change: impl FnOnce(Settings) -> Settings) -> Site {
    let engine_case = EngineCase { engine: Engine::Pool { standby: Some(standby) }, lacks: &[] };
    engine_case.start_with(|settings| change(settings.standby_kept(1)))
}

fn bind(standby: usize) -> Server {
    Server::bind("127.0.0.1:0").unwrap().engine(Engine::Pool { standby: Some(standby) })
}

#[test]
fn the_requested_number_of_threads_waits_to_accept() {
    let site = pool(3, |settings| settings);
    assert_eq!(site.running.threads(), 3);
    site.is_well();
    assert_eq!(site.running.threads(), 3);
}

#[test]
fn threads_are_used_again() {
    let site = pool(2, |settings| settings);
    for _ in 0..50 {
        let mut client = site.client();
        client.send("GET /thread HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.answer().is(200, "noted");
        client.ends();
    }
    // A thread may be started each time that both were busy. Without recycling there would be fifty.
    assert!(site.calls_by_thread().len() <= 4, "{:?}", site.calls_by_thread());
}

#[test]
fn if_no_thread_waits_to_accept_one_is_started() {
    let site = pool(1, |settings| settings);
    let mut clients: Vec<_> = (0..5).map(|_| site.client()).collect();
    for (before, client) in clients.iter_mut().enumerate() {
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
        site.inside.gate.wait_for(before + 1);
        eventually("exactly one stands at the door", || site.running.threads() == before + 2);
    }
    site.inside.gate.open();
    clients.iter_mut().for_each(|client| client.answer().is(200, "passed"));
}

#[test]
fn threads_that_are_not_needed_end() {
    let site = pool(2, |settings| settings);
    let mut clients: Vec<_> = (0..6).map(|_| site.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(6);
    site.inside.gate.open();
    clients.iter_mut().for_each(|client| client.answer().is(200, "passed"));
    eventually("as many as stand by are left", || site.running.threads() == 2);
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
}

#[test]
fn at_the_most_threads_connections_wait() {
    let site = pool(1, |settings| settings.threads_max(2));
    let mut blocked: Vec<_> = (0..2).map(|_| site.client()).collect();
    blocked.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(2);
    let mut waiting = site.client();
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((site.calls(), site.running.threads()), (2, 2));
    site.inside.gate.open();
    waiting.answer().is(200, "hello");
    blocked.iter_mut().for_each(|client| client.answer().is(200, "passed"));
}

#[test]
fn idle_connections_hold_no_threads() {
    let site = pool(1, |settings| settings.threads_max(2));
    let mut clients: Vec<_> = (0..20).map(|_| site.client()).collect();
    for _ in 0..3 {
        let begun = Instant::now();
        clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
        // Each client waits for the previous one to be parked, for at most a tenth of a second.
        assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    }
    assert_eq!(site.running.threads(), 2);
}

#[test]
fn slow_clients_hold_no_threads() {
    let site = pool(1, |settings| settings.threads_max(2));
    let mut slow: Vec<_> = (0..8).map(|_| site.client()).collect();
    slow.iter_mut()
        .for_each(|client| client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"));
    site.client().get("/").is(200, "hello");
    slow.iter_mut().for_each(|client| client.send("cde"));
    slow.iter_mut().for_each(|client| client.answer().is(200, "abcde"));
}

/// There are as many as the maximum number of threads. They send a little all the time, for longer than any
/// client would wait.
#[test]
fn a_client_that_sends_without_pause_does_not_keep_a_thread() {
    let site = pool(1, |settings| settings.threads_max(2));
    let is_over = AtomicBool::new(false);
    let send = |mut client: Client| {
        client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
        for _ in 0..50_000 {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            client.send("x");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        for client in [site.client(), site.client()] {
            scope.spawn(|| send(client));
        }
        eventually("they have come", || site.running.stats().connections == 2);
        let begun = Instant::now();
        let answers = [(); 5].map(|()| site.client().get("/"));
        is_over.store(true, Ordering::Relaxed);
        answers.iter().for_each(|answer| answer.is(200, "hello"));
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    });
}

/// Kept clients, whose requests wait at the poller while no thread accepts.
#[test]
fn without_a_free_thread_or_queue_slot_a_request_gets_503() {
    let site = pool(1, |settings| settings.threads_max(2).queue_max(1));
    let mut members: Vec<_> = (0..3).map(|_| site.client()).collect();
    members.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    let mut blocked: Vec<_> = (0..2).map(|_| site.client()).collect();
    // One after the other: a thread that has answered a member may not be back, and there is one place in the queue.
    for (at, client) in blocked.iter_mut().enumerate() {
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
        site.inside.gate.wait_for(at + 1);
    }
    members.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("two of them are refused", || site.running.stats().shed == 2);
    site.inside.gate.open();
    let mut statuses: Vec<_> = members.iter_mut().map(|client| client.answer().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503, 503]);
    blocked.iter_mut().for_each(|client| client.answer().is(200, "passed"));
}

#[test]
fn a_parked_connection_keeps_its_deadline() {
    let time = Duration::from_millis(400);
    let site = pool(1, |settings| settings.idle_timeout(time));
    let mut client = site.client();
    let begun = Instant::now();
    client.get("/").is(200, "hello");
    client.ends();
    let took = begun.elapsed();
    assert!(took + Duration::from_millis(2) >= time && took < AT_ONCE, "{took:?}");
}

#[test]
fn more_than_accepted_max_get_503_and_can_read_it() {
    keep_log();
    let site = pool(1, |settings| settings.accepted_max(2));
    let mut inside: Vec<_> = (0..2).map(|_| site.client()).collect();
    inside.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(2);
    let mut outside = site.client();
    let name = outside.name();
    // The bytes that the client has sent when it is refused must not cause a reset.
    outside.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{}", "x".repeat(9)));
    let answer = outside.answer();
    assert!(answer.status == 503 && answer.closes(), "{answer:?}");
    assert!(answer.field("retry-after").is_some(), "{answer:?}");
    is_logged(&[&name, "gets 503", "accepted_max is 2"]);
    outside.ends();
    assert_eq!(site.running.stats().shed, 1);
    site.inside.gate.open();
    inside.iter_mut().for_each(|client| client.answer().is(200, "passed"));
    drop(inside);
    eventually("there is room again", || site.running.stats().connections == 0);
    site.is_well();
}

/// At the cap, a thread that was notified of one listener waits, and is notified of another. It must pass both
/// on.
#[test]
fn every_listener_is_served_after_the_cap() {
    let server = bind(1).and_bind("127.0.0.1:0").unwrap().settings(|settings| settings.connections_max(1));
    let site = Site::start(server);
    let addresses = site.running.addresses();
    let ask = |at: usize| {
        let mut client = Client::connect_to(&addresses[at]);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client
    };
    let mut held = Client::connect_to(&addresses[0]);
    held.get("/").is(200, "hello");
    let mut waiting = [ask(0), ask(1)];
    // No sign shows that the accepting thread was notified of both.
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    waiting.iter_mut().for_each(|client| client.answer().is(200, "hello"));
    for at in [0, 1] {
        let begun = Instant::now();
        (0..20).for_each(|_| ask(at).answer().is(200, "hello"));
        // A listener that no thread watches is checked once a second, which would take 20 s.
        assert!(begun.elapsed() < TIMEOUT, "address {at}: {:?}", begun.elapsed());
    }
}

#[track_caller]
fn does_not_start(server: Server, words: [&str; 2]) {
    let error = server.start(|_: &mut Request| "never").unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn wrong_parameters_are_named() {
    does_not_start(bind(0), ["invalid standby 0", "at least 1"]);
    let few = bind(9).settings(|settings| settings.threads_max(8));
    does_not_start(few, ["invalid standby 9", "threads_max (8)"]);
    let none = bind(1).engine(Engine::Pool { standby: None }).settings(|settings| settings.standby_kept(0));
    does_not_start(none, ["invalid standby_kept 0", "at least 1"]);
    let many = bind(1).settings(|settings| settings.connections_max(5).accepted_max(6));
    does_not_start(many, ["invalid accepted_max 6", "connections_max (5)"]);
    does_not_start(
        bind(1).settings(|settings| settings.threads_max(1)),
        ["invalid threads_max 1", "at least 2"],
    );
}

/// Panics on the pool's own part of the thread, where no handler runs.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("a mine in a response");
    }
}

fn mined(engine: Engine) -> Running {
    let handler = |req: &mut Request| {
        let mine = (req.path() == "/mine").then(|| Mine);
        Response::stream(move |_| {
            drop(mine);
            Ok(())
        })
        .with_status(StatusCode::OK)
    };
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine);
    server.settings(|settings| settings.standby_kept(1).threads_max(2)).start(handler).unwrap()
}

#[track_caller]
fn dead_threads_are_replaced(engine: Engine) {
    let running = mined(engine);
    for _ in 0..6 {
        let mut client = Client::connect(&running);
        // An answer to HEAD has no body, so its writer is dropped.
        client.send("HEAD /mine HTTP/1.1\r\nHost: a\r\n\r\n");
        client.rest();
    }
    let mut client = Client::connect(&running);
    client.get("/").is(200, "");
    drop(client);
    eventually("the dead are counted out", || running.threads() <= 2);
    eventually("their connections too", || running.stats().connections == 0);
    assert_eq!(running.abandon(), Ok(()));
}

#[test]
fn dead_threads_of_the_pool_are_replaced() {
    dead_threads_are_replaced(Engine::Pool { standby: Some(1) });
}

#[test]
fn dead_threads_of_the_workers_are_replaced() {
    dead_threads_are_replaced(Engine::Workers { listeners: Some(1) });
}

#[test]
fn retry_after_is_a_number_of_seconds() {
    let site = pool(1, |settings| settings.accepted_max(1));
    let mut inside = site.client();
    inside.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    let answer = site.client().answer();
    assert!(answer.field(header::RETRY_AFTER.as_str()).is_some_and(|after| after.parse::<u32>().is_ok()));
    site.inside.gate.open();
    inside.answer().is(200, "passed");
}

/// Two threads have more work than they can do for the whole test. A new client still gets its turn.
#[test]
fn new_connections_are_accepted_though_the_queue_is_never_empty() {
    let site = pool(1, |settings| settings.threads_max(2));
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = site.client();
                while !is_over.load(Ordering::Relaxed) && begun.elapsed() < TIMEOUT * 2 {
                    assert_eq!(client.get("/sleep/20").status, 200);
                    // Longer than a thread waits for its client while others wait for a thread.
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        eventually("all of them are being served", || site.calls() > 40);
        for _ in 0..5 {
            site.client().get("/").is(200, "hello");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A response that was sent later is delivered, however long the queue is by then. Its sender was told that it
/// would be.
#[test]
fn deferred_responses_are_not_refused() {
    let (kept, senders) = channel();
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let handler = move |req: &mut Request| match req.path() {
        "/later" => {
            let (sender, response) = Response::later(Duration::from_secs(600), StatusCode::NO_CONTENT);
            kept.send(sender).unwrap();
            response
        }
        _ => {
            passed.pass();
            Response::text("passed")
        }
    };
    let settings = |settings: Settings| settings.threads_max(2).standby_kept(1).queue_max(1);
    let server = bind(1).settings(settings).start(handler).unwrap();
    let ask = |path: &str| {
        let mut client = Client::connect(&server);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let client = ask("/later");
        waiting.push((client, senders.recv_timeout(TIMEOUT).unwrap()));
    }
    let mut blocked = [ask("/gate"), ask("/gate")];
    gate.wait_for(2);
    let mut clients = Vec::new();
    for (client, sender) in waiting {
        sender.send("news").unwrap();
        clients.push(client);
    }
    // They need no thread.
    clients.iter_mut().for_each(|client| client.answer().is(200, "news"));
    gate.open();
    blocked.iter_mut().for_each(|client| client.answer().is(200, "passed"));
    assert_eq!(server.stats().shed, 0);
}
