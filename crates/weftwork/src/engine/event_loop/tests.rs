//! Tests that a loop does its other work, no matter what other threads send.

mod feeds;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Poll, Token};

use super::*;
use crate::conn::{Call, Conn};
use crate::engine::testing::burst;
use crate::engine::thread_wait::ThreadWait;
use crate::message::{Request, Response};
use crate::settings::Settings;
use crate::transport::address::Address;

fn group_of_one() -> (Arc<LoopGroup>, Poll) {
    let polls = [Poll::new().unwrap()];
    let loops = LoopGroup::new(&polls).unwrap();
    let [poll] = polls;
    (loops, poll)
}

/// The inbox is swapped once a cycle. Later messages wait for the next cycle, and the poller is checked in between.
#[test]
fn endless_messages_do_not_starve_the_poller() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let mut lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let send = || loops.send(0, LoopMessage::Wake(Token(7)));
    let begun = Instant::now();
    for _ in 0..3 {
        send();
        lp.wait(&cx, Some(Duration::from_secs(60)));
        assert!(!lp.messages.is_empty());
        send();
        assert!(lp.poll_ready(&cx).is_none());
        assert!(lp.messages.is_empty(), "the second one waits for the next cycle");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "it slept with messages in its inbox");
}

/// A connection that is sent to an ended loop ends.
#[test]
fn messages_after_the_end_are_dropped() {
    let cx = Context::new(Settings::default().connections_max(9)).unwrap();
    let (loops, poll) = group_of_one();
    let lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let bring = || {
        let (ours, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), &cx);
        loops.send(0, LoopMessage::Adopt(conn));
    };
    let open = || cx.stats().connections;
    bring();
    assert_eq!(open(), 1);
    drop(lp);
    assert_eq!(open(), 0);
    bring();
    assert_eq!(open(), 0);
}

/// A new socket is writable from its start, which must not be an event.
#[test]
fn a_writable_idle_connection_is_no_event() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let mut lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), &cx);
    loops.send(0, LoopMessage::Adopt(conn));
    lp.wait(&cx, Some(Duration::ZERO));
    assert!(lp.poll_ready(&cx).is_none());
    assert_eq!(lp.table.len(), 1);
    lp.wait(&cx, Some(Duration::ZERO));
    assert!(lp.batch.is_empty(), "{:?}", lp.batch);
    theirs.write_all(b"G").unwrap();
    lp.wait(&cx, Some(Duration::from_secs(60)));
    assert_eq!(lp.batch.len(), 1);
}

/// A handler may block the loop that knows of a waiting connection while a slot becomes free. So another loop checks
/// the listeners, too.
#[test]
fn a_loop_that_is_asked_to_close_idle_also_accepts() {
    let cx = Context::new(Settings::default().connections_max(9)).unwrap();
    let listener = burst::listener(8);
    let listeners = Arc::new(vec![listener]);
    let polls = [Poll::new().unwrap(), Poll::new().unwrap()];
    let group = LoopGroup::new(&polls).unwrap();
    let now = cx.clock.now();
    let mut loops = Vec::new();
    for (index, poll) in polls.into_iter().enumerate() {
        loops.push(EventLoop::new(index, poll, &group, listeners.clone(), now).unwrap());
    }
    let is_asked = || [0, 1].map(|index| group.handle(index).close_idle_wanted());
    for _ in 0..2 {
        group.request_close_idle(0);
        assert_eq!(is_asked(), [false, true]);
        assert_eq!(loops[1].acceptor.retry(now), None);
        // The loop does not sleep with a pending request.
        loops[1].wait(&cx, None);
        assert_eq!(is_asked(), [false, false]);
        assert!(loops[1].acceptor.retry(now).is_some());
        assert!(loops[1].poll_ready(&cx).is_none(), "nobody is there");
        assert_eq!(loops[1].acceptor.retry(now), None);
    }
}

