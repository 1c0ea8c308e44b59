//! Tests that a loop gets to its other work whatever other threads send it.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Poll, Token};

use super::*;
use crate::conn::{Call, Conn};
use crate::engine::testing::client::panics_when_sent;
use crate::engine::thread_wait::ThreadWait;
use crate::message::{Handler, Request, Response};
use crate::settings::Settings;
use crate::transport::address::Address;

fn group_of_one() -> (Arc<LoopGroup>, Poll) {
    let polls = [Poll::new().unwrap()];
    let loops = LoopGroup::new(&polls).unwrap();
    let [poll] = polls;
    (loops, poll)
}

/// One swap of the inbox a cycle: what comes meanwhile waits for the next cycle, and the poller has its turn between.
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

/// A connection that is brought to a loop that has ended ends with it.
#[test]
fn what_comes_after_the_end_is_dropped() {
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

/// A socket has room from its start on: that is no news.
#[test]
fn a_connection_with_nothing_to_say_is_no_event() {
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

/// Who is told of a visitor may be held up by a handler while a place gets free: another loop looks at the door as well.
#[test]
fn a_loop_that_is_asked_to_close_idle_also_accepts() {
    let cx = Context::new(Settings::default().connections_max(9)).unwrap();
    let listener = Listener::bind(
        &Address::Tcp(([127, 0, 0, 1], 0).into()),
        false,
        &[],
        &crate::transport::socket_share::Bound::new(""),
    )
    .unwrap();
    listener.listen(8).unwrap();
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
        // It does not sleep on it.
        loops[1].wait(&cx, None);
        assert_eq!(is_asked(), [false, false]);
        assert!(loops[1].acceptor.retry(now).is_some());
        assert!(loops[1].poll_ready(&cx).is_none(), "nobody is there");
        assert_eq!(loops[1].acceptor.retry(now), None);
    }
}

/// A message from loop to loop costs more than a request, and a connection of one request would be gone with it.
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

/// Streams that end with their connection are not one loop's alone.
#[test]
fn many_connections_do_not_all_stay_on_one_loop() {
    let cx = Context::new(Settings::default().connections_max(1000).accepted_max(1000)).unwrap();
    let listener = Listener::bind(
        &Address::Tcp(([127, 0, 0, 1], 0).into()),
        false,
        &[],
        &crate::transport::socket_share::Bound::new(""),
    )
    .unwrap();
    listener.listen(128).unwrap();
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

/// A loop with one connection, whose response is due in an hour.
fn with_delayed(cx: &Context, loops: &Arc<LoopGroup>, poll: Poll) -> (EventLoop, UnixStream) {
    let handler = |_: &mut Request<'_>| Response::text("at last").with_delay(HOUR);
    let (lp, theirs, panicked) = with_answered(cx, loops, poll, &handler);
    assert!(!panicked);
    (lp, theirs)
}

/// A loop with one connection, whose request was answered, and whether it has panicked over that.
fn with_answered(
    cx: &Context,
    loops: &Arc<LoopGroup>,
    poll: Poll,
    handler: &dyn Handler,
) -> (EventLoop, UnixStream, bool) {
    let mut lp = EventLoop::new(0, poll, loops, Arc::default(), cx.clock.now()).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let conn = Conn::new(crate::transport::Stream::new(ours.into()), None, cx.clock.now(), cx);
    loops.send(0, LoopMessage::Adopt(conn));
    lp.wait(cx, Some(Duration::ZERO));
    let mut active = lp.poll_ready(cx).unwrap();
    let (wait, slot) = (ThreadWait::new(cx), cx.watchdog.call_slot());
    let dates = &mut crate::transport::DateCache::new(lp.now());
    active.conn.run(Call { cx, now: lp.now(), handler, wait: &wait, dates, slot: &slot });
    let settled = catch_unwind(AssertUnwindSafe(|| lp.resume(active, cx).is_none()));
    assert!(!matches!(settled, Ok(false)), "it wants another call");
    (lp, theirs, settled.is_err())
}

#[test]
fn a_panic_frees_the_slot() {
    let cx = Context::new(Settings::default()).unwrap();
    let (loops, poll) = group_of_one();
    let (mut lp, _theirs, panicked) =
        with_answered(&cx, &loops, poll, &|_: &mut Request<'_>| panics_when_sent());
    assert!(panicked && lp.table.len() == 1 && cx.stats().connections == 0);
    lp.wait(&cx, Some(Duration::from_secs(60)));
    assert!(lp.poll_ready(&cx).is_none());
    assert_eq!(lp.table.len(), 0);
}

/// Its alarm rings within the millisecond that it is due in, and just then its client says something: it is out for that.
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

/// What a loop has done since its last look at the clock is no part of its wait.
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

/// It has waited for somebody to lead it for longer than its client had time; what that has sent came in time.
#[test]
fn nobody_is_late_by_what_a_loop_has_not_looked_at() {
    is_heard(|lp, loops, cx, conn, asks| {
        loops.send(0, LoopMessage::Adopt(conn));
        assert!(lp.poll_ready(cx).is_none());
        asks();
        lp.refresh(cx);
    });
}

/// It has been elsewhere, and what it has read there was all that there was then.
#[test]
fn nobody_is_late_by_what_came_while_it_came_home() {
    is_heard(|lp, loops, cx, mut conn, asks| {
        assert!(conn.fill(cx.clock.now(), &mut BufferPool::alone()).is_err(), "nothing is there");
        asks();
        loops.send(0, LoopMessage::Adopt(conn));
        lp.wait(cx, Some(Duration::from_secs(60)));
    });
}

/// Whose client has 50 ms for a head, and asks 400 before it is looked at again: it has not ended, and is heard at the next look at
/// the poller.
#[track_caller]
fn is_heard(until_then: impl FnOnce(&mut EventLoop, &LoopGroup, &Context, Box<Conn>, &mut dyn FnMut())) {
    let cx = Context::new(Settings::default().head_timeout(Duration::from_millis(50))).unwrap();
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

/// Its handler may block: then it is the one with the fewest for as long as that lasts.
#[test]
fn a_loop_that_does_not_get_on_is_given_so_many_and_no_more() {
    let loops = LoopGroup::new(&[Poll::new().unwrap(), Poll::new().unwrap()]).unwrap();
    loops.note_load(1, 0);
    let given = || (0..100).filter(|_| loops.less_loaded(0, 1000, 1) == Some(1)).count();
    let most = given();
    assert!((1..100).contains(&most), "{most}");
    assert_eq!(given(), 0);
    loops.note_load(1, most);
    assert_eq!(given(), most, "it gets on");
}

/// Whoever has fewest of the others is given what the stuck one is not.
#[test]
fn a_loop_that_does_not_get_on_keeps_nothing_from_the_others() {
    let loops = LoopGroup::new(&[(); 3].map(|()| Poll::new().unwrap())).unwrap();
    loops.note_load(2, 500);
    let first = (0..100).find(|_| loops.less_loaded(0, 1000, 1) != Some(1));
    assert!(first.is_some());
    assert_eq!(loops.less_loaded(0, 1000, 1), Some(2));
}
