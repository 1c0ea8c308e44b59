//! Threads that wait together, for new connections and for the next request of kept ones.
//!
//! ```text
//!   listeners === threads at the door --accept--> serve --+--> at the door again, or on the bench while enough others
//!                  ^   ^     ^    ^                       |    are there; end, if nobody has needed it for long
//!   thread-maker --+   |     |    +---- members <---------+ idle connections
//!   (nobody is left at |     |             |              |
//!    the door and on   |     |             v quiet        v
//!    the bench: one    |     +---------- porter <---------+ slow ones
//!    more)           bench   a parked request
//! ```
//!
//! The counters, and with them the decision when a thread is made and when one ends, are in [`roster`]; how
//! one thread is woken and not all of them, in [`bell`]; where a connection waits for its next request, in [`stay`].
//!
//! Where connections come faster than threads are made, the maker takes them in itself and makes one for each, and
//! hands its task on before it has used up its share of a busy core ([`SPAWNS_PER_TURN`]). There is still one maker,
//! and one thread at the door when it is done.
//!
//! A surplus thread ends after a second in which it was not needed, not at once: a pool under load has now
//! more and now fewer threads at the door, and to end and make threads for that costs more than to keep them.

mod bell;
mod door;
mod porter;
pub(in crate::engine) mod roster;
mod stay;

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Poll;

use self::bell::Bell;
use self::door::Look;
use self::roster::{Limits, Roster};
use super::acceptor::Listeners;
use super::conn_thread::Hand;
use super::event_loop::EventLoop;
use super::gate::Gate;
use super::loops::LoopGroup;
use super::thread_pool::REFUSED_FOR;
use super::threads::{SPAWNS_PER_TURN, Threads, log_spawn_error};
use super::{EngineHandle, log_caught_panic};
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::budget::contain_log;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;

/// So many threads wait at the door, at the most, unless more are to stand by.
const AT_DOOR_MAX: usize = 16;

/// What all threads of the engine share.
struct Shared {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    roster: Roster,
    bell: Bell,
    doors: Listeners,
    /// When the doors may be tried again: descriptors are used up, or there are too many connections.
    shut_until: AtomicU64,
    /// Parked connections that have a request.
    queue: Mutex<VecDeque<Box<Conn>>>,
    loops: LoopGroup,
    threads: Threads,
    gate: Gate,
}

pub(super) fn start(
    standby: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    let (shared, porter) = Shared::new(standby, cx, handler, listeners)?;
    if let Err(error) = shared.open(porter) {
        shared.cx.enter(Stage::Closing);
        shared.wake();
        return Err(error);
    }
    Ok(shared)
}

impl Shared {
    /// The engine before anybody works there, and what the porter will need.
    fn new(
        standby: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: Vec<Listener>,
    ) -> io::Result<(Arc<Shared>, EventLoop)> {
        let polls = [Poll::new()?];
        let loops = LoopGroup::new(&polls)?;
        let bell = Bell::new(cx.cut())?;
        for (door, listener) in listeners.iter().enumerate() {
            bell.hang_at(door, listener)?;
        }
        let shared = Arc::new(Shared {
            roster: Roster::new(Limits {
                standby,
                at_door_max: standby.max(AT_DOOR_MAX),
                threads_max: cx.settings.threads_max,
            }),
            bell,
            doors: Listeners::new(&Arc::new(listeners)),
            shut_until: AtomicU64::new(0),
            queue: Mutex::default(),
            loops,
            threads: Threads::default(),
            gate: Gate::new(),
            handler,
            cx,
        });
        let [poll] = polls;
        let porter = EventLoop::new(0, poll, &shared.loops, Arc::default(), shared.cx.clock.now())?;
        Ok((shared, porter))
    }

    fn open(self: &Arc<Shared>, porter: EventLoop) -> io::Result<()> {
        self.start_staff("weft-porter", move |shared| shared.keep_parked(porter))?;
        self.start_maker(false)?;
        (0..self.roster.open()).map(|_| self.start_thread()).try_for_each(|started| started)
    }

    fn start_maker(self: &Arc<Shared>, owes: bool) -> io::Result<()> {
        self.start_staff("weft", move |shared| shared.make_threads(owes))
    }

    fn start_staff(
        self: &Arc<Shared>,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.clone();
        self.threads.spawn(name, || self.roster.count().threads, move || work(&shared))
    }