/// A message between loops costs more than a request, so a connection with a single request does not move.
#[test]
fn a_kept_connection_moves_to_the_loop_with_the_fewest() {
    for (request, at_home) in [("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 6), ("GET / HTTP/1.0\r\n\r\n", 8)] {
        let cx = Context::new(Settings::default()).unwrap();
        let polls = [Poll::new().unwrap(), Poll::new().unwrap()];
        let loops = LoopGroup::new(&polls).unwrap();
        let mut clients = Vec::new();
        let mut calls = polls.into_iter().enumerate().map(|(index, poll)| {
            let mut lp = EventLoop::new(index, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
            for _ in 0..if index == 0 { 8 } else { 0 } {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                theirs.write_all(request.as_bytes()).unwrap();
                let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), &cx);
                loops.send(0, LoopMessage::Adopt(conn));
                clients.push(theirs);
            }
            lp.wait(&cx, Some(Duration::ZERO));
            std::iter::from_fn(|| lp.poll_ready(&cx)).collect::<Vec<_>>()
        });
        let calls = [calls.next().unwrap(), calls.next().unwrap()];
        assert_eq!(calls.each_ref().map(Vec::len), [at_home, 8 - at_home], "{request}");
        assert!(calls[1].iter().all(|active| active.conn.owner.loop_index == 1));
    }
}

/// Streams that end with their connection are spread over the loops.
#[test]
fn many_connections_do_not_all_stay_on_one_loop() {
    let cx = Context::new(Settings::default().connections_max(1000).accepted_max(1000)).unwrap();
    let listener = burst::listener(128);
    let Address::Tcp(address) = listener.address().clone() else { panic!("not a TCP address") };
    let polls = [Poll::new().unwrap(), Poll::new().unwrap()];
    let loops = LoopGroup::new(&polls).unwrap();
    let [poll, _other] = polls;
    let mut lp = EventLoop::new(0, poll, &loops, Arc::new(vec![listener]), cx.clock.now()).unwrap();
    let clients: Vec<_> =
        (0..UNEVEN_AT_ACCEPT_MAX + 6).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let mut moved = Vec::new();
    while lp.table.len() + moved.len() < clients.len() {
        lp.wait(&cx, Some(Duration::from_secs(60)));
        assert!(lp.poll_ready(&cx).is_none(), "nobody has asked");
        let mut messages = Vec::new();
        loops.handle(1).inbox.take_all(&mut messages);
        moved.extend(messages);
    }
    assert_eq!((lp.table.len(), moved.len()), (UNEVEN_AT_ACCEPT_MAX + 3, 3));
}

const HOUR: Duration = Duration::from_secs(3600);

/// Creates a loop with one connection, whose response is due in an hour.
fn with_delayed(cx: &Context, loops: &Arc<LoopGroup>, poll: Poll) -> (EventLoop, UnixStream) {
    let handler = |_: &mut Request<'_>| Response::text("at last").with_delay(HOUR);
    let (mut lp, mut active, theirs) = with_request(cx, loops, poll);
    let (wait, slot) = (ThreadWait::new(cx), cx.watchdog.call_slot());
    let dates = &mut crate::transport::DateCache::new(lp.now());
    active.conn.run(Call { cx, now: lp.now(), handler: &handler, wait: &wait, dates, slot: &slot });
    assert!(lp.resume(active, cx).is_none(), "it wants another call");
    (lp, theirs)
}

/// Creates a loop with one connection, which has a request.
fn with_request(cx: &Context, loops: &Arc<LoopGroup>, poll: Poll) -> (EventLoop, ActiveConn, UnixStream) {
    let mut lp = EventLoop::new(0, poll, loops, Arc::default(), cx.clock.now()).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), cx);
    loops.send(0, LoopMessage::Adopt(conn));
    lp.wait(cx, Some(Duration::ZERO));
    let active = lp.poll_ready(cx).unwrap();
    (lp, active, theirs)
}

#[test]
fn a_panic_frees_the_slot() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let (mut lp, mut active, _theirs) = with_request(&cx, &loops, poll);
    let bug = catch_unwind(AssertUnwindSafe(|| active.guarded(&loops, |_| panic!("as asked"))));
    drop(active);
    assert!(bug.is_err() && lp.table.len() == 1 && cx.stats().connections == 0);
    lp.wait(&cx, Some(Duration::from_secs(60)));
    assert!(lp.poll_ready(&cx).is_none());
    assert_eq!(lp.table.len(), 0);
}

