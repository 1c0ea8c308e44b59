//! Connections that ask for nothing just now, and the poller at which any thread waits for any of them.
//!
//! The poller tells one thread of each event (epoll(7), edge-triggered), which takes the connection from its
//! [place](super::place), answers, and puts it back. A thread that waits for its own connection sleeps twice for each
//! request whose handler blocks: in the handler, and until the client asks again. Where any of many may ask, somebody
//! has asked by then under load, and a thread that comes back from a call goes on without a wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::conn_slot::{ConnSlot, GENERATION_MAX};
use super::sync::{Mutex, lock};
use crate::conn::{Conn, Registered};
use crate::transport::Tick;

/// So many members there may be: twice as many as threads, by default.
const PLACES: usize = 1024;
/// How long a member stays that asks for nothing, at most.
const STAY: Duration = Duration::from_millis(500);

const NEWS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);
/// Others than members are told of once, and not before they are watched again.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
/// Tokens of others than members: a number with this bit.
const OTHER: u64 = 1 << 63;
/// The token of the bell, and of what wakes everybody.
const BELL: u64 = u64::MAX;

pub(super) struct SharedPoller {
    poller: OwnedFd,
    /// Each write is one event, for one thread; nobody ever reads it.
    bell: OwnedFd,
    places: Box<[MemberSlot]>,
    /// Places that nobody has; the one that was freed last is taken first.
    free: Mutex<Vec<usize>>,
    members: AtomicUsize,
    /// Members that are in their places. Whoever is out has a thread.
    present: AtomicUsize,
}

struct MemberSlot {
    /// Its owner's number is the token: the place, and above that how many had it before.
    place: ConnSlot<Box<Conn>>,
    /// When the member was put there last.
    since: AtomicU64,
}

/// What became of a connection that wants to join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddResult {
    /// `is_first`: there was none, and whoever looks after them may sleep.
    Added { is_first: bool },
    /// There is no place for it.
    Full,
    /// This system has no poller that tells one thread of each event.
    #[cfg_attr(any(target_os = "linux", target_os = "android"), allow(dead_code))]
    Unsupported,
}

/// What a wait at the poller has brought.
pub(super) enum PollEvent {
    /// A member has something to say.
    Conn(Box<Conn>),
    /// So has something else that is [watched](SharedPoller::watch).
    Listener(usize),
    /// NextConn of a member that is out, or has gone; or a signal has come, or the bell has rung.
    Spurious,
    /// Nothing, in all that time.
    Timeout,
}

/// A member that is out. Its place is free when this is dropped: by a panic. Nothing is changed if it has left before.
pub(super) struct SlotGuard<'a>(&'a SharedPoller, usize);

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.0.free(self.1);
    }
}

fn index(token: usize) -> usize {
    token % PLACES
}

