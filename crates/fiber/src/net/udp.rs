//! UDP sockets.

use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::io::{Io, datagram_io, socket_basics};
use super::lookup::{Resolve, try_each};
use crate::poller::Direction;

/// A UDP socket like [`std::net::UdpSocket`], which suspends the fiber.
#[derive(Debug)]
pub struct UdpSocket(Io<net::UdpSocket>);

socket_basics!(UdpSocket, net::UdpSocket);
datagram_io!(UdpSocket);

impl UdpSocket {
    /// Binds to the first available address.
    ///
    /// # Errors
    ///
    /// Returns the error of the name look-up, or of the last address.
    pub fn bind(addresses: impl Resolve) -> io::Result<Self> {
        Self::fresh(try_each(addresses, net::UdpSocket::bind)?)
    }

    /// Sets the peer of [`send`](UdpSocket::send) and [`recv`](UdpSocket::recv). Only its datagrams are
    /// received.
    ///
    /// # Errors
    ///
    /// Returns the error of the name look-up, or of the last address.
    pub fn connect(&self, addresses: impl Resolve) -> io::Result<()> {
        try_each(addresses, |address| self.0.socket().connect(address))
    }

    /// Sends one datagram to the first of the addresses.
    ///
    /// # Errors
    ///
    /// Returns the error of the name look-up, or of the kernel.
    pub fn send_to(&self, bytes: &[u8], addresses: impl Resolve) -> io::Result<usize> {
        let first = addresses.resolve()?.into_iter().next();
        let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let address = first.ok_or_else(no_address)?;
        self.0.retry(Direction::Write, |socket| socket.send_to(bytes, address))
    }

    /// Receives like [`recv`](UdpSocket::recv), and keeps the datagram in the queue.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.retry(Direction::Read, |socket| socket.peek(buffer))
    }

    /// Receives like [`recv_from`](UdpSocket::recv_from), and keeps the datagram in the queue.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.retry(Direction::Read, |socket| socket.peek_from(buffer))
    }

    /// Sets how many routers a datagram may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_ttl(ttl)
    }

    /// Returns how many routers a datagram may pass.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.socket().ttl()
    }

    /// Sets whether the socket may send to broadcast addresses (`SO_BROADCAST`). Default of the kernel:
    /// `false`.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.0.socket().set_broadcast(broadcast)
    }

    /// Returns whether the socket may send to broadcast addresses.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.socket().broadcast()
    }

    /// Joins a multicast group on the interface with this address. The unspecified address stands for any
    /// interface.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.socket().join_multicast_v4(group, interface)
    }

    /// Joins a multicast group on the interface with this index. 0 stands for any interface.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.socket().join_multicast_v6(group, interface)
    }

    /// Leaves a multicast group on this interface.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.socket().leave_multicast_v4(group, interface)
    }

    /// Leaves a multicast group on this interface.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.socket().leave_multicast_v6(group, interface)
    }

    /// Sets whether datagrams to a group are also delivered to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_multicast_loop_v4(&self, comes_back: bool) -> io::Result<()> {
        self.0.socket().set_multicast_loop_v4(comes_back)
    }

    /// Returns whether datagrams to a group are also delivered to this machine.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.socket().multicast_loop_v4()
    }

    /// Sets whether datagrams to a group are also delivered to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_multicast_loop_v6(&self, comes_back: bool) -> io::Result<()> {
        self.0.socket().set_multicast_loop_v6(comes_back)
    }

    /// Returns whether datagrams to a group are also delivered to this machine.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.socket().multicast_loop_v6()
    }

    /// Sets how many routers a packet to a group may pass (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.0.socket().set_multicast_ttl_v4(ttl)
    }

    /// Returns how many routers a packet to a group may pass.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.socket().multicast_ttl_v4()
    }
}
