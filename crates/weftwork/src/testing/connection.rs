//! How is a connection driven without an engine? By its client: whenever the server has nothing left to do,
//! the client acts or the clock moves.

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

use super::pipe::{Part, Pipe, Turn};
use super::rein::Rein;
use super::response::{NoResponse, TestResponse, take_response};
use crate::conn::{Call, Conn, Flushed, Readiness, Step, Wait};
use crate::engine::{BlockingHook, Work, enter};
use crate::message::Handler;
use crate::settings::Settings;
use crate::transport::context::{Context, Stage};
use crate::transport::stream::{Duplex, is_would_block};
use crate::transport::{DateCache, Pool, Post, Stream, Tick};

/// What the connections of one test share.
pub(super) struct Bench {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) cx: Context,
    clock: Arc<AtomicU64>,
}

impl Bench {
    pub(super) fn new(handler: Arc<dyn Handler>, settings: Settings) -> io::Result<Bench> {
        let cx = Context::new(settings)?.of(handler.clone());
        Ok(Bench { handler, cx, clock: Arc::default() })
    }

    pub(super) fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn advance_to(&self, tick: Tick) {
        self.clock.fetch_max(tick.0, Ordering::Relaxed);
    }
}

/// One connection to the handler of a [`TestClient`](super::TestClient), byte by byte: for what an ordinary
/// client does not do, such as malformed requests, pipelining, and leaving in the middle.
///
/// The server side acts whenever this side has done something, until it waits for this side again.
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
    bench: Arc<Bench>,
    /// None once the server has dropped it.
    pub(super) conn: Option<Box<Conn>>,
    pub(super) pipe: Arc<Pipe>,
    pub(super) pool: Pool,
    dates: DateCache,
    post: Arc<Post>,
    /// Of the requests that the handler has got, and whose responses were not taken yet.
    asked: VecDeque<Method>,
    /// The response that was written last is over with its head.
    ends_with_head: bool,
    /// The handler has answered with something that needs a thread and a socket of its own.
    pub(super) taken_over: bool,
    /// It is driven by a thread of its own, which gives the test its turn where the handler waits.
    pub(super) rein: Option<Rein>,
}

impl TestConnection {
    pub(super) fn open(bench: &Arc<Bench>, peer: SocketAddr) -> io::Result<TestConnection> {
        let pipe = Arc::new(Pipe::new()?);
        Ok(TestConnection::over(bench, peer, pipe.clone(), pipe))
    }

    /// The server side talks to `stream`, which passes on to `pipe` what it likes to.
    pub(super) fn over(
        bench: &Arc<Bench>,
        peer: SocketAddr,
        pipe: Arc<Pipe>,
        stream: Arc<dyn Duplex>,
    ) -> TestConnection {
        let now = bench.now();
        let conn = Conn::new(Stream::Memory(stream), Some(peer), now, &bench.cx);
        let (pool, dates) = (Pool::alone(), DateCache::new(now));
        let (bench, asked) = (bench.clone(), VecDeque::new());
        let post = bench.cx.watchdog.post();
        let (ends_with_head, taken_over) = (false, false);
        let (conn, rein) = (Some(conn), None);
        TestConnection { bench, conn, pipe, pool, dates, post, asked, ends_with_head, taken_over, rein }
    }

