//! Unix domain sockets.

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

/// A Unix stream like [`std::os::unix::net::UnixStream`], which suspends the fiber.
#[derive(Debug)]
pub struct UnixStream(Io<net::UnixStream>);

/// A Unix listener like [`std::os::unix::net::UnixListener`], which suspends the fiber.
#[derive(Debug)]
pub struct UnixListener(Io<net::UnixListener>);

/// A Unix datagram socket like [`std::os::unix::net::UnixDatagram`], which suspends the fiber.
#[derive(Debug)]
pub struct UnixDatagram(Io<net::UnixDatagram>);

socket_basics!(UnixStream, net::UnixStream);
socket_basics!(UnixListener, net::UnixListener);
socket_basics!(UnixDatagram, net::UnixDatagram);
stream_io!(UnixStream);
listener_io!(UnixListener, net::UnixListener, UnixStream);
datagram_io!(UnixDatagram);

/// Time between two tries to connect to a listener with a full backlog. The kernel has no event for that.
const FULL_BACKLOG_PAUSE: Duration = Duration::from_millis(1);

fn pause() -> io::Result<()> {
    if let Location::Unwinding = scheduler::location() {
        return Err(cannot_wait());
    }
    sleep(FULL_BACKLOG_PAUSE);
    Ok(())
}

impl UnixStream {
    /// Connects to the socket at `path`. While its backlog is full, tries again every millisecond.
    ///
    /// # Errors
    ///
    /// Returns the error of connect(2).
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::connect_by(|| mio::net::UnixStream::connect(path))
    }

    /// Connects like [`connect`](UnixStream::connect) to an address, which need not be a path. Linux has
    /// abstract addresses.
    ///
    /// # Errors
    ///
    /// Returns the error of connect(2).
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::connect_by(|| mio::net::UnixStream::connect_addr(address))
    }

    fn connect_by(connect: impl Fn() -> io::Result<mio::net::UnixStream>) -> io::Result<Self> {
        loop {
            match connect() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause()?,
                // Connected: within one kernel, no answer of the peer is needed.
                result => return Ok(UnixStream(Io::new(result?.into()))),
            }
        }
    }

    /// Creates two connected sockets.
    ///
    /// # Errors
    ///
    /// Fails if no descriptor is left.
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
    /// `AddrInUse` if the path exists, or the error of bind(2).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind(path)?)
    }

    /// Binds like [`bind`](UnixListener::bind) to an address, which need not be a path. Linux has abstract
    /// addresses.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the address is in use, or the error of bind(2).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind_addr(address)?)
    }
}

impl UnixDatagram {
    /// Binds a socket at `path`, which must not exist yet.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the path exists, or the error of bind(2).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::bind(path)?)
    }

    /// Binds like [`bind`](UnixDatagram::bind) to an address, which need not be a path. Linux has abstract
    /// addresses.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the address is in use, or the error of bind(2).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::bind_addr(address)?)
    }

    /// Creates a socket without a path, to send from.
    ///
    /// # Errors
    ///
    /// Fails if no descriptor is left.
    pub fn unbound() -> io::Result<Self> {
        Self::fresh(net::UnixDatagram::unbound()?)
    }

    /// Creates two connected sockets.
    ///
    /// # Errors
    ///
    /// Fails if no descriptor is left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = net::UnixDatagram::pair()?;
        Ok((Self::fresh(one)?, Self::fresh(two)?))
    }

    /// Sets the peer of [`send`](UnixDatagram::send).
    ///
    /// # Errors
    ///
    /// Returns the error of connect(2).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.socket().connect(path)
    }

    /// Sets the peer like [`connect`](UnixDatagram::connect), from an address.
    ///
    /// # Errors
    ///
    /// Returns the error of connect(2).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.0.socket().connect_addr(address)
    }

    /// Sends one datagram to the socket at `path`. While its queue is full, tries again every millisecond.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel. `TimedOut` if the queue stays full for the time of
    /// [`set_write_timeout`](UnixDatagram::set_write_timeout).
    pub fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_by(|socket| socket.send_to(bytes, path))
    }

    /// Sends like [`send_to`](UnixDatagram::send_to) to an address, such as the sender's address from
    /// [`recv_from`](UnixDatagram::recv_from).
    ///
    /// # Errors
    ///
    /// Same as [`send_to`](UnixDatagram::send_to).
    pub fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.send_by(|socket| socket.send_to_addr(bytes, address))
    }

    fn send_by(&self, send: impl FnMut(&net::UnixDatagram) -> io::Result<usize>) -> io::Result<usize> {
        // Readiness of our own socket says nothing about the queue of a peer that it is not connected to.
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
