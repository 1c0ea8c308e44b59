//! Tests that a request body that outlives its handler arrives as the client sends it, within the limits of every body, and that
//! its reader learns how it ends.

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use weftwork::prelude::StatusCode;
use weftwork::{BodyError, Feed, FeedLimits, FeedSender, OverflowStrategy, OwnedBody, Request, Response, Running, Settings};

use super::CASE;
use super::addresses::Path;
use crate::support::{Client, TIMEOUT, chunks, eventually, is_logged, keep_log, noise, over_http2};

/// More than the connection, the kernel and the client of the test keep together. Windows of HTTP/2 are smaller.
fn large() -> usize {
    if over_http2::is_on() { 4 << 20 } else { 24 << 20 }
}

/// Most that may wait for a reader.
const WAITING_MAX: usize = 64 << 10;

fn wide() -> FeedLimits {
    FeedLimits { messages_max: 1 << 20, bytes_max: 1 << 30, overflow: OverflowStrategy::Disconnect }
}

/// Sends what it reads, as the client takes it.
fn echo(mut body: OwnedBody, sender: &FeedSender) {
    let mut part = vec![0; 64 << 10];
    loop {
        // In this order: the rest may arrive in between.
        let waiting = body.available();
        assert!(waiting <= WAITING_MAX || body.has_arrived(), "{waiting} bytes wait");
        match body.read(&mut part) {
            Ok(0) => return sender.close(),
            Ok(count) => {
                eventually("the feed has room", || sender.waiting().1 < 256 << 10 || sender.is_closed());
                if sender.send(part[..count].to_vec()).is_err() {
                    return;
                }
            }
            Err(_) => return sender.cut(),
        }
    }
}

async fn count(mut body: OwnedBody) -> Result<String, BodyError> {
    let mut bytes = 0;
    while let Some(part) = body.chunk().await? {
        bytes += part.len();
    }
    let trailers = body.trailers().iter().map(|(name, value)| format!(" {name}={}", value.to_str().unwrap()));
    Ok(format!("{bytes}{}", trailers.collect::<String>()))
}

fn counted(body: OwnedBody) -> Response {
    Response::when(async { count(body).await.map_err(weftwork::Error::from) })
}

/// A server that gives the bodies and feeds of `/give` to the test.
fn start_with(change: impl FnOnce(Settings) -> Settings) -> (Running, Receiver<(OwnedBody, FeedSender)>) {
    start_at("127.0.0.1:0", change)
}

fn start_at(
    address: &str,
    change: impl FnOnce(Settings) -> Settings,
) -> (Running, Receiver<(OwnedBody, FeedSender)>) {
    let (give, given): (Sender<(OwnedBody, FeedSender)>, _) = channel();
    let handler = move |req: &mut Request| match req.path() {
        "/count" => counted(req.take_body()),
        "/small" => {
            req.set_body_bytes_max(1000);
            counted(req.take_body())
        }
        "/echo" => {
            let (sender, feed) = Feed::new(wide());
            let body = req.take_body();
            std::thread::spawn(move || echo(body, &sender));
            Response::feed(feed)
        }
        "/give" => {
            let (sender, feed) = Feed::new(wide());
            give.send((req.take_body(), sender)).unwrap();
            Response::feed(feed)
        }
        "/accepted" => {
            let (sender, _) = Feed::new(wide());
            give.send((req.take_body(), sender)).unwrap();
            Response::new(StatusCode::ACCEPTED)
        }
        "/waits" => {
            let mut body = req.take_body();
            let mut all = Vec::new();
            match body.read_to_end(&mut all) {
                Ok(_) => Response::text(format!("{}", all.len())),
                Err(error) => Response::text(error.to_string()),
            }
        }
        "/twice" => {
            let body = req.take_body();
            let again = req.body().bytes().unwrap_err();
            assert_eq!(again, BodyError::AlreadyRead);
            drop(body);
            Response::text("once")
        }
        _ => Response::text("hello"),
    };
    let server = CASE.bind(address).settings(|settings| change(settings.body_bytes_max(1 << 40).body_ahead_bytes_max(0)));
    (server.start(handler).unwrap(), given)
}

