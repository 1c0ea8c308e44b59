//! The poller of a thread: registered descriptors and the fibers that wait for them.
//!
//! Registration is edge-triggered and permanent. A descriptor is registered in a direction at its first wait,
//! and stays registered until its owner releases it. A wait then needs no system call of its own. This is sound
//! for two reasons. A wait starts only after a call returned "would block", or poll(2) returned "not ready", so
//! its edge is still to come. And events are read from the kernel only while no fiber runs.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Poll, Token, Waker};

use crate::slab::{Key, Slab};

/// Readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, a connection to accept, or the end of the peer's stream.
    Readable,
    /// Space to write.
    Writable,
    /// Either of the two.
    Both,
}

impl Interest {
    fn mio(self) -> mio::Interest {
        match self {
            Interest::Readable => mio::Interest::READABLE,
            Interest::Writable => mio::Interest::WRITABLE,
            Interest::Both => mio::Interest::READABLE | mio::Interest::WRITABLE,
        }
    }
}

/// A watched descriptor that became ready. See [`Runtime::watch`](crate::Runtime::watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Token that was given to `watch`.
    pub token: usize,
    /// Whether bytes may be readable, or the peer has closed its sending side.
    pub readable: bool,
    /// Whether the descriptor may be writable, or writing would return an error.
    pub writable: bool,
    /// Whether the peer has closed its sending side, or the socket has failed.
    pub closed: bool,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    pub(crate) fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::Readable,
            Direction::Write => Interest::Writable,
        }
    }
}

#[derive(Debug)]
struct Source {
    fd: RawFd,
    registered: mio::Interest,
    users: u32,
    watch: Option<(usize, Interest)>,
    readers: Vec<Key>,
    writers: Vec<Key>,
    /// Fibers that wait for either.
    both: Vec<Key>,
}

impl Source {
    fn waiters(&mut self, interest: Interest) -> &mut Vec<Key> {
        match interest {
            Interest::Readable => &mut self.readers,
            Interest::Writable => &mut self.writers,
            Interest::Both => &mut self.both,
        }
    }
}

const WAKER: Token = Token(usize::MAX);
/// A larger number gains nothing, and the kernel accepts at most what fits into 2 GiB.
const EVENTS_MAX: usize = 64 << 10;

/// The poller of one thread with its table of registrations.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
    sources: Slab<Source>,
    // Indexed by descriptor. The kernel assigns the lowest free number, so the table stays dense.
    by_fd: Vec<Option<Key>>,
}

