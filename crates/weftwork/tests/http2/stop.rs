//! Tests that the end of a connection loses no request.

use std::time::Duration;

use weftwork_wire::{ErrorCode, Http2Settings};

#[cfg(feature = "metrics")]
use super::observed::page_of;
use super::{CASE, Waits};
use crate::support::{ANNOUNCED, Http2Client, TIMEOUT, eventually, noise};

/// The first GOAWAY takes no request away: what is on its way is answered.
#[test]
fn a_stop_answers_what_is_on_its_way() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    client.answers_pings = false;
    let upload = client.request("POST", "/echo-any", &[], false);
    client.send_data(upload, b"first ", false);
    client.ping();
    let inside = site.inside.clone();
    let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    client.wait_for_goaways(1);
    assert_eq!(client.goaways, [(ANNOUNCED, ErrorCode::NO_ERROR)]);
    // It was sent before the client read GOAWAY.
    let late = client.get("/bytes/100000");
    client.answer(late).is(200, noise(100_000));
    assert_eq!(client.goaways.len(), 1);
    client.wait("a PING", |client| !client.pings.is_empty());
    let ping = client.pings[0];
    let mut ack = Vec::new();
    weftwork_wire::Http2::write_ping_ack(ping, &mut ack);
    client.send(&ack);
    client.wait_for_goaways(2);
    assert_eq!(client.goaways[1], (late, ErrorCode::NO_ERROR));
    let refused = client.get("/");
    client.send_data(upload, b"second", true);
    client.answer(upload).is(200, "first second");
    assert_eq!(client.reset_of(refused).unwrap_or(ErrorCode::REFUSED_STREAM), ErrorCode::REFUSED_STREAM);
    client.ends();
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
    drop(inside);
}

/// HAProxy fails the first request of a connection if GOAWAY comes before that request.
#[test]
fn a_new_connection_has_a_request_during_the_drain_delay() {
    let site = CASE.site_with(|settings| settings.drain_delay(Duration::from_secs(2)));
    let (status, addresses) = (site.running.status(), site.running.addresses().to_vec());
    let mut old = Http2Client::connect(&site.running);
    let stream = old.get("/");
    old.answer(stream).is(200, "hello");
    let mut unused = Http2Client::connect(&site.running);
    unused.ping();
    let running = site.running;
    let stop = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("it is told", || status.is_stopping());
    let mut silent = Http2Client::connect_at(&addresses[0], &Http2Settings::default());
    let mut new = Http2Client::connect_at(&addresses[0], &Http2Settings::default());
    for client in [&mut new, &mut unused] {
        client.ping();
        assert_eq!(client.goaways, []);
        let stream = client.get("/stopping");
        client.answer(stream).is(200, "true");
        client.ends();
        assert_eq!(client.goaways.len(), 2);
    }
    // The others end with the server.
    silent.ends();
    old.ends();
    let report = stop.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
    assert!(report.took < TIMEOUT, "{report}");
}

#[test]
fn a_stop_waits_for_handlers() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let blocked = client.get_all((0..10).map(|_| gate));
    site.inside.gate.wait_for(10);
    let inside = site.inside.clone();
    let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    client.wait_for_goaways(2);
    inside.gate.open();
    blocked.into_iter().for_each(|stream| client.answer(stream).is(200, "passed"));
    client.ends();
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
}

/// A request counts until its handler is done, as a connection of HTTP/1.1 does.
#[test]
fn a_stop_waits_for_a_handler_whose_client_has_left() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    client.get(gate);
    site.inside.gate.wait_for(1);
    eventually("its connection waits", || site.running.stats().http2_streams == 1);
    client.vanish();
    eventually("its connection is gone", || site.running.stats().http2_streams == 0);
    assert_eq!(site.running.stats().connections, 1);
    let (inside, status) = (site.inside.clone(), site.running.status());
    let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    eventually("it is told", || status.is_stopping());
    inside.gate.open();
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
}

