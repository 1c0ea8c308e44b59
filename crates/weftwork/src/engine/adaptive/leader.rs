//! Leading a loop: what the leader does with a request that wants its handler.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Job, Mode, Shared, WorkerState};
use crate::conn::{Call, Conn, IoWait, Readiness};
use crate::engine::blocking::{BlockingHook, Work};
use crate::engine::conn_table::ActiveConn;
use crate::engine::event_loop::EventLoop;
use crate::engine::handoff::Ticket;
use crate::engine::loops::LoopMessage;
use crate::engine::thread_wait;
use crate::engine::threads::ThreadState;
use crate::message::Blocking;
use crate::message::thread_wakeup::ThreadWakeup;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::events::Event;

/// How a call of the handler is made.
enum CallMode<'a> {
    /// The leader calls it. The loop lies in its cell meanwhile, where it can be reacquired or retaken.
    Inline { route: Option<u64> },
    /// The leader calls it, for a route that is not proven to be quick. Another thread that can lead is reserved, or this is
    /// a trial.
    Unproven { route: u64, trial: Option<Trial<'a>> },
    /// Another thread of the pool calls it.
    Posted,
    /// It was called, and its response goes on with a file that may not be in memory.
    SlowFile,
    /// Not at all: the question whether it blocks has panicked, and the request is refused.
    Refused,
}

/// A call by a leader while no thread is free, for a route that was quick so far and is not proven to be. The call may block,
/// so there is one at a time.
struct Trial<'a>(&'a AtomicBool);

impl Trial<'_> {
    /// Returns None if there is a trial already.
    fn begin(has_trial: &AtomicBool) -> Option<Trial<'_>> {
        (!has_trial.swap(true, Ordering::Acquire)).then_some(Trial(has_trial))
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The loop, and the next request of the connection if it has arrived. `Err`: another thread leads the loop, and this
/// thread goes on with the connection.
type Called = Result<(Box<EventLoop>, Option<ActiveConn>), Option<Box<Conn>>>;

impl Shared {
    /// Leads the loop until the server stops, or until another thread leads it. Then returns the connection that this
    /// thread must serve without the loop.
    pub(super) fn lead(
        self: &Arc<Shared>,
        mut lp: Box<EventLoop>,
        worker: &mut WorkerState,
    ) -> Option<Box<Conn>> {
        lp.refresh(&self.cx);
        self.cells[lp.index].invalidate();
        loop {
            let mut called;
            (lp, called) = self.with_guard(lp, |lp| lp.run_until_call(&self.cx));
            called.as_ref()?;
            while let Some(mut active) = called {
                let mode;
                (lp, mode) =
                    self.with_guard(lp, |_| active.guarded(&self.loops, |conn| self.call_mode(conn)));
                let result = match mode {
                    CallMode::Inline { route } => self.call_inline(lp, active, route, None, worker),
                    CallMode::Unproven { route, trial } => {
                        lp.has_reserve = trial.is_none();
                        // Finished responses are sent before work that may take long.
                        lp = active
                            .guarded(&self.loops, |_| self.with_guard(lp, |lp| lp.flush_batch(&self.cx)).0);
                        self.call_inline(lp, active, Some(route), trial, worker)
                    }
                    CallMode::Posted => Ok((self.post_call(lp, active), None)),
                    CallMode::SlowFile => self.send_slow_file(lp, active, worker),
                    CallMode::Refused => Ok(self.with_guard(lp, |lp| lp.resume(active, &self.cx))),
                };
                (lp, called) = match result {
                    Ok(kept) => kept,
                    Err(conn) => return conn,
                };
            }
        }
    }

    /// Calls `act` with the loop. If `act` panics, another thread leads the loop, so that the loop is not lost with
    /// this thread.
    #[inline]
    fn with_guard<R>(
        self: &Arc<Shared>,
        lp: Box<EventLoop>,
        act: impl FnOnce(&mut EventLoop) -> R,
    ) -> (Box<EventLoop>, R) {
        let mut guard = LoopGuard { lp: Some(lp), shared: self };
        let result = guard.lp.as_deref_mut().map(act);
        match (guard.lp.take(), result) {
            (Some(lp), Some(result)) => (lp, result),
            _ => unreachable!("the loop was put there just now"),
        }
    }

