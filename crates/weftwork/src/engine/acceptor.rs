//! Accepts connections, with caps, a back-off and a reserve descriptor. No error of accept ends that.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mio::Registry;
#[cfg(not(target_os = "linux"))]
use mio::Token;
use mio::unix::SourceFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsRawFd;

use super::conn_table::LISTENER_0;
use crate::conn::Conn;
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::counters::Counters;
use crate::transport::listener::Listener;

/// When descriptors are used up, the next try comes after this.
const BACK_OFF: Duration = Duration::from_millis(100);
/// When the cap on connections is reached, the next look at their number comes after this. A place may be free at any
/// moment, and a look costs next to nothing: with a cap of 100, up to 50,000 short connections a second come in.
const FULL_BACK_OFF: Duration = Duration::from_millis(2);
/// So many are taken in before the connections that are there have their turn again.
pub(super) const ACCEPT_BUDGET: u32 = 64;

/// The listeners, as one loop sees them. All loops listen at the same sockets.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Arc<Vec<Listener>>,
    /// Somebody may be waiting at this one. The poller tells of a change only once.
    ready: Vec<bool>,
    /// Where the next one is taken from, if somebody waits there: at the first of them somebody may always wait.
    next: usize,
    accepted: u32,
    closed_until: Option<Tick>,
    /// Somebody waits for a place.
    wants_room: bool,
}

/// The listeners of a server, held to be shut when it stops, whatever its loops and threads are doing.
#[derive(Debug)]
pub(super) struct Listeners {
    listeners: RwLock<Arc<Vec<Listener>>>,
    /// Where who takes a few connections in begins: at the first of them somebody may always wait.
    next: AtomicUsize,
}

impl Listeners {
    pub(super) fn new(listeners: &Arc<Vec<Listener>>) -> Listeners {
        Listeners { listeners: RwLock::new(listeners.clone()), next: AtomicUsize::new(0) }
    }

    /// None once they are shut. Not under the lock: a line of the log may take long, and who shuts them must not wait for it.
    pub(super) fn get(&self) -> Arc<Vec<Listener>> {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn have_pending(&self) -> bool {
        have_pending(&self.get())
    }

    /// Somebody who waits at one of them, for a thread that would have to be woken for the next call otherwise.
    ///
    /// What keeps others out for now is left to the loops.
    pub(super) fn accept(&self, now: Tick, cx: &Context) -> Option<Box<Conn>> {
        let listeners = self.get();
        self.in_turn(listeners.len()).find_map(|door| match accept(&listeners[door], now, cx) {
            Accepted::Conn(conn) | Accepted::OverLimit(conn) => Some(conn),
            Accepted::WouldBlock | Accepted::PeerGone | Accepted::Backoff(_) | Accepted::AtLimit(_) => None,
        })
    }

    /// All of them, from the next one on.
    pub(super) fn acceptor(&self) -> Acceptor {
        Acceptor { next: self.turn(), ..Acceptor::new(self.get()) }
    }

    /// So many, from the next one on.
    pub(super) fn in_turn(&self, doors: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.turn();
        (0..doors).map(move |at| first.wrapping_add(at) % doors)
    }

    fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// They take no more connections, and are closed when no loop holds them.
    pub(super) fn shut(&self) {
        let listeners = std::mem::take(&mut *self.listeners.write().unwrap_or_else(PoisonError::into_inner));
        listeners.iter().for_each(Listener::shut);
    }
}

impl Acceptor {
    pub(super) fn new(listeners: Arc<Vec<Listener>>) -> Acceptor {
        let ready = vec![false; listeners.len()];
        Acceptor { listeners, ready, next: 0, accepted: 0, closed_until: None, wants_room: false }
    }

    pub(super) fn register(&self, registry: &Registry) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            register(registry, listener, LISTENER_0 + index)?;
        }
        Ok(())
    }

    fn deregister(&self, registry: &Registry) {
        for listener in self.listeners.iter() {
            // It may never have been registered; then there is nothing to undo.
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
        }
    }

    /// No more connections come in here.
    pub(super) fn close(&mut self, registry: &Registry) {
        self.deregister(registry);
        self.listeners = Arc::default();
        self.ready.clear();
    }

    pub(super) fn note_ready(&mut self, door: usize) {
        if let Some(ready) = self.ready.get_mut(door) {
            *ready = true;
        }
    }

    /// Somebody waits at one of them.
    pub(super) fn note_all_ready(&mut self) {
        self.ready.fill(true);
    }

    /// A new turn of the loop begins.
    pub(super) fn next_turn(&mut self, now: Tick) {
        self.accepted = 0;
        self.closed_until.take_if(|until| *until <= now);
    }

    /// When to look next, where somebody may be waiting: now, or after the back-off.
    pub(super) fn retry(&self, now: Tick) -> Option<Tick> {
        self.ready.contains(&true).then(|| self.closed_until.unwrap_or(now))
    }

    pub(super) fn accept(&mut self, now: Tick, cx: &Context) -> Option<Box<Conn>> {
        while self.closed_until.is_none() && self.accepted < ACCEPT_BUDGET {
            let doors = self.ready.len();
            let door =
                (0..doors).map(|at| self.next.wrapping_add(at) % doors).find(|door| self.ready[*door])?;
            match accept(&self.listeners[door], now, cx) {
                // One too many has its refusal with it: the loop sends that.
                Accepted::Conn(conn) | Accepted::OverLimit(conn) => {
                    self.accepted += 1;
                    self.next = door + 1;
                    return Some(conn);
                }
                Accepted::WouldBlock => self.ready[door] = false,
                Accepted::PeerGone => self.accepted += 1,
                Accepted::Backoff(then) => self.closed_until = Some(then),
                Accepted::AtLimit(then) => {
                    self.closed_until = Some(then);
                    self.wants_room = true;
                }
            }
        }
        None
    }

    /// Somebody waits for a place, and this was not asked since.
    pub(super) fn wants_room(&mut self) -> bool {
        std::mem::take(&mut self.wants_room)
    }
}

