//! Tests that events arrive as they are sent, and that a stream ends when either side ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use weftwork::{Event, EventHub, FeedLimits, OverflowStrategy, Request, Response, Running, Settings, sse};

use super::CASE;
use crate::support::{Client, TIMEOUT, Guarantee, eventually, tls};

const TICK: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3600);

struct News {
    server: Running,
    hub: EventHub,
    /// Number of writers that have returned for any reason, or of ticks.
    gone: Arc<AtomicUsize>,
}

fn start() -> News {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> News {
    let (hub, gone) = (EventHub::default(), Arc::<AtomicUsize>::default());
    let (own, counted) = (hub.clone(), gone.clone());
    let server = CASE.bind("127.0.0.1:0").settings(change).start(move |req: &mut Request| match req.path() {
        "/hub" => own.join(req),
        "/count" => count(req),
        "/wait" => wait(req, counted.clone()),
        "/tick" => tick(req, counted.clone(), true),
        "/quiet" => tick(req, counted.clone(), false),
        _ => Response::text("hello"),
    });
    News { server: server.unwrap(), hub, gone }
}

fn count(req: &mut Request) -> Response {
    sse(req, |events| {
        for number in 0..3 {
            events.send(&Event::new(number.to_string()))?;
            events.wait(Duration::from_millis(1))?;
        }
        Ok(())
    })
}

fn wait(req: &mut Request, gone: Arc<AtomicUsize>) -> Response {
    sse(req, move |events| {
        events.send(&Event::new("ready"))?;
        let waited = events.wait(HOUR);
        gone.fetch_add(1, Ordering::SeqCst);
        if !waited? {
            events.send(&Event::new("the server stops"))?;
        }
        Ok(())
    })
}

fn tick(req: &mut Request, ticks: Arc<AtomicUsize>, is_said: bool) -> Response {
    sse(req, move |events| {
        loop {
            ticks.fetch_add(1, Ordering::SeqCst);
            if is_said {
                events.send(&Event::new("tick"))?;
            }
            events.wait(TICK)?;
        }
    })
}

impl News {
    #[track_caller]
    fn open(&self, path: &str) -> Client {
        let mut client = Client::connect(&self.server);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_head();
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("text/event-stream")));
        client
    }

    #[track_caller]
    fn is_well(&self) {
        Client::connect(&self.server).get("/").is(200, "hello");
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

#[test]
fn a_writer_sends_one_by_one() {
    let news = start();
    let mut client = news.open("/count");
    for number in 0..3 {
        assert_eq!(client.chunk(), format!("data: {number}\n\n").as_bytes());
    }
    assert_eq!(client.chunk(), b"");
    client.get("/").is(200, "hello");
    drop(client);
    news.is_well();
}

#[test]
fn a_waiting_writer_notices_a_disconnect_and_keeps_early_input() {
    let news = start();
    let mut client = news.open("/wait");
    assert_eq!(client.chunk(), b"data: ready\n\n");
    // The next request does not end the stream.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(client);
    eventually("the writer returns", || news.gone.load(Ordering::SeqCst) == 1);
    news.is_well();
}

#[test]
fn writers_end_with_the_server() {
    let news = start();
    let mut client = news.open("/wait");
    assert_eq!(client.chunk(), b"data: ready\n\n");
    let server = news.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    assert_eq!(client.chunk(), b"data: the server stops\n\n");
    assert_eq!(client.chunk(), b"");
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

/// A writer that ignores the result of `wait` continues at its pace until the server has waited long enough.
#[test]
fn a_writer_that_ignores_the_stop_keeps_its_interval() {
    // A writer without events sends comments. They are due both before its waits end and after.
    for (path, first, heartbeat) in
        [("/tick", "data: tick\n\n", HOUR), ("/quiet", ":\n\n", TICK / 5), ("/quiet", ":\n\n", TICK * 2)]
    {
        let news = start_with(|settings| settings.heartbeat(heartbeat));
        let mut client = news.open(path);
        assert_eq!(client.chunk(), first.as_bytes());
        // It answers PING meanwhile.
        let reading = std::thread::spawn(move || client.rest());
        let report = news.server.shutdown(TICK * 30);
        assert_eq!((report.drained, report.cut), (0, 1), "{path}: {report}");
        let ticks = news.gone.load(Ordering::SeqCst);
        assert!((2..100).contains(&ticks), "{path}: {ticks} ticks");
        reading.join().unwrap();
    }
}

#[test]
fn a_broadcast_reaches_every_client() {
    let news = start();
    // Each feed holds a thread on engines whose feeds need one.
    let count = if CASE.guarantees(Guarantee::FeedsWithoutThreads) { 200 } else { 20 };
    let mut clients: Vec<Client> = (0..count).map(|_| news.open("/hub")).collect();
    assert_eq!(news.hub.send(&Event::new("one").id("1")), count);
    assert_eq!(news.hub.send(&Event::new("two")), count);
    for client in &mut clients {
        let mut got = Vec::new();
        while got.len() < 28 {
            got.extend(client.chunk());
        }
        assert_eq!(got, b"id: 1\ndata: one\n\ndata: two\n\n");
    }
    clients.truncate(count / 2);
    eventually("leavers are forgotten", || news.hub.clients() == count / 2);
    news.hub.close_all();
    clients.iter_mut().for_each(|client| assert_eq!(client.chunk(), b""));
    drop(clients);
    news.is_well();
}

#[test]
fn a_hub_sends_to_selected_clients() {
    let hub = EventHub::<String>::default();
    let own = hub.clone();
    let server = CASE.bind("127.0.0.1:0").start(move |req: &mut Request| {
        let name = req.path().trim_start_matches('/').to_owned();
        let first = Event::new(format!("hello, {name}"));
        own.join_with(req, name, [first])
    });
    let news = News { server: server.unwrap(), hub: EventHub::default(), gone: Arc::default() };
    let mut clients = ["ann", "bob"].map(|name| (name, news.open(&format!("/{name}"))));
    for (name, client) in &mut clients {
        assert_eq!(client.chunk(), format!("data: hello, {name}\n\n").as_bytes());
        assert_eq!(hub.send_where(&Event::new(format!("for {name}")), |value| value == name), 1);
    }
    assert_eq!(hub.send(&Event::new("for all").id("1")), 2);
    hub.close_all();
    for (name, client) in &mut clients {
        let got: Vec<u8> = std::iter::from_fn(|| Some(client.chunk()).filter(|chunk| !chunk.is_empty())).flatten().collect();
        assert_eq!(String::from_utf8(got).unwrap(), format!("data: for {name}\n\nid: 1\ndata: for all\n\n"));
    }
}

/// The clients of a restarted server do not return in the same moment: they are told different times, and their streams
/// end one after another.
#[test]
fn a_hub_spreads_the_return_of_its_clients() {
    const CLIENTS: usize = 100;
    let news = start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| news.open("/hub")).collect();
    let server = news.server;
    let begun = Instant::now();
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    let mut times: Vec<u64> = clients
        .iter_mut()
        .map(|client| {
            let said = String::from_utf8(client.chunk()).unwrap();
            assert_eq!(client.chunk(), b"");
            let time = said.strip_prefix("retry: ").and_then(|rest| rest.strip_suffix("\n\n"));
            time.unwrap().parse().unwrap()
        })
        .collect();
    // 20 ms for each, at random. It is less than half of that for all of them once in 2^100 times.
    assert!(begun.elapsed() > Duration::from_millis(1000), "{:?}", begun.elapsed());
    assert!(times.iter().all(|time| (1000..=5000).contains(time)), "{times:?}");
    times.sort_unstable();
    times.dedup();
    assert!(times.len() > CLIENTS / 2, "{times:?}");
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (CLIENTS, 0), "{report}");
}

