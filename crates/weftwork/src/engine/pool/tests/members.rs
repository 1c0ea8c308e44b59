//! Does the door lose no member: no event, no end, and nobody who finds no thread?

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::RwLock;

use super::*;
use crate::engine::cpu_pressure::CpuPressure;
use crate::engine::pool::door::TAKEN_IN_MAX;
use crate::engine::pool::porter::{Looks, QUIET_LOOK};
use crate::engine::testing::client::{ask_on, connect, in_some_round, is_answered_on, is_next_answer};
use crate::message::Request;
use crate::transport::Tick;

/// A pool, and its insides.
struct House {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Whoever writes here holds the calls of `/gate`.
    gate: Arc<RwLock<()>>,
}

impl House {
    fn open(threads_max: usize) -> House {
        let (shared, address, gate, porter) = House::empty(threads_max);
        shared.open(porter).unwrap();
        House { shared, address, gate }
    }

    /// Nobody works there.
    fn empty(threads_max: usize) -> (Arc<Shared>, SocketAddr, Arc<RwLock<()>>, EventLoop) {
        House::empty_with(|settings| settings.threads_max(threads_max))
    }

    fn empty_with(
        change: impl FnOnce(Settings) -> Settings,
    ) -> (Arc<Shared>, SocketAddr, Arc<RwLock<()>>, EventLoop) {
        let (_, site) = Burst::at_the_door(0);
        let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
        let gate = Arc::<RwLock<()>>::default();
        let held = gate.clone();
        let handler = move |req: &mut Request<'_>| {
            if req.path() == "/gate" {
                drop(held.read().unwrap());
            }
            req.path().to_owned()
        };
        let settings = change(Settings::default().connections_max(99).accepted_max(99));
        let cx = Arc::new(Context::new(settings).unwrap());
        let (shared, porter) = Shared::new(1, cx, Arc::new(handler), vec![site.listener]).unwrap();
        (shared, address, gate, porter)
    }

    fn members(&self) -> usize {
        self.shared.bell.members.members()
    }

    fn has_anybody(&self) -> bool {
        self.shared.bell.members.has_anybody()
    }

    fn requests(&self) -> u64 {
        self.shared.cx.stats().requests
    }

    fn close(self) {
        stop(&self.shared);
        assert_eq!(self.shared.cx.stats().connections, 0);
    }
}

/// One thread answers all who wait for their next request.
#[test]
fn idle_connections_keep_no_threads() {
    in_some_round("a busy machine had nobody at the door for a while", || {
        let house = House::open(512);
        let mut clients = Vec::new();
        for at in 0..20 {
            clients.push(connect(house.address));
            (0..=at).for_each(|at| is_answered_on(&mut clients[at], &format!("/{at}")));
        }
        let threads = house.shared.threads();
        house.close();
        threads < 5
    });
}

/// What comes while a member is out is told to another thread, and not forgotten; and who is quiet is the porter's.
#[test]
fn nothing_is_forgotten_at_the_door() {
    let house = House::open(512);
    let mut client = connect(house.address);
    is_answered_on(&mut client, "/1");
    for _ in 0..10 {
        let held = house.gate.write().unwrap();
        let before = house.requests();
        ask_on(&mut client, "/gate");
        eventually("it is out, and another thread waits", || {
            house.requests() > before && house.shared.roster.count().at_door > 0
        });
        ask_on(&mut client, "/2");
        eventually("that thread was told", || !house.shared.bell.members.has_news());
        drop(held);
        is_next_answer(&mut client, "/2");
    }
    eventually("it is quiet for long", || house.members() == 0);
    assert_eq!((house.shared.cx.stats().connections, house.has_anybody()), (1, false));
    is_answered_on(&mut client, "/3");
    eventually("it is a member again", || house.has_anybody());
    house.close();
}

/// Who ends its side while it is out is told of to others, and that is not forgotten.
#[test]
fn who_ends_its_side_while_it_is_out_is_closed_behind_its_answer() {
    let house = House::open(512);
    in_some_round("its end came when it was with the porter", || {
        let mut client = connect(house.address);
        is_answered_on(&mut client, "/1");
        let was_member = house.has_anybody();
        let held = house.gate.write().unwrap();
        let before = house.requests();
        ask_on(&mut client, "/gate");
        eventually("it is out", || house.requests() > before);
        client.shutdown(Shutdown::Write).unwrap();
        eventually("another thread was told", || !house.shared.bell.members.has_news());
        drop(held);
        is_next_answer(&mut client, "/gate");
        assert_eq!(client.read(&mut [0; 64]).unwrap(), 0);
        was_member
    });
    house.close();
}

