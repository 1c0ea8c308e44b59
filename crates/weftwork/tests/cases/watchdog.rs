//! Tests that a slow handler is logged while it runs, with its route and thread.

use std::time::Duration;

use super::CASE;
use crate::support::{eventually, is_logged, keep_log, logged};

const SHORT: Duration = Duration::from_millis(50);

/// Returns a path that no other test requests, so that its log lines can be told apart.
fn path(route: &str) -> String {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    format!("/{route}/{}-{count}", module_path!().replace("::", "-"))
}

#[test]
fn a_slow_handler_is_logged_while_it_runs_and_when_it_ends() {
    keep_log();
    for route in ["gate", "gate-blocking"] {
        let site = CASE.start_with(|s| s.handler_warn_after(SHORT));
        let path = path(route);
        let mut client = site.client();
        client.send(format!("GET {path}?secret HTTP/1.1\r\nHost: a\r\n\r\n"));
        site.inside.gate.wait_for(1);
        let line = is_logged(&["is still running", &path[..50.min(path.len())]]);
        assert!(line.starts_with("WARN") && line.contains("handler_warn_after is 50ms"), "{line}");
        assert!(line.contains("on the thread weft") && !line.contains("secret"), "{line}");
        eventually("it is counted", || site.running.stats().slow_handlers == 1);
        site.inside.gate.open();
        client.answer().is(200, "passed");
        is_logged(&["a handler took", &path]);
        assert_eq!(logged(&["is still running", &path[..50.min(path.len())]]).len(), 1, "once a call");
    }
}

/// The same for the writer of a streamed body.
#[test]
fn a_writer_that_is_stuck_is_logged_while_it_runs_and_when_it_ends() {
    keep_log();
    let site = CASE.start_with(|s| s.handler_warn_after(SHORT));
    let path = path("gate-stream");
    let mut client = site.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(1);
    is_logged(&["is still running", &path[..50.min(path.len())]]);
    eventually("it is counted", || site.running.stats().slow_handlers == 1);
    site.inside.gate.open();
    client.answer().is(200, "before after");
    is_logged(&["the writer of a streamed body took", &path]);
}

/// The time of a handler's client does not count.
#[test]
fn a_handler_that_waits_for_its_client_is_not_logged() {
    // A busy machine may keep a handler from its core for a while.
    let warn_after = SHORT * 12;
    let longer = warn_after * 2;
    let site = || CASE.start_with(|s| s.handler_warn_after(warn_after));
    let pausing = site();
    pausing.client().get(&format!("/pause/{}", longer.as_millis())).is(200, "before after");
    assert_eq!(pausing.running.stats().slow_handlers, 0, "a pause");
    let requests = [
        ("one who does not read", "GET /stream/20000000 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("one who does not send", "POST /echo-stream HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"),
        ("one who does not send to a handler", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"),
    ];
    for (what, request) in requests {
        let site = site();
        let mut client = site.client();
        client.send(request);
        client.wait_for_bytes();
        std::thread::sleep(longer);
        assert_eq!(site.running.stats().slow_handlers, 0, "{what}");
    }
}

/// Requests in a row on one thread do not count as one long call.
#[test]
fn a_quick_handler_is_not_logged() {
    keep_log();
    let site = CASE.start_with(|s| s.handler_warn_after(Duration::from_secs(5)));
    let (path, begun) = (path("sleep"), std::time::Instant::now());
    let mut client = site.client();
    while begun.elapsed() < SHORT * 4 {
        assert_eq!(client.get(&path).status, 200);
    }
    assert_eq!(site.running.stats().slow_handlers, 0);
    assert!(logged(&[&path]).is_empty());
}

/// The time of one request does not count for the next one, which arrived with it.
#[test]
fn a_quick_handler_after_a_slow_one_is_not_logged() {
    keep_log();
    let site = CASE.start_with(|s| s.handler_warn_after(SHORT * 20));
    let (slow, quick) = (path("gate"), path("health"));
    let mut client = site.client();
    client.send(format!("GET {slow} HTTP/1.1\r\nHost: a\r\n\r\nGET {quick} HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(1);
    eventually("it is counted", || site.running.stats().slow_handlers == 1);
    site.inside.gate.open();
    client.answer().is(200, "passed");
    client.answer();
    is_logged(&["a handler took", &slow]);
    assert!(logged(&[&quick]).is_empty());
    assert_eq!(site.running.stats().slow_handlers, 1);
}
