//! Tests that the server continues, and forgets the client, when a client leaves in the middle.

use super::CASE;
use crate::support::{eventually, noise};

const BODY_OF_100: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";

/// The client has no more requests and still waits for its answer.
#[test]
fn a_client_that_half_closes_gets_its_answer() {
    let site = CASE.start();
    for (path, body) in
        [("/", b"hello".to_vec()), ("/bytes/3000000", noise(3_000_000)), ("/sleep/20", b"slept".to_vec())]
    {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.half_close();
        client.answer().is(200, body);
        client.ends();
    }
    site.is_well();
}

#[test]
fn a_client_that_half_closes_within_a_request_gets_an_end() {
    let site = CASE.start();
    for part in ["GET / HT", BODY_OF_100] {
        let mut client = site.client();
        client.send(part);
        client.half_close();
        client.ends();
    }
    assert_eq!(site.calls(), 0);
    site.is_well();
}

#[test]
fn disconnected_clients_leak_nothing() {
    let site = CASE.start();
    let large =
        format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(100_000));
    let samples = [
        "",
        "GET",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        BODY_OF_100,
        &large,
        "GET /bytes/9000000 HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for sample in samples {
        let mut closed = site.client();
        closed.send(sample);
        drop(closed);
        let mut reset = site.client();
        reset.send(sample);
        reset.reset();
    }
    site.is_well();
}

/// The handler does not learn that the client has left. Its thread and its connection are released.
#[test]
fn a_client_may_disconnect_while_its_handler_runs() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    client.reset();
    site.inside.gate.open();
    site.is_well();
}

#[test]
fn a_client_may_disconnect_within_a_stream() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /stream/50000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_bytes();
    client.reset();
    site.is_well();
}

/// The body of a request stops while the handler waits for it.
#[test]
fn a_client_may_disconnect_within_a_body_that_is_being_read() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    eventually("the handler has begun", || site.calls() == 1);
    drop(client);
    site.is_well();
}
