//! Tests of the heartbeats of a feed.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};

use bytes::Bytes;
use http::HeaderValue;

use super::waits::until_call;
use super::*;
use crate::message::{Feed, FeedLimits, FeedSender, UpgradeHandler};

const BEAT: u64 = 15_000;
const TALK: HeaderValue = HeaderValue::from_static("talk");

/// Another protocol, which accepts all bytes.
struct Takes;

impl UpgradeHandler for Takes {
    fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
}

/// A protocol that never consumes its bytes, and counts its calls.
struct ServerStats(Arc<AtomicUsize>);

impl UpgradeHandler for ServerStats {
    fn on_data(&mut self, _: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(0)
    }
}

/// A protocol that has room once.
struct FailsAfterData(bool);

impl UpgradeHandler for FailsAfterData {
    fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = true;
        Ok(bytes.len())
    }

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(if self.0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) })
    }
}

/// A connection with a small kernel buffer that waits for its feed. The feed is the body of its response, or the
/// connection speaks another protocol.
fn fed(is_body: bool) -> (Bed, FeedSender) {
    fed_with(move |feed| match is_body {
        true => Response::feed(feed),
        false => Response::upgrade_fed(TALK, feed, Takes),
    })
}

fn fed_with(response: impl Fn(Feed) -> Response + Send + Sync + 'static) -> (Bed, FeedSender) {
    let mut bed = Bed::narrow();
    let (sender, feed) = Feed::new(FeedLimits::default());
    let feed = Mutex::new(Some(feed.with_heartbeat(Bytes::from("beat"))));
    let handler = move |_: &mut Request| response(feed.lock().unwrap().take().unwrap());
    bed.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: talk\r\n\r\n");
    until_call(&mut bed);
    let now = bed.now;
    bed.call_with(&handler, &InVain { now });
    assert_eq!((bed.go_on(), bed.due()), (Step::WaitFeed, BEAT));
    bed.got();
    (bed, sender)
}

/// For a client that only reads, any sent byte shows that the server is alive. A client that also sends must be asked,
/// however much is sent to it. Only its own bytes show that it is alive.
#[test]
fn a_message_delays_the_heartbeat_if_no_reply_is_expected() {
    for (is_body, due) in [(true, BEAT), (false, BEAT - 5_000)] {
        let (mut bed, sender) = fed(is_body);
        bed.now.0 += 5_000;
        sender.send("news").unwrap();
        assert_eq!((bed.go_on(), bed.due()), (Step::WaitFeed, due));
        assert!(bed.got().contains("news"));
        bed.send("x");
        assert_eq!((bed.drive(), bed.due()), (Step::WaitFeed, BEAT));
    }
}

/// A line without an end would be searched again for each message of other threads.
#[test]
fn data_left_by_a_receiver_is_delivered_again_only_with_more_data() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = calls.clone();
    let (mut bed, sender) =
        fed_with(move |feed| Response::upgrade_fed(TALK, feed, ServerStats(counts.clone())));
    for times in 1..=3 {
        bed.send("x");
        assert_eq!(bed.drive(), Step::WaitFeed);
        sender.send("news").unwrap();
        assert_eq!((bed.go_on(), bed.drive()), (Step::WaitFeed, Step::WaitFeed));
        assert!(bed.got().contains("news"));
        assert_eq!(calls.load(Ordering::Relaxed), times);
    }
}

#[test]
fn a_receiver_that_will_have_no_room_is_disconnected() {
    let (mut bed, _sender) = fed_with(|feed| Response::upgrade_fed(TALK, feed, FailsAfterData(false)));
    bed.send("x");
    assert_eq!(bed.drive(), Step::Close);
}

/// The connection would stay forever. Sent bytes do not show that the peer is alive, and received bytes restart the
/// time.
#[test]
fn an_upgraded_peer_that_sends_nothing_times_out() {
    let (mut bed, sender) = fed(false);
    for says in [true, false] {
        let mut beats = 0;
        while beats < 39 {
            assert_eq!(bed.expire(), Step::WaitFeed, "{says} {beats}");
            sender.send("news").unwrap();
            assert_eq!(bed.go_on(), Step::WaitFeed);
            bed.got();
            beats += 1;
        }
        if says {
            bed.send("x");
            assert_eq!(bed.drive(), Step::WaitFeed);
        }
    }
    assert_eq!(bed.expire(), Step::Close, "ten minutes are over");
}

/// A loop checks a feed for many reasons.
#[test]
fn an_empty_poll_does_not_delay_the_heartbeat() {
    for is_body in [true, false] {
        let (mut bed, _sender) = fed(is_body);
        bed.now.0 += 5_000;
        assert_eq!((bed.drive(), bed.due()), (Step::WaitFeed, BEAT - 5_000));
        assert_eq!(bed.expire(), Step::WaitFeed);
        assert_eq!((bed.due(), bed.got().contains("beat")), (BEAT, true));
    }
}

/// A client that was slow once does not keep that time when it is idle later.
#[test]
fn after_a_slow_read_the_heartbeat_is_due_as_usual() {
    for is_body in [true, false] {
        let (mut bed, sender) = fed(is_body);
        sender.send(vec![b'x'; 50_000]).unwrap();
        bed.now.0 += 5_000;
        assert_eq!(bed.go_on(), Step::Write);
        while bed.go_on() == Step::Write {
            bed.got();
        }
        assert_eq!((bed.go_on(), bed.due()), (Step::WaitFeed, BEAT));
    }
}
