//! Drives a connection without an engine. Whenever the server has nothing left to do, the client runs its next
//! step, or the clock moves.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;

use super::lockstep::Lockstep;
use super::pipe::{ClientStep, Pipe, StepResult};
use super::response::{NoResponse, TestResponse, take_response};
use super::secured::Secured;
use crate::conn::{Call, Conn, Flushed, IoWait, Readiness, Step};
use crate::engine::{BlockingHook, Work, enter};
use crate::message::{Handler, ProblemShape};
use crate::settings::Settings;
use crate::transport::context::{Context, Stage};
use crate::transport::stream::{Duplex, is_would_block};
use crate::transport::{BufferPool, CallSlot, DateCache, Stream, Tick};

/// State that the connections of one test share.
pub(super) struct TestServer {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) cx: Context,
    pub(super) clock: Arc<AtomicU64>,
}

impl TestServer {
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        settings: Settings,
        problems: Option<ProblemShape>,
    ) -> io::Result<TestServer> {
        let cx = Context::new(settings)?.of(handler.clone()).with_problems(problems);
        Ok(TestServer { handler, cx, clock: Arc::default() })
    }

    pub(super) fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn advance_to(&self, tick: Tick) {
        self.clock.fetch_max(tick.0, Ordering::Relaxed);
    }
}

/// One connection to the handler of a [`TestClient`](super::TestClient), byte by byte. Use it for what an
/// ordinary client does not do, such as malformed requests, pipelining and early disconnects.
///
/// After each action of this side, the server side runs until it waits for this side again.
///
/// ```
/// use weftwork::{Request, TestClient};
///
/// let client = TestClient::new(|req: &mut Request| req.path().to_owned());
/// let mut connection = client.connect();
/// connection.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
/// assert_eq!(connection.response().text(), "/a");
/// assert_eq!(connection.response().text(), "/b");
/// connection.send("bad\r\n\r\n");
/// assert_eq!(connection.response().status, 400);
/// ```
pub struct TestConnection {
    server: Arc<TestServer>,
    /// `None` after the server has dropped the connection.
    pub(super) conn: Option<Box<Conn>>,
    pub(super) pipe: Arc<Pipe>,
    pub(super) pool: BufferPool,
    dates: DateCache,
    slot: Arc<CallSlot>,
    /// Methods of the requests that the handler got and whose responses were not taken yet.
    methods: VecDeque<Method>,
    /// Whether the response that was written last ends with its head.
    ends_with_head: bool,
    /// Whether the handler answered with something that needs a thread and a socket of its own.
    pub(super) is_upgraded: bool,
    /// Set if a separate thread drives the connection. It yields to the test when the handler waits.
    pub(super) lockstep: Option<Lockstep>,
}

impl TestConnection {
    pub(super) fn open(
        server: &Arc<TestServer>,
        peer: SocketAddr,
        secured: Secured,
    ) -> io::Result<TestConnection> {
        let pipe = Arc::new(Pipe::new(secured)?);
        Ok(TestConnection::over(server, peer, pipe.clone(), pipe))
    }

    /// Creates a connection whose server side uses `stream`, which may forward to `pipe`.
    pub(super) fn over(
        server: &Arc<TestServer>,
        peer: SocketAddr,
        pipe: Arc<Pipe>,
        stream: Arc<dyn Duplex>,
    ) -> TestConnection {
        let now = server.now();
        let conn = Conn::new(Stream::Memory(stream), Some(peer), now, &server.cx);
        let (pool, dates) = (BufferPool::alone(), DateCache::new(now));
        let (server, methods) = (server.clone(), VecDeque::new());
        let slot = server.cx.watchdog.call_slot();
        let (ends_with_head, is_upgraded) = (false, false);
        let (conn, lockstep) = (Some(conn), None);
        TestConnection {
            server,
            conn,
            pipe,
            pool,
            dates,
            slot,
            methods,
            ends_with_head,
            is_upgraded,
            lockstep,
        }
    }

