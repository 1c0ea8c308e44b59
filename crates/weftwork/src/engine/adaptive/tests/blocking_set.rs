//! Does the set lose nobody: no event, no end, no thread, and no member that is quiet?

use super::*;
use crate::conn::Step;
use crate::engine::cpu_pressure::CpuPressure;
use crate::engine::shared_poller::AddResult;
use crate::engine::testing::client::{ask_on, in_some_round, is_answered_on, is_next_answer};

/// Answers with the path, after a while but for `/`; `/gate` waits until nobody writes to `gate` before.
fn slow_behind(gate: &Arc<RwLock<()>>) -> impl Handler {
    let gate = gate.clone();
    move |req: &mut Request<'_>| {
        if req.path() == "/gate" {
            drop(gate.read().unwrap());
        }
        if req.path() == "/" { "/".to_owned() } else { slow(req) }
    }
}

/// Once its first call has blocked, a connection has its threads without the help of its loop.
#[test]
fn connections_whose_calls_block_share_their_threads() {
    let house = House::open(crate::blocks(slow), |_| {});
    let ask = || {
        let mut stream = house.connect();
        (0..20).for_each(|number| is_answered_on(&mut stream, &format!("/{number}")));
        stream
    };
    // They stay until all have come: the thread of one that leaves would let the next one in.
    let streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let counts = house.stats();
    assert!((20..100).contains(&counts.loops_handed_off), "{counts:?}");
    drop(streams);
    house.close();
}

/// What comes while a member is out is told to another thread, and not forgotten; and who is quiet is its loop's.
#[test]
fn nothing_is_forgotten_in_the_commons() {
    let gate = Arc::new(RwLock::new(()));
    let house = House::open(crate::blocks(slow_behind(&gate)), |_| {});
    let set = &house.shared.set;
    let [mut stream, mut other] = [house.connect(), house.connect()];
    is_answered_on(&mut stream, "/1");
    for _ in 0..10 {
        is_answered_on(&mut other, "/1");
        let held = gate.write().unwrap();
        let before = house.stats().requests;
        ask_on(&mut stream, "/gate");
        eventually("it is out, and another thread waits", || {
            house.stats().requests > before && set.is_waited_at()
        });
        ask_on(&mut stream, "/2");
        drop(held);
        is_next_answer(&mut stream, "/2");
    }
    eventually("both are quiet for long", || set.members() == 0);
    assert_eq!((house.stats().connections, set.has_anybody()), (2, false));
    is_answered_on(&mut stream, "/3");
    eventually("it is a member", || set.members() == 1 && set.has_anybody());
    house.close();
}

/// A thread that goes on to others has closed what was over.
#[test]
fn who_is_over_is_closed_before_others_are_waited_for() {
    let house = House::open(crate::blocks(slow), |_| {});
    in_some_round("its end came when the other one had left", || {
        let mut member = house.connect();
        is_answered_on(&mut member, "/1");
        is_answered(house.ask("/2"));
        house.shared.set.members() == 1
    });
    house.close();
}

/// Behind a request that had not come whole when it was called, a thread waits by itself for the next one, and not for long, as nobody
/// can call it. So there is another, or the connection is a member as any.
#[test]
fn a_thread_waits_alone_where_there_is_another() {
    let handler = |req: &mut Request<'_>| -> Response {
        std::thread::sleep(Duration::from_millis(1));
        read_body(req)
    };
    for has_another in [true, false] {
        let (house, _loops) = House::empty_with(handler, Settings::default().threads_max(2));
        while !has_another && house.shared.standby.has_thread() {
            assert!(matches!(house.shared.standby.give(Job::Attend), Submitted::Spawn(_)));
        }
        let mut hand = house.shared.hand();
        let mut stream = house.post("/", "Expect: 100-continue\r\n\r\n");
        let (over, is_over) = std::sync::mpsc::channel();
        let shared = house.shared.clone();
        let client = std::thread::spawn(move || {
            is_next_answer(&mut stream, "");
            stream.write_all(b"x").unwrap();
            is_next_answer(&mut stream, "1");
            if has_another {
                // Its end would be news for whoever waits for a member.
                let _: Result<(), _> = is_over.recv_timeout(PATIENCE);
            } else {
                eventually("it is a member", || shared.set.has_anybody());
            }
        });
        house.shared.serve_away(house.accept(), &mut hand);
        drop(over);
        client.join().unwrap();
        let (messages, counts) = (house.messages(), house.stats());
        let is_home = matches!(messages[..], [LoopMessage::Adopt(_)]);
        assert_eq!(
            (is_home, counts.requests, counts.connections),
            (has_another, 1, usize::from(has_another))
        );
    }
}

