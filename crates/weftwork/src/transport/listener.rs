//! Listening sockets: creation, accepting, and removal.

mod inherited;
mod tls;

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType, sockopt};

use super::address::Address;
use super::socket_file::{SocketFile, is_socket};
use super::socket_share::{Bound, SocketShare};
use super::stream::Stream;
use super::system;
#[cfg(feature = "_tls")]
use super::tls::TlsAcceptor;
use crate::error::Error;
use crate::transport::log_queue::log_line;
pub(crate) use tls::ListenerTls;

/// A listening socket in non-blocking mode.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Owns the file of a Unix socket. The field comes before the socket, so that it is dropped first.
    share: Arc<SocketShare>,
    fd: Arc<OwnedFd>,
    address: Address,
    /// Whether its connections begin with a PROXY header.
    is_proxied: bool,
    wish: ListenerTls,
    /// What its connections need to begin TLS. Without it, they are in clear.
    #[cfg(feature = "_tls")]
    tls: Option<Arc<TlsAcceptor>>,
    /// Further queues of the same address, from the process that this one replaces.
    queues: Mutex<Vec<Arc<OwnedFd>>>,
}

impl Listener {
    /// Binds a listener at each address of a name. If port 0 lets the system choose, all listeners get the same port.
    /// An address is skipped if this machine does not have it (mostly IPv6), or if another listener of this server
    /// already covers it. If no other address is left, that is an error.
    pub(crate) fn bind_all(
        addresses: &[Address],
        (is_proxied, wish): (bool, ListenerTls),
        there_are: &[Listener],
        bound: &Bound,
    ) -> Result<Vec<Listener>, Error> {
        let is_taken = |address: &&Address| {
            let is_alike = |listener: &&Listener| listener.is_proxied == is_proxied && listener.wish == wish;
            let mut alike = there_are.iter().filter(is_alike);
            alike.any(|listener| listener.takes_ipv4() && are_any_of_one_port(&listener.address, address))
        };
        let wanted: Vec<Address> = addresses.iter().filter(|address| !is_taken(address)).cloned().collect();
        // Otherwise the kernel reports the conflict at startup, as if another program listened there.
        let check = |address: &Address| match there_are.iter().find(|there| there.overlaps(address)) {
            Some(Listener { address: there, .. }) => {
                let why = format!("cannot listen at {address}: this server already listens at {there}");
                Err(Error::usage(why))
            }
            None => Ok(()),
        };
        // `0.0.0.0` after `[::]` is bound only if there is no IPv6.
        let is_spare = |address: &Address| wanted.iter().any(|other| are_any_of_one_port(other, address));
        wanted.iter().filter(|address| !is_spare(address)).try_for_each(check)?;
        let listeners = bind_each(&wanted, |address| Listener::bind(address, is_proxied, there_are, bound))?;
        listeners.iter().try_for_each(|listener| check(&listener.address))?;
        Ok(listeners.into_iter().map(|listener| listener.with_wish(wish)).collect())
    }

    pub(crate) fn bind(
        address: &Address,
        is_proxied: bool,
        there_are: &[Listener],
        bound: &Bound,
    ) -> rustix::io::Result<Listener> {
        let (file, fd, address) = match address {
            Address::Tcp(tcp) => {
                let has_ipv4 = |listener: &Listener| are_any_of_one_port(address, &listener.address);
                let fd = bind_tcp(*tcp, !there_are.iter().any(has_ipv4), false)?;
                let real = net::getsockname(&fd).and_then(SocketAddr::try_from)?;
                (None, fd, Address::Tcp(real))
            }
            Address::Unix(path) => {
                let (fd, file) = SocketFile::bind(path)?;
                (Some(file), fd, address.clone())
            }
        };
        let share = SocketShare::new(Some(bound.clone()), file, false);
        Ok(Listener::new(share, fd, address, is_proxied))
    }

