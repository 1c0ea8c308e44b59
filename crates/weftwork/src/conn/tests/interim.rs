//! Tests that a client that does not read an interim response counts as gone, whatever its handler does then.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::waits::{Peer, until_call};
use super::*;
use crate::message::{Feed, FeedLimits, UpgradeHandler};

const WRITE: u64 = 30_000;
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: talk\r\n\r\n";
const TALK: HeaderValue = HeaderValue::from_static("talk");

/// A connection with a small kernel buffer, on which a request has arrived. The previous response fills the buffer.
fn bed() -> Bed {
    let mut bed = Bed::narrow();
    bed.send(get("/medium") + ASK);
    until_call(&mut bed);
    bed.call();
    until_call(&mut bed);
    bed
}

fn hint(req: &mut Request) -> io::Result<()> {
    req.interim(StatusCode::EARLY_HINTS, &[])
}

/// Another protocol, which accepts all bytes.
struct Takes;

impl UpgradeHandler for Takes {
    fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
}

fn feed() -> Feed {
    Feed::new(FeedLimits::default()).1.with_heartbeat(Bytes::from("beat"))
}

/// The handler may ignore errors, as the proxy does.
#[test]
fn interim_responses_share_one_write_timeout() {
    let mut bed = bed();
    let peer = Peer::new(&bed, std::iter::empty());
    let handler = |req: &mut Request| -> Response {
        assert_eq!(hint(req).unwrap_err().kind(), ErrorKind::TimedOut);
        for _ in 0..1000 {
            assert_eq!(hint(req).unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        Response::text("late")
    };
    bed.call_with(&handler, &peer);
    assert_eq!((bed.now.0, bed.cx.stats().timeouts, bed.cx.stats().panics), (WRITE, 1, 0));
    let held = bed.conn.buffers.as_deref().map_or(0, |buffers| buffers.output.len());
    assert!(held < 16 << 10, "{held} bytes wait for nobody");
    assert_eq!(bed.go_on(), Step::Close);
}

/// A long-lived response does not wait again, and a client that reads by now is too late.
#[test]
fn what_would_have_lasted_does_not_begin() {
    type Answer = fn() -> Response;
    let answers: [(&str, Answer); 3] = [
        ("a feed", || Response::feed(feed())),
        ("an upgrade", || Response::upgrade(TALK, |_| Ok(()))),
        ("an upgrade that is fed", || Response::upgrade_fed(TALK, feed(), Takes)),
    ];
    for (what, answer) in answers {
        let mut bed = bed();
        let peer = Peer::new(&bed, std::iter::empty());
        let handler = move |req: &mut Request| -> Response {
            hint(req).unwrap_err();
            answer()
        };
        bed.call_with(&handler, &peer);
        bed.got();
        assert_eq!(bed.go_on(), Step::Close, "{what}");
        assert_eq!(bed.cx.stats().timeouts, 1, "{what}");
        assert_eq!(bed.got(), "", "{what}");
    }
}

/// If even 100 is not read, no 500 replaces the streamed response.
#[test]
fn a_peer_that_does_not_read_100_continue_gets_no_500() {
    let mut bed = Bed::narrow();
    bed.send(
        get("/medium") + "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    );
    until_call(&mut bed);
    bed.call();
    until_call(&mut bed);
    let peer = Peer::new(&bed, std::iter::empty());
    let handler =
        |_: &mut Request| -> Response { Response::stream(|out| out.read_request(&mut [0; 4]).map(drop)) };
    bed.call_with(&handler, &peer);
    let held = bed.conn.buffers.as_deref().map_or(&[][..], |buffers| &buffers.output);
    assert!(!String::from_utf8_lossy(held).contains(" 500 "), "{}", held.escape_ascii());
    assert_eq!(bed.go_on(), Step::Close);
}
