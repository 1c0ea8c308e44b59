//! Tests requests of routes that were quick a few times, while all threads are busy.

use super::*;
use crate::engine::testing::client::is_answered_on;

const THREADS: usize = 4;
const BLOCKED: usize = 3 * THREADS;

/// `/gate` is marked as blocking and `/probe` as quick. All paths with `gate` wait, and all others are quick.
struct Site<H>(H);

impl<H: Handler> Handler for Site<H> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.0.call(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        match line.path() {
            "/gate" => Blocking::Always,
            "/probe" => Blocking::Never,
            _ => self.0.blocking(line),
        }
    }
}

/// Returns an engine whose threads are all busy, and the requests that they are busy with or that wait.
fn busy(gate: &Arc<RwLock<()>>) -> (TestEngine, Vec<TcpStream>) {
    let gate = gate.clone();
    let site = Site(move |req: &mut Request<'_>| {
        if req.path().contains("gate") {
            drop(gate.read().unwrap());
        }
        req.path().to_owned()
    });
    let settings = Settings::default().threads_max(THREADS).standby_kept(1);
    let (engine, loops) = TestEngine::empty_with(site, settings);
    engine.shared.open(loops).unwrap();
    let blocked = block(&engine);
    (engine, blocked)
}

/// Makes all threads busy.
fn block(engine: &TestEngine) -> Vec<TcpStream> {
    let blocked = (0..BLOCKED).map(|_| engine.ask("/gate")).collect();
    // One thread leads the loop.
    eventually("all threads are busy", || {
        engine.busy() == THREADS && engine.shared.pool.stats().queued == BLOCKED - (THREADS - 1)
    });
    blocked
}

/// Records a quick call of the route.
fn note_quick(engine: &TestEngine, path: &str) {
    let line = RequestLine::new(&http::Method::GET, path.as_bytes());
    let Blocking::Learn { route } = engine.shared.handler.blocking(&line) else { panic!("{path} is marked") };
    engine.shared.predictor.record_quick(route);
}

#[test]
fn a_route_that_was_quick_once_is_answered_though_all_threads_are_busy() {
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    let (engine, blocked) = busy(&gate);
    // One request each. On a busy machine, a quick call may seem to block.
    for path in ["/new", "/newer", "/newest"] {
        note_quick(&engine, path);
        is_answered(engine.ask(path));
    }
    drop(held);
    blocked.into_iter().for_each(is_answered);
    engine.close();
}

#[test]
fn such_routes_that_start_to_block_take_one_thread_and_no_loop() {
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    let (engine, mut blocked) = busy(&gate);
    ["/gate2", "/gate3"].iter().for_each(|path| note_quick(&engine, path));
    blocked.push(engine.ask("/gate2"));
    eventually("its loop was retaken", || engine.stats().loops_retaken > 0);
    // Neither the same route nor another one gets a second thread.
    blocked.extend(["/gate2", "/gate3"].map(|path| engine.ask(path)));
    eventually("they wait", || engine.shared.pool.stats().queued == BLOCKED - (THREADS - 1) + 2);
    for _ in 0..3 {
        is_answered(engine.ask("/probe"));
    }
    assert_eq!(engine.shared.pool.stats().threads, THREADS + 1);
    drop(held);
    blocked.into_iter().for_each(is_answered);
    eventually("the thread that was one too many has ended", || {
        engine.shared.pool.stats().threads <= THREADS
    });
    note_quick(&engine, "/new");
    is_answered(engine.ask("/new"));
    engine.close();
}

#[test]
fn a_route_that_was_never_called_waits_for_a_thread() {
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    let (engine, mut blocked) = busy(&gate);
    blocked.extend(["/gate2", "/new"].map(|path| engine.ask(path)));
    eventually("they wait", || engine.shared.pool.stats().queued == BLOCKED - (THREADS - 1) + 2);
    is_answered(engine.ask("/probe"));
    drop(held);
    blocked.into_iter().for_each(is_answered);
    engine.close();
}

/// A connection whose last call has blocked waits in the shared poller.
#[test]
fn a_quick_request_behind_a_blocking_one_is_answered_though_all_threads_are_busy() {
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    let (engine, blocked) = busy(&gate);
    drop(held);
    blocked.into_iter().for_each(is_answered);
    in_some_round("it was in the shared poller, and not for long", || {
        let mut kept = engine.connect();
        is_answered_on(&mut kept, "/gate");
        let held = gate.write().unwrap();
        let blocked = block(&engine);
        let is_shared = engine.shared.pool.source.len() > 0;
        let begun = Instant::now();
        is_answered_on(&mut kept, "/probe");
        let took = begun.elapsed();
        drop(held);
        blocked.into_iter().for_each(is_answered);
        // Without another thread, the connection stays for half a second. The machine may be busy for a moment.
        is_shared && took < Duration::from_millis(250)
    });
    engine.close();
}
