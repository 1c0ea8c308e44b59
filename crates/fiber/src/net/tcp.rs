//! TCP streams and listeners.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::io::{BACKLOG, Io, listener_io, socket_basics, stream_io};
use super::lookup::{Resolve, try_each};
use crate::poller::Direction;

/// A TCP connection like [`std::net::TcpStream`], which suspends the fiber.
#[derive(Debug)]
pub struct TcpStream(Io<net::TcpStream>);

/// A TCP listener like [`std::net::TcpListener`], which suspends the fiber.
#[derive(Debug)]
pub struct TcpListener(Io<net::TcpListener>);

socket_basics!(TcpStream, net::TcpStream);
socket_basics!(TcpListener, net::TcpListener);
stream_io!(TcpStream);
listener_io!(TcpListener, net::TcpListener, TcpStream);

impl TcpStream {
    /// Connects to the first address that accepts.
    ///
    /// # Errors
    ///
    /// Returns the error of the name look-up, or of the last address.
    pub fn connect(addresses: impl Resolve) -> io::Result<Self> {
        try_each(addresses, |address| connect(address, None))
    }

    /// Connects to one address within `limit`.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `InvalidInput` for a limit of zero, or the error of the kernel.
    pub fn connect_timeout(address: &SocketAddr, limit: Duration) -> io::Result<Self> {
        if limit.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "invalid timeout of zero: use None for no limit",
            ));
        }
        connect(*address, Instant::now().checked_add(limit))
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`). Default of the kernel: `false`.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.socket().set_nodelay(nodelay)
    }

    /// Returns whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.socket().nodelay()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_ttl(ttl)
    }

    /// Returns how many routers a packet may pass.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.socket().ttl()
    }

    /// Sets the idle time after which the kernel checks whether the peer is alive (`SO_KEEPALIVE`, with
    /// `TCP_KEEPIDLE` on Linux, in whole seconds). Default: `None`, never.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        if let Some(idle) = idle {
            sockopt::set_tcp_keepidle(self, idle)?;
        }
        Ok(sockopt::set_socket_keepalive(self, idle.is_some())?)
    }

    /// Returns whether the kernel checks an idle peer.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
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
            // The poller may report a socket before it is connected.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            result => return result.map(|_| stream),
        }
    }
}

impl TcpListener {
    /// Listens on the first available address, with a backlog of 4,096. With port 0, the kernel chooses the
    /// port. `SO_REUSEADDR` is set, as in std.
    ///
    /// # Errors
    ///
    /// Returns the error of the name look-up, or of the last address.
    pub fn bind(addresses: impl Resolve) -> io::Result<Self> {
        Self::listening(try_each(addresses, net::TcpListener::bind)?)
    }

    /// Sets how many routers a packet of its connections may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_ttl(ttl)
    }

    /// Returns how many routers a packet of its connections may pass.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.socket().ttl()
    }
}
