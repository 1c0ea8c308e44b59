//! Tests of how connections end: by the peer, by age, by the server's stop, and after an early response.

use std::sync::Mutex;

use super::*;
use crate::message::{Feed, FeedLimits};

#[test]
fn the_end_of_the_peer_ends_an_idle_connection() {
    let mut bed = Bed::new();
    bed.send(GET);
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
    assert!(bed.got().ends_with("hello"));
}

#[test]
fn connections_are_counted_while_they_live() {
    let bed = Bed::new();
    let (counters, watchdog) = (bed.cx.counters.clone(), bed.cx.watchdog.clone());
    assert_eq!(counters.read(&watchdog).connections, 1);
    drop(bed);
    let counts = counters.read(&watchdog);
    assert_eq!((counts.connections, counts.accepted), (0, 1));
}

#[test]
fn a_connection_that_is_too_old_ends_with_its_answer() {
    let mut bed = Bed::new();
    bed.drive();
    bed.now.0 = 3_600_000;
    bed.send(GET);
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
    assert!(bed.got().contains("\r\nConnection: close\r\n"));
}

/// The request may have arrived before the connection is checked.
#[test]
fn a_connection_that_got_too_old_while_idle_ends_with_its_answer() {
    for is_told in [false, true] {
        let mut bed = Bed::new();
        bed.send(GET);
        assert_eq!(bed.drive(), Step::Read);
        assert!(!bed.got().contains("\r\nConnection: close\r\n"));
        if is_told {
            bed.cx.enter(Stage::Draining);
        } else {
            bed.now.0 = 3_600_000;
        }
        bed.send(GET);
        bed.conn.note_ready(false);
        assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Read);
        bed.half_close();
        assert_eq!(bed.drive(), Step::Close);
        assert!(bed.got().contains("\r\nConnection: close\r\n"));
    }
}

/// Bytes after the last request would turn the close into a reset, so they are read and dropped.
#[test]
fn bytes_after_a_closing_answer_are_dropped() {
    let mut bed = Bed::new();
    bed.send(get("/close") + GET);
    assert_eq!(bed.drive(), Step::Read);
    assert!(bed.got().ends_with("last"));
    bed.send(GET);
    assert_eq!(bed.drive(), Step::Read);
    assert_eq!((bed.got().as_str(), bed.calls), ("", 1));
    assert!(bed.conn.buffers.is_none(), "nothing of it is kept");
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
}

/// The bytes may still be in the kernel.
#[test]
fn bytes_that_come_during_the_last_call_are_dropped_too() {
    let mut bed = Bed::new();
    bed.send(get("/close"));
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    bed.send(GET);
    assert_eq!(bed.go_on(), Step::Read);
    assert!(bed.got().ends_with("last"));
    assert_eq!(bed.calls, 1);
}

#[test]
fn a_peer_that_asked_for_the_end_gets_it_at_once() {
    let mut bed = Bed::new();
    bed.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(bed.drive(), Step::Close);
}

/// The end is not sent early if it would become a reset.
#[test]
fn a_peer_that_asked_for_the_end_and_sent_more_is_lingered_for() {
    let mut bed = Bed::new();
    bed.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nmore");
    assert_eq!(bed.drive(), Step::Read);
    assert!(bed.got().ends_with("hello"));
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
}

