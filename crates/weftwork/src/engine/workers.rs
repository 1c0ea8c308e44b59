//! The engine `workers`: threads that accept, and a thread for each connection, which serves it by blocking until it ends.
//!
//! ```text
//!   listener 1 --- acceptor 1 --+                       +--> thread --- connection
//!   listener 2 --- acceptor 2 --+--> queue of the pool -+--> thread --- connection
//!   listener n --- acceptor n --+                       +--> thread --- connection
//! ```
//!
//! Each acceptor has listeners of its own: TCP listeners are bound once more with `SO_REUSEPORT`, so that the kernel spreads
//! the connections (see [`Listener::sibling`] for why an address in use stays an error). Unix sockets, and all sockets if the
//! system is not Linux, have one queue, from which all acceptors take. A thread that has finished its connection tries to
//! accept before it waits: if many connections are short, that spares the wake-up.
//!
//! If others wait for a thread or a place, a connection without a request for a second ends: its thread looks once a second.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::acceptor::{Acceptor, Listeners, is_pending};
use super::conn_thread::{ConnThread, Outcome};
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

/// An idle thread exits after this, if others are idle.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// All threads are busy and the queue is full: connections wait in the kernel's backlog meanwhile.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// An acceptor looks up this often even if nothing happens: no wait is without an end.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection, and the acceptor that took it in.
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
    /// A connection waits at a listener, and there may be no more connections or threads. Set again at each look.
    close_idle_wanted: AtomicBool,
}

pub(super) fn start(
    acceptors: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let engine = Workers::new(acceptors, cx, handler, listeners)?;
    let opened = engine.open();
    super::started(engine.clone(), &engine.cx, opened)
}

impl Workers {
    /// The engine before its first thread.
    fn new(
        acceptors: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Vec<Listener>,
    ) -> io::Result<Arc<Workers>> {
        let settings = &cx.settings;
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
        Ok(Arc::new(Workers {
            listeners: all.into_iter().map(|listeners| Listeners::new(&Arc::new(listeners))).collect(),
            pool: ThreadPool::new(limits, NoEvents),
            threads: Threads::default(),
            close_idle_wanted: AtomicBool::new(false),
            handler,
            cx,
        }))
    }

    /// Starts the acceptors, and the one thread that never retires: whatever the system refuses later, connections are served.
    fn open(self: &Arc<Workers>) -> io::Result<()> {
        if self.pool.count_in() {
            self.start_thread()?;
        }
        for acceptor in 0..self.listeners.len() {
            let shared = self.clone();
            let work = move || shared.accept_until_stopped(acceptor);
            self.threads.spawn("weft-accept", work)?;
        }
        Ok(())
    }

    /// Starts a thread that is counted already.
    fn start_thread(self: &Arc<Workers>) -> io::Result<()> {
        let shared = self.clone();
        self.threads.start(&self.pool, move || shared.work())
    }

    fn spawn(self: &Arc<Workers>) {
        // If the system refuses it, the log says so, and a thread that is there comes for the connection.
        let _ = self.start_thread();
    }

    /// The life of an acceptor. A panic outside of handlers is a bug of ours, and costs one connection.
    fn accept_until_stopped(self: &Arc<Workers>, acceptor: usize) {
        while catch_unwind(AssertUnwindSafe(|| self.accept_all(acceptor))).is_err() {
            log_caught_panic();
        }
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
                if conn.is_refused() && !self.pool.has_thread() {
                    conn.send_and_close(now);
                } else {
                    self.submit(Job { conn, acceptor: index }, now);
                }
            }
            let is_kept_out = !self.pool.has_room() && listeners.iter().any(is_pending);
            self.close_idle_wanted.store(acceptor.take_at_limit() || is_kept_out, Ordering::Relaxed);
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
        // An interrupted wait is as good as one that is over: the loop looks at everything again.
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
        for (listener, fd) in fds.iter().skip(1).enumerate() {
            if !fd.revents().is_empty() {
                acceptor.note_ready(listener);
            }
        }
    }

    /// Gives the connection to the pool. If all threads are busy, it waits for one.
    fn submit(self: &Arc<Workers>, mut job: Job, now: Tick) {
        if !self.pool.has_thread() {
            self.cx.record(Event::Queued);
            job.conn.owner.queued_since = Some(now);
        }
        // Several acceptors may have seen the last place in the queue: one too many is not too many.
        if let Err(job) = self.pool.submit(job, || self.spawn()) {
            self.pool.submit_front(job, || self.spawn());
        }
    }

    /// The life of a thread: one connection after the other.
    fn work(self: &Arc<Workers>) {
        let mut state = ThreadState::new(&self.cx);
        self.threads.work(&self.pool, &|| self.spawn(), |Work::Job(job)| {
            let mut next = Some(job);
            while let Some(Job { conn, acceptor }) = next {
                self.serve(conn, &mut state);
                next = self.try_accept(acceptor);
            }
            state.pool.trim();
        });
    }

    fn serve(&self, mut conn: Box<Conn>, state: &mut ThreadState) {
        let is_wanted = || self.is_wanted();
        match ConnThread::new(&self.cx, &*self.handler, state, &is_wanted).serve(&mut conn) {
            Outcome::Closed => conn.reclaim(&mut state.pool),
            Outcome::Upgraded => {
                conn.run_upgraded(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), is_wanted)
            }
        }
    }

    /// A connection waits for a thread or a place. At a listener, only the first thread that asks is to make room.
    fn is_wanted(&self) -> bool {
        self.pool.has_queue() || self.close_idle_wanted.swap(false, Ordering::Relaxed)
    }

    /// A connection that waits at the listeners, unless others wait for a thread already.
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

    fn wake(&self) {
        // A thread that waits does so for the next stage, too. What is left is to close the listeners and the pool.
        self.listeners.iter().for_each(Listeners::shut);
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

#[cfg(test)]
mod tests;
