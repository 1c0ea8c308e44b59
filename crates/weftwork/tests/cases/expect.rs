//! Tests that `100 Continue` is sent when it is due, and other interim responses when a handler sends them (RFC
//! 9110 section 10.1.1).

use super::CASE;
use crate::support::noise;

fn head(path: &str, length: usize, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n{more}\r\n"
    )
}

#[test]
fn the_first_read_asks_for_the_body() {
    let site = CASE.start();
    let mut client = site.client();
    for size in [4, 100_000] {
        client.send(head("/echo", size, ""));
        assert_eq!(client.answer().status, 100);
        client.send(noise(size));
        client.answer().is(200, noise(size));
    }
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("4\r\nbody\r\n0\r\n\r\n");
    client.answer().is(200, "body");
}

/// Without the 100 the client may send the body or the next request. The server cannot tell, so it stops
/// reading.
#[test]
fn a_handler_that_answers_first_ends_the_connection() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(head("/ignore", 10, ""));
    let answer = client.answer();
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    let _ = client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.ends();
    assert_eq!(site.calls(), 1);
}

#[test]
fn a_body_that_comes_unasked_needs_no_100() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(head("/echo", 4, "") + "body");
    client.answer().is(200, "body");
    client.send(head("/echo", 0, ""));
    client.answer().is(200, "");
    client.get("/").is(200, "hello");
}

#[test]
fn other_expectations_are_417() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 200-ok\r\n\r\nbody");
    let answer = client.answer();
    assert!(answer.status == 417 && answer.closes_over_http1(), "{answer:?}");
    client.ends_over_http1();
    assert_eq!(site.calls(), 0);
}

/// RFC 9110 section 10.1.1: an HTTP/1.0 expectation is ignored.
#[test]
fn http_10_gets_no_interim_response() {
    let site = CASE.start();
    for expectation in ["100-continue", "200-ok"] {
        let mut client = site.client();
        client.send(format!("POST /echo HTTP/1.0\r\nContent-Length: 4\r\nExpect: {expectation}\r\n\r\n"));
        client.send("body");
        client.answer().is(200, "body");
        client.ends();
    }
    let mut client = site.client();
    client.send("GET /early HTTP/1.0\r\n\r\n");
    client.answer().is(200, "final");
}

#[test]
fn early_hints_come_first() {
    let site = CASE.start();
    let mut client = site.client();
    let hints = client.get("/early");
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a.css>; rel=preload")));
    client.answer().is(200, "final");
    client.get("/").is(200, "hello");
}
