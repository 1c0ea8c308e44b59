//! Tests that a panic of the user's code beside the handler's call costs one request: what was answered before is
//! delivered, the log names the request, and the threads go on.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weftwork::http::{HeaderValue, StatusCode};
use weftwork::{
    Blocking, BodyWriter, Feed, FeedLimits, Handler, IntoResponse, Request, RequestLine, Response, Running, StreamFilter,
    UpgradeHandler,
};

use super::CASE;
use crate::support::{Client, eventually, is_logged, keep_log, logged, over_http2};

/// Panics as it is dropped.
#[derive(Clone, Debug)]
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("a value panics");
    }
}

/// A body whose owner panics as it is dropped.
fn owned(length: usize) -> Bytes {
    struct Owner(Vec<u8>, #[allow(dead_code)] Mine);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(vec![b'x'; length], Mine))
}

/// Panics when it is told of the response, or only as it is dropped.
struct Filter(Option<Mine>);

/// Panics when it is told of the response, and then as it is dropped.
struct FilterTwice(#[allow(dead_code)] Mine);

impl StreamFilter for FilterTwice {
    fn write(&mut self, _: &[u8], _: &mut BodyWriter<'_>) -> std::io::Result<()> {
        panic!("a filter panics")
    }

    fn answered(&mut self, _: &Response) {
        panic!("a filter panics")
    }

    fn failed(&mut self, _: Option<StatusCode>) {
        panic!("a filter panics again")
    }
}

impl StreamFilter for Filter {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> std::io::Result<()> {
        assert!(self.0.is_some(), "a filter panics");
        out.write_all(data)
    }

    fn answered(&mut self, _: &Response) {
        assert!(self.0.is_some(), "a filter panics");
    }
}

/// Panics over the first bytes, and then as it is dropped.
struct Receiver(#[allow(dead_code)] Mine);

impl UpgradeHandler for Receiver {
    fn on_data(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("a receiver panics")
    }
}

/// Panics with a value that panics as it is dropped.
struct PanicsWith;

impl UpgradeHandler for PanicsWith {
    fn on_data(&mut self, _: &[u8]) -> std::io::Result<usize> {
        std::panic::panic_any(Mine)
    }
}

/// Returns a body whose writer panics as it is dropped.
fn mine_written() -> Response {
    let mine = Mine;
    Response::stream(move |_| {
        drop(mine);
        Ok(())
    })
}

/// Returns a connection whose function panics as it is dropped.
fn upgraded() -> Response {
    let mine = Mine;
    Response::upgrade(HeaderValue::from_static("echo"), move |_| {
        drop(mine);
        Ok(())
    })
}

fn fed(receiver: impl UpgradeHandler + 'static) -> Response {
    let (sender, feed) = Feed::new(FeedLimits::default());
    std::mem::forget(sender);
    Response::upgrade_fed(HeaderValue::from_static("echo"), feed, receiver)
}

/// Panics while it has a response, as middleware may.
fn hold(_response: Response) -> Response {
    panic!("a handler panics")
}

struct Odd(#[allow(dead_code)] Option<Mine>);

impl Handler for Odd {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let case = req.path().split('/').nth(1).unwrap_or_default().to_owned();
        answer(&case, req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        assert!(!line.path().starts_with("/before"), "a question panics");
        Blocking::Learn { route: u64::from(line.path().len() as u32) }
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        assert!(!line.path().starts_with("/ahead"), "a question panics");
        true
    }
}

fn answer(case: &str, req: &mut Request<'_>) -> Response {
    let hello = || Response::text("hello");
    match case {
        "ok" | "before" | "ahead" => hello(),
        "payload" => std::panic::panic_any(Mine),
        "extension" => {
            req.extensions_mut().insert(Mine);
            hello()
        }
        "both" => {
            req.extensions_mut().insert(Mine);
            panic!("a handler panics")
        }
        "blocking-call" => weftwork::blocking(|| panic!("a blocking call panics")),
        "short" => Response::bytes(owned(100)),
        "long" => Response::bytes(owned(100_000)),
        "writer" => mine_written(),
        "held" => hold(mine_written()),
        "held-upgrade" => hold(upgraded()),
        "held-receiver" => hold(fed(Receiver(Mine))),
        "extensions" => {
            req.extensions_mut().insert(Mine);
            req.extensions_mut().insert(Some(Mine));
            mine_written()
        }
        "filter" => Response::stream(|out| out.write_all(b"hello")).filter_stream(Filter(None)),
        "two-values" => mine_written().filter_stream(Filter(Some(Mine))),
        "filter-twice" => {
            Response::stream(|_| std::panic::panic_any(Mine)).filter_stream(FilterTwice(Mine))
        }
        // These wait for longer than their clients.
        "waits" => hello()
            .with_delay(Duration::from_secs(600))
            .map_final({
                let mine = Mine;
                move |response| {
                    let _ = &mine;
                    response
                }
            })
            .filter_stream(Filter(Some(Mine))),
        "waits-long" => {
            let (sender, response) = Response::later(Duration::from_secs(600), Response::bytes(owned(10)));
            std::mem::forget(sender);
            response.filter_stream(Filter(Some(Mine)))
        }
        "fed" => {
            let (sender, feed) = Feed::new(FeedLimits { bytes_max: u64::MAX, ..FeedLimits::default() });
            (0..4).for_each(|_| sender.send(owned(4 << 20)).unwrap());
            std::mem::forget(sender);
            Response::feed(feed.with_heartbeat(owned(1)).with_final_message(owned(1)))
        }
        "fed-upgrade" => {
            let (sender, feed) = Feed::new(FeedLimits { bytes_max: u64::MAX, ..FeedLimits::default() });
            (0..4).for_each(|_| sender.send(owned(4 << 20)).unwrap());
            std::mem::forget(sender);
            Response::upgrade_fed(HeaderValue::from_static("echo"), feed, Receiver(Mine))
        }
        "filter-drop" => Response::stream(|_| Ok(())).filter_stream(Filter(Some(Mine))),
        "later" => hello().with_delay(Duration::from_millis(1)).filter_stream(Filter(None)),
        "change" => {
            let is_late = AtomicBool::new(false);
            hello().with_delay(Duration::from_millis(1)).map_final(move |response| {
                assert!(!is_late.swap(true, Ordering::SeqCst), "a change panics");
                response
            })
        }
        "later-twice" => {
            let later = Response::bytes(owned(10)).with_delay(Duration::from_millis(1));
            later.filter_stream(FilterTwice(Mine)).filter_stream(Filter(Some(Mine)))
        }
        "change-twice" => {
            let (is_late, mine, other) = (AtomicBool::new(false), Mine, Mine);
            let later = hello().with_delay(Duration::from_millis(1)).map_final(move |response| {
                let _ = &mine;
                assert!(!is_late.swap(true, Ordering::SeqCst), "a change panics");
                response
            });
            later.map_final(move |response| {
                let _ = &other;
                response
            })
        }
        "change-drop" => {
            let mine = Mine;
            hello().with_delay(Duration::from_millis(1)).map_final(move |response| {
                let _ = &mine;
                response
            })
        }
        "unused" => {
            let (sender, response) = Response::later(Duration::from_secs(60), Response::bytes(owned(10)));
            sender.send("hello").unwrap();
            response
        }
        "late-body" => Response::bytes(owned(100)).with_delay(Duration::from_millis(1)),
        "error" => {
            #[derive(Debug)]
            struct Failed(#[allow(dead_code)] Mine);
            impl std::fmt::Display for Failed {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("as asked")
                }
            }
            impl std::error::Error for Failed {}
            weftwork::Error::from(Failed(Mine)).into_response()
        }
        "feed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            (0..2).for_each(|_| sender.send(owned(10)).unwrap());
            Response::feed(feed)
        }
        "upgrade" => upgraded(),
        "receiver" => fed(Receiver(Mine)),
        "receiver-payload" => fed(PanicsWith),
        _ => Response::new(StatusCode::NOT_FOUND),
    }
}

fn start() -> Running {
    keep_log();
    CASE.bind("127.0.0.1:0").start(Odd(Some(Mine))).unwrap()
}

/// Asks for `/ok` and for the case, at once. The first answer is always whole.
fn asked(running: &Running, method: &str, case: &str, rest: &str) -> Client {
    let mut client = Client::connect(running);
    let engine = CASE.engine;
    client.send(format!(
        "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n{method} /{case}/{engine} HTTP/1.1\r\nHost: a\r\n{rest}"
    ));
    client.answer().is(200, "hello");
    client
}

fn is_named(method: &str, case: &str) {
    is_logged(&["ERROR", &format!("panicked at {method} /{case}/{}", CASE.engine)]);
}

#[test]
fn what_has_no_answer_yet_gets_500() {
    let running = start();
    let cases = [
        "payload",
        "extension",
        "both",
        "blocking-call",
        "writer",
        "filter",
        "filter-drop",
        "two-values",
        "filter-twice",
        "held",
        "held-upgrade",
        "held-receiver",
        "extensions",
        "later",
        "later-twice",
        "change",
        "change-twice",
        "change-drop",
        "unused",
        "before",
        "ahead",
    ];
    for case in cases {
        for _ in 0..3 {
            let rest = if case == "ahead" { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
            let mut client = asked(&running, "GET", case, rest);
            let answer = client.answer();
            // Not every engine asks whether a call blocks.
            let is_asked = case != "before" || answer.status != 200;
            assert!(!is_asked || answer.status == 500 && answer.closes_over_http1(), "{case}: {answer:?}");
            if is_asked {
                client.ends_over_http1();
                if !["later", "later-twice", "change", "change-twice"].contains(&case) {
                    is_named("GET", case);
                }
            }
        }
    }
    ends_well(running);
}

/// The writer of an answer to HEAD is dropped without a call.
#[test]
fn a_writer_that_is_not_called_is_answered_with_500() {
    let running = start();
    for case in ["writer", "filter-drop", "two-values"] {
        let mut client = asked(&running, "HEAD", case, "\r\n");
        assert_eq!(client.answer_to_head().status, 500, "{case}");
        is_named("HEAD", case);
    }
    ends_well(running);
}

/// The value is dropped when the answer is written, so nothing is lost. A 500 would invite the client to repeat what the
/// handler has done.
#[test]
fn a_whole_answer_is_delivered_and_its_connection_goes_on() {
    let running = start();
    for (case, status, length) in
        [("short", 200, 100), ("late-body", 200, 100), ("error", 500, 92), ("long", 200, 100_000), ("feed", 200, 20)]
    {
        for _ in 0..3 {
            let mut client = asked(&running, "GET", case, "\r\n");
            let answer = client.answer();
            assert_eq!((answer.status, answer.text().len()), (status, length), "{case}");
            client.get("/ok").is(200, "hello");
            if ["short", "late-body", "error"].contains(&case) {
                let what = "ERROR a value of a request or response panicked at GET";
                is_logged(&[&format!("{what} /{case}/{}: a value panics", CASE.engine)]);
            } else if over_http2::is_on() && case == "long" {
                // The connection sends the rest, and no longer has the request.
                is_logged(&["ERROR a value of a response panicked as it was dropped: a value panics"]);
            } else if case != "feed" {
                is_named("GET", case);
            }
        }
    }
    ends_well(running);
}

/// Several values of one connection panic as it ends. Two panics at once would end the process.
#[test]
fn a_connection_that_ends_early_ends_alone() {
    let running = start();
    for case in ["waits", "waits-long", "fed", "fed-upgrade", "long"] {
        for _ in 0..3 {
            let before = running.stats().panics;
            let clients = [(); 3].map(|()| {
                let rest =
                    if case == "fed-upgrade" { "Connection: upgrade\r\nUpgrade: echo\r\n\r\n" } else { "\r\n" };
                asked(&running, "GET", case, rest)
            });
            clients.into_iter().for_each(Client::reset);
            eventually(&format!("{case}: they are gone"), || running.stats().connections == 0);
            assert!(running.stats().panics > before, "{case}");
            Client::connect(&running).get("/ok").is(200, "hello");
        }
    }
    is_logged(&["ERROR a value of a response panicked at GET /waits/", "as its connection ended: a value panics"]);
    ends_well(running);
}

#[test]
fn an_upgraded_connection_ends_alone() {
    let running = start();
    for case in ["upgrade", "receiver", "receiver-payload"] {
        for _ in 0..3 {
            let mut client = asked(&running, "GET", case, "Connection: upgrade\r\nUpgrade: echo\r\n\r\nbytes");
            assert_eq!(client.answer_head().status, 101, "{case}");
            client.rest();
        }
    }
    is_logged(&["the handler of an upgraded connection panicked: a value panics"]);
    is_logged(&["the receiver of an upgraded connection panicked: a receiver panics"]);
    ends_well(running);
}

/// Every thread has gone on, and the handler's own value panics last.
#[track_caller]
fn ends_well(running: Running) {
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(&running)).collect();
    clients.iter_mut().for_each(|client| client.get("/ok").is(200, "hello"));
    drop(clients);
    let report = running.shutdown(crate::support::TIMEOUT);
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
    is_logged(&["a value of the handler panicked at the end: a value panics"]);
    assert!(logged(&["bug of weftwork"]).is_empty());
}
