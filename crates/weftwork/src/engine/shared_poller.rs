//! One epoll instance for the idle threads of a pool and for connections whose calls block.
//!
//! The kernel reports each event to one thread (epoll(7), edge-triggered). That thread takes the connection from its
//! [slot](super::conn_slot), serves it, and puts it back. A thread that waits for its own connection sleeps twice for
//! each request whose handler blocks: in the handler, and until the next request. If a thread may serve any of many
//! connections, the next request has usually arrived when the call ends, and the thread continues without a wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::conn_slot::{ConnSlot, GENERATION_MAX};
use super::sync::{Mutex, lock};
use super::thread_pool::{EventSource, Watched};
use crate::conn::{Conn, Registered};
use crate::transport::Tick;

/// Maximum number of connections here: twice as many as threads, by default.
const CONNS_MAX: usize = 1024;
/// Maximum time that an idle connection stays.
const IDLE_MAX: Duration = Duration::from_millis(500);

const READS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
const CLOSES: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);
/// The token of the eventfd that wakes one thread.
const WAKER: u64 = u64::MAX;

pub(super) struct SharedPoller {
    poller: OwnedFd,
    /// Each write is one event, for one thread. The eventfd is never read.
    waker: OwnedFd,
    slots: Box<[TimedSlot]>,
    /// Free slots. The slot that was freed last is used first.
    free: Mutex<Vec<usize>>,
    /// Number of connections that have a slot.
    conns: AtomicUsize,
    /// Number of connections in their slots. Threads serve the others.
    idle_conns: AtomicUsize,
    /// Tells which of them have events, without taking the events. Absent if nobody observes how long requests wait.
    watcher: Option<OwnedFd>,
}

struct TimedSlot {
    /// The generation is the token. It consists of the index, and above it the number of earlier connections of the
    /// slot.
    slot: ConnSlot<Box<Conn>>,
    /// The time at which the connection was last put there, a [`Tick`].
    since: AtomicU64,
    /// When the monitor saw that it has an event. 0: it has not.
    waits_since: AtomicU64,
}

/// Frees the slot of a connection that a thread serves, when dropped. Does nothing if the connection has already
/// left.
pub(super) struct SlotGuard<'a>(&'a SharedPoller, usize);

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.0.free(self.1);
    }
}

impl TimedSlot {
    /// Returns whether the connection with this token is here.
    fn note_waiting(&self, token: usize, now: Tick) -> bool {
        let is_here = self.slot.generation() == token;
        if is_here {
            let now = now.0.max(1);
            let _ = self.waits_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_here
    }
}

fn index(token: usize) -> usize {
    token % CONNS_MAX
}

impl EventSource for SharedPoller {
    type Event = Box<Conn>;

    #[inline(always)]
    fn watch(&self, timeout: Duration) -> Watched<Box<Conn>> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut event = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
        // A signal counts as a wake-up.
        let Ok((events, _)) = epoll::wait(&self.poller, &mut event, Some(&timeout)) else {
            return Watched::Woken;
        };
        match events.first() {
            None => Watched::TimedOut,
            Some(&Event { flags, data }) => {
                self.take(data.u64(), flags).map_or(Watched::Woken, Watched::Event)
            }
        }
    }

    fn wake_one(&self) {
        // This fails only if the counter is full, after 2^64 writes.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    fn expects_events(&self) -> bool {
        self.idle_conns.load(Ordering::SeqCst) > 0
    }
}

impl SharedPoller {
    /// `is_observed`: it is to be known how long events wait for a thread.
    pub(super) fn open(is_observed: bool) -> io::Result<SharedPoller> {
        let slot = |index| TimedSlot {
            slot: ConnSlot::new(index),
            since: AtomicU64::new(0),
            waits_since: AtomicU64::new(0),
        };
        let shared = SharedPoller {
            poller: epoll::create(CreateFlags::CLOEXEC)?,
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            slots: (0..CONNS_MAX).map(slot).collect(),
            free: Mutex::new((0..CONNS_MAX).rev().collect()),
            conns: AtomicUsize::new(0),
            idle_conns: AtomicUsize::new(0),
            watcher: is_observed.then(|| epoll::create(CreateFlags::CLOEXEC)).transpose()?,
        };
        let waker = EventData::new_u64(WAKER);
        epoll::add(&shared.poller, &shared.waker, waker, EventFlags::IN | EventFlags::ET)?;
        Ok(shared)
    }

    /// Gives a connection a slot, if it has no slot yet. Returns `None` if no slot is free. Otherwise returns whether
    /// it is the only connection.
    pub(super) fn add(&self, conn: &mut Conn) -> Option<bool> {
        if conn.owner.registered == Registered::Shared {
            return Some(false);
        }
        let index = lock(&self.free).pop()?;
        let token = self.slots[index].slot.generation();
        // Bytes that have already arrived are reported at once. The slot is empty at that time, so `put_back` gets
        // the event.
        if epoll::add(&self.poller, conn.as_fd(), EventData::new_u64(token as u64), READS).is_err() {
            lock(&self.free).push(index);
            return None;
        }
        if let Some(watcher) = &self.watcher {
            // If the kernel refuses it, the wait of its requests is not known exactly.
            let _ = epoll::add(watcher, conn.as_fd(), EventData::new_u64(token as u64), EventFlags::IN);
        }
        let is_first = self.conns.fetch_add(1, Ordering::SeqCst) == 0;
        (conn.owner.registered, conn.owner.token) = (Registered::Shared, token);
        Some(is_first)
    }

