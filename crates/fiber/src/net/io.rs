//! What do all sockets share: try, wait, try again?

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::ioctl_fionbio;

use crate::poller::Direction;
use crate::scheduler::{self, Core, Location};
use crate::slab::Key;
use crate::wait::{block_thread, cannot_wait};

/// Accepted connections wait in a queue of so many, which the kernel caps at its own limit (`somaxconn`). The 128 of
/// std make clients of a burst wait a second for their next try.
pub(super) const BACKLOG: i32 = 4_096;

/// A non-blocking socket of std, its time limits, and its place in the poller.
pub(super) struct Io<S> {
    // Dropped before the socket: deregister, then close.
    registration: RefCell<Option<Registration>>,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
    /// Of the handles to one socket, each has one.
    handles: Rc<()>,
    /// It came from std so: others share it, perhaps, who want that.
    was_nonblocking: bool,
    socket: S,
}

/// Borrows nothing: what it is written to may suspend the fiber.
impl<S: Debug> Debug for Io<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

struct Registration {
    core: Weak<Core>,
    source: Key,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.poller.borrow_mut().release(self.source);
        }
    }
}

impl<S: AsFd> Io<S> {
    /// Takes over a socket that is non-blocking already.
    pub(super) fn new(socket: S) -> Self {
        Io {
            registration: RefCell::new(None),
            read_timeout: Cell::new(None),
            write_timeout: Cell::new(None),
            handles: Rc::new(()),
            was_nonblocking: false,
            socket,
        }
    }

    /// Another handle to the same socket, of which `socket` is a duplicate.
    pub(super) fn duplicate(&self, socket: S) -> Self {
        Io {
            registration: RefCell::new(None),
            read_timeout: self.read_timeout.clone(),
            write_timeout: self.write_timeout.clone(),
            handles: Rc::clone(&self.handles),
            was_nonblocking: self.was_nonblocking,
            socket,
        }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Takes over a socket of std, in whatever mode it is.
    pub(super) fn from_std_socket(socket: S) -> io::Result<Self> {
        let was_nonblocking = fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        ioctl_fionbio(&socket, true)?;
        Ok(Io { was_nonblocking, ..Io::new(socket) })
    }

    /// The socket, in the mode that it came in, if this is the only handle to it: all share that.
    pub(super) fn restore_mode(self) -> io::Result<S> {
        if Rc::strong_count(&self.handles) == 1 && !self.was_nonblocking {
            ioctl_fionbio(&self.socket, false)?;
        }
        Ok(self.socket)
    }

    pub(super) fn timeout(&self, direction: Direction) -> &Cell<Option<Duration>> {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }

    /// Sets how long one call may wait; as in std a limit of zero is refused.
    pub(super) fn set_timeout(&self, direction: Direction, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time limit of zero is no limit"));
        }
        self.timeout(direction).set(limit);
        Ok(())
    }

    /// Tries `attempt` until it does not say "would block", with the socket's time limit.
    pub(super) fn retry<T>(
        &self,
        direction: Direction,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.retry_by(direction, attempt, |deadline| self.wait(direction, deadline))
    }

    /// As `retry`, with another way to wait.
    pub(super) fn retry_by<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
        wait: impl Fn(Option<Instant>) -> io::Result<()>,
    ) -> io::Result<T> {
        if let Location::Fiber(core, fiber) = scheduler::location() {
            core.count_call(fiber);
        }
        let mut deadline = None;
        loop {
            match attempt(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return result,
            }
            // The clock is read only by calls that have to wait.
            if deadline.is_none() {
                deadline = self.timeout(direction).get().and_then(|limit| Instant::now().checked_add(limit));
            }
            wait(deadline)?;
        }
    }

    /// Waits after "would block".
    pub(super) fn wait(&self, direction: Direction, deadline: Option<Instant>) -> io::Result<()> {
        match scheduler::location() {
            Location::Fiber(core, fiber) => {
                let source = self.register(&core, direction)?;
                core.wait_source(fiber, self.socket.as_fd(), source, direction.interest(), deadline, None)
            }
            Location::Unwinding => Err(cannot_wait()),
            Location::Thread => block_thread(self.socket.as_fd(), direction.interest(), deadline),
        }
    }

    fn register(&self, core: &Rc<Core>, direction: Direction) -> io::Result<Key> {
        let mut registration = self.registration.borrow_mut();
        if let Some(known) = registration.as_ref().filter(|known| known.core.as_ptr() == Rc::as_ptr(core)) {
            return Ok(known.source);
        }
        let source = core.poller.borrow_mut().adopt(self.socket.as_fd().as_raw_fd(), direction.interest())?;
        *registration = Some(Registration { core: Rc::downgrade(core), source });
        Ok(source)
    }
}

