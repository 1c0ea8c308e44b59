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
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

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
/// The token of the bell. All others are a place and its generation.
const BELL: u64 = u64::MAX;

pub(super) struct Commons {
    poller: OwnedFd,
    /// Each write is one event, for one thread; nobody ever reads it.
    bell: OwnedFd,
    places: Box<[MemberPlace]>,
    /// Places that nobody has; the lowest is taken first.
    free: Mutex<Vec<usize>>,
    members: AtomicUsize,
    /// Members that are in their places. Whoever is out has a thread.
    present: AtomicUsize,
    /// Threads that sleep until an event comes.
    waiting: AtomicUsize,
    /// Calls made by threads without a loop, ever.
    pub(super) calls: AtomicU32,
    /// The watcher has found that another thread would be of no use: see [`Gauge`](super::gauge::Gauge).
    pub(super) is_served_soon: AtomicBool,
}

struct MemberPlace {
    place: Place<Box<Conn>>,
    /// Part of its token: an event may still be on its way when the next one has the place.
    generation: AtomicU32,
    /// When the member was put there last.
    since: AtomicU64,
}

/// What became of a connection that wants to join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// `is_first`: there was none, and whoever looks after them may sleep.
    Member { is_first: bool },
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

/// What a look at the poller has brought.
enum Look {
    News(Box<Conn>),
    /// News of one that is out, or has gone; or a signal has come, or a call for other work.
    Vain,
    /// Nothing, in all that time.
    Nothing,
}

/// A member that is out. Its place is free when this is dropped: by a panic.
pub(super) struct Absent<'a>(&'a Commons, usize);

impl Drop for Absent<'_> {
    fn drop(&mut self) {
        self.0.free(self.1);
    }
}

fn index(token: usize) -> usize {
    token as u32 as usize
}

impl Commons {
    pub(super) fn open() -> io::Result<Commons> {
        let place =
            || MemberPlace { place: Place::new(), generation: AtomicU32::new(0), since: AtomicU64::new(0) };
        let commons = Commons {
            poller: epoll::create(CreateFlags::CLOEXEC)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            places: std::iter::repeat_with(place).take(PLACES).collect(),
            free: Mutex::new((0..PLACES).rev().collect()),
            members: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            is_served_soon: AtomicBool::new(false),
        };
        epoll::add(
            &commons.poller,
            &commons.bell,
            EventData::new_u64(BELL),
            EventFlags::IN | EventFlags::ET,
        )?;
        Ok(commons)
    }

    /// Gives a connection its place, if it has none yet.
    pub(super) fn join(&self, conn: &mut Conn) -> Joined {
        if conn.registered == Registered::InCommons {
            return Joined::Member { is_first: false };
        }
        let Some(index) = lock(&self.free).pop() else { return Joined::Refused };
        let is_first = self.members.fetch_add(1, Ordering::SeqCst) == 0;
        let generation = self.places[index].generation.load(Ordering::Relaxed);
        let token = (generation as usize) << 32 | index;
        // What has come before is told of at once. By then the place is empty, and whoever puts the connection there hears of it.
        if epoll::add(&self.poller, conn.as_fd(), EventData::new_u64(token as u64), NEWS).is_err() {
            self.free(index);
            return Joined::Refused;
        }
        (conn.registered, conn.token) = (Registered::InCommons, token);
        Joined::Member { is_first }
    }