fn start() -> (Running, Receiver<(OwnedBody, FeedSender)>) {
    start_with(|settings| settings)
}

fn post(path: &str, fields: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")
}

fn with_length(path: &str, body: &[u8]) -> Vec<u8> {
    [post(path, &format!("Content-Length: {}", body.len())).as_bytes(), body].concat()
}

fn chunked(path: &str, body: &[u8], size: usize) -> Vec<u8> {
    [post(path, "Transfer-Encoding: chunked").as_bytes(), &chunks(body, size), b"0\r\n\r\n"].concat()
}

fn read_error(body: &mut OwnedBody) -> BodyError {
    let failed = std::io::copy(body, &mut std::io::sink()).unwrap_err();
    failed.into_inner().unwrap().downcast_ref::<BodyError>().unwrap().clone()
}

fn next(given: &Receiver<(OwnedBody, FeedSender)>) -> (OwnedBody, FeedSender) {
    given.recv_timeout(TIMEOUT).expect("the handler gives the body")
}

#[test]
fn a_body_is_echoed_as_it_arrives() {
    let (server, _) = start();
    let body = noise(large());
    for request in [with_length("/echo", &body), chunked("/echo", &body, 50_000)] {
        let mut client = Client::connect(&server);
        let sent = client.send_aside(request);
        let answer = client.answer();
        sent.join().unwrap().unwrap();
        assert!(answer.status == 200 && answer.body == body, "{} bytes", answer.body.len());
        client.get("/").is(200, "hello");
    }
}

#[test]
fn a_future_reads_a_body_and_its_trailers() {
    let (server, _) = start_with(|settings| settings.body_ahead_bytes_max(64 << 10));
    let mut client = Client::connect(&server);
    for length in [0, 1, 5000, 200_000, 3 << 20] {
        let sent = client.send_aside(with_length("/count", &noise(length)));
        client.answer().is(200, format!("{length}"));
        sent.join().unwrap().unwrap();
    }
    client.send(post("/count", "Transfer-Encoding: chunked\r\nTrailer: X-Sum"));
    client.send("5\r\nhello\r\n");
    client.send("0\r\nX-Sum: 17\r\n\r\n");
    client.answer().is(200, "5 x-sum=17");
    client.get("/").is(200, "hello");
}

/// The reader takes nothing for a while, so the client has to wait.
#[test]
fn a_client_waits_for_the_reader() {
    let (server, given) = start();
    let mut client = Client::connect(&server);
    let sent = client.send_aside(with_length("/give", &noise(large())));
    let (mut body, sender) = next(&given);
    eventually("as much waits as may", || body.available() == WAITING_MAX);
    assert_eq!(body.body_left(), Some(large() as u64));
    let mut first = [0; 5];
    body.read_exact(&mut first).unwrap();
    // The rest of the part that is read counts beside what waits.
    assert!(!body.has_arrived() && body.available() <= 2 * WAITING_MAX);
    // What the feed sends does not wait for the body.
    assert_eq!(client.answer_head().status, 200);
    sender.send("on the way").unwrap();
    assert_eq!(client.chunk(), b"on the way");
    assert!(!sent.is_finished());
    assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).unwrap(), large() as u64 - 5);
    assert!(body.has_arrived() && body.available() == 0);
    sent.join().unwrap().unwrap();
    sender.close();
    assert_eq!(client.chunk(), b"");
    client.get("/").is(200, "hello");
}

/// The client reads nothing before it has sent everything.
#[test]
fn a_body_arrives_while_its_response_waits_for_the_client() {
    let (server, given) = start();
    let mut client = Client::connect(&server);
    let sent = client.send_aside(with_length("/give", &noise(large())));
    let (mut body, sender) = next(&given);
    let answer = noise(large());
    sender.send(answer.clone()).unwrap();
    sender.close();
    assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).unwrap(), large() as u64);
    sent.join().unwrap().unwrap();
    assert!(client.answer().body == answer);
    client.get("/").is(200, "hello");
}

