//! Tests how a server stops with a request in each phase.

use std::time::{Duration, Instant};

use weftwork::{Request, Running, blocks};

use super::CASE;
use crate::support::{Client, SiteState, Site, eventually};

/// Longer than any stop here may take, and shorter than any deadline that could end a connection by itself.
const AT_ONCE: Duration = Duration::from_secs(6);
/// The timeout for work that must finish.
const TIMEOUT: Duration = Duration::from_secs(10);

const UPGRADE: &str = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nsaid";

/// The phase of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Nobody,
    /// Accepted, and no byte sent.
    Accepted,
    /// Half of a head.
    Head,
    /// Half of a body.
    Body,
    Handler,
    /// In the writer of a streamed body.
    Streaming,
    /// The response is larger than the client reads.
    Writing,
    /// Another protocol has the connection and waits for its client.
    Upgraded,
    /// Answered just now: the thread waits for the next request.
    Answered,
    /// Answered a while ago: parked, on engines that park connections.
    Idle,
}

const IDLE: [Phase; 4] = [Phase::Nobody, Phase::Accepted, Phase::Answered, Phase::Idle];
const HALF_READ: [Phase; 2] = [Phase::Head, Phase::Body];
const WAITS: [Phase; 2] = [Phase::Writing, Phase::Upgraded];
const BUSY: [Phase; 2] = [Phase::Handler, Phase::Streaming];

/// Returns a client in that phase, as far as a client can see it.
fn client_in(phase: Phase, site: &Site) -> Option<Client> {
    if phase == Phase::Nobody {
        return None;
    }
    let mut client = site.client();
    eventually("it is accepted", || site.running.stats().connections == 1);
    match phase {
        Phase::Nobody | Phase::Accepted => {}
        Phase::Head => client.send("GET / HTTP/1.1\r\nHo"),
        Phase::Body => client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"),
        Phase::Handler => client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"),
        Phase::Streaming => client.send("GET /gate-stream HTTP/1.1\r\nHost: a\r\n\r\n"),
        Phase::Writing => client.send("GET /bytes/50000000 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Phase::Upgraded => client.send(UPGRADE),
        Phase::Answered | Phase::Idle => client.get("/").is(200, "hello"),
    }
    match phase {
        Phase::Handler | Phase::Streaming => site.inside.gate.wait_for(1),
        Phase::Writing => client.wait_for_bytes(),
        Phase::Upgraded => {
            assert_eq!(client.answer_head().status, 101);
            assert_eq!(client.exactly(4), b"said");
        }
        // There is no event to wait for: the thread gives up on the client without a sign.
        Phase::Idle | Phase::Head | Phase::Body => std::thread::sleep(Duration::from_millis(250)),
        Phase::Nobody | Phase::Accepted | Phase::Answered => {}
    }
    Some(client)
}

/// Completes what the client can still complete after the stop has begun.
fn finish(phase: Phase, client: &mut Client, inside: &SiteState) {
    match phase {
        Phase::Head => client.send("st: a\r\n\r\n"),
        Phase::Body => client.send("cd"),
        Phase::Handler | Phase::Streaming => inside.gate.open(),
        _ => {}
    }
}

fn answer_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Head => "hello",
        Phase::Body => "abcd",
        Phase::Handler => "passed",
        Phase::Streaming => "before after",
        _ => "",
    }
}

#[test]
fn a_soft_stop_ends_idle_connections_at_once() {
    for phase in IDLE {
        let site = CASE.start();
        let client = client_in(phase, &site);
        let begun = Instant::now();
        let report = site.running.shutdown(TIMEOUT);
        assert!(report.cut == 0 && report.stuck == 0, "{phase:?}: {report}");
        assert!(begun.elapsed() < AT_ONCE, "{phase:?}: {report}");
        match client {
            Some(mut client) if phase == Phase::Accepted => client.sees_end_before_tls(),
            Some(client) => client.ends(),
            None => {}
        }
    }
}

