//! The engine `workers`: threads that accept, and a thread for each connection, which serves the connection with
//! blocking calls.
//!
//! ```text
//!   listener 1 --- acceptor 1 --+                       +--> thread --- connection
//!   listener 2 --- acceptor 2 --+--> queue of the pool -+--> thread --- connection
//!   listener n --- acceptor n --+                       +--> thread --- connection
//! ```
//!
//! Each acceptor has its own listeners. TCP listeners are bound once more with `SO_REUSEPORT`, so that the kernel
//! spreads the connections (see [`Listener::sibling`] for why an address in use stays an error). Unix sockets, and
//! all sockets on systems other than Linux, have one queue, from which all acceptors take. A thread that has finished
//! its connection tries to accept before it waits. If many connections are short, that saves the wake-up.
//!
//! A connection of HTTP/2 has many requests, so it has no thread. One loop serves all of these connections, and gives their
//! requests to the threads (`workers/streams.rs`).
//!
//! If other connections wait for a slot, or for a thread and no thread can be started, a connection without a request for a second ends. Its thread
//! checks that once a second.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::acceptor::{Acceptor, Listeners, is_pending};
use super::conn_thread::{ConnThread, Outcome};
use super::event_loop::EventLoop;
use super::loops::LoopGroup;
use super::thread_pool::{Limits, NoEvents, SPAWN_BACKOFF, ThreadPool, Work};
use super::thread_wait::OwnedThreadWait;
use super::threads::{ThreadState, Threads};
use super::{EngineHandle, log_caught_panic};
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::events::Event;
use crate::transport::listener::Listener;

/// Time after which an idle thread exits, if other threads are idle.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Pause of an acceptor while all threads are busy and the queue is full. Connections wait in the kernel's backlog
/// meanwhile.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Maximum wait of an acceptor, so that no wait is endless.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection, and the acceptor that accepted it.
struct Job {
    conn: Box<Conn>,
    acceptor: usize,
}

struct Workers {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    /// The listeners of each acceptor.
    listeners: Vec<Listeners>,
    pool: ThreadPool<Job, NoEvents>,
    threads: Threads,
    /// The loop of connections of HTTP/2. None: the server does not speak HTTP/2.
    streams: Option<Arc<LoopGroup>>,
    /// Whether a connection waits at a listener, and the limit of connections or threads is reached. Set at each
    /// check.
    close_idle_wanted: AtomicBool,
    /// Threads that accept.
    acceptors: AtomicUsize,
}

pub(super) fn start(
    acceptors: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let (engine, lp) = Workers::new(acceptors, cx, handler, listeners)?;
    let opened = engine.open(lp);
    super::started(engine.clone(), &engine.cx, opened)
}

impl Workers {
    /// Creates the engine without threads.
    fn new(
        acceptors: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Vec<Listener>,
    ) -> io::Result<(Arc<Workers>, Option<EventLoop>)> {
        let settings = &cx.settings;
        let (streams, lp) = streams::open(&listeners, &cx)?.unzip();
        let limits = Limits {
            spare: 0,
            idle_kept: settings.standby_kept.max(1),
            threads_max: settings.threads_max,
            queue_max: settings.queue_max,
            starts_ahead: false,
            keep_alive: KEEP_ALIVE,
        };
        let mut all = Vec::new();
        for _ in 1..acceptors {
            let siblings = listeners.iter().map(|listener| listener.sibling(settings.backlog));
            let siblings = siblings.collect::<io::Result<Vec<_>>>()?;
            siblings.iter().for_each(|listener| listener.limit_unread(settings.write_timeout));
            all.push(siblings);
        }
        all.push(listeners.into_iter().flat_map(Listener::with_queues).collect());
        let workers = Arc::new(Workers {
            streams,
            listeners: all.into_iter().map(|listeners| Listeners::new(&Arc::new(listeners))).collect(),
            pool: ThreadPool::new(limits, NoEvents),
            threads: Threads::default(),
            acceptors: AtomicUsize::new(0),
            close_idle_wanted: AtomicBool::new(false),
            handler,
            cx,
        });
        Ok((workers, lp))
    }

