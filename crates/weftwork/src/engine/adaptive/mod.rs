//! The default engine: an event loop while handlers are quick, a thread for each where they block.
//!
//! ```text
//!            events        +-- quick: take the loop back, go on
//!   leader ---------> call +-- stuck: the watcher gives the loop to a standby thread
//!     ^                    +-- known to block: the leader gives the loop away before the call
//!     |                    |         |
//!     +--- standby <--- away: answer alone, then whoever asks next in the set, where connections
//!                       whose calls block wait together, or comes in at the door
//! ```

mod accept_mode;
mod blocking_set;
mod detached;
mod leader;
mod sysmon;
#[cfg(test)]
mod tests;

#[cfg(all(test, loom))]
pub(super) use sysmon::is_stuck;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use mio::Poll;

use self::blocking_set::BlockingSet;
use self::leader::Held;
use super::acceptor::Listeners;
use super::blocking;
use super::event_loop::EventLoop;
use super::handoff::HandoffCell;
use super::loops::LoopGroup;
use super::parker::Parker;
use super::predictor::BlockingPredictor;
use super::thread_pool::{Limits, Submitted, ThreadPool};
use super::threads::Threads;
use super::{EngineHandle, log_caught_panic};
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::budget::{LineBudget, contain_log};
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;
use crate::transport::{DateCache, Pool, Post, Tick};

/// A parked thread that was not needed for this long ends, if others are parked.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a thread is given to do.
enum Job {
    /// Lead a loop.
    Lead(Box<EventLoop>),
    /// Answer a request that waited until a thread was free.
    Serve(Box<Conn>),
    /// Answer whoever asks next in the set.
    Attend,
}

/// What all threads of the engine share.
struct Shared {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    loops: LoopGroup,
    listeners: Listeners,
    /// Each on a cache line of its own: its leader writes there twice a request.
    cells: Vec<CachePadded<HandoffCell<Box<EventLoop>>>>,
    standby: ThreadPool<Job>,
    predictor: BlockingPredictor,
    threads: Threads,
    set: BlockingSet,
    /// Looks at the doors, ever, of threads that came back from calls.
    looks: AtomicU32,
    /// Lines about work that waits since every thread is taken.
    starved: LineBudget,
}

/// What a thread has of its own.
struct Hand {
    dates: DateCache,
    pool: Pool,
    held: Rc<Held>,
    post: Arc<Post>,
}

/// The engine's end of the server.
struct Adaptive(Arc<Shared>);

pub(super) fn start(
    loops: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let (shared, loops) = Shared::new(loops, cx, handler, listeners)?;
    let room = Arc::new(Adaptive(shared.clone()));
    if let Err(error) = shared.open(loops) {
        shared.cx.enter(Stage::Closing);
        room.wake();
        return Err(error);
    }
    Ok(room)
}

impl Shared {
    /// The engine before anybody works there, and its loops.
    fn new(
        loops: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Arc<Vec<Listener>>,
    ) -> io::Result<(Arc<Shared>, Vec<EventLoop>)> {
        let polls = (0..loops).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let settings = &cx.settings;
        let limits = Limits {
            kept: settings.standby_kept,
            // Every loop needs a leader, whatever the limit says.
            threads_max: settings.threads_max.max(loops + 1),
            queue_max: settings.queue_max,
        };
        let shared = Arc::new(Shared {
            loops: LoopGroup::new(&polls)?,
            listeners: Listeners::new(&listeners),
            cells: (0..loops).map(|_| CachePadded::new(HandoffCell::new())).collect(),
            standby: ThreadPool::new(limits),
            predictor: BlockingPredictor::new(),
            threads: Threads::default(),
            set: BlockingSet::open()?,
            looks: AtomicU32::new(0),
            starved: LineBudget::new(1),
            handler,
            cx,
        });
        let now = shared.cx.clock.now();
        let loops = polls
            .into_iter()
            .enumerate()
            .map(|(index, poll)| EventLoop::new(index, poll, &shared.loops, listeners.clone(), now));
        let loops = loops.collect::<io::Result<_>>()?;
        Ok((shared, loops))
    }

    fn open(self: &Arc<Shared>, loops: Vec<EventLoop>) -> io::Result<()> {
        self.start_watcher()?;
        loops.into_iter().try_for_each(|lp| match self.give(Job::Lead(Box::new(lp))) {
            Ok(()) => Ok(()),
            Err(_) => Err(io::Error::other("the machine gives no more threads")),
        })
    }

    /// Gives a job to a parked thread, or to a new one. Gives it back when there may be no more threads.
    fn give(self: &Arc<Shared>, job: Job) -> Result<(), Job> {
        self.standby.give(job).or_start(|job| self.spawn(job))
    }

    /// Something that wants a thread got none: once a second the log says so, if it is for want of `threads_max`. From outside
    /// it looks like a server that hangs, and what holds the threads may be upgraded connections, which are no requests in
    /// progress.
    #[cold]
    fn note_starved(&self, now: Tick) {
        if !self.standby.is_at_limit() || self.starved.take(now).is_none() {
            return;
        }
        let upgrades = self.cx.counters.upgraded.load(Ordering::Relaxed);
        let knobs = self.cx.settings.show(&["threads_max"]);
        // The thread may be unwinding, from a log that has panicked.
        contain_log(|| {
            log::warn!(
                "all threads are busy ({knobs}, {upgrades} hold upgraded connections): requests wait or get 503"
            );
        });
    }

