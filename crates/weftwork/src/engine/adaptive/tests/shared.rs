//! Tests the shared poller: no event, no close and no thread is lost, and idle connections return to their loops.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::conn::Step;
use crate::engine::testing::client::{ask_on, in_some_round, is_answered_on, is_next_answer};
use crate::engine::thread_pool::EventSource;

/// Returns a handler that responds with the path, after a while, except for `/`. `/gate` first waits until no thread
/// writes to `gate`.
fn slow_after(gate: &Arc<RwLock<()>>) -> impl Handler {
    let gate = gate.clone();
    move |req: &mut Request<'_>| {
        if req.path() == "/gate" {
            drop(gate.read().unwrap());
        }
        if req.path() == "/" { "/".to_owned() } else { slow(req) }
    }
}

/// A handler that always blocks, and counts the calls of `blocking`.
struct CountsAsked(Arc<AtomicU32>);

impl Handler for CountsAsked {
    fn call(&self, req: &mut Request<'_>) -> Response {
        slow(req).into_response()
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        self.0.fetch_add(1, Ordering::Relaxed);
        Blocking::Always
    }
}

/// After its first call has blocked, a connection gets its threads without its loop.
#[test]
fn connections_whose_calls_block_share_their_threads() {
    let asked = Arc::new(AtomicU32::new(0));
    let engine = TestEngine::open(CountsAsked(asked.clone()), |_| {});
    let ask = || {
        let mut stream = engine.connect();
        (0..20).for_each(|number| is_answered_on(&mut stream, &format!("/{number}")));
        stream
    };
    // The clients stay until all have connected. The thread of a client that leaves would accept the next client.
    let streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    // The loop and the thread ask, at the first request of each connection and at few others.
    let asked = asked.load(Ordering::Relaxed);
    assert!((20..200).contains(&asked), "{asked}");
    drop(streams);
    engine.close();
}

/// Events while a connection is out reach another thread, and are not lost. Idle connections return to their loop.
#[test]
fn no_event_is_lost_in_the_shared_poller() {
    let gate = Arc::new(RwLock::new(()));
    let engine = TestEngine::open(crate::blocks(slow_after(&gate)), |_| {});
    let poller = &engine.shared.pool.source;
    let [mut stream, mut other] = [engine.connect(), engine.connect()];
    is_answered_on(&mut stream, "/1");
    for _ in 0..10 {
        is_answered_on(&mut other, "/1");
        let held = gate.write().unwrap();
        let before = engine.stats().requests;
        ask_on(&mut stream, "/gate");
        eventually("it is out", || engine.stats().requests > before);
        ask_on(&mut stream, "/2");
        drop(held);
        is_next_answer(&mut stream, "/2");
    }
    eventually("both are quiet for long", || poller.len() == 0);
    assert_eq!((engine.stats().connections, poller.expects_events()), (2, false));
    is_answered_on(&mut stream, "/3");
    eventually("it is a member", || poller.len() == 1 && poller.expects_events());
    engine.close();
}

/// A thread closes an ended connection before it serves others.
#[test]
fn an_ended_connection_is_closed_before_the_thread_waits() {
    let engine = TestEngine::open(crate::blocks(slow), |_| {});
    in_some_round("its end came when the other one had left", || {
        let mut member = engine.connect();
        is_answered_on(&mut member, "/1");
        is_answered(engine.ask("/2"));
        engine.shared.pool.source.len() == 1
    });
    engine.close();
}

/// After a request that had not arrived completely before its call, a thread waits alone for the next request. It
/// waits only briefly, because it cannot be woken. So another thread must be free, or the connection joins the shared
/// poller.
#[test]
fn a_thread_waits_alone_where_there_is_another() {
    let handler = |req: &mut Request<'_>| -> Response {
        std::thread::sleep(Duration::from_millis(1));
        read_body(req)
    };
    for has_another in [true, false] {
        let (engine, _loops) = TestEngine::empty_with(handler, Settings::default().threads_max(2));
        while !has_another && engine.shared.pool.count_busy() {}
        let mut worker = engine.shared.worker_state();
        let mut stream = engine.post("/", "Expect: 100-continue\r\n\r\n");
        let (over, is_over) = std::sync::mpsc::channel();
        let shared = engine.shared.clone();
        let client = std::thread::spawn(move || {
            is_next_answer(&mut stream, "");
            stream.write_all(b"x").unwrap();
            is_next_answer(&mut stream, "1");
            if has_another {
                // The end of this connection would be an event for a thread that watches.
                let _: Result<(), _> = is_over.recv_timeout(TIMEOUT);
            } else {
                eventually("it is a member", || shared.pool.source.expects_events());
            }
        });
        engine.shared.serve_detached(engine.accept(), None, &mut worker);
        drop(over);
        client.join().unwrap();
        let (messages, counts) = (engine.messages(), engine.stats());
        let is_home = matches!(messages[..], [LoopMessage::Adopt(_)]);
        assert_eq!((is_home, counts.requests, counts.connections), (has_another, 1, 1));
    }
}

/// The monitor sleeps when the connection is added, because the server is idle otherwise.
#[test]
fn a_connection_added_after_a_long_call_is_evicted_too() {
    let handler = |_: &mut Request<'_>| {
        std::thread::sleep(Duration::from_millis(200));
        "passed"
    };
    let engine = TestEngine::open(crate::blocks(handler), |_| {});
    let mut member = engine.connect();
    ask_on(&mut member, "/");
    is_next_answer(&mut member, "passed");
    let poller = &engine.shared.pool.source;
    eventually("it has gone home, and nobody waits", || {
        poller.len() == 0 && !engine.shared.pool.watching() > 0
    });
    engine.close();
}

