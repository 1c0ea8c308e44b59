//! Tests that a server stops in good order in every state of its connections.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weftwork::{Request, Running, Settings, ShutdownReport};

use super::CASE;
use crate::support::{Client, TIMEOUT, Guarantee, Site, eventually, noise};

/// So many idle connections that every loop has one. When the first ends, the server is draining.
const WITNESSES: usize = 8;

/// A site whose idle connections end as soon as the server drains.
fn site() -> Site {
    site_with(|settings| settings)
}

fn site_with(change: impl FnOnce(Settings) -> Settings) -> Site {
    CASE.start_with(|settings| change(settings.drain_idle_timeout(Duration::ZERO)))
}

/// A site that is about to be stopped.
struct Stop {
    site: Site,
    witnesses: Vec<Client>,
}

struct Stopping {
    thread: JoinHandle<ShutdownReport>,
    inside: std::sync::Arc<crate::support::SiteState>,
}

impl Stop {
    fn prepare(site: Site) -> Stop {
        let mut witnesses: Vec<Client> = (0..WITNESSES).map(|_| site.client()).collect();
        witnesses.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
        Stop { site, witnesses }
    }

    /// Returns once the server is draining.
    fn begin(self, deadline: Duration) -> Stopping {
        let Stop { site: Site { running, inside }, mut witnesses } = self;
        let thread = std::thread::spawn(move || running.shutdown(deadline));
        let begun = Instant::now();
        while !witnesses.iter_mut().any(Client::has_ended) {
            assert!(begun.elapsed() < TIMEOUT, "no idle connection ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        Stopping { thread, inside }
    }
}

impl Stopping {
    /// All connections have ended by themselves: the witnesses and `others`.
    #[track_caller]
    fn ends_well(self, others: usize) {
        let report = self.thread.join().unwrap();
        assert_eq!((report.drained, report.cut, report.stuck), (WITNESSES + others, 0, 0), "{report}");
        assert!(report.took < TIMEOUT, "{report}");
    }
}

/// A request is half sent when the server stops. `first` is known to have been read, and `rest` arrives later.
#[track_caller]
fn finishes(first: &str, rest: &str, body: &str) {
    let stop = Stop::prepare(site());
    let mut client = stop.site.client();
    // Read together with the previous request, which is answered.
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{first}"));
    client.answer().is(200, "hello");
    let stopping = stop.begin(TIMEOUT);
    client.send(rest);
    let answer = client.answer();
    answer.is(200, body);
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    stopping.ends_well(1);
}

/// A connected client may have sent its first request already. The server waits for that request, but only
/// briefly.
#[test]
fn idle_connections_end_at_once_and_new_ones_may_send_a_request() {
    let mut in_time = false;
    while !in_time {
        let stop = Stop::prepare(site());
        let begun = Instant::now();
        let mut fresh: Vec<Client> = (0..8).map(|_| stop.site.client()).collect();
        eventually("all are accepted", || {
            stop.site.running.stats().accepted == (WITNESSES + fresh.len()) as u64
        });
        let stopping = stop.begin(TIMEOUT);
        let silent = fresh.split_off(4);
        fresh.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        // On a busy machine the client may have taken too long.
        in_time = begun.elapsed() < Duration::from_millis(150);
        for client in fresh.iter_mut().filter(|_| in_time) {
            let answer = client.answer();
            assert!(answer.status == 200 && answer.closes(), "{answer:?}");
        }
        fresh.into_iter().chain(silent).for_each(|client| drop(client.rest()));
        stopping.ends_well(8);
        assert!(begun.elapsed() < TIMEOUT / 2, "took {:?}", begun.elapsed());
    }
}

/// The kernel has confirmed their connections, and they have sent requests.
#[test]
fn a_connection_in_the_backlog_is_served() {
    let site = CASE.start_with(|s| s.connections_max(4));
    let mut served: Vec<Client> = (0..4).map(|_| site.client()).collect();
    served.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    let mut waiting: Vec<Client> = (0..8).map(|_| site.client()).collect();
    waiting
        .iter_mut()
        .for_each(|client| client.send_ahead("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    drop(served);
    let running = site.running;
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    waiting.iter_mut().for_each(|client| client.answer().is(200, "hello"));
    drop(waiting);
    let report = stopping.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}

/// A site all of whose loops and threads are in handlers, and clients that the kernel has connected behind them. They have
/// sent requests.
fn all_at_work(clients: usize, queue_max: usize) -> (Site, Vec<Client>, Vec<Client>) {
    let threads_max = CASE.engine.loops() + 2;
    let site = CASE.start_with(|s| s.threads_max(threads_max).standby_kept(1).queue_max(queue_max));
    let busy = if CASE.engine.loops() > 0 && !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        CASE.engine.loops()
    } else {
        2
    };
    let mut blocked = Vec::new();
    for number in 1..=busy {
        // Connected when the other loops are in a handler already.
        let mut client = site.client();
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
        site.inside.gate.wait_for(number);
        blocked.push(client);
    }
    let mut waiting: Vec<Client> = (0..clients).map(|_| site.client()).collect();
    waiting.iter_mut().for_each(|client| client.send_ahead("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    (site, blocked, waiting)
}

/// Closing the listeners would reset them.
#[test]
fn clients_in_the_accept_queue_are_answered() {
    let (Site { running, inside }, blocked, waiting) = all_at_work(6, 0);
    let address = running.addresses()[0].clone();
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("the port is closed", || Client::try_connect_to(&address).is_err());
    inside.gate.open();
    for mut client in blocked {
        client.answer().is(200, "passed");
    }
    for mut client in waiting {
        let answer = client.refusal();
        assert!(answer.is_none_or(|answer| [200, 503].contains(&answer.status) && answer.closes()));
        client.ends();
    }
    assert_eq!(stopping.join().unwrap().stuck, 0);
}

/// Handlers that do not return in time are left behind. Clients that no handler has seen are told, and not reset.
#[test]
fn clients_in_the_accept_queue_are_told_if_no_thread_gets_free() {
    // They wait for a thread, or in the kernel.
    for queue_max in [100, 0] {
        let (Site { running, inside }, blocked, waiting) = all_at_work(6, queue_max);
        let report = running.shutdown(Duration::from_millis(700));
        for mut client in waiting {
            let answer = client.refusal();
            assert!(answer.is_none_or(|answer| [200, 503].contains(&answer.status) && answer.closes()));
            client.ends();
        }
        assert!(report.stuck >= 1, "{report}");
        inside.gate.open();
        drop(blocked);
    }
}

#[test]
fn clients_in_the_accept_queue_are_told_if_there_are_too_many_connections() {
    let site = CASE.start_with(|s| s.connections_max(1));
    let mut blocked = site.client();
    blocked.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    let mut waiting: Vec<Client> = (0..6).map(|_| site.client()).collect();
    waiting.iter_mut().for_each(|client| client.send_ahead("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    let Site { running, inside } = site;
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    for mut client in waiting {
        let answer = client.refusal();
        assert!(answer.is_none_or(|answer| answer.status == 503 && answer.closes()));
        client.ends();
    }
    inside.gate.open();
    blocked.answer().is(200, "passed");
    assert_eq!(stopping.join().unwrap().cut, 0);
}

#[test]
fn half_a_head() {
    finishes("GET / HT", "TP/1.1\r\nHost: a\r\n\r\n", "hello");
}

#[test]
fn half_a_body() {
    finishes("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf", "half", "halfhalf");
}

#[test]
fn in_the_handler() {
    let stop = Stop::prepare(site());
    let mut client = stop.site.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    stop.site.inside.gate.wait_for(1);
    let stopping = stop.begin(TIMEOUT);
    stopping.inside.gate.open();
    let answer = client.answer();
    answer.is(200, "passed");
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    stopping.ends_well(1);
}

/// Requests that have arrived are answered. The last response says that the connection closes.
#[test]
fn pipelined_after_the_handler() {
    let stop = Stop::prepare(site());
    let mut client = stop.site.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    stop.site.inside.gate.wait_for(1);
    let stopping = stop.begin(TIMEOUT);
    stopping.inside.gate.open();
    let answer = client.answer();
    answer.is(200, "passed");
    assert!(!answer.closes(), "{answer:?}");
    let answer = client.answer();
    answer.is(200, "hello");
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    stopping.ends_well(1);
}

/// The next request of a kept connection may be on its way when the server is told to stop.
#[test]
fn an_idle_connection_gets_one_more_response() {
    let site = CASE.start_with(|s| s.drain_idle_timeout(TIMEOUT));
    let mut kept: Vec<Client> = (0..8).map(|_| site.client()).collect();
    kept.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    // A connection that has never sent a request ends at once, and is the sign that the server drains.
    let mut silent = site.client();
    eventually("it is accepted", || site.running.stats().accepted == 9);
    std::thread::sleep(Duration::from_millis(300));
    let running = site.running;
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT * 2));
    silent.sees_end_before_tls();
    for mut client in kept {
        let answer = client.get("/");
        answer.is(200, "hello");
        assert!(answer.closes(), "{answer:?}");
        client.ends();
    }
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (9, 0, 0), "{report}");
}

/// The setting counts from the last byte, and is shorter than the time to drain.
#[test]
fn idle_connections_end_in_order_before_the_time_to_drain_is_over() {
    for idle in [Duration::from_millis(200), TIMEOUT * 10] {
        let site = CASE.start_with(|s| s.drain_idle_timeout(idle));
        let mut kept: Vec<Client> = (0..8).map(|_| site.client()).collect();
        kept.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
        let report = site.running.shutdown(Duration::from_millis(1500));
        assert_eq!((report.drained, report.cut, report.stuck), (8, 0, 0), "{report}");
        kept.into_iter().for_each(Client::ends);
    }
}

#[test]
fn a_slow_reader_gets_the_whole_answer() {
    let stop = Stop::prepare(site());
    let mut client = stop.site.client();
    client.send("GET /bytes/20000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_bytes();
    let stopping = stop.begin(TIMEOUT);
    client.answer().is(200, noise(20_000_000));
    client.ends();
    stopping.ends_well(1);
}

#[test]
fn a_stream_gets_to_its_end() {
    let stop = Stop::prepare(site());
    let mut client = stop.site.client();
    client.send("GET /gate-stream HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_bytes();
    stop.site.inside.gate.wait_for(1);
    let stopping = stop.begin(TIMEOUT);
    stopping.inside.gate.open();
    client.answer().is(200, "before after");
    client.ends();
    stopping.ends_well(1);
}

/// The client is slow to end its side, and loses nothing.
#[test]
fn a_client_that_has_its_whole_answer_is_not_cut() {
    let stop = Stop::prepare(site_with(|s| s.linger_timeout(Duration::from_secs(3600))));
    let mut client = stop.site.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    stop.site.inside.gate.wait_for(1);
    let stopping = stop.begin(Duration::from_millis(1500));
    stopping.inside.gate.open();
    client.answer().is(200, "passed");
    let report = stopping.thread.join().unwrap();
    assert_eq!((report.cut, report.drained), (0, WITNESSES + 1), "{report}");
    drop(client);
}

/// After the deadline the server cuts connections and abandons handlers.
#[test]
fn a_request_past_the_drain_deadline_is_closed() {
    let stop = Stop::prepare(site());
    let mut waiting = stop.site.client();
    waiting.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    stop.site.inside.gate.wait_for(1);
    let stopping = stop.begin(Duration::from_millis(100));
    let report = stopping.thread.join().unwrap();
    assert!(report.cut >= 1 && report.stuck == 1, "{report}");
    assert!(report.took >= Duration::from_millis(100) && report.took < TIMEOUT / 2, "{report}");
    stopping.inside.gate.open();
    waiting.rest();
}

#[test]
fn a_slow_reader_past_the_drain_deadline_is_closed() {
    for path in ["/bytes/50000000", "/stream/50000000"] {
        let stop = Stop::prepare(site());
        let mut client = stop.site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.wait_for_bytes();
        let report = stop.begin(Duration::from_millis(100)).thread.join().unwrap();
        assert!(report.cut >= 1 && report.stuck == 0, "{report}");
        assert!(client.rest().len() < 50_000_000);
    }
}

#[test]
fn every_thread_is_in_a_handler() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    const HANDLERS: usize = 3;
    let threads_max = CASE.engine.loops() + HANDLERS;
    let site = site_with(|s| s.threads_max(threads_max).standby_kept(1));
    let stop = Stop::prepare(site);
    let mut clients: Vec<Client> = (0..HANDLERS).map(|_| stop.site.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    stop.site.inside.gate.wait_for(HANDLERS);
    eventually("every loop has a thread besides", || stop.site.running.threads() == threads_max);
    let stopping = stop.begin(Duration::from_millis(100));
    let report = stopping.thread.join().unwrap();
    assert!(report.stuck == HANDLERS && report.cut >= HANDLERS, "{report}");
    stopping.inside.gate.open();
}

fn start_at(address: &str) -> Running {
    CASE.bind(address).start(|_: &mut weftwork::Request| "again").expect("it starts again")
}

/// The server closed first, so its sockets are in TIME_WAIT. The next server must still get the port.
#[test]
fn the_port_is_free_at_once() {
    let mut running = Site::start(CASE.bind_alone()).running;
    let address = running.local_addr().unwrap().to_string();
    for _ in 0..5 {
        let mut idle = Client::connect(&running);
        assert_eq!(idle.get("/").status, 200);
        let mut closed = Client::connect(&running);
        closed.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(closed.answer().status, 200);
        closed.ends();
        let report = running.shutdown(TIMEOUT);
        assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
        idle.ends();
        running = start_at(&address);
    }
}

#[test]
fn the_port_is_free_though_a_handler_is_stuck() {
    let site = Site::start(CASE.bind_alone());
    let address = site.running.local_addr().unwrap().to_string();
    let mut client = site.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    let Site { running, inside } = site;
    assert_eq!(running.shutdown(Duration::ZERO).stuck, 1);
    let again = start_at(&address);
    Client::connect(&again).get("/").is(200, "again");
    inside.gate.open();
}

#[test]
fn a_dropped_server_is_stopped() {
    let site = Site::start(CASE.bind_alone());
    let address = site.running.local_addr().unwrap();
    let mut client = site.client();
    client.get("/").is(200, "hello");
    drop(site);
    client.rest();
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// A load balancer needs a while to notice the stop. Until then the server accepts and serves. Each response is the last of
/// its connection, so that no client sends a request to a connection that is about to close.
#[test]
fn a_drain_delay_goes_on_and_closes_connections() {
    let delay = Duration::from_millis(400);
    let site = Site::start(CASE.bind_alone().settings(|s| s.drain_delay(delay)));
    let (view, address) = (site.running.status(), site.running.local_addr().unwrap());
    let mut old = site.client();
    old.get("/stopping").is(200, "false");
    let addresses = site.running.addresses().to_vec();
    let begun = Instant::now();
    assert!(!view.is_stopping());
    let stopping = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    crate::support::eventually("it is told", || view.is_stopping());
    let mut new = Client::connect_to(&addresses[0]);
    for client in [&mut old, &mut new] {
        let answer = client.get("/stopping");
        answer.is(200, "true");
        assert!(answer.closes(), "{answer:?}");
    }
    old.ends();
    new.ends();
    let report = stopping.join().unwrap();
    assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// A stop without time does not wait for the drain delay.
#[test]
fn no_time_means_no_delay() {
    let site = CASE.start_with(|s| s.drain_delay(TIMEOUT));
    let begun = Instant::now();
    site.running.shutdown(Duration::ZERO);
    assert!(begun.elapsed() < TIMEOUT / 2);
}

/// The handle exists before its handler, and would keep the server forever if it owned a part of the server.
#[test]
fn a_handler_with_a_server_status_is_dropped_with_its_server() {
    let server = CASE.bind("127.0.0.1:0");
    let (status, token) = (server.status(), Arc::new(()));
    let (inside, held) = (status.clone(), Arc::downgrade(&token));
    assert_eq!((status.stats().requests, status.threads(), status.is_stopping()), (0, 0, false));
    let running = server
        .start(move |_: &mut Request| {
            let _ = &token;
            format!("{} {} {}", inside.stats().requests, inside.threads() > 0, inside.is_stopping())
        })
        .unwrap();
    assert_eq!((status.addresses(), status.engine()), (running.addresses(), running.engine()));
    assert_eq!(status.settings().connections_max, running.settings().connections_max);
    Client::connect_to(&status.addresses()[0]).get("/").is(200, "1 true false");
    let report = running.shutdown(TIMEOUT);
    assert_eq!(report.stuck, 0, "{report}");
    assert!(held.upgrade().is_none(), "the handler is still there");
    assert_eq!((status.stats().requests, status.threads(), status.is_stopping()), (1, 0, true));
}