impl SharedPoller {
    pub(super) fn open() -> io::Result<SharedPoller> {
        let place = |index| MemberSlot { place: ConnSlot::new(index), since: AtomicU64::new(0) };
        let shared = SharedPoller {
            poller: epoll::create(CreateFlags::CLOEXEC)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            places: (0..PLACES).map(place).collect(),
            free: Mutex::new((0..PLACES).rev().collect()),
            members: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
        };
        epoll::add(&shared.poller, &shared.bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        Ok(shared)
    }

    /// Everybody is woken as soon as this is readable, for as long as it is.
    pub(super) fn wake_all_by(&self, stop: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.poller, stop, EventData::new_u64(BELL), EventFlags::IN)?)
    }

    /// One thread is told when this is readable.
    pub(super) fn watch(&self, number: usize, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.poller, fd, EventData::new_u64(number as u64 | OTHER), ONCE)?)
    }

    /// Another may be told of it.
    pub(super) fn watch_again(&self, number: usize, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::modify(&self.poller, fd, EventData::new_u64(number as u64 | OTHER), ONCE)?)
    }

    /// Wakes one of those who wait.
    pub(super) fn ring(&self) {
        // It can only fail when the count is full, after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Gives a connection its place, if it has none yet.
    pub(super) fn join(&self, conn: &mut Conn) -> AddResult {
        if conn.registered == Registered::Shared {
            return AddResult::Added { is_first: false };
        }
        let Some(index) = lock(&self.free).pop() else { return AddResult::Full };
        let token = self.places[index].place.generation();
        // What has come before is told of at once. By then the place is empty, and whoever puts the connection there hears of it.
        if epoll::add(&self.poller, conn.as_fd(), EventData::new_u64(token as u64), NEWS).is_err() {
            lock(&self.free).push(index);
            return AddResult::Full;
        }
        let is_first = self.members.fetch_add(1, Ordering::SeqCst) == 0;
        (conn.registered, conn.token) = (Registered::Shared, token);
        AddResult::Added { is_first }
    }

    /// To be held while a member is out, and forgotten when it is back.
    pub(super) fn absent(&self, conn: &Conn) -> Option<SlotGuard<'_>> {
        (conn.registered == Registered::Shared).then(|| SlotGuard(self, conn.token))
    }

    /// Puts a member in its place. It comes back if something has happened to it meanwhile.
    pub(super) fn put(&self, conn: Box<Conn>, now: Tick) -> Option<Box<Conn>> {
        let MemberSlot { place, since, .. } = &self.places[index(conn.token)];
        since.store(now.0, Ordering::Relaxed);
        self.present.fetch_add(1, Ordering::SeqCst);
        let token = conn.token;
        let (mut conn, ended) = place.put(token, conn)?;
        self.present.fetch_sub(1, Ordering::SeqCst);
        conn.note_ready(ended && conn.token == token);
        Some(conn)
    }

    /// Waits until there is something for this thread, for so long at most.
    #[inline(always)]
    pub(super) fn wait(&self, patience: Option<&Timespec>) -> PollEvent {
        let mut event = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
        let Ok((events, _)) = epoll::wait(&self.poller, &mut event, patience) else {
            return PollEvent::Spurious;
        };
        let Some(&Event { flags, data }) = events.first() else { return PollEvent::Timeout };
        self.told(data.u64(), flags)
    }

    #[inline(always)]
    fn told(&self, token: u64, flags: EventFlags) -> PollEvent {
        if token & OTHER != 0 {
            return if token == BELL {
                PollEvent::Spurious
            } else {
                PollEvent::Listener((token & !OTHER) as usize)
            };
        }
        let token = token as usize;
        let ended = flags.intersects(ENDS);
        let Some(mut conn) = self.places[index(token)].place.take(token, ended) else {
            return PollEvent::Spurious;
        };
        self.present.fetch_sub(1, Ordering::SeqCst);
        // The place may have been passed on just now, and then this is the next one.
        conn.note_ready(ended && conn.token == token);
        PollEvent::Conn(conn)
    }

    /// A member goes elsewhere, if it is one.
    pub(super) fn leave(&self, conn: &mut Conn) {
        if conn.registered == Registered::Shared {
            // Cannot fail for a socket that is registered and open.
            let _ = epoll::delete(&self.poller, conn.as_fd());
            conn.registered = Registered::Not;
            // What has come may have been told of here.
            conn.note_ready(false);
            self.free(conn.token);
        }
    }

    /// A connection that is over is closed, and then its place is free, if it has one.
    pub(super) fn close(&self, conn: Box<Conn>) {
        let absent = self.absent(&conn);
        drop(conn);
        drop(absent);
    }

    /// The place of whoever has this token is free, unless it was before.
    fn free(&self, token: usize) {
        let next = token.wrapping_add(PLACES) & GENERATION_MAX;
        if self.places[index(token)].place.reuse(token, next) {
            lock(&self.free).push(index(token));
            self.members.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Those that are out are among them.
    pub(super) fn members(&self) -> usize {
        self.members.load(Ordering::SeqCst)
    }

    /// A member is in its place, and may ask at any moment.
    pub(super) fn has_anybody(&self) -> bool {
        self.present.load(Ordering::SeqCst) > 0
    }

    /// Something has happened that no thread was told of yet.
    pub(super) fn has_news(&self) -> bool {
        let news = poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], Some(&Timespec::default()));
        news.is_ok_and(|count| count > 0)
    }

    /// Takes those out that have asked for nothing for so long, all that are in their places if that is no time; but for
    /// [`STAY`] at most.
    pub(super) fn send_away(&self, quiet: Duration, now: Tick, mut to: impl FnMut(Box<Conn>)) {
        for MemberSlot { place, since, .. } in &self.places {
            let is_quiet = Tick(since.load(Ordering::Relaxed)).after(quiet.min(STAY)) <= now;
            if is_quiet && let Some(mut conn) = place.withdraw() {
                self.present.fetch_sub(1, Ordering::SeqCst);
                self.leave(&mut conn);
                to(conn);
            }
        }
    }
}

#[cfg(test)]
mod tests;
