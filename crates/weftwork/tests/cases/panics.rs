//! Tests that a panic ends one request and nothing else.

use weftwork::{Request, Response};

use super::CASE;
use crate::support::{Client, eventually, is_logged, keep_log, logged, panic_at};

#[test]
fn the_client_gets_500_and_an_end() {
    let site = CASE.start();
    let mut other = site.client();
    other.get("/").is(200, "hello");
    for count in 1..=20 {
        let mut client = site.client();
        let answer = client.get("/panic");
        assert!(answer.status == 500 && answer.closes_over_http1(), "{answer:?}");
        assert!(!answer.text().contains("as asked"), "the message is for the log: {answer:?}");
        client.ends_over_http1();
        assert_eq!(site.running.stats().panics, count);
    }
    other.get("/").is(200, "hello");
    assert_eq!(site.running.stats().requests, site.calls() as u64);
    drop(other);
    site.is_well();
}

/// The client can see that the body is incomplete: the last chunk is missing.
#[test]
fn a_stream_that_panics_or_fails_has_no_last_chunk() {
    keep_log();
    let site = CASE.start();
    for path in ["/panic-stream", "/fail-stream"] {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let text = String::from_utf8(client.rest()).unwrap();
        assert!(text.contains("chunked") && text.ends_with("\r\nd\r\nthe beginning\r\n"), "{text:?}");
    }
    eventually("the panic is counted", || site.running.stats().panics == 1);
    // The error is the handler's, and says nothing of a client.
    is_logged(&["ERROR", "a response ended early at GET /fail-stream", "as asked"]);
    site.is_well();
}

#[test]
fn a_request_pipelined_after_a_panic_is_not_run() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status, 500);
    client.ends();
    assert_eq!(site.calls(), 1);
}

/// The log is the user's too.
#[test]
fn a_log_that_panics_costs_its_line() {
    let site = CASE.start();
    for _ in 0..2 {
        let [mut victim, mut next] = [(); 2].map(|()| site.client());
        // An earlier client may have had the port.
        let before = logged(&[&victim.name()]).len();
        panic_at(&victim.name());
        for client in [&mut victim, &mut next] {
            client.send("bad\r\n\r\n");
            assert_eq!(client.answer().status, 400);
        }
        is_logged(&[&next.name(), "gets 400"]);
        assert_eq!(logged(&[&victim.name()]).len(), before);
    }
    site.is_well();
    let report = site.running.shutdown(crate::support::TIMEOUT);
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}

/// The part of a handler before its call runs outside of the call.
#[test]
fn a_panic_before_the_call_costs_one_connection() {
    use weftwork::{RequestLine, Blocking, Handler, Request, Response};
    struct Odd;
    impl Handler for Odd {
        fn call(&self, _: &mut Request<'_>) -> Response {
            Response::text("hello")
        }
        fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
            assert!(line.path() != "/odd", "as asked");
            Blocking::Never
        }
    }
    let running = CASE.bind("127.0.0.1:0").start(Odd).unwrap();
    let mut other = Client::connect(&running);
    for _ in 0..4 {
        let mut odd = Client::connect(&running);
        odd.send("GET /odd HTTP/1.1\r\nHost: a\r\n\r\n");
        // Not every engine calls it.
        odd.half_close();
        let answer = odd.rest();
        assert!(answer.starts_with(b"HTTP/1.1 500 ") || answer.starts_with(b"HTTP/1.1 200 "));
        other.get("/").is(200, "hello");
    }
    let report = running.shutdown(crate::support::TIMEOUT);
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}

/// If their loop ended, all would be dropped at once, and the second panic would end the process.
#[test]
fn responses_that_panic_as_they_are_dropped_end_no_server() {
    struct Mine;
    impl Drop for Mine {
        fn drop(&mut self) {
            panic!("as asked");
        }
    }
    let server = CASE.bind("127.0.0.1:0").start(|_: &mut Request| {
        let mine = Mine;
        let late = Response::stream(move |_| {
            let _mine = &mine;
            Ok(())
        });
        late.with_delay(std::time::Duration::from_secs(3600))
    });
    let server = server.unwrap();
    let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(&server)).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("all are asked", || server.stats().requests == 6);
    let _ = server.abandon();
    for client in clients {
        // A response that was still to come is cut off by a reset.
        let said = String::from_utf8(client.rest()).unwrap();
        // If the handler has not returned yet, its panic is answered.
        let is_answered = said.starts_with("HTTP/1.1 500 ") && said.contains("\r\nConnection: close\r\n");
        assert!(said.is_empty() || is_answered && said.matches("HTTP/1.1").count() == 1, "{said}");
    }
}
