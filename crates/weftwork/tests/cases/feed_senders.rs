//! Tests that the sender of a feed learns of room and of the end of its client, and adds trailers.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weftwork::prelude::{HeaderName, HeaderValue};
use weftwork::{Bytes, Feed, FeedClosed, FeedLimits, FeedSender, Request, Response, Running, wait};

use super::CASE;
use crate::support::{Client, eventually, is_logged, keep_log, noise};

const LIMITS: FeedLimits = FeedLimits {
    messages_max: 64,
    bytes_max: 256 << 10,
    overflow: weftwork::OverflowStrategy::Disconnect,
};
const PART: usize = 16 << 10;
const PARTS: usize = 256;

struct Fed {
    server: Running,
    senders: Arc<Mutex<Vec<FeedSender>>>,
}

impl Fed {
    fn start() -> Fed {
        let senders = Arc::<Mutex<Vec<FeedSender>>>::default();
        let kept = senders.clone();
        let handler = move |req: &mut Request| {
            if req.path() == "/" {
                return Response::text("hello");
            }
            let (sender, feed) = Feed::new(LIMITS);
            kept.lock().unwrap().push(sender);
            if req.path() == "/later" {
                let (later, response) = Response::later(Duration::from_secs(600), "late");
                later.send(Response::feed(feed)).unwrap();
                return response;
            }
            if req.path() == "/ticker" {
                return Response::feed(feed).endless();
            }
            Response::feed(feed)
        };
        Fed { server: CASE.bind("127.0.0.1:0").start(handler).unwrap(), senders }
    }

    /// Sends the head of a request. Returns the sender of its feed.
    #[track_caller]
    fn ask(&self, client: &mut Client, head: &str) -> FeedSender {
        client.send(format!("{head}\r\nHost: a\r\n\r\n"));
        eventually("the handler answers", || !self.senders.lock().unwrap().is_empty());
        self.senders.lock().unwrap().remove(0)
    }

    #[track_caller]
    fn open(&self) -> (Client, FeedSender) {
        let mut client = Client::connect(&self.server);
        let sender = self.ask(&mut client, "GET /feed HTTP/1.1");
        (client, sender)
    }

    #[track_caller]
    fn is_well(&self) {
        Client::connect(&self.server).get("/").is(200, "hello");
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

fn part() -> Bytes {
    Bytes::from(noise(PART))
}

/// Reads the body, and checks that no message is missing.
#[track_caller]
fn all_comes(client: &mut Client, parts: usize) {
    assert_eq!(client.answer_head().status, 200);
    let mut count = 0;
    loop {
        match client.chunk().len() {
            0 => break,
            more => count += more,
        }
    }
    assert_eq!(count, parts * PART);
}

/// A client that does not read, so that there is no room after a while.
#[track_caller]
fn fills_up(sender: &FeedSender) {
    let part = part();
    eventually("the client has taken all that it can", || {
        while sender.room() {
            sender.send(part.clone()).unwrap();
            assert!(sender.waiting().1 <= LIMITS.bytes_max);
        }
        // The connection may still take some. Then there is room again soon.
        let (tell, told) = channel();
        sender.on_room(move || {
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_millis(200)).is_err()
    });
}

/// Sends the rest of the parts while there is room, and goes on when it is told.
fn fill(sender: FeedSender, part: Bytes, left: usize) {
    for sent in 0..left {
        if !sender.room() {
            let again = sender.clone();
            return sender.on_room(move || fill(again, part, left - sent));
        }
        sender.send(part.clone()).unwrap();
        assert!(sender.waiting().1 <= LIMITS.bytes_max);
    }
    sender.close();
}

#[test]
fn a_sender_is_told_when_there_is_room() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    fill(sender, part(), PARTS);
    all_comes(&mut client, PARTS);
    client.get("/").is(200, "hello");
}

#[test]
fn a_task_is_woken_when_there_is_room() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    let filling = thread::spawn(move || {
        let part = part();
        wait(async {
            for _ in 0..PARTS {
                poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
                sender.send(part.clone()).unwrap();
            }
        });
    });
    all_comes(&mut client, PARTS);
    filling.join().unwrap();
}

#[test]
fn threads_wait_for_room() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    let filling: Vec<JoinHandle<()>> = (0..4)
        .map(|_| {
            let (sender, part) = (sender.clone(), part());
            thread::spawn(move || (0..PARTS / 4).for_each(|_| sender.send_blocking(part.clone()).unwrap()))
        })
        .collect();
    drop(sender);
    all_comes(&mut client, PARTS);
    filling.into_iter().for_each(|filling| filling.join().unwrap());
}

/// Returns what ends the thread that sends.
fn sends_until_the_end(sender: &FeedSender) -> JoinHandle<FeedClosed> {
    let (sender, part) = (sender.clone(), part());
    thread::spawn(move || {
        loop {
            if let Err(end) = sender.send_blocking(part.clone()) {
                return end;
            }
        }
    })
}