/// Threads may publish events as fast as a loop sends them. The other connections of the loop must still make
/// progress.
#[test]
fn a_hub_that_sends_without_pause_blocks_no_other_client() {
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    // Over TLS a new client takes several cycles of the loop, and each cycle of a debug build is long.
    let clients = if tls::is_on() { 75 } else { 300 };
    let limits = FeedLimits { overflow: OverflowStrategy::DropOldest, ..FeedLimits::default() };
    let hub = EventHub::new(limits);
    let own = hub.clone();
    let server = CASE.bind("127.0.0.1:0").start(move |req: &mut Request| match req.path() {
        "/hub" => own.join(req),
        _ => Response::text("hello"),
    });
    let news = News { server: server.unwrap(), hub, gone: Arc::default() };
    let listening: Vec<Client> = (0..clients).map(|_| news.open("/hub")).collect();
    let mut quick = Client::connect(&news.server);
    (0..50).for_each(|_| quick.get("/").is(200, "hello"));
    let hub = news.hub.clone();
    // The thread publishes until this test ends, for whatever reason. A delayed client fails after `TIMEOUT`.
    let (publishing, until) = mpsc::channel::<()>();
    let publisher = std::thread::spawn(move || {
        while until.try_recv() == Err(TryRecvError::Empty) {
            hub.send(&Event::new("again"));
        }
    });
    for _ in 0..5 {
        quick.get("/").is(200, "hello");
        Client::connect(&news.server).get("/").is(200, "hello");
    }
    drop(publishing);
    publisher.join().unwrap();
    drop((listening, quick));
    news.is_well();
}
