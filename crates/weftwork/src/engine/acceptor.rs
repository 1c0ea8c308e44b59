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
use crate::transport::events::{ConnState, Counters, Event};
use crate::transport::listener::Listener;

/// When descriptors are used up, the next try comes after this.
const BACK_OFF: Duration = Duration::from_millis(100);
/// When the cap on connections is reached, the count is checked again after this. A connection may end at any moment,
/// and a check is cheap: with a cap of 100, up to 50,000 short connections a second are accepted.
const FULL_BACK_OFF: Duration = Duration::from_millis(2);
/// Maximum number of connections accepted in one cycle, so that existing connections are served too.
pub(super) const ACCEPT_BUDGET: u32 = 64;

/// The listeners, as one loop sees them. All loops listen at the same sockets.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Arc<Vec<Listener>>,
    /// A connection may wait at this listener. The poller reports a change only once.
    ready: Vec<bool>,
    /// Listener to try first. Without rotation, a busy first listener would starve the others.
    next: usize,
    accepted: u32,
    closed_until: Option<Tick>,
    /// The cap is reached, and a connection waits at a listener.
    at_limit: bool,
}

/// The listeners of a server, shared so that they can be closed whatever the loops and threads are doing.
#[derive(Debug)]
pub(super) struct Listeners {
    listeners: RwLock<Arc<Vec<Listener>>>,
    /// Listener to try first, rotated as in [`Acceptor`].
    next: AtomicUsize,
}

impl Listeners {
    pub(super) fn new(listeners: &Arc<Vec<Listener>>) -> Listeners {
        Listeners { listeners: RwLock::new(listeners.clone()), next: AtomicUsize::new(0) }
    }