/// Each end ends every wait for room.
#[test]
fn a_client_that_leaves_ends_the_waits_for_room() {
    for leave in [drop as fn(Client), Client::reset] {
        let fed = Fed::start();
        let (client, sender) = fed.open();
        fills_up(&sender);
        let (tell, told) = channel();
        sender.on_room(move || tell.send("ended").unwrap());
        let sending = sends_until_the_end(&sender);
        let polling = sender.clone();
        // The connection may still take some, which is room.
        let polling = thread::spawn(move || while wait(poll_fn(|cx| polling.poll_ready(cx))).is_ok() {});
        // On a connection whose client reads nothing, only an error of the socket shows that the client has gone.
        leave(client);
        sender.cut();
        assert_eq!(told.recv(), Ok("ended"));
        assert_eq!(sending.join().unwrap(), FeedClosed);
        polling.join().unwrap();
        assert!(!sender.room());
        fed.is_well();
    }
}

#[test]
fn a_server_that_cuts_its_connections_ends_a_wait_for_room() {
    let fed = Fed::start();
    let (client, sender) = fed.open();
    fills_up(&sender);
    let sending = sends_until_the_end(&sender);
    fed.server.shutdown(Duration::from_millis(100));
    assert_eq!(sending.join().unwrap(), FeedClosed);
    drop(client);
}

/// Registers a call, whose news is received.
fn closed(sender: &FeedSender) -> Receiver<()> {
    let (tell, told) = channel();
    sender.on_closed(move || tell.send(()).unwrap());
    told
}

#[test]
fn a_sender_is_told_once_that_its_client_has_gone() {
    for leave in [drop as fn(Client), Client::reset] {
        let fed = Fed::start();
        let mut client = Client::connect(&fed.server);
        // Of a feed that has an end, a client may close its side before it has read the rest.
        let sender = fed.ask(&mut client, "GET /ticker HTTP/1.1");
        sender.send("first").unwrap();
        assert_eq!(client.answer_head().status, 200);
        assert_eq!(client.chunk(), b"first");
        let (told, future) = (closed(&sender), sender.closed());
        let waiting = thread::spawn(move || wait(future));
        leave(client);
        assert_eq!(told.recv(), Ok(()));
        waiting.join().unwrap();
        // The call has gone after its first time, or this would wait.
        assert!(told.iter().count() <= 1);
        // It has left already.
        assert_eq!(closed(&sender).try_recv(), Ok(()));
        wait(sender.closed());
        fed.is_well();
    }
}

#[test]
fn a_sender_is_told_of_the_regular_end() {
    let fed = Fed::start();
    let (mut client, sender) = fed.open();
    let told = closed(&sender);
    sender.send("all").unwrap();
    assert!(told.try_recv().is_err());
    drop(sender);
    client.answer().is(200, "all");
    assert_eq!(told.recv(), Ok(()));
    client.get("/").is(200, "hello");
}

/// The call may use the sender, so no lock is held.
#[test]
fn a_call_that_panics_costs_a_line_in_the_log() {
    keep_log();
    let fed = Fed::start();
    let (client, sender) = fed.open();
    let calls = Arc::new(AtomicUsize::new(0));
    let (theirs, own) = (calls.clone(), sender.clone());
    sender.on_closed(move || {
        theirs.fetch_add(1, Ordering::SeqCst);
        assert!(own.send("more").is_ok(), "the call of a sender");
    });
    let told = closed(&sender);
    drop(client);
    eventually("it sees the end", || sender.send("more").is_err());
    assert_eq!(told.recv(), Ok(()));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    is_logged(&["a callback or a waker panicked: ", "the call of a sender"]);
    fed.is_well();
}

const ROWS: HeaderName = HeaderName::from_static("x-rows");

/// Checks whether the trailer of a feed is sent.
#[track_caller]
fn has_trailer(path: &str, fields: &str, comes: bool) {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, &format!("GET {path} HTTP/1.1{fields}"));
    sender.send("rows").unwrap();
    sender.close_with(&[(ROWS, HeaderValue::from(8))]).unwrap();
    assert_eq!(sender.send("late"), Err(FeedClosed));
    assert!(sender.close_with(&[]).is_err());
    let answer = client.answer();
    answer.is(200, "rows");
    let want = comes.then(|| ("x-rows".to_owned(), "8".to_owned()));
    assert_eq!(answer.trailers, Vec::from_iter(want), "{fields:?}");
    client.get("/").is(200, "hello");
}

#[test]
fn a_feed_ends_with_trailers_for_clients_that_accept_them() {
    has_trailer("/feed", "\r\nTE: trailers", true);
    has_trailer("/later", "\r\nTE: trailers", true);
    has_trailer("/feed", "", false);
    has_trailer("/later", "\r\nTE: gzip", false);
}

#[test]
fn an_http_1_0_client_gets_no_trailers_of_a_feed() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, "GET /feed HTTP/1.0\r\nTE: trailers");
    sender.send("rows").unwrap();
    sender.close_with(&[(ROWS, HeaderValue::from(8))]).unwrap();
    let answer = client.answer();
    answer.is(200, "rows");
    assert_eq!(answer.trailers, []);
    client.ends();
}

/// The feed ends all the same, because nobody else would end it.
#[test]
fn a_forbidden_trailer_of_a_feed_is_an_error() {
    let fed = Fed::start();
    let mut client = Client::connect(&fed.server);
    let sender = fed.ask(&mut client, "GET /feed HTTP/1.1\r\nTE: trailers");
    let refused = sender.close_with(&[(HeaderName::from_static("content-length"), HeaderValue::from(8))]);
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let answer = client.answer();
    answer.is(200, "");
    assert_eq!(answer.trailers, []);
}