#[test]
fn a_soft_stop_finishes_requests_in_progress() {
    for phase in HALF_READ.into_iter().chain(BUSY) {
        let site = CASE.start();
        let mut client = client_in(phase, &site).unwrap();
        let Site { running, inside } = site;
        let view = running.status();
        let stop = std::thread::spawn(move || running.shutdown(TIMEOUT));
        eventually("it has begun to stop", || view.is_stopping());
        finish(phase, &mut client, &inside);
        client.answer().is(200, answer_of(phase));
        client.ends();
        let report = stop.join().unwrap();
        assert!(report.drained >= 1 && report.cut == 0 && report.stuck == 0, "{phase:?}: {report}");
    }
}

#[test]
fn a_hard_stop_closes_every_connection_and_does_not_end_handlers() {
    for phase in HALF_READ {
        let site = CASE.start();
        let client = client_in(phase, &site).unwrap();
        let begun = Instant::now();
        let report = site.running.shutdown(Duration::ZERO);
        assert!(report.cut == 1 && report.stuck == 0, "{phase:?}: {report}");
        assert!(begun.elapsed() < AT_ONCE, "{phase:?}: {report}");
        client.rest();
    }
    for phase in WAITS {
        let site = CASE.start();
        let client = client_in(phase, &site).unwrap();
        let begun = Instant::now();
        let report = site.running.shutdown(Duration::ZERO);
        // Another protocol may end by itself before the server cuts it.
        assert!(report.cut + report.drained == 1 && report.stuck == 0, "{phase:?}: {report}");
        assert!(report.cut == 1 || phase == Phase::Upgraded, "{phase:?}: {report}");
        assert!(begun.elapsed() < AT_ONCE, "{phase:?}: {report}");
        client.rest();
    }
    for phase in BUSY {
        let site = CASE.start();
        let client = client_in(phase, &site).unwrap();
        let Site { running, inside } = site;
        let report = running.shutdown(Duration::ZERO);
        assert!(report.cut == 1 && report.stuck == 1, "{phase:?}: {report}");
        inside.gate.open();
        client.rest();
    }
}

#[test]
fn abandon_leaves_only_running_handlers() {
    for phase in IDLE.into_iter().chain(HALF_READ).chain(WAITS) {
        let site = CASE.start();
        let client = client_in(phase, &site);
        let begun = Instant::now();
        assert_eq!(site.running.abandon(), Ok(()), "{phase:?}");
        assert!(begun.elapsed() < AT_ONCE, "{phase:?}");
        if let Some(client) = client {
            client.rest();
        }
    }
    for phase in BUSY {
        let site = CASE.start();
        let client = client_in(phase, &site).unwrap();
        let Site { running, inside } = site;
        let abandoned = running.abandon().unwrap_err();
        let leaks = [("connections still open", 1), ("threads that did not end", 1)];
        assert_eq!(abandoned.leaks(), leaks, "{phase:?}");
        let text = abandoned.to_string();
        assert!(text.contains("1 connections still open") && text.contains("1 threads that"), "{text}");
        inside.gate.open();
        client.rest();
    }
}

/// A thread may stay with its connection for a while in case of another request. The thread must not outlive
/// the server.
#[test]
fn abandon_at_once_after_a_call_that_blocks() {
    for _ in 0..10 {
        let handler = blocks(|_: &mut Request| {
            std::thread::sleep(Duration::from_millis(1));
            "hello"
        });
        let running = CASE.bind("127.0.0.1:0").start(handler).unwrap();
        let mut client = Client::connect(&running);
        client.get("/").is(200, "hello");
        let status = running.status();
        assert_eq!(running.abandon(), Ok(()));
        assert_eq!(status.stats().connections, 0);
        client.rest();
    }
}

#[test]
fn ports_are_free_after_each_way_to_stop() {
    let stops: [fn(Running); 3] = [
        |running| assert_eq!(running.shutdown(TIMEOUT).cut, 0),
        |running| assert_eq!(running.abandon(), Ok(())),
        drop,
    ];
    let mut site = Site::start(CASE.bind_alone());
    let address = site.running.local_addr().unwrap().to_string();
    for stop in stops {
        site.client().get("/").is(200, "hello");
        stop(site.running);
        site = Site::start(CASE.bind(&address));
    }
    site.is_well();
}
