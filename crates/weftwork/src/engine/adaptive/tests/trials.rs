//! Tests requests of routes that are not known yet, while all threads are busy.

use super::*;
use crate::engine::testing::client::{ask_on, is_answered_on, is_next_answer};

const THREADS: usize = 4;

/// `/probe` is marked as quick. The paths with `gate` wait, and all others are quick and not marked.
struct Site<H>(H);

impl<H: Handler> Handler for Site<H> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.0.call(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        if line.path() == "/probe" { Blocking::Never } else { self.0.blocking(line) }
    }
}

fn site(gate: &Arc<RwLock<()>>) -> impl Handler {
    let gate = gate.clone();
    Site(move |req: &mut Request<'_>| {
        if req.path().contains("gate") {
            drop(gate.read().unwrap());
        }
        req.path().to_owned()
    })
}

fn start(gate: &Arc<RwLock<()>>) -> TestEngine {
    let settings = Settings::default().threads_max(THREADS).standby_kept(1);
    let (engine, loops) = TestEngine::empty_with(site(gate), settings);
    engine.shared.open(loops).unwrap();
    engine
}

/// Sends more requests that block than there are threads.
fn block(engine: &TestEngine) -> Vec<TcpStream> {
    let blocked = (0..3 * THREADS).map(|_| engine.ask("/gate")).collect();
    // One thread leads the loop.
    eventually("all threads are busy", || engine.shared.pool.stats().queued > 2 * THREADS);
    blocked
}

#[test]
fn a_quick_route_is_answered_from_its_first_request_on_though_all_threads_are_busy() {
    let gate = Arc::new(RwLock::new(()));
    let engine = start(&gate);
    let held = gate.write().unwrap();
    let blocked = block(&engine);
    let mut kept = engine.connect();
    for path in ["/new", "/newer", "/new"] {
        is_answered(engine.ask(path));
        (0..20).for_each(|_| is_answered_on(&mut kept, path));
    }
    assert!(engine.shared.pool.stats().threads <= THREADS + 1);
    drop(held);
    blocked.into_iter().for_each(is_answered);
    engine.close();
}

/// A route that blocks is tried by one thread, and the loop goes on.
#[test]
fn routes_that_turn_out_to_block_take_one_thread_and_no_loop() {
    let gate = Arc::new(RwLock::new(()));
    let engine = start(&gate);
    let held = gate.write().unwrap();
    let mut blocked = block(&engine);
    for path in ["/gate2", "/gate2", "/gate3", "/gate3"] {
        blocked.push(engine.ask(path));
    }
    eventually("one is tried", || engine.busy() == THREADS + 1);
    for _ in 0..3 {
        is_answered(engine.ask("/probe"));
    }
    assert_eq!(engine.shared.pool.stats().threads, THREADS + 1);
    drop(held);
    blocked.into_iter().for_each(is_answered);
    eventually("the thread that was one too many has ended", || {
        engine.shared.pool.stats().threads <= THREADS
    });
    engine.close();
}

/// The system refuses the thread: the request waits as any other, and no thread may be missed by a loop.
#[test]
fn a_trial_without_a_thread_waits() {
    let gate = Arc::new(RwLock::new(()));
    let engine = start(&gate);
    engine.shared.threads.give_at_most(THREADS);
    let held = gate.write().unwrap();
    let blocked = block(&engine);
    let new = engine.ask("/new");
    eventually("it waits too", || engine.shared.pool.stats().queued == 2 * THREADS + 2);
    assert!(!engine.shared.pool.is_starved());
    is_answered(engine.ask("/probe"));
    drop(held);
    blocked.into_iter().chain([new]).for_each(is_answered);
    engine.close();
}

/// A connection whose last call has blocked waits for a pool thread with its next request.
#[test]
fn a_quick_request_behind_one_that_blocked_is_answered_though_all_threads_are_busy() {
    let gate = Arc::new(RwLock::new(()));
    let engine = start(&gate);
    in_some_round("it was in the shared poller, and not for long", || {
        let mut kept = engine.connect();
        let held = gate.write().unwrap();
        ask_on(&mut kept, "/gate");
        let first = block(&engine);
        drop(held);
        first.into_iter().for_each(is_answered);
        is_next_answer(&mut kept, "/gate");
        let held = gate.write().unwrap();
        let blocked = block(&engine);
        let is_shared = engine.shared.pool.source.len() > 0;
        let begun = Instant::now();
        is_answered_on(&mut kept, "/probe");
        let took = begun.elapsed();
        is_answered_on(&mut kept, "/new");
        drop(held);
        blocked.into_iter().for_each(is_answered);
        // Otherwise it stays there for half a second. The machine may be busy for a moment.
        is_shared && took < Duration::from_millis(250)
    });
    engine.close();
}

/// Of requests of one route that come together, none waits behind those that block.
#[test]
fn requests_of_a_new_route_that_come_together_are_answered() {
    let gate = Arc::new(RwLock::new(()));
    let engine = start(&gate);
    let held = gate.write().unwrap();
    let blocked = block(&engine);
    for path in ["/new", "/newer"] {
        let asked: Vec<_> = (0..12).map(|_| engine.ask(path)).collect();
        asked.into_iter().for_each(is_answered);
    }
    drop(held);
    blocked.into_iter().for_each(is_answered);
    engine.close();
}
