//! Tests that quick routes are answered while every thread is in a handler that blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weftwork::{Engine, HandlerExt, Request, Response, Router, Running, Settings, quick};

use super::CASE;
use crate::support::{Client, Gate, eventually};

/// A server of few threads, all of which are in a handler.
struct Busy {
    server: Running,
    gate: Arc<Gate>,
    /// Whether `/turns` blocks from now on.
    blocks: Arc<AtomicBool>,
    blocked: Vec<Client>,
}

const THREADS: usize = 4;

impl Busy {
    fn start(change: impl FnOnce(Settings) -> Settings) -> Busy {
        let (gate, blocks) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let (passed, turns, turned) = (gate.clone(), gate.clone(), blocks.clone());
        let site = Router::new()
            .get("/gate", move |_: &mut Request| {
                passed.pass();
                "passed"
            })
            .get("/turns", move |_: &mut Request| {
                if turned.load(Ordering::SeqCst) {
                    turns.pass();
                }
                "turned"
            })
            .get("/probe", quick(|_: &mut Request| "alive"))
            .get("/new", |_: &mut Request| "new")
            .with(|req: &mut Request, next: weftwork::Next| -> Response { next.run(req) });
        let server = CASE.bind("127.0.0.1:0").settings(|s| change(s.threads_max(THREADS).standby_kept(1)));
        Busy { server: server.start(site).unwrap(), gate, blocks, blocked: Vec::new() }
    }

    fn client(&self) -> Client {
        Client::connect(&self.server)
    }

    /// Sends more requests that block than there are threads, and waits until all threads are in them.
    fn block(&mut self) {
        for _ in 0..4 * THREADS {
            let mut client = self.client();
            client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
            self.blocked.push(client);
        }
        let waits = |server: &Running| server.stats().queued + server.stats().shed >= 2;
        eventually("all threads are busy, and requests wait", || waits(&self.server));
    }

    /// All requests that were blocked are answered.
    fn ends(self) {
        self.gate.open();
        for mut client in self.blocked {
            let answer = client.answer();
            assert!(answer.status == 503 || answer.text() == "passed", "{answer:?}");
        }
    }
}

fn shares_its_loop() -> bool {
    matches!(CASE.engine, Engine::Adaptive { .. } | Engine::Pool { .. })
}

/// From its first request on, whatever waits.
#[test]
fn a_marked_route_is_answered_though_all_threads_are_busy() {
    if !shares_its_loop() {
        return;
    }
    let mut busy = Busy::start(|settings| settings);
    busy.block();
    for _ in 0..3 {
        busy.client().get("/probe").is(200, "alive");
    }
    busy.ends();
}

#[test]
fn a_marked_route_is_answered_though_the_queue_is_full() {
    if !shares_its_loop() {
        return;
    }
    let mut busy = Busy::start(|settings| settings.queue_max(2));
    busy.block();
    eventually("the queue is full", || busy.server.stats().shed > 0);
    busy.client().get("/probe").is(200, "alive");
    busy.ends();
}

/// The loop goes on with a route that was quick a few times. On a busy machine, a quick call may look like one that blocks, and the
/// route then waits like others.
#[test]
fn an_unmarked_route_is_answered_though_the_queue_is_full() {
    if !matches!(CASE.engine, Engine::Adaptive { .. }) {
        return;
    }
    let is_answered = || {
        let mut busy = Busy::start(|settings| settings.queue_max(2));
        // Not so often that it is proven to be quick.
        (0..8).for_each(|_| busy.client().get("/new").is(200, "new"));
        busy.block();
        eventually("the queue is full", || busy.server.stats().shed > 0);
        let status = busy.client().get("/new").status;
        busy.ends();
        status == 200
    };
    assert!((0..10).any(|_| is_answered()), "it was never answered");
}

/// The loop moves to a spare thread.
#[test]
fn a_proven_route_that_starts_to_block_does_not_stop_its_loop() {
    if !matches!(CASE.engine, Engine::Adaptive { .. }) {
        return;
    }
    let mut busy = Busy::start(|settings| settings);
    let mut client = busy.client();
    (0..40).for_each(|_| client.get("/turns").is(200, "turned"));
    busy.block();
    busy.blocks.store(true, Ordering::SeqCst);
    let mut turned = busy.client();
    turned.send("GET /turns HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the loop was retaken", || busy.server.stats().loops_retaken >= 1);
    for _ in 0..3 {
        busy.client().get("/probe").is(200, "alive");
    }
    busy.gate.open();
    turned.answer().is(200, "turned");
    busy.ends();
}
