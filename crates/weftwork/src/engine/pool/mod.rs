//! Threads that share the door: each accepts, serves its connection, and accepts again.
//!
//! ```text
//!   listeners === threads at the door --accept--> serve --+--> at the door again
//!                      ^    ^                             +--> end, if enough others have waited there long
//!        thread-maker -+    +--- a parked request ---+
//!        (when nobody is left at the door: one more) |
//!                                                  porter <--- idle or slow connections
//! ```
//!
//! The counters, and with them the decision when a thread is made and when one ends, are in [`roster`]; how
//! one thread is woken and not all of them, in [`bell`].
//!
//! A surplus thread ends after a second in which it was not needed, not at once: a pool under load has now
//! more and now fewer threads at the door, and to end and make threads for that costs more than to keep them.

mod bell;
mod door;
mod porter;
pub(in crate::engine) mod roster;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

use mio::Poll;

use self::bell::Bell;
use self::roster::{Limits, Roster};
use super::Room;
use super::patience::OnAnyThread;
use super::shared::Hub;
use super::solo::{Fate, Hand, Solo};
use super::threads::Threads;
use super::turn::Loop;
use crate::conn::Conn;
use crate::message::Handler;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;

/// How long an idle connection keeps its thread when others wait at the door. An idle one among many
/// costs them at most this; a client that asks again within it costs no detour over the porter.
const IDLE_KEPT: Duration = Duration::from_millis(100);
/// When the system refuses a thread, the next try comes after this.
const MAKER_PAUSE: Duration = Duration::from_millis(100);

/// What all threads of the engine share.
struct Shared {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    roster: Roster,
    bell: Bell,
    /// None once the server drains.
    doors: RwLock<Vec<Listener>>,
    /// When the doors may be tried again: descriptors are used up, or there are too many connections.
    shut_until: AtomicU64,
    /// Parked connections that have a request.
    queue: Mutex<VecDeque<Box<Conn>>>,
    hub: Hub,
    threads: Threads,
}

/// The engine's end of the server.
struct Recycling(Arc<Shared>);

pub(super) fn start(
    standby: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn Room>> {
    let polls = [Poll::new()?];
    let hub = Hub::new(&polls)?;
    let bell = Bell::new(cx.cut())?;
    for (door, listener) in listeners.iter().enumerate() {
        bell.hang_at(door, listener)?;
    }
    let shared = Arc::new(Shared {
        roster: Roster::new(Limits { standby, threads_max: cx.settings.threads_max }),
        bell,
        doors: RwLock::new(listeners),
        shut_until: AtomicU64::new(0),
        queue: Mutex::default(),
        hub,
        threads: Threads::default(),
        handler,
        cx,
    });
    let room = Arc::new(Recycling(shared.clone()));
    let [poll] = polls;
    let porter = Loop::new(0, poll, &shared.hub, Arc::default(), shared.cx.clock.now())?;
    if let Err(error) = shared.open(porter) {
        shared.cx.enter(Stage::Closing);
        room.wake();
        return Err(error);
    }
    Ok(room)
}

impl Shared {
    fn open(self: &Arc<Shared>, porter: Loop) -> io::Result<()> {
        self.start_staff("weft-porter", move |shared| shared.keep_parked(porter))?;
        self.start_staff("weft-maker", |shared| shared.make_threads())?;
        (0..self.roster.open()).map(|_| self.start_thread()).try_for_each(|started| started)
    }

    fn start_staff(
        self: &Arc<Shared>,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.clone();
        let thread = Builder::new().name(name.into()).spawn(move || work(&shared))?;
        self.threads.keep(thread);
        Ok(())
    }

    /// The life of the thread-maker: one thread at a time, so that they do not pile up on the system's locks.
    fn make_threads(self: &Arc<Shared>) {
        while self.roster.wait_until_asked() {
            if let Err(error) = self.start_thread() {
                log::error!("the system refuses another thread: {error}");
                self.roster.pause(MAKER_PAUSE);
            }
        }
    }

    /// Starts a thread that is counted already, as one at the door.
    fn start_thread(self: &Arc<Shared>) -> io::Result<()> {
        let shared = self.clone();
        match Builder::new().name("weft".into()).spawn(move || shared.work()) {
            Ok(thread) => {
                self.threads.keep(thread);
                Ok(())
            }
            Err(error) => {
                self.roster.lose(true);
                Err(error)
            }
        }
    }

    /// The life of a thread: one connection after the other.
    fn work(&self) {
        let mut place = Place { roster: &self.roster, at: At::Door };
        let mut hand = Hand::new(&self.cx);
        while let Some(conn) = self.next_at_door(&mut place) {
            self.serve(conn, &mut hand);
            place.come_to_door();
        }
    }

    fn serve(&self, mut conn: Box<Conn>, hand: &mut Hand) {
        // A thread that nobody waits for may wait for its client, for a while.
        let patience = || Some(if self.roster.is_pressed() { Duration::ZERO } else { IDLE_KEPT });
        match Solo::new(&self.cx, &*self.handler, hand, &patience).serve(&mut conn) {
            Fate::Park => self.park(conn),
            Fate::Over => conn.reclaim(&mut hand.pool),
            Fate::TakeOver => conn.take_over(&self.cx, Arc::new(OnAnyThread(self.cx.clone()))),
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<Box<Conn>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a thread is, for the roster: it is counted out however it ends, and replaced where it is missed.
struct Place<'a> {
    roster: &'a Roster,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Door,
    Connection,
    /// Counted out already.
    Out,
}

impl Place<'_> {
    fn leave_door(&mut self) {
        self.roster.leave_door();
        self.at = At::Connection;
    }

    fn come_to_door(&mut self) {
        self.roster.come_to_door();
        self.at = At::Door;
    }

    /// True: the thread is not needed, and counted out.
    fn retire(&mut self) -> bool {
        let retired = self.roster.retire();
        if retired {
            self.at = At::Out;
        }
        retired
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.at != At::Out {
            self.roster.lose(self.at == At::Door);
        }
    }
}

impl Room for Recycling {
    fn wake(&self) {
        let shared = &self.0;
        shared.doors.write().unwrap_or_else(PoisonError::into_inner).clear();
        shared.bell.take_down();
        shared.hub.wake_all();
        if shared.cx.stage() == Stage::Closing {
            shared.roster.close();
            shared.lock_queue().clear();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let mut left = 0;
        loop {
            // The maker is among the first: what it made while they were taken comes with the next.
            let threads = self.0.threads.take();
            if threads.is_empty() {
                return left;
            }
            left += super::join_within(threads, until.saturating_duration_since(Instant::now()));
        }
    }

    fn threads(&self) -> usize {
        self.0.roster.count().threads
    }

    fn wrong(&self) -> Vec<(&'static str, usize)> {
        let count = self.0.roster.count();
        vec![
            ("threads at the door", count.at_door),
            ("threads asked for and not made", usize::from(count.asked)),
            ("requests that wait for a thread", self.0.lock_queue().len()),
        ]
    }
}
