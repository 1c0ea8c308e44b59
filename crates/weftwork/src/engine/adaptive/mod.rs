//! The default engine: event loops while handlers are quick, and a thread for each call that blocks.
//!
//! ```text
//!            events         +-- quick: the leader takes its loop back and goes on
//!   leader -------> inline -+-- stuck: the monitor retakes the loop, and another thread leads it
//!     |              call   +-- waits by `blocking`, `sleep` or for a body: the leader hands its loop off before
//!     |
//!     +-- predicted to block: posted to the queue of the thread pool, and the leader goes on
//!                                   |
//!                 pool thread <-----+---- shared poller (connections whose last call blocked)
//! ```
//!
//! Where a connection can be, and what moves it from there:
//!
//! | place | moved by |
//! |---|---|
//! | accept queue of the kernel | a loop, or a pool thread after a call that blocked |
//! | table of its loop (`conn_table.rs`) | an event, a message or a deadline: into the batch |
//! | batch of its loop (`to_serve`, `to_flush`) | the leader: into a call, the queue or the table |
//! | inline call of the leader | the leader; if the loop was retaken: served on by that thread (`detached.rs`) |
//! | queue of the pool (`Job::Serve`) | the next pool thread that is free |
//! | call of a pool thread | that thread: to the shared poller, or to its loop |
//! | shared poller (`shared_poller.rs`) | an event: to a pool thread; the monitor, after 500 ms (10 ms if no thread is free): to its loop |
//! | inbox of its loop (`LoopMessage::Adopt`) | the leader: into the table |
//!
//! The engine `pool` is this engine with one loop that calls only marked routes ([`Mode::Pool`]).

mod detached;
mod leader;
mod sysmon;
#[cfg(test)]
mod tests;

#[cfg(all(test, loom))]
pub(super) use sysmon::is_stuck;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use self::leader::CurrentLoop;
use super::EngineHandle;
use super::acceptor::Listeners;
use super::blocking;
use super::event_loop::EventLoop;
use super::handoff::HandoffCell;
use super::loops::LoopGroup;
use super::predictor::BlockingPredictor;
use super::shared_poller::SharedPoller;
use super::thread_pool::{Limits, ThreadPool, Work};
use super::threads::{ThreadState, Threads};
use crate::conn::Conn;
use crate::message::Handler;
use crate::settings::Settings;
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::events::Event;
use crate::transport::listener::Listener;
use crate::transport::log_limit::LogLimit;
use crate::transport::log_queue::log_line;

/// Time after which an idle thread of `adaptive` exits, if other threads are idle. The same as in tokio's blocking
/// pool.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The same time for `pool`.
const POOL_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Selects one of the two engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The engine `adaptive`. The loop calls quick handlers.
    Adaptive { loops: usize },
    /// The engine `pool`. A pool thread calls every handler, and `standby` threads stay when they are idle.
    Pool { standby: usize },
}

impl Mode {
    fn loops(self) -> usize {
        match self {
            Mode::Adaptive { loops } => loops,
            Mode::Pool { .. } => 1,
        }
    }

    fn limits(self, settings: &Settings) -> Limits {
        let (idle_kept, threads_max, spare, keep_alive) = match self {
            // Each loop reserves one thread for handlers that it does not know yet. Every loop needs a leader, regardless of
            // the limit. If all threads are in calls and a leader gets stuck too, a spare thread leads its loop.
            // One more leads while a trial blocks.
            Mode::Adaptive { loops } => {
                (settings.standby_kept.max(loops), settings.threads_max.max(loops + 1), loops + 1, KEEP_ALIVE)
            }
            // The leader calls only marked handlers, so it does not count.
            Mode::Pool { standby } => (standby, settings.threads_max + 1, 1, POOL_KEEP_ALIVE),
        };
        let starts_ahead = matches!(self, Mode::Pool { .. });
        Limits { idle_kept, threads_max, spare, queue_max: settings.queue_max, starts_ahead, keep_alive }
    }

