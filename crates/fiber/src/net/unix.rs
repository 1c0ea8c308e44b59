//! How does a fiber speak through sockets of the file system?

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use super::io::{BACKLOG, Io, datagram_io, listener_io, socket_basics, stream_io};
use crate::poller::Direction;
use crate::scheduler::{self, Location};
use crate::time::sleep;
use crate::wait::cannot_wait;

/// A connection; [`std::os::unix::net::UnixStream`] that suspends the fiber.
#[derive(Debug)]
pub struct UnixStream(Io<net::UnixStream>);

/// A server socket; [`std::os::unix::net::UnixListener`] that suspends the fiber.
#[derive(Debug)]
pub struct UnixListener(Io<net::UnixListener>);

/// A datagram socket; [`std::os::unix::net::UnixDatagram`] that suspends the fiber.
#[derive(Debug)]
pub struct UnixDatagram(Io<net::UnixDatagram>);

socket_basics!(UnixStream, net::UnixStream);
socket_basics!(UnixListener, net::UnixListener);
socket_basics!(UnixDatagram, net::UnixDatagram);
stream_io!(UnixStream);
listener_io!(UnixListener, net::UnixListener, UnixStream);
datagram_io!(UnixDatagram);

/// Between two tries to connect to a listener whose backlog is full: the kernel offers nothing to wait for.
const FULL_BACKLOG_PAUSE: Duration = Duration::from_millis(1);

fn pause() -> io::Result<()> {
    if let Location::Unwinding = scheduler::location() {
        return Err(cannot_wait());
    }
    sleep(FULL_BACKLOG_PAUSE);
    Ok(())
}

impl UnixStream {
    /// Connects to the socket at `path`; while its backlog is full, tries again every millisecond.
    ///
    /// # Errors
    ///
    /// What connect(2) says.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::connect_by(|| mio::net::UnixStream::connect(path))
    }

    /// [`connect`](UnixStream::connect) to an address, which need not be a path: Linux has abstract ones.
    ///
    /// # Errors
    ///
    /// What connect(2) says.
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::connect_by(|| mio::net::UnixStream::connect_addr(address))
    }

    fn connect_by(connect: impl Fn() -> io::Result<mio::net::UnixStream>) -> io::Result<Self> {
        loop {
            match connect() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause()?,
                // It stands: between two sockets of one kernel there is nobody else to ask.
                result => return Ok(UnixStream(Io::new(result?.into()))),
            }
        }
    }

    /// Two connected ends.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = net::UnixStream::pair()?;
        Ok((Self::fresh(one)?, Self::fresh(two)?))
    }
}

impl UnixListener {
    /// Listens at `path`, which must not exist yet, with a backlog of 4,096.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the path exists, or what bind(2) says.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind(path)?)
    }

    /// [`bind`](UnixListener::bind) to an address, which need not be a path: Linux has abstract ones.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if somebody has it, or what bind(2) says.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind_addr(address)?)
    }
}

impl UnixDatagram {
    /// A socket at `path`, which must not exist yet.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the path exists, or what bind(2) says.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::bind(path)?)
    }

    /// [`bind`](UnixDatagram::bind) to an address, which need not be a path: Linux has abstract ones.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if somebody has it, or what bind(2) says.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::bind_addr(address)?)
    }

    /// A socket without a path, to send from.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn unbound() -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::unbound()?)
    }

    /// Two connected ends.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = net::UnixDatagram::pair()?;
        Ok((Self::fresh(one)?, Self::fresh(two)?))
    }

    /// Sets the peer of [`send`](UnixDatagram::send).
    ///
    /// # Errors
    ///
    /// What connect(2) says.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.socket().connect(path)
    }

    /// [`connect`](UnixDatagram::connect) to an address.
    ///
    /// # Errors
    ///
    /// What connect(2) says.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.0.socket().connect_addr(address)
    }

    /// Sends one datagram to the socket at `path`; tries again every millisecond while that one's queue is full.
    ///
    /// # Errors
    ///
    /// What the kernel says; `TimedOut` where the queue stays full for the time of
    /// [`set_write_timeout`](UnixDatagram::set_write_timeout).
    pub fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_by(|socket| socket.send_to(bytes, path))
    }

    /// [`send_to`](UnixDatagram::send_to) for an address, such as [`recv_from`](UnixDatagram::recv_from) gives of who asks.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.send_by(|socket| socket.send_to_addr(bytes, address))
    }

    fn send_by(&self, send: impl FnMut(&net::UnixDatagram) -> io::Result<usize>) -> io::Result<usize> {
        // Readiness of our own socket says nothing about the queue of a peer we are not connected to.
        self.0.retry_by(Direction::Write, send, |deadline| {
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            pause()
        })
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    ///
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.socket().shutdown(how)
    }
}
