//! Does what other threads bring to a response reach its client, in order, within bounds, and at no cost between?

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weftwork::{Bytes, Feed, FeedClosed, FeedLimits, FeedSender, Overflow, Request, Response, Running, Settings};

use super::ROOM;
use crate::support::{Client, PATIENCE, Promise, eventually, noise};

/// A server whose `/feed` is brought what the test sends.
struct Fed {
    server: Running,
    senders: Arc<Mutex<Vec<FeedSender>>>,
}

impl Fed {
    fn start() -> Fed {
        Fed::start_with(FeedLimits::default(), |settings| settings)
    }

    fn start_with(limits: FeedLimits, change: impl FnOnce(Settings) -> Settings) -> Fed {
        let senders = Arc::<Mutex<Vec<FeedSender>>>::default();
        let kept = senders.clone();
        let handler = move |req: &mut Request| {
            if req.path() != "/feed" {
                return Response::text("hello");
            }
            let (sender, feed) = Feed::new(limits);
            kept.lock().unwrap().push(sender);
            Response::feed(feed.with_heartbeat(Bytes::from("beat")).with_farewell(Bytes::from("farewell")))
        };
        let server = ROOM.bind("127.0.0.1:0").settings(change).start(handler).unwrap();
        Fed { server, senders }
    }

    /// A client whose response has begun, and what feeds it.
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

    #[track_caller]
    fn is_well(&self) {
        Client::connect(&self.server).get("/").is(200, "hello");
        eventually("every connection ends", || self.server.counts().connections == 0);
    }
}

/// Sends until the client is cut off.
#[track_caller]
fn overwhelm(sender: &FeedSender) {
    let message = Bytes::from(noise(16 << 10));
    eventually("the client is cut off", || (0..100).any(|_| sender.send(message.clone()) == Err(FeedClosed)));
}

#[test]
fn messages_come_as_they_are_brought_and_the_connection_lives_on() {
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
fn a_client_of_1_0_gets_it_until_the_end() {
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
fn a_leaver_is_noticed_without_sending() {
    let fed = Fed::start();
    let (client, sender) = fed.open();
    drop(client);
    eventually("the feed is closed", || sender.is_closed());
    let (client, other) = fed.open();
    client.half_close();
    eventually("the feed is closed", || other.is_closed());
    fed.is_well();
}

#[test]
fn a_client_that_is_too_slow_is_disconnected() {
    let limits = FeedLimits { messages_max: 64, ..FeedLimits::default() };
    let fed = Fed::start_with(limits, |settings| settings);
    let (client, sender) = fed.open();
    overwhelm(&sender);
    // Cut off in the middle: no last chunk.
    let got = client.rest();
    assert!(!got.ends_with(b"0\r\n\r\n"));
    fed.is_well();
}

#[test]
fn a_client_that_is_too_slow_misses_the_oldest() {
    let limits = FeedLimits { messages_max: 4, overflow: Overflow::DropOldest, ..FeedLimits::default() };
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
fn silence_is_filled_with_a_sign_of_life() {
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
    if !ROOM.promises(Promise::FeedsWithoutThreads) {
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
fn a_server_that_stops_says_farewell() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    assert_eq!(client.chunk(), b"first");
    let server = fed.server;
    let stopping = std::thread::spawn(move || server.shutdown(PATIENCE));
    assert_eq!(client.chunk(), b"farewell");
    assert_eq!(client.chunk(), b"");
    client.ends();
    assert_eq!(sender.send("late"), Err(FeedClosed));
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}
