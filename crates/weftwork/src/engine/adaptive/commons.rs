//! Connections whose calls block, shared by the threads that answer them.
//!
//! A thread that waits for its own connection sleeps twice for each request: in the handler, and until the client asks
//! again. Here threads wait at one poller for any of them. Under load somebody has asked by then, so a thread goes on
//! without a wait, and sleeps once.
//!
//! The poller tells one thread of each event (epoll(7), edge-triggered), which takes the connection from its
//! [place](crate::engine::place). A member that asks for nothing goes home to its loop: it costs no thread here, but
//! its deadlines are kept there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::conn::{Conn, Registered};
use crate::engine::place::Place;
use crate::engine::sync::{Mutex, lock};
use crate::transport::Tick;

/// So many members there may be: twice as many as threads, by default.
const PLACES: usize = 1024;
/// How long a member stays that asks for nothing. Whoever asks again within this time has a thread without the loop's help.
const STAY: Duration = Duration::from_millis(500);
/// How long a thread waits here before it stands by for other work: an idle moment of many clients is shorter.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

const NEWS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

pub(super) struct Commons {
    poller: OwnedFd,
    places: Box<[MemberPlace]>,
    /// Places that nobody has; the lowest is taken first.
    free: Mutex<Vec<usize>>,
    members: AtomicUsize,
    /// Threads that sleep until an event comes.
    waiting: AtomicUsize,
    /// Calls made by threads without a loop, ever.
    pub(super) calls: AtomicU32,
    /// The watcher has found that another thread would be of no use: see [`Gauge`](super::gauge::Gauge).
    pub(super) is_served_soon: AtomicBool,
}

struct MemberPlace {
    place: Place<Box<Conn>>,
    /// When the member was put there last.
    since: AtomicU64,
}

/// What became of a connection that wants to join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Member,
    /// There is no place for it: its loop has it.
    Refused,
    /// This system has no commons: its thread waits for it.
    #[cfg_attr(target_os = "linux", allow(dead_code))]
    Nowhere,
}

/// A member that has something to say.
pub(super) struct News {
    pub(super) conn: Box<Conn>,
    /// The thread has slept until it came.
    pub(super) was_waited_for: bool,
}

/// The place of a member that is out: free when this is dropped.
pub(super) struct Absent<'a>(&'a Commons, usize);

impl Drop for Absent<'_> {
    fn drop(&mut self) {
        self.0.free(self.1);
    }
}

impl Commons {
    pub(super) fn open() -> io::Result<Commons> {
        let place = || MemberPlace { place: Place::new(), since: AtomicU64::new(0) };
        Ok(Commons {
            poller: epoll::create(CreateFlags::CLOEXEC)?,
            places: std::iter::repeat_with(place).take(PLACES).collect(),
            free: Mutex::new((0..PLACES).rev().collect()),
            members: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            is_served_soon: AtomicBool::new(false),
        })
    }

    /// Gives a connection its place, if it has none yet.
    pub(super) fn join(&self, conn: &mut Conn) -> Joined {
        if conn.registered == Registered::InCommons {
            return Joined::Member;
        }
        let Some(index) = lock(&self.free).pop() else { return Joined::Refused };
        self.members.fetch_add(1, Ordering::SeqCst);
        // What has come before is told of at once. By then the place is empty, and whoever puts the connection there hears of it.
        if epoll::add(&self.poller, conn.as_fd(), EventData::new_u64(index as u64), NEWS).is_err() {
            self.free(index);
            return Joined::Refused;
        }
        (conn.registered, conn.token) = (Registered::InCommons, index);
        Joined::Member
    }

    /// To be held while a member is out. If that is lost, or ends, its poller forgets it.
    pub(super) fn absent(&self, conn: &Conn) -> Option<Absent<'_>> {
        (conn.registered == Registered::InCommons).then(|| Absent(self, conn.token))
    }

    /// Puts a member in its place. It comes back if something has happened to it meanwhile.
    pub(super) fn put(&self, conn: Box<Conn>, now: Tick) -> Option<Box<Conn>> {
        let MemberPlace { place, since } = &self.places[conn.token];
        since.store(now.0, Ordering::Relaxed);
        let mut conn = place.put(conn)?;
        conn.note_ready(false);
        Some(conn)
    }

    /// The next member to which something happens. The last of those who wait does so for as long as it `may_wait`, so that
    /// there is somebody for whoever asks; others give up after a while.
    #[inline(always)]
    pub(super) fn next(&self, may_wait: impl Fn() -> bool) -> Option<News> {
        // Elsewhere it would be in vain: with 10 connections it is a system call more for each request.
        if self.is_served_soon.load(Ordering::Relaxed)
            && let Some(conn) = self.look(&Timespec::default())
        {
            return Some(News { conn, was_waited_for: false });
        }
        while self.has_members() && may_wait() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let found = self.look(&PATIENCE);
            let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            match found {
                Some(conn) => return Some(News { conn, was_waited_for: true }),
                None if others > 0 => break,
                None => {}
            }
        }
        None
    }

    #[inline(always)]
    fn look(&self, patience: &Timespec) -> Option<Box<Conn>> {
        let mut event = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
        // It fails when a signal comes, and then there is another look.
        let (events, _) = epoll::wait(&self.poller, &mut event, Some(patience)).ok()?;
        let &Event { flags, data } = events.first()?;
        // None: it is out, and whoever has it hears of this; or it has gone.
        let mut conn = self.places[data.u64() as usize].place.take()?;
        conn.note_ready(flags.intersects(ENDS));
        Some(conn)
    }

    /// A member goes elsewhere, if it is one.
    pub(super) fn leave(&self, conn: &mut Conn) {
        if conn.registered == Registered::InCommons {
            // Cannot fail for a socket that is registered and open.
            let _ = epoll::delete(&self.poller, conn.as_fd());
            conn.registered = Registered::Not;
            // What has come may have been told of here.
            conn.note_ready(false);
            self.free(conn.token);
        }
    }

    /// What is still told of the one who had it costs the next a look in vain.
    fn free(&self, index: usize) {
        lock(&self.free).push(index);
        self.members.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn has_members(&self) -> bool {
        self.members.load(Ordering::SeqCst) > 0
    }

    pub(super) fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Somebody has asked, and no thread waits for that.
    pub(super) fn is_short(&self) -> bool {
        self.has_members() && !self.is_waited_at() && {
            let asked = poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], Some(&Timespec::default()));
            asked.is_ok_and(|count| count > 0)
        }
    }

    /// Takes those out that have asked for nothing for long, or all that are in their places.
    pub(super) fn send_away(&self, all: bool, now: Tick, mut to: impl FnMut(Box<Conn>)) {
        for MemberPlace { place, since } in &self.places {
            let is_quiet = Tick(since.load(Ordering::Relaxed)).after(STAY) <= now;
            if (all || is_quiet)
                && let Some(mut conn) = place.withdraw()
            {
                self.leave(&mut conn);
                to(conn);
            }
        }
    }
}