    fn new(share: Arc<SocketShare>, fd: OwnedFd, address: Address, is_proxied: bool) -> Listener {
        let fd = share.add(fd);
        Listener::of(share, fd, address, is_proxied)
    }

    fn of(share: Arc<SocketShare>, fd: Arc<OwnedFd>, address: Address, is_proxied: bool) -> Listener {
        Listener {
            share,
            fd,
            address,
            is_proxied,
            wish: ListenerTls::default(),
            #[cfg(feature = "_tls")]
            tls: None,
            queues: Mutex::default(),
        }
    }

    /// Wraps a socket that was bound elsewhere. `bound` is the address that named it.
    pub(crate) fn given(fd: OwnedFd, is_proxied: bool, bound: Option<Bound>) -> Result<Listener, Error> {
        let address = Listener::prepare(&fd)?;
        Ok(Listener::new(SocketShare::new(bound, None, true), fd, address, is_proxied))
    }

    /// Checks a socket that was made elsewhere, and sets it up.
    fn prepare(fd: &OwnedFd) -> Result<Address, Error> {
        let failed = |error: rustix::io::Errno| Error::io("cannot use the given socket", error.into());
        let name = net::getsockname(fd).map_err(failed)?;
        let address = match (SocketAddr::try_from(name.clone()), SocketAddrUnix::try_from(name)) {
            (Ok(tcp), _) => Address::Tcp(tcp),
            (_, Ok(unix)) => {
                let path = unix.path().ok_or_else(|| Error::usage("a given Unix socket must have a path"))?;
                Address::Unix(OsStr::from_bytes(path.to_bytes()).into())
            }
            (Err(error), Err(_)) => return Err(failed(error)),
        };
        if sockopt::socket_type(fd).map_err(failed)? != SocketType::STREAM {
            return Err(Error::usage(format!(
                "cannot use the given socket {address}: it is not a stream socket"
            )));
        }
        if net::getpeername(fd).is_ok() {
            return Err(Error::usage(format!(
                "cannot use the given socket {address}: it is a connection and not a listening socket (systemd: Accept=no)"
            )));
        }
        rustix::io::ioctl_fionbio(fd, true).map_err(failed)?;
        // A socket that another process passes is inherited by children, which would keep the port.
        system::close_on_exec(fd).map_err(failed)?;
        if let Address::Tcp(_) = address {
            sockopt::set_tcp_nodelay(fd, true).map_err(failed)?;
        }
        Ok(address)
    }