/// While a body is on its way, each of its packets would wake a thread at the door.
#[test]
fn who_is_in_the_middle_of_a_request_is_no_member() {
    let house = House::open(512);
    in_some_round("it was quiet before it asked", || {
        let mut client = connect(house.address);
        is_answered_on(&mut client, "/1");
        let members = house.members();
        let held = house.gate.write().unwrap();
        let before = house.requests();
        // More than is read ahead of the call, and not all.
        client.write_all(b"POST /gate HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n").unwrap();
        client.write_all(&[b'a'; 100_000]).unwrap();
        eventually("it is out", || house.requests() > before);
        assert_eq!(house.members(), 0);
        drop(held);
        client.write_all(b"a").unwrap();
        is_next_answer(&mut client, "/gate");
        is_answered_on(&mut client, "/2");
        members == 1
    });
    house.close();
}

/// Members that find no thread are the porter's: there they wait in the queue, which has a limit and deadlines.
#[test]
fn members_for_whom_there_is_no_thread_wait_in_the_queue() {
    let house = House::open(3);
    let mut clients: Vec<_> = (0..8).map(|_| connect(house.address)).collect();
    in_some_round("they were quiet before they asked", || {
        clients.iter_mut().for_each(|client| is_answered_on(client, "/1"));
        let members = house.members();
        let held = house.gate.write().unwrap();
        clients.iter_mut().for_each(|client| ask_on(client, "/gate"));
        eventually("those without a thread are in the queue", || house.shared.lock_queue().len() == 5);
        assert_eq!(house.shared.threads(), 3);
        drop(held);
        clients.iter_mut().for_each(|client| is_next_answer(client, "/gate"));
        members == 8
    });
    assert_eq!(house.shared.cx.stats().shed, 0);
    house.close();
}

/// The test plays the threads of a pool in which nobody works.
fn accept(shared: &Shared, client: &mut TcpStream, path: &str) -> Box<Conn> {
    ask_on(client, path);
    next_outside(shared)
}

fn next_outside(shared: &Shared) -> Box<Conn> {
    let mut next = None;
    eventually("it is at the door", || {
        if let Look::Conn(conn) = shared.look_at_doors(shared.cx.clock.now()) {
            next = Some(conn);
        }
        next.is_some()
    });
    next.unwrap()
}

fn becomes_member(shared: &Shared, address: SocketAddr, hand: &mut Hand) -> TcpStream {
    let mut member = connect(address);
    let conn = accept(shared, &mut member, "/member");
    assert!(!shared.serve(conn, hand), "others wait for it");
    is_next_answer(&mut member, "/member");
    member
}

