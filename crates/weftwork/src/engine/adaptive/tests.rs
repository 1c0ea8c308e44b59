//! Tests requests while threads are short, calls that block, and code of users that panics.

mod files;
mod scarce;
#[cfg(target_os = "linux")]
mod shared;
mod trials;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::RwLock;
use std::time::Instant;

use http::HeaderValue;

use super::*;
use crate::engine::loops::LoopMessage;
use crate::engine::testing::burst::{self, eventually};
use crate::engine::testing::client::in_some_round;
use crate::message::{Blocking, IntoResponse, Request, RequestLine, Response};
use crate::settings::Settings;
use crate::transport::address::Address;

/// Much longer than any wait here takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An engine with one loop, and its shared state.
struct TestEngine {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl TestEngine {
    fn open(handler: impl Handler, prepare: impl FnOnce(&Shared)) -> TestEngine {
        let (engine, loops) = TestEngine::empty(handler);
        prepare(&engine.shared);
        engine.shared.open(loops).unwrap();
        engine
    }

    /// Creates an engine without threads.
    fn empty(handler: impl Handler) -> (TestEngine, Vec<EventLoop>) {
        TestEngine::empty_with(handler, Settings::default())
    }

    fn empty_with(handler: impl Handler, settings: Settings) -> (TestEngine, Vec<EventLoop>) {
        TestEngine::empty_of(1, handler, settings)
    }

    fn empty_of(loops: usize, handler: impl Handler, settings: Settings) -> (TestEngine, Vec<EventLoop>) {
        TestEngine::empty_in(Mode::Adaptive { loops }, handler, settings)
    }

    fn empty_in(mode: Mode, handler: impl Handler, settings: Settings) -> (TestEngine, Vec<EventLoop>) {
        let listener = burst::listener(128);
        let Address::Tcp(address) = listener.address().clone() else { panic!("not a TCP address") };
        let handler: Arc<dyn Handler> = Arc::new(handler);
        let settings = settings.connections_max(1000).accepted_max(1000);
        let cx = Arc::new(Context::new(settings).unwrap().of(handler.clone()));
        let (shared, loops) = Shared::new(mode, cx, handler, Arc::new(vec![listener])).unwrap();
        (TestEngine { shared, address }, loops)
    }

    /// Accepts the next waiting connection.
    fn accept(&self) -> Box<Conn> {
        let mut next = None;
        eventually("somebody waits at the door", || {
            next = self.shared.listeners.accept(self.shared.cx.clock.now(), &self.shared.cx);
            next.is_some()
        });
        next.unwrap()
    }

    fn connect(&self) -> TcpStream {
        crate::engine::testing::client::connect(self.address)
    }

    /// Sends a request, which is the last of its connection.
    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    /// Sends a POST of one byte and of `more`.
    fn post(&self, path: &str, more: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{more}").unwrap();
        stream
    }

    /// Returns the messages that were sent to the loop since the last call.
    fn messages(&self) -> Vec<LoopMessage> {
        let mut messages = Vec::new();
        self.shared.loops.handle(0).inbox.take_all(&mut messages);
        messages
    }

    /// Returns the number of threads that have work.
    fn busy(&self) -> usize {
        let stats = self.shared.pool.stats();
        stats.threads - stats.idle
    }

    #[track_caller]
    fn is_quick(&self) {
        let mut took: Vec<Duration> = (0..20)
            .map(|_| {
                let begun = Instant::now();
                is_answered(self.ask("/"));
                begun.elapsed()
            })
            .collect();
        took.sort();
        // The machine may be busy for a moment.
        assert!(took[15] < Duration::from_secs(1), "{took:?}");
    }

    fn stats(&self) -> crate::ServerStats {
        self.shared.cx.stats()
    }

    fn close(self) {
        let handle = self.shared;
        handle.cx.enter(Stage::Closing);
        handle.wake();
        assert_eq!(handle.join(TIMEOUT), 0);
        assert_eq!(handle.cx.stats().connections, 0);
    }
}

fn read_body(req: &mut Request<'_>) -> Response {
    req.body().bytes().map_err(crate::Error::from).map(|body| body.len().to_string()).into_response()
}

/// Checks that the response is 503, after a 100.
#[track_caller]
fn is_refused(stream: &mut TcpStream) {
    let mut answer = String::new();
    while !answer.contains("HTTP/1.1 503 ") {
        let mut part = [0; 1024];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{answer:?}");
        answer += std::str::from_utf8(&part[..count]).unwrap();
    }
}

#[track_caller]
fn is_answered(mut stream: TcpStream) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
}