/// Nothing else happens on the server when it joins: whoever looks after members sleeps by then.
#[test]
fn who_joins_after_a_long_call_goes_home_all_the_same() {
    let handler = |_: &mut Request<'_>| {
        std::thread::sleep(Duration::from_millis(200));
        "passed"
    };
    let house = House::open(crate::blocks(handler), |_| {});
    let mut member = house.connect();
    ask_on(&mut member, "/");
    is_next_answer(&mut member, "passed");
    let set = &house.shared.set;
    eventually("it has gone home, and nobody waits", || set.members() == 0 && !set.is_waited_at());
    house.close();
}

/// Who ends its side while it is out is told of to others, and that is not forgotten.
#[test]
fn who_ends_its_side_while_it_is_out_is_closed_behind_its_answer() {
    let gate = Arc::new(RwLock::new(()));
    let house = House::open(crate::blocks(slow_behind(&gate)), |_| {});
    let set = &house.shared.set;
    in_some_round("its end came when the other one had left", || {
        let [mut stream, mut other] = [house.connect(), house.connect()];
        is_answered_on(&mut stream, "/1");
        is_answered_on(&mut other, "/1");
        let held = gate.write().unwrap();
        let before = house.stats().requests;
        ask_on(&mut stream, "/gate");
        eventually("it is out", || house.stats().requests > before);
        ask_on(&mut stream, "/2");
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        eventually("others were told", || !set.has_news());
        drop(held);
        is_next_answer(&mut stream, "/2");
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
        // Its client sees the end before it is counted out.
        eventually("it is gone", || house.stats().connections == 1);
        set.members() == 1
    });
    house.close();
}

/// While a body is on its way, each of its packets would wake a thread that waits for others.
#[test]
fn who_is_in_the_middle_of_a_request_is_no_member() {
    let gate = Arc::new(RwLock::new(()));
    let house = House::open(crate::blocks(slow_behind(&gate)), |_| {});
    let set = &house.shared.set;
    in_some_round("it was quiet before it asked", || {
        let mut stream = house.connect();
        is_answered_on(&mut stream, "/1");
        let members = set.members();
        let held = gate.write().unwrap();
        let before = house.stats().requests;
        // More than is read ahead of the call, and not all.
        stream.write_all(b"POST /gate HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n").unwrap();
        stream.write_all(&[b'a'; 100_000]).unwrap();
        eventually("it is out", || house.stats().requests > before);
        assert_eq!(set.members(), 0);
        drop(held);
        stream.write_all(b"a").unwrap();
        is_next_answer(&mut stream, "/gate");
        is_answered_on(&mut stream, "/2");
        members == 1
    });
    house.close();
}

/// Members that find no thread are their loop's: there they wait in the queue, and others are served meanwhile.
#[test]
fn members_for_whom_there_is_no_thread_wait_in_the_queue() {
    let gate = Arc::new(RwLock::new(()));
    let house = House::open(slow_behind(&gate), |shared| shared.threads.give_at_most(4));
    // By then it is known to be.
    (0..2).for_each(|_| house.is_quick());
    let mut streams: Vec<_> = (0..8).map(|_| house.connect()).collect();
    for stream in &mut streams {
        (0..3).for_each(|_| is_answered_on(stream, "/gate"));
    }
    assert!(house.shared.set.members() > 0);
    let held = gate.write().unwrap();
    streams.iter_mut().for_each(|stream| ask_on(stream, "/gate"));
    eventually("those without a thread are in the queue", || house.shared.standby.stats().queued == 5);
    house.is_quick();
    drop(held);
    streams.iter_mut().for_each(|stream| is_next_answer(stream, "/gate"));
    assert_eq!(house.stats().shed, 0);
    house.close();
}

/// While others wait in the queue no thread looks at the set, however soon one comes back from its call.
#[test]
fn members_that_ask_while_others_wait_in_the_queue_wait_there_too() {
    let (house, loops) = House::empty(slow);
    let shared = &house.shared;
    let now = shared.cx.clock.now();
    let mut stream = house.connect();
    let mut conn = house.accept();
    assert!(matches!(shared.set.join(&mut conn), AddResult::Added { is_first: true }));
    assert!(shared.set.put(conn, now).is_none());
    ask_on(&mut stream, "/1");
    eventually("it is there", || shared.set.has_news());
    let (mut gauge, mut homed) = (CpuPressure::new(1), now);
    let mut look = || {
        shared.set.calls.fetch_add(1000, Ordering::Relaxed);
        assert!(shared.see_to_the_commons(&mut gauge, &mut homed), "it waits for a thread");
        assert!(shared.set.is_served_soon.load(Ordering::Relaxed));
        shared.set.members()
    };
    assert_eq!(look(), 1);
    let _waits = house.ask("/2");
    assert!(shared.standby.queue(Job::Serve(house.accept())).is_ok());
    assert_eq!(look(), 0);
    let messages = house.messages();
    assert!(matches!(messages[..], [LoopMessage::Adopt(_)]), "{messages:?}");
    drop(loops);
}

