//! Is every malformed request refused end to end: its status, its rule named, and nothing behind it run?

use super::ROOM;
use crate::support::{Client, Site, keep_log, logged};

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

#[track_caller]
fn check(site: &Site, sample: &str, status: u16, rule: &str) {
    let (calls, faults) = (site.calls(), site.running.counts().faults);
    let mut client = site.client();
    client.send(format!("{sample}{BEHIND}"));
    let answer = client.answer();
    assert!(answer.status == status && answer.closes(), "{sample:?}: {answer:?}");
    assert!(answer.text().contains(&format!("({rule})")), "{sample:?} breaks {rule}: {answer:?}");
    client.ends();
    assert_eq!(site.calls(), calls, "{sample:?} or what is behind it was run");
    assert_eq!(site.running.counts().faults, faults + 1, "{sample:?}");
}

#[test]
fn request_lines() {
    let site = ROOM.start();
    check(&site, "\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03", 400, "RFC 9112 §3");
    check(&site, "{\"json\": 1}\r\n\r\n", 400, "RFC 9112 §3");
    check(&site, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §2.2");
    check(&site, "GET / HTTP/1.1\nHost: a\r\n\r\n", 400, "RFC 9112 §2.2");
    check(&site, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3");
    check(&site, "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3.1");
    check(&site, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400, "RFC 9112 §3");
    check(&site, "GET / http/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §2.3");
    check(&site, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "RFC 9110 §15.6.6");
    check(&site, "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 3986 §3.3");
    check(&site, "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 3986 §2.1");
    check(&site, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3.2");
    check(&site, "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3.2.4");
    check(&site, "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3.2.3");
    check(&site, "GET http://a@b:c/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "RFC 9110 §4.2");
}

#[test]
fn fields() {
    let site = ROOM.start();
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400, "RFC 9112 §5.2");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400, "RFC 9112 §5");
    check(&site, "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "RFC 9112 §5.1");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nX(: a\r\n\r\n", 400, "RFC 9110 §5.1");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400, "RFC 9110 §5.5");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400, "RFC 9112 §2.2");
    check(&site, "GET / HTTP/1.1\r\n\r\n", 400, "RFC 9112 §3.2");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "RFC 9112 §3.2");
    check(&site, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "RFC 9112 §3.2");
    check(&site, "GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n", 400, "RFC 9110 §7.6.1");
}

#[track_caller]
fn check_framing(site: &Site, fields: &str, status: u16, rule: &str) {
    check(site, &format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"), status, rule);
}

#[test]
fn framing() {
    let site = ROOM.start();
    check_framing(&site, "Content-Length: +5", 400, "RFC 9112 §6.3");
    check_framing(&site, "Content-Length: ", 400, "RFC 9112 §6.3");
    check_framing(&site, "Content-Length: 99999999999999999999", 400, "RFC 9110 §8.6");
    check_framing(&site, "Content-Length: 5\r\nContent-Length: 5", 400, "RFC 9112 §6.3");
    check_framing(&site, "Content-Length: 5, 5", 400, "RFC 9112 §6.3");
    check_framing(&site, "Content-Length: 5\r\nTransfer-Encoding: chunked", 400, "RFC 9112 §6.1");
    check_framing(&site, "Transfer-Encoding: chunked\r\nContent-Length: 5", 400, "RFC 9112 §6.1");
    check_framing(&site, "Transfer-Encoding: chunked;a=b", 400, "RFC 9112 §6.1");
    check_framing(&site, "Transfer-Encoding: gzip", 501, "RFC 9112 §6.1");
    check_framing(&site, "Transfer-Encoding: gzip, chunked", 501, "RFC 9112 §6.1");
    check_framing(&site, "Transfer-Encoding: chunked, gzip", 400, "RFC 9112 §6.3");
    check_framing(&site, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400, "RFC 9112 §6.1");
    check_framing(&site, "Expect: a miracle", 417, "RFC 9110 §10.1.1");
    check(&site, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "RFC 9112 §6.1");
}

#[track_caller]
fn check_chunks(site: &Site, body: &str, status: u16, rule: &str) {
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(site, &format!("{head}{body}"), status, rule);
}

#[test]
fn chunks() {
    let site = ROOM.start();
    check_chunks(&site, "x\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "-1\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "0x1\r\na\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "00000000000000001\r\na\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "1\na\r\n", 400, "RFC 9112 §2.2");
    check_chunks(&site, "1 ;a\r\na\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "1;a b\r\na\r\n", 400, "RFC 9112 §7.1.1");
    check_chunks(&site, "1\r\nab\r\n", 400, "RFC 9112 §7.1");
    check_chunks(&site, "0\r\nContent-Length: 5\r\n\r\n", 400, "RFC 9110 §6.5.1");
    check_chunks(&site, "0\r\nHost: b\r\n\r\n", 400, "RFC 9110 §6.5.1");
}

/// Answers to good requests before it go out first.
#[test]
fn a_fault_behind_good_requests() {
    let site = ROOM.start();
    let mut client = site.client();
    client.send(format!("{BEHIND}GET / HTTP/1.1\r\nHost: a\r\n\r\nbad\r\n\r\n{BEHIND}"));
    assert_eq!(client.answer().status, 404);
    client.answer().is(200, "hello");
    let answer = client.answer();
    assert!(answer.status == 400 && answer.closes(), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), 2);
}

/// A chunk that is wrong behind 64 KiB is found while the handler reads: it gets the error, the client the status.
#[test]
fn a_fault_that_the_handler_comes_upon() {
    let site = ROOM.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n");
    client.send(vec![b'x'; 0x20000]);
    client.send(format!("\r\nxyz\r\n{BEHIND}"));
    let answer = client.answer();
    assert!(answer.status == 400 && answer.closes(), "{answer:?}");
    assert!(answer.text().contains("does not start with its size"), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), 1);
}

/// Strangers may be at fault as often as they like; the log is ours.
#[test]
fn the_log_has_a_few_lines_a_second_of_faults() {
    keep_log();
    const FAULTS: usize = 100;
    let began = std::time::Instant::now();
    let server = ROOM.bind("127.0.0.1:0").settings(|s| s.fields_max(3)).start(|_: &mut weftwork::Request| "hello").unwrap();
    // All tests share the log: lines are told apart by their client.
    let mut clients = Vec::new();
    for _ in 0..FAULTS {
        let mut client = Client::connect(&server);
        let address = client.name();
        client.send("GET / HTTP/1.1\r\nHost: a\r\na: b\r\na: b\r\na: b\r\n\r\n");
        assert_eq!(client.answer().status, 431);
        clients.push(format!("{address} gets 431"));
    }
    assert_eq!(server.counts().faults, FAULTS as u64);
    let lines = clients.iter().filter(|line| !logged(&[line]).is_empty()).count();
    let seconds = began.elapsed().as_secs() as usize + 2;
    assert!(lines >= 10 && lines <= 10 * seconds, "{lines} lines in {seconds} s");
}
