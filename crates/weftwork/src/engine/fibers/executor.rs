//! Runs the requests of one loop on fibers. While handlers are quick, a fiber runs one request after the other
//! without a switch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weftwork_fiber::Runtime;

use super::Fibers;
use super::wait::{FiberWait, OwnedFiberWait};
use crate::conn::{Call, Conn};
use crate::engine::conn_table::ActiveConn;
use crate::engine::event_loop::EventLoop;
use crate::transport::context::{Context, Stage};
use crate::transport::{CallSlot, DateCache};

/// Number of requests after which a fiber lets other fibers run whose wait is over.
const CALLS_A_FIBER: u32 = 64;

/// The state that the fibers of one thread share.
pub(super) struct FiberExecutor {
    engine: Arc<Fibers>,
    /// The loop, or `None` while it is in use. No handler runs meanwhile. If the loop's own work suspends a fiber
    /// (for example in a logger), the other fibers wait for the loop.
    lp: Cell<Option<Box<EventLoop>>>,
    /// Each request uses a copy, because its fiber may be suspended with it.
    dates: RefCell<DateCache>,
    /// Free buffers. A fiber that runs or is suspended has its own.
    slots: RefCell<Vec<Arc<CallSlot>>>,
    /// Requests that another fiber must run.
    waiting: RefCell<VecDeque<ActiveConn>>,
    /// Connections whose handlers finished while the loop was in use.
    done: RefCell<VecDeque<ActiveConn>>,
    /// Requests for which there was no memory for a stack.
    refused: RefCell<Vec<ActiveConn>>,
}

impl FiberExecutor {
    pub(super) fn new(engine: Arc<Fibers>, lp: Box<EventLoop>) -> FiberExecutor {
        FiberExecutor {
            engine,
            dates: RefCell::new(DateCache::new(lp.now())),
            lp: Cell::new(Some(lp)),
            slots: RefCell::default(),
            waiting: RefCell::default(),
            done: RefCell::default(),
            refused: RefCell::default(),
        }
    }

    pub(super) fn has_loop(&self) -> bool {
        self.with_loop(|_| ()).is_some()
    }

    /// Calls a function with the loop. Returns `None` if the loop is in use.
    pub(super) fn with_loop<T>(&self, act: impl FnOnce(&mut EventLoop) -> T) -> Option<T> {
        let mut taken = Taken { lp: Some(self.lp.take()?), executor: self };
        taken.lp.as_deref_mut().map(act)
    }

    /// Runs a request on a fiber until the fiber waits or ends. Other fibers that can run do so, too.
    pub(super) fn run(executor: &Rc<FiberExecutor>, active: ActiveConn, runtime: &Runtime) {
        let mut job = Job { active: Some(active), executor: executor.clone() };
        // The fiber is not joined. Its results are on the executor.
        drop(runtime.spawn(move || job.run()));
        runtime.run_ready();
    }

    /// Runs an upgraded connection on its own fiber.
    pub(super) fn let_go(&self, conn: Box<Conn>, runtime: &Runtime) {
        let mut task = UpgradeTask { conn: Some(conn), cx: self.engine.cx.clone() };
        drop(runtime.spawn(move || task.run()));
        runtime.run_ready();
    }

    /// Whether nothing waits for the thread.
    pub(super) fn is_empty(&self) -> bool {
        self.done.borrow().is_empty() && self.refused.borrow().is_empty() && self.waiting.borrow().is_empty()
    }

    /// Returns the request that has waited longest for a fiber.
    pub(super) fn next_waiting(&self) -> Option<ActiveConn> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Returns the connection whose handler finished first.
    pub(super) fn next_done(&self) -> Option<ActiveConn> {
        self.done.borrow_mut().pop_front()
    }

    /// Returns a connection whose request got no fiber.
    pub(super) fn next_refused(&self) -> Option<ActiveConn> {
        self.refused.borrow_mut().pop()
    }

