//! Tests that each limit is exact, that its client is told, and that the log names it.

use std::time::Duration;

use weftwork::Settings;

use super::CASE;
use crate::support::{eventually, is_logged, keep_log};

/// `fits` is answered 200 and the connection continues. `passes` is refused with `status` and the connection
/// ends. The answer has the limit, and the log also has its `name`.
#[track_caller]
fn check(change: fn(Settings) -> Settings, fits: String, passes: String, status: u16, name: &str) {
    keep_log();
    let site = CASE.start_with(change);
    let mut client = site.client();
    let client_name = client.name();
    client.send(fits);
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{answer:?}");
    client.get("/").is(200, "hello");
    client.send(passes);
    let answer = client.answer();
    assert!(answer.status == status && answer.closes(), "{answer:?}");
    // The error of the limit that a handler exceeds has its own text.
    if name != "body_bytes_max" {
        let named = site.setting(name);
        is_logged(&[&client_name, &named]);
        let (_, value) = named.rsplit_once(' ').unwrap();
        assert!(answer.text().contains(&format!("; the limit is {value})")), "{answer:?}");
    }
    assert!(!answer.text().contains(name), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), if status == 413 && name == "body_bytes_max" { 3 } else { 2 });
}

fn get(target_bytes: usize) -> String {
    format!("GET {:/<target_bytes$} HTTP/1.1\r\nHost: a\r\n\r\n", "/?")
}

#[test]
fn request_line() {
    let fixed = "GET  HTTP/1.1".len();
    check(|s| s, get(8192 - fixed), get(8193 - fixed), 414, "request_line_bytes_max");
    let lowered = |s: Settings| s.request_line_bytes_max(100);
    check(lowered, get(100 - fixed), get(101 - fixed), 414, "request_line_bytes_max");
}

#[test]
fn head() {
    let of = |bytes: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4))
    };
    check(|s| s, of(32 << 10), of((32 << 10) + 1), 431, "head_bytes_max");
    check(|s| s.head_bytes_max(300), of(300), of(301), 431, "head_bytes_max");
}

#[test]
fn fields() {
    let of = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
    check(|s| s, of(100), of(101), 431, "fields_max");
    check(|s| s.fields_max(3), of(3), of(4), 431, "fields_max");
}

#[test]
fn declared_body() {
    let of = |bytes: usize| {
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes))
    };
    // Only a part is sent: more than `linger_bytes_max` would be cut.
    let passes = of((2 << 20) + 1)[..100_000].to_owned();
    check(|s| s, of(2 << 20), passes, 413, "body_bytes_max");
}

fn chunked(body: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n")
}

/// A chunked body is refused when it has become too large. The rest is small enough to be discarded, so the
/// connection continues.
#[test]
fn small_body() {
    let site = CASE.start_with(|s| s.body_bytes_max(1000));
    let mut client = site.client();
    let of = |chunk: usize, count: usize| {
        chunked(&format!("{chunk:x}\r\n{}\r\n", "x".repeat(chunk)).repeat(count))
    };
    client.send(of(100, 10));
    client.answer().is(200, "x".repeat(1000));
    let declared =
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n{}", "x".repeat(1001));
    for passes in [declared, of(1001, 1), of(91, 11), of(1, 1001)] {
        client.send(passes);
        let answer = client.answer();
        assert!(answer.status == 413 && answer.text().contains("than the 1000 bytes"), "{answer:?}");
        assert!(!answer.closes(), "{answer:?}");
    }
    client.get("/").is(200, "hello");
}

#[test]
fn chunk_extensions() {
    let of = |bytes: usize| chunked(&format!("1;{}\r\nx\r\n", "e".repeat(bytes - 1)));
    check(|s| s, of(4096), of(4097), 413, "chunk_extension_bytes_max");
    let in_many = |count: usize| chunked(&"1;a\r\nx\r\n".repeat(count));
    check(
        |s| s.chunk_extension_bytes_max(20),
        in_many(10),
        in_many(11),
        413,
        "chunk_extension_bytes_max",
    );
}

