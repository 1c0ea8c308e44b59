//! Tests the caps for connections, threads and waiting requests.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use weftwork::http::HeaderValue;
use weftwork::{Request, Response};

use super::CASE;
use crate::support::{Client, Guarantee, eventually, is_logged, keep_log, tls};

/// Above the cap, clients wait in the kernel's queue. They are served when other clients have left.
#[test]
fn connections() {
    let site = CASE.start_with(|s| s.connections_max(4));
    let mut served: Vec<Client> = (0..4).map(|_| site.client()).collect();
    for client in &mut served {
        client.get("/").is(200, "hello");
    }
    let mut waiting: Vec<Client> = (0..8).map(|_| site.client()).collect();
    for client in &mut waiting {
        client.send_ahead("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for client in &mut served {
        client.get("/").is(200, "hello");
    }
    assert_eq!(site.calls(), 8, "nobody past the cap was served");
    assert!(site.running.stats().connections <= 4);
    drop(served);
    for mut client in waiting {
        client.answer().is(200, "hello");
        client.ends();
    }
    site.is_well();
}

/// A waiting client is accepted soon after another one has left, not at the next of a few slow checks.
#[test]
fn a_freed_connection_slot_is_reused_soon() {
    const WAITING: usize = 180;
    let site = CASE.start_with(|s| s.connections_max(2));
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..WAITING).map(|_| site.client()).collect();
    for client in &mut clients {
        client.send_ahead("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for mut client in clients {
        client.answer().is(200, "hello");
        client.ends();
    }
    // 100 ms for each pair of clients would be 9 s.
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    site.is_well();
}

/// An idle connection does not keep other clients out until its idle timeout.
#[test]
fn idle_connections_are_closed_at_the_cap() {
    let site = CASE.start_with(|s| s.connections_max(4));
    let mut idle: Vec<Client> = (0..2).map(|_| site.client()).collect();
    for client in &mut idle {
        client.get("/").is(200, "hello");
    }
    let never_used: Vec<Client> = (0..2).map(|_| site.client()).collect();
    for _ in 0..4 {
        let mut other = site.client();
        other.get("/").is(200, "hello");
        idle.push(other);
    }
    drop((idle, never_used));
    site.is_well();
}

/// A client that has sent nothing keeps no other client out. Over TLS, it has not begun its handshake.
#[test]
fn silent_connections_are_closed_at_the_cap() {
    const LONG: Duration = Duration::from_secs(3600);
    let site = CASE.start_with(|s| s.connections_max(2).head_timeout(LONG).tls_handshake_timeout(LONG));
    let silent: Vec<Client> = (0..4).map(|_| site.client()).collect();
    let mut other = site.client();
    other.send_ahead("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    other.answer().is(200, "hello");
    drop((silent, other));
    site.is_well();
}

/// A client that has its last response, and does not end its side, keeps no other client out.
#[test]
fn lingering_connections_are_closed_at_the_cap() {
    let site = CASE.start_with(|s| s.connections_max(2).linger_timeout(Duration::from_secs(3600)));
    let lingering: Vec<Client> = (0..6)
        .map(|_| {
            let mut client = site.client();
            client.send_ahead("GET /close HTTP/1.1\r\nHost: a\r\n\r\n");
            client.answer().is(200, "last");
            client
        })
        .collect();
    drop(lingering);
    site.is_well();
}

/// The connection that is closed to make space is not reset.
#[test]
fn an_evicted_client_sees_the_connection_end() {
    let site = CASE.start_with(|s| s.connections_max(1));
    let mut idle = site.client();
    idle.get("/").is(200, "hello");
    let never_used = site.client();
    idle.ends();
    // A later client may wait at another listener and be accepted first.
    eventually("it is let in", || site.running.stats().accepted == 2);
    let mut other = site.client();
    never_used.ends();
    other.get("/").is(200, "hello");
    drop(other);
    site.is_well();
}

/// Above this cap clients get a 503 with Retry-After, and can read it.
#[test]
fn accepted_connections() {
    keep_log();
    let site = CASE.start_with(|s| s.accepted_max(4));
    let mut served: Vec<Client> = (0..4).map(|_| site.client()).collect();
    for client in &mut served {
        client.get("/").is(200, "hello");
    }
    for _ in 0..4 {
        let mut excess = site.client();
        let name = excess.name();
        excess.send_ahead("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if let Some(answer) = excess.refusal() {
            assert!(answer.status == 503 && answer.closes(), "{answer:?}");
            assert_eq!(answer.field("retry-after"), Some("1"));
            assert_eq!(answer.text(), "too many connections are being served\n");
        }
        let gets = if tls::is_on() { "gets a TLS alert" } else { "gets 503" };
        is_logged(&[&name, gets, "accepted_max is 4"]);
        excess.ends();
    }
    assert_eq!((site.calls(), site.running.stats().shed), (4, 4));
    for client in &mut served {
        client.get("/").is(200, "hello");
    }
    drop(served);
    eventually("they leave", || site.running.stats().connections == 0);
    site.is_well();
}

/// Otherwise clients that connect fast enough would keep everyone out while the server serves no one.
#[test]
fn a_refused_client_that_stays_open_uses_no_slot() {
    let site = CASE.start_with(|s| s.accepted_max(1).linger_timeout(Duration::from_secs(3600)));
    let mut served = site.client();
    served.get("/").is(200, "hello");
    let mut refused = site.client();
    refused.send_ahead("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(refused.refusal().is_none_or(|answer| answer.status == 503));
    drop(served);
    eventually("the one who was served has left", || site.running.stats().connections <= 1);
    eventually("another one is served", || site.client().get("/").status == 200);
    drop(refused);
    eventually("all have left", || site.running.stats().connections == 0);
    site.is_well();
}

#[test]
fn threads_and_the_queue() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    keep_log();
    const HANDLERS: usize = 3;
    const QUEUE: usize = 2;
    let threads_max = CASE.engine.loops() + HANDLERS;
    let site = CASE.start_with(|s| s.threads_max(threads_max).queue_max(QUEUE).standby_kept(1));
    let mut quick = site.client();
    // The last free thread runs only routes that have been quick so far.
    for _ in 0..50 {
        quick.get("/").is(200, "hello");
    }
    let ask = |count: usize| -> Vec<Client> {
        let mut clients: Vec<Client> = (0..count).map(|_| site.client()).collect();
        clients.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
        clients
    };
    let mut running = ask(HANDLERS);
    site.inside.gate.wait_for(HANDLERS);
    let before = site.running.stats().queued;
    let mut queued = ask(QUEUE);
    eventually("requests queue", || site.running.stats().queued == before + QUEUE as u64);
    for mut client in ask(4) {
        let answer = client.answer();
        assert!(answer.status == 503 && answer.closes_over_http1(), "{answer:?}");
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert!(answer.text().contains(r#""detail":"the server is too busy for this request""#), "{answer:?}");
        is_logged(&[&client.name(), "queue_max is 2", &site.setting("threads_max")]);
        client.ends_over_http1();
    }
    assert_eq!(site.running.stats().shed, 4);
    for _ in 0..20 {
        quick.get("/").is(200, "hello");
    }
    assert!(site.running.threads() <= site.running.settings().threads_max);
    site.inside.gate.open();
    for client in running.iter_mut().chain(&mut queued) {
        client.answer().is(200, "passed");
    }
}

/// From outside, the server looks as if it hangs, and no request is in progress.
#[test]
fn upgrades_that_hold_all_threads_are_logged() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    keep_log();
    const UPGRADES: usize = 4;
    let threads_max = CASE.engine.loops() + UPGRADES;
    let server = CASE.bind("127.0.0.1:0").settings(|s| s.threads_max(threads_max).standby_kept(1));
    let server = server.start(|req: &mut Request| match req.path() {
        "/take" => Response::upgrade(HeaderValue::from_static("echo"), |mut line| {
            line.write_all(b"on")?;
            line.read(&mut [0]).map(drop)
        }),
        _ => Response::text("hello"),
    });
    let server = server.unwrap();
    let mut holders: Vec<Client> = (0..UPGRADES).map(|_| Client::connect(&server)).collect();
    for holder in &mut holders {
        holder.send("GET /take HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        assert_eq!(holder.answer_head().status, 101);
        assert_eq!(holder.exactly(2), b"on");
    }
    let mut other = Client::connect(&server);
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let setting = format!("(threads_max is {threads_max},");
    let line = is_logged(&["all threads are busy", &setting, "4 hold upgraded connections"]);
    assert!(line.starts_with("WARN"), "{line}");
    drop(holders);
    other.answer().is(200, "hello");
}

/// One thread for each blocking handler, and one for each loop.
#[test]
fn threads_are_counted() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    let site = CASE.start();
    let mut clients: Vec<Client> = (0..20).map(|_| site.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(20);
    let wanted = 20 + CASE.engine.loops();
    eventually("every loop has a thread besides", || site.running.threads() >= wanted);
    site.inside.gate.open();
    clients.iter_mut().for_each(|client| client.answer().is(200, "passed"));
}