    /// To be held while a member is out, and forgotten when it is back.
    pub(super) fn absent(&self, conn: &Conn) -> Option<Absent<'_>> {
        (conn.registered == Registered::InCommons).then(|| Absent(self, index(conn.token)))
    }

    /// Puts a member in its place. It comes back if something has happened to it meanwhile.
    pub(super) fn put(&self, conn: Box<Conn>, now: Tick) -> Option<Box<Conn>> {
        let MemberPlace { place, since, .. } = &self.places[index(conn.token)];
        since.store(now.0, Ordering::Relaxed);
        self.present.fetch_add(1, Ordering::SeqCst);
        let (mut conn, ended) = place.put(conn)?;
        self.present.fetch_sub(1, Ordering::SeqCst);
        conn.note_ready(ended);
        Some(conn)
    }

    /// The next member to which something happens. The last of those who wait does so for as long as it `may_wait` and somebody
    /// may ask; others give up after a while.
    #[inline(always)]
    pub(super) fn next(&self, may_wait: impl Fn() -> bool) -> Option<News> {
        // Elsewhere it would be in vain: with 10 connections it is a system call more for each request.
        if self.is_served_soon.load(Ordering::Relaxed)
            && may_wait()
            && let Look::News(conn) = self.look(&Timespec::default())
        {
            return Some(News { conn, was_waited_for: false });
        }
        loop {
            // Counted before it looks at what else there is to do: from then on it is called for that.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let look = (self.has_anybody() && may_wait()).then(|| self.look(&PATIENCE));
            let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            match look? {
                Look::News(conn) => return Some(News { conn, was_waited_for: true }),
                Look::Nothing if others > 0 => return None,
                Look::Nothing | Look::Vain => {}
            }
        }
    }

    #[inline(always)]
    fn look(&self, patience: &Timespec) -> Look {
        let mut event = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
        let Ok((events, _)) = epoll::wait(&self.poller, &mut event, Some(patience)) else {
            return Look::Vain;
        };
        let Some(&Event { flags, data }) = events.first() else { return Look::Nothing };
        if data.u64() == BELL {
            return Look::Vain;
        }
        let token = data.u64() as usize;
        let MemberPlace { place, generation, .. } = &self.places[index(token)];
        let ended = flags.intersects(ENDS);
        if generation.load(Ordering::Relaxed) as usize != token >> 32 {
            return Look::Vain;
        }
        let Some(mut conn) = place.take(ended) else { return Look::Vain };
        self.present.fetch_sub(1, Ordering::SeqCst);
        conn.note_ready(ended && conn.token == token);
        Look::News(conn)
    }

    /// One of those who wait has other work to do.
    pub(super) fn call_one(&self) {
        if self.is_waited_at() {
            // It can only fail when the count is full, after 2^64 calls.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// A member goes elsewhere, if it is one.
    pub(super) fn leave(&self, conn: &mut Conn) {
        if conn.registered == Registered::InCommons {
            // Cannot fail for a socket that is registered and open.
            let _ = epoll::delete(&self.poller, conn.as_fd());
            conn.registered = Registered::Not;
            // What has come may have been told of here.
            conn.note_ready(false);
            self.free(index(conn.token));
        }
    }

    /// A connection that is over is closed, and then its place is free, if it has one.
    pub(super) fn close(&self, conn: Box<Conn>) {
        let absent = self.absent(&conn);
        drop(conn);
        drop(absent);
    }

    fn free(&self, index: usize) {
        self.places[index].generation.fetch_add(1, Ordering::Relaxed);
        lock(&self.free).push(index);
        self.members.fetch_sub(1, Ordering::SeqCst);
    }

    /// Those that are out are among them.
    pub(super) fn members(&self) -> usize {
        self.members.load(Ordering::SeqCst)
    }

    /// A member is in its place, and may ask at any moment.
    pub(super) fn has_anybody(&self) -> bool {
        self.present.load(Ordering::SeqCst) > 0
    }

    pub(super) fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Somebody has asked, and no thread waits for that.
    pub(super) fn is_short(&self) -> bool {
        self.has_anybody() && !self.is_waited_at() && self.has_news()
    }

    /// Something has happened that no thread was told of yet.
    pub(super) fn has_news(&self) -> bool {
        let news = poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], Some(&Timespec::default()));
        news.is_ok_and(|count| count > 0)
    }

    /// Takes those out that have asked for nothing for so long, all that are in their places if that is no time; but for
    /// [`STAY`] at most.
    pub(super) fn send_away(&self, quiet: Duration, now: Tick, mut to: impl FnMut(Box<Conn>)) {
        for MemberPlace { place, since, .. } in &self.places {
            let is_quiet = Tick(since.load(Ordering::Relaxed)).after(quiet.min(STAY)) <= now;
            if is_quiet && let Some(mut conn) = place.withdraw() {
                self.present.fetch_sub(1, Ordering::SeqCst);
                self.leave(&mut conn);
                to(conn);
            }
        }
    }
}
