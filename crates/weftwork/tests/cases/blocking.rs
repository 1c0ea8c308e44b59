//! Tests that quick requests are answered while handlers block.

use std::time::{Duration, Instant};

use super::CASE;
use crate::support::{Client, Guarantee};

/// Shorter than the handlers take, and much longer than a busy machine needs.
const QUICK: Duration = Duration::from_millis(500);

/// Sends a request on each of `clients`. Returns how long each answer took.
#[track_caller]
fn ask(clients: &mut [Client]) -> Vec<Duration> {
    let timed = clients.iter_mut().map(|client| {
        let begun = Instant::now();
        client.get("/").is(200, "hello");
        begun.elapsed()
    });
    timed.collect()
}

/// Nine of ten must be quick. A busy machine may delay a few answers for a moment. A stuck loop stays stuck for
/// longer.
#[track_caller]
fn were_quick(mut took: Vec<Duration>) {
    took.sort();
    let most = took[took.len() * 9 / 10];
    assert!(most < QUICK, "of {} quick requests one in ten took {most:?} or more", took.len());
}

/// The handlers do not end before all quick requests have been answered.
#[test]
fn quick_requests_do_not_wait() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let site = CASE.start();
    let mut quick: Vec<Client> = (0..8).map(|_| site.client()).collect();
    ask(&mut quick);
    let mut blocked: Vec<Client> = (0..8).map(|_| site.client()).collect();
    for client in &mut blocked {
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    site.inside.gate.wait_for(8);
    let mut took = Vec::new();
    for _ in 0..20 {
        took.extend(ask(&mut quick));
        took.extend(ask(&mut [site.client()]));
    }
    were_quick(took);
    site.inside.gate.open();
    for client in &mut blocked {
        client.answer().is(200, "passed");
        client.get("/").is(200, "hello");
    }
}

/// Handlers that block repeatedly: the server knows that the route blocks, and its connections have threads.
#[test]
fn quick_requests_do_not_wait_for_a_route_that_is_known_to_block() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let site = CASE.start();
    let slow: Vec<_> = (0..8)
        .map(|_| {
            let mut client = site.client();
            std::thread::spawn(move || (0..3).for_each(|_| client.get("/sleep/1000").is(200, "slept")))
        })
        .collect();
    let mut quick: Vec<Client> = (0..4).map(|_| site.client()).collect();
    let mut took = Vec::new();
    while !slow.iter().all(|client| client.is_finished()) {
        took.extend(ask(&mut quick));
        std::thread::sleep(Duration::from_millis(2));
    }
    were_quick(took);
    for client in slow {
        client.join().unwrap();
    }
}

/// The second of three pipelined requests blocks. Its route was quick each time before.
#[test]
fn quick_requests_do_not_wait_for_a_route_that_was_quick_until_now() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let site = CASE.start();
    let mut client = site.client();
    site.inside.gate.open();
    for _ in 0..50 {
        client.get("/gate").is(200, "passed");
        client.get("/").is(200, "hello");
    }
    site.inside.gate.shut();
    client.send(["/", "/gate", "/"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat());
    site.inside.gate.wait_for(1);
    let mut quick: Vec<Client> = (0..4).map(|_| site.client()).collect();
    were_quick((0..20).flat_map(|_| ask(&mut quick)).collect());
    site.inside.gate.open();
    client.answer().is(200, "hello");
    client.answer().is(200, "passed");
    client.answer().is(200, "hello");
}

/// A slow body and a slow reader hold up only their own handlers.
#[test]
fn quick_requests_do_not_wait_for_slow_clients() {
    if !CASE.guarantees(Guarantee::QuickBesideSlowClients) {
        return;
    }
    let site = CASE.start();
    let mut senders: Vec<Client> = (0..4).map(|_| site.client()).collect();
    let mut readers: Vec<Client> = (0..4).map(|_| site.client()).collect();
    for client in &mut senders {
        client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
        client.send(vec![b'x'; 100_000]);
    }
    for client in &mut readers {
        client.send("GET /stream/20000000 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_for_bytes();
    }
    let mut quick: Vec<Client> = (0..4).map(|_| site.client()).collect();
    were_quick((0..20).flat_map(|_| ask(&mut quick)).collect());
    for client in &mut senders {
        client.send(vec![b'x'; 100_000]);
        client.answer().is(200, "200000");
    }
    for client in &mut readers {
        assert_eq!(client.answer().body.len(), 20_000_000);
    }
}

/// On every engine, many blocking requests at once are all answered.
#[test]
fn blocking_requests_are_all_answered() {
    let site = CASE.start();
    let mut clients: Vec<Client> = (0..20).map(|_| site.client()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send("GET /sleep/5 HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            client.answer().is(200, "slept");
        }
    }
}
