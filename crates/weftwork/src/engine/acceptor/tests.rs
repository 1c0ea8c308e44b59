//! Tests of a listener that was closed, or that had no descriptors for a while.

use std::net::TcpStream;

use mio::{Events, Poll};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::engine::testing::burst;
use crate::settings::Settings;
use crate::transport::address::Address;

/// Returns a listener, and a function that connects to it.
fn listener() -> (Arc<Vec<Listener>>, impl Fn() -> TcpStream) {
    let listener = burst::listener(8);
    let Address::Tcp(address) = *listener.address() else { unreachable!("it is bound to a port") };
    (Arc::new(vec![listener]), move || TcpStream::connect(address).unwrap())
}

fn context() -> Context {
    Context::new(Settings::default().connections_max(10).accepted_max(10)).unwrap()
}

/// Waits until a connection is pending.
fn wait_for_one(listeners: &[Listener]) {
    poll(&mut [PollFd::new(&listeners[0], PollFlags::IN)], None).unwrap();
}

fn is_notified(poll: &mut Poll) -> bool {
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    !events.is_empty()
}

/// A socket that was passed in is not shut. Other processes may listen at it, and accept later connections.
#[test]
fn a_closed_acceptor_accepts_nothing_and_gets_no_events() {
    let (listeners, come) = listener();
    let (cx, now) = (context(), Tick(0));
    let mut poll = Poll::new().unwrap();
    let mut acceptor = Acceptor::new(listeners.clone());
    acceptor.register(poll.registry()).unwrap();
    let _first = come();
    wait_for_one(&listeners);
    assert!(is_notified(&mut poll));
    acceptor.note_ready(0);
    assert_eq!(acceptor.retry(now), Some(now));
    assert!(acceptor.accept(now, &cx).is_some());

    acceptor.close(poll.registry());
    assert_eq!(acceptor.retry(now), None, "or its loop would never rest");
    let _second = come();
    wait_for_one(&listeners);
    assert!(!is_notified(&mut poll));
    acceptor.note_ready(0);
    assert!(acceptor.accept(now, &cx).is_none());
    assert_eq!(Arc::strong_count(&listeners), 1, "it is closed when nobody else holds it");
}

/// After the last connection under the cap, the loop sleeps until another connection arrives. Only then it requests
/// the close of idle connections.
#[test]
fn a_full_server_sleeps_while_no_connection_waits() {
    let (listeners, come) = listener();
    let (cx, now) = (Context::new(Settings::default().connections_max(1).accepted_max(1)).unwrap(), Tick(0));
    let mut acceptor = Acceptor::new(listeners.clone());
    let _first = come();
    wait_for_one(&listeners);
    acceptor.note_ready(0);
    let first = acceptor.accept(now, &cx).unwrap();
    assert!(acceptor.accept(now, &cx).is_none());
    assert_eq!((acceptor.retry(now), acceptor.take_at_limit()), (None, false));

    let _second = come();
    wait_for_one(&listeners);
    acceptor.note_ready(0);
    assert!(acceptor.accept(now, &cx).is_none());
    assert_eq!((acceptor.retry(now), acceptor.take_at_limit()), (Some(now.after(FULL_BACK_OFF)), true));
    assert!(!acceptor.take_at_limit());

    drop(first);
    acceptor.next_cycle(now.after(FULL_BACK_OFF));
    assert!(acceptor.accept(now, &cx).is_some());
}

/// Another accepting thread may take the last slot, so it is no reason to close idle connections.
#[test]
fn a_last_slot_that_another_thread_may_take_is_no_limit() {
    let (listeners, come) = listener();
    let (cx, now) = (Context::new(Settings::default().connections_max(1).accepted_max(1)).unwrap(), Tick(0));
    let (other, _) = AcceptGuard::new(&cx.counters);
    assert!(matches!(accept(&listeners[0], now, &cx), Accepted::WouldBlock));
    let _client = come();
    wait_for_one(&listeners);
    assert!(matches!(accept(&listeners[0], now, &cx), Accepted::Backoff(_)));
    drop(other);
    let Accepted::Conn(_conn) = accept(&listeners[0], now, &cx) else { panic!("there is a place") };
    let _client = come();
    wait_for_one(&listeners);
    assert!(matches!(accept(&listeners[0], now, &cx), Accepted::AtLimit(_)));
}

/// The next shortage has its own back-off.
#[test]
fn an_accepted_connection_ends_a_shortage() {
    let (listeners, come) = listener();
    let cx = context();
    assert_eq!(cx.reserve_fd.note_shortage(Tick(10)), None);
    assert_eq!(cx.reserve_fd.note_shortage(Tick(20)), Some(Tick(10)));
    let _client = come();
    wait_for_one(&listeners);
    assert!(matches!(accept(&listeners[0], Tick(30), &cx), Accepted::Conn(_)));
    assert_eq!(cx.reserve_fd.note_shortage(Tick(40)), None);
}

/// A connection always waits at the first listener. The second listener is tried next nevertheless.
fn rotate(take_two: impl FnOnce(&Listeners, &Context) -> [Option<Box<Conn>>; 2]) {
    let [(first, come), (second, connect_to_second)] = [listener(), listener()];
    let listeners: Vec<_> = [first, second].map(|one| Arc::into_inner(one).unwrap().remove(0)).into();
    let listeners = Arc::new(listeners);
    let _clients = [come(), come(), come(), connect_to_second()];
    listeners.iter().for_each(|one| wait_for_one(std::slice::from_ref(one)));
    let taken = take_two(&Listeners::new(&listeners), &context());
    assert!(taken.iter().all(Option::is_some));
    assert!(have_pending(&listeners[..1]));
    assert!(!have_pending(&listeners[1..]));
}

#[test]
fn listeners_rotate() {
    rotate(|listening, cx| {
        let mut acceptor = listening.acceptor();
        acceptor.note_all_ready();
        [(); 2].map(|()| acceptor.accept(Tick(0), cx))
    });
}

/// The listeners rotate even if each acceptor takes only one connection.
#[test]
fn listeners_rotate_if_each_acceptor_takes_one() {
    rotate(|listening, cx| [(); 2].map(|()| listening.accept(Tick(0), cx)));
    rotate(|listening, cx| {
        [(); 2].map(|()| {
            let mut acceptor = listening.acceptor();
            acceptor.note_all_ready();
            acceptor.accept(Tick(0), cx)
        })
    });
}