    fn call_mode(self: &Arc<Shared>, conn: &mut Conn) -> CallMode<'_> {
        if conn.is_upgraded() {
            return CallMode::Posted;
        }
        if conn.is_sending() {
            return CallMode::SlowFile;
        }
        if conn.needs_no_handler() {
            // There is no handler to call. The writer of a streamed response hands the loop off before it waits.
            return CallMode::Inline { route: None };
        }
        let Some(blocking) = conn.blocking(&*self.handler, &self.cx) else { return CallMode::Refused };
        match blocking {
            Blocking::Never => CallMode::Inline { route: None },
            Blocking::Always => CallMode::Posted,
            Blocking::Learn { .. } if matches!(self.mode, Mode::Pool { .. }) => CallMode::Posted,
            Blocking::Learn { route } if self.predictor.predicts_blocking(route) => CallMode::Posted,
            Blocking::Learn { route } if self.predictor.is_proven_quick(route) => {
                CallMode::Inline { route: Some(route) }
            }
            // If this call blocks, another thread must be free to lead the loop.
            Blocking::Learn { route } if self.pool.reserve(|| self.spawn()) => {
                CallMode::Unproven { route, trial: None }
            }
            Blocking::Learn { route } if self.predictor.was_quick(route) => {
                match Trial::begin(&self.has_trial) {
                    Some(trial) => CallMode::Unproven { route, trial: Some(trial) },
                    None => CallMode::Posted,
                }
            }
            Blocking::Learn { .. } => CallMode::Posted,
        }
    }

    /// Runs the handler while the loop lies in its cell. If the handler is quick, that costs two swaps.
    fn call_inline(
        self: &Arc<Shared>,
        mut lp: Box<EventLoop>,
        mut active: ActiveConn,
        route: Option<u64>,
        trial: Option<Trial<'_>>,
        worker: &mut WorkerState,
    ) -> Called {
        let (index, now) = (lp.index, lp.now());
        lp.route = route;
        let cell = &self.cells[index];
        let current = &*worker.current;
        current.ticket.set(Some((index, cell.release(lp))));
        let wait = LeaderWait { current, now };
        let ThreadState { dates, slot, .. } = &mut worker.thread;
        let call = Call { cx: &self.cx, now, handler: &*self.handler, wait: &wait, dates, slot };
        active.guarded(&self.loops, |conn| conn.run(call));
        drop(trial);
        if let Some(mut lp) = current.ticket.take().and_then(|(_, ticket)| cell.reacquire(ticket)) {
            self.end_reserve(&mut lp);
            // A wait that was refused counts as stuck already.
            if let Some(route) = lp.route.take() {
                self.predictor.record_quick(route);
            }
            return Ok(self.with_guard(lp, |lp| lp.resume(active, &self.cx)));
        }
        let conn = active.leave_loop(&self.loops);
        if conn.is_upgraded() {
            // The loop may not have a leader yet, and this thread would not return to lead it.
            self.loops.send(index, LoopMessage::Adopt(conn));
            return Err(None);
        }
        Err(Some(conn))
    }

    /// Sends a part of a file while the loop lies in its cell, as in a call. If reading the file takes long, another thread
    /// leads the loop.
    #[cold]
    fn send_slow_file(
        self: &Arc<Shared>,
        lp: Box<EventLoop>,
        mut active: ActiveConn,
        worker: &mut WorkerState,
    ) -> Called {
        let (cell, now) = (&self.cells[lp.index], lp.now());
        let ticket = cell.release(lp);
        let flushed = active.guarded(&self.loops, |conn| conn.flush(now));
        if let Some(lp) = cell.reacquire(ticket) {
            return Ok(self.with_guard(lp, |lp| lp.go_on_after_file(active, flushed, &self.cx)));
        }
        let mut conn = active.leave_loop(&self.loops);
        if flushed.is_err() {
            conn.reclaim(&mut worker.thread.pool);
            return Err(None);
        }
        Err(Some(conn))
    }

    /// Posts the request to the pool. If the queue is full, the request is refused with 503.
    fn post_call(self: &Arc<Shared>, mut lp: Box<EventLoop>, active: ActiveConn) -> Box<EventLoop> {
        let now = lp.now();
        let conn = match self.post(lp.remove(active), now) {
            Ok(()) => return lp,
            Err(conn) => conn,
        };
        self.with_guard(lp, |lp| {
            let active = lp.insert(conn);
            lp.refuse(active, Conn::refuse_overload, &self.cx);
        })
        .0
    }

    /// Gives a loop to the next free thread.
    pub(super) fn hand_off(self: &Arc<Shared>, mut lp: Box<EventLoop>) {
        // Learned at once, and not when the call returns: until then there may be many more.
        if let Some(route) = lp.route.take() {
            self.predictor.record_stuck(route, self.pool.has_thread());
        }
        let (now, had_reserve) = (lp.now(), std::mem::take(&mut lp.has_reserve));
        if !self.pool.has_thread_in_front(had_reserve) {
            // The connections of the loop wait until a thread leads it. No other loop sends it new connections.
            self.loops.note_load(lp.index, usize::MAX / 2);
            self.warn_exhausted(now);
        }
        self.pool.submit_front(Job::Lead(lp), had_reserve, || self.spawn());
    }

    fn end_reserve(self: &Arc<Shared>, lp: &mut EventLoop) {
        if std::mem::take(&mut lp.has_reserve) {
            self.pool.unreserve(|| self.spawn());
        }
    }
}

