//! Tests that a response which becomes another protocol may be sent later, and that no byte of its client is lost.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use weftwork::http::HeaderValue;
use weftwork::prelude::StatusCode;
use weftwork::{
    Feed, FeedLimits, FeedSender, Request, Response, ResponseSender, Running, UpgradeHandler, Upgraded,
};

use super::CASE;
use crate::support::{Client, Gate, eventually, noise};

const ASK: &str = "GET /PATH HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// A server whose responses the test sends.
struct Site {
    server: Running,
    senders: Arc<Mutex<Vec<ResponseSender>>>,
}

impl Site {
    fn start() -> Site {
        let senders = Arc::<Mutex<Vec<ResponseSender>>>::default();
        let kept = senders.clone();
        let handler = move |req: &mut Request| {
            if req.path() == "/" {
                return Response::text("hello");
            }
            let (sender, response) = Response::later(LONG, StatusCode::NO_CONTENT);
            kept.lock().unwrap().push(sender);
            response
        };
        Site { server: CASE.bind("127.0.0.1:0").start(handler).unwrap(), senders }
    }

    /// Returns the sender of the response that a client waits for.
    #[track_caller]
    fn sender(&self) -> ResponseSender {
        eventually("the handler answers", || !self.senders.lock().unwrap().is_empty());
        self.senders.lock().unwrap().remove(0)
    }
}

fn echo(line: Upgraded) -> std::io::Result<()> {
    let (mut reader, mut writer) = line.split();
    let mut bytes = [0; 1000];
    loop {
        match reader.read(&mut bytes)? {
            0 => return Ok(()),
            count => writer.write_all(&bytes[..count])?,
        }
    }
}

struct Echo(FeedSender);

impl UpgradeHandler for Echo {
    fn on_data(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }
}

fn upgrade() -> Response {
    Response::upgrade(HeaderValue::from_static("echo"), echo)
}

fn upgrade_fed() -> Response {
    let (sender, feed) = Feed::new(FeedLimits::default());
    Response::upgrade_fed(HeaderValue::from_static("echo"), feed, Echo(sender))
}

#[track_caller]
fn switched(client: &mut Client) {
    let answer = client.answer_head();
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("echo")), "{answer:?}");
}

#[track_caller]
fn is_well(server: &Running) {
    Client::connect(server).get("/").is(200, "hello");
    eventually("every connection ends", || server.stats().connections == 0);
}

#[test]
fn an_upgrade_may_be_sent_later_and_early_bytes_are_kept() {
    let site = Site::start();
    for make in [upgrade as fn() -> Response, upgrade_fed] {
        for early in [&b"early"[..], b""] {
            let mut client = Client::connect(&site.server);
            client.send([ASK.as_bytes(), early].concat());
            let sender = site.sender();
            client.send("while it waits");
            sender.send(make()).unwrap();
            switched(&mut client);
            client.send("and after");
            let sent = [early, b"while it waits", b"and after"].concat();
            assert_eq!(client.exactly(sent.len()), sent);
            let sent = noise(50_000);
            let aside = client.send_aside(sent.clone());
            assert!(client.exactly(sent.len()) == sent);
            aside.join().unwrap().unwrap();
            client.half_close();
            client.ends();
        }
    }
    is_well(&site.server);
}

#[test]
fn a_future_may_become_an_upgrade() {
    let gate = Arc::new(Gate::default());
    let opened = gate.clone();
    let server = CASE.bind("127.0.0.1:0").start(move |req: &mut Request| {
        if req.path() == "/" {
            return Response::text("hello");
        }
        let (opened, mut polls) = (opened.clone(), 0);
        Response::when(poll_fn(move |cx| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready(upgrade());
            }
            let (waker, opened) = (cx.waker().clone(), opened.clone());
            std::thread::spawn(move || {
                opened.pass();
                waker.wake();
            });
            Poll::Pending
        }))
    });
    let server = server.unwrap();
    let mut client = Client::connect(&server);
    client.send([ASK, "early"].concat());
    gate.wait_for(1);
    client.send("while it waits");
    gate.open();
    switched(&mut client);
    assert_eq!(client.exactly(19), b"earlywhile it waits");
    client.half_close();
    client.ends();
    is_well(&server);
}

/// The response that is sent later is itself sent later.
#[test]
fn an_upgrade_may_be_deferred_twice() {
    let site = Site::start();
    let mut client = Client::connect(&site.server);
    client.send([ASK, "early"].concat());
    let (last, again) = Response::later(LONG, StatusCode::NO_CONTENT);
    site.sender().send(again).unwrap();
    last.send(upgrade()).unwrap();
    switched(&mut client);
    assert_eq!(client.exactly(5), b"early");
    drop(client);
    is_well(&site.server);
}

#[test]
fn a_tunnel_may_be_opened_later() {
    let site = Site::start();
    let mut client = Client::connect(&site.server);
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nearly");
    site.sender().send(Response::tunnel(echo)).unwrap();
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(client.exactly(5), b"early");
    drop(client);
    is_well(&site.server);
}

#[test]
fn a_later_upgrade_that_was_not_requested_is_500() {
    let site = Site::start();
    for make in [upgrade as fn() -> Response, upgrade_fed] {
        for fields in ["", "Connection: upgrade\r\nUpgrade: h2c\r\n", "Upgrade: echo\r\n"] {
            let mut client = Client::connect(&site.server);
            client.send(format!("GET /later HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            site.sender().send(make()).unwrap();
            assert_eq!(client.answer().status, 500, "{fields:?}");
            client.ends();
        }
    }
    is_well(&site.server);
}

/// The rest of the body would be the first bytes of the other protocol.
#[test]
fn a_later_upgrade_before_the_body_was_read_is_400() {
    let site = Site::start();
    let mut client = Client::connect(&site.server);
    client.send(ASK.replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 200000\r\n\r\n"));
    // More than is read before the handler is called.
    client.send(noise(100_000));
    site.sender().send(upgrade()).unwrap();
    assert_eq!(client.answer().status, 400);
    client.ends();
    is_well(&site.server);
}
