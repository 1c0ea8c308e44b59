//! Leading a loop: what is done with a request that wants its handler.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::{Hand, Job, Shared};
use crate::conn::{Call, Conn, Readiness, Wait};
use crate::engine::active_conn::ActiveConn;
use crate::engine::blocking::{BlockingHook, Work};
use crate::engine::event_loop::{EventLoop, LoopEvent};
use crate::engine::handoff::Ticket;
use crate::engine::loops::LoopMessage;
use crate::engine::thread_wait;
use crate::message::Blocking;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::counters::Counters;

/// How a call of the handler is made.
enum Way {
    /// With the loop on its cell, where it can be taken back or away.
    Inline { route: Option<u64> },
    /// The same, of a route that is not known to be quick: a thread is kept free meanwhile.
    Risk { route: u64 },
    /// Without the loop: it is given away first.
    Eager,
}

/// Whether the loop is still led by this thread.
enum Led {
    /// It is; and the same connection's next request may be waiting.
    On(Box<EventLoop>, Option<ActiveConn>),
    /// It is not: the connection is to be served without it.
    Lost(Option<Box<Conn>>),
}

impl Shared {
    /// Leads until the server stops, or the loop is lost to another thread; then returns the connection that
    /// is to be served without it.
    pub(super) fn lead(self: &Arc<Shared>, mut lp: Box<EventLoop>, hand: &mut Hand) -> Option<Box<Conn>> {
        lp.refresh(&self.cx);
        self.cells[lp.index].invalidate();
        loop {
            let next;
            (lp, next) = self.keeping(lp, |lp| lp.run_until_call(&self.loops, &self.cx));
            let mut called = match next {
                LoopEvent::Stop => return None,
                LoopEvent::Call(active) => Some(active),
            };
            while let Some(mut active) = called {
                let way;
                (lp, way) = self.keeping(lp, |_| active.guarded(&self.loops, |conn| self.way(conn)));
                let led = match way {
                    Way::Inline { route } => self.call(lp, active, route, hand),
                    Way::Risk { route } => {
                        lp.at_risk = true;
                        lp = self.flush_batch(lp, &mut active);
                        self.call(lp, active, Some(route), hand)
                    }
                    Way::Eager => {
                        lp = self.flush_batch(lp, &mut active);
                        self.give_away(lp, active, hand)
                    }
                };
                (lp, called) = match led {
                    Led::On(lp, next) => (lp, next),
                    Led::Lost(conn) => return conn,
                };
            }
        }
    }

    /// Does something with the loop. If that panics, another thread leads on: the loop is not lost with this one.
    #[inline]
    fn keeping<R>(
        self: &Arc<Shared>,
        lp: Box<EventLoop>,
        work: impl FnOnce(&mut EventLoop) -> R,
    ) -> (Box<EventLoop>, R) {
        let mut kept = Kept { lp: Some(lp), shared: self };
        let result = kept.lp.as_deref_mut().map(work);
        match (kept.lp.take(), result) {
            (Some(lp), Some(result)) => (lp, result),
            _ => unreachable!("it was laid down here just now"),
        }
    }

    /// Sends the answers that are ready, before anything that may take long.
    fn flush_batch(self: &Arc<Shared>, lp: Box<EventLoop>, active: &mut ActiveConn) -> Box<EventLoop> {
        active.guarded(&self.loops, |_| self.keeping(lp, |lp| lp.flush_batch(&self.cx)).0)
    }

    fn way(&self, conn: &Conn) -> Way {
        if conn.is_taken_over() {
            return Way::Eager;
        }
        if conn.awaits_response() {
            // There is no handler to call; what it streams gives the loop away before it waits.
            return Way::Inline { route: None };
        }
        match self.handler.blocking(&conn.request_line()) {
            Blocking::Never => Way::Inline { route: None },
            Blocking::Always => Way::Eager,
            Blocking::Learn { route } if self.predictor.blocks(route) => Way::Eager,
            Blocking::Learn { route } if self.predictor.is_proven(route) => {
                Way::Inline { route: Some(route) }
            }
            // If it blocked, a thread would have to be there to take the loop. Where none is, this way leaves one behind.
            Blocking::Learn { route } if self.standby.risk() => Way::Risk { route },
            Blocking::Learn { .. } => Way::Eager,
        }
    }

    /// Runs the handler with the loop on its cell: two swaps, if it is quick.
    fn call(
        self: &Arc<Shared>,
        lp: Box<EventLoop>,
        mut active: ActiveConn,
        route: Option<u64>,
        hand: &mut Hand,
    ) -> Led {
        let (index, now) = (lp.index, lp.now());
        let cell = &self.cells[index];
        let held = &*hand.held;
        held.lay.set(Some((index, cell.release(lp))));
        let leading = Leading { held, now };
        let (dates, post) = (&mut hand.dates, &*hand.post);
        let call = Call { cx: &self.cx, now, handler: &*self.handler, wait: &leading, dates, post };
        active.guarded(&self.loops, |conn| conn.run(call));
        if let Some(mut lp) = held.lay.take().and_then(|(_, lay)| cell.reacquire(lay)) {
            if let Some(route) = route {
                self.predictor.record_quick(route);
            }
            self.end_risk(&mut lp);
            let (lp, next) = self.keeping(lp, |lp| lp.resume(active, &self.cx));
            return Led::On(lp, next);
        }
        if let Some(route) = route {
            self.predictor.record_stuck(route);
        }
        let conn = active.leave_loop(&self.loops);
        if conn.is_taken_over() {
            // Its loop may not have a thread yet, and this one would not come back for it.
            self.loops.send(index, LoopMessage::Adopt(conn));
            return Led::Lost(None);
        }
        Led::Lost(Some(conn))
    }

