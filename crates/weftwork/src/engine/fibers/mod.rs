//! Event loops that run each request on a fiber of their thread.
//!
//! ```text
//! thread: loop (poller, connections, deadlines) --request--> fiber: handler -- done --> loop sends the rest
//!              ^ watches the poller of the fibers               | waits: for a slow body, sleep, blocking
//!              +------------------------------------------------+ its stack stays, the loop goes on
//! ```
//!
//! A connection that waits has no stack. A handler that is quick costs its loop two switches; one that waits by
//! the library's means costs its stack meanwhile; one that blocks the thread stops its loop.

mod desk;

use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Poll;
use weftwork_fiber::{Config, Runtime};

use self::desk::{Desk, Suspending};
use super::Room;
use super::shared::Hub;
use super::turn::{Errand, Loop};
use crate::message::Handler;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;

struct Fibers {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    hub: Hub,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) fn start(
    threads: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn Room>> {
    let polls = (0..threads).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
    let room = Arc::new(Fibers { hub: Hub::new(&polls)?, cx, handler, threads: Mutex::default() });
    let started = room.start(polls, &listeners);
    if started.is_err() {
        room.cx.enter(Stage::Closing);
        room.wake();
    }
    started.map(|()| room as Arc<dyn Room>)
}

impl Fibers {
    /// Returns when every thread has its fibers' poller and stack, which only the thread itself can make.
    fn start(self: &Arc<Fibers>, polls: Vec<Poll>, listeners: &Arc<Vec<Listener>>) -> io::Result<()> {
        let now = self.cx.clock.now();
        let (opened, results) = channel();
        for (index, poll) in polls.into_iter().enumerate() {
            let lp = Loop::new(index, poll, &self.hub, listeners.clone(), now)?;
            let (own, opened) = (self.clone(), opened.clone());
            let thread = std::thread::Builder::new().name(format!("weft-{index}"));
            self.lock().push(thread.spawn(move || own.open(lp, opened))?);
        }
        drop(opened);
        results.iter().collect()
    }

    /// A thread's life.
    fn open(&self, lp: Loop, opened: Sender<io::Result<()>>) {
        let stack_bytes = usize::try_from(self.cx.settings.fiber_stack_bytes.0).unwrap_or(usize::MAX);
        let runtime = Runtime::with_config(&Config::new().stack_bytes(stack_bytes));
        let runtime = runtime.and_then(|runtime| lp.watch_guest(&runtime).map(|()| runtime));
        let (result, runtime) = match runtime {
            Ok(runtime) => (Ok(()), Some(runtime)),
            Err(error) => (Err(error), None),
        };
        // Nobody listens if another thread could not be started; then the stage says so as well.
        let _ = opened.send(result);
        drop(opened);
        if let Some(runtime) = runtime {
            let desk = Desk::new(self.cx.clone(), self.handler.clone(), lp.now());
            let _ground = super::blocking::enter(Rc::new(Suspending));
            Thread { room: self, lp, runtime, desk: Rc::new(desk) }.run();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread with its loop and its fibers.
struct Thread<'a> {
    room: &'a Fibers,
    /// Dropped first: that unwinds every fiber, and their destructors may look at what is below.
    runtime: Runtime,
    lp: Loop,
    desk: Rc<Desk>,
}

impl Thread<'_> {
    fn run(mut self) {
        let (hub, cx) = (&self.room.hub, &*self.room.cx);
        loop {
            while let Some(errand) = self.lp.next_here(hub, cx) {
                self.call(errand);
            }
            if self.lp.is_over(cx) {
                return;
            }
            self.lp.wait(hub, cx, self.runtime.patience());
            if cx.stage() != Stage::Running {
                desk::tell_of_drain();
            }
            self.resume();
        }
    }

    /// Runs the fibers whose wait is over.
    fn resume(&mut self) {
        if self.lp.take_guest() {
            if let Err(error) = self.runtime.turn(Some(Duration::ZERO), &mut Vec::new()) {
                log::error!("the fibers' poller failed: {error}");
            }
        } else {
            self.runtime.run_ready();
        }
        self.settle();
    }

    /// Runs the handler on a fiber, until it is done or has to wait.
    fn call(&mut self, errand: Errand) {
        self.take(errand);
        self.settle();
    }

    fn take(&mut self, errand: Errand) {
        if errand.conn.is_taken_over() {
            self.desk.let_go(self.lp.detach(errand), &self.runtime);
        } else {
            Desk::take(&self.desk, errand, &self.runtime);
        }
    }

    /// Goes on with the connections whose handlers have run.
    fn settle(&mut self) {
        let cx = &*self.room.cx;
        loop {
            if let Some(errand) = self.desk.next_done() {
                if let Some(next) = self.lp.settle(errand, cx) {
                    self.take(next);
                }
            } else if let Some(errand) = self.desk.next_refused() {
                self.lp.shed(errand, cx);
            } else {
                return;
            }
        }
    }
}

impl Room for Fibers {
    fn wake(&self) {
        self.hub.wake_all();
    }

    fn join(&self, patience: Duration) -> usize {
        let threads = std::mem::take(&mut *self.lock());
        super::join_within(threads, patience)
    }

    fn threads(&self) -> usize {
        self.lock().len()
    }
}