/// Responds with the path, after a while, except for `/quick`.
fn slow(req: &mut Request<'_>) -> String {
    if req.path() != "/quick" {
        std::thread::sleep(Duration::from_millis(1));
    }
    req.path().to_owned()
}

/// Returns a handler. `/` is quick, and all other paths wait until no thread writes to `gate`.
fn gated(gate: &Arc<RwLock<()>>) -> impl Handler {
    let gate = gate.clone();
    move |req: &mut Request<'_>| {
        if req.path() != "/" {
            drop(gate.read().unwrap());
        }
        Response::text("passed")
    }
}

/// The reason may be the limit of a container, which is below `threads_max`.
#[test]
fn requests_wait_for_existing_threads_if_the_system_refuses_more() {
    let gate = Arc::new(RwLock::new(()));
    // A route that only is quick may lose that on a busy machine.
    let engine = TestEngine::open(GateBlocks(gated(&gate)), |shared| shared.threads.give_at_most(6));
    for _ in 0..2 {
        let held = gate.write().unwrap();
        let blocked: Vec<_> = (0..40).map(|_| engine.ask("/gate")).collect();
        eventually("all others wait", || engine.shared.pool.stats().queued == 35);
        engine.is_quick();
        // Waits until the system is asked for threads again.
        std::thread::sleep(crate::engine::thread_pool::SPAWN_BACKOFF);
        engine.is_quick();
        drop(held);
        blocked.into_iter().for_each(is_answered);
    }
    assert_eq!(engine.stats().shed, 0);
    engine.close();
}

/// The monitor checks less often then.
#[test]
fn a_handler_that_blocks_after_a_long_calm_loses_the_loop() {
    let gate = Arc::new(RwLock::new(()));
    let engine = TestEngine::open(gated(&gate), |_| ());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        is_answered(engine.ask("/"));
    }
    let held = gate.write().unwrap();
    let blocked = engine.ask("/gate");
    engine.is_quick();
    drop(held);
    is_answered(blocked);
    assert!(engine.stats().loops_retaken > 0, "nobody took the loop from it");
    engine.close();
}

#[test]
fn close_checks_take_the_loop_from_a_call_that_goes_on() {
    let (engine, mut loops) = TestEngine::empty(slow);
    let (cell, mut looks) = (&engine.shared.cells[0], engine.shared.first_looks());
    engine.shared.look_closely(&mut looks);
    assert_eq!((looks.close, engine.stats().loops_retaken), (0, 0), "no call has the loop");
    let ticket = cell.release(Box::new(loops.remove(0)));
    engine.shared.look_closely(&mut looks);
    assert!(looks.close > 0 && cell.reacquire(ticket).is_none());
    engine.close();
}

#[test]
fn close_checks_follow_a_check_that_has_retaken_a_loop() {
    let (engine, mut loops) = TestEngine::empty(slow);
    let _ticket = engine.shared.cells[0].release(Box::new(loops.remove(0)));
    let mut looks = engine.shared.first_looks();
    engine.shared.look(&mut looks);
    assert!(looks.close > 0 && engine.stats().loops_retaken == 1);
    engine.close();
}

/// `/gate` is marked as blocking, and all other paths as quick, no matter how slow the machine is.
struct GateBlocks<H>(H);

impl<H: Handler> Handler for GateBlocks<H> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.0.call(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        if line.path() == "/gate" { Blocking::Always } else { Blocking::Never }
    }
}

/// Routes that were quick so far are called inline. If all threads are in use, a client that makes such a call wait
/// has its request refused, or its response truncated. It does not keep the loop.
#[test]
fn no_client_keeps_the_loop_from_the_others() {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.clone();
    let handler = move |req: &mut Request<'_>| match req.path() {
        "/gate" => {
            drop(closed.read().unwrap());
            Response::text("passed")
        }
        "/stream" => {
            let pieces = if req.query() == Some("long") { 1000 } else { 1 };
            Response::stream(move |out| (0..pieces).try_for_each(|_| out.write_all(&[b'x'; 64 << 10])))
        }
        _ => {
            if req.header("late").is_some() {
                // The loop is handed off before the wait for the body.
                crate::blocking(|| ());
            }
            read_body(req)
        }
    };
    let engine = TestEngine::open(GateBlocks(handler), |shared| shared.threads.give_at_most(4));
    let post = |more: &str| engine.post("/", more);
    (0..2).for_each(|_| engine.is_quick());
    (0..40).for_each(|_| is_answered(engine.ask("/stream")));
    (0..40).for_each(|_| is_answered(post("Connection: close\r\n\r\nx")));
    let held = gate.write().unwrap();
    let blocked: Vec<_> = (0..10).map(|_| engine.ask("/gate")).collect();
    eventually("no thread is free", || engine.shared.pool.stats().queued == 7);

    let mut silent = post("Expect: 100-continue\r\n\r\n");
    is_refused(&mut silent);
    engine.is_quick();

    let mut deaf = engine.ask("/stream?long");
    eventually("it is cut", || engine.stats().shed == 2);
    engine.is_quick();
    let mut part = Vec::new();
    // The connection ends or is reset.
    let _ = deaf.read_to_end(&mut part);
    assert!(!part.ends_with(b"0\r\n\r\n"), "it looks whole");

    let mut late = post("Late: 1\r\nExpect: 100-continue\r\n\r\n");
    is_refused(&mut late);
    engine.is_quick();

    drop(held);
    blocked.into_iter().for_each(is_answered);
    engine.close();
}