    /// Where the cores are full, who comes back from a call has the request sooner than the loop has another leader, and each wait for
    /// one would hold up whoever comes next: of 400 clients that came at once to such a core, some waited 0.7 to 1.9 s.
    pub(super) fn bring_to_the_commons(self: &Arc<Shared>, conn: Box<Conn>) -> Result<(), Box<Conn>> {
        if conn.is_taken_over() || !self.may_go_on() {
            return Err(conn);
        }
        self.set.ask(conn, self.cx.settings.queue_max)?;
        self.loops.watch.wake_if_asleep();
        if self.cx.stage() != Stage::Running {
            // It may have begun behind the watcher's last look.
            self.send_members_home(Duration::ZERO);
        }
        Ok(())
    }

    /// Gives the loop to another thread, to be free for a call that blocks. Where there is no other thread,
    /// the request waits for one and this thread leads on; but where none would ever come, it makes the call with the loop.
    fn give_away(self: &Arc<Shared>, mut lp: Box<EventLoop>, active: ActiveConn, hand: &mut Hand) -> Led {
        let conn = match self.bring_to_the_commons(lp.remove(active)) {
            Ok(()) => return Led::On(lp, None),
            Err(conn) => conn,
        };
        let mut lp = match self.give(Job::Lead(lp)) {
            Ok(()) => {
                Counters::count(&self.cx.counters.loops_handed_off);
                return Led::Lost(Some(conn));
            }
            Err(Job::Lead(lp)) => lp,
            Err(_) => unreachable!("a loop was given"),
        };
        if self.standby.has_only(self.cells.len()) {
            if conn.is_taken_over() {
                Counters::count(&self.cx.counters.shed);
                self.note_starved(lp.now());
                return Led::On(lp, None);
            }
            // It is the same turn: one client does not keep the loop from all others.
            let calls = conn.calls;
            let mut active = lp.insert(conn);
            active.conn.calls = calls;
            return self.call(lp, active, None, hand);
        }
        match self.give_or_queue(Job::Serve(conn)) {
            Ok(()) => Counters::count(&self.cx.counters.queued),
            Err(Job::Serve(conn)) => {
                (lp, ()) = self.keeping(lp, |lp| {
                    let active = lp.insert(conn);
                    lp.refuse(active, Conn::refuse_overload, &self.cx);
                });
            }
            Err(_) => unreachable!("a connection was given"),
        }
        self.note_starved(lp.now());
        Led::On(lp, None)
    }
}

/// A loop whose leader may panic.
struct Kept<'a> {
    lp: Option<Box<EventLoop>>,
    shared: &'a Arc<Shared>,
}

impl Drop for Kept<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lp) = self.lp.take() {
            self.shared.give_on(lp);
        }
    }
}

/// The loop that this thread has laid on its cell, while a handler runs.
pub(super) struct Held {
    shared: Arc<Shared>,
    lay: Cell<Option<(usize, Ticket)>>,
}

impl Held {
    pub(super) fn new(shared: Arc<Shared>) -> Held {
        Held { shared, lay: Cell::new(None) }
    }

    /// The handler is about to wait: the loop goes to another thread, if it is still ours.
    pub(super) fn give_away(&self) {
        let Some((index, lay)) = self.lay.take() else { return };
        if let Some(lp) = self.shared.cells[index].reacquire(lay) {
            Counters::count(&self.shared.cx.counters.loops_handed_off);
            self.shared.give_on(lp);
        }
    }

    /// The same before a wait for a client. Where no other thread may take the loop, it stays, and nobody waits:
    /// one client does not keep it from all others.
    fn give_away_to_wait(&self) -> io::Result<()> {
        let cells = &self.shared.cells;
        let kept = self.lay.take().and_then(|(index, lay)| Some((index, cells[index].reacquire(lay)?)));
        let Some((index, lp)) = kept else { return self.shared.may_wait() };
        match self.shared.offer(lp) {
            Ok(()) => {
                Counters::count(&self.shared.cx.counters.loops_handed_off);
                Ok(())
            }
            Err(lp) => {
                self.lay.set(Some((index, cells[index].release(lp))));
                Err(io::ErrorKind::ResourceBusy.into())
            }
        }
    }
}

impl BlockingHook for Held {
    fn blocking(&self, work: Work) {
        self.give_away();
        work();
    }

    fn sleep(&self, duration: Duration) {
        self.give_away();
        std::thread::sleep(duration);
    }
}

/// How a handler waits while this thread's loop lies on its cell: the loop is given away first.
struct Leading<'a> {
    held: &'a Held,
    now: Tick,
}

impl Wait for Leading<'_> {
    fn now(&self) -> Tick {
        match self.held.lay.get() {
            Some((index, lay)) if self.held.shared.cells[index].is_mine(lay) => self.now,
            _ => self.held.shared.cx.clock.now(),
        }
    }

    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.held.give_away_to_wait()?;
        thread_wait::wait_in(&self.held.shared.cx, fd, ready, until, stage)
    }
}
