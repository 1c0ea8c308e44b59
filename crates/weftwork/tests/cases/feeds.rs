//! Tests that data which other threads add to a response arrives in order, within the limits, and at no cost in
//! between.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weftwork::{Bytes, Feed, FeedClosed, FeedLimits, FeedSender, OverflowStrategy, Request, Response, Running, Settings};

use super::CASE;
use crate::support::{Client, TIMEOUT, Guarantee, eventually, noise};

/// A server whose `/feed` sends the test's data.
struct Fed {
    server: Running,
    senders: Arc<Mutex<Vec<FeedSender>>>,
    /// The thread that ran the handler last, as `/proc` names it.
    thread: Arc<Mutex<PathBuf>>,
}

impl Fed {
    fn start() -> Fed {
        Fed::start_with(FeedLimits::default(), |settings| settings)
    }

    fn start_with(limits: FeedLimits, change: impl FnOnce(Settings) -> Settings) -> Fed {
        let senders = Arc::<Mutex<Vec<FeedSender>>>::default();
        let thread = Arc::<Mutex<PathBuf>>::default();
        let (kept, here) = (senders.clone(), thread.clone());
        let handler = move |req: &mut Request| {
            if req.path() != "/feed" && req.path() != "/download" {
                return Response::text("hello");
            }
            let (sender, feed) = Feed::new(limits);
            *here.lock().unwrap() = std::fs::read_link("/proc/thread-self").unwrap_or_default();
            kept.lock().unwrap().push(sender);
            if req.path() == "/download" {
                return Response::feed(feed);
            }
            Response::feed(feed.with_heartbeat(Bytes::from("beat")).with_final_message(Bytes::from("farewell")))
        };
        let server = CASE.bind("127.0.0.1:0").settings(change).start(handler).unwrap();
        Fed { server, senders, thread }
    }

    /// Returns a client whose response has begun, and the sender of its feed.
    #[track_caller]
    fn open(&self) -> (Client, FeedSender) {
        let mut client = Client::connect(&self.server);
        let sender = self.ask(&mut client, "1.1");
        (client, sender)
    }

    #[track_caller]
    fn ask(&self, client: &mut Client, version: &str) -> FeedSender {
        client.send(format!("GET /feed HTTP/{version}\r\nHost: a\r\n\r\n"));
        eventually("the handler answers", || !self.senders.lock().unwrap().is_empty());
        let sender = self.senders.lock().unwrap().remove(0);
        sender.send("first").unwrap();
        assert_eq!(client.answer_head().status, 200);
        sender
    }

    /// Returns the CPU time of the thread that ran the handler, in hundredths of a second.
    #[cfg(target_os = "linux")]
    fn time_of_thread(&self) -> u64 {
        let path = std::path::Path::new("/proc").join(&*self.thread.lock().unwrap()).join("stat");
        // A thread that has ended uses no time.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // proc(5): the second field is a name in brackets, and user and system time are fields 14 and 15.
        let fields = text.rsplit_once(')').unwrap_or_default().1.split_whitespace();
        fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    }

    #[track_caller]
    fn is_well(&self) {
        Client::connect(&self.server).get("/").is(200, "hello");
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

/// Sends until the server disconnects the client.
#[track_caller]
fn overwhelm(sender: &FeedSender) {
    let message = Bytes::from(noise(16 << 10));
    eventually("the client is cut off", || (0..100).any(|_| sender.send(message.clone()) == Err(FeedClosed)));
}

#[test]
fn messages_arrive_as_they_are_sent_and_the_connection_persists() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    for turn in 0..3 {
        let sender = fed.ask(&mut client, "1.1");
        assert_eq!(client.chunk(), b"first", "turn {turn}");
        sender.send("second").unwrap();
        assert_eq!(client.chunk(), b"second");
        let large = Bytes::from(noise(100_000));
        sender.send(large.clone()).unwrap();
        sender.send("").unwrap();
        let mut got = Vec::new();
        while got.len() < large.len() {
            got.extend(client.chunk());
        }
        assert!(got == large);
        if turn < 2 {
            sender.close();
            assert_eq!(sender.send("late"), Err(FeedClosed));
        }
        drop(sender);
        assert_eq!(client.chunk(), b"");
        client.get("/").is(200, "hello");
    }
    drop(client);
    fed.is_well();
}

/// The message is sent in thousands of pieces in a row, to a client that reads as fast.
#[test]
fn a_message_larger_than_any_buffer_comes_whole() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    assert_eq!(client.chunk(), b"first");
    let large = Bytes::from(vec![b'x'; 64 << 20]);
    sender.send(large.clone()).unwrap();
    let mut got = 0;
    while got < large.len() {
        got += client.chunk().len();
    }
    assert_eq!(got, large.len());
    drop(sender);
    assert_eq!(client.chunk(), b"");
    client.get("/").is(200, "hello");
}