    /// Sends bytes, of whatever.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.act(Part::Bytes(bytes.as_ref().to_vec()));
    }

    /// Sends bytes in pieces, each when the server waits for more, be it in the handler or between requests.
    pub fn send_pieces<B: AsRef<[u8]>>(&mut self, pieces: impl IntoIterator<Item = B>) {
        pieces.into_iter().for_each(|piece| self.pipe.plan(Part::Bytes(piece.as_ref().to_vec())));
        self.go_on();
    }

    /// Ends this side and goes on reading.
    pub fn end(&mut self) {
        self.act(Part::End);
    }

    /// Leaves without a word: the server's next read or write fails.
    pub fn reset(&mut self) {
        self.act(Part::Reset);
    }

    /// Takes `bytes` more of what the server sends, then no more until it is called again. Without it all is
    /// taken at once; a client that holds 64 MiB which its test has not taken leaves.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.pipe.take_at_most(bytes, false);
        self.go_on();
    }

    /// Lets time pass; deadlines that come up meanwhile do what they do.
    pub fn advance(&mut self, time: Duration) {
        self.advance_until(self.bench.now().after(time));
    }

    pub(super) fn advance_until(&mut self, until: Tick) {
        while self.meet_deadline(until) {}
        self.bench.advance_to(until);
        self.go_on();
    }

    /// Takes the next whole response.
    ///
    /// # Panics
    /// There is none; see [`try_response`](TestConnection::try_response).
    #[track_caller]
    pub fn response(&mut self) -> TestResponse {
        self.try_response().unwrap_or_else(|none| panic!("{none}"))
    }

    /// Takes the next whole response; one to HEAD is over with its head.
    ///
    /// # Errors
    /// There is none, only half of one, or something else.
    pub fn try_response(&mut self) -> Result<TestResponse, NoResponse> {
        // Somebody else may have moved the clock.
        self.go_on();
        let ended = self.is_closed();
        // What no handler has seen is refused, and nothing is written behind a refusal. It has a body that says why,
        // unless the request was known to be a HEAD.
        let refused = if self.ends_with_head { &Method::HEAD } else { &Method::GET };
        let method = self.asked.front().unwrap_or(refused);
        let taken = self.pipe.received(|bytes| take_response(bytes, method, ended));
        if taken.is_ok() {
            self.asked.pop_front();
        }
        taken.map_err(|none| if self.pipe.is_full() { none.of_a_full_client() } else { none })
    }

    /// Takes all bytes that the server has sent.
    pub fn received(&mut self) -> Vec<u8> {
        self.go_on();
        self.asked.clear();
        self.pipe.received(std::mem::take)
    }

    /// The server has ended its side.
    pub fn is_closed(&mut self) -> bool {
        self.go_on();
        self.conn.is_none() || self.pipe.server_has_ended()
    }

    pub(super) fn act(&mut self, part: Part) {
        self.pipe.plan(part);
        self.go_on();
    }

    /// What a loop does: all that can be done without waiting. Then the client has its turn.
    pub(super) fn go_on(&mut self) {
        while let Some(conn) = &mut self.conn {
            let (now, cx) = (self.bench.now(), &self.bench.cx);
            if cx.stage() == Stage::Closing {
                return self.close();
            }
            match conn.step(now, cx) {
                Step::Call => self.call(),
                Step::Close => self.close(),
                // Another protocol needs a thread of its own and a socket that it can wait for.
                Step::Takeover => {
                    self.taken_over = true;
                    self.close();
                }
                Step::Read if conn.is_readable() => match conn.fill(now, &mut self.pool) {
                    Ok(0) => conn.end_of_input(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => {}
                    Err(_) => self.close(),
                },
                Step::Write => {
                    self.ends_with_head = !conn.sends_body();
                    match conn.flush(now) {
                        Ok(Flushed::All | Flushed::Enough) => {}
                        Ok(Flushed::Blocked) if expires(conn, &self.bench) => {}
                        Ok(Flushed::Blocked) => return,
                        Err(_) => self.close(),
                    }
                }
                Step::Read | Step::Wait if expires(conn, &self.bench) => {}
                Step::Read | Step::Wait => match self.pipe.act() {
                    Turn::Acted => conn.note_ready(self.pipe.client_has_ended()),
                    Turn::Pause(time) => self.pause(now.after(time)),
                    Turn::Waits => return conn.rest(&mut self.pool),
                },
            }
        }
    }

    /// Moves the clock to when a response that is to come later is due, if nobody has brought one.
    pub(super) fn await_response(&mut self) {
        let due = |this: &TestConnection| this.conn.as_ref().and_then(|conn| conn.response_due());
        while let Some(due) = due(self).filter(|due| *due > self.bench.now()) {
            self.bench.advance_to(due);
            self.go_on();
        }
    }

    /// The client says nothing for a while, unless it is told meanwhile that there is no use in going on.
    fn pause(&mut self, until: Tick) {
        let plan = self.pipe.take_plan();
        while self.meet_deadline(until) {
            if self.pipe.server_has_ended() {
                return;
            }
        }
        self.bench.advance_to(until);
        self.pipe.put_plan(plan);
    }

    /// Moves the clock to the next deadline up to `until`, if there is one.
    fn meet_deadline(&mut self, until: Tick) -> bool {
        let due = self.conn.as_ref().map(|conn| conn.deadline(&self.bench.cx));
        let Some(due) = due.filter(|due| *due <= until) else { return false };
        self.bench.advance_to(due);
        self.go_on();
        true
    }

    fn call(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        let _ground = enter(Rc::new(Skipping(self.bench.clock.clone())));
        let wait = Turns { bench: &self.bench, pipe: &self.pipe, rein: self.rein.as_ref() };
        let (cx, handler) = (&self.bench.cx, &*self.bench.handler);
        if !conn.awaits_response() {
            self.asked.push_back(conn.asked().method().clone());
        }
        conn.run(Call {
            cx,
            now: self.bench.now(),
            handler,
            wait: &wait,
            dates: &mut self.dates,
            post: &self.post,
        });
    }

    fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.reclaim(&mut self.pool);
        }
        self.pipe.close();
    }
}

/// Its deadline has passed, and it has been told so.
fn expires(conn: &mut Conn, bench: &Bench) -> bool {
    let now = bench.now();
    let passed = conn.deadline(&bench.cx) <= now;
    if passed {
        conn.expire(now, &bench.cx);
    }
    passed
}

/// A handler that waits for its client gives it its turn.
struct Turns<'a> {
    bench: &'a Bench,
    pipe: &'a Pipe,
    rein: Option<&'a Rein>,
}

impl Turns<'_> {
    /// Nothing will come until then: that time is over at once.
    fn in_vain(&self, until: Tick) -> io::Result<()> {
        if until == Tick(u64::MAX) {
            // It would wait for ever; in a test that means that the client has left.
            self.pipe.end();
            return Ok(());
        }
        self.bench.advance_to(until);
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Wait for Turns<'_> {
    fn now(&self) -> Tick {
        self.bench.now()
    }

    fn moment(&self) -> Instant {
        // No moment stands for a tick past the end of time.
        self.bench.cx.clock.moment(self.now()).unwrap_or_else(Instant::now)
    }

    fn ready_in(&self, _: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        if ready == Readiness::Write {
            return self.in_vain(until);
        }
        loop {
            if self.rein.is_some() && self.bench.cx.stage() != stage {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            match self.pipe.act() {
                Turn::Acted => return Ok(()),
                Turn::Pause(time) if self.now().after(time) < until => {
                    self.bench.advance_to(self.now().after(time));
                }
                Turn::Pause(time) => {
                    self.pipe.go_on_pausing(time.saturating_sub(self.now().until(until)));
                    return self.in_vain(until);
                }
                Turn::Waits => match self.rein {
                    Some(rein) if rein.limit() < until => {
                        self.bench.advance_to(rein.limit());
                        if !rein.give_turn() {
                            self.pipe.plan(Part::Reset);
                        }
                    }
                    _ => return self.in_vain(until),
                },
            }
        }
    }
}

/// Nobody waits in a test: a handler that sleeps by the library's means moves the clock.
struct Skipping(Arc<AtomicU64>);

impl BlockingHook for Skipping {
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
