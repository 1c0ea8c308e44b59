//! Drives a connection of HTTP/2 and its requests without an engine, as `connection.rs` does for one of HTTP/1.1.

mod client;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) use client::{BodyStep, Outgoing};
use client::{Client, NextStep};

use super::TestClient;
use super::connection::{MockSleep, TestServer, expires};
use super::pipe::{ClientStep, Pipe, StepResult};
use super::response::{NoResponse, TestResponse};
use super::secured::Secured;
use crate::conn::{Call, Conn, Flushed, IoWait, Readiness, Step};
use crate::engine::enter;
use crate::transport::context::Stage;
use crate::transport::stream::{Duplex, is_would_block};
use crate::transport::{BufferPool, CallSlot, DateCache, Stream, Tick};

impl TestClient {
    /// Sends requests over HTTP/2: as frames, through the real connection, in memory. Handlers see
    /// [`Request::version`](crate::Request::version) as HTTP/2. Default: HTTP/1.1.
    ///
    /// Requests share one connection, one after the other, or at once ([`begin`](super::TestRequest::begin)). [`connect`](TestClient::connect), WebSockets and
    /// [`events`](TestClient::events) use HTTP/1.1.
    ///
    /// ```
    /// use weftwork::{Request, TestClient};
    ///
    /// let version = |req: &mut Request| format!("{:?}", req.version());
    /// assert_eq!(TestClient::new(version).http2().get("/").send().text(), "HTTP/2.0");
    /// ```
    #[must_use]
    pub fn http2(self) -> TestClient {
        TestClient { is_http2: true, connection: None, ..self }
    }
}

/// A request that was begun: see [`TestRequest::begin`](super::TestRequest::begin).
#[must_use = "its response is read by `TestClient::finish`"]
pub struct PendingResponse {
    /// None if the connection had no streams left.
    stream: Option<u32>,
    pipe: Arc<Pipe>,
}

impl fmt::Debug for PendingResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingResponse").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// A connection, the requests on it, and its client.
pub(super) struct Http2Connection {
    server: Arc<TestServer>,
    pipe: Arc<Pipe>,
    /// Handlers that wait for their client borrow it, so it is borrowed for no call.
    ends: RefCell<Ends>,
    requests: VecDeque<Box<Conn>>,
    pool: BufferPool,
    dates: DateCache,
    slot: Arc<CallSlot>,
    is_secured: bool,
}

/// Both ends of the connection.
struct Ends {
    /// `None` after the server has dropped the connection.
    conn: Option<Box<Conn>>,
    client: Client,
    /// Requests that were read, and that no step was made for.
    arrived: VecDeque<Box<Conn>>,
    pool: BufferPool,
}

impl Http2Connection {
    pub(super) fn open(
        server: &Arc<TestServer>,
        peer: SocketAddr,
        secured: Secured,
    ) -> io::Result<Http2Connection> {
        let (is_secured, now) = (secured.is_some(), server.now());
        let pipe = Arc::new(Pipe::new(secured)?);
        let stream: Arc<dyn Duplex> = pipe.clone();
        let mut conn = Conn::new(Stream::Memory(stream), Some(peer), now, &server.cx);
        conn.begin_http2(now, &server.cx);
        let ends = Ends {
            conn: Some(conn),
            client: Client::new(),
            arrived: VecDeque::new(),
            pool: BufferPool::alone(),
        };
        Ok(Http2Connection {
            server: server.clone(),
            pipe,
            ends: RefCell::new(ends),
            requests: VecDeque::new(),
            pool: BufferPool::alone(),
            dates: DateCache::new(now),
            slot: server.cx.watchdog.call_slot(),
            is_secured,
        })
    }

    /// Returns whether the connection takes no more requests.
    pub(super) fn is_closed(&mut self) -> bool {
        self.run();
        let ends = self.ends.get_mut();
        ends.conn.is_none() || ends.client.is_over()
    }

    /// Sends a request, and returns its response.
    pub(super) fn exchange(&mut self, request: Outgoing) -> Result<TestResponse, NoResponse> {
        let leaves = request.leave_after.is_some();
        self.ends.get_mut().client.begin(request, self.is_secured);
        self.complete(leaves)
    }

    /// Sends a request, and does not wait for its response.
    pub(super) fn begin(&mut self, request: Outgoing) -> PendingResponse {
        let client = &mut self.ends.get_mut().client;
        client.begin(request, self.is_secured);
        let stream = client.set_aside();
        self.run();
        PendingResponse { stream, pipe: self.pipe.clone() }
    }

