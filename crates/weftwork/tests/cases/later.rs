//! Tests that a response which is sent after its handler returned arrives whole, in order, at most once, and in
//! time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weftwork::middleware::RequestIds;
use weftwork::prelude::{HeaderValue, StatusCode, header};
use weftwork::{Bytes, Feed, FeedLimits, HandlerExt, Next, Request, Response, ResponseSender, Running, Settings, ResponseClosed};

use super::CASE;
use crate::support::{Client, Gate, TIMEOUT, Guarantee, eventually, is_logged, keep_log, logged, noise};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// A server whose `/later` is answered by the test, and whose `/delayed` by the clock.
struct Later {
    server: Running,
    senders: Arc<Mutex<Vec<ResponseSender>>>,
}

impl Later {
    fn start() -> Later {
        Later::start_with(LONG, |settings| settings)
    }

    fn start_with(timeout: Duration, change: impl FnOnce(Settings) -> Settings) -> Later {
        let senders = Arc::<Mutex<Vec<ResponseSender>>>::default();
        let kept = senders.clone();
        let handler = move |req: &mut Request| match req.path() {
            "/later" | "/at-once" | "/poll" => {
                let otherwise = Response::new(StatusCode::NO_CONTENT)
                    .with_header(header::RETRY_AFTER, HeaderValue::from_static("7"));
                let (sender, response) = Response::later(timeout, otherwise);
                if req.path() == "/at-once" {
                    sender.send("at once").unwrap();
                } else {
                    kept.lock().unwrap().push(sender);
                }
                if req.path() == "/poll" { response.endless() } else { response }
            }
            "/reason" | "/reason-poll" | "/reason-panics" => {
                let panics = req.path() == "/reason-panics";
                let (sender, response) = Response::later_with(timeout, move |reason| {
                    assert!(!panics, "the alternative response");
                    Response::text(format!("{reason:?}")).with_status(StatusCode::BAD_GATEWAY)
                });
                kept.lock().unwrap().push(sender);
                if req.path() == "/reason-poll" { response.endless() } else { response }
            }
            "/delayed" => Response::text("delayed").with_delay(timeout).with_status(StatusCode::ACCEPTED),
            _ => Response::text("hello"),
        };
        let noted = |req: &mut Request, next: Next| {
            next.run(req).with_header(header::VARY, HeaderValue::from_static("origin"))
        };
        let server = CASE.bind("127.0.0.1:0").settings(change).start(handler.with(noted).with(RequestIds::new())).unwrap();
        Later { server, senders }
    }

    fn client(&self) -> Client {
        Client::connect(&self.server)
    }

    /// Sends the request. Returns the sender of its response.
    #[track_caller]
    fn ask(&self, client: &mut Client, request: &str) -> ResponseSender {
        client.send(request);
        eventually("the handler answers", || !self.senders.lock().unwrap().is_empty());
        self.senders.lock().unwrap().remove(0)
    }

