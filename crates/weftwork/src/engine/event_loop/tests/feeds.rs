//! Tests that feeds have a share of each cycle, and that each of them has its turn.

use std::io::Read;
use std::sync::Mutex;

use super::*;
use crate::message::{Feed, FeedLimits, FeedSender};

/// Twice the sends of a cycle, and then some.
const FEEDS: usize = 200;

/// Adds a connection with a feed. Returns the sender and the client.
fn with_feed(lp: &mut EventLoop, cx: &Context, loops: &LoopGroup) -> (FeedSender, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), cx);
    loops.send(0, LoopMessage::Adopt(conn));
    lp.wait(cx, Some(Duration::ZERO));
    let mut active = lp.poll_ready(cx).unwrap();
    let (sender, feed) = Feed::new(FeedLimits::default());
    let feed = Mutex::new(Some(feed));
    let handler = move |_: &mut Request<'_>| Response::feed(feed.lock().unwrap().take().unwrap()).endless();
    let (wait, slot) = (ThreadWait::new(cx), cx.watchdog.call_slot());
    let dates = &mut crate::transport::DateCache::new(lp.now());
    active.conn.run(Call { cx, now: lp.now(), handler: &handler, wait: &wait, dates, slot: &slot });
    assert!(lp.resume(active, cx).is_none(), "it wants another call");
    assert!(lp.poll_ready(cx).is_none());
    let mut head = [0; 1000];
    assert!(theirs.read(&mut head).unwrap() > 0);
    (sender, theirs)
}

/// Sends a large message whenever there is room, without end.
fn refill(sender: FeedSender) {
    while sender.room() {
        let _ = sender.send(&[b'x'; 256 << 10][..]);
    }
    if sender.is_closed() {
        return;
    }
    let again = sender.clone();
    sender.on_room(move || refill(again));
}

#[test]
fn a_feed_without_end_takes_no_turn_of_the_others() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let mut lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let (endless, mut theirs) = with_feed(&mut lp, &cx, &loops);
    let others: Vec<_> = (0..FEEDS).map(|_| with_feed(&mut lp, &cx, &loops)).collect();
    // Its client reads as fast as the loop sends.
    let reader = std::thread::spawn(move || std::io::copy(&mut theirs, &mut std::io::sink()));
    refill(endless.clone());
    for (sender, client) in &others {
        client.set_nonblocking(true).unwrap();
        sender.send("hello").unwrap();
    }
    let got = || others.iter().filter(|(_, client)| (&*client).read(&mut [0; 100]).is_ok()).count();
    let mut served = Vec::new();
    for _ in 0..FEEDS / 64 + 4 {
        lp.wait(&cx, Some(Duration::ZERO));
        assert!(lp.poll_ready(&cx).is_none());
        served.push(got());
    }
    // A batch may be read before the last send is counted.
    assert!(served.iter().all(|count| *count <= 64 + GROUP), "{served:?}");
    assert_eq!(served.iter().sum::<usize>(), FEEDS, "{served:?}");
    endless.cut();
    drop((lp, endless));
    reader.join().unwrap().unwrap_or_default();
}

/// The poller reports the end of the client's side once. The connection has its turn in the same cycle.
#[test]
fn an_event_of_a_feed_that_has_its_turn_is_not_lost() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let mut lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let (_sender, theirs) = with_feed(&mut lp, &cx, &loops);
    let token = lp.table.peek(0).unwrap().0;
    lp.feeds.push(token);
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    lp.wait(&cx, Some(Duration::ZERO));
    assert!(lp.poll_ready(&cx).is_none());
    assert_eq!(lp.table.len(), 0);
}