/// A connection wakes one of the loops that wait. When it woke all of them, 8 loops at rest took a fifth more CPU for
/// it, and 6.9 changes of threads, not 1.4.
#[cfg(target_os = "linux")]
fn register(registry: &Registry, listener: &Listener, token: usize) -> io::Result<()> {
    use rustix::event::epoll::{self, EventData, EventFlags};
    use std::os::fd::AsFd;
    let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
    Ok(epoll::add(registry.as_fd(), listener, EventData::new_u64(token as u64), flags)?)
}

#[cfg(not(target_os = "linux"))]
fn register(registry: &Registry, listener: &Listener, token: usize) -> io::Result<()> {
    registry.register(&mut SourceFd(&listener.as_raw_fd()), Token(token), mio::Interest::READABLE)
}

/// What one try at a listener has brought.
#[derive(Debug)]
pub(super) enum Accepted {
    Conn(Box<Conn>),
    /// More than `accepted_max`: it is refused, and only has to be told so.
    OverLimit(Box<Conn>),
    /// Nobody waits there.
    WouldBlock,
    /// The one who waited has gone; the next may be fine.
    PeerGone,
    /// Descriptors or memory are used up, or others may be about to take the last places: to be tried again then.
    Backoff(Tick),
    /// The cap on connections is reached, and somebody waits: to be tried again then.
    AtLimit(Tick),
}

pub(super) fn accept(listener: &Listener, now: Tick, cx: &Context) -> Accepted {
    let (_at_door, others) = AcceptGuard::come(&cx.counters);
    let (connections, most) = (cx.counters.connections.load(Ordering::Acquire), cx.settings.connections_max);
    if connections + others >= most {
        let then = now.after(FULL_BACK_OFF);
        return match is_pending(listener) {
            false => Accepted::WouldBlock,
            true if connections >= most => Accepted::AtLimit(then),
            // The last places may be for those who look as well.
            true => Accepted::Backoff(then),
        };
    }
    match listener.accept() {
        Ok((stream, peer)) => {
            cx.reserve_fd.note_plenty();
            let mut conn = Conn::new(stream, peer, now, cx);
            // Those who only have still to end are no reason to refuse others.
            let ending = cx.counters.lingering.load(Ordering::Relaxed);
            let served = cx.counters.connections.load(Ordering::Relaxed).saturating_sub(ending);
            if served > cx.settings.accepted_max {
                conn.refuse_over_limit(cx);
                return Accepted::OverLimit(conn);
            }
            if listener.is_proxied() {
                conn.expect_proxy_header(now, cx);
            }
            Accepted::Conn(conn)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::WouldBlock,
        // The listener has been shut.
        Err(_) if cx.stage() != Stage::Running => Accepted::WouldBlock,
        Err(error) => {
            Counters::count(&cx.counters.accept_errors);
            if is_of_one_peer(&error) {
                return Accepted::PeerGone;
            }
            on_emfile(&error, listener, now, cx);
            Accepted::Backoff(now.after(BACK_OFF))
        }
    }
}

/// Whether somebody waits whom the end of these listeners would reset: not where others hold them, too.
pub(super) fn have_pending(listeners: &[Listener]) -> bool {
    listeners.iter().any(|listener| !listener.is_given() && is_pending(listener))
}

/// Without it a server with exactly as many connections as it may have would look at its doors 500 times a second.
pub(super) fn is_pending(listener: &Listener) -> bool {
    let found = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&Timespec::default()));
    !matches!(found, Ok(0))
}

/// Somebody who may take one connection in, and for whom one place is kept: without that, two who record the last place
/// would both take one.
struct AcceptGuard<'a>(&'a Counters);

impl AcceptGuard<'_> {
    /// And how many others there are.
    fn come(counters: &Counters) -> (AcceptGuard<'_>, usize) {
        let others = counters.accepting.fetch_add(1, Ordering::AcqRel);
        (AcceptGuard(counters), others)
    }
}

impl Drop for AcceptGuard<'_> {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::Release);
    }
}

/// Descriptors or memory are used up. That may pass in a moment, so those who knock wait; but not for long.
#[cold]
fn on_emfile(error: &io::Error, listener: &Listener, now: Tick, cx: &Context) {
    let Some(since) = cx.reserve_fd.note_shortage(now) else {
        return cx.warn_resources(format_args!("cannot accept connections just now: {error}"));
    };
    let is_shortage = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
    if is_shortage && since.until(now) >= BACK_OFF {
        cx.reserve_fd.with_reserve(|| {
            for _ in 0..ACCEPT_BUDGET {
                let Ok((stream, peer)) = listener.accept() else { return };
                let mut conn = Conn::new(stream, peer, now, cx);
                conn.refuse_no_fds(cx);
                conn.send_and_close(now);
            }
        });
    }
}

/// Errors that only tell of the connection that would have been next (accept(2)): the one behind may be fine.
fn is_of_one_peer(error: &io::Error) -> bool {
    let one = [
        Errno::CONNABORTED,
        Errno::PROTO,
        Errno::PERM,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        #[cfg(target_os = "linux")]
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
    ];
    error.raw_os_error().is_some_and(|code| one.iter().any(|errno| errno.raw_os_error() == code))
}

#[cfg(test)]
mod tests;