/// So many clients outside, with the last request of their connection.
fn wait_outside(shared: &Shared, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let clients = (0..count).map(|_| {
        let mut client = connect(address);
        client.write_all(b"GET /new HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        client
    });
    let clients = clients.collect();
    eventually("they are outside", || shared.has_pending());
    clients
}

/// Nobody who is refused there keeps its thread from members and the queue for long.
#[test]
fn a_look_at_the_doors_ends_also_where_everybody_is_refused() {
    let (shared, address, _gate, _porter) =
        House::empty_with(|settings| settings.accepted_max(1).connections_max(1000));
    shared.roster.open();
    let clients = wait_outside(&shared, address, 100);
    let look = || shared.look_at_doors(shared.cx.clock.now());
    let Look::Conn(_served) = look() else { panic!("nobody was let in") };
    assert!(matches!(look(), Look::Shut(_)));
    assert!(shared.has_pending());
    assert!(matches!(look(), Look::Nobody));
    drop(clients);
}

/// Where somebody always waits outside and connections end with their answer, who is a member has its turn.
#[test]
fn members_and_those_outside_have_their_turns() {
    let (shared, address, _gate, _porter) = House::empty(3);
    shared.roster.open();
    let mut place = Place::new(&shared);
    let mut hand = Hand::new(&shared.cx);
    let mut member = becomes_member(&shared, address, &mut hand);
    let mut clients = wait_outside(&shared, address, 9);
    ask_on(&mut member, "/member");
    let turns = (1..).find(|_| {
        let conn = shared.next_at_door(&mut place).unwrap();
        let is_member = conn.registered == crate::conn::Registered::Shared;
        let is_over = shared.serve(conn, &mut hand);
        place.come_to_door(is_over);
        is_member
    });
    assert!(turns <= Some(4), "{turns:?}");
    is_next_answer(&mut member, "/member");
    is_next_answer(&mut clients[0], "/new");
}

/// While the cores are full, and nobody else is called to the door, those outside come in together; but they leave places in
/// the queue for those who have asked already.
#[test]
fn who_lets_one_in_lets_others_in_where_nobody_else_comes() {
    for (are_cores_full, queue_max, queued) in
        [(false, 99, 0), (true, 99, TAKEN_IN_MAX), (true, 4, 2), (true, 0, 0)]
    {
        let (shared, address, _gate, _porter) = House::empty_with(|s| s.queue_max(queue_max));
        shared.roster.open();
        let mut place = Place::new(&shared);
        shared.roster.set_cores_full(are_cores_full);
        let _clients = wait_outside(&shared, address, TAKEN_IN_MAX + 2);
        shared.next_at_door(&mut place).unwrap();
        assert_eq!(shared.lock_queue().len(), queued, "queue_max {queue_max}");
        shared.lock_queue().clear();
    }
}

/// Where the queue is never empty, who is not in it has every second turn.
#[test]
fn members_and_the_queue_have_their_turns() {
    let (shared, address, _gate, _porter) = House::empty(3);
    shared.roster.open();
    let mut place = Place::new(&shared);
    let mut hand = Hand::new(&shared.cx);
    let mut member = becomes_member(&shared, address, &mut hand);
    let mut clients = [(); 3].map(|()| connect(address));
    for client in &mut clients {
        shared.enqueue(accept(&shared, client, "/queued"));
    }
    ask_on(&mut member, "/member");
    for is_member in [false, true, false, false] {
        let conn = shared.next_at_door(&mut place).unwrap();
        assert_eq!(conn.registered == crate::conn::Registered::Shared, is_member);
        let is_over = shared.serve(conn, &mut hand);
        place.come_to_door(is_over);
    }
    is_next_answer(&mut member, "/member");
    clients.iter_mut().for_each(|client| is_next_answer(client, "/queued"));
}

/// The cores were full, and now all members are in long calls: who comes in has a thread made, and the porter rests.
#[test]
fn where_all_members_are_in_long_calls_the_cores_are_not_full() {
    let (shared, address, _gate, _porter) = House::empty(3);
    shared.roster.open();
    let mut place = Place::new(&shared);
    let mut hand = Hand::new(&shared.cx);
    let mut member = becomes_member(&shared, address, &mut hand);
    ask_on(&mut member, "/member");
    let _out = shared.next_at_door(&mut place).unwrap();
    shared.roster.set_cores_full(true);
    let mut gauge = CpuPressure::new(u64::MAX);
    let (now, taken) = (shared.cx.clock.now(), shared.roster.count().taken);
    let mut looks = Looks { members: Tick(u64::MAX), quiet: now, taken };
    assert_eq!(shared.see_to_members(&mut gauge, &mut looks), Some(QUIET_LOOK));
    assert!(!shared.roster.are_cores_full() && shared.roster.count().line);
}

/// Of a pool with one thread and no other to be had: who is taken in is known to nobody, and has waited when that thread comes.
#[test]
fn who_was_taken_in_for_a_thread_that_was_refused_does_not_wait_without_end() {
    let time = Duration::from_millis(100);
    let (shared, address, gate, porter) = House::empty_with(|settings| settings.request_timeout(time));
    shared.threads.give_at_most(1);
    let held = gate.write().unwrap();
    let [mut blocked, mut late, mut outside] = [(); 3].map(|()| connect(address));
    ask_on(&mut blocked, "/gate");
    shared.open(porter).unwrap();
    eventually("it is in the handler", || shared.cx.stats().requests == 1);
    eventually("the system has refused a thread", || shared.roster.was_refused());
    let waits = shared.lock_queue().len();
    // Whom the maker has not taken in before.
    (waits..1).for_each(|_| shared.enqueue(next_outside(&shared)));
    (0..3).for_each(|_| shared.take_one_in());
    assert_eq!(shared.lock_queue().len(), 1, "nobody is taken in for a thread that was refused");
    ask_on(&mut late, "/late");
    ask_on(&mut outside, "/late");
    std::thread::sleep(time);
    drop(held);
    is_next_answer(&mut blocked, "/gate");
    let mut answer = [0; 12];
    late.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 503");
    is_next_answer(&mut outside, "/late");
    stop(&shared);
}

/// It has had a thread as soon as one could run, and no reason to give up.
#[test]
fn who_was_taken_in_by_the_maker_may_have_ended_its_side() {
    let (shared, address, _gate, _porter) = House::empty(9);
    let mut client = connect(address);
    ask_on(&mut client, "/1");
    client.shutdown(Shutdown::Write).unwrap();
    shared.roster.open();
    shared.roster.leave_door();
    assert!(shared.roster.wait_until_asked());
    eventually("it is there", || shared.doors.have_pending());
    assert_eq!(shared.make_enough(&mut 0), Maker::Stays);
    is_next_answer(&mut client, "/1");
    stop(&shared);
}
