//! Workers that accept, and a thread for each connection, which serves it by blocking until it ends.
//!
//! ```text
//!   listener 1 --- worker 1 --+                        +--> thread --- connection
//!   listener 2 --- worker 2 --+--> store of threads ---+--> thread --- connection
//!   listener n --- worker n --+    (last in, first out)+--> thread --- connection
//! ```
//!
//! Each worker has listeners of its own: TCP listeners are bound once more with `SO_REUSEPORT`, so that the
//! kernel spreads the connections (see [`Listener::sibling`] for why an address in use stays an error); Unix
//! sockets have one queue, which all workers take from. A thread that has finished its connection looks at
//! its worker's door before it parks: where many connections are short, that spares the hand-over.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Room;
use super::doors::{Accepted, Doors, accept};
use super::patience::OnAnyThread;
use super::solo::{Fate, Hand, Solo};
use super::standby::{Berth, Given, Limits, Standby};
use super::threads::Threads;
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::counters::Counters;
use crate::transport::listener::Listener;

/// A parked thread that was not needed for this long ends, if others are parked.
const PATIENCE: Duration = Duration::from_secs(10);
/// All threads are taken and the queue is full: connections wait in the kernel's backlog meanwhile.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// A worker looks up this often even if nothing happens: no wait is without an end.
const WORKER_PATIENCE: Duration = Duration::from_secs(60);

/// A connection, and the worker that took it in.
struct Job {
    conn: Box<Conn>,
    worker: usize,
}

struct Workers {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    /// The listeners of each worker; none once the server drains.
    doors: Vec<RwLock<Arc<Vec<Listener>>>>,
    standby: Standby<Job>,
    threads: Threads,
}

pub(super) fn start(
    workers: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn Room>> {
    let settings = &cx.settings;
    let limits = Limits {
        kept: settings.standby_kept,
        threads_max: settings.threads_max,
        queue_max: settings.queue_max,
    };
    let mut doors = Vec::with_capacity(workers);
    for _ in 1..workers {
        let siblings = listeners.iter().map(|listener| listener.sibling(settings.backlog));
        doors.push(siblings.collect::<io::Result<Vec<_>>>()?);
    }
    doors.push(listeners);
    let room = Arc::new(Workers {
        doors: doors.into_iter().map(|listeners| RwLock::new(Arc::new(listeners))).collect(),
        standby: Standby::new(limits),
        threads: Threads::default(),
        handler,
        cx,
    });
    for index in 0..workers {
        if let Err(error) = room.start_worker(index) {
            room.cx.enter(Stage::Closing);
            room.wake();
            return Err(error);
        }
    }
    Ok(room)
}

impl Workers {
    fn start_worker(self: &Arc<Workers>, index: usize) -> io::Result<()> {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(format!("weft-door-{index}")).spawn(move || {
            while catch_unwind(AssertUnwindSafe(|| shared.accept_all(index))).is_err() {
                log::error!("worker {index} panicked, and goes on; this is a bug of weftwork");
            }
        })?;
        self.threads.keep(thread);
        Ok(())
    }

    /// The life of a worker: until the server stops taking connections.
    fn accept_all(self: &Arc<Workers>, index: usize) {
        let listeners = self.listeners(index);
        let mut doors = Doors::new(listeners.clone());
        while self.cx.stage() == Stage::Running {
            let now = self.cx.clock.now();
            doors.next_turn(now);
            while self.standby.has_room() {
                let Some(conn) = doors.accept(now, &self.cx) else { break };
                if conn.is_refused() && !self.standby.has_thread() {
                    conn.send_off(now);
                } else {
                    self.give(Job { conn, worker: index });
                }
            }
            self.wait_at(&listeners, &mut doors, now);
        }
    }

    fn wait_at(&self, listeners: &[Listener], doors: &mut Doors, now: Tick) {
        let stop = self.cx.moved_on_from(Stage::Running);
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let patience = match doors.retry(now) {
            Some(_) if !self.standby.has_room() => FULL_PAUSE,
            Some(until) => now.until(until),
            None => {
                fds.extend(listeners.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
                WORKER_PATIENCE
            }
        };
        // An interrupted wait is as good as one that is over: the loop looks at everything again.
        let _ = poll(&mut fds, Timespec::try_from(patience).ok().as_ref());
        for (door, fd) in fds.iter().skip(1).enumerate() {
            if !fd.revents().is_empty() {
                doors.note_ready(door);
            }
        }
    }

    fn listeners(&self, worker: usize) -> Arc<Vec<Listener>> {
        self.doors[worker].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the connection to a thread, a new one if need be; if there may be no more, it waits for one.
    fn give(self: &Arc<Workers>, job: Job) {
        let mut refused = match self.standby.give(job) {
            Given::Taken => return,
            Given::Spawn(job) => match self.spawn(job) {
                Ok(()) => return,
                Err(job) => job,
            },
            Given::Refused(job) => job,
        };
        Counters::count(&self.cx.counters.queued);
        refused.conn.queued = true;
        match self.standby.give_or_queue(refused) {
            Given::Taken => {}
            Given::Spawn(job) => {
                self.standby.leave();
                self.standby.queue_first(job);
            }
            // Several workers saw the last place in the queue: one too many is none too many.
            Given::Refused(job) => self.standby.queue_first(job),
        }
    }

    fn spawn(self: &Arc<Workers>, job: Job) -> Result<(), Job> {
        let shared = self.clone();
        self.threads.start(&self.standby, job, move |berth| shared.work(berth))
    }

    /// The life of a thread: one connection after the other.
    fn work(&self, berth: &Arc<Berth<Job>>) {
        // Counted out however the thread ends. The next connection gets another.
        let _leave = Leave(self);
        let mut hand = Hand::new(&self.cx);
        let mut job = berth.first();
        while let Some(Job { mut conn, worker }) = job {
            let stays = || None;
            match Solo::new(&self.cx, &*self.handler, &mut hand, &stays).serve(&mut conn) {
                Fate::TakeOver => conn.take_over(&self.cx, Arc::new(OnAnyThread(self.cx.clone()))),
                Fate::Over | Fate::Park => {
                    conn.reclaim(&mut hand.pool);
                    drop(conn);
                }
            }
            job = self.next_at_door(worker).or_else(|| self.standby.wait(berth, PATIENCE));
        }
    }

    /// A connection that waits at the worker's door, unless others wait for a thread already.
    fn next_at_door(&self, worker: usize) -> Option<Job> {
        if self.standby.is_crowded() || self.cx.stage() != Stage::Running {
            return None;
        }
        let now = self.cx.clock.now();
        let listeners = self.doors[worker].read().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().find_map(|listener| match accept(listener, now, &self.cx) {
            Accepted::Conn(conn) | Accepted::Excess(conn) => Some(Job { conn, worker }),
            Accepted::Nobody | Accepted::Gone | Accepted::NotNow => None,
        })
    }
}

struct Leave<'a>(&'a Workers);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.standby.leave();
    }
}

impl Room for Workers {
    fn wake(&self) {
        // Whoever waits does so for the next stage too; what is left is to close the doors and the store.
        for door in &self.doors {
            *door.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        }
        if self.cx.stage() == Stage::Closing {
            self.standby.close();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        let threads = self.threads.take();
        super::join_within(threads, patience)
    }

    fn threads(&self) -> usize {
        self.standby.count().0
    }
}
