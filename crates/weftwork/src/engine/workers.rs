//! Workers that accept, and a thread for each connection, which serves it by blocking until it ends.
//!
//! ```text
//!   listener 1 --- worker 1 --+                        +--> thread --- connection
//!   listener 2 --- worker 2 --+--> store of threads ---+--> thread --- connection
//!   listener n --- worker n --+    (last in, first out)+--> thread --- connection
//! ```
//!
//! Each worker has listeners of its own: TCP listeners are bound once more with `SO_REUSEPORT`, so that the
//! kernel spreads the connections (see [`Listener::sibling`] for why an address in use stays an error). Unix sockets,
//! and all of them where the system is not Linux, have one queue, which all workers take from. A thread that has
//! finished its connection looks at its worker's door before it parks: where many connections are short, that spares
//! the hand-over.
//!
//! Where others wait for a thread or a place, a connection that has asked for nothing for a second ends: its thread looks once a
//! second.
//!
//! A worker is a task and not a thread of its own: who has accepted a few connections gives the door to the next
//! thread and serves the last of them itself ([`SPAWNS_PER_TURN`] says why). Where the system gives no other thread, whoever is at a
//! door serves one who waits, for a second if that is a client who goes on asking ([`ALONE`]); the first thread that is free then
//! comes to that door.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::acceptor::{Acceptor, Listeners, is_pending};
use super::conn_thread::{ConnThread, Fate, Hand};
use super::crowd::Crowd;
use super::event_loop::IDLE_KEPT;
use super::gate::Gate;
use super::lookout::Lookout;
use super::parker::Parker;
use super::thread_pool::{Limits, REFUSED_FOR, ThreadPool};
use super::thread_wait::OwnedThreadWait;
use super::threads::{SPAWNS_PER_TURN, Threads, shed_upgrade};
use super::{EngineHandle, log_caught_panic};
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

/// How often the thread of a connection that is over, but for what its client still sends, looks whether others wait.
const LINGER_LOOK: Duration = Duration::from_millis(50);

/// Who is served by the thread of a door is for so long, when nobody else would come to that.
const ALONE: Duration = Duration::from_secs(1);

/// What a thread is given to do.
enum Job {
    /// A connection, and the worker that took it in. `is_alone`: nobody is at its door meanwhile, for want of threads.
    Serve { conn: Box<Conn>, worker: usize, is_alone: bool },
    /// The door of this worker, in exchange for a place among those that are counted.
    Accept { worker: usize },
    /// The same, for a thread that gives its place up: nobody is there, for want of threads.
    Return { worker: usize },
}

struct Workers {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    /// The listeners of each worker.
    doors: Vec<Listeners>,
    standby: ThreadPool<Job>,
    threads: Threads,
    gate: Gate,
    crowd: Crowd,
    /// Somebody waits at a door, where no more connections or threads may be. Said anew at each look.
    close_idle_wanted: AtomicBool,
}

pub(super) fn start(
    workers: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let room = Workers::new(workers, cx, handler, listeners)?;
    for worker in 0..workers {
        if let Err(error) = room.start_worker(worker) {
            room.cx.enter(Stage::Closing);
            room.wake();
            return Err(error);
        }
    }
    Ok(room)
}

impl Workers {
    /// The engine before anybody works there.
    fn new(
        workers: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Vec<Listener>,
    ) -> io::Result<Arc<Workers>> {
        let settings = &cx.settings;
        let limits = Limits {
            kept: settings.standby_kept,
            threads_max: settings.threads_max,
            queue_max: settings.queue_max,
        };
        let mut doors = Vec::new();
        for _ in 1..workers {
            let siblings = listeners.iter().map(|listener| listener.sibling(settings.backlog));
            let siblings = siblings.collect::<io::Result<Vec<_>>>()?;
            siblings.iter().for_each(|listener| listener.limit_unread(settings.write_timeout));
            doors.push(siblings);
        }
        doors.push(listeners);
        Ok(Arc::new(Workers {
            doors: doors.into_iter().map(|listeners| Listeners::new(&Arc::new(listeners))).collect(),
            standby: ThreadPool::new(limits),
            threads: Threads::default(),
            gate: Gate::new(),
            crowd: Crowd::new(),
            close_idle_wanted: AtomicBool::new(false),
            handler,
            cx,
        }))
    }

    fn start_worker(self: &Arc<Workers>, worker: usize) -> io::Result<()> {
        let shared = self.clone();
        let work = move || shared.work(&Parker::new(), Job::Accept { worker });
        self.threads.keep(std::thread::Builder::new().name("weft".into()).spawn(work)?);
        Ok(())
    }