/// `/gate` is known to block. All other paths count as quick, although some of them are held.
struct TwoGates {
    gate: Arc<RwLock<()>>,
    held: Arc<RwLock<()>>,
}

impl Handler for TwoGates {
    fn call(&self, req: &mut Request<'_>) -> Response {
        if req.path() == "/gate" {
            drop(self.gate.read().unwrap());
        } else if req.header("held").is_some() {
            drop(self.held.read().unwrap());
        }
        if req.header("upgrade").is_some() {
            return Response::upgrade(HeaderValue::from_static("echo"), |mut line| {
                let mut byte = [0];
                line.read_exact(&mut byte)?;
                line.write_all(&byte)
            });
        }
        read_body(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        if line.path() == "/gate" { Blocking::Always } else { Blocking::Never }
    }
}

/// Starts an engine with this many threads. Returns both gates.
fn two_gates(threads: usize) -> (TestEngine, Arc<RwLock<()>>, Arc<RwLock<()>>) {
    let (gate, held) = <(Arc<RwLock<()>>, Arc<RwLock<()>>)>::default();
    let handler = TwoGates { gate: gate.clone(), held: held.clone() };
    (TestEngine::open(handler, |shared| shared.threads.give_at_most(threads)), gate, held)
}

/// The leader can tell even before another thread leads the loop. It reads the time of the call from the clock, not
/// from the loop.
#[test]
fn a_leader_whose_loop_was_retaken_can_tell_at_once() {
    let (engine, gate, other_gate) = two_gates(2);
    let (held, other_held) = (gate.write().unwrap(), other_gate.write().unwrap());
    let blocked = engine.ask("/gate");
    eventually("the other thread is busy", || engine.busy() == 2);
    let mut leader = engine.connect();
    leader.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHeld: 1\r\nConnection: close\r\n\r\n").unwrap();
    eventually("its loop is retaken", || engine.stats().loops_retaken == 1);
    eventually("it can tell", || engine.shared.cells[0].epoch().is_multiple_of(2));
    drop((held, other_held));
    is_answered(leader);
    is_answered(blocked);
    engine.close();
}

/// If a loop has lost its leader to a handler that blocks, no thread waits for a client while the loop waits for a
/// thread.
#[test]
fn a_thread_that_would_wait_for_a_client_leads_a_loop_without_leader() {
    let (engine, gate, other_gate) = two_gates(4);
    let (held, other_held) = (gate.write().unwrap(), other_gate.write().unwrap());
    let silent = [(); 3].map(|()| engine.post("/gate", "Expect: 100-continue\r\n\r\n"));
    eventually("they have their threads", || engine.busy() == 4);
    let mut leader = engine.connect();
    leader.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHeld: 1\r\nConnection: close\r\n\r\n").unwrap();
    eventually("the loop waits for a thread", || engine.shared.pool.stats().queued == 1);
    drop(held);
    engine.is_quick();
    // More than one thread may have seen the loop wait.
    let counts = engine.stats();
    assert!((1..=3).contains(&counts.shed) && counts.timeouts == 0, "{counts:?}");
    drop((silent, other_held));
    is_answered(leader);
    engine.close();
}

/// An upgraded connection may hold the thread without limit, and the next request of its connection may block like
/// this one.
#[test]
fn a_thread_that_keeps_a_connection_leads_a_loop_without_leader() {
    for (fields, then, answers) in [
        ("Connection: upgrade\r\nUpgrade: echo\r\n\r\n", "!", ["HTTP/1.1 101 ", "\r\n\r\n!"]),
        (
            "\r\nGET /gate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "",
            ["HTTP/1.1 200 ", "\r\n\r\n0"],
        ),
    ] {
        let (engine, gate, other_gate) = two_gates(2);
        let (held, other_held) = (gate.write().unwrap(), other_gate.write().unwrap());
        let blocked = engine.ask("/gate");
        eventually("it has its thread", || engine.busy() == 2);
        let mut client = engine.connect();
        write!(client, "GET / HTTP/1.1\r\nHost: a\r\nHeld: 1\r\n{fields}").unwrap();
        eventually("the loop waits for a thread", || engine.shared.pool.stats().queued == 1);
        drop(other_held);
        engine.is_quick();
        drop(held);
        is_answered(blocked);
        client.write_all(then.as_bytes()).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(said.starts_with(answers[0]) && said.ends_with(answers[1]), "{said}");
        engine.close();
    }
}

/// If connections end with their calls, a thread that has answered one connection accepts the next.
#[test]
fn a_thread_accepts_after_a_call_that_blocked() {
    in_some_round("behind a call that was quick, the door is for the loops", || {
        let (engine, _loops) = TestEngine::empty(slow);
        let mut worker = engine.shared.worker_state();
        let asked = ["/1", "/2", "/quick", "/3"].map(|path| engine.ask(path));
        engine.shared.serve_detached(engine.accept(), None, &mut worker);
        let counts = engine.stats();
        assert_eq!(counts.connections, 0, "it has taken in all but the last");
        // The thread may have been suspended within the quick call.
        let was_quick = counts.requests == 3;
        let [first, second, quick, third] = asked;
        [first, second, quick].into_iter().for_each(is_answered);
        if was_quick {
            engine.shared.serve_detached(engine.accept(), None, &mut worker);
        }
        is_answered(third);
        was_quick
    });
}

/// The loop waits for a client that connects and sends nothing. The thread serves requests that wait.
#[test]
fn a_thread_that_accepts_is_not_held_by_a_silent_client() {
    let (engine, loops) = TestEngine::empty(slow);
    let mut worker = engine.shared.worker_state();
    let (asked, _silent) = (engine.ask("/1"), engine.connect());
    engine.shared.serve_detached(engine.accept(), None, &mut worker);
    is_answered(asked);
    let messages = engine.messages();
    assert!(matches!(messages[..], [LoopMessage::Adopt(_)]), "{messages:?}");
    assert_eq!(engine.stats().connections, 1);

    let [waits, served, at_door] = ["/2", "/3", "/4"].map(|path| engine.ask(path));
    assert!(engine.shared.pool.submit(Job::Serve(engine.accept()), || ()).is_ok());
    let mut conn = engine.accept();
    assert!(conn.fill(engine.shared.cx.clock.now(), &mut worker.thread.pool).unwrap() > 0);
    engine.shared.serve_detached(conn, None, &mut worker);
    is_answered(served);
    drop((engine.accept(), waits, at_door, loops));
}

/// A handler whose code outside of the call panics.
struct Mined;

struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("as asked");
    }
}