    /// Number of threads that start before the server is ready: the leaders, and at least one that never retires.
    fn threads_at_start(self) -> usize {
        let (Mode::Adaptive { loops: kept } | Mode::Pool { standby: kept }) = self;
        kept + 1
    }
}

/// A job for a thread of the pool.
enum Job {
    /// Lead a loop.
    Lead(Box<EventLoop>),
    /// Serve a connection.
    Serve(Box<Conn>),
}

/// The state that all threads of the engine share.
struct Shared {
    mode: Mode,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    loops: Arc<LoopGroup>,
    listeners: Listeners,
    /// Each cell has its own cache line, because its leader writes there twice a request.
    cells: Vec<CachePadded<HandoffCell<Box<EventLoop>>>>,
    pool: ThreadPool<Job, SharedPoller>,
    predictor: BlockingPredictor,
    /// Whether a leader is in a trial: see `leader.rs`.
    has_trial: AtomicBool,
    threads: Threads,
    /// Limits the log lines about work that waits because all threads are busy.
    starved: LogLimit,
}

/// The state of one thread.
struct WorkerState {
    thread: ThreadState,
    current: Rc<CurrentLoop>,
}

pub(super) fn start(
    mode: Mode,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let (shared, loops) = Shared::new(mode, cx, handler, listeners)?;
    let opened = shared.open(loops);
    super::started(shared.clone(), &shared.cx, opened)
}

impl Shared {
    /// Creates the engine without threads, and its loops.
    fn new(
        mode: Mode,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Arc<Vec<Listener>>,
    ) -> io::Result<(Arc<Shared>, Vec<EventLoop>)> {
        let (loops, mut opened) = EventLoop::open_all(mode.loops(), &listeners, cx.clock.now())?;
        // The leader sends them as in a call.
        opened.iter_mut().for_each(|lp| lp.sends_slow_files = false);
        let shared = Arc::new(Shared {
            mode,
            loops,
            listeners: Listeners::new(&listeners),
            cells: opened.iter().map(|_| CachePadded::new(HandoffCell::new())).collect(),
            pool: ThreadPool::new(mode.limits(&cx.settings), SharedPoller::open(!cx.observers().is_empty())?),
            predictor: BlockingPredictor::new(),
            has_trial: AtomicBool::new(false),
            threads: Threads::default(),
            starved: LogLimit::new(1),
            handler,
            cx,
        });
        Ok((shared, opened))
    }

    fn open(self: &Arc<Shared>, loops: Vec<EventLoop>) -> io::Result<()> {
        self.start_sysmon()?;
        for _ in 0..self.mode.threads_at_start() {
            if self.pool.count_in() {
                self.start_thread(true)?;
            }
        }
        loops.into_iter().for_each(|lp| self.hand_off(Box::new(lp)));
        Ok(())
    }

    /// Starts a thread that the pool has already counted.
    fn start_thread(self: &Arc<Shared>, is_first: bool) -> io::Result<()> {
        let shared = self.clone();
        self.threads.start(&self.pool, is_first, move || shared.work())
    }

    /// Starts a thread for the pool. If the system refuses the thread, the log says so, and an existing thread takes
    /// the work.
    fn spawn(self: &Arc<Shared>) {
        let _ = self.start_thread(false);
    }

    /// Logs once a second that work waits for a thread, if `threads_max` is the reason. From outside the server seems
    /// to hang, and upgraded connections, which are no requests in progress, may hold the threads.
    #[cold]
    fn warn_exhausted(&self, now: Tick) {
        if !self.pool.is_at_limit() || self.starved.take(now).is_none() {
            return;
        }
        let upgrades = self.cx.counters.upgraded.load(Ordering::Relaxed);
        let settings = self.cx.settings.show(&["threads_max"]);
        log_line!(
            Warn,
            "all threads are busy ({settings}, {upgrades} hold upgraded connections): requests wait or get 503"
        );
    }