    /// At a worker's door until the server stops taking connections, or another thread is there: then this
    /// one has a connection to serve.
    fn keep_door(self: &Arc<Workers>, worker: usize) -> Option<Job> {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.accept_all(worker))) {
                Ok(job) => return job,
                Err(_) => log_caught_panic(),
            }
        }
    }

    fn accept_all(self: &Arc<Workers>, worker: usize) -> Option<Job> {
        let listeners = self.doors[worker].get();
        let mut doors = self.doors[worker].doors();
        // Whoever was here before may have left in the middle of a burst.
        doors.note_all_ready();
        let mut accepted = 0;
        while self.cx.stage() == Stage::Running {
            let now = self.cx.clock.now();
            doors.next_turn(now);
            // Whoever has waited longest tries first whether there is a thread to be had.
            while self.standby.has_queue() && self.call_for_queue() {}
            while self.standby.has_room() {
                let Some(conn) = doors.accept(now, &self.cx) else { break };
                if conn.is_refused() && !self.standby.has_thread() {
                    conn.send_off(now);
                    continue;
                }
                accepted += 1;
                let job = Job::Serve { conn, worker, is_alone: false };
                if accepted > SPAWNS_PER_TURN && self.hand_on_door(worker) {
                    return Some(job);
                }
                self.give(job);
            }
            self.gate.open();
            let is_kept_out = !self.standby.has_room() && listeners.iter().any(is_pending);
            self.close_idle_wanted.store(doors.close_idle_wanted() || is_kept_out, Ordering::Relaxed);
            if let Some(job) = self.take_alone(worker, now) {
                return Some(job);
            }
            self.wait_at(&listeners, &mut doors, now);
        }
        self.gate.open();
        let is_left = || self.standby.has_queue() && self.standby.count().0 == 0;
        // The second time the system may be asked again.
        let mut tries = (0..2).filter(|_| is_left());
        tries.find_map(|_| self.take_alone(worker, self.cx.clock.now()))
    }

    /// One who waits for a thread, where the system gives none: this one will serve them, and nobody is at its door meanwhile.
    fn take_alone(self: &Arc<Workers>, worker: usize, now: Tick) -> Option<Job> {
        if !self.standby.has_queue() {
            return None;
        }
        self.call_for_queue();
        let is_return = |job: &Job| matches!(job, Job::Return { .. });
        let mut job = self.standby.take_alone(Job::Return { worker }, is_return)?;
        if let Job::Serve { conn, is_alone, .. } = &mut job {
            conn.end_when_idle(now.after(ALONE));
            *is_alone = true;
        }
        Some(job)
    }

    /// True: another thread is at the door now, and counted; this one takes its place.
    fn hand_on_door(self: &Arc<Workers>, worker: usize) -> bool {
        self.standby.give(Job::Accept { worker }).or_start(|job| self.spawn_of_burst(job)).is_ok()
    }

    fn wait_at(&self, listeners: &[Listener], doors: &mut Acceptor, now: Tick) {
        let stop = self.cx.moved_on_from(Stage::Running);
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let patience = match doors.retry(now) {
            Some(_) if !self.standby.has_room() => FULL_PAUSE,
            Some(until) => now.until(until),
            None => {
                fds.extend(listeners.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
                if self.standby.has_queue() { REFUSED_FOR } else { WORKER_PATIENCE }
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

    /// Gives the connection to a thread, a new one if need be; if there may be no more, it waits for one.
    fn give(self: &Arc<Workers>, job: Job) {
        let given = self.standby.give(job).or_start(|job| self.spawn_of_burst(job));
        let Err(mut refused) = given else { return };
        Counters::count(&self.cx.counters.queued);
        if let Job::Serve { conn, .. } = &mut refused {
            conn.queued_since = Some(self.cx.clock.now());
        }
        if let Err(job) = self.standby.queue(refused) {
            // Several workers record the last place in the queue: one too many is none too many.
            self.standby.queue_first(job);
        }
    }

    /// One more thread takes from the queue, where there may be one: the system may have refused it before, or a thread
    /// has died. False: none does.
    fn call_for_queue(self: &Arc<Workers>) -> bool {
        let Some(given) = self.standby.call_for_queue() else { return false };
        let taken = given.or_start(|job| self.spawn(job));
        taken.map_err(|job| self.standby.queue_first(job)).is_ok()
    }

    fn spawn_of_burst(self: &Arc<Workers>, job: Job) -> Result<(), Job> {
        self.gate.shut();
        self.spawn(job)
    }

    fn spawn(self: &Arc<Workers>, job: Job) -> Result<(), Job> {
        let shared = self.clone();
        self.threads.start(&self.standby, job, move |parker| {
            if let Some(job) = parker.first() {
                shared.work(parker, job);
            }
        })
    }

    /// The life of a thread: one connection after the other, and in between a worker's door.
    fn work(self: &Arc<Workers>, parker: &Arc<Parker<Job>>, first: Job) {
        // Counted out however the thread ends. The next connection gets another.
        let mut leave = Leave { workers: self, counted: true };
        let mut hand = Hand::new(&self.cx);
        let mut job = Some(first);
        while let Some(given) = job {
            job = match given {
                // Nobody is taken in any more, and others may wait in the queue behind it.
                Job::Return { .. } if self.cx.stage() != Stage::Running => {
                    self.standby.wait(parker, PATIENCE)
                }
                Job::Accept { worker } | Job::Return { worker } => {
                    if matches!(given, Job::Return { .. }) {
                        self.standby.leave();
                    }
                    // Those at the doors are not counted.
                    leave.counted = false;
                    let job = self.keep_door(worker);
                    leave.counted = job.is_some();
                    job
                }
                Job::Serve { conn, worker, is_alone } => {
                    // It may be the only thread, and have a door to come back to.
                    if catch_unwind(AssertUnwindSafe(|| {
                        self.serve(conn, is_alone.then_some(worker), &mut hand)
                    }))
                    .is_err()
                    {
                        log_caught_panic();
                    }
                    self.next_at_door(worker).or_else(|| {
                        hand.pool.rest();
                        self.standby.wait(parker, PATIENCE)
                    })
                }
            };
        }
    }

    /// `left`: the worker at whose door nobody is meanwhile.
    fn serve(self: &Arc<Workers>, mut conn: Box<Conn>, left: Option<usize>, hand: &mut Hand) {
        let patience = |conn: &Conn, _| match conn.is_lingering() {
            true => Some(LINGER_LOOK),
            false => conn.is_idle().then_some(IDLE_KEPT),
        };
        let mut solo = ConnThread::new(&self.cx, &*self.handler, hand, &patience, &self.gate);
        solo.crowd = Some(&self.crowd);
        let look = || {
            self.call_for_queue();
        };
        let lookout = Lookout::new(solo.now(), &look);
        solo.lookout = left.map(|_| &lookout);
        let fate = loop {
            match solo.serve(&mut conn) {
                Fate::Park if conn.is_lingering() && self.is_wanted() => break Fate::Over,
                Fate::Park => self.end_if_idle(&mut conn, solo.now()),
                fate => break fate,
            }
        };
        match fate {
            // Nobody would be there for as long as its client likes.
            Fate::TakeOver if left.is_some_and(|left| self.is_deserted(left)) => shed_upgrade(&self.cx),
            Fate::TakeOver => {
                conn.take_over(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), || self.is_wanted())
            }
            Fate::Over | Fate::Park | Fate::Rest => conn.reclaim(&mut hand.pool),
        }
    }

    /// Who has asked for nothing for long gives thread and place to somebody who waits for them.
    fn end_if_idle(&self, conn: &mut Conn, now: Tick) {
        if conn.is_idle_for(IDLE_KEPT, now) && self.is_wanted() {
            conn.end_when_idle(now);
            // A request may have come since the last look: there is one more, and then the connection ends.
            conn.note_ready(false);
        }
    }

    /// Nobody has come to that door yet.
    fn is_deserted(&self, door: usize) -> bool {
        self.standby.is_queued(|job| matches!(job, Job::Return { worker } if *worker == door))
    }

    /// Somebody waits for a thread or a place. Where that is at a door, only the first who asks is to make room.
    fn is_wanted(&self) -> bool {
        self.standby.has_queue() || self.close_idle_wanted.swap(false, Ordering::Relaxed)
    }

    /// A connection that waits at the worker's door, unless others wait for a thread already.
    fn next_at_door(&self, worker: usize) -> Option<Job> {
        if self.standby.has_queue() || self.cx.stage() != Stage::Running {
            return None;
        }
        let conn = self.doors[worker].accept(self.cx.clock.now(), &self.cx)?;
        Some(Job::Serve { conn, worker, is_alone: false })
    }
}

struct Leave<'a> {
    workers: &'a Arc<Workers>,
    counted: bool,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.workers.threads.sweep();
        if self.counted {
            self.workers.standby.leave();
            // One that died has not looked whether somebody waits for it.
            self.workers.call_for_queue();
        }
    }
}

impl EngineHandle for Workers {
    fn has_pending(&self) -> bool {
        self.doors.iter().any(Listeners::have_pending)
    }

    fn wake(&self) {
        // Whoever waits does so for the next stage too; what is left is to close the doors and the store.
        self.doors.iter().for_each(Listeners::shut);
        if self.cx.stage() == Stage::Closing {
            self.standby.close();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        self.threads.join(patience)
    }

    fn threads(&self) -> usize {
        self.standby.count().0
    }
}

#[cfg(test)]
mod tests;