impl Handler for Mined {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let mine = req.path().ends_with("mine").then(|| Mine);
        if req.path().starts_with("/away") {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The body of a response to HEAD is not written, so its writer is dropped.
        Response::stream(move |_| {
            drop(mine);
            Ok(())
        })
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        assert!(line.path() != "/ahead", "as asked");
        true
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        assert!(line.path() != "/odd", "as asked");
        match line.path() {
            "/away/mine" | "/away" => Blocking::Always,
            _ => Blocking::Never,
        }
    }
}

#[test]
fn a_panic_outside_of_a_handler_frees_the_slot() {
    let engine = TestEngine::open(Mined, |_| {});
    for path in ["/odd", "/mine", "/away/mine"] {
        for _ in 0..3 {
            let mut stream = engine.connect();
            write!(stream, "HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            // The connection may end in any way.
            let _ = stream.read_to_end(&mut answer);
        }
    }
    for _ in 0..3 {
        // With its second request, the connection is in the shared poller.
        let mut stream = engine.connect();
        stream.write_all(b"HEAD /away HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(b"HEAD /away/mine HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    eventually("nobody is a member", || engine.shared.pool.source.len() == 0);
    for _ in 0..3 {
        let mut stream = engine.connect();
        write!(stream, "HEAD /ahead HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 500 "), "{}", answer.escape_ascii());
    }
    eventually("the connections are gone", || engine.stats().connections == 0);
    eventually("so are their places", || {
        is_answered(engine.ask("/"));
        engine.shared.loops.load(0) <= 1
    });
    engine.close();
}