    /// Starts listening. The kernel queues up to this many connections.
    pub(crate) fn listen(&self, backlog: u32) -> Result<(), Error> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        net::listen(&self.fd, backlog).map_err(|error| explain(&self.address, error.into()))
    }

    /// Lets connections end, even closed ones, if their peers have read nothing for twice this time.
    pub(crate) fn limit_unread(&self, write_timeout: Duration) {
        if let Address::Tcp(address) = self.address
            && let Err(error) = system::limit_unread(&self.fd, write_timeout)
        {
            log_line!(
                Info,
                "cannot set TCP_USER_TIMEOUT on {address}, unread data may stay in the kernel: {error}"
            );
        }
    }

    /// Returns one more listener at the same address. On Linux, a TCP listener gets its own queue (`SO_REUSEPORT`).
    /// Otherwise, it is the same socket.
    ///
    /// The first listener was bound without the option, so that an address in use is an error as usual. It gets the
    /// option only now. Two servers cannot share a port by accident, because both would have to set the option before
    /// they bind.
    pub(crate) fn sibling(&self, backlog: u32) -> io::Result<Listener> {
        let sibling = self.bind_sibling(backlog)?;
        #[cfg(feature = "_tls")]
        let sibling = Listener { tls: self.tls.clone(), ..sibling };
        Ok(sibling)
    }

    fn bind_sibling(&self, backlog: u32) -> io::Result<Listener> {
        let (address, is_proxied) = (self.address.clone(), self.is_proxied);
        let share = self.share.clone();
        if let Some(fd) = self.queues().pop() {
            return Ok(Listener::of(share, fd, address, is_proxied));
        }
        // The holder of a given socket also gets the connections in its queue, so there must be only one queue.
        if let Address::Tcp(tcp) = self.address
            && system::REUSEPORT_SHARES
            && !self.is_given()
        {
            let bound = sockopt::set_socket_reuseport(&self.fd, true)
                .and_then(|()| bind_tcp(tcp, self.takes_ipv4(), true));
            match bound {
                Ok(fd) => {
                    net::listen(&fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
                    return Ok(Listener::new(share, fd, address, is_proxied));
                }
                Err(error) => log_line!(Info, "the listeners at {address} share one queue: {error}"),
            }
        }
        // The same queue needs no second descriptor in a replacement.
        let fd = Arc::new(self.fd.try_clone()?);
        Ok(Listener::of(share, fd, address, is_proxied))
    }

    /// Returns the real address, with the port that the kernel chose for port 0.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Stops accepting and frees the address, even if a thread still holds the listener, such as a loop that is stuck
    /// in a handler. A given socket stays open for the process that gave it.
    pub(crate) fn shut(&self) {
        self.share.shut();
        if !self.is_given() {
            // If the system does not support this for listeners, they end with their last holder.
            let _ = net::shutdown(&self.fd, net::Shutdown::Both);
        }
    }

    fn takes_ipv4(&self) -> bool {
        sockopt::ipv6_v6only(&self.fd) == Ok(false)
    }

    /// Returns whether the kernel could not decide between two listeners for a client. `[::]` beside `0.0.0.0` is bound
    /// for IPv6 only.
    fn overlaps(&self, address: &Address) -> bool {
        match (&self.address, address) {
            (Address::Unix(path), Address::Unix(other)) => path == other,
            (Address::Tcp(tcp), Address::Tcp(other)) if tcp.port() == other.port() => {
                let (any, other_any) = (tcp.ip().is_unspecified(), other.ip().is_unspecified());
                match tcp.is_ipv4() == other.is_ipv4() {
                    true => any || other_any || tcp == other,
                    false if tcp.is_ipv4() => other_any && !any,
                    false => any && self.takes_ipv4(),
                }
            }
            _ => false,
        }
    }

    /// Returns whether another process may hold the socket.
    pub(crate) fn is_given(&self) -> bool {
        self.share.is_shared()
    }

    pub(crate) fn is_proxied(&self) -> bool {
        self.is_proxied
    }

    /// Expects a PROXY header on all later connections.
    pub(crate) fn expect_proxies(&mut self) {
        self.is_proxied = true;
    }

    /// Accepts the next connection in the queue. Returns `WouldBlock` if the queue is empty.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        loop {
            match system::accept(&self.fd) {
                Ok((fd, peer)) => return Ok((self.stream(fd), peer)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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

/// Number of attempts with another port, if the chosen port is in use at another address.
const PORT_TRIES: u32 = 8;

fn bind_each(
    addresses: &[Address],
    mut bind: impl FnMut(&Address) -> rustix::io::Result<Listener>,
) -> Result<Vec<Listener>, Error> {
    let mut tries = 0;
    'anew: loop {
        tries += 1;
        let (mut bound, mut left_out): (Vec<Listener>, Option<Error>) = (Vec::new(), None);
        for address in addresses {
            let (wanted, chosen) = match (address, bound.first().map(Listener::address)) {
                (Address::Tcp(tcp), Some(Address::Tcp(first))) if tcp.port() == 0 => {
                    (Address::Tcp(SocketAddr::new(tcp.ip(), first.port())), true)
                }
                _ => (address.clone(), false),
            };
            if bound.iter().any(|listener| are_any_of_one_port(&listener.address, &wanted)) {
                // This address also accepts IPv4.
                continue;
            }
            match bind(&wanted) {
                Ok(listener) => bound.push(listener),
                Err(Errno::ADDRINUSE) if chosen && tries < PORT_TRIES => continue 'anew,
                Err(error @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                    log_line!(Info, "not listening at {wanted}, which this machine does not have: {error}");
                    left_out.get_or_insert_with(|| explain(&wanted, error.into()));
                }
                Err(error) => return Err(explain(&wanted, error.into())),
            }
        }
        return match left_out {
            Some(error) if bound.is_empty() => Err(error),
            _ => Ok(bound),
        };
    }
}

/// Returns `[::]`, which also accepts IPv4 if possible, and `0.0.0.0`.
fn are_any_of_one_port(v6: &Address, v4: &Address) -> bool {
    match (v6, v4) {
        (Address::Tcp(tcp6 @ SocketAddr::V6(_)), Address::Tcp(tcp4 @ SocketAddr::V4(_))) => {
            tcp6.ip().is_unspecified() && tcp4.ip().is_unspecified() && tcp6.port() == tcp4.port()
        }
        _ => false,
    }
}

fn bind_tcp(address: SocketAddr, with_ipv4: bool, shares_port: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = system::socket(family)?;
    // A restarted server must not wait for connections of the old one in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if shares_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    // On Linux, accepted sockets inherit the option, which saves a system call for each. Responses leave whole, so
    // Nagle's algorithm could only delay them.
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let SocketAddr::V6(v6) = address {
        // `[::]` also accepts IPv4, as users of `:8080` expect. A specific IPv6 address does not.
        sockopt::set_ipv6_v6only(&fd, !(v6.ip().is_unspecified() && with_ipv4))?;
    }
    net::bind(&fd, &address)?;
    Ok(fd)
}

fn explain(address: &Address, error: io::Error) -> Error {
    let cure = match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, Address::Unix(path)) if !is_socket(path) => {
            ": a file that is not a socket is there, remove it or choose another path"
        }
        (io::ErrorKind::AddrInUse, Address::Unix(_)) => {
            ": another program listens there, stop it or choose another path"
        }
        (io::ErrorKind::AddrInUse, _) => ": another program listens there, stop it or choose another port",
        (io::ErrorKind::PermissionDenied, Address::Tcp(tcp)) if tcp.port() < 1024 => {
            ": ports below 1024 need a privilege, choose a higher port"
        }
        (io::ErrorKind::AddrNotAvailable, _) => ": no interface of this machine has that address",
        _ if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
            ": this machine has no addresses of that family"
        }
        (io::ErrorKind::NotFound, Address::Unix(_)) => ": the directory of the socket does not exist",
        _ => "",
    };
    Error::io(format!("cannot listen at {address}{cure}"), error)
}