    /// Starts the acceptors, the loop, and one thread that never retires. So connections are served even if the system refuses
    /// threads later.
    fn open(self: &Arc<Workers>, lp: Option<EventLoop>) -> io::Result<()> {
        if self.pool.count_in() {
            self.start_thread(true)?;
        }
        if let Some(lp) = lp {
            let shared = self.clone();
            self.threads.spawn("weft-http2", move || shared.run_loop(lp))?;
        }
        for acceptor in 0..self.listeners.len() {
            let shared = self.clone();
            let work = move || shared.accept_until_stopped(acceptor);
            self.acceptors.fetch_add(1, Ordering::SeqCst);
            self.threads.spawn("weft-accept", work)?;
        }
        Ok(())
    }

    /// Starts a thread that the pool has already counted.
    fn start_thread(self: &Arc<Workers>, is_first: bool) -> io::Result<()> {
        let shared = self.clone();
        self.threads.start(&self.pool, is_first, move || shared.work())
    }

    fn spawn(self: &Arc<Workers>) {
        // If the system refuses the thread, the log says so, and an existing thread takes the connection.
        let _ = self.start_thread(false);
    }

    /// Runs an acceptor. A panic outside of handlers is a bug of Weftwork, and costs one connection.
    fn accept_until_stopped(self: &Arc<Workers>, acceptor: usize) {
        while catch_unwind(AssertUnwindSafe(|| self.accept_all(acceptor))).is_err() {
            log_caught_panic();
        }
        // What it has accepted is counted.
        self.acceptors.fetch_sub(1, Ordering::SeqCst);
    }

    fn accept_all(self: &Arc<Workers>, index: usize) {
        let listeners = self.listeners[index].get();
        let mut acceptor = self.listeners[index].acceptor();
        acceptor.note_all_ready();
        while self.cx.stage() == Stage::Running {
            let now = self.cx.clock.now();
            acceptor.next_cycle(now);
            // The system may have refused a thread before.
            if self.pool.has_queue() {
                self.pool.request_thread(&|| self.spawn());
            }
            while self.pool.has_room() {
                let Some(conn) = acceptor.accept(now, &self.cx) else { break };
                self.begin(Job { conn, acceptor: index }, now);
            }
            let is_kept_out = !self.pool.has_room() && listeners.iter().any(is_pending);
            let is_wanted = acceptor.take_at_limit() || is_kept_out;
            self.close_idle_wanted.store(is_wanted, Ordering::Relaxed);
            if let Some(streams) = self.streams.as_ref().filter(|_| is_wanted) {
                streams.close_idle();
            }
            self.wait_at(&listeners, &mut acceptor, now);
        }
    }