    /// Waits for the response of a request that was begun.
    pub(super) fn finish(&mut self, pending: &PendingResponse) -> Result<TestResponse, NoResponse> {
        if !Arc::ptr_eq(&pending.pipe, &self.pipe) {
            return Err(NoResponse::new("the connection of this request has ended", b""));
        }
        if let Some(stream) = pending.stream {
            self.ends.get_mut().client.take_up(stream);
        }
        self.complete(false)
    }

    fn complete(&mut self, leaves: bool) -> Result<TestResponse, NoResponse> {
        self.run();
        let due = |this: &mut Http2Connection| {
            let is_over = this.ends.get_mut().client.has_response();
            let dues = this.requests.iter().filter_map(|conn| conn.response_due());
            dues.min().filter(|due| !is_over && *due > this.server.now())
        };
        while let Some(due) = due(self) {
            self.server.advance_to(due);
            self.run();
        }
        let ends = self.ends.get_mut();
        let has_ended = ends.conn.is_none();
        let answered = ends.client.finish(has_ended);
        self.run();
        match answered {
            Err(none) if leaves => none.or_partial(),
            answered => answered,
        }
    }

    /// Advances the clock. Deadlines that pass take effect.
    pub(super) fn advance(&mut self, time: Duration) {
        let until = self.server.now().after(time);
        self.advance_until(until);
    }

    fn advance_until(&mut self, until: Tick) {
        while let Some(due) = self.deadline().filter(|due| *due <= until) {
            self.server.advance_to(due);
            self.run();
        }
        self.server.advance_to(until);
        self.run();
    }

    fn deadline(&mut self) -> Option<Tick> {
        let of_conn = self.ends.get_mut().conn.as_ref().map(|conn| conn.deadline(&self.server.cx));
        let of_requests = self.requests.iter().map(|conn| conn.deadline(&self.server.cx));
        of_requests.chain(of_conn).min()
    }

    /// Does everything that needs no wait, then the client's next steps.
    pub(super) fn run(&mut self) {
        loop {
            let mut goes_on = self.ends.get_mut().run(&self.server, &self.pipe);
            self.requests.append(&mut self.ends.get_mut().arrived);
            for mut conn in std::mem::take(&mut self.requests) {
                let (is_open, did) = self.run_request(&mut conn);
                goes_on |= did;
                match is_open {
                    true => self.requests.push_back(conn),
                    false => conn.reclaim(&mut self.pool),
                }
            }
            if goes_on {
                continue;
            }
            match self.ends.get_mut().client.run_step() {
                NextStep::Sent => {}
                NextStep::Pause(time) => {
                    let until = self.server.now().after(time);
                    self.pause(until);
                }
                NextStep::Idle => return,
            }
        }
    }

    /// Lets the client pause, unless the server meanwhile ends the response.
    fn pause(&mut self, until: Tick) {
        self.ends.get_mut().client.is_pausing = true;
        while let Some(due) = self.deadline().filter(|due| *due <= until) {
            self.server.advance_to(due);
            self.run();
            if self.ends.get_mut().client.has_response() {
                break;
            }
        }
        let client = &mut self.ends.get_mut().client;
        client.is_pausing = false;
        if !client.has_response() {
            self.server.advance_to(until);
        }
    }

    /// Makes the steps of a request. Returns whether it goes on, and whether there was one.
    fn run_request(&mut self, conn: &mut Conn) -> (bool, bool) {
        let mut did = false;
        conn.begin_cycle();
        conn.note_woken();
        loop {
            let (now, cx) = (self.server.now(), &self.server.cx);
            if cx.stage() == Stage::Closing {
                return (false, true);
            }
            match conn.step(now, cx) {
                Step::Call => self.call(conn),
                Step::Read if conn.is_read_ready() => match conn.fill(now, &mut self.pool) {
                    Ok(0) => conn.on_eof(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => continue,
                    Err(_) => return (false, true),
                },
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All | Flushed::BudgetSpent | Flushed::SlowFile) => {}
                    Ok(Flushed::WouldBlock) if expires(conn, &self.server) => {}
                    Ok(Flushed::WouldBlock) => return (true, did),
                    Err(_) => return (false, true),
                },
                Step::Read | Step::WaitFeed if expires(conn, &self.server) => {}
                Step::Read | Step::WaitFeed => return (true, did),
                // Another protocol needs its own thread and a socket that it can wait for.
                Step::Close | Step::Upgrade | Step::Handshake | Step::Stream => return (false, true),
            }
            did = true;
        }
    }

    fn call(&mut self, conn: &mut Conn) {
        let _ground = enter(Rc::new(MockSleep(self.server.clock.clone())));
        let wait = StreamWait { server: &self.server, pipe: &self.pipe, ends: &self.ends };
        let (cx, handler) = (&self.server.cx, &*self.server.handler);
        let (dates, slot) = (&mut self.dates, &*self.slot);
        conn.run(Call { cx, now: self.server.now(), handler, wait: &wait, dates, slot });
    }
}

