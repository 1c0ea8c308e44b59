//! Each event comes to its own connection, and idle connections are evicted.

use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::engine::acceptor::{Accepted, accept};
use crate::engine::testing::burst::{Burst, Site, eventually};
use crate::engine::testing::client;
use crate::transport::address::Address;

struct House {
    site: Site,
    address: SocketAddr,
    poller: SharedPoller,
}

impl House {
    fn open() -> House {
        let (_, site) = Burst::at_the_door(0);
        let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
        House { site, address, poller: SharedPoller::open().unwrap() }
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

    /// The same in its place.
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

/// A thread has an event in hand when the member that it is for goes, and the next one gets the place.
#[test]
fn an_event_for_who_has_gone_is_nothing_to_the_next_one() {
    let house = House::open();
    let [(_client, gone), (_other, mut next)] = [house.connect(), house.connect()];
    house.put(gone, house.now());
    let mut token = 0;
    house.poller.evict_idle(Duration::ZERO, house.now(), |gone| token = gone.owner.token);
    assert!(house.poller.add(&mut next) == Some(true));
    let next_token = next.owner.token;
    assert!(token != next_token && index(token) == index(next_token), "it has the same place");
    assert!(house.poller.take(token as u64, CLOSES).is_none());
    house.put(next, house.now());
    assert!(house.poller.take(token as u64, CLOSES).is_none());
    assert!(house.poller.expects_events(), "it is where it was");
    assert!(house.poller.take(next_token as u64, EventFlags::IN).is_some());
    assert!(!house.poller.expects_events());
}

/// A member is out, in its last call, when its client goes and another thread is told of that.
#[test]
fn what_who_has_gone_has_missed_is_nothing_to_the_next_one() {
    let house = House::open();
    let [(_client, gone), (_other, next)] = [house.connect(), house.connect()];
    house.put(gone, house.now());
    let gone = house.poller.take(0, EventFlags::IN).expect("it was there");
    assert!(house.poller.take(0, CLOSES).is_none());
    house.poller.close(gone);
    house.put(next, house.now());
}

/// A member that is out leaves, and another has its place when the thread that has it panics.
#[test]
fn who_has_left_frees_no_place_again() {
    let house = House::open();
    let [(_client, mut gone), (_other, next)] = [house.connect(), house.connect()];
    assert!(house.poller.add(&mut gone).is_some());
    let absent = house.poller.guard(&gone);
    house.poller.remove(&mut gone);
    house.put(next, house.now());
    drop(absent);
    assert_eq!((house.poller.len(), lock(&house.poller.free).len()), (1, CONNS_MAX - 1));
}

/// However short a connection may be idle, it is not here for longer; and for half a second at most.
#[test]
fn who_is_quiet_for_as_long_as_it_may_is_sent_away() {
    let house = House::open();
    let put = house.now();
    for (idle, stays) in [(Duration::from_millis(20), Duration::from_millis(20)), (Duration::MAX, IDLE_MAX)] {
        let (_client, conn) = house.connect();
        house.put(conn, put);
        let just_before = Tick(put.after(stays).0 - 1);
        assert_eq!(house.evicted(idle, just_before), 0);
        assert_eq!(house.evicted(idle, put.after(stays)), 1);
        assert_eq!((house.poller.len(), house.poller.expects_events()), (0, false));
    }
}

#[test]
fn who_finds_no_place_is_refused() {
    let house = House::open();
    let (_client, mut conn) = house.connect();
    let all = std::mem::take(&mut *lock(&house.poller.free));
    assert_eq!(house.poller.add(&mut conn), None);
    *lock(&house.poller.free) = all;
    assert_eq!(house.poller.add(&mut conn), Some(true));
    assert_eq!(house.poller.add(&mut conn), Some(false));
    house.poller.close(conn);
    assert_eq!((house.poller.len(), lock(&house.poller.free).len()), (0, CONNS_MAX));
}

/// A wake-up is one thread's, and is kept for the next one if none waits.
#[test]
fn a_wake_up_is_had_once() {
    let house = House::open();
    let watch = || house.poller.watch(Duration::ZERO);
    assert!(matches!(watch(), Watched::TimedOut));
    house.poller.wake_one();
    assert!(matches!(watch(), Watched::Woken));
    assert!(matches!(watch(), Watched::TimedOut));
}