/// The client may send those requests again (RFC 9113 section 8.7).
#[test]
fn requests_that_no_handler_has_seen_are_refused_at_the_end() {
    let site = CASE.site_with(|settings| settings.threads_max(4).standby_kept(1));
    let mut client = Http2Client::connect(&site.running);
    let mut begun = client.get_all(CASE.gate().map(|gate| [gate; 10]).into_iter().flatten());
    // Each loop has a thread, and may have one more.
    site.inside.gate.wait_for(begun.len().min(2));
    let upload = client.request("POST", "/echo", &[("content-length", "10")], false);
    client.send_data(upload, b"half ", false);
    client.ping();
    let report = site.running.shutdown(Duration::from_millis(300));
    assert_eq!(report.cut, 1, "{report}");
    client.ends();
    assert_eq!(client.reset_of(upload), Some(ErrorCode::REFUSED_STREAM));
    begun.retain(|stream| client.reset_of(*stream) == Some(ErrorCode::CANCEL));
    let refused = |stream: u32| client.reset_of(stream) == Some(ErrorCode::REFUSED_STREAM);
    assert!((1..upload).step_by(2).all(|stream| begun.contains(&stream) || refused(stream)));
    // In other engines, handlers wait for a thread after they have begun.
    if CASE.waits == Waits::Anyhow {
        assert_eq!(site.inside.gate.inside(), begun.len(), "{begun:?}");
        assert!(begun.len() < 10, "{begun:?}");
    }
    assert_eq!(client.goaways.last(), Some(&(upload, ErrorCode::NO_ERROR)));
    site.inside.gate.open();
}

#[test]
fn an_idle_connection_ends_with_the_server() {
    let site = CASE.site();
    let mut clients: Vec<_> = (0..4).map(|_| Http2Client::connect(&site.running)).collect();
    for client in &mut clients {
        let stream = client.get("/");
        client.answer(stream).is(200, "hello");
    }
    let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    for mut client in clients {
        client.ends();
        assert!(client.goaways.iter().all(|(_, code)| *code == ErrorCode::NO_ERROR), "{:?}", client.goaways);
    }
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (4, 0, 0), "{report}");
    assert!(report.took < TIMEOUT, "{report}");
}

/// What has no end in time is cut.
#[test]
fn a_stop_ends_in_time() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let _upload = client.request("POST", "/echo-any", &[("expect", "100-continue")], false);
    client.ping();
    let report = site.running.shutdown(Duration::from_millis(300));
    assert_eq!((report.cut, report.stuck), (1, 0), "{report}");
}

/// A client that has its responses, and has not answered the PING behind GOAWAY, loses nothing.
#[test]
fn a_connection_without_requests_is_not_cut() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.get("/");
    client.answer(stream).is(200, "hello");
    let report = site.running.shutdown(Duration::from_millis(300));
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
    client.ends();
    assert_eq!(client.goaways, [(ANNOUNCED, ErrorCode::NO_ERROR), (stream, ErrorCode::NO_ERROR)]);
}

#[test]
fn a_response_may_end_its_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let sibling = client.request("POST", "/echo-any", &[], false);
    let last = client.get("/close");
    client.answer(last).is(200, "last");
    client.wait_for_goaways(2);
    client.send_data(sibling, b"goes on", true);
    client.answer(sibling).is(200, "goes on");
    client.ends();
    eventually("it has ended", || site.running.stats().connections == 0);
}

#[test]
fn an_idle_connection_ends() {
    let site = CASE.site_with(|settings| settings.idle_timeout(Duration::from_millis(200)));
    let mut client = Http2Client::connect(&site.running);
    let stream = client.get("/");
    client.answer(stream).is(200, "hello");
    client.ends();
    assert_eq!(client.goaways.last(), Some(&(stream, ErrorCode::NO_ERROR)));
    eventually("it has ended", || site.running.stats().connections == 0);
}

/// So a client that keeps its connection for later keeps no other client out.
#[test]
fn an_idle_connection_makes_room_at_the_limit() {
    let site = CASE.site_with(|settings| settings.connections_max(2));
    let mut idle: Vec<_> = (0..2).map(|_| Http2Client::connect(&site.running)).collect();
    for client in &mut idle {
        let stream = client.get("/");
        client.answer(stream).is(200, "hello");
    }
    let mut next = Http2Client::connect(&site.running);
    let closed = std::thread::spawn(move || idle.iter_mut().for_each(Http2Client::ends));
    let stream = next.get("/");
    next.answer(stream).is(200, "hello");
    drop(next);
    drop(site);
    closed.join().unwrap();
}