    fn wait_at(&self, listeners: &[Listener], acceptor: &mut Acceptor, now: Tick) {
        let stop = self.cx.stage_fd(Stage::Running);
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let timeout = match acceptor.retry(now) {
            Some(_) if !self.pool.has_room() => FULL_PAUSE,
            Some(until) => now.until(until),
            None => {
                fds.extend(listeners.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
                if self.pool.has_queue() { SPAWN_BACKOFF } else { ACCEPT_TIMEOUT }
            }
        };
        // An interrupted wait counts as finished, because the loop checks everything again.
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
        for (listener, fd) in fds.iter().skip(1).enumerate() {
            if !fd.revents().is_empty() {
                acceptor.note_ready(listener);
            }
        }
    }

    /// Serves a new connection.
    fn begin(self: &Arc<Workers>, job: Job, now: Tick) {
        if job.conn.is_refused() && !self.pool.has_thread() {
            job.conn.send_and_close(now);
        } else {
            self.submit(job, now);
        }
    }

    /// Submits a connection to the pool. If all threads are busy, the connection waits for a thread.
    fn submit(self: &Arc<Workers>, mut job: Job, now: Tick) {
        if !self.pool.has_thread() {
            self.cx.record(Event::Queued);
            job.conn.owner.queued_since = Some(now);
        }
        // Several acceptors may have seen the last place in the queue. One connection too many does no harm.
        if let Err(job) = self.pool.submit(job, || self.spawn()) {
            self.pool.submit_front(job, false, || self.spawn());
        }
    }

    /// Runs a thread, which serves one connection after the other.
    fn work(self: &Arc<Workers>) {
        let mut state = ThreadState::new(&self.cx);
        let work = |Work::Job(job)| {
            let (mut next, mut to_loop) = (Some(job), None);
            while let Some(Job { conn, acceptor }) = next.take() {
                to_loop = self.serve(conn, &mut state);
                if to_loop.is_none() {
                    next = self.try_accept(acceptor);
                }
            }
            state.pool.trim();
            to_loop
        };
        // The loop may need this thread for the first request of the connection.
        self.threads.work(&self.pool, &|| self.spawn(), work, |to_loop| {
            if let Some(conn) = to_loop {
                self.give_to_loop(conn);
            }
        });
    }

    /// Serves a connection. Returns it if the loop serves it from now on.
    fn serve(self: &Arc<Workers>, mut conn: Box<Conn>, state: &mut ThreadState) -> Option<Box<Conn>> {
        if self.cx.stage() == Stage::Closing {
            // It came out of the queue just before the queue was closed.
            conn.refuse_stopping(&self.cx);
            return None;
        }
        let is_wanted = || self.is_wanted();
        let mut thread = ConnThread::new(&self.cx, &*self.handler, state, &is_wanted);
        let outcome = match conn.is_stream() {
            true => thread.serve_stream(&mut conn),
            false => thread.serve(&mut conn),
        };
        match outcome {
            Outcome::Closed => conn.reclaim(&mut state.pool),
            Outcome::ToLoop => return Some(conn),
            Outcome::Upgraded => {
                conn.run_upgraded(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), is_wanted)
            }
        }
        None
    }

    /// Whether a connection waits for a slot, or for a thread while no other thread can be started. If the connection waits at
    /// a listener, only the first thread that asks should end its own connection.
    fn is_wanted(&self) -> bool {
        self.pool.is_short() || self.close_idle_wanted.swap(false, Ordering::Relaxed)
    }

    /// Accepts a connection from the listeners, unless other connections already wait for a thread.
    fn try_accept(&self, acceptor: usize) -> Option<Job> {
        if self.pool.has_queue() || self.cx.stage() != Stage::Running {
            return None;
        }
        let conn = self.listeners[acceptor].accept(self.cx.clock.now(), &self.cx)?;
        Some(Job { conn, acceptor })
    }
}

impl EngineHandle for Workers {
    fn has_pending(&self) -> bool {
        self.listeners.iter().any(Listeners::have_pending)
    }

    fn is_accepting(&self) -> bool {
        self.acceptors.load(Ordering::SeqCst) > 0
    }

    fn accept_pending(self: Arc<Self>) {
        for (acceptor, listeners) in self.listeners.iter().enumerate() {
            listeners.accept_pending(&self.cx, |mut conn| {
                conn.owner.queued_since = Some(self.cx.clock.now());
                if let Err(job) = self.pool.submit(Job { conn, acceptor }, || self.spawn()) {
                    job.conn.refuse_stopping(&self.cx);
                }
            });
        }
    }

    fn has_room(&self) -> bool {
        self.pool.has_room()
    }

    fn adopt(self: Arc<Self>, conn: Box<Conn>) {
        // Its thread accepts from these listeners next.
        self.begin(Job { conn, acceptor: 0 }, self.cx.clock.now());
    }

    fn close_idle(&self) {
        self.close_idle_wanted.store(true, Ordering::Relaxed);
        if let Some(streams) = &self.streams {
            streams.close_idle();
        }
    }

    fn wake(&self) {
        // A waiting thread also wakes up for the next stage. Only the listeners and the pool remain to be closed.
        self.listeners.iter().for_each(Listeners::shut);
        self.wake_loop();
        if self.cx.stage() == Stage::Closing {
            for job in self.pool.close() {
                job.conn.refuse_stopping(&self.cx);
            }
        }
    }

    fn join(&self, timeout: Duration) -> usize {
        self.threads.join(timeout)
    }

    fn threads(&self) -> usize {
        self.pool.stats().threads
    }

    fn queued(&self) -> usize {
        self.pool.stats().queued
    }
}

mod streams;
#[cfg(test)]
mod tests;
