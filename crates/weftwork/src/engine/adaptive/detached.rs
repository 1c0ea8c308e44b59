//! Serves connections on a pool thread without a loop. After a call that blocked, the thread accepts the next
//! connection itself.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Shared, WorkerState};
use crate::conn::{Call, Conn, Flushed, IoWait, Readiness, Registered, Step};
use crate::engine::loops::LoopMessage;
use crate::engine::predictor::QUICK;
use crate::engine::thread_pool::EventSource;
use crate::engine::thread_wait::{OwnedThreadWait, ThreadWait};
use crate::engine::threads::ThreadState;
use crate::message::Blocking;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::stream::is_would_block;

/// Time that a thread waits for the next request of its connection if the shared poller is not used. It suffices for
/// a client that sends its next request at once, even if 400 clients share a core and a round takes 8 ms.
const KEEPALIVE_WAIT: Duration = Duration::from_millis(20);
/// Time for which a client that sends requests without a pause keeps its thread while other requests wait for a
/// thread.
const TIME_SLICE: Duration = Duration::from_millis(100);

/// The next place of a connection.
enum Outcome {
    ToLoop,
    /// The connection waits in the shared poller.
    ToPoller(Tick),
    Closed,
    /// The connection is closed, and its last call blocked.
    ClosedAfterBlocking,
    /// The upgrade handler of the connection runs on this thread.
    Upgraded,
}

impl Shared {
    /// Serves a connection until it ends or waits elsewhere. After a call that blocked, it then serves connections
    /// that wait at the listeners. `blocked` tells whether the last call of the connection blocked, if that is known.
    pub(super) fn serve_detached(
        self: &Arc<Shared>,
        conn: Box<Conn>,
        blocked: Option<bool>,
        worker: &mut WorkerState,
    ) {
        let mut next = Some((conn, blocked));
        while let Some((conn, blocked)) = next {
            next = self.serve_one(conn, blocked, worker);
        }
    }