    /// Sends arbitrary bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.act(ClientStep::Bytes(bytes.as_ref().to_vec()));
    }

    /// Sends bytes in pieces. Each piece is sent when the server waits for input, in the handler or between
    /// requests.
    pub fn send_pieces<B: AsRef<[u8]>>(&mut self, pieces: impl IntoIterator<Item = B>) {
        pieces.into_iter().for_each(|piece| self.pipe.push_step(ClientStep::Bytes(piece.as_ref().to_vec())));
        self.run();
    }

    /// Ends this side and keeps reading.
    pub fn end(&mut self) {
        self.act(ClientStep::End);
    }

    /// Disconnects without closing properly: the server's next read or write fails.
    pub fn reset(&mut self) {
        self.act(ClientStep::Reset);
    }

    /// Takes `bytes` more of what the server sends, then nothing until the next call. Without this call
    /// everything is taken at once. A client that holds 64 MiB which its test has not taken disconnects.
    pub fn read_at_most(&mut self, bytes: u64) {
        self.pipe.take_at_most(bytes, false);
        self.run();
    }

    /// Advances the clock. Deadlines that pass take effect.
    pub fn advance(&mut self, time: Duration) {
        self.advance_until(self.server.now().after(time));
    }

    pub(super) fn advance_until(&mut self, until: Tick) {
        while self.advance_to_deadline(until) {}
        self.server.advance_to(until);
        self.run();
    }

    /// Takes the next whole response.
    ///
    /// # Panics
    /// Panics if there is no whole response. See [`try_response`](TestConnection::try_response).
    #[track_caller]
    pub fn response(&mut self) -> TestResponse {
        self.try_response().unwrap_or_else(|none| panic!("{none}"))
    }

    /// Takes the next whole response. A response to HEAD ends with its head.
    ///
    /// # Errors
    /// Fails if there is no response, only a part of one, or something else.
    pub fn try_response(&mut self) -> Result<TestResponse, NoResponse> {
        // Another connection may have moved the clock.
        self.run();
        let ended = self.is_closed();
        // A request that no handler got was rejected, and nothing is written after a rejection. The rejection
        // has a body with the reason, unless the request was known to be a HEAD.
        let refused = if self.ends_with_head { &Method::HEAD } else { &Method::GET };
        let method = self.methods.front().unwrap_or(refused);
        let taken = self.pipe.received(|bytes| take_response(bytes, method, ended));
        if taken.is_ok() {
            self.methods.pop_front();
        }
        taken.map_err(|none| if self.pipe.is_full() { none.client_full() } else { none })
    }

    /// Takes all bytes that the server has sent.
    pub fn received(&mut self) -> Vec<u8> {
        self.run();
        self.methods.clear();
        self.pipe.received(std::mem::take)
    }

    /// Returns whether the server has ended its side.
    pub fn is_closed(&mut self) -> bool {
        self.run();
        self.conn.is_none() || self.pipe.server_has_ended()
    }

    pub(super) fn act(&mut self, step: ClientStep) {
        self.pipe.push_step(step);
        self.run();
    }

    /// Does what a loop does: everything that needs no wait. Then the client runs its next step.
    pub(super) fn run(&mut self) {
        while let Some(conn) = &mut self.conn {
            let (now, cx) = (self.server.now(), &self.server.cx);
            if cx.stage() == Stage::Closing {
                return self.close();
            }
            match conn.step(now, cx) {
                Step::Call => self.call(),
                Step::Handshake => conn.advance_handshake(now, cx),
                // The client of tests speaks HTTP/1.1.
                Step::Stream => self.close(),
                Step::Close => self.close(),
                // Another protocol needs its own thread and a socket that it can wait for.
                Step::Upgrade => {
                    self.is_upgraded = true;
                    self.close();
                }
                Step::Read if conn.is_read_ready() => match conn.fill(now, &mut self.pool) {
                    Ok(0) => conn.on_eof(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => {}
                    Err(_) => self.close(),
                },
                Step::Write => {
                    self.ends_with_head = !conn.sends_body();
                    match conn.flush(now) {
                        Ok(Flushed::All | Flushed::BudgetSpent | Flushed::SlowFile) => {}
                        Ok(Flushed::WouldBlock) if expires(conn, &self.server) => {}
                        Ok(Flushed::WouldBlock) => return,
                        Err(_) => self.close(),
                    }
                }
                Step::Read | Step::WaitFeed if expires(conn, &self.server) => {}
                // What the client has sent beyond the limit stays unread.
                Step::WaitFeed if conn.is_lingering() => return conn.release_buffers(&mut self.pool),
                Step::Read | Step::WaitFeed => match self.pipe.run_step() {
                    StepResult::Done => conn.note_ready(self.pipe.client_has_ended()),
                    StepResult::Pause(time) => self.pause(now.after(time)),
                    StepResult::Idle => return conn.release_buffers(&mut self.pool),
                },
            }
        }
    }

    /// Moves the clock to the due time of a deferred response, if it has not been sent.
    pub(super) fn advance_to_response(&mut self) {
        let due = |this: &TestConnection| this.conn.as_ref().and_then(|conn| conn.response_due());
        while let Some(due) = due(self).filter(|due| *due > self.server.now()) {
            self.server.advance_to(due);
            self.run();
        }
    }

    /// Lets the client pause, unless the server meanwhile ends the connection.
    fn pause(&mut self, until: Tick) {
        let script = self.pipe.take_script();
        while self.advance_to_deadline(until) {
            if self.pipe.server_has_ended() {
                return;
            }
        }
        self.server.advance_to(until);
        self.pipe.put_script(script);
    }

    /// Moves the clock to the next deadline up to `until`, if there is one.
    fn advance_to_deadline(&mut self, until: Tick) -> bool {
        let due = self.conn.as_ref().map(|conn| conn.deadline(&self.server.cx));
        let Some(due) = due.filter(|due| *due <= until) else { return false };
        self.server.advance_to(due);
        self.run();
        true
    }

    fn call(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        let _ground = enter(Rc::new(MockSleep(self.server.clock.clone())));
        let wait = TestWait { server: &self.server, pipe: &self.pipe, lockstep: self.lockstep.as_ref() };
        let (cx, handler) = (&self.server.cx, &*self.server.handler);
        if !conn.awaits_response() {
            self.methods.push_back(conn.request_line().method().clone());
        }
        conn.run(Call {
            cx,
            now: self.server.now(),
            handler,
            wait: &wait,
            dates: &mut self.dates,
            slot: &self.slot,
        });
    }

    fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.reclaim(&mut self.pool);
        }
        self.pipe.close();
    }
}