/// The next one at the door, with its request.
fn next_with_request(house: &House) -> Box<Conn> {
    let (cx, mut conn) = (&house.shared.cx, house.accept());
    eventually("it has asked", || {
        let _ = conn.fill(cx.clock.now(), &mut Pool::alone());
        conn.step(cx.clock.now(), cx) == Step::Call
    });
    conn
}

/// The loop keeps its leader, and requests go to whoever comes back from a call first, in the order of their coming.
#[test]
fn who_asks_while_the_cores_are_full_waits_for_who_comes_back() {
    let (house, loops) = House::empty(slow);
    let (shared, set) = (&house.shared, &house.shared.set);
    let _clients = ["/1", "/2", "/3"].map(|path| house.ask(path));
    let [first, second, third] = [(); 3].map(|()| next_with_request(&house));
    set.note(true, 0);
    let first = shared.bring_to_the_commons(first).expect_err("a thread more would be of use");
    set.note(true, 9);
    assert!(shared.bring_to_the_commons(first).is_ok() && shared.bring_to_the_commons(second).is_ok());
    let third = set.ask(third, 2).expect_err("there are two already");
    assert!(set.is_short() && set.has_anybody());
    let paths = [(); 2].map(|()| {
        let conn = set.next(|| true).unwrap().conn;
        conn.request_line().path().to_owned()
    });
    assert_eq!(paths, ["/1", "/2"]);
    assert!(!set.has_anybody());
    let _waits = house.ask("/4");
    assert!(shared.standby.queue(Job::Serve(house.accept())).is_ok());
    assert!(shared.bring_to_the_commons(third).is_err(), "those in the queue come first");
    drop(loops);
}

/// `queue_max` is how many wait for a thread, wherever.
#[test]
fn who_asks_there_takes_the_room_of_the_queue() {
    let (house, loops) = House::empty_with(slow, Settings::default().queue_max(2));
    let shared = &house.shared;
    shared.threads.give_at_most(0);
    shared.set.note(true, 9);
    let _clients = ["/1", "/2", "/3", "/4"].map(|path| house.ask(path));
    let [first, second, third, fourth] = [(); 4].map(|()| next_with_request(&house));
    assert!(shared.bring_to_the_commons(first).is_ok() && shared.bring_to_the_commons(second).is_ok());
    let third = shared.bring_to_the_commons(third).expect_err("there is no room");
    let Err(third) = shared.give_or_queue(Job::Serve(third)) else { panic!("there is none elsewhere") };
    assert_eq!(shared.set.take_asking().len(), 2);
    assert!(shared.give_or_queue(third).is_ok() && shared.give_or_queue(Job::Serve(fourth)).is_ok());
    drop(loops);
}

/// Who asks faster than it is answered has its thread for a while, and then those who wait.
#[test]
fn no_client_keeps_a_thread_from_those_who_ask() {
    let (house, loops) = House::empty(slow);
    let shared = &house.shared;
    let mut stream = house.connect();
    stream.write_all(&b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000)).unwrap();
    let flood = next_with_request(&house);
    let waits = house.ask("/2");
    shared.set.note(true, 9);
    assert!(shared.set.ask(next_with_request(&house), 9).is_ok());
    shared.serve_away(flood, &mut shared.hand());
    is_answered(waits);
    assert!(house.stats().requests < 3000 && house.stats().queued == 1);
    let messages = house.messages();
    assert!(matches!(messages[..], [LoopMessage::Adopt(_)]), "{messages:?}");
    drop(loops);
}

/// Where the server stops, or there is no thread for them, their loops have them.
#[test]
fn those_who_ask_go_home_with_the_members() {
    let (house, loops) = House::empty(slow);
    let _client = house.ask("/1");
    house.shared.set.note(true, 9);
    let mut conn = next_with_request(&house);
    conn.is_placed = true;
    assert!(house.shared.set.ask(conn, 9).is_ok());
    house.shared.send_members_home(Duration::from_millis(1));
    assert!(house.messages().is_empty(), "they are no members that are quiet");
    house.shared.send_members_home(Duration::ZERO);
    let messages = house.messages();
    // There it is placed by the loads of that time.
    assert!(matches!(&messages[..], [LoopMessage::Adopt(conn)] if !conn.is_placed), "{messages:?}");
    drop(loops);
}
