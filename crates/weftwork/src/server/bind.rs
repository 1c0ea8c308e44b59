//! Binds a server to addresses, and takes sockets that it is given.

use std::fmt;
use std::os::fd::OwnedFd;

use super::process::{descriptors, predecessor};
use super::tls::Prefixed;
use super::{Address, Server};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::transport::listener::{Listener, ListenerTls};
use crate::transport::socket_share::Bound;

impl Server {
    /// Binds to an address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` (all addresses of the name), `:8080` (any
    /// address), `unix:/run/app.sock`, or a [`SocketAddr`](std::net::SocketAddr). With port 0, the system chooses a port, and all addresses
    /// of a name get the same port. If the machine does not have the family of an address (IPv6, in many containers),
    /// that address is skipped, unless none is left.
    ///
    /// `fd:3` is a listening socket that this process has inherited as that descriptor. `systemd:http` is each socket
    /// that systemd passes with that name (`FileDescriptorName=` in the socket unit, by default the unit's name), and
    /// `systemd:*` each socket that it passes (`LISTEN_FDS`). See [`from_listener`](Server::from_listener).
    ///
    /// `tls+127.0.0.1:8443` and `plain+127.0.0.1:8080` say whether clients speak TLS. Without such a prefix, they do if the
    /// server has certificates (`Server::tls`).
    ///
    /// `proxy+127.0.0.1:8080` expects the PROXY protocol on this listener. The setting `proxy_protocol` expects it on
    /// every listener. [`trusted_proxies`](Settings::trusted_proxies) names the networks that may use it.
    ///
    /// The settings are the defaults, overridden by the `WEFT_...` variables (see [`env_prefix`](Server::env_prefix)).
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(address: impl fmt::Display) -> Result<Server> {
        Server::unbound().and_bind(address)
    }

    /// Uses a socket that is already bound: a [`TcpListener`](std::net::TcpListener), a
    /// [`UnixListener`](std::os::unix::net::UnixListener), or a socket from systemd or a parent process. At the end,
    /// the server only closes its descriptor. If another process has a copy of the socket, as systemd does, the address
    /// and the waiting connections remain.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let running = Server::from_listener(listener)?.start(|_: &mut Request| "hello")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// The descriptor is not a TCP or Unix socket.
    pub fn from_listener(listener: impl Into<OwnedFd>) -> Result<Server> {
        Server::unbound().and_listener(listener)
    }

    /// Adds a socket that is already bound.
    ///
    /// # Errors
    /// See [`from_listener`](Server::from_listener).
    pub fn and_listener(mut self, listener: impl Into<OwnedFd>) -> Result<Server> {
        self.listeners.push(Listener::given(listener.into(), false, None)?);
        Ok(self)
    }

    /// Binds to a further address. `[::]` also accepts IPv4, so `0.0.0.0` with the same port adds nothing to it.
    ///
    /// # Errors
    /// See [`bind`](Server::bind).
    pub fn and_bind(self, address: impl fmt::Display) -> Result<Server> {
        self.bind_as(&address.to_string(), None)
    }

    /// Binds to an address. `tls` counts more than a prefix of the address.
    pub(super) fn bind_as(mut self, asked: &str, tls: Option<ListenerTls>) -> Result<Server> {
        let Prefixed { is_proxied, tls: prefix, address } = Prefixed::parse(asked)?;
        let wish = tls.unwrap_or(prefix);
        let bound = Bound::new(asked);
        let mut listeners = predecessor::take(&bound, is_proxied)?;
        if listeners.is_empty() && descriptors::is_passed(address) {
            for fd in descriptors::take(address)? {
                listeners.push(Listener::given(fd, is_proxied, Some(bound.clone()))?);
            }
        }
        if listeners.is_empty() {
            let addresses = Address::parse(address)?;
            listeners = Listener::bind_all(&addresses, (is_proxied, wish), &self.listeners, &bound)?;
        }
        self.listeners.extend(listeners.into_iter().map(|listener| listener.with_wish(wish)));
        Ok(self)
    }

    /// Returns whether a supervisor has passed sockets (`LISTEN_FDS`) that no server of this process uses. A program
    /// can then listen at `systemd:*` instead of its usual address.
    pub fn sockets_are_passed() -> bool {
        descriptors::are_waiting() || predecessor::has_passed_sockets()
    }
}

/// Lets the listeners expect the PROXY protocol if a setting says so.
pub(super) fn expect_proxies(listeners: &mut [Listener], settings: &Settings) -> Result<()> {
    if settings.proxy_protocol {
        listeners.iter_mut().for_each(Listener::expect_proxies);
    }
    if settings.trusted_proxies.is_empty() && listeners.iter().any(Listener::is_proxied) {
        return Err(Error::usage(
            "a listener expects the PROXY protocol, and trusted_proxies is none: set the networks of your \
             proxies, such as 10.0.0.0/8 (with 0.0.0.0/0,::/0 any client can claim any address)",
        ));
    }
    Ok(())
}