impl Poller {
    /// # Errors
    ///
    /// Fails if the process or the system has no descriptor left.
    pub(crate) fn new(events_max: usize) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let events = Events::with_capacity(events_max.clamp(1, EVENTS_MAX));
        Ok((Poller { poll, events, sources: Slab::new(), by_fd: Vec::new() }, waker))
    }

    /// Waits for events. Adds fibers to wake to `woken` and watched descriptors to `ready`.
    ///
    /// Takes all events, because a caller that polls the poller's own descriptor is notified once.
    pub(crate) fn poll(
        &mut self,
        mut timeout: Option<Duration>,
        woken: &mut Vec<Key>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        loop {
            match self.poll.poll(&mut self.events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                result => result?,
            }
            if self.sort(woken, ready) < self.events.capacity() {
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
    }

    /// Assigns the last events to fibers and watchers. Returns the number of events.
    fn sort(&mut self, woken: &mut Vec<Key>, ready: &mut Vec<Ready>) -> usize {
        let mut taken = 0;
        for event in &self.events {
            taken += 1;
            if event.token() == WAKER {
                continue;
            }
            let Some(source) = self.sources.at_mut(event.token().0) else { continue };
            let closed = event.is_read_closed() || event.is_error();
            let mut readable = event.is_readable() || closed;
            let mut writable = event.is_writable() || event.is_write_closed() || event.is_error();
            // A waiting fiber takes the event. The watcher gets only events that no fiber waits for.
            let is_for_both = (readable || writable) && !source.both.is_empty();
            if is_for_both {
                woken.append(&mut source.both);
            }
            if readable && !source.readers.is_empty() {
                woken.append(&mut source.readers);
                readable = false;
            }
            if writable && !source.writers.is_empty() {
                woken.append(&mut source.writers);
                writable = false;
            }
            let Some((token, interest)) = source.watch else { continue };
            readable &= interest != Interest::Writable && !is_for_both;
            writable &= interest != Interest::Readable && !is_for_both;
            if readable || writable {
                ready.push(Ready { token, readable, writable, closed });
            }
        }
        taken
    }

    /// Returns the source of `fd`, registered in at least this direction, and adds a user.
    pub(crate) fn acquire(&mut self, fd: RawFd, interest: Interest) -> io::Result<Key> {
        if let Some(key) = self.find(fd) {
            self.ensure(key, interest)?;
            if let Some(source) = self.sources.get_mut(key) {
                source.users += 1;
            }
            return Ok(key);
        }
        let registered = interest.mio();
        let (readers, writers, both) = (Vec::new(), Vec::new(), Vec::new());
        let key =
            self.sources.insert(Source { fd, registered, users: 1, watch: None, readers, writers, both });
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), Token(key.index()), registered)
        {
            self.sources.remove(key);
            return Err(error);
        }
        let at = fd as usize;
        if at >= self.by_fd.len() {
            self.by_fd.resize(at + 1, None);
        }
        self.by_fd[at] = Some(key);
        Ok(key)
    }

    /// Acquires a source like [`acquire`](Poller::acquire), for the owner of a descriptor. An entry with the
    /// same number may belong to a descriptor that was closed without `unwatch`. It would never report an
    /// event.
    pub(crate) fn adopt(&mut self, fd: RawFd, interest: Interest) -> io::Result<Key> {
        if let Some(key) = self.find(fd)
            && let Err(error) = self.rearm(fd)
            && error.kind() == io::ErrorKind::NotFound
        {
            self.sources.remove(key);
            self.by_fd[fd as usize] = None;
        }
        self.acquire(fd, interest)
    }

    /// Removes a user. The last one deregisters the source.
    pub(crate) fn release(&mut self, key: Key) {
        let Some(source) = self.sources.get_mut(key) else { return };
        source.users -= 1;
        if source.users > 0 {
            return;
        }
        let fd = source.fd;
        self.sources.remove(key);
        if self.find(fd) == Some(key) {
            self.by_fd[fd as usize] = None;
            // Fails only if the owner has already closed the descriptor, which deregistered it.
            let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        }
    }

    pub(crate) fn find(&self, fd: RawFd) -> Option<Key> {
        self.by_fd.get(usize::try_from(fd).ok()?).copied().flatten()
    }

    fn ensure(&mut self, key: Key, interest: Interest) -> io::Result<()> {
        let Some(source) = self.sources.get_mut(key) else { return Ok(()) };
        let wanted = source.registered | interest.mio();
        if wanted == source.registered {
            return Ok(());
        }
        self.poll.registry().reregister(&mut SourceFd(&source.fd), Token(key.index()), wanted)?;
        source.registered = wanted;
        Ok(())
    }

    pub(crate) fn add_waiter(&mut self, key: Key, interest: Interest, fiber: Key) -> io::Result<()> {
        self.ensure(key, interest)?;
        if let Some(source) = self.sources.get_mut(key) {
            source.waiters(interest).push(fiber);
        }
        Ok(())
    }

    /// Returns false after the event has arrived.
    pub(crate) fn is_waiting(&mut self, key: Key, interest: Interest, fiber: Key) -> bool {
        self.sources.get_mut(key).is_some_and(|source| source.waiters(interest).contains(&fiber))
    }

    /// Removes a waiter. Returns false if its event has already arrived.
    pub(crate) fn remove_waiter(&mut self, key: Key, interest: Interest, fiber: Key) -> bool {
        let Some(source) = self.sources.get_mut(key) else { return false };
        let waiters = source.waiters(interest);
        let before = waiters.len();
        waiters.retain(|waiter| *waiter != fiber);
        waiters.len() < before
    }

    /// Reports a watched descriptor once more, if it is ready.
    pub(crate) fn report_again(&mut self, key: Key) {
        if let Some(source) = self.sources.get(key)
            && source.watch.is_some()
        {
            // Fails if the descriptor is closed. Then there is nothing to report.
            let _ = self.rearm(source.fd);
        }
    }

    pub(crate) fn watch(&mut self, fd: RawFd, interest: Interest, token: usize) -> io::Result<()> {
        let watched = |source: &Source| source.watch.is_some();
        let known = self.find(fd);
        if known.and_then(|key| self.sources.get(key)).is_some_and(watched) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the descriptor is already watched"));
        }
        let key = self.acquire(fd, interest)?;
        if let Some(source) = self.sources.get_mut(key) {
            source.watch = Some((token, interest));
        }
        if known.is_some() { self.rearm(fd) } else { Ok(()) }
    }

    /// Registers a watched descriptor again.
    pub(crate) fn rearm_watched(&mut self, fd: RawFd) -> io::Result<()> {
        let source = self.find(fd).and_then(|key| self.sources.get(key));
        source.filter(|source| source.watch.is_some()).ok_or_else(unwatched)?;
        self.rearm(fd)
    }

    fn rearm(&mut self, fd: RawFd) -> io::Result<()> {
        let (key, source) =
            self.find(fd).and_then(|key| Some((key, self.sources.get(key)?))).ok_or_else(unwatched)?;
        self.poll.registry().reregister(&mut SourceFd(&fd), Token(key.index()), source.registered)
    }

    pub(crate) fn unwatch(&mut self, fd: RawFd) -> io::Result<()> {
        let key = self.find(fd).ok_or_else(unwatched)?;
        let source = self.sources.get_mut(key).ok_or_else(unwatched)?;
        source.watch.take().ok_or_else(unwatched)?;
        self.release(key);
        Ok(())
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

fn unwatched() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the descriptor is not watched")
}
