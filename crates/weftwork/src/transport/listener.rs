//! A listening socket: made, asked for connections, and cleaned up.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::address::Address;
use super::stream::Stream;
use crate::error::Error;

/// A socket that listens, and does not block.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    address: Address,
    /// The path of a Unix socket is removed by the listener that made it.
    made_path: AtomicBool,
    /// Its connections begin with a PROXY header.
    is_proxied: bool,
}

impl Listener {
    pub(crate) fn bind(address: &Address, is_proxied: bool) -> Result<Listener, Error> {
        let bound = match address {
            Address::Tcp(address) => bind_tcp(*address, false),
            Address::Unix(path) => bind_unix(path),
        };
        let failed = |error: rustix::io::Errno| explain(address, error.into());
        let fd = bound.map_err(failed)?;
        let address = match address {
            Address::Tcp(_) => {
                Address::Tcp(net::getsockname(&fd).and_then(SocketAddr::try_from).map_err(failed)?)
            }
            Address::Unix(path) => Address::Unix(path.clone()),
        };
        Ok(Listener { fd, address, made_path: AtomicBool::new(true), is_proxied })
    }

    /// From now on the kernel takes connections, and keeps this many for us.
    pub(crate) fn listen(&self, backlog: u32) -> Result<(), Error> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        net::listen(&self.fd, backlog).map_err(|error| explain(&self.address, error.into()))
    }

    /// One more listener at the same address: with a queue of its own where the kernel has that (TCP and
    /// `SO_REUSEPORT`), else the same socket once more.
    ///
    /// The first listener was bound without the option, so that an address in use is an error as ever. It gets
    /// the option only now. No two servers can come to share a port by accident: for that, both would have to
    /// ask before they bind.
    pub(crate) fn sibling(&self, backlog: u32) -> io::Result<Listener> {
        let (address, is_proxied) = (self.address.clone(), self.is_proxied);
        if let Address::Tcp(tcp) = self.address {
            let bound = sockopt::set_socket_reuseport(&self.fd, true).and_then(|()| bind_tcp(tcp, true));
            match bound {
                Ok(fd) => {
                    net::listen(&fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
                    return Ok(Listener { fd, address, made_path: AtomicBool::new(false), is_proxied });
                }
                Err(error) => log::info!("the listeners at {address} share one queue: {error}"),
            }
        }
        Ok(Listener { fd: self.fd.try_clone()?, address, made_path: AtomicBool::new(false), is_proxied })
    }

    /// The real address: with the port that the kernel chose where 0 was asked for.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Takes no more connections, and leaves its address to others, though somebody still holds it: a loop that is
    /// stuck in a handler, say.
    pub(crate) fn shut(&self) {
        // Where the system does not know that for listeners, they end with the last who holds them.
        let _ = net::shutdown(&self.fd, net::Shutdown::Both);
        self.remove_path();
    }

    fn remove_path(&self) {
        if let Address::Unix(path) = &self.address
            && self.made_path.swap(false, Ordering::Relaxed)
        {
            // Somebody may have removed it before us, which is as good.
            let _ = std::fs::remove_file(path);
        }
    }

    pub(crate) fn is_proxied(&self) -> bool {
        self.is_proxied
    }

    /// From now on its connections begin with a PROXY header.
    pub(crate) fn expect_proxies(&mut self) {
        self.is_proxied = true;
    }

    /// The next connection in the queue; `WouldBlock` when it is empty.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        loop {
            match net::acceptfrom_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Ok((Stream::new(fd), peer));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_path();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn bind_tcp(address: SocketAddr, shares_port: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = socket(family)?;
    // A restarted server must not wait for the old one's connections in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if shares_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    // Accepted sockets inherit it on Linux: one system call for all of them. Responses leave whole, so
    // Nagle's algorithm could only delay them.
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let SocketAddr::V6(v6) = address {
        // `[::]` takes IPv4 as well, as users of `:8080` expect; a given IPv6 address is only that.
        sockopt::set_ipv6_v6only(&fd, !v6.ip().is_unspecified())?;
    }
    net::bind(&fd, &address)?;
    Ok(fd)
}

fn bind_unix(path: &Path) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = socket(AddressFamily::UNIX)?;
    match net::bind(&fd, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_stale(&address) => {
            // Left behind by a server that was killed: nobody answers there.
            rustix::fs::unlink(path)?;
            net::bind(&fd, &address)?;
        }
        done => done?,
    }
    Ok(fd)
}

fn is_stale(address: &SocketAddrUnix) -> bool {
    let probe = socket(AddressFamily::UNIX);
    probe.is_ok_and(|probe| net::connect(&probe, address) == Err(rustix::io::Errno::CONNREFUSED))
}

#[cfg(not(target_vendor = "apple"))]
fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

#[cfg(target_vendor = "apple")]
fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let fd = net::socket(family, SocketType::STREAM, None)?;
    rustix::io::ioctl_fioclex(&fd)?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

fn explain(address: &Address, error: io::Error) -> Error {
    let cure = match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, _) => ": another program listens there; stop it or choose another port",
        (io::ErrorKind::PermissionDenied, Address::Tcp(tcp)) if tcp.port() < 1024 => {
            ": ports below 1024 need a privilege; choose a higher one"
        }
        (io::ErrorKind::AddrNotAvailable, _) => ": no interface of this machine has that address",
        (io::ErrorKind::NotFound, Address::Unix(_)) => ": the folder of the socket does not exist",
        _ => "",
    };
    Error::io(format!("cannot listen at {address}{cure}"), error)
}
