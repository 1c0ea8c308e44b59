//! Where a loop lays its requests down for the fibers of its thread, and finds them again.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weftwork_fiber::{Runtime, Signal, in_fiber, is_interruption, wait_readable, wait_writable};

use crate::conn::{Call, Conn, Wait};
use crate::engine::blocking::{Ground, Work};
use crate::engine::patience::{self, OnThisThread};
use crate::engine::turn::Errand;
use crate::message::Handler;
use crate::transport::context::{Context, Stage};
use crate::transport::{DateCache, Post, Tick};

/// What the fibers of one thread share with its loop.
pub(super) struct Desk {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    /// Each fiber takes a copy: it may be suspended with it.
    dates: RefCell<DateCache>,
    /// Free ones: a fiber that runs or is suspended has its own.
    posts: RefCell<Vec<Arc<Post>>>,
    done: RefCell<VecDeque<Errand>>,
    refused: RefCell<Vec<Errand>>,
}

impl Desk {
    pub(super) fn new(cx: Arc<Context>, handler: Arc<dyn Handler>, now: Tick) -> Desk {
        let dates = RefCell::new(DateCache::new(now));
        Desk {
            cx,
            handler,
            dates,
            posts: RefCell::default(),
            done: RefCell::default(),
            refused: RefCell::default(),
        }
    }

    /// Runs a request on a fiber until it is done or has to wait, and others that can go on with it.
    pub(super) fn take(desk: &Rc<Desk>, errand: Errand, runtime: &Runtime) {
        let mut job = Job { errand: Some(errand), desk: desk.clone() };
        // Nobody joins it: what it leaves on the desk is the sign.
        drop(runtime.spawn(move || job.run()));
        runtime.run_ready();
    }

    /// Runs what takes a connection over on a fiber, which is gone with it.
    pub(super) fn let_go(&self, conn: Box<Conn>, runtime: &Runtime) {
        let cx = self.cx.clone();
        drop(runtime.spawn(move || conn.take_over(&cx, Arc::new(OnAnyFiber(cx.clone())))));
        runtime.run_ready();
    }

    /// The connection whose handler has been done for longest.
    pub(super) fn next_done(&self) -> Option<Errand> {
        self.done.borrow_mut().pop_front()
    }

    /// A connection whose request could not be given a fiber.
    pub(super) fn next_refused(&self) -> Option<Errand> {
        self.refused.borrow_mut().pop()
    }

    fn serve(&self, errand: &mut Errand) {
        let mut dates = self.dates.borrow().clone();
        let wait = OnFiber { cx: &self.cx };
        let post = self.posts.borrow_mut().pop().unwrap_or_else(|| self.cx.watchdog.post());
        let (cx, handler) = (&*self.cx, &*self.handler);
        errand.conn.run(Call { cx, handler, wait: &wait, dates: &mut dates, post: &post });
        self.posts.borrow_mut().push(post);
        self.dates.replace(dates);
    }
}

/// A request for a fiber.
struct Job {
    errand: Option<Errand>,
    desk: Rc<Desk>,
}

impl Job {
    /// A fiber that is cancelled unwinds from here, and its connection ends with it.
    fn run(&mut self) {
        if let Some(mut errand) = self.errand.take() {
            self.desk.serve(&mut errand);
            self.desk.done.borrow_mut().push_back(errand);
        }
    }
}

impl Drop for Job {
    /// There was no memory for a stack: the request is still here.
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.desk.refused.borrow_mut().push(errand);
        }
    }
}

/// Waits for a client by suspending the fiber.
struct OnFiber<'a> {
    cx: &'a Context,
}

impl OnFiber<'_> {
    fn wait(
        &self,
        fd: BorrowedFd<'_>,
        event: PollFlags,
        until: Tick,
        suspend: fn(BorrowedFd<'_>, Option<Instant>) -> io::Result<()>,
    ) -> io::Result<()> {
        // A fiber that unwinds cannot be suspended; then it must not miss the end of the server.
        if std::thread::panicking() || self.cx.stage() == Stage::Closing {
            return patience::wait(self.cx, fd, event, until);
        }
        // A deadline that no clock can reach is no deadline.
        suspend(fd, Instant::now().checked_add(self.cx.clock.now().until(until)))
    }
}

impl Wait for OnFiber<'_> {
    fn now(&self) -> Tick {
        self.cx.clock.now()
    }

    fn readable(&self, fd: BorrowedFd<'_>, until: Tick) -> io::Result<()> {
        self.wait(fd, PollFlags::IN, until, wait_readable)
    }

    fn readable_in(&self, fd: BorrowedFd<'_>, until: Tick, stage: Stage) -> io::Result<()> {
        if stage != Stage::Running {
            return self.readable(fd, until);
        }
        let waited = self.wait(fd, PollFlags::IN, until, |fd, until| {
            DRAINING.with(|draining| draining.wait_readable(fd, until))
        });
        waited.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => io::ErrorKind::ConnectionAborted.into(),
            _ => error,
        })
    }

    fn writable(&self, fd: BorrowedFd<'_>, until: Tick) -> io::Result<()> {
        self.wait(fd, PollFlags::OUT, until, wait_writable)
    }

    fn is_cancelled(&self, panic: &(dyn Any + Send)) -> bool {
        is_interruption(panic)
    }
}

/// Waits by suspending the fiber it is called on, or by blocking where there is none: a connection that was taken
/// over may be used anywhere.
struct OnAnyFiber(Arc<Context>);

impl OnAnyFiber {
    fn here<T>(&self, wait: impl FnOnce(&dyn Wait) -> T) -> T {
        match in_fiber() {
            true => wait(&OnFiber { cx: &self.0 }),
            false => wait(&OnThisThread { cx: &self.0 }),
        }
    }
}

impl Wait for OnAnyFiber {
    fn now(&self) -> Tick {
        self.0.clock.now()
    }

    fn readable(&self, fd: BorrowedFd<'_>, until: Tick) -> io::Result<()> {
        self.here(|wait| wait.readable(fd, until))
    }

    fn readable_in(&self, fd: BorrowedFd<'_>, until: Tick, stage: Stage) -> io::Result<()> {
        self.here(|wait| wait.readable_in(fd, until, stage))
    }

    fn writable(&self, fd: BorrowedFd<'_>, until: Tick) -> io::Result<()> {
        self.here(|wait| wait.writable(fd, until))
    }

    fn is_cancelled(&self, panic: &(dyn Any + Send)) -> bool {
        is_interruption(panic)
    }
}

thread_local! {
    /// Ends the waits of this thread's fibers that have to know that the server drains.
    static DRAINING: Signal = const { Signal::new() };
}

/// The server drains: fibers of this thread that wait for a client of another protocol look up.
pub(super) fn tell_of_drain() {
    DRAINING.with(Signal::give);
}

/// Work that waits suspends the fiber, and runs on a thread of the fibers' pool.
pub(super) struct Suspending;

impl Ground for Suspending {
    fn blocking(&self, work: Work) {
        weftwork_fiber::blocking(work);
    }

    fn sleep(&self, duration: Duration) {
        weftwork_fiber::sleep(duration);
    }
}