#[test]
fn a_pipelined_request_waits_for_its_turn() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, "1.1");
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.chunk(), b"first");
    sender.send("second").unwrap();
    assert_eq!(client.chunk(), b"second");
    sender.close();
    assert_eq!(client.chunk(), b"");
    client.answer().is(200, "hello");
}

#[test]
fn an_http_1_0_client_gets_the_feed_until_the_connection_ends() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, "1.0");
    sender.send(" second").unwrap();
    drop(sender);
    assert_eq!(client.rest(), b"first second");
}

#[test]
fn head_gets_the_head() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    client.send("HEAD /feed HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200);
    eventually("the feed is dropped", || fed.senders.lock().unwrap()[0].is_closed());
    client.get("/").is(200, "hello");
}

#[test]
fn a_disconnect_is_noticed_without_sending() {
    let fed = Fed::start();
    let (client, sender) = fed.open();
    drop(client);
    eventually("the feed is closed", || sender.is_closed());
    let (client, other) = fed.open();
    client.half_close();
    eventually("the feed is closed", || other.is_closed());
    fed.is_well();
}

/// Unread bytes stay where they are and cost no repeated reads. The end of the connection after them is seen.
#[cfg(target_os = "linux")]
#[test]
fn pipelined_input_during_a_feed_uses_no_cpu_time() {
    for leave in [drop as fn(Client), Client::reset] {
        let fed = Fed::start();
        let (mut client, sender) = fed.open();
        assert_eq!(client.chunk(), b"first");
        client.send(noise(64 << 10));
        let before = fed.time_of_thread();
        std::thread::sleep(Duration::from_millis(400));
        let spent = fed.time_of_thread().saturating_sub(before);
        assert!(spent <= 3, "{spent} hundredths of a second in 40");
        sender.send("second").unwrap();
        assert_eq!(client.chunk(), b"second");
        leave(client);
        eventually("the feed is closed", || sender.is_closed());
        fed.is_well();
    }
}

/// A body that ends with the connection would look whole.
#[test]
fn an_http_1_0_client_sees_that_the_response_was_truncated() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, "1.0");
    assert_eq!(client.exactly(5), b"first");
    sender.cut();
    client.breaks_off();
    fed.is_well();
}

#[test]
fn a_client_that_is_too_slow_is_disconnected() {
    let limits = FeedLimits { messages_max: 64, ..FeedLimits::default() };
    let fed = Fed::start_with(limits, |settings| settings);
    let (client, sender) = fed.open();
    overwhelm(&sender);
    // The answer is cut in the middle, without a last chunk.
    let got = client.rest();
    assert!(!got.ends_with(b"0\r\n\r\n"));
    fed.is_well();
}

/// The client reads nothing at all. It is disconnected at once, not when its time to read is over.
#[test]
fn a_client_that_reads_nothing_is_disconnected_at_once() {
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    let fed = Fed::start();
    let (client, sender) = fed.open();
    let message = Bytes::from(noise(16 << 10));
    eventually("the kernel takes no more", || {
        sender.send(message.clone()).unwrap();
        sender.waiting().0 > 8
    });
    sender.cut();
    fed.is_well();
    drop(client);
}