    /// The life of the thread-maker: one thread at a time, so that they do not pile up on the system's locks.
    /// `owes`: one is counted already, and not made.
    fn make_threads(self: &Arc<Shared>, owes: bool) {
        let mut made = 0;
        let mut line = owes || self.roster.wait_until_asked();
        while line {
            match catch_unwind(AssertUnwindSafe(|| self.make_enough(&mut made))) {
                Ok(Maker::HasHandedOn) => return self.work(),
                Ok(Maker::Stays) => {}
                // A log that panics: whoever is missing is asked for again.
                Err(_) => log_caught_panic(),
            }
            line = self.roster.wait_until_asked();
        }
    }

    /// Makes the thread that was asked for, which is counted already, and others while there are connections that
    /// find none at the door.
    fn make_enough(self: &Arc<Shared>, made: &mut usize) -> Maker {
        loop {
            self.take_one_in();
            let mut owes = {
                let queue = self.lock_queue();
                self.roster.one_more(queue.len())
            };
            if *made >= SPAWNS_PER_TURN && self.start_maker(owes).is_ok() {
                if !owes {
                    self.gate.open();
                }
                return Maker::HasHandedOn;
            }
            *made += 1;
            self.gate.shut();
            if let Err(error) = self.start_thread() {
                self.gate.open();
                if std::mem::take(&mut owes) {
                    self.roster.lose(true);
                }
                if let Some(threads) = self.roster.note_refusal() {
                    // A log that panics makes it try no sooner.
                    contain_log(|| log_spawn_error(&error, threads));
                }
                self.roster.pause(REFUSED_FOR);
            }
            if !owes {
                self.gate.open();
                return Maker::Stays;
            }
        }
    }

    /// Whoever waits outside may have the thread that is about to be made.
    fn take_one_in(&self) {
        // Nobody may come for whoever is taken in now, and the kernel's queue has a bound.
        if self.roster.was_refused() {
            return;
        }
        // A panic is a bug of ours. It costs the connection that it came upon.
        let taken = catch_unwind(AssertUnwindSafe(|| match self.look_at_doors(self.cx.clock.now()) {
            Look::Conn(conn) => self.enqueue(conn),
            Look::Nobody | Look::Shut(_) => {}
        }));
        if taken.is_err() {
            log_caught_panic();
        }
    }

    /// Starts a thread that is counted already, as one at the door.
    fn start_thread(self: &Arc<Shared>) -> io::Result<()> {
        let shared = self.clone();
        let started = self.threads.spawn("weft", || self.roster.count().threads, move || shared.work());
        match &started {
            Ok(()) => self.roster.note_start(),
            Err(_) => self.roster.lose(true),
        }
        started
    }

    /// The life of a thread: one connection after the other.
    fn work(&self) {
        let mut place = Place::new(self);
        let mut hand = Hand::new(&self.cx);
        while let Some(conn) = self.next_at_door(&mut place) {
            let is_over = self.serve(conn, &mut hand);
            place.come_to_door(is_over);
            if place.is_surplus {
                hand.pool.rest();
            }
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<Box<Conn>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who makes the next thread.
#[derive(Debug, PartialEq, Eq)]
enum Maker {
    Stays,
    /// Another thread; the one that was the maker is at the door in its place.
    HasHandedOn,
}

/// Where a thread is, for the others: however it ends, they are told of what it was told of, and it is counted out
/// and replaced where it is missed.
struct Place<'a> {
    shared: &'a Shared,
    at: At,
    /// Listeners that this thread was told of. The others hear nothing of them before it is done there.
    told_of: Vec<usize>,
    /// It has taken one from the queue: the next is a member that asks or one from outside, if there is any.
    owes_door: bool,
    /// The next connection may wait outside: it looks there before it waits to be told.
    looks_first: bool,
    /// So it has had the one that it has.
    has_looked: bool,
    /// There are more than enough at the door.
    is_surplus: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Door,
    Connection,
    /// Counted out already.
    Out,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.hand_on();
        self.shared.threads.sweep();
        if self.at != At::Out {
            self.shared.roster.lose(self.at == At::Door);
        }
    }
}

impl EngineHandle for Shared {
    fn has_pending(&self) -> bool {
        self.doors.have_pending()
    }

    fn wake(&self) {
        self.doors.shut();
        self.bell.take_down();
        self.loops.wake_all();
        if self.cx.stage() == Stage::Closing {
            self.roster.close();
            self.lock_queue().clear();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        self.threads.join(patience)
    }

    fn threads(&self) -> usize {
        self.roster.count().threads
    }

    fn leaks(&self) -> Vec<(&'static str, usize)> {
        let count = self.roster.count();
        vec![
            ("threads at the door", count.at_door),
            ("threads asked for and not made", usize::from(count.line)),
            ("requests that wait for a thread", self.lock_queue().len()),
        ]
    }
}

#[cfg(test)]
mod tests;