#[test]
fn a_connection_ends_at_its_age() {
    let site = CASE.site_with(|settings| settings.age_max(Duration::from_millis(200)));
    let mut client = Http2Client::connect(&site.running);
    client.wait_for_goaways(2);
    client.ends();
}

/// A client that has vanished without an end of its connection is found by PING.
#[test]
fn a_client_that_answers_no_ping_is_gone() {
    let site = CASE.site_with(|settings| settings.heartbeat(Duration::from_millis(100)));
    let mut client = Http2Client::connect(&site.running);
    client.answers_pings = false;
    let _upload = client.request("POST", "/echo-any", &[], false);
    client.ends();
    assert!(!client.pings.is_empty());
    eventually("it has ended", || site.running.stats().connections == 0);
}

/// RFC 9113 section 6.8: a client may have sent the requests behind the last stream again already.
#[test]
fn no_goaway_names_a_higher_stream_than_the_one_before() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let upload = client.request("POST", "/echo-any", &[], false);
    client.ping();
    let inside = site.inside.clone();
    let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
    client.wait_for_goaways(2);
    let refused = client.get("/");
    assert_eq!(client.wait_for_reset(refused), ErrorCode::REFUSED_STREAM);
    client.grant(0, 0);
    client.wait_for_goaways(3);
    assert_eq!(client.goaways[2], (upload, ErrorCode::PROTOCOL_ERROR));
    client.ends();
    stop.join().unwrap();
    drop(inside);
}

/// The client reads slowly, and confirms what it has read. If the server closed its socket meanwhile, the kernel would answer
/// with a reset, and the rest of the response would be lost.
#[cfg(feature = "metrics")]
#[test]
fn a_slow_client_gets_the_end_of_its_response() {
    // Fits in the buffers of the kernel.
    const LENGTH: usize = 1 << 20;
    for after_first_ping in [LENGTH, 20_000] {
        let site = CASE.site_with(|settings| settings.linger_timeout(Duration::from_millis(50)));
        let settings = Http2Settings { window: (LENGTH - after_first_ping) as u32, ..Http2Settings::default() };
        let mut client = Http2Client::connect_with(&site.running, &settings);
        (client.grants, client.read_bytes) = (false, 4 << 10);
        client.grant(0, LENGTH as u32);
        let stream = client.get(&format!("/bytes/{LENGTH}"));
        client.wait_for_head(stream);
        let status = site.running.status();
        let inside = site.inside.clone();
        let stop = std::thread::spawn(move || site.running.shutdown(TIMEOUT));
        eventually("it is told", || status.is_stopping());
        // Everything is sent, and the client has read next to nothing of it.
        client.grant(stream, LENGTH as u32);
        let lingers = "weftwork_connections{state=\"lingering\"} 1\n";
        eventually("the connection lingers", || page_of(status.clone()).contains(lingers));
        std::thread::sleep(Duration::from_millis(100));
        while !client.has_answer(stream) {
            let before = client.received(stream);
            client.wait_for_bytes(stream, before + 1);
            client.grant(0, 1000);
        }
        client.answer(stream).is(200, noise(LENGTH));
        client.ends();
        let report = stop.join().unwrap();
        assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
        drop(inside);
    }
}

/// A connection that only waits for its client hides no other one from the report.
#[test]
fn a_response_that_is_cut_is_counted_beside_a_connection_that_lingers() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site();
    let mut cut = Http2Client::connect(&site.running);
    cut.get(gate);
    site.inside.gate.wait_for(1);
    let mut lingers = Http2Client::connect(&site.running);
    let stream = lingers.get("/");
    lingers.answer(stream).is(200, "hello");
    let inside = site.inside.clone();
    let stop = std::thread::spawn(move || site.running.shutdown(Duration::from_secs(1)));
    // The client reads the end of the connection, and does not close its socket.
    lingers.wait_for_goaways(2);
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 1), "{report}");
    inside.gate.open();
    drop((cut, lingers));
}