/// A part of a long response is still in the local kernel after everything is sent, and a reset would drop it.
#[test]
fn a_peer_that_is_sent_much_is_lingered_for() {
    let mut bed = Bed::new();
    bed.send("GET /medium HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(bed.drive(), Step::Read);
    assert!(bed.conn.is_lingering());
    assert!(bed.got().ends_with("xxx"));
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
}

/// The request line is known to the end, although other connections use the buffers meanwhile.
#[test]
fn a_peer_that_may_send_more_is_lingered_for_after_an_idle_feed() {
    for (persists, end) in [(true, Step::Read), (false, Step::Close)] {
        let mut bed = Bed::new();
        let (sender, feed) = Feed::new(FeedLimits::default());
        let feed = Mutex::new(Some(feed));
        let handler =
            move |_: &mut Request| Response::feed(feed.lock().unwrap().take().unwrap()).with_close();
        bed.send(if persists { GET } else { "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" });
        bed.conn.fill(bed.now, &mut bed.pool).unwrap();
        assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
        let now = bed.now;
        bed.call_with(&handler, &InVain { now });
        assert_eq!(bed.go_on(), Step::WaitFeed);
        assert!(bed.conn.buffers.is_none());
        sender.send("last").unwrap();
        drop(sender);
        assert_eq!(bed.go_on(), end);
        assert!(bed.got().contains("last"));
    }
}

/// Chunks do not declare the length of a body.
#[test]
fn unread_input_is_discarded_up_to_a_budget() {
    for (bytes, calls) in [(1000, 2), (1001, 1)] {
        let settings = Settings::default().unread_bytes_max(1000);
        let mut bed = Bed::with(settings.body_ahead_bytes_max(10));
        let size = 10 + bytes;
        bed.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n0123456789"
        ));
        assert_eq!(bed.drive(), Step::Read);
        assert!(bed.got().ends_with("hello"));
        bed.send("x".repeat(bytes));
        assert_eq!(bed.drive(), Step::Read);
        assert!(bed.conn.buffers.as_deref().is_none_or(|buffers| buffers.unread().is_empty()));
        bed.send("\r\n0\r\n\r\n".to_owned() + GET);
        assert_eq!(bed.drive(), Step::Read);
        assert_eq!(bed.calls, calls, "{bytes}");
    }
}

/// Pipelined requests wait for the end of the feed, and so do bytes above the limit.
#[test]
fn input_after_a_feed_is_read_up_to_a_limit() {
    let mut bed = Bed::new();
    let (sender, feed) = Feed::new(FeedLimits::default());
    let feed = Mutex::new(Some(feed));
    let handler = move |_: &mut Request| Response::feed(feed.lock().unwrap().take().unwrap()).endless();
    bed.send(GET);
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let now = bed.now;
    bed.call_with(&handler, &InVain { now });
    for _ in 0..8 {
        // Bytes that the socket does not accept are not sent.
        let _ = bed.peer.write(&[b'x'; 100 << 10]);
        assert_eq!(bed.drive(), Step::WaitFeed);
    }
    let held = bed.conn.buffers.as_deref().map_or(0, |buffers| buffers.unread().len());
    assert!(((16 << 10)..(64 << 10)).contains(&held), "{held}");
    sender.send("news").unwrap();
    assert_eq!(bed.drive(), Step::WaitFeed);
    assert!(bed.got().contains("news"));
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close, "its end stands behind what nobody will read");
}

#[test]
fn lingering_has_a_budget() {
    let mut bed = Bed::with(Settings::default().linger_bytes_max(1000));
    bed.send("bad\r\n\r\n");
    assert_eq!(bed.drive(), Step::Read);
    bed.send(vec![b'x'; 1000]);
    assert_eq!(bed.drive(), Step::Read);
    bed.send("x");
    assert_eq!(bed.drive(), Step::WaitFeed, "the response may not have been read");
    bed.send("x");
    assert_eq!(bed.drive(), Step::WaitFeed);
    assert_eq!((bed.due(), bed.expire()), (2000, Step::Close));
}

/// A reset would destroy the response of a client that has sent all, and has not read yet.
#[test]
fn what_is_before_the_end_is_read_past_the_budget() {
    let mut bed = Bed::with(Settings::default().linger_bytes_max(1000));
    bed.send("bad\r\n\r\n");
    bed.drive();
    bed.send(vec![b'x'; 1001]);
    assert_eq!(bed.drive(), Step::WaitFeed);
    bed.send(vec![b'x'; 50_000]);
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
    let mut rest = Vec::new();
    bed.peer.set_nonblocking(false).unwrap();
    drop(bed.conn);
    bed.peer.read_to_end(&mut rest).expect("no reset");
}