#[test]
fn a_body_goes_on_after_its_response() {
    let (server, given) = start();
    let mut client = Client::connect(&server);
    let sent = client.send_aside(with_length("/accepted", &noise(large())));
    let (mut body, _) = next(&given);
    assert_eq!(client.answer_head().status, 202);
    assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).unwrap(), large() as u64);
    sent.join().unwrap().unwrap();
    client.get("/").is(200, "hello");

    let mut client = Client::connect(&server);
    let fields = format!("Connection: close\r\nContent-Length: {}", large());
    let sent = client.send_aside([post("/accepted", &fields).as_bytes(), &noise(large())].concat());
    let (mut body, _) = next(&given);
    assert_eq!(client.answer_head().status, 202);
    assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).unwrap(), large() as u64);
    sent.join().unwrap().unwrap();
    client.ends_over_http1();
}

#[test]
fn a_reader_learns_that_its_client_has_gone() {
    let (server, given) = start();
    for fields in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = Client::connect(&server);
        client.send(post("/give", fields));
        let (mut body, sender) = next(&given);
        let part = if fields.contains("chunked") { "5\r\nhello\r\n" } else { "hello" };
        client.send(part);
        let mut first = [0; 5];
        body.read_exact(&mut first).unwrap();
        client.reset();
        assert_eq!(read_error(&mut body), BodyError::Disconnected, "{fields}");
        // The error stays.
        assert_eq!(read_error(&mut body), BodyError::Disconnected);
        eventually("the feed is closed", || sender.is_closed());
    }
}

/// The waker is that of the reader's executor, and the loop calls it.
#[test]
fn a_waker_that_panics_ends_no_connection() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics at {}", CASE.engine);
        }
    }
    keep_log();
    let (server, given) = start();
    let mut client = Client::connect(&server);
    client.send(post("/give", "Content-Length: 10"));
    let (mut body, sender) = next(&given);
    let waker = Waker::from(Arc::new(Panics));
    assert!(body.poll_chunk(&mut Context::from_waker(&waker)).is_pending());
    client.send("hello");
    is_logged(&[&format!("a callback or a waker panicked: a waker panics at {}", CASE.engine)]);
    client.send("world");
    let mut all = String::new();
    body.read_to_string(&mut all).unwrap();
    assert_eq!(all, "helloworld");
    sender.close();
    assert_eq!(client.answer().status, 200);
    client.get("/").is(200, "hello");
}

/// The reader has the rest, although the client could not read its response.
#[test]
fn a_client_may_close_after_the_whole_body() {
    if over_http2::is_on() {
        return;
    }
    let path = Path::new("closes");
    for address in ["127.0.0.1:0", &path.address()] {
        let (server, given) = start_at(address, |settings| settings);
        let body = noise(3 * WAITING_MAX);
        let mut client = Client::connect(&server);
        client.send(with_length("/give", &body));
        let (mut reader, sender) = next(&given);
        assert_eq!(client.answer_head().status, 200);
        eventually("as much waits as may", || reader.available() == WAITING_MAX);
        drop(client);
        // Each loop looks at its poller for them.
        (0..8).for_each(|_| Client::connect(&server).get("/").is(200, "hello"));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all == body, "{address}: {} bytes", all.len());
        sender.close();
        eventually("every connection ends", || server.stats().connections == 0);
    }
}

/// An end within the body is no end of it.
#[test]
fn a_body_that_breaks_off_is_an_error() {
    if over_http2::is_on() {
        return;
    }
    let (server, given) = start();
    let mut client = Client::connect(&server);
    client.send(post("/give", "Content-Length: 100"));
    let (mut body, _sender) = next(&given);
    client.half_close();
    assert_eq!(read_error(&mut body), BodyError::Disconnected);
}

#[test]
fn limits_of_bodies_hold() {
    let (server, _) = start();
    for request in [with_length("/small", &[b'x'; 1001]), chunked("/small", &[b'x'; 1001], 100)] {
        let mut client = Client::connect(&server);
        client.send(request);
        assert_eq!(client.answer().status, 413);
    }
    for request in [with_length("/small", &[b'x'; 1000]), chunked("/small", &[b'x'; 1000], 100)] {
        let mut client = Client::connect(&server);
        client.send(request);
        client.answer().is(200, "1000");
        client.get("/").is(200, "hello");
    }
    // A declared length is enough.
    let mut client = Client::connect(&server);
    client.send(post("/small", "Content-Length: 100000000"));
    assert_eq!(client.answer().status, 413);
}

