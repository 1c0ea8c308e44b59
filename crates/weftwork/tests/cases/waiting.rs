//! Tests what a handler knows of the time that its client waits, and what happens to a request that waited too
//! long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::CASE;
use super::addresses::Path;
use crate::support::{Client, Guarantee, Site, eventually, over_http2};

#[test]
fn a_deadline_is_what_the_settings_or_a_handler_say() {
    let site = CASE.start();
    let mut client = site.client();
    client.get("/deadline").is(200, "none");
    let left = |answer: crate::support::Answer| answer.text().parse::<u64>().unwrap();
    assert!((1..=5000).contains(&left(client.get("/deadline/5000"))));

    let site = CASE.start_with(|s| s.request_timeout(Duration::from_secs(60)));
    let mut client = site.client();
    assert!((1..=5000).contains(&left(client.get("/deadline/5000"))));
    assert!((50_000..=60_000).contains(&left(client.get("/deadline"))));
    assert!((50_000..=60_000).contains(&left(client.get("/deadline/90000"))));
}

/// The time counts from the arrival of the request, not of its connection.
#[test]
fn each_request_has_its_own_time() {
    let site = CASE.start_with(|s| s.request_timeout(Duration::from_secs(60)));
    let mut client = site.client();
    client.get("/sleep/300").is(200, "slept");
    // The time does not count from when a thread began to wait for the request. The client pauses for less than
    // such a wait.
    for think in [0, 4].repeat(10) {
        std::thread::sleep(Duration::from_millis(think));
        let begun = Instant::now();
        let left = Duration::from_millis(client.get("/deadline").text().parse().unwrap());
        let all = Duration::from_secs(60);
        assert!(left <= all && left + begun.elapsed() + Duration::from_millis(2) >= all, "{left:?} are left");
    }
}

#[test]
fn a_handler_can_see_that_its_client_has_left() {
    let (path, tcp) = (Path::new("gone"), "127.0.0.1:0");
    for (address, leave) in [(tcp, drop as fn(Client)), (tcp, Client::reset), (&path.address(), drop)] {
        let site = Site::start(CASE.bind(address));
        let mut client = site.client();
        client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the handler looks", || site.inside.watching.load(Ordering::SeqCst) == 1);
        leave(client);
        eventually("it sees that", || site.inside.left.load(Ordering::SeqCst) == 1);
        site.is_well();
    }
}

#[test]
fn a_client_that_stays_is_not_gone() {
    let site = CASE.start();
    site.inside.left.store(1, Ordering::SeqCst);
    let mut client = site.client();
    client.get("/gone").is(200, "seen");
    // Bytes after the request are not an end.
    client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\nGET /");
    client.answer().is(200, "seen");
    assert_eq!(site.inside.left.load(Ordering::SeqCst), 1);
}

/// Every thread is in a handler, and one more request waits.
struct Overload {
    site: Site,
    running: Vec<Client>,
    queued: Client,
}

impl Overload {
    fn start(request_timeout: Duration) -> Overload {
        const HANDLERS: usize = 3;
        let threads_max = CASE.engine.loops() + HANDLERS;
        let site = CASE.start_with(|s| s.threads_max(threads_max).standby_kept(1).request_timeout(request_timeout));
        let ask = || {
            let mut client = site.client();
            client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        };
        let running = (0..HANDLERS).map(|_| ask()).collect();
        site.inside.gate.wait_for(HANDLERS);
        // On a busy machine, a thread that has just answered may have kept one of those waiting.
        let before = site.running.stats().queued;
        let queued = ask();
        eventually("it queues", || site.running.stats().queued == before + 1);
        Overload { site, running, queued }
    }

    /// Lets the handlers finish. The waiting request is not started. Returns the result of `leave` for its
    /// client.
    #[track_caller]
    fn abandons<T>(self, leave: impl FnOnce(Client) -> T) -> T {
        let Overload { site, mut running, queued } = self;
        let left = leave(queued);
        site.inside.gate.open();
        running.iter_mut().for_each(|client| client.answer().is(200, "passed"));
        eventually("it is given up", || site.running.stats().queue_abandoned == 1);
        assert_eq!(site.calls(), 3);
        drop(running);
        site.is_well();
        left
    }
}

#[test]
fn a_queued_request_whose_client_has_left_is_not_started() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    let overload = Overload::start(Duration::ZERO);
    let view = overload.site.running.status();
    overload.abandons(|client| {
        client.reset();
        // A request of HTTP/2 has no socket. The loop of its connection sees the end.
        eventually("the loop sees the end", || !over_http2::is_on() || view.stats().http2_streams == 3);
    });
}

/// Most clients that end their side have left. A client that has not left is told why.
#[test]
fn a_queued_request_whose_client_has_ended_its_side_is_not_started() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    let mut queued = Overload::start(Duration::ZERO).abandons(|queued| {
        queued.half_close();
        queued
    });
    let answer = queued.answer();
    assert!(answer.status == 503 && answer.text().contains("the client closed its side"), "{answer:?}");
    queued.ends();
}

#[test]
fn a_queued_request_whose_time_is_up_is_not_started() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    // The other requests must start within this time, also on a busy machine.
    let time = Duration::from_secs(1);
    let overload = Overload::start(time);
    std::thread::sleep(time + Duration::from_millis(10));
    let mut queued = overload.abandons(|queued| queued);
    let answer = queued.answer();
    assert!(answer.status == 503 && answer.closes() && answer.text().contains("not started in time"), "{answer:?}");
    assert_eq!(answer.field("retry-after"), Some("1"));
    queued.ends();
}

#[test]
fn a_queued_request_whose_client_waits_is_started() {
    if !CASE.guarantees(Guarantee::QueueForThreads) {
        return;
    }
    let mut overload = Overload::start(Duration::from_secs(60));
    overload.site.inside.gate.open();
    overload.queued.answer().is(200, "passed");
    assert_eq!(overload.site.running.stats().queue_abandoned, 0);
}