    /// Returns the connection that this thread should serve next, if there is one.
    fn serve_one(
        self: &Arc<Shared>,
        conn: Box<Conn>,
        blocked: Option<bool>,
        worker: &mut WorkerState,
    ) -> Option<(Box<Conn>, Option<bool>)> {
        let (home, poller) = (conn.owner.loop_index, &self.pool.source);
        let guard = poller.guard(&conn);
        // A panic closes the connection before its slot is free for another connection.
        let mut conn = conn;
        let outcome = self.serve(&mut conn, blocked, worker);
        std::mem::forget(guard);
        match outcome {
            Outcome::ToLoop => {
                poller.remove(&mut conn);
                conn.owner.is_balanced = false;
                self.loops.send(home as usize, LoopMessage::Adopt(conn));
                None
            }
            Outcome::ToPoller(now) => {
                conn.release_buffers(&mut worker.thread.pool);
                let came_back = poller.put_back(conn, now)?;
                Some((came_back, Some(true)))
            }
            Outcome::Closed => {
                conn.reclaim(&mut worker.thread.pool);
                poller.close(conn);
                None
            }
            Outcome::ClosedAfterBlocking => {
                conn.reclaim(&mut worker.thread.pool);
                poller.close(conn);
                self.try_accept(home).map(|conn| (conn, None))
            }
            Outcome::Upgraded => {
                poller.remove(&mut conn);
                conn.run_upgraded(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), || {
                    self.pool.has_queue()
                });
                None
            }
        }
    }

    /// A connection that waits at a listener would wake a loop, and the leader would wake a thread for the call. This
    /// thread is awake already. With 100 connections of one call of 1 ms each, that gives 1.32 times the requests/s.
    pub(super) fn try_accept(&self, home: u32) -> Option<Box<Conn>> {
        // A thread may serve another connection than the one that woke it.
        if self.pool.has_queue() || self.cx.stage() != Stage::Running {
            return None;
        }
        let mut conn = self.listeners.accept(self.cx.clock.now(), &self.cx)?;
        conn.owner.loop_index = home;
        Some(conn)
    }

    /// Sends the connections of the shared poller that were idle for this long back to their loops.
    pub(super) fn evict_idle(&self, idle: Duration) {
        self.pool.source.evict_idle(idle, self.cx.clock.now(), |mut conn| {
            // The loop has not counted this connection.
            conn.owner.is_balanced = false;
            self.loops.send(conn.owner.loop_index as usize, LoopMessage::Adopt(conn));
        });
    }

    fn serve(
        self: &Arc<Shared>,
        conn: &mut Conn,
        mut blocked: Option<bool>,
        worker: &mut WorkerState,
    ) -> Outcome {
        // The clock is read only after each wait and each call.
        let mut at = Instant::now();
        let mut now = self.cx.clock.at(at);
        let begun = now;
        let mut was_long = false;
        loop {
            if self.cx.stage() == Stage::Closing {
                conn.cut_off();
                return Outcome::Closed;
            }
            match conn.step(now, &self.cx) {
                Step::Call if self.must_yield(now >= begun.after(TIME_SLICE)) => {
                    return self.flush_to_loop(conn, now);
                }
                Step::Call => {
                    let called_at = at;
                    was_long = !conn.is_request_here();
                    let Some(learn) = self.to_learn(conn, blocked) else { continue };
                    (now, at) = self.call_detached(conn, now, worker);
                    blocked = Some(at - called_at >= QUICK);
                    if let Blocking::Learn { route } = learn {
                        self.predictor.record(route, at - called_at);
                    }
                }
                Step::Close if blocked == Some(true) => return Outcome::ClosedAfterBlocking,
                Step::Close => return Outcome::Closed,
                Step::Upgrade if self.must_yield(false) => return Outcome::ToLoop,
                Step::Upgrade => return Outcome::Upgraded,
                Step::WaitFeed | Step::Stream => return Outcome::ToLoop,
                Step::Handshake => conn.advance_handshake(now, &self.cx),
                // A feed may last for as long as its client sends or reads, so its loop serves it.
                Step::Read | Step::Write if conn.is_fed() => return self.flush_to_loop(conn, now),
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All) => {}
                    Ok(_) => return Outcome::ToLoop,
                    Err(_) => return Outcome::Closed,
                },
                // The connection comes from the shared poller or from a listener, so bytes have usually arrived.
                Step::Read if conn.is_read_ready() => match conn.fill(now, &mut worker.thread.pool) {
                    Ok(0) => conn.on_eof(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => {}
                    Err(_) => return Outcome::Closed,
                },
                Step::Read if !self.may_stay(conn, blocked) => return Outcome::ToLoop,
                // After a request that arrived in pieces, the thread waits here for the next request if another
                // thread is free.
                Step::Read if !(was_long && self.pool.has_thread()) => return self.add_to_poller(conn, now),
                Step::Read => {
                    let read = conn.fill_timeout(KEEPALIVE_WAIT, now, &mut worker.thread.pool);
                    at = Instant::now();
                    now = self.cx.clock.at(at);
                    match read {
                        Ok(0) => conn.on_eof(),
                        Ok(_) => conn.note_progress(now),
                        Err(error) if is_would_block(&error) => return Outcome::ToLoop,
                        Err(_) => return Outcome::Closed,
                    }
                }
            }
        }
    }

    fn flush_to_loop(&self, conn: &mut Conn, now: Tick) -> Outcome {
        if conn.flush(now).is_ok() { Outcome::ToLoop } else { Outcome::Closed }
    }

    /// Adds the connection to the shared poller, if a slot is free.
    fn add_to_poller(&self, conn: &mut Conn, now: Tick) -> Outcome {
        let Some(is_first) = self.pool.source.add(conn) else { return Outcome::ToLoop };
        if is_first {
            self.loops.wake_monitor_if_asleep();
        }
        Outcome::ToPoller(now)
    }

    /// Whether other work takes precedence: waiting requests, after the connection has used its time slice, or a loop
    /// without a thread.
    fn must_yield(&self, slice_used: bool) -> bool {
        self.pool.has_queue() && (slice_used || self.check_may_block().is_err())
            || slice_used && self.is_short()
    }

    /// Whether connections of the shared poller have requests that no thread waits for.
    pub(super) fn is_short(&self) -> bool {
        self.pool.watching() == 0 && self.pool.source.expects_events() && self.pool.source.has_events()
    }

    /// Whether the connection waits for its next request away from its loop.
    fn may_stay(&self, conn: &Conn, blocked: Option<bool>) -> bool {
        blocked != Some(false)
            // The loop keeps the deadline of a head, both of a started head and of the first head of a new
            // connection.
            && conn.is_idle()
            && !conn.is_new()
            && self.cx.stage() == Stage::Running
    }

    /// Returns the route to learn about from the next call. After a call that blocked, there is nothing to learn. The
    /// next calls mostly block, too, and looking up their route takes 100 instructions of 2,500. `None`: the handler has
    /// panicked, and the request was refused.
    fn to_learn(&self, conn: &mut Conn, blocked: Option<bool>) -> Option<Blocking> {
        if blocked == Some(true) { Some(Blocking::Always) } else { conn.blocking(&*self.handler, &self.cx) }
    }

    /// Calls the handler. Returns the time of its end, as a tick and exactly.
    fn call_detached(&self, conn: &mut Conn, now: Tick, worker: &mut WorkerState) -> (Tick, Instant) {
        if !conn.is_request_here() && conn.owner.registered == Registered::Shared {
            // In the shared poller, each packet of the body would wake another thread.
            self.pool.source.remove(conn);
        }
        let wait = DetachedWait { shared: self, thread: ThreadWait::new(&self.cx) };
        let ThreadState { dates, slot, .. } = &mut worker.thread;
        let call = Call { cx: &self.cx, now, handler: &*self.handler, wait: &wait, dates, slot };
        let now = conn.run(call);
        let at = wait.thread.last_look();
        self.pool.note_return(at);
        (now, at)
    }
}

/// The wait of a detached call for its client. The call must not wait while a loop has no thread.
struct DetachedWait<'a> {
    shared: &'a Shared,
    thread: ThreadWait<'a>,
}

impl IoWait for DetachedWait<'_> {
    fn now(&self) -> Tick {
        self.thread.now()
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.shared.check_may_block()?;
        self.thread.wait_ready(fd, ready, until, stage)
    }
}