    fn serve(&self, active: &mut ActiveConn) {
        let mut dates = self.dates.borrow().clone();
        let (cx, handler) = (&*self.engine.cx, &*self.engine.handler);
        let wait = FiberWait { cx, executor: Some(self) };
        let slot = self.slots.borrow_mut().pop().unwrap_or_else(|| cx.watchdog.call_slot());
        let call = Call { cx, now: cx.clock.now(), handler, wait: &wait, dates: &mut dates, slot: &slot };
        active.guarded(&self.engine.loops, |conn| conn.run(call));
        self.slots.borrow_mut().push(slot);
        self.dates.replace(dates);
    }

    /// Lets the loop go on once, unless it is in use.
    pub(super) fn turn(&self) {
        if let Some(called) = self.with_loop(|lp| lp.turn(&self.engine.cx)) {
            self.waiting.borrow_mut().extend(called);
        }
    }

    /// Resumes a connection whose handler has run, and all other work that can go on. Returns the next request.
    fn go_on(&self, active: ActiveConn) -> Option<ActiveConn> {
        let Some(lp) = self.lp.take() else {
            self.done.borrow_mut().push_back(active);
            return None;
        };
        let mut taken = Taken { lp: Some(lp), executor: self };
        let cx = &self.engine.cx;
        taken.lp.as_deref_mut().and_then(|lp| {
            if active.conn.is_stream() {
                // What the handler took is no time of its client, for the connection either.
                lp.refresh(cx);
            }
            lp.resume(active, cx).or_else(|| lp.poll_ready(cx))
        })
    }
}

/// Returns the loop to the executor when dropped, also after a panic.
struct Taken<'a> {
    lp: Option<Box<EventLoop>>,
    executor: &'a FiberExecutor,
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.executor.lp.set(self.lp.take());
    }
}

/// A request for a fiber.
struct Job {
    active: Option<ActiveConn>,
    executor: Rc<FiberExecutor>,
}

impl Job {
    /// A cancelled fiber unwinds from here, and its connection ends.
    fn run(&mut self) {
        let mut calls = 0;
        while let Some(mut active) = self.active.take() {
            self.executor.serve(&mut active);
            calls += 1;
            match self.executor.go_on(active) {
                Some(next) if calls < CALLS_A_FIBER && !next.conn.is_upgraded() => self.active = Some(next),
                Some(next) => self.executor.waiting.borrow_mut().push_back(next),
                None => {}
            }
        }
    }
}

/// An upgraded connection, for a fiber.
struct UpgradeTask {
    conn: Option<Box<Conn>>,
    cx: Arc<Context>,
}

impl UpgradeTask {
    fn run(&mut self) {
        if let Some(conn) = self.conn.take() {
            conn.run_upgraded(&self.cx, Arc::new(OwnedFiberWait(self.cx.clone())), || false);
        }
    }
}

impl Drop for UpgradeTask {
    fn drop(&mut self) {
        if let Some(mut conn) = self.conn.take().filter(|_| self.cx.stage() != Stage::Closing) {
            conn.refuse_no_stack(&self.cx);
        }
    }
}

impl Drop for Job {
    /// If there was no memory for a stack, the request is still here.
    fn drop(&mut self) {
        if let Some(active) = self.active.take() {
            self.executor.refused.borrow_mut().push(active);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::settings::Settings;
    use crate::transport::stream::Stream;

    /// If there is no memory for its stack, the task is dropped without a run.
    #[test]
    fn an_upgrade_that_does_not_begin_is_counted() {
        let cx = Arc::new(Context::new(Settings::default()).unwrap());
        for (shed, stage) in [(1, Stage::Running), (1, Stage::Closing)] {
            cx.enter(stage);
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let conn = Conn::new(Stream::new(ours.into()), None, cx.clock.now(), &cx);
            drop(UpgradeTask { conn: Some(conn), cx: cx.clone() });
            assert_eq!(cx.stats().shed, shed);
        }
    }
}