#[test]
fn a_client_that_is_too_slow_misses_the_oldest() {
    let limits = FeedLimits { messages_max: 4, overflow: OverflowStrategy::DropOldest, ..FeedLimits::default() };
    let fed = Fed::start_with(limits, |settings| settings);
    let (mut client, sender) = fed.open();
    assert_eq!(client.chunk(), b"first");
    const COUNT: usize = 4000;
    let filler = noise(10_000);
    for number in 0..COUNT {
        let mut message = number.to_be_bytes().to_vec();
        message.extend_from_slice(&filler);
        sender.send(message).unwrap();
        assert!(sender.waiting().0 <= 4);
    }
    sender.close();
    let mut all = Vec::new();
    loop {
        let chunk = client.chunk();
        if chunk.is_empty() {
            break;
        }
        all.extend(chunk);
    }
    let numbers: Vec<usize> = all
        .chunks(8 + filler.len())
        .map(|message| {
            assert!(message[8..] == filler, "no message is cut");
            usize::from_be_bytes(message[..8].try_into().unwrap())
        })
        .collect();
    assert!(numbers.is_sorted() && numbers.len() < COUNT, "{} of {COUNT}", numbers.len());
    assert_eq!(numbers[numbers.len() - 4..], [COUNT - 4, COUNT - 3, COUNT - 2, COUNT - 1]);
}

#[test]
fn an_idle_feed_sends_heartbeats() {
    let beat = Duration::from_millis(100);
    let fed = Fed::start_with(FeedLimits::default(), |settings| settings.heartbeat(beat));
    let (mut client, sender) = fed.open();
    assert_eq!(client.chunk(), b"first");
    assert_eq!(client.chunk(), b"beat");
    assert_eq!(client.chunk(), b"beat");
    sender.close();
    assert_eq!(client.chunk(), b"");
}

#[test]
fn idle_feeds_hold_no_thread() {
    let fed = Fed::start();
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    let mut open: Vec<_> = (0..64).map(|_| fed.open()).collect();
    open.iter_mut().for_each(|(client, _)| assert_eq!(client.chunk(), b"first"));
    eventually("the threads are free", || fed.server.threads() <= 16);
    let message = Bytes::from("to all");
    for (_, sender) in &open {
        sender.send(message.clone()).unwrap();
    }
    open.iter_mut().for_each(|(client, _)| assert_eq!(client.chunk(), b"to all"));
    drop(open);
    fed.is_well();
}

#[test]
fn a_stopping_server_sends_the_final_message() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    assert_eq!(client.chunk(), b"first");
    let server = fed.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    assert_eq!(client.chunk(), b"farewell");
    assert_eq!(client.chunk(), b"");
    client.ends();
    assert_eq!(sender.send("late"), Err(FeedClosed));
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

/// A client of a feed that has an end, which has got the first of its parts.
#[track_caller]
fn download(fed: &Fed, more: &str) -> (Client, FeedSender) {
    let mut client = Client::connect(&fed.server);
    client.send(format!("GET /download HTTP/1.1\r\nHost: a\r\n\r\n{more}"));
    eventually("the handler answers", || !fed.senders.lock().unwrap().is_empty());
    let sender = fed.senders.lock().unwrap().remove(0);
    sender.send("first").unwrap();
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(client.chunk(), b"first");
    (client, sender)
}

/// A truncated download must not look whole.
#[test]
fn a_server_that_stops_waits_for_a_feed_that_has_an_end() {
    let fed = Fed::start();
    let (mut client, sender) = download(&fed, "");
    let server = fed.server;
    let status = server.status();
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    eventually("the server stops", || status.is_stopping());
    for part in ["2", "3", "4", "5"] {
        sender.send(part).unwrap();
        assert_eq!(client.chunk(), part.as_bytes());
    }
    drop(sender);
    assert_eq!(client.chunk(), b"");
    client.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

#[test]
fn a_feed_that_does_not_end_in_time_is_cut() {
    let fed = Fed::start();
    let (client, sender) = download(&fed, "");
    let report = fed.server.shutdown(Duration::from_millis(300));
    assert_eq!((report.drained, report.cut), (0, 1), "{report}");
    assert_eq!(client.breaks_off(), b"");
    assert_eq!(sender.send("late"), Err(FeedClosed));
}

/// RFC 9112 section 9.6: the client sends nothing more, and reads on. The request behind is answered, too.
#[test]
fn a_client_that_closes_its_side_gets_the_whole_feed() {
    let fed = Fed::start();
    let (mut client, sender) = download(&fed, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.half_close();
    for part in ["2", "3"] {
        sender.send(part).unwrap();
        assert_eq!(client.chunk(), part.as_bytes());
    }
    drop(sender);
    assert_eq!(client.chunk(), b"");
    client.answer().is(200, "hello");
    client.ends();
    fed.is_well();
}