#[test]
fn trailers() {
    let of = |count: usize| {
        let body = chunked("1\r\nx\r\n");
        format!("{}{}\r\n", &body[..body.len() - 2], "X: y\r\n".repeat(count))
    };
    check(|s| s, of(100), of(101), 431, "fields_max");
    let long = |bytes: usize| {
        let body = chunked("1\r\nx\r\n");
        format!("{}X: {}\r\n\r\n", &body[..body.len() - 2], "y".repeat(bytes - "X: \r\n\r\n".len()))
    };
    check(|s| s.head_bytes_max(300), long(300), long(301), 431, "head_bytes_max");
}

/// A body above the limit of the bytes read ahead still arrives.
#[test]
fn read_ahead_bounds_nothing_but_memory() {
    for ahead in [0, 1, 100_000_000] {
        let site = CASE.start_with(|s| s.body_ahead_bytes_max(ahead));
        let mut client = site.client();
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n{}",
            "x".repeat(300_000)
        ));
        client.answer().is(200, "x".repeat(300_000));
        client.get("/").is(200, "hello");
    }
}

/// Returns `POST /ignore` with a body of this many bytes. Its handler reads nothing of the body.
fn unread(bytes: usize) -> String {
    format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes))
}

#[test]
fn unread_body() {
    let site = CASE.start_with(|s| s.unread_bytes_max(1000).body_ahead_bytes_max(0));
    let mut client = site.client();
    // The answer is sent before the body, so nothing of the body has been read.
    client.send(&unread(1000)[..unread(0).len() + 3]);
    let answer = client.answer();
    assert!(answer.status == 200 && !answer.closes(), "{answer:?}");
    client.send("x".repeat(1000));
    client.send(&unread(1001)[..unread(0).len() + 3]);
    let answer = client.answer();
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    client.ends();
}

/// Within the limit the server discards the client's bytes for as long as the client sends. Above the limit it reads no
/// more, and does not reset: many clients look for the response when they cannot send.
#[test]
fn linger() {
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(100);
    let site = CASE.start_with(|s| s.linger_bytes_max(50_000).linger_timeout(LONG));
    let refused = || {
        let mut client = site.client();
        client.send("bad\r\n\r\n");
        client
    };
    let mut within = refused();
    assert_eq!(within.answer().status, 400);
    within.send(vec![b'x'; 49_000]);
    within.half_close();
    within.ends();
    let mut beyond = refused();
    assert!(beyond.fills_up(), "it is reset, or read on");
    assert_eq!(beyond.answer().status, 400);
    beyond.reset();
    eventually("it has left", || site.running.stats().connections == 0);
    let site = CASE.start_with(|s| s.linger_bytes_max(0).linger_timeout(SHORT));
    let mut silent = site.client();
    silent.send("bad\r\n\r\n");
    assert_eq!(silent.answer().status, 400);
    // On a slow host its time may be over already.
    let _ = silent.try_send("more");
    eventually("its time is over", || site.running.stats().connections == 0);
}

/// Other limits: of PROXY headers in `proxies.rs`, of time in `deadlines.rs`, of connections, threads and
/// queues in `caps.rs`.
#[test]
fn a_limit_that_a_handler_meets_has_its_value() {
    keep_log();
    let site = CASE.start_with(|s| s.body_bytes_max(777));
    let named = "body_bytes_max, or a BodyLimit, allows here: 777 bytes";
    let declared = unread(778).replace("/ignore", "/echo/declared");
    let chunk = "x".repeat(778);
    let chunked =
        format!("POST /echo/chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n30a\r\n{chunk}\r\n0\r\n\r\n");
    for (request, path) in [(declared, "POST /echo/declared"), (chunked, "POST /echo/chunked")] {
        let mut client = site.client();
        client.send(request);
        let answer = client.answer();
        assert!(answer.status == 413 && answer.text().contains("than the 777 bytes"), "{path}: {answer:?}");
        is_logged(&[named, path]);
    }
}
