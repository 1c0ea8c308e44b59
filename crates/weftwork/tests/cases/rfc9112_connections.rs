//! RFC 9112, section 9: tests when a connection persists, the order of its answers, and how it ends.
//!
//! `docs/conformance.md` names each test, with the sentence that it checks.

use std::time::{Duration, Instant};

use super::CASE;
use crate::support::{eventually, noise};

fn get(path: &str, version: &str, fields: &str) -> String {
    format!("GET {path} HTTP/{version}\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn s9_2_interim_answers_alone_precede_the_final_one() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get("/early", "1.1", "").repeat(2));
    for _ in 0..2 {
        assert_eq!(client.answer().status, 103);
        client.answer().is(200, "final");
    }
    client.get("/").is(200, "hello");
}

#[test]
fn s9_3_version_and_connection_decide_on_persistence() {
    let site = CASE.start();
    site.check_connection(&get("/", "1.1", ""), None, true);
    site.check_connection(&get("/", "1.1", "Connection: close\r\n"), Some("close"), false);
    site.check_connection(&get("/", "1.1", "Connection: Keep-Alive, CLOSE\r\n"), Some("close"), false);
    site.check_connection(&get("/", "1.1", "Connection: x\r\nConnection: ,close,\r\n"), Some("close"), false);
    site.check_connection(&get("/", "1.0", ""), Some("close"), false);
    site.check_connection(&get("/", "1.0", "Connection: Keep-Alive\r\n"), Some("keep-alive"), true);
    site.check_connection(&get("/", "1.0", "Connection: keep-alive, close\r\n"), Some("close"), false);
}

/// A connection that cannot persist says so, and one that can does.
#[test]
fn s9_3_a_body_is_read_or_the_connection_closes() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    client.send(vec![b'x'; 1000]);
    let answer = client.answer();
    assert!(!answer.closes(), "{answer:?}");
    client.get("/").is(200, "hello");

    let mut client = site.client();
    client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    let answer = client.answer();
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    client.ends();
}

#[test]
fn s9_3_2_answers_come_in_the_order_of_their_requests() {
    let site = CASE.start();
    let mut client = site.client();
    // Slow, streamed, large, interim and quick answers: no answer overtakes another.
    let paths = ["/sleep/30", "/stream/50000", "/bytes/200000", "/early", "/"];
    client.send(paths.map(|path| get(path, "1.1", "")).concat());
    client.answer().is(200, "slept");
    client.answer().is(200, noise(50_000));
    client.answer().is(200, noise(200_000));
    assert_eq!(client.answer().status, 103);
    client.answer().is(200, "final");
    client.answer().is(200, "hello");
}

#[test]
fn s9_5_an_idle_connection_is_closed_gracefully() {
    let site = CASE.start_with(|s| s.idle_timeout(Duration::from_millis(150)));
    let mut client = site.client();
    client.get("/").is(200, "hello");
    client.ends();
}

#[test]
fn s9_6_nothing_after_a_close_is_run() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get("/", "1.1", "Connection: close\r\n") + &get("/", "1.1", ""));
    let answer = client.answer();
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), 1);
}

#[test]
fn s9_6_nothing_after_the_servers_close_is_run() {
    let site = CASE.start();
    for path in ["/close", "/connection/close"] {
        let calls = site.calls();
        let mut client = site.client();
        client.send(get(path, "1.1", "") + &get("/", "1.1", ""));
        let answer = client.answer();
        assert!(answer.closes(), "{answer:?}");
        client.ends();
        assert_eq!(site.calls(), calls + 1);
    }
}

/// An answer that is sent before the request was read whole is not lost to a reset.
#[test]
fn s9_6_the_end_is_in_stages() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n");
    client.send(vec![b'x'; 200_000]);
    client.wait_for_bytes();
    client.send(vec![b'x'; 300_000]);
    let answer = client.answer();
    assert!(answer.status == 413 && answer.closes(), "{answer:?}");
    client.ends();
}

/// An empty line after the request, as old clients send one, does not lose the answer.
#[test]
fn s9_6_input_after_the_last_request_loses_no_response() {
    const BYTES: usize = 8_000_000;
    let site = CASE.start();
    for (version, field) in [("1.1", "Connection: close\r\n"), ("1.0", "")] {
        let ask = |path: &str| {
            let mut client = site.client();
            client.send(format!("GET {path} HTTP/{version}\r\nHost: a\r\n{field}\r\n"));
            client
        };
        site.inside.gate.shut();
        let mut client = ask(&format!("/gate-bytes/{BYTES}"));
        site.inside.gate.wait_for(1);
        client.send("\r\n");
        site.inside.gate.open();
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, BYTES), "{version}");
        client.ends();

        // While the answer is made.
        site.inside.gate.shut();
        let mut client = ask("/gate-stream");
        site.inside.gate.wait_for(1);
        client.send("\r\n");
        site.inside.gate.open();
        client.answer().is(200, "before after");
        client.ends();

        // While the answer is sent.
        let mut client = ask(&format!("/bytes/{BYTES}"));
        client.wait_for_bytes();
        client.send("\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, BYTES), "{version}");
        client.ends();
    }
}

/// The connection does not stay half open forever.
#[test]
fn s9_6_the_stages_have_an_end() {
    let site = CASE.start_with(|s| s.linger_timeout(Duration::from_millis(150)));
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    assert_eq!(client.answer().status, 413);
    let begun = Instant::now();
    eventually("it is dropped", || site.running.stats().connections == 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn s9_6_a_client_that_half_closes_gets_its_answers() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get("/", "1.1", "").repeat(3));
    client.half_close();
    for _ in 0..3 {
        client.answer().is(200, "hello");
    }
    client.ends();
}