#[test]
fn a_draining_server_ends_connections_after_their_answer() {
    let mut bed = Bed::new();
    bed.send("GET / HT");
    bed.drive();
    bed.cx.enter(Stage::Draining);
    assert_eq!(bed.drive(), Step::Read, "a head that has begun may end");
    bed.send("TP/1.1\r\nHost: a\r\n\r\n");
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
    assert!(bed.got().contains("\r\nConnection: close\r\n"));
}

#[test]
fn a_draining_server_ends_idle_connections() {
    let mut bed = Bed::new();
    bed.send(GET);
    bed.drive();
    bed.cx.enter(Stage::Draining);
    assert_eq!(bed.drive(), Step::Close);
}

/// A connection that was at work may get one more request. It ends when it was idle for the setting.
#[test]
fn a_draining_server_waits_for_one_more_request() {
    let mut bed = Bed::new();
    bed.send(GET);
    bed.drive();
    bed.got();
    bed.now.0 += 400;
    bed.cx.begin_drain(Duration::from_secs(5));
    assert_eq!((bed.drive(), bed.due()), (Step::Read, 600), "1 s after its last byte");
    bed.send(GET);
    assert_eq!(bed.drive(), Step::Read, "it lingers");
    assert!(bed.got().contains("\r\nConnection: close\r\n"));
    let mut bed = Bed::new();
    bed.send(GET);
    bed.drive();
    bed.cx.begin_drain(Duration::from_secs(5));
    bed.drive();
    assert_eq!((bed.expire(), bed.now, bed.cx.stats().timeouts), (Step::Close, Tick(1000), 0));
    let mut bed = Bed::new();
    bed.send(GET);
    bed.drive();
    bed.cx.begin_drain(Duration::from_millis(750));
    assert_eq!((bed.drive(), bed.due()), (Step::Read, 500), "before the time to drain is over");
}

/// The first request may be on its way for a moment after accept. It must not delay the stop for longer.
#[test]
fn a_draining_server_ends_unused_connections() {
    let mut bed = Bed::new();
    bed.cx.enter(Stage::Draining);
    assert_eq!((bed.drive(), bed.conn.deadline(&bed.cx)), (Step::Read, Tick(250)));
    bed.expire();
    assert_eq!((bed.drive(), bed.cx.stats().timeouts), (Step::Close, 0));
    let mut bed = Bed::new();
    bed.now = Tick(1000);
    bed.cx.enter(Stage::Draining);
    assert_eq!(bed.drive(), Step::Close);
    let mut bed = Bed::new();
    bed.send(GET);
    bed.cx.enter(Stage::Draining);
    bed.half_close();
    assert_eq!(bed.drive(), Step::Close);
    assert!(bed.got().contains("\r\nConnection: close\r\n"), "one that has brought a request is answered");
}

#[test]
fn a_timeout_and_a_fault_are_counted() {
    let mut bed = Bed::new();
    bed.send("G");
    bed.drive();
    bed.expire();
    assert_eq!((bed.cx.stats().timeouts, bed.cx.stats().faults), (1, 0));
    let mut bed = Bed::new();
    bed.send("bad\r\n\r\n");
    bed.drive();
    assert_eq!((bed.cx.stats().timeouts, bed.cx.stats().faults), (0, 1));
}

/// If no thread is free for a provided response, a refusal replaces it, and nothing waits behind the refusal.
#[test]
fn a_deferred_response_may_find_no_free_thread() {
    let mut bed = Bed::new();
    let hour = std::time::Duration::from_secs(3600);
    let handler = move |_: &mut Request<'_>| Response::text("at last").with_delay(hour);
    bed.send(GET);
    super::waits::until_call(&mut bed);
    let now = bed.now;
    bed.call_with(&handler, &InVain { now });
    assert_eq!(bed.go_on(), Step::WaitFeed);
    bed.conn.refuse_overload(&bed.cx);
    assert_eq!(bed.conn.step(now, &bed.cx), Step::Write);
    assert_eq!(bed.conn.flush(now).unwrap(), Flushed::All);
    assert_eq!(bed.conn.step(now, &bed.cx), Step::Read, "a loop would send nothing, again and again");
    assert!(bed.conn.is_lingering());
    assert!(bed.got().starts_with("HTTP/1.1 503 "));
}
