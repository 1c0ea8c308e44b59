//! Event loops that run each request on a fiber of their thread.
//!
//! ```text
//! thread: loop (poller, connections, deadlines) --request--> fiber: handler -- done --> loop sends the rest
//!              ^ watches the poller of the fibers               | waits: for a slow body, sleep, blocking
//!              +------------------------------------------------+ its stack stays, the loop goes on
//! ```
//!
//! An idle connection has no stack. While handlers are quick, a fiber runs one request after the other without a
//! switch. A handler that waits through the library costs a stack during the wait. A handler that blocks the thread
//! stops its loop.

mod executor;
mod wait;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use weftwork_fiber::{BlockingPool, Config, Runtime};

use self::executor::FiberExecutor;
use self::wait::FiberBlocking;
use super::acceptor::Listeners;
use super::conn_table::ActiveConn;
use super::event_loop::EventLoop;
use super::loops::LoopGroup;
use super::threads::Threads;
use super::{EngineHandle, log_caught_panic};
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;
use crate::transport::log_limit::LogLimit;
use crate::transport::log_queue::log_line;
use crate::transport::thread_memory;

struct Fibers {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    loops: Arc<LoopGroup>,
    threads: Threads,
    listeners: Listeners,
    /// For [`weftwork::blocking`](crate::blocking).
    blocking: BlockingPool,
    /// Limits the log lines about refused threads to one a second.
    refusals: LogLimit,
}

pub(super) fn start(
    threads: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let (loops, opened) = EventLoop::open_all(threads, &listeners, cx.clock.now())?;
    let settings = &cx.settings;
    let engine = Arc::new(Fibers {
        loops,
        blocking: BlockingPool::new(settings.threads_max.saturating_sub(threads), settings.queue_max)
            .may_start(thread_memory::has_room_for_thread),
        refusals: LogLimit::new(1),
        threads: Threads::default(),
        listeners: Listeners::new(&listeners),
        handler,
        cx,
    });
    let started = engine.start(opened);
    super::started(engine.clone(), &engine.cx, started)
}

impl Fibers {
    /// Waits until every thread has created its fibers' poller and stack, which only the thread itself can do.
    fn start(self: &Arc<Fibers>, loops: Vec<EventLoop>) -> io::Result<()> {
        let (opened, results) = channel();
        for lp in loops {
            let (own, opened) = (self.clone(), opened.clone());
            self.threads.spawn(&format!("weft-{}", lp.index), move || own.open(lp, opened))?;
        }
        drop(opened);
        results.iter().collect()
    }

    /// Runs a thread.
    fn open(self: &Arc<Fibers>, lp: EventLoop, opened: Sender<io::Result<()>>) {
        let stack_bytes = usize::try_from(self.cx.settings.fiber_stack_bytes).unwrap_or(usize::MAX);
        let runtime = Runtime::with_config(
            &Config::new().stack_bytes(stack_bytes).may_map(|bytes| thread_memory::has_room(bytes as u64)),
        );
        let runtime = runtime.and_then(|runtime| {
            self.try_stack(&runtime)?;
            lp.watch_poller(&runtime).map(|()| runtime)
        });
        let (result, runtime) = match runtime {
            Ok(runtime) => (Ok(()), Some(runtime)),
            Err(error) => (Err(error), None),
        };
        // The receiver is dropped if another thread could not be started. The stage has changed then, too.
        let _ = opened.send(result);
        drop(opened);
        if let Some(runtime) = runtime {
            wait::own_thread(&self.cx);
            let executor = Rc::new(FiberExecutor::new(self.clone(), Box::new(lp)));
            let _entered = super::blocking::enter(Rc::new(FiberBlocking(self.clone())));
            let thread = Thread { engine: self.clone(), runtime, executor };
            // A panic outside of handlers is a bug of Weftwork. It costs the connection that was being served.
            while catch_unwind(AssertUnwindSafe(|| thread.run())).is_err() {
                log_caught_panic();
            }
        }
    }

    /// Allocates a stack at startup, so that a stack size that is too large is an error now and not at every request.
    fn try_stack(&self, runtime: &Runtime) -> io::Result<()> {
        runtime.block_on(|| ()).map_err(|error| {
            let wanted = self.cx.settings.show(&["fiber_stack_bytes"]);
            io::Error::new(error.kind(), format!("{wanted}: {error}"))
        })
    }
}

