//! Tests that each event reaches its own connection, and that idle connections are evicted.

use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::engine::acceptor::{Accepted, accept};
use crate::engine::testing::burst::{Burst, Site, eventually};
use crate::engine::testing::client;
use crate::transport::address::Address;

struct Setup {
    site: Site,
    address: SocketAddr,
    poller: SharedPoller,
}

impl Setup {
    fn open() -> Setup {
        let (_, site) = Burst::pending(0);
        let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
        Setup { site, address, poller: SharedPoller::open(true).unwrap() }
    }

    /// A client, and its connection.
    fn connect(&self) -> (TcpStream, Box<Conn>) {
        let client = client::connect(self.address);
        let mut next = None;
        eventually("it is at the door", || {
            if let Accepted::Conn(conn) = accept(&self.site.listener, self.now(), &self.site.cx) {
                next = Some(conn);
            }
            next.is_some()
        });
        (client, next.unwrap())
    }

    /// Puts the connection into its slot.
    fn put(&self, mut conn: Box<Conn>, now: Tick) {
        assert!(self.poller.add(&mut conn).is_some());
        assert!(self.poller.put_back(conn, now).is_none(), "something was noted that was for another");
    }

    fn now(&self) -> Tick {
        self.site.cx.clock.now()
    }

    fn evicted(&self, quiet: Duration, now: Tick) -> usize {
        let mut count = 0;
        self.poller.evict_idle(quiet, now, |_| count += 1);
        count
    }
}

/// A thread has an event when its connection is closed, and the next connection gets the slot.
#[test]
fn an_event_of_a_closed_connection_is_not_for_the_next() {
    let setup = Setup::open();
    let [(_client, gone), (_other, mut next)] = [setup.connect(), setup.connect()];
    setup.put(gone, setup.now());
    let mut token = 0;
    setup.poller.evict_idle(Duration::ZERO, setup.now(), |gone| token = gone.owner.token);
    assert!(setup.poller.add(&mut next) == Some(true));
    let next_token = next.owner.token;
    assert!(token != next_token && index(token) == index(next_token), "it has the same place");
    assert!(setup.poller.take(token as u64, CLOSES).is_none());
    setup.put(next, setup.now());
    assert!(setup.poller.take(token as u64, CLOSES).is_none());
    assert!(setup.poller.expects_events(), "it is where it was");
    assert!(setup.poller.take(next_token as u64, EventFlags::IN).is_some());
    assert!(!setup.poller.expects_events());
}

/// The client closes while its connection is out for its last call, and another thread gets that event.
#[test]
fn a_missed_event_of_a_closed_connection_is_not_for_the_next() {
    let setup = Setup::open();
    let [(_client, gone), (_other, next)] = [setup.connect(), setup.connect()];
    setup.put(gone, setup.now());
    let gone = setup.poller.take(0, EventFlags::IN).expect("it was there");
    assert!(setup.poller.take(0, CLOSES).is_none());
    setup.poller.close(gone);
    setup.put(next, setup.now());
}

/// A connection that is out leaves, and another connection has its slot when the thread of the first one panics.
#[test]
fn a_connection_that_has_left_frees_no_slot_again() {
    let setup = Setup::open();
    let [(_client, mut gone), (_other, next)] = [setup.connect(), setup.connect()];
    assert!(setup.poller.add(&mut gone).is_some());
    let absent = setup.poller.guard(&gone);
    setup.poller.remove(&mut gone);
    setup.put(next, setup.now());
    drop(absent);
    assert_eq!((setup.poller.len(), lock(&setup.poller.free).len()), (1, CONNS_MAX - 1));
}

/// A connection stays no longer than it may be idle, and half a second at most.
#[test]
fn idle_connections_are_evicted() {
    let setup = Setup::open();
    let put = setup.now();
    for (idle, stays) in [(Duration::from_millis(20), Duration::from_millis(20)), (Duration::MAX, IDLE_MAX)] {
        let (_client, conn) = setup.connect();
        setup.put(conn, put);
        let just_before = Tick(put.after(stays).0 - 1);
        assert_eq!(setup.evicted(idle, just_before), 0);
        assert_eq!(setup.evicted(idle, put.after(stays)), 1);
        assert_eq!((setup.poller.len(), setup.poller.expects_events()), (0, false));
    }
}

#[test]
fn a_connection_without_a_slot_is_refused() {
    let setup = Setup::open();
    let (_client, mut conn) = setup.connect();
    let all = std::mem::take(&mut *lock(&setup.poller.free));
    assert_eq!(setup.poller.add(&mut conn), None);
    *lock(&setup.poller.free) = all;
    assert_eq!(setup.poller.add(&mut conn), Some(true));
    assert_eq!(setup.poller.add(&mut conn), Some(false));
    setup.poller.close(conn);
    assert_eq!((setup.poller.len(), lock(&setup.poller.free).len()), (0, CONNS_MAX));
}

/// A wake-up is for one thread, and is kept for the next thread if no thread waits.
#[test]
fn a_wake_up_is_had_once() {
    let setup = Setup::open();
    let watch = || setup.poller.watch(Duration::ZERO);
    assert!(matches!(watch(), Watched::TimedOut));
    setup.poller.wake_one();
    assert!(matches!(watch(), Watched::Woken));
    assert!(matches!(watch(), Watched::TimedOut));
}