/// The timer fires within the millisecond in which it is due. At that moment, the connection is out because its
/// client has sent something.
#[test]
fn a_timer_fires_for_a_connection_that_is_out() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let (mut lp, mut theirs) = with_delayed(&cx, &loops, poll);
    theirs.write_all(b"G").unwrap();
    lp.wait(&cx, Some(Duration::from_secs(60)));
    lp.moment = lp.timers.first().unwrap();
    lp.now = cx.clock.at(lp.moment);
    let called = lp.poll_ready(&cx).or_else(|| {
        lp.wait(&cx, Some(Duration::ZERO));
        lp.poll_ready(&cx)
    });
    assert!(called.is_some(), "nobody will look at it any more");
}

/// The work of a loop since its last look at the clock does not count as its wait.
#[test]
fn a_timer_fires_in_time_after_a_long_cycle() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let (mut lp, _theirs) = with_delayed(&cx, &loops, poll);
    let due = Instant::now() + Duration::from_millis(1);
    lp.timers.set(due, Token(usize::MAX), &lp.table);
    lp.moment = due.checked_sub(Duration::from_secs(5)).unwrap();
    lp.wait(&cx, Some(Duration::from_secs(60)));
    assert!(due.elapsed() < Duration::from_secs(3), "{:?} late", due.elapsed());
}

/// The loop has waited for a leader for longer than the timeout of the client, whose bytes arrived in time.
#[test]
fn input_that_a_loop_has_not_read_yet_is_in_time() {
    is_served_in_time(|lp, loops, cx, conn, asks| {
        loops.send(0, LoopMessage::Adopt(conn));
        assert!(lp.poll_ready(cx).is_none());
        asks();
        lp.refresh(cx);
    });
}

/// The connection was served elsewhere, where all available bytes were read.
#[test]
fn input_during_the_return_to_the_loop_is_in_time() {
    is_served_in_time(|lp, loops, cx, mut conn, asks| {
        assert!(conn.fill(cx.clock.now(), &mut BufferPool::alone()).is_err(), "nothing is there");
        asks();
        loops.send(0, LoopMessage::Adopt(conn));
        lp.wait(cx, Some(Duration::from_secs(60)));
    });
}

/// The client has 200 ms for a head, and its request arrives 400 ms before the loop runs again. The connection does
/// not end, and the next look at the poller finds the request.
#[track_caller]
fn is_served_in_time(
    until_then: impl FnOnce(&mut EventLoop, &LoopGroup, &Context, Box<Conn>, &mut dyn FnMut()),
) {
    let cx = Context::new(Settings::default().head_timeout(Duration::from_millis(200))).unwrap();
    let (loops, poll) = group_of_one();
    let mut lp = EventLoop::new(0, poll, &loops, Arc::default(), cx.clock.now()).unwrap();
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), &cx);
    until_then(&mut lp, &loops, &cx, conn, &mut || {
        theirs.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(400));
    });
    assert!(lp.poll_ready(&cx).is_none() && cx.stats().connections == 1, "it has ended");
    lp.wait(&cx, Some(Duration::from_secs(60)));
    assert!(lp.poll_ready(&cx).is_some(), "it asks");
}

/// If the handler of a loop blocks, the loop has the fewest connections for as long as that lasts.
#[test]
fn a_stuck_loop_gets_a_bounded_number_of_connections() {
    let loops = LoopGroup::new(&[Poll::new().unwrap(), Poll::new().unwrap()]).unwrap();
    loops.note_load(1, 0);
    let given = || (0..100).filter(|_| loops.less_loaded(0, 1000, 1) == Some(1)).count();
    let most = given();
    assert!((1..100).contains(&most), "{most}");
    assert_eq!(given(), 0);
    loops.note_load(1, most);
    assert_eq!(given(), most, "it gets on");
}

/// The connections that the stuck loop does not get go to the loop with the fewest of the others.
#[test]
fn a_stuck_loop_does_not_keep_connections_from_the_others() {
    let loops = LoopGroup::new(&[(); 3].map(|()| Poll::new().unwrap())).unwrap();
    loops.note_load(2, 500);
    let first = (0..100).find(|_| loops.less_loaded(0, 1000, 1) != Some(1));
    assert!(first.is_some());
    assert_eq!(loops.less_loaded(0, 1000, 1), Some(2));
}
