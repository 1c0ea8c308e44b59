//! Tests that endless responses and upgraded connections end one after another at a stop, whatever they are made of.

use std::time::{Duration, Instant};

use weftwork::http::HeaderValue;
use weftwork::middleware::Metrics;
use weftwork::{
    EventHub, Feed, FeedLimits, Handler, Request, Response, Running, UpgradeHandler, WebSocketHub, WebSockets, sse, websocket,
};

use super::CASE;
use crate::support::{Client, Guarantee, TIMEOUT, eventually};

const CLIENTS: usize = 40;
/// Time over which the ends of so many clients are spread.
const SPREAD: Duration = Duration::from_millis(20 * (CLIENTS as u64 - 1));

/// Ends as the server stops.
struct Silent;

impl UpgradeHandler for Silent {
    fn on_data(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
}

fn start() -> Running {
    let (events, sockets) = (EventHub::default(), WebSocketHub::new(WebSockets::new(), |_, _, _| {}));
    let echo = || HeaderValue::from_static("echo");
    let server = CASE.bind("127.0.0.1:0");
    let page = Metrics::new().server(server.status()).page();
    let handler = move |req: &mut Request| match req.path() {
        "/metrics" => page.call(req),
        "/event-hub" => events.join(req),
        "/feed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            std::mem::forget(sender);
            Response::feed(feed).endless()
        }
        "/sse" => sse(req, |events| {
            while events.wait(Duration::from_millis(10))? {}
            Ok(())
        }),
        "/socket-hub" => sockets.join(req),
        "/socket" => websocket(req, |mut socket| {
            while socket.read()?.is_some() {}
            Ok(())
        }),
        "/upgrade" => Response::upgrade(echo(), |mut line| {
            std::io::Read::read(&mut line, &mut [0]).map(drop)
        }),
        "/upgrade-fed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            std::mem::forget(sender);
            Response::upgrade_fed(echo(), feed, Silent)
        }
        _ => Response::text("hello"),
    };
    server.start(handler).unwrap()
}

fn open(running: &Running, path: &str) -> Client {
    let fields = match path {
        "/socket-hub" | "/socket" => {
            "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        }
        "/upgrade" | "/upgrade-fed" => "Connection: upgrade\r\nUpgrade: echo\r\n",
        _ => "",
    };
    let mut client = Client::connect(running);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.answer_head();
    client
}

#[test]
fn clients_of_a_stopping_server_are_sent_away_one_after_another() {
    for path in ["/event-hub", "/feed", "/sse", "/socket-hub", "/socket", "/upgrade", "/upgrade-fed"] {
        // A stream holds its thread, which may be the loop.
        if path == "/sse" && !CASE.guarantees(Guarantee::QuickBesideBlocked) {
            continue;
        }
        let running = start();
        let clients: Vec<Client> = (0..CLIENTS).map(|_| open(&running, path)).collect();
        // The server knows that they have no end.
        let are_known = |page: &str| ["waiting", "upgraded"].iter().any(|state| page.contains(&format!("{{state=\"{state}\"}} {CLIENTS}\n")));
        eventually("all clients wait", || are_known(Client::connect(&running).get("/metrics").text()));
        let begun = Instant::now();
        let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
        for mut client in clients {
            // Also a WebSocket client closes after the first byte.
            client.takes(1);
        }
        // It is less than half of the time for all of them once in 2^40 times.
        assert!(begun.elapsed() > SPREAD / 2, "{path}: {:?}", begun.elapsed());
        let report = stopping.join().unwrap();
        assert_eq!((report.drained >= CLIENTS, report.cut, report.stuck), (true, 0, 0), "{path}: {report}");
        assert!(report.took < TIMEOUT, "{path}: {report}");
    }
}

/// Half of the time to drain is left for what is sent then.
#[test]
fn the_time_to_drain_limits_the_spread() {
    let running = start();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| open(&running, "/event-hub")).collect();
    let report = running.shutdown(SPREAD);
    assert_eq!((report.drained, report.cut), (CLIENTS, 0), "{report}");
    drop(clients);
}

/// A single client, such as a page of a developer, does not hold up the stop.
#[test]
fn a_single_client_is_sent_away_at_once() {
    for path in ["/event-hub", "/sse"] {
        let running = start();
        let mut client = open(&running, path);
        let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
        client.takes(1);
        let report = stopping.join().unwrap();
        assert_eq!((report.drained, report.cut), (1, 0), "{path}: {report}");
    }
}