#[cfg(test)]
mod tests {
    //! Tests which of several addresses must be bound, and with which port.

    use super::*;

    fn bind_all(
        addresses: &[Address],
        is_proxied: bool,
        there_are: &[Listener],
    ) -> Result<Vec<Listener>, Error> {
        Listener::bind_all(addresses, (is_proxied, ListenerTls::Default), there_are, &Bound::new(""))
    }

    fn parsed(text: &str) -> Vec<Address> {
        Address::parse(text).unwrap()
    }

    fn ports(listeners: &[Listener]) -> Vec<u16> {
        let port = |listener: &Listener| match listener.address() {
            Address::Tcp(tcp) => tcp.port(),
            Address::Unix(_) => 0,
        };
        listeners.iter().map(port).collect()
    }

    #[test]
    fn a_chosen_port_is_the_same_at_all_addresses() {
        let both = [parsed("127.0.0.1:0"), parsed("127.0.0.2:0")].concat();
        let bound = ports(&bind_all(&both, false, &[]).unwrap());
        assert!(bound.len() == 2 && bound[0] == bound[1] && bound[0] != 0, "{bound:?}");
    }

    #[test]
    fn another_port_is_tried_when_the_chosen_one_is_taken_elsewhere() {
        let both = [parsed("127.0.0.1:0"), parsed("127.0.0.2:0")].concat();
        let mut refusals = 1;
        let bound = bind_each(&both, |address| match address {
            Address::Tcp(tcp) if tcp.port() != 0 && refusals > 0 => {
                refusals -= 1;
                Err(Errno::ADDRINUSE)
            }
            _ => Listener::bind(address, false, &[], &Bound::new("")),
        });
        let bound = ports(&bound.unwrap());
        assert!(refusals == 0 && bound.len() == 2 && bound[0] == bound[1], "{bound:?}");
    }

