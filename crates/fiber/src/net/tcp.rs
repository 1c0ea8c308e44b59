//! How does a fiber speak TCP?

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::BACKLOG;
use super::io::{Io, socket_basics, stream_io};
use super::lookup::{Resolve, try_each};
use crate::poller::Direction;

/// A TCP connection; [`std::net::TcpStream`] that suspends the fiber.
#[derive(Debug)]
pub struct TcpStream(Io<net::TcpStream>);

/// A TCP server socket; [`std::net::TcpListener`] that suspends the fiber.
#[derive(Debug)]
pub struct TcpListener(Io<net::TcpListener>);

socket_basics!(TcpStream, net::TcpStream);
socket_basics!(TcpListener, net::TcpListener);
stream_io!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    ///
    /// As the name look-up, or the last address's error.
    pub fn connect(addresses: impl Resolve) -> io::Result<Self> {
        try_each(addresses, |address| connect(address, None))
    }

    /// Connects to one address, and waits no longer than `limit`.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `InvalidInput` for a limit of zero, or what the kernel says.
    pub fn connect_timeout(address: &SocketAddr, limit: Duration) -> io::Result<Self> {
        if limit.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time limit of zero is no limit"));
        }
        connect(*address, Instant::now().checked_add(limit))
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket().peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket().local_addr()
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
        self.0.retry(Direction::Read, |socket| socket.peek(buffer))
    }

    /// Sets whether small writes go out at once (`TCP_NODELAY`); the kernel's default is no.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.socket().set_nodelay(nodelay)
    }

    /// Whether small writes go out at once.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.socket().nodelay()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_ttl(ttl)
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.socket().ttl()
    }

    /// Sets after how long a silence the kernel asks whether the peer is still there (`SO_KEEPALIVE`, with
    /// `TCP_KEEPIDLE` on Linux, whole seconds); `None`, the default, never.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_keepalive(self, idle.is_some())?;
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        if let Some(idle) = idle {
            sockopt::set_tcp_keepidle(self, idle)?;
        }
        Ok(())
    }

    /// Whether the kernel asks after a silent peer.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(sockopt::socket_keepalive(self)?)
    }
}

fn connect(address: SocketAddr, deadline: Option<Instant>) -> io::Result<TcpStream> {
    let stream = TcpStream(Io::new(mio::net::TcpStream::connect(address)?.into()));
    loop {
        stream.0.wait(Direction::Write, deadline)?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            // The poller may report a socket before its connection stands.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            result => return result.map(|_| stream),
        }
    }
}

impl TcpListener {
    /// Listens on the first of the addresses that can be had, with a backlog of 4,096; port 0 lets the kernel
    /// choose. `SO_REUSEADDR` is set, as by std.
    ///
    /// # Errors
    ///
    /// As the name look-up, or the last address's error.
    pub fn bind(addresses: impl Resolve) -> io::Result<Self> {
        let listener = try_each(addresses, net::TcpListener::bind)?;
        // A second listen(2) only sets the backlog, of which std takes no account.
        rustix::net::listen(&listener, BACKLOG)?;
        Self::from_std(listener)
    }

    /// The next connection; suspends until there is one. An error such as too many open files is the caller's to
    /// wait out: the listener stays good.
    ///
    /// # Errors
    ///
    /// `TimedOut` after the read time limit, or what accept(2) says.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.retry(Direction::Read, net::TcpListener::accept)?;
        Ok((TcpStream::from_std(stream)?, peer))
    }

    /// The connections as they come; never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket().local_addr()
    }

    /// Sets how many routers a packet of its connections may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_ttl(ttl)
    }

    /// How many routers a packet of its connections may pass.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.socket().ttl()
    }
}

/// The connections of a [`TcpListener`], as they come.
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