    /// The listeners, or an empty list once they are shut. The lock is released before their use: a log line may take
    /// long, and must not delay the shutdown.
    pub(super) fn get(&self) -> Arc<Vec<Listener>> {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn have_pending(&self) -> bool {
        have_pending(&self.get())
    }

    /// Accepts a waiting connection, for a thread that would have to be woken for its next call otherwise.
    ///
    /// Back-offs and the cap are left to the loops.
    pub(super) fn accept(&self, now: Tick, cx: &Context) -> Option<Box<Conn>> {
        let listeners = self.get();
        let (first, count) = (self.advance(), listeners.len());
        let mut rotated = (0..count).map(|at| &listeners[first.wrapping_add(at) % count]);
        rotated.find_map(|listener| match accept(listener, now, cx) {
            Accepted::Conn(conn) => Some(conn),
            Accepted::WouldBlock | Accepted::PeerGone | Accepted::Backoff(_) | Accepted::AtLimit(_) => None,
        })
    }

    /// Accepts the connections that wait, for a server that is about to close its listeners: that would reset them. Those that
    /// cannot be served are told 503.
    pub(super) fn accept_pending(&self, cx: &Context, mut adopt: impl FnMut(Box<Conn>)) {
        let now = cx.clock.now();
        for listener in self.get().iter() {
            for _ in 0..cx.settings.backlog {
                match accept(listener, now, cx) {
                    Accepted::Conn(conn) if conn.is_refused() => conn.send_and_close(now),
                    Accepted::Conn(conn) => adopt(conn),
                    Accepted::PeerGone => {}
                    Accepted::WouldBlock => break,
                    Accepted::AtLimit(_) | Accepted::Backoff(_) => {
                        let mut is_refused = false;
                        cx.reserve_fd.with_reserve(|| is_refused = refuse_one(listener, now, cx));
                        if !is_refused {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// An acceptor for all listeners, which starts at the next one.
    pub(super) fn acceptor(&self) -> Acceptor {
        Acceptor { next: self.advance(), ..Acceptor::new(self.get()) }
    }

    fn advance(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Stops accepting. The sockets are closed when no loop holds them any more.
    pub(super) fn shut(&self) {
        let listeners = std::mem::take(&mut *self.listeners.write().unwrap_or_else(PoisonError::into_inner));
        listeners.iter().for_each(Listener::shut);
    }
}

impl Acceptor {
    pub(super) fn new(listeners: Arc<Vec<Listener>>) -> Acceptor {
        let ready = vec![false; listeners.len()];
        Acceptor { listeners, ready, next: 0, accepted: 0, closed_until: None, at_limit: false }
    }

    pub(super) fn register(&self, registry: &Registry) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            register(registry, listener, LISTENER_0 + index)?;
        }
        Ok(())
    }

    /// No more connections come in here.
    pub(super) fn close(&mut self, registry: &Registry) {
        for listener in self.listeners.iter() {
            // The listener may never have been registered. Then there is nothing to undo.
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
        }
        self.listeners = Arc::default();
        self.ready.clear();
    }

    pub(super) fn note_ready(&mut self, index: usize) {
        if let Some(ready) = self.ready.get_mut(index) {
            *ready = true;
        }
    }

    /// Tries every listener in the next cycle.
    pub(super) fn note_all_ready(&mut self) {
        self.ready.fill(true);
    }

    /// Starts a new cycle of the loop.
    pub(super) fn next_cycle(&mut self, now: Tick) {
        self.accepted = 0;
        self.closed_until.take_if(|until| *until <= now);
    }

    /// When to try again if a connection may be waiting: now, or after the back-off.
    pub(super) fn retry(&self, now: Tick) -> Option<Tick> {
        self.ready.contains(&true).then(|| self.closed_until.unwrap_or(now))
    }

    pub(super) fn accept(&mut self, now: Tick, cx: &Context) -> Option<Box<Conn>> {
        while self.closed_until.is_none() && self.accepted < ACCEPT_BUDGET {
            let count = self.ready.len();
            let index =
                (0..count).map(|at| self.next.wrapping_add(at) % count).find(|index| self.ready[*index])?;
            match accept(&self.listeners[index], now, cx) {
                Accepted::Conn(conn) => {
                    self.accepted += 1;
                    self.next = index + 1;
                    return Some(conn);
                }
                Accepted::WouldBlock => self.ready[index] = false,
                Accepted::PeerGone => self.accepted += 1,
                Accepted::Backoff(then) => self.closed_until = Some(then),
                Accepted::AtLimit(then) => {
                    self.closed_until = Some(then);
                    self.at_limit = true;
                }
            }
        }
        None
    }

    /// The cap has kept a connection out since the last call.
    pub(super) fn take_at_limit(&mut self) -> bool {
        std::mem::take(&mut self.at_limit)
    }
}

/// A connection wakes one of the waiting loops. Waking all of them cost 8 idle loops a fifth more CPU, and 6.9 thread
/// switches instead of 1.4.
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

/// Result of one attempt to accept.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Over `accepted_max`, the connection already carries its 503, which only has to be sent.
    Conn(Box<Conn>),
    /// No connection waits.
    WouldBlock,
    /// The waiting connection has gone. The next one may be fine.
    PeerGone,
    /// Descriptors or memory are used up, or other threads may take the last slots. Try again at this time.
    Backoff(Tick),
    /// The cap on connections is reached, and a connection waits. Try again at this time.
    AtLimit(Tick),
}

pub(super) fn accept(listener: &Listener, now: Tick, cx: &Context) -> Accepted {
    let (_guard, others) = AcceptGuard::new(&cx.counters);
    let (connections, most) = (cx.counters.connections.load(Ordering::Acquire), cx.settings.connections_max);
    if connections + others >= most {
        let then = now.after(FULL_BACK_OFF);
        return match is_pending(listener) {
            false => Accepted::WouldBlock,
            true if connections >= most => Accepted::AtLimit(then),
            // Other threads that are accepting may take the last slots.
            true => Accepted::Backoff(then),
        };
    }
    match listener.accept() {
        Ok((stream, peer)) => {
            cx.reserve_fd.note_plenty();
            let mut conn = Conn::new(stream, peer, now, cx);
            begin(&mut conn, listener.is_proxied(), now, cx);
            Accepted::Conn(conn)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::WouldBlock,
        // The listener has been shut.
        Err(_) if cx.stage() != Stage::Running => Accepted::WouldBlock,
        Err(error) => {
            cx.record(Event::AcceptFailed);
            if is_of_one_peer(&error) {
                return Accepted::PeerGone;
            }
            on_emfile(&error, listener, now, cx);
            Accepted::Backoff(now.after(BACK_OFF))
        }
    }
}

/// Begins a connection: with its refusal over `accepted_max`, a PROXY header, a handshake, or its first request.
#[inline]
pub(super) fn begin(conn: &mut Conn, is_proxied: bool, now: Tick, cx: &Context) {
    // Connections that only linger are no reason to refuse new ones.
    let ending = cx.counters.in_state(ConnState::Lingering);
    let served = cx.counters.connections.load(Ordering::Relaxed).saturating_sub(ending);
    if served > cx.settings.accepted_max {
        return conn.refuse_over_limit(cx);
    }
    match is_proxied {
        true => conn.expect_proxy_header(now, cx),
        false => conn.begin_handshake(now),
    }
}

/// Accepts a connection only to tell it 503. False: no connection waits.
fn refuse_one(listener: &Listener, now: Tick, cx: &Context) -> bool {
    match listener.accept() {
        Ok((stream, peer)) => {
            Conn::new(stream, peer, now, cx).refuse_stopping(cx);
            true
        }
        Err(error) => is_of_one_peer(&error),
    }
}

/// Whether a connection waits that would be reset if these listeners closed. Listeners that were passed in stay open
/// elsewhere.
pub(super) fn have_pending(listeners: &[Listener]) -> bool {
    listeners.iter().any(|listener| !listener.is_given() && is_pending(listener))
}

/// Checked before a back-off: otherwise a server at its cap would check its listeners 500 times a second.
pub(super) fn is_pending(listener: &Listener) -> bool {
    let found = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&Timespec::default()));
    !matches!(found, Ok(0))
}

/// Counts a thread that is accepting, and keeps one slot for it. Otherwise two threads that both see the last slot
/// would both use it.
pub(super) struct AcceptGuard<'a>(&'a Counters);

impl AcceptGuard<'_> {
    /// Also returns how many other threads are accepting.
    pub(super) fn new(counters: &Counters) -> (AcceptGuard<'_>, usize) {
        let others = counters.accepting.fetch_add(1, Ordering::AcqRel);
        (AcceptGuard(counters), others)
    }
}

impl Drop for AcceptGuard<'_> {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::Release);
    }
}

/// Descriptors or memory are used up. That may pass in a moment, so clients wait, except for a long shortage.
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

/// Errors that concern only the connection that would have been accepted (accept(2)). The next one may be fine.
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