/// Hands a loop off whose leader panics.
struct LoopGuard<'a> {
    lp: Option<Box<EventLoop>>,
    shared: &'a Arc<Shared>,
}

impl Drop for LoopGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lp) = self.lp.take() {
            self.shared.hand_off(lp);
        }
    }
}

/// The loop that this thread leads, in its cell while a handler runs.
pub(super) struct CurrentLoop {
    shared: Arc<Shared>,
    ticket: Cell<Option<(usize, Ticket)>>,
}

impl CurrentLoop {
    pub(super) fn new(shared: Arc<Shared>) -> CurrentLoop {
        CurrentLoop { shared, ticket: Cell::new(None) }
    }

    /// Hands the loop to another thread before the handler waits, if this thread still leads the loop.
    pub(super) fn hand_off(&self) {
        let Some((index, ticket)) = self.ticket.take() else { return };
        if let Some(lp) = self.shared.cells[index].reacquire(ticket) {
            self.shared.cx.record(Event::LoopHandedOff);
            self.shared.hand_off(lp);
        }
    }

    /// Hands the loop off before a wait for a client. If no other thread can lead the loop, the loop stays, and the
    /// wait is an error. So one client does not keep the loop from all others.
    fn hand_off_to_wait(&self) -> io::Result<()> {
        let cells = &self.shared.cells;
        let reacquired =
            self.ticket.take().and_then(|(index, ticket)| Some((index, cells[index].reacquire(ticket)?)));
        let Some((index, lp)) = reacquired else { return self.shared.check_may_block() };
        if !self.shared.pool.has_thread_in_front(lp.has_reserve) {
            self.ticket.set(Some((index, cells[index].release(lp))));
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.shared.cx.record(Event::LoopHandedOff);
        self.shared.hand_off(lp);
        Ok(())
    }
}

impl BlockingHook for CurrentLoop {
    fn blocking(&self, work: Work) {
        self.hand_off();
        work();
    }

    fn sleep(&self, duration: Duration) {
        self.hand_off();
        std::thread::sleep(duration);
    }

    fn park(&self, wakeup: &ThreadWakeup) {
        self.hand_off();
        wakeup.park();
    }
}

/// The wait of an inline call for its client. The loop is handed off first.
struct LeaderWait<'a> {
    current: &'a CurrentLoop,
    now: Tick,
}

impl IoWait for LeaderWait<'_> {
    fn now(&self) -> Tick {
        match self.current.ticket.get() {
            Some((index, ticket)) if self.current.shared.cells[index].is_mine(ticket) => self.now,
            _ => self.current.shared.cx.clock.now(),
        }
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.current.hand_off_to_wait()?;
        thread_wait::wait_in(&self.current.shared.cx, fd, ready, until, stage)
    }
}
