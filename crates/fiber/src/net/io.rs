//! Shared code of all sockets: try, wait, try again.

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

/// Length of the queue of accepted connections. The kernel limits it to `somaxconn`. With the 128 of std,
/// clients of a burst wait a second for their next try.
pub(super) const BACKLOG: i32 = 4_096;

/// A non-blocking std socket with its timeouts and its registration in the poller.
pub(super) struct Io<S> {
    // Dropped before the socket: deregister, then close.
    registration: RefCell<Option<Registration>>,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
    /// Counts the handles to one socket.
    handles: Rc<()>,
    /// Whether the std socket was already non-blocking. It may be shared with code that needs that.
    was_nonblocking: bool,
    socket: S,
}

/// Borrows nothing, because writing the text may suspend the fiber.
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
    /// Wraps a socket that is already non-blocking.
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

    /// Creates another handle to the same socket. `socket` is a duplicate of it.
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

    /// Wraps a std socket in any mode.
    pub(super) fn from_std_socket(socket: S) -> io::Result<Self> {
        let was_nonblocking = fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        ioctl_fionbio(&socket, true)?;
        Ok(Io { was_nonblocking, ..Io::new(socket) })
    }

    /// Returns the socket. Restores its original mode if this is the only handle, because all handles share the
    /// mode.
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

    /// Sets how long one call may wait. As in std, zero is rejected.
    pub(super) fn set_timeout(&self, direction: Direction, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "invalid timeout of zero: use None for no limit",
            ));
        }
        self.timeout(direction).set(limit);
        Ok(())
    }

    /// Repeats `attempt` until it does not return "would block", within the timeout of the socket.
    pub(super) fn retry<T>(
        &self,
        direction: Direction,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.retry_by(direction, attempt, |deadline| self.wait(direction, deadline))
    }

    /// Repeats `attempt` with another way to wait.
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
            // Only calls that have to wait read the clock.
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

/// Methods of both stream types. `Read` and `Write` are also implemented for references.
macro_rules! stream_io {
    ($stream:ident) => {
        impl $stream {
            /// Returns the address of the peer.
            ///
            /// # Errors
            ///
            /// `NotConnected`.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.socket().peer_addr()
            }

            /// Closes one direction or both. After `Write`, the peer sees the end of the stream, and reading
            /// still works.
            ///
            /// # Errors
            ///
            /// `NotConnected`.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.socket().shutdown(how)
            }

            /// Reads without removing the bytes. Suspends until bytes arrive.
            ///
            /// # Errors
            ///
            /// Same as reading.
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

/// Methods of both listener types.
macro_rules! listener_io {
    ($listener:ident, $std:ty, $stream:ident) => {
        impl $listener {
            fn listening(listener: $std) -> io::Result<Self> {
                // A second listen(2) only sets the backlog, which std does not let us choose.
                rustix::net::listen(&listener, BACKLOG)?;
                Self::fresh(listener)
            }

            /// Accepts the next connection. Suspends until there is one. After an error such as too many open
            /// files, wait before you call it again. The listener stays valid.
            ///
            /// # Errors
            ///
            /// `TimedOut` after the read timeout, or the error of accept(2).
            pub fn accept(&self) -> io::Result<($stream, SocketAddr)> {
                let (stream, peer) = self.0.retry(Direction::Read, <$std>::accept)?;
                Ok(($stream::fresh(stream)?, peer))
            }

            /// Returns an iterator over the connections. It never ends.
            pub fn incoming(&self) -> impl Iterator<Item = io::Result<$stream>> + '_ {
                std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
            }
        }
    };
}

/// Methods of both datagram socket types.
macro_rules! datagram_io {
    ($socket:ident) => {
        impl $socket {
            /// Sends one datagram to the peer set by [`connect`](Self::connect). Suspends while the buffer is
            /// full.
            ///
            /// # Errors
            ///
            /// Returns the error of the kernel.
            pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |socket| socket.send(bytes))
            }

            /// Receives one datagram. A connected socket receives only from its peer. Bytes that do not fit
            /// into the buffer are lost.
            ///
            /// # Errors
            ///
            /// Returns the error of the kernel.
            pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |socket| socket.recv(buffer))
            }

            /// Receives one datagram and the address of its sender. Bytes that do not fit into the buffer are
            /// lost.
            ///
            /// # Errors
            ///
            /// Returns the error of the kernel.
            pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.0.retry(Direction::Read, |socket| socket.recv_from(buffer))
            }

            /// Returns the peer set by [`connect`](Self::connect).
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

/// Methods of every socket type: address, timeouts, conversion from and to std, and the descriptor.
macro_rules! socket_basics {
    ($socket:ident, $std:ty) => {
        impl $socket {
            /// Wraps a std socket, keeps its timeouts, and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// Fails if the kernel rejects the mode.
            pub fn from_std(socket: $std) -> io::Result<Self> {
                use rustix::net::sockopt::{Timeout, socket_timeout};
                let ours = $socket(Io::from_std_socket(socket)?);
                ours.0.timeout(Direction::Read).set(socket_timeout(&ours, Timeout::Recv)?);
                ours.0.timeout(Direction::Write).set(socket_timeout(&ours, Timeout::Send)?);
                Ok(ours)
            }

            /// Wraps a new socket without timeouts. Reading the timeouts would cost two system calls.
            fn fresh(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok($socket(Io::new(socket)))
            }

            /// Returns the std socket, which may move to another thread. The socket blocks again, unless it was
            /// non-blocking when it came from std. If clones of this type exist, they share the mode, so the
            /// socket stays non-blocking and the clones keep working. Clones made by std are unknown here. If
            /// there are any, wrap a socket that is already non-blocking. The timeouts are those that the
            /// socket had when it came from std.
            ///
            /// # Errors
            ///
            /// Fails if the kernel rejects the mode.
            pub fn into_std(self) -> io::Result<$std> {
                self.0.restore_mode()
            }

            /// Creates another handle to the same socket. Each handle has its own timeouts.
            ///
            /// # Errors
            ///
            /// Fails if no descriptor is left.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok($socket(self.0.duplicate(self.0.socket().try_clone()?)))
            }

            /// Returns the local address. For a listener, it is the address that it listens on.
            ///
            /// # Errors
            ///
            /// Returns the error of the kernel.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.socket().local_addr()
            }

            /// Returns and clears the pending error of the socket.
            ///
            /// # Errors
            ///
            /// Returns the error of the kernel if the option cannot be read.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.socket().take_error()
            }

            /// Sets how long a read or accept may wait. When exceeded: `TimedOut`. Default: `None`, no limit.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Read, limit)
            }

            /// Sets how long a write may wait. When exceeded: `TimedOut`. Default: `None`, no limit.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Write, limit)
            }

            /// Returns the limit set by [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            ///
            /// Never fails. The type is that of std.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Read).get())
            }

            /// Returns the limit set by [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            ///
            /// Never fails. The type is that of std.
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
