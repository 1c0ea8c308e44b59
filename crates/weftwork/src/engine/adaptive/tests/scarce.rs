//! Tests requests while the system allows one thread besides the leader, or no thread.

use super::*;
use crate::engine::testing::client::while_asking_without_end;

#[test]
fn without_a_thread_beside_the_leader_the_server_does_not_start() {
    let (engine, loops) = TestEngine::empty(slow);
    engine.shared.threads.give_at_most(1);
    assert!(engine.shared.open(loops).is_err());
    engine.close();
}

#[test]
fn one_thread_beside_the_leader_makes_the_calls() {
    for handler in [Blocking::Never, Blocking::Always, Blocking::Learn { route: 7 }] {
        let engine = TestEngine::open(Says(handler), |shared| shared.threads.give_at_most(2));
        let asked: Vec<_> = (0..8).map(|_| engine.ask("/")).collect();
        asked.into_iter().for_each(is_answered);
        eventually("the queue is empty", || engine.shared.pool.stats().queued == 0);
        engine.close();
    }
}

#[test]
fn a_client_that_asks_without_end_there_does_not_keep_the_loop_from_others() {
    let handler = |_: &mut Request<'_>| "hello";
    let engine = TestEngine::open(handler, |shared| shared.threads.give_at_most(2));
    while_asking_without_end(&engine.connect(), || {
        eventually("it is answered", || engine.stats().requests > 1000);
        for _ in 0..3 {
            is_answered(engine.ask("/"));
        }
    });
    engine.close();
}

/// An upgraded connection has the thread until it ends, and then the next connection has it.
#[test]
fn upgraded_connections_have_that_thread_one_after_the_other() {
    let handler = |_: &mut Request<'_>| Response::upgrade(HeaderValue::from_static("echo"), |_| Ok(()));
    let engine = TestEngine::open(handler, |shared| shared.threads.give_at_most(2));
    for _ in 0..3 {
        let mut stream = engine.connect();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&answer));
    }
    assert_eq!((engine.shared.pool.stats().queued, engine.stats().shed), (0, 0));
    engine.close();
}

/// A handler that blocks, directly and through the library, no matter what it announces.
struct Says(Blocking);

impl Handler for Says {
    fn call(&self, _: &mut Request<'_>) -> Response {
        std::thread::sleep(Duration::from_millis(3));
        crate::sleep(Duration::from_millis(3));
        Response::text("hello")
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        self.0
    }
}