    #[test]
    fn what_the_machine_does_not_have_is_left_out() {
        for missing in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let without_ipv6 = |address: &Address| match address {
                Address::Tcp(SocketAddr::V6(_)) => Err(missing),
                _ => Listener::bind(address, false, &[], &Bound::new("")),
            };
            let both = [parsed("[::1]:0"), parsed("127.0.0.1:0")].concat();
            assert_eq!(bind_each(&both, without_ipv6).unwrap().len(), 1);
            let error = bind_each(&both[..1], without_ipv6).unwrap_err().to_string();
            assert!(error.contains("[::1]:0") && error.contains("this machine"), "{error}");
            // The wildcard address is the one of IPv6, which also accepts IPv4, or else the one of IPv4.
            let any = bind_each(&parsed(":0")[..], without_ipv6).unwrap();
            assert!(
                matches!(any[..], [Listener { address: Address::Tcp(SocketAddr::V4(v4)), .. }] if v4.ip().is_unspecified())
            );
        }
    }

    #[test]
    fn an_address_in_use_is_an_error_beside_others_too() {
        let taken = bind_all(&parsed("127.0.0.1:0"), false, &[]).unwrap();
        taken[0].listen(1).unwrap();
        let both = [parsed("127.0.0.2:0"), vec![taken[0].address().clone()]].concat();
        let error = bind_all(&both, false, &[]).unwrap_err().to_string();
        assert!(error.contains("another program listens there"), "{error}");
    }

    #[test]
    fn where_a_server_listens_already_is_named() {
        let any = ":";
        for (first, second) in [
            ("127.0.0.1:", "127.0.0.1:"),
            ("127.0.0.1:", "0.0.0.0:"),
            ("0.0.0.0:", "127.0.0.1:"),
            ("127.0.0.1:", any),
            (any, "127.0.0.1:"),
            (any, any),
        ] {
            let there = bind_all(&parsed(&format!("{first}0")), false, &[]).unwrap();
            let second = format!("{second}{}", ports(&there)[0]);
            for is_proxied in [false, true] {
                let error = bind_all(&parsed(&second), is_proxied, &there).unwrap_err().to_string();
                let wanted = format!("this server already listens at {}", there[0].address());
                assert!(error.contains(&wanted), "{second}: {error}");
            }
        }
        let there = bind_all(&parsed("127.0.0.1:0"), false, &[]).unwrap();
        let beside = format!("127.0.0.2:{}", ports(&there)[0]);
        assert_eq!(bind_all(&parsed(&beside), true, &there).unwrap().len(), 1);
        // It is bound for IPv6 only. Without IPv6, it is the same address again.
        let there = bind_all(&parsed("0.0.0.0:0"), false, &[]).unwrap();
        let beside = format!(":{}", ports(&there)[0]);
        match bind_all(&parsed(&beside), false, &there) {
            Ok(bound) => assert!(bound.len() == 1 && !bound[0].takes_ipv4(), "{bound:?}"),
            Err(error) => {
                assert!(error.to_string().contains("this server already listens at 0.0.0.0"), "{error}")
            }
        }
    }

    #[test]
    fn any_address_is_bound_once() {
        let any = bind_all(&parsed(":0"), false, &[]).unwrap();
        assert_eq!(any.len(), 1, "{any:?}");
    }
}