/// A thread with its loop and its fibers.
struct Thread {
    engine: Arc<Fibers>,
    /// Dropped first. That unwinds every fiber, and the destructors of the fibers may use the fields below.
    runtime: Runtime,
    executor: Rc<FiberExecutor>,
}

impl Thread {
    /// Runs until the server has stopped, or the loop is lost.
    fn run(&self) {
        let engine = &*self.engine;
        while self.work().is_some() {
            let timeout = self.runtime.park_timeout();
            let over = self.lead(|lp| {
                let over = lp.is_over(&engine.cx);
                if !over {
                    lp.wait(&engine.cx, timeout);
                }
                over
            });
            if over != Some(false) {
                return;
            }
            if engine.cx.stage() != Stage::Running {
                wait::tell_of_drain();
            }
            self.resume();
        }
    }

    /// Runs the fibers whose wait is over.
    fn resume(&self) {
        if self.lead(EventLoop::take_poller_ready) == Some(true) {
            self.turn(Some(Duration::ZERO));
        } else {
            self.runtime.run_ready();
        }
    }

    /// Does all work that needs no wait.
    fn work(&self) -> Option<()> {
        let engine = &*self.engine;
        loop {
            while let Some(active) = self.executor.next_done() {
                if let Some(next) = self.lead(|lp| lp.resume(active, &engine.cx))? {
                    self.run_on_a_fiber(next)?;
                }
            }
            while let Some(active) = self.executor.next_refused() {
                self.lead(|lp| lp.refuse(active, Conn::refuse_no_stack, &engine.cx))?;
            }
            let next = match self.executor.next_waiting() {
                Some(active) => Some(active),
                None => self.lead(|lp| lp.poll_ready(&engine.cx))?,
            };
            match next {
                Some(active) => self.run_on_a_fiber(active)?,
                None if self.executor.is_empty() => return Some(()),
                // Fibers ran while this thread waited for the loop, and may have left work.
                None => {}
            }
        }
    }

    fn run_on_a_fiber(&self, active: ActiveConn) -> Option<()> {
        if active.conn.is_upgraded() {
            let conn = self.lead(|lp| lp.remove(active))?;
            self.executor.let_go(conn, &self.runtime);
        } else {
            FiberExecutor::run(&self.executor, active, &self.runtime);
        }
        Some(())
    }

    /// Calls a function with the loop, which a suspended fiber may have to return first. Returns `None` if the loop
    /// was lost in a panic of Weftwork on a fiber.
    fn lead<T>(&self, act: impl FnOnce(&mut EventLoop) -> T) -> Option<T> {
        while !self.executor.has_loop() {
            if self.runtime.fibers() == 0 {
                log_line!(Error, "a loop was lost to a panic in Weftwork, and its connections with it");
                return None;
            }
            self.turn(None);
        }
        self.executor.with_loop(act)
    }

    fn turn(&self, timeout: Option<Duration>) {
        if let Err(error) = self.runtime.turn(timeout, &mut Vec::new()) {
            log_line!(Error, "the fibers' poller failed: {error}");
        }
    }
}

impl EngineHandle for Fibers {
    fn has_pending(&self) -> bool {
        self.listeners.have_pending()
    }

    fn is_accepting(&self) -> bool {
        self.loops.are_accepting()
    }

    fn accept_pending(self: Arc<Self>) {
        self.listeners.accept_pending(&self.cx, |conn| self.loops.adopt(conn));
    }

    fn adopt(self: Arc<Self>, conn: Box<Conn>) {
        self.loops.adopt(conn);
    }

    fn close_idle(&self) {
        self.loops.close_idle();
    }

    fn wake(&self) {
        self.listeners.shut();
        self.loops.wake_all();
        if self.cx.stage() == Stage::Closing {
            self.loops.refuse_adopted(&self.cx);
        }
    }

    fn join(&self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        let stuck = super::join_within(self.threads.take(), timeout);
        // Such a call runs to its end even if its fiber has ended.
        while self.blocking.busy() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        stuck + self.blocking.busy()
    }

    fn threads(&self) -> usize {
        self.threads.len() + self.blocking.threads()
    }
}