    /// Returns an error if a loop waits for a thread. Then no thread may wait for a client.
    fn check_may_block(&self) -> io::Result<()> {
        match self.pool.is_starved() {
            true => Err(io::ErrorKind::ResourceBusy.into()),
            false => Ok(()),
        }
    }

    /// Posts a connection whose call may block to the pool. Gives it back if the queue is full.
    fn post(self: &Arc<Shared>, mut conn: Box<Conn>, now: Tick) -> Result<(), Box<Conn>> {
        let is_late = !self.pool.has_thread();
        if is_late {
            conn.owner.queued_since = Some(now);
            self.warn_exhausted(now);
        }
        match self.pool.submit(Job::Serve(conn), || self.spawn()) {
            Ok(()) if is_late => {
                self.cx.record(Event::Queued);
                self.loops.wake_monitor_if_asleep();
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Job::Serve(conn)) => Err(conn),
            Err(Job::Lead(_)) => unreachable!("a connection was submitted"),
        }
    }

    fn worker_state(self: &Arc<Shared>) -> WorkerState {
        WorkerState { thread: ThreadState::new(&self.cx), current: Rc::new(CurrentLoop::new(self.clone())) }
    }

    /// Runs a thread, which leads loops and serves connections as needed.
    fn work(self: &Arc<Shared>) {
        let mut worker = self.worker_state();
        let _entered = blocking::enter(worker.current.clone());
        let perform = |work| {
            self.perform(work, &mut worker);
            if self.pool.idle() > 0 {
                worker.thread.pool.trim();
            }
        };
        self.threads.work(&self.pool, &|| self.spawn(), perform, |()| ());
    }

    fn perform(self: &Arc<Shared>, work: Work<Job, Box<Conn>>, worker: &mut WorkerState) {
        match work {
            Work::Event(conn) => self.serve_detached(conn, Some(true), worker),
            // A thread that led a loop may come before the queue is closed.
            Work::Job(Job::Serve(conn)) if self.cx.stage() == Stage::Closing => {
                conn.refuse_stopping(&self.cx)
            }
            Work::Job(Job::Serve(mut conn)) => {
                if conn.owner.queued_since.is_some() {
                    conn.drop_if_abandoned(self.cx.clock.now(), &self.cx);
                }
                self.serve_detached(conn, None, worker);
            }
            Work::Job(Job::Lead(lp)) => {
                if let Some(conn) = self.lead(lp, worker) {
                    self.serve_detached(conn, None, worker);
                }
            }
        }
    }
}

impl EngineHandle for Shared {
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
        self.loops.wake_monitor();
        if self.cx.stage() == Stage::Closing {
            self.loops.refuse_adopted(&self.cx);
            for job in self.pool.close() {
                if let Job::Serve(conn) = job {
                    conn.refuse_stopping(&self.cx);
                }
            }
        }
    }

    fn join(&self, timeout: Duration) -> usize {
        let left = self.pool.wait_until_empty(timeout);
        // Threads that are counted out only have to return. The monitor may be stuck in a log line. All other threads
        // are in a handler, and are not joined.
        let threads = self.threads.take();
        if left == 0 {
            super::join_within(threads, timeout);
        }
        left
    }

    fn threads(&self) -> usize {
        let threads = self.pool.stats().threads;
        match self.mode {
            Mode::Adaptive { .. } => threads,
            // The leader calls no handler.
            Mode::Pool { .. } => threads.saturating_sub(1),
        }
    }

    fn queued(&self) -> usize {
        self.pool.waiting()
    }

    fn leaks(&self) -> Vec<(&'static str, usize)> {
        let stats = self.pool.stats();
        vec![("threads that wait for work", stats.idle), ("requests that wait for a thread", stats.queued)]
    }
}
