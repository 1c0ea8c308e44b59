//! Does a panic cost one request, and nothing else?

use super::ROOM;
use crate::support::eventually;

#[test]
fn the_client_gets_500_and_an_end() {
    let site = ROOM.start();
    let mut other = site.client();
    other.get("/").is(200, "hello");
    for count in 1..=20 {
        let mut client = site.client();
        let answer = client.get("/panic");
        assert!(answer.status == 500 && answer.closes(), "{answer:?}");
        assert!(!answer.text().contains("as asked"), "the message is for the log: {answer:?}");
        client.ends();
        assert_eq!(site.running.counts().panics, count);
    }
    other.get("/").is(200, "hello");
    drop(other);
    site.is_well();
}

/// The client can tell that the body is not whole: the last chunk is missing.
#[test]
fn a_stream_that_panics_or_fails_has_no_last_chunk() {
    let site = ROOM.start();
    for path in ["/panic-stream", "/fail-stream"] {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let text = String::from_utf8(client.rest()).unwrap();
        assert!(text.contains("chunked") && text.ends_with("\r\nd\r\nthe beginning\r\n"), "{text:?}");
    }
    eventually("the panic is counted", || site.running.counts().panics == 1);
    site.is_well();
}

#[test]
fn what_is_behind_a_panic_is_not_run() {
    let site = ROOM.start();
    let mut client = site.client();
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status, 500);
    client.ends();
    assert_eq!(site.calls(), 1);
}
