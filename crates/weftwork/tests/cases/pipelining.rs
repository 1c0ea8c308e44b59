//! Tests that pipelined requests are answered in order, wherever the bytes are split.

use std::time::Duration;

use super::CASE;
use crate::support::{Client, Guarantee, eventually, noise, over_http2};

const COUNT: usize = 200;

fn requests(path: impl Fn(usize) -> String) -> String {
    (0..COUNT).map(|i| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", path(i))).collect()
}

#[track_caller]
fn expect(client: &mut Client, lengths: impl Fn(usize) -> usize) {
    for i in 0..COUNT {
        let answer = client.answer();
        assert!(answer.status == 200 && answer.body == noise(lengths(i)), "answer {i}: {answer:?}");
    }
}

/// More than one turn of a loop handles.
#[test]
fn answers_come_in_order() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(requests(|i| format!("/bytes/{i}")));
    expect(&mut client, |i| i);
    client.get("/").is(200, "hello");
    assert_eq!(site.calls(), COUNT + 1);
}

/// The client reads nothing before it has sent everything. Neither side may wait for the other forever.
#[test]
fn answers_larger_than_all_buffers_come_in_order() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(requests(|i| format!("/bytes/{}", i * 300)));
    expect(&mut client, |i| i * 300);
}

#[test]
fn responses_after_a_blocking_handler_keep_their_order() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(
        "GET /bytes/1 HTTP/1.1\r\nHost: a\r\n\r\nGET /sleep/30 HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /bytes/2 HTTP/1.1\r\nHost: a\r\n\r\nGET /sleep/30 HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /bytes/3 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    client.answer().is(200, noise(1));
    client.answer().is(200, "slept");
    client.answer().is(200, noise(2));
    client.answer().is(200, "slept");
    client.answer().is(200, noise(3));
}

#[test]
fn responses_after_a_streamed_one_keep_their_order() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(
        "GET /stream/70000 HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo-stream HTTP/1.1\r\nHost: a\r\n\
         Content-Length: 4\r\n\r\nbodyGET /bytes/3 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    client.answer().is(200, noise(70_000));
    client.answer().is(200, "body");
    client.answer().is(200, noise(3));
}

/// Splits three requests, two of them with bodies, at every byte.
#[test]
fn no_cut_changes_an_answer() {
    let stream = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfirst\
                  POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3;x=y\r\nsec\r\n3\r\nond\r\n0\r\nExtra: 1\r\n\r\nGET /bytes/3 HTTP/1.1\r\nHost: a\r\n\r\n";
    let site = CASE.start();
    for cut in 1..stream.len() {
        let mut client = site.client();
        client.send(&stream[..cut]);
        client.send(&stream[cut..]);
        client.answer().is(200, "first");
        client.answer().is(200, "second");
        client.answer().is(200, noise(3));
    }
}

#[test]
fn byte_by_byte_is_the_same() {
    let site = CASE.start();
    let mut client = site.client();
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfirst";
    client.send_by(1, format!("{request}GET /bytes/3 HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.answer().is(200, "first");
    client.answer().is(200, noise(3));
}

/// RFC 9112 section 9.6: a request after one that closes does not run.
#[test]
fn nothing_after_close_is_run() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /close HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer().is(200, "last");
    client.ends();
    assert_eq!(site.calls(), 1);
}

/// A client that ends its side after its requests gets all answers.
#[test]
fn the_end_of_the_client_does_not_cut_answers() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(requests(|i| format!("/bytes/{i}")));
    client.half_close();
    expect(&mut client, |i| i);
    client.ends();
}

/// More clients than threads, each of which sends faster than it is answered. Other clients still make
/// progress.
#[test]
fn a_client_that_pipelines_without_end_does_not_keep_a_thread() {
    const CLIENTS: usize = 16;
    // Enough to keep all clients busy while the other client is served. The clients of HTTP/2 translate each request.
    let requests = if over_http2::is_on() { 4_000 } else { 20_000 };
    if !CASE.guarantees(Guarantee::FloodsTakeTurns) {
        return;
    }
    // Over HTTP/2, each client has a hundred requests in progress, and all of them may wait for a thread.
    let site = CASE.start_with(|s| s.threads_max(CLIENTS / 2).queue_max(CLIENTS * 100));
    let flood = "GET /sleep/1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(requests);
    let floods: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = site.client();
            let sending = client.send_aside(flood.clone().into_bytes());
            (sending, std::thread::spawn(move || client.rest()))
        })
        .collect();
    eventually("all threads are taken", || site.calls() > 10 * CLIENTS);
    let mut client = site.client();
    for _ in 0..3 {
        client.get("/sleep/1").is(200, "slept");
    }
    assert!(site.calls() < CLIENTS * requests / 2, "the flood was over");
    site.running.shutdown(Duration::ZERO);
    for (sending, reading) in floods {
        // The server cuts it off in the middle.
        let _ = sending.join().unwrap();
        reading.join().unwrap();
    }
}