    /// Returns a guard for the time in which a thread serves the connection. The caller forgets the guard when it
    /// puts the connection back.
    pub(super) fn guard(&self, conn: &Conn) -> Option<SlotGuard<'_>> {
        (conn.owner.registered == Registered::Shared).then(|| SlotGuard(self, conn.owner.token))
    }

    /// Puts a connection into its slot. Returns the connection if it had an event meanwhile.
    pub(super) fn put_back(&self, conn: Box<Conn>, now: Tick) -> Option<Box<Conn>> {
        let TimedSlot { slot, since, waits_since } = &self.slots[index(conn.owner.token)];
        since.store(now.0, Ordering::Relaxed);
        waits_since.store(0, Ordering::Relaxed);
        self.idle_conns.fetch_add(1, Ordering::SeqCst);
        let token = conn.owner.token;
        let (mut conn, closed) = slot.put(token, conn)?;
        self.idle_conns.fetch_sub(1, Ordering::SeqCst);
        conn.note_ready(closed && conn.owner.token == token);
        Some(conn)
    }

    /// Returns the connection of an event. Returns `None` if a thread serves the connection, if it has left, or if
    /// the event is a wake-up.
    #[inline(always)]
    fn take(&self, token: u64, flags: EventFlags) -> Option<Box<Conn>> {
        if token == WAKER {
            return None;
        }
        let token = token as usize;
        let closed = flags.intersects(CLOSES);
        let TimedSlot { slot, waits_since, .. } = &self.slots[index(token)];
        let mut conn = slot.take(token, closed)?;
        self.idle_conns.fetch_sub(1, Ordering::SeqCst);
        if self.watcher.is_some() {
            let since = waits_since.swap(0, Ordering::Relaxed);
            conn.owner.arrived = (since > 0).then_some(Tick(since));
        }
        // The slot may have been reused just now, and then this is another connection.
        conn.note_ready(closed && conn.owner.token == token);
        Some(conn)
    }

    /// Removes a connection, if it is here.
    pub(super) fn remove(&self, conn: &mut Conn) {
        if conn.owner.registered == Registered::Shared {
            // Cannot fail for a socket that is registered and open.
            let _ = epoll::delete(&self.poller, conn.as_fd());
            if let Some(watcher) = &self.watcher {
                let _ = epoll::delete(watcher, conn.as_fd());
            }
            conn.owner.registered = Registered::Not;
            // An event may have been reported here.
            conn.note_ready(false);
            self.free(conn.owner.token);
        }
    }

    /// Closes a connection, and then frees its slot, if it has one.
    pub(super) fn close(&self, conn: Box<Conn>) {
        let guard = self.guard(&conn);
        drop(conn);
        drop(guard);
    }

    /// Frees the slot of the connection with this token, unless it is free.
    fn free(&self, token: usize) {
        let next = token.wrapping_add(CONNS_MAX) & GENERATION_MAX;
        if self.slots[index(token)].slot.reuse(token, next) {
            lock(&self.free).push(index(token));
            self.conns.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Number of connections, including those that a thread serves.
    pub(super) fn len(&self) -> usize {
        self.conns.load(Ordering::SeqCst)
    }

    /// Whether an event waits that no thread has received yet.
    pub(super) fn has_events(&self) -> bool {
        let ready = poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], Some(&Timespec::default()));
        ready.is_ok_and(|count| count > 0)
    }

    /// Notes which connections have events that no thread has taken, for those that observe how long requests wait. Returns how
    /// many they are.
    pub(super) fn note_waiting(&self, now: Tick) -> usize {
        let Some(watcher) = &self.watcher else { return 0 };
        let mut events = Vec::with_capacity(CONNS_MAX);
        let timeout = Timespec::default();
        if epoll::wait(watcher, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).is_err() {
            return 0;
        }
        let tokens = events.iter().map(|event: &Event| event.data.u64() as usize);
        tokens.filter(|token| self.slots[index(*token)].note_waiting(*token, now)).count()
    }

    /// Takes out the connections that had no request for so long, at most [`IDLE_MAX`]. Zero: all that are in their slots.
    pub(super) fn evict_idle(&self, idle: Duration, now: Tick, mut to: impl FnMut(Box<Conn>)) {
        for TimedSlot { slot, since, waits_since } in &self.slots {
            let is_idle = Tick(since.load(Ordering::Relaxed)).after(idle.min(IDLE_MAX)) <= now;
            if is_idle && let Some(mut conn) = slot.withdraw() {
                self.idle_conns.fetch_sub(1, Ordering::SeqCst);
                let since = waits_since.swap(0, Ordering::Relaxed);
                conn.owner.arrived = (since > 0).then_some(Tick(since));
                self.remove(&mut conn);
                to(conn);
            }
        }
    }
}

#[cfg(test)]
mod tests;