impl Ends {
    /// Does everything that the connection and its client can do. Returns whether there was something.
    fn run(&mut self, server: &TestServer, pipe: &Pipe) -> bool {
        let mut did = false;
        loop {
            let output = self.client.take_output();
            if !output.is_empty() {
                pipe.push_step(ClientStep::Bytes(output));
            }
            if matches!(pipe.run_step(), StepResult::Done)
                && let Some(conn) = &mut self.conn
            {
                conn.note_ready(pipe.client_has_ended());
            }
            let before = did;
            did |= self.run_conn(server);
            if self.conn.is_none() {
                pipe.close();
            }
            let bytes = pipe.received(std::mem::take);
            if (before || !did) && bytes.is_empty() {
                return did;
            }
            did |= !bytes.is_empty();
            self.client.read(&bytes);
            if self.client.leaves() {
                pipe.shutdown_both();
                if let Some(conn) = &mut self.conn {
                    conn.note_ready(true);
                }
            }
        }
    }

    /// Makes the steps of the connection. Returns whether there was one.
    fn run_conn(&mut self, server: &TestServer) -> bool {
        let mut did = false;
        self.conn.iter_mut().for_each(|conn| conn.begin_cycle());
        while let Some(conn) = &mut self.conn {
            let (now, cx) = (server.now(), &server.cx);
            match conn.step(now, cx) {
                _ if cx.stage() == Stage::Closing => self.close(),
                Step::Stream => self.arrived.extend(conn.read_frames(now, cx, &mut self.pool)),
                Step::Read if conn.is_read_ready() => match conn.fill(now, &mut self.pool) {
                    Ok(0) => conn.on_eof(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => continue,
                    Err(_) => self.close(),
                },
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All | Flushed::BudgetSpent | Flushed::SlowFile) => {}
                    Ok(Flushed::WouldBlock) if expires(conn, server) => {}
                    Ok(Flushed::WouldBlock) => return did,
                    Err(_) => self.close(),
                },
                Step::Read | Step::WaitFeed if expires(conn, server) => {}
                Step::Read | Step::WaitFeed => return did,
                Step::Close | Step::Call | Step::Handshake | Step::Upgrade => self.close(),
            }
            did = true;
        }
        did
    }

    fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.reclaim(&mut self.pool);
        }
    }
}

/// Waits of a handler for its client. The connection and the client go on instead.
struct StreamWait<'a> {
    server: &'a TestServer,
    pipe: &'a Pipe,
    ends: &'a RefCell<Ends>,
}

impl StreamWait<'_> {
    /// Ends a wait at once by moving the clock to `until`, because nothing arrives before.
    fn skip_to(&self, until: Tick) -> io::Result<()> {
        if until == Tick(u64::MAX) {
            // The wait would never end. In a test this means that the client has disconnected.
            self.pipe.shutdown_both();
            self.ends.borrow_mut().close();
            return Ok(());
        }
        self.server.advance_to(until);
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl IoWait for StreamWait<'_> {
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

    fn wait_ready(&self, fd: BorrowedFd<'_>, _: Readiness, until: Tick, _: Stage) -> io::Result<()> {
        loop {
            let mut ends = self.ends.borrow_mut();
            while ends.run(self.server, self.pipe) {}
            // A stream has a pipe that is readable when it can go on, in any direction.
            if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default()))
                .is_ok_and(|count| count > 0)
            {
                return Ok(());
            }
            match ends.client.run_step() {
                NextStep::Sent => {}
                NextStep::Pause(time) if self.now().after(time) < until => {
                    self.server.advance_to(self.now().after(time));
                }
                NextStep::Pause(time) => {
                    ends.client.resume_pause(time.saturating_sub(self.now().until(until)));
                    drop(ends);
                    return self.skip_to(until);
                }
                NextStep::Idle => {
                    drop(ends);
                    return self.skip_to(until);
                }
            }
        }
    }
}