/// Returns whether the deadline has passed, and tells the connection.
pub(super) fn expires(conn: &mut Conn, server: &TestServer) -> bool {
    let now = server.now();
    let passed = conn.deadline(&server.cx) <= now;
    if passed {
        conn.on_timeout(now, &server.cx);
    }
    passed
}

/// Waits of a handler for its client. The client runs its next step instead.
struct TestWait<'a> {
    server: &'a TestServer,
    pipe: &'a Pipe,
    lockstep: Option<&'a Lockstep>,
}

impl TestWait<'_> {
    /// Ends a wait at once by moving the clock to `until`, because nothing arrives before.
    fn skip_to(&self, until: Tick) -> io::Result<()> {
        if until == Tick(u64::MAX) {
            // The wait would never end. In a test this means that the client has disconnected.
            self.pipe.end();
            return Ok(());
        }
        self.server.advance_to(until);
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl IoWait for TestWait<'_> {
    fn now(&self) -> Tick {
        self.server.now()
    }

    fn moment(&self) -> Instant {
        // A tick beyond the range of the clock has no `Instant`.
        self.server.cx.clock.moment(self.now()).unwrap_or_else(Instant::now)
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        if ready == Readiness::Write {
            return self.skip_to(until);
        }
        loop {
            if self.lockstep.is_some() && self.server.cx.stage() != stage {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            match self.pipe.run_step() {
                StepResult::Done => return Ok(()),
                StepResult::Pause(time) if self.now().after(time) < until => {
                    self.server.advance_to(self.now().after(time));
                }
                StepResult::Pause(time) => {
                    self.pipe.resume_pause(time.saturating_sub(self.now().until(until)));
                    return self.skip_to(until);
                }
                StepResult::Idle => match self.lockstep {
                    Some(lockstep) if lockstep.limit() < until => {
                        self.server.advance_to(lockstep.limit());
                        if !lockstep.yield_to_test() {
                            self.pipe.push_step(ClientStep::Reset);
                        }
                    }
                    _ => return self.skip_to(until),
                },
            }
        }
    }
}

/// A sleep of the library moves the clock instead of waiting.
pub(super) struct MockSleep(pub(super) Arc<AtomicU64>);

impl BlockingHook for MockSleep {
    fn blocking(&self, work: Work) {
        work();
    }

    fn sleep(&self, duration: Duration) {
        let now = Tick(self.0.load(Ordering::Relaxed));
        self.0.fetch_max(now.after(duration).0, Ordering::Relaxed);
    }
}

impl fmt::Debug for TestConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestConnection").field("open", &self.conn.is_some()).finish_non_exhaustive()
    }
}