/// What both types of streams have; `Read` and `Write` also for a reference to one.
macro_rules! stream_io {
    ($stream:ident) => {
        impl $stream {
            /// The other end's address.
            ///
            /// # Errors
            ///
            /// `NotConnected`.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.socket().peer_addr()
            }

            /// Closes one direction or both: `Write` tells the peer that no more will come, and still reads.
            ///
            /// # Errors
            ///
            /// `NotConnected`.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.socket().shutdown(how)
            }

            /// Reads without taking; suspends until there is something.
            ///
            /// # Errors
            ///
            /// As reading.
            pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                use rustix::net::{RecvFlags, recv};
                self.0.retry(Direction::Read, |socket| {
                    let (read, _) = recv(socket, &mut *buffer, RecvFlags::PEEK)?;
                    Ok(read)
                })
            }
        }

        impl Read for &$stream {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |mut socket| socket.read(buffer))
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |mut socket| socket.read_vectored(buffers))
            }
        }

        impl Write for &$stream {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |mut socket| socket.write(bytes))
            }

            fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |mut socket| socket.write_vectored(slices))
            }

            /// Does nothing: a socket has no buffer to flush.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Read for $stream {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }

        impl Write for $stream {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                (&*self).write(bytes)
            }

            fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(slices)
            }

            /// Does nothing: a socket has no buffer to flush.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// What both types of listeners have.
macro_rules! listener_io {
    ($listener:ident, $std:ty, $stream:ident) => {
        impl $listener {
            fn listening(listener: $std) -> io::Result<Self> {
                // A second listen(2) only sets the backlog, of which std takes no account.
                rustix::net::listen(&listener, BACKLOG)?;
                Self::fresh(listener)
            }

            /// The next connection; suspends until there is one. An error such as too many open files is the
            /// caller's to wait out: the listener stays good.
            ///
            /// # Errors
            ///
            /// `TimedOut` after the read time limit, or what accept(2) says.
            pub fn accept(&self) -> io::Result<($stream, SocketAddr)> {
                let (stream, peer) = self.0.retry(Direction::Read, <$std>::accept)?;
                Ok(($stream::fresh(stream)?, peer))
            }

            /// The connections as they come; never ends.
            pub fn incoming(&self) -> impl Iterator<Item = io::Result<$stream>> + '_ {
                std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
            }
        }
    };
}

/// What both types of datagram sockets have.
macro_rules! datagram_io {
    ($socket:ident) => {
        impl $socket {
            /// Sends one datagram to the peer set by [`connect`](Self::connect); suspends while there is no room.
            ///
            /// # Errors
            ///
            /// What the kernel says.
            pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |socket| socket.send(bytes))
            }

            /// Receives one datagram, once connected from its peer alone; what does not fit into the buffer is lost.
            ///
            /// # Errors
            ///
            /// What the kernel says.
            pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |socket| socket.recv(buffer))
            }

            /// Receives one datagram and who sent it; what does not fit into the buffer is lost.
            ///
            /// # Errors
            ///
            /// What the kernel says.
            pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.0.retry(Direction::Read, |socket| socket.recv_from(buffer))
            }

            /// The peer set by [`connect`](Self::connect).
            ///
            /// # Errors
            ///
            /// `NotConnected`.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.socket().peer_addr()
            }
        }
    };
}

/// What every socket type has: its address, time limits, the way from and to std, its descriptor.
macro_rules! socket_basics {
    ($socket:ident, $std:ty) => {
        impl $socket {
            /// Takes over a socket of std with its time limits, and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// The kernel refuses the mode.
            pub fn from_std(socket: $std) -> io::Result<Self> {
                use rustix::net::sockopt::{Timeout, socket_timeout};
                let ours = $socket(Io::from_std_socket(socket)?);
                ours.0.timeout(Direction::Read).set(socket_timeout(&ours, Timeout::Recv)?);
                ours.0.timeout(Direction::Write).set(socket_timeout(&ours, Timeout::Send)?);
                Ok(ours)
            }

            /// One that has no time limits yet: to ask for them costs two system calls.
            fn fresh(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok($socket(Io::new(socket)))
            }

            /// Lets go of the socket, which then blocks, unless it came from std as one that does not, and may go to another
            /// thread. While there are clones of it, which share its mode, it stays non-blocking; they go on as before. Of clones
            /// that std made nothing is known here: take over one that is non-blocking already. The time limits that it has then
            /// are those with which it came from std.
            ///
            /// # Errors
            ///
            /// The kernel refuses the mode.
            pub fn into_std(self) -> io::Result<$std> {
                self.0.restore_mode()
            }

            /// Another handle to the same socket. The time limits are each handle's own.
            ///
            /// # Errors
            ///
            /// No descriptor is left.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok($socket(self.0.duplicate(self.0.socket().try_clone()?)))
            }

            /// This end's address: for a listener, where it listens.
            ///
            /// # Errors
            ///
            /// What the kernel says.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.socket().local_addr()
            }

            /// The error that is pending on the socket, which this clears.
            ///
            /// # Errors
            ///
            /// The kernel refuses to tell.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.socket().take_error()
            }

            /// Sets how long a call that reads or accepts may wait before it fails with `TimedOut`. The default is
            /// `None`: for ever.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Read, limit)
            }

            /// Sets how long a call that writes may wait before it fails with `TimedOut`. The default is `None`: for
            /// ever.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Write, limit)
            }

            /// The limit set by [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            ///
            /// None; it is as in std.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Read).get())
            }

            /// The limit set by [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            ///
            /// None; it is as in std.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Write).get())
            }
        }

        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.socket().as_fd()
            }
        }
    };
}

pub(super) use {datagram_io, listener_io, socket_basics, stream_io};