/// The half-close of a connection that is out reaches another thread, and is not lost.
#[test]
fn a_connection_half_closed_during_a_call_is_closed_after_its_response() {
    let gate = Arc::new(RwLock::new(()));
    let engine = TestEngine::open(crate::blocks(slow_after(&gate)), |_| {});
    let poller = &engine.shared.pool.source;
    in_some_round("its end came when the other one had left", || {
        let [mut stream, mut other] = [engine.connect(), engine.connect()];
        is_answered_on(&mut stream, "/1");
        is_answered_on(&mut other, "/1");
        let held = gate.write().unwrap();
        let before = engine.stats().requests;
        ask_on(&mut stream, "/gate");
        eventually("it is out", || engine.stats().requests > before);
        ask_on(&mut stream, "/2");
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        eventually("others were told", || !poller.has_events());
        drop(held);
        is_next_answer(&mut stream, "/2");
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
        // The client sees the end before the connection is counted out.
        eventually("it is gone", || engine.stats().connections == 1);
        poller.len() == 1
    });
    engine.close();
}

/// While a body arrives, each of its packets would wake a thread that waits for other connections.
#[test]
fn a_connection_within_a_request_is_not_in_the_shared_poller() {
    let gate = Arc::new(RwLock::new(()));
    let engine = TestEngine::open(crate::blocks(slow_after(&gate)), |_| {});
    let poller = &engine.shared.pool.source;
    in_some_round("it was quiet before it asked", || {
        let mut stream = engine.connect();
        is_answered_on(&mut stream, "/1");
        let members = poller.len();
        let held = gate.write().unwrap();
        let before = engine.stats().requests;
        // A body with more bytes than are read before the call, and not complete.
        stream.write_all(b"POST /gate HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n").unwrap();
        stream.write_all(&[b'a'; 100_000]).unwrap();
        eventually("it is out", || engine.stats().requests > before);
        assert_eq!(poller.len(), 0);
        drop(held);
        stream.write_all(b"a").unwrap();
        is_next_answer(&mut stream, "/gate");
        is_answered_on(&mut stream, "/2");
        members == 1
    });
    engine.close();
}

/// Shared connections that find no thread return to their loop. They wait in the queue, and other connections are
/// served meanwhile.
#[test]
fn shared_connections_without_a_thread_wait_in_the_queue() {
    let gate = Arc::new(RwLock::new(()));
    let engine = TestEngine::open(GateBlocks(slow_after(&gate)), |shared| shared.threads.give_at_most(4));
    let mut streams: Vec<_> = (0..8).map(|_| engine.connect()).collect();
    for stream in &mut streams {
        (0..3).for_each(|_| is_answered_on(stream, "/gate"));
    }
    assert!(engine.shared.pool.source.len() > 0);
    let held = gate.write().unwrap();
    streams.iter_mut().for_each(|stream| ask_on(stream, "/gate"));
    eventually("those without a thread are in the queue", || engine.shared.pool.stats().queued == 5);
    engine.is_quick();
    drop(held);
    streams.iter_mut().for_each(|stream| is_next_answer(stream, "/gate"));
    assert_eq!(engine.stats().shed, 0);
    engine.close();
}

/// Accepts the next waiting connection, with its request.
fn next_with_request(engine: &TestEngine) -> Box<Conn> {
    let (cx, mut conn) = (&engine.shared.cx, engine.accept());
    eventually("it has asked", || {
        let _ = conn.fill(cx.clock.now(), &mut crate::transport::BufferPool::alone());
        conn.step(cx.clock.now(), cx) == Step::Call
    });
    conn
}

/// A client that sends requests without a pause keeps its thread for a while. Then waiting requests get the thread.
#[test]
fn no_client_keeps_a_thread_from_a_queued_request() {
    let (engine, loops) = TestEngine::empty(slow);
    let shared = &engine.shared;
    let mut stream = engine.connect();
    stream.write_all(&b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000)).unwrap();
    let flood = next_with_request(&engine);
    let waits = engine.ask("/2");
    assert!(shared.pool.submit(Job::Serve(next_with_request(&engine)), || ()).is_ok());
    shared.serve_detached(flood, None, &mut shared.worker_state());
    assert!(engine.stats().requests < 3000);
    let messages = engine.messages();
    assert!(matches!(messages[..], [LoopMessage::Adopt(_)]), "{messages:?}");
    drop((loops, waits));
}

/// The loops adopt their connections if the server stops, or after a while without a request.
#[test]
fn idle_connections_return_to_their_loop() {
    let (engine, loops) = TestEngine::empty(slow);
    let poller = &engine.shared.pool.source;
    let _client = engine.connect();
    let mut conn = engine.accept();
    conn.owner.is_balanced = true;
    assert!(poller.add(&mut conn) == Some(true));
    assert!(poller.put_back(conn, engine.shared.cx.clock.now()).is_none());
    engine.shared.evict_idle(Duration::from_secs(60));
    assert!(engine.messages().is_empty(), "it is not idle for long");
    engine.shared.evict_idle(Duration::ZERO);
    let messages = engine.messages();
    // The loop then places the connection by the current loads.
    assert!(matches!(&messages[..], [LoopMessage::Adopt(conn)] if !conn.owner.is_balanced), "{messages:?}");
    drop(loops);
}