#[test]
fn a_slow_client_ends_the_body() {
    let (server, _) = start_with(|settings| settings.body_idle_timeout(Duration::from_millis(200)));
    let mut client = Client::connect(&server);
    client.send(post("/count", "Content-Length: 100000"));
    client.send("hello");
    let answer = client.answer();
    assert_eq!(answer.status, 408, "{}", answer.text());
}

/// The time of the reader is not that of the client.
#[test]
fn a_slow_reader_costs_the_client_nothing() {
    let (server, given) = start_with(|settings| settings.body_idle_timeout(Duration::from_secs(1)));
    let mut client = Client::connect(&server);
    let sent = client.send_aside(with_length("/give", &noise(large())));
    let (mut body, sender) = next(&given);
    eventually("as much waits as may", || body.available() == WAITING_MAX);
    // Longer than the client may be silent.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).unwrap(), large() as u64);
    sent.join().unwrap().unwrap();
    sender.close();
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_malformed_body_is_an_error() {
    if over_http2::is_on() {
        return;
    }
    let (server, given) = start();
    let mut client = Client::connect(&server);
    client.send(post("/give", "Transfer-Encoding: chunked"));
    let (mut body, sender) = next(&given);
    client.send("5\r\nhello\r\nno chunk\r\n");
    assert!(matches!(read_error(&mut body), BodyError::Malformed(_)));
    sender.close();
    assert_eq!(client.answer().status, 200);
    client.ends();
}

/// As of a handler that does not read its body.
#[test]
fn a_dropped_body_is_dropped_on_the_connection() {
    let (server, given) = start();
    let mut client = Client::connect(&server);
    client.send(post("/give", "Content-Length: 10000"));
    let (body, sender) = next(&given);
    drop((body, sender));
    client.send(noise(10_000));
    assert_eq!(client.answer().status, 200);
    client.get("/").is(200, "hello");
}

#[test]
fn a_stop_of_the_server_ends_the_body() {
    let (server, given) = start_with(|settings| settings.drain_timeout(Duration::from_millis(100)));
    let mut client = Client::connect(&server);
    client.send(post("/give", "Content-Length: 10000"));
    let (mut body, _sender) = next(&given);
    let stopped = std::thread::spawn(move || server.shutdown(Duration::from_millis(100)));
    let error = read_error(&mut body);
    assert!(matches!(error, BodyError::ShuttingDown | BodyError::Disconnected), "{error:?}");
    stopped.join().unwrap();
}

#[test]
fn a_client_that_waits_for_100_is_told_at_the_first_read() {
    let (server, given) = start();
    let mut client = Client::connect(&server);
    client.send(post("/count", "Content-Length: 5\r\nExpect: 100-continue"));
    assert_eq!(client.answer_head().status, 100);
    client.send("hello");
    client.answer().is(200, "5");
    client.send(post("/give", "Content-Length: 5\r\nExpect: 100-continue"));
    let (mut body, sender) = next(&given);
    assert_eq!(client.answer_head().status, 100);
    client.send("hello");
    let mut all = String::new();
    body.read_to_string(&mut all).unwrap();
    sender.close();
    assert_eq!(all, "hello");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_handler_that_waits_for_its_own_connection_is_told() {
    let (server, _) = start_with(|settings| settings.body_ahead_bytes_max(64 << 10));
    let mut client = Client::connect(&server);
    // It is there already.
    client.send(with_length("/waits", b"hello"));
    client.answer().is(200, "5");
    client.send(with_length("/twice", b"hello"));
    client.answer().is(200, "once");
    let mut client = Client::connect(&server);
    let sent = client.send_aside(with_length("/waits", &noise(large())));
    let answer = client.answer();
    assert!(answer.text().contains("after the handler has returned"), "{}", answer.text());
    let _ = sent.join().unwrap();
}
