//! Tests what happens to a body that the handler has not read (RFC 9112 sections 9.3 and 9.6).

use super::CASE;

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_small_unread_body_is_discarded_and_the_connection_persists() {
    let site = CASE.start();
    let mut client = site.client();
    for size in [1, 1000, 65_536] {
        client.send(format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
        client.send(vec![b'x'; size]);
        let answer = client.answer();
        assert!(!answer.closes(), "{answer:?}");
        client.get("/").is(200, "hello");
    }
    let chunked =
        "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    client.send(chunked);
    client.answer().is(200, "not read");
    client.get("/").is(200, "hello");
}

/// The client continues to send after the answer, reads it whole, and sees an orderly end.
#[test]
fn a_large_unread_body_ends_the_connection_without_a_reset() {
    let site = CASE.start();
    for status in [200, 413] {
        let path = if status == 200 { "/ignore" } else { "/echo" };
        let mut client = site.client();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n"));
        client.send(vec![b'x'; 100_000]);
        client.wait_for_bytes();
        client.send(vec![b'x'; 900_000]);
        let answer = client.answer();
        assert!(answer.status == status && answer.closes(), "{answer:?}");
        client.ends();
    }
    site.is_well();
}

/// The server does not wait for bytes that it will discard. The handler still runs, because it could have
/// raised the limit.
#[test]
fn a_declared_length_past_the_limit_is_refused_before_the_body_comes() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n");
    let answer = client.answer();
    assert!(answer.status == 413 && answer.closes(), "{answer:?}");
    client.send(vec![b'x'; 100_000]);
    client.ends();
    assert_eq!(site.calls(), 1);
}

#[test]
fn the_413_names_the_limit() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n");
    client.send(vec![b'x'; 70_000]);
    let answer = client.answer();
    assert!(answer.status == 413 && answer.text().contains("2097152"), "{answer:?}");
    client.ends();
}

/// A large chunked body has no declared length. The server finds it too large while it discards it.
#[test]
fn a_large_unread_chunked_body_ends_the_connection() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80000\r\n");
    client.send(vec![b'x'; 0x80000]);
    client.answer().is(200, "not read");
    client.ends();
}

/// A request inside a body never runs, whether the body is discarded or the connection ends.
#[test]
fn a_request_in_an_unread_body_is_not_run() {
    let site = CASE.start();
    let mut client = site.client();
    let length = SMUGGLED.len();
    client.send(format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"));
    client.answer().is(200, "not read");
    client.get("/").is(200, "hello");
    assert_eq!(site.calls(), 2);

    let mut client = site.client();
    let padding = "x".repeat(70_000);
    let body = format!("{padding}{SMUGGLED}{SMUGGLED}");
    client.send(format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n{body}"));
    client.answer().is(200, "not read");
    client.ends();
    assert_eq!(site.calls(), 3);
}

#[test]
fn a_fault_in_an_unread_body_ends_the_connection() {
    let site = CASE.start();
    let mut client = site.client();
    let broken =
        "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    client.send(format!("{broken}zz\r\n{SMUGGLED}"));
    let answer = client.answer();
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    assert!(site.calls() <= 1);
}

/// The rest of the body never arrives. The answer is sent, and the connection ends soon after.
#[test]
fn a_missing_rest_of_a_body_is_not_waited_for() {
    let site = CASE.start_with(|s| {
        s.unread_timeout(std::time::Duration::from_millis(50)).body_ahead_bytes_max(10)
    });
    let mut client = site.client();
    client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n0123456789");
    client.answer().is(200, "not read");
    client.ends();
}

/// Bytes that arrive while the handler runs must not turn the close after its answer into a reset.
#[test]
fn a_closing_answer_is_not_lost_to_a_reset() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /gate-close HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    client.send(vec![b'x'; 1000]);
    site.inside.gate.open();
    client.answer().is(200, "passed");
    client.ends();
}