    #[track_caller]
    fn is_well(&self) {
        self.client().get("/").is(200, "hello");
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

const GET: &str = "GET /later HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_deferred_response_is_sent_when_it_is_ready_and_the_connection_persists() {
    let later = Later::start();
    let mut client = later.client();
    for turn in 0..3 {
        let sender = later.ask(&mut client, GET);
        assert!(!sender.is_closed());
        let answer = Response::text("here").with_status(StatusCode::CREATED);
        sender.send(answer.with_header(header::VARY, HeaderValue::from_static("cookie"))).unwrap();
        let answer = client.answer();
        answer.is(201, "here");
        let varies: Vec<_> = answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary")).collect();
        assert_eq!(varies.len(), 2, "turn {turn}: {varies:?}");
        // That field belonged to the fallback response.
        assert_eq!(answer.field("retry-after"), None);
        client.get("/").is(200, "hello");
    }
    drop(client);
    later.is_well();
}

#[test]
fn a_response_may_be_sent_before_the_handler_returns() {
    let later = Later::start();
    let mut client = later.client();
    client.get("/at-once").is(200, "at once");
    client.get("/").is(200, "hello");
}

#[test]
fn any_kind_of_response_may_be_deferred() {
    let later = Later::start();
    let mut client = later.client();
    let large = Bytes::from(noise(3 << 20));
    later.ask(&mut client, GET).send(large.clone()).unwrap();
    client.answer().is(200, &large);
    let written = large.clone();
    later
        .ask(&mut client, GET)
        .send(Response::stream(move |out| std::io::Write::write_all(out, &written)))
        .unwrap();
    client.answer().is(200, &large);
    let (feeder, feed) = Feed::new(FeedLimits::default());
    later.ask(&mut client, GET).send(Response::feed(feed)).unwrap();
    feeder.send("fed").unwrap();
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(client.chunk(), b"fed");
    drop(feeder);
    assert_eq!(client.chunk(), b"");
    // A response that is itself sent later.
    let (last, again) = Response::later(LONG, StatusCode::NO_CONTENT);
    later.ask(&mut client, GET).send(again).unwrap();
    last.send("at last").unwrap();
    client.answer().is(200, "at last");
    drop(client);
    later.is_well();
}

/// More than the kernel takes at once. The connection waits in between, and has nothing else to send by then.
#[test]
fn a_deferred_response_may_be_larger_than_the_socket_buffer() {
    let later = Later::start();
    let mut client = later.client();
    client.read_hand_to_mouth();
    let large = Bytes::from(noise(20 << 20));
    for _ in 0..2 {
        later.ask(&mut client, GET).send(large.clone()).unwrap();
        client.answer().is(200, &large);
    }
    drop(client);
    later.is_well();
}

#[test]
fn if_the_sender_is_dropped_the_placeholder_is_sent() {
    let later = Later::start();
    let mut client = later.client();
    drop(later.ask(&mut client, GET));
    let answer = client.answer();
    answer.is(204, "");
    assert_eq!((answer.field("retry-after"), answer.field("vary")), (Some("7"), Some("origin")));
    client.get("/").is(200, "hello");
}

#[test]
fn the_placeholder_is_sent_at_the_timeout_and_not_before() {
    let time = Duration::from_millis(70);
    let later = Later::start_with(time, |settings| settings);
    let mut client = later.client();
    for _ in 0..3 {
        let begun = Instant::now();
        client.get("/delayed").is(202, "delayed");
        assert!(begun.elapsed() >= time, "{:?}", begun.elapsed());
        let begun = Instant::now();
        let sender = later.ask(&mut client, GET);
        client.answer().is(204, "");
        assert!(begun.elapsed() >= time, "{:?}", begun.elapsed());
        assert!(sender.is_closed());
        assert_eq!(sender.send("too late"), Err(ResponseClosed));
        client.get("/").is(200, "hello");
    }
    // Many responses at once, each at its own time.
    let mut clients: Vec<_> = (0..50).map(|_| later.client()).collect();
    let begun = Instant::now();
    clients.iter_mut().for_each(|client| client.send("GET /delayed HTTP/1.1\r\nHost: a\r\n\r\n"));
    clients.iter_mut().for_each(|client| client.answer().is(202, "delayed"));
    assert!(begun.elapsed() >= time && begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    drop((client, clients));
    later.is_well();
}

/// Responses are sent in order, whichever is ready first. A response that was ready before does not wait.
#[test]
fn pipelined_requests_are_answered_in_their_turn() {
    let later = Later::start();
    let mut client = later.client();
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sender = later.ask(&mut client, &[plain, GET, plain, "GET /at-once HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    client.answer().is(200, "hello");
    client.send(plain);
    sender.send("second").unwrap();
    client.answer().is(200, "second");
    client.answer().is(200, "hello");
    client.answer().is(200, "at once");
    client.answer().is(200, "hello");
}

#[test]
fn the_rest_of_a_request_is_not_part_of_the_next() {
    let later = Later::start();
    let mut client = later.client();
    let sender = later.ask(&mut client, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    sender.send("got it").unwrap();
    client.answer().is(200, "got it");
    client.get("/").is(200, "hello");
    // A request that arrives in the meantime, in pieces.
    let head = "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sender = later.ask(&mut client, &[head, "5\r\nabcde\r\n0\r\n\r\n"].concat());
    client.send_by(7, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    sender.send("got that").unwrap();
    client.answer().is(200, "got that");
    client.answer().is(200, "hello");
}

#[test]
fn head_gets_the_head_of_the_deferred_response() {
    let later = Later::start();
    let mut client = later.client();
    later.ask(&mut client, "HEAD /later HTTP/1.1\r\nHost: a\r\n\r\n").send("twelve bytes").unwrap();
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("12")));
    client.get("/").is(200, "hello");
}

#[test]
fn a_requested_close_follows_the_deferred_response() {
    let later = Later::start();
    let mut client = later.client();
    let sender = later.ask(&mut client, "GET /later HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    sender.send("the last").unwrap();
    let answer = client.answer();
    assert!(answer.closes_over_http1());
    answer.is(200, "the last");
    client.ends();
    let mut client = later.client();
    later.ask(&mut client, "GET /later HTTP/1.0\r\n\r\n").send("old").unwrap();
    client.answer().is(200, "old");
    client.ends();
    later.is_well();
}

/// A client that has closed its side has not gone, unless the response is endless.
#[test]
fn a_disconnect_is_noticed() {
    let later = Later::start();
    for leave in [drop as fn(Client), Client::reset, |client| client.half_close()] {
        let mut client = later.client();
        let sender = later.ask(&mut client, "GET /poll HTTP/1.1\r\nHost: a\r\n\r\n");
        leave(client);
        eventually("the sender is told", || sender.is_closed());
        assert_eq!(sender.send("nobody is there"), Err(ResponseClosed));
    }
    later.is_well();
}

#[test]
fn pending_responses_hold_no_thread() {
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    let later = Later::start();
    let mut waiting: Vec<_> = (0..64)
        .map(|_| {
            let mut client = later.client();
            let sender = later.ask(&mut client, GET);
            (client, sender)
        })
        .collect();
    eventually("the threads are free", || later.server.threads() <= 16);
    later.client().get("/").is(200, "hello");
    for (client, sender) in waiting.drain(..) {
        sender.send("news").unwrap();
        let mut client = client;
        client.answer().is(200, "news");
    }
    later.is_well();
}

/// RFC 9112 section 9.6: the client sends nothing more, and reads on. Requests behind are answered, too.
#[test]
fn a_client_that_closes_its_side_gets_its_response_and_those_behind() {
    let later = Later::start();
    for behind in ["", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT"] {
        for closes_late in [false, true] {
            let mut client = later.client();
            let request = format!("{GET}{behind}");
            let sender = if closes_late {
                later.ask(&mut client, &request)
            } else {
                client.send(&request);
                client.half_close();
                eventually("the handler answers", || !later.senders.lock().unwrap().is_empty());
                later.senders.lock().unwrap().remove(0)
            };
            if closes_late {
                client.half_close();
            }
            assert!(!sender.is_closed());
            sender.send("here").unwrap();
            client.answer().is(200, "here");
            if !behind.is_empty() {
                client.answer().is(200, "hello");
            }
            client.ends();
        }
    }
    later.is_well();
}

/// A client that has closed its side, and is reset later, holds nothing.
#[test]
fn a_reset_behind_the_end_is_noticed() {
    let later = Later::start();
    let mut client = later.client();
    let sender = later.ask(&mut client, GET);
    client.half_close();
    client.reset();
    eventually("the sender is told", || sender.is_closed());
    later.is_well();
}

/// They count as requests in flight: the server waits for them.
#[test]
fn a_server_that_stops_waits_for_responses_to_come() {
    let later = Later::start();
    let mut waiting = later.client();
    let sender = later.ask(&mut waiting, GET);
    let server = later.server;
    let status = server.status();
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    eventually("the server stops", || status.is_stopping());
    sender.send("here").unwrap();
    let answer = waiting.answer();
    answer.is(200, "here");
    assert!(answer.closes());
    waiting.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

#[test]
fn a_server_that_stops_waits_for_a_delay() {
    let later = Later::start_with(Duration::from_millis(700), |settings| settings);
    let mut delayed = later.client();
    let begun = Instant::now();
    delayed.send("GET /delayed HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is at work", || later.server.stats().requests >= 1);
    let server = later.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    let answer = delayed.answer();
    answer.is(202, "delayed");
    assert!(answer.closes() && begun.elapsed() >= Duration::from_millis(700));
    delayed.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

#[test]
fn a_response_that_does_not_come_in_time_is_cut() {
    let later = Later::start();
    let mut waiting = later.client();
    let sender = later.ask(&mut waiting, GET);
    let mut delayed = later.client();
    delayed.send("GET /delayed HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("both are at work", || later.server.stats().requests >= 2);
    let report = later.server.shutdown(Duration::from_millis(300));
    assert_eq!((report.drained, report.cut), (0, 2), "{report}");
    assert_eq!(waiting.breaks_off(), b"");
    assert_eq!(delayed.breaks_off(), b"");
    assert_eq!(sender.send("late"), Err(ResponseClosed));
}

#[test]
fn an_endless_response_ends_when_the_server_stops() {
    let later = Later::start();
    let mut waiting = later.client();
    let sender = later.ask(&mut waiting, "GET /poll HTTP/1.1\r\nHost: a\r\n\r\n");
    let server = later.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    let answer = waiting.answer();
    answer.is(204, "");
    assert!(answer.closes());
    waiting.ends();
    assert_eq!(sender.send("late"), Err(ResponseClosed));
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

/// `bring` sends a response that causes an error, which is logged with its request.
fn error_is_logged(why: String, bring: impl FnOnce(ResponseSender, weftwork::Result<&'static str>)) {
    keep_log();
    let later = Later::start();
    let mut client = later.client();
    let request = "GET /later HTTP/1.1\r\nHost: a\r\nX-Request-Id: tea-1\r\n\r\n";
    bring(later.ask(&mut client, request), Err(std::io::Error::other(why.clone()).into()));
    assert_eq!(client.answer().status, 500);
    is_logged(&["a handler failed at GET /later", &why, ", request tea-1"]);
    client.get("/").is(200, "hello");
}

// All engines share the log.
#[test]
fn a_deferred_error_is_logged_with_its_request() {
    let why = format!("the tea of {:?} is cold", CASE.engine);
    error_is_logged(why, |sender, failed| sender.send(failed).unwrap());
}

#[test]
fn an_error_deferred_twice_is_logged_with_its_request() {
    let why = format!("the second tea of {:?} is cold", CASE.engine);
    error_is_logged(why, |sender, failed| {
        let (last, again) = Response::later(LONG, StatusCode::NO_CONTENT);
        sender.send(again).unwrap();
        last.send(failed).unwrap();
    });
}

/// The line must not name the client's next request.
#[test]
fn a_stuck_deferred_writer_is_logged_with_its_request() {
    keep_log();
    let later = Later::start_with(LONG, |settings| settings.handler_warn_after(Duration::from_millis(50)));
    let mut client = later.client();
    let next = format!("/next-{}", module_path!().replace("::", "-"));
    let sender = later.ask(&mut client, GET);
    client.send(format!("GET {next} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    sender
        .send(Response::stream(move |out| {
            passed.pass();
            std::io::Write::write_all(out, b"news")
        }))
        .unwrap();
    gate.wait_for(1);
    eventually("it is counted", || later.server.stats().slow_handlers == 1);
    gate.open();
    client.answer().is(200, "news");
    client.answer().is(200, "hello");
    is_logged(&["is still running", "GET /later"]);
    assert!(logged(&["is still running", &next]).is_empty());
}

const REASON: &str = "GET /reason HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_alternative_is_told_why_it_is_sent() {
    let later = Later::start();
    let mut client = later.client();
    drop(later.ask(&mut client, REASON));
    let answer = client.answer();
    answer.is(502, "SenderDropped");
    assert_eq!(answer.field("vary"), Some("origin"), "what middleware has added");
    later.ask(&mut client, REASON).send("in time").unwrap();
    client.answer().is(200, "in time");
    drop(later.ask(&mut client, "GET /reason-panics HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(client.answer().status, 500);

    let later = Later::start_with(Duration::from_millis(50), |settings| settings);
    let mut client = later.client();
    let _kept = later.ask(&mut client, REASON);
    client.answer().is(502, "Timeout");

    let later = Later::start_with(Duration::MAX, |settings| settings);
    let mut client = later.client();
    let _kept = later.ask(&mut client, "GET /reason-poll HTTP/1.1\r\nHost: a\r\n\r\n");
    let server = later.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    client.answer().is(502, "ShuttingDown");
    stopping.join().unwrap();
}

/// Registers a call, whose news is received.
fn closed(sender: &ResponseSender) -> std::sync::mpsc::Receiver<()> {
    let (tell, told) = std::sync::mpsc::channel();
    sender.on_closed(move || tell.send(()).unwrap());
    told
}

#[test]
fn a_sender_is_told_once_that_its_client_has_gone() {
    keep_log();
    for leave in [drop as fn(Client), Client::reset] {
        let later = Later::start();
        let mut client = later.client();
        let sender = later.ask(&mut client, "GET /poll HTTP/1.1\r\nHost: a\r\n\r\n");
        let (told, future) = (closed(&sender), sender.closed());
        sender.on_closed(|| panic!("the call of a sender"));
        let last = closed(&sender);
        let waiting = std::thread::spawn(move || weftwork::wait(future));
        leave(client);
        // Each ends when its call has gone.
        assert_eq!((told.iter().count(), last.iter().count()), (1, 1));
        waiting.join().unwrap();
        // It has left already.
        assert_eq!(closed(&sender).iter().count(), 1);
        assert!(sender.is_closed());
        is_logged(&["a callback or a waker panicked: the call of a sender"]);
    }
}

#[test]
fn a_sender_is_told_that_its_time_is_up_or_its_response_was_taken() {
    let later = Later::start_with(Duration::from_millis(50), |settings| settings);
    let mut client = later.client();
    let sender = later.ask(&mut client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    let told = closed(&sender);
    assert_eq!(client.answer().status, 204);
    assert_eq!(told.iter().count(), 1);

    let later = Later::start();
    let mut client = later.client();
    let sender = later.ask(&mut client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    let told = closed(&sender);
    sender.send("in time").unwrap();
    client.answer().is(200, "in time");
    assert_eq!(told.iter().count(), 1);
}