    /// Gives a loop to the next thread there is. Used where the one that leads can do so no longer.
    fn give_on(self: &Arc<Shared>, lp: Box<EventLoop>) {
        if let Err(lp) = self.offer(lp) {
            let now = lp.now();
            // Its connections wait until somebody leads it: no other loop has it take in more.
            self.loops.note_load(lp.index, usize::MAX / 2);
            self.standby.queue_first(Job::Lead(lp));
            self.set.call_one();
            self.note_starved(now);
        }
    }

    /// Gives a loop to the next thread there is, or back where there is none.
    fn offer(self: &Arc<Shared>, mut lp: Box<EventLoop>) -> Result<(), Box<EventLoop>> {
        let at_risk = std::mem::take(&mut lp.at_risk);
        let given = self.standby.give_at_any_rate(Job::Lead(lp), at_risk);
        given.or_start(|job| self.spawn(job)).map_err(|job| match job {
            Job::Lead(lp) => lp,
            _ => unreachable!("a loop was offered"),
        })
    }

    /// No thread waits for a client while a loop waits for a thread.
    fn may_wait(&self) -> io::Result<()> {
        match self.standby.is_queued(|job| matches!(job, Job::Lead(_))) {
            true => Err(io::ErrorKind::ResourceBusy.into()),
            false => Ok(()),
        }
    }

    fn end_risk(&self, lp: &mut EventLoop) {
        if std::mem::take(&mut lp.at_risk) {
            self.standby.risk_is_over();
        }
    }

    /// As [`give`](Shared::give), but the job may wait for a thread, as far as the queue has room. Who asks in the set has
    /// taken some of it.
    fn give_or_queue(self: &Arc<Shared>, job: Job) -> Result<(), Job> {
        let asking = self.set.asking();
        if asking > 0 && asking + self.standby.stats().queued >= self.cx.settings.queue_max {
            return Err(job);
        }
        let given = self.standby.give_or_queue(job);
        let given = given.or_start(|job| self.spawn(job).or_else(|job| self.standby.queue(job)));
        if self.standby.has_queue() {
            self.set.call_one();
        }
        given
    }

    /// One more thread takes from the queue.
    fn call_for_queue(self: &Arc<Shared>) {
        if let Some(Submitted::Spawn(job)) = self.standby.call_for_queue()
            && let Err(job) = self.spawn(job)
        {
            self.standby.queue_first(job);
        }
    }

    fn spawn(self: &Arc<Shared>, job: Job) -> Result<(), Job> {
        let shared = self.clone();
        self.threads.start(&self.standby, job, move |parker| shared.work(parker))
    }

    fn hand(self: &Arc<Shared>) -> Hand {
        Hand {
            dates: DateCache::new(self.cx.clock.now()),
            pool: Pool::of_thread(&self.cx.surplus),
            held: Rc::new(Held::new(self.clone())),
            post: self.cx.watchdog.post(),
        }
    }

    /// The life of a thread: lead, serve, stand by, in whatever order it is needed.
    fn work(self: &Arc<Shared>, parker: &Arc<Parker<Job>>) {
        // Counted out however the thread ends: a panic here is a bug, and must not hang the shutdown.
        let _leave = Leave(self);
        let mut hand = self.hand();
        let _entered = blocking::enter(hand.held.clone());
        let mut job = parker.first();
        while let Some(given) = job {
            // A panic outside of handlers is a bug of ours. It costs the connection that it came upon.
            if catch_unwind(AssertUnwindSafe(|| self.perform(given, &mut hand))).is_err() {
                log_caught_panic();
                hand.held.give_away();
            }
            hand.pool.rest();
            job = self.standby.wait(parker, PATIENCE);
        }
    }

    fn perform(self: &Arc<Shared>, job: Job, hand: &mut Hand) {
        let conn = match job {
            Job::Lead(lp) => self.lead(lp, hand),
            Job::Attend => return self.attend(hand),
            Job::Serve(mut conn) => {
                conn.forsake_if_vain(self.cx.clock.now(), &self.cx);
                Some(conn)
            }
        };
        if let Some(conn) = conn {
            self.serve_away(conn, hand);
        }
    }
}

struct Leave<'a>(&'a Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.threads.sweep();
        self.0.standby.leave();
    }
}

impl EngineHandle for Adaptive {
    fn has_pending(&self) -> bool {
        self.0.listeners.have_pending()
    }

    fn wake(&self) {
        self.0.listeners.shut();
        self.0.loops.wake_all();
        self.0.loops.watch.wake();
        if self.0.cx.stage() == Stage::Closing {
            self.0.standby.close();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        let left = self.0.standby.wait_until_empty(patience);
        // Those that are counted out have only to return, and the watcher may be stuck in a line of the log; the others
        // are in a handler, and are left to it.
        let threads = self.0.threads.take();
        if left == 0 {
            super::join_within(threads, patience);
        }
        left
    }

    fn threads(&self) -> usize {
        self.0.standby.count().0
    }
}
