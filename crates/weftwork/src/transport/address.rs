//! Addresses of listeners: parsing, formatting and name lookup.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::error::Error;

/// Address of a listener, as [`Server::bind`](crate::Server::bind) accepts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IPv4 or IPv6 address with its port. For port 0, it is the real port after the start.
    Tcp(SocketAddr),
    /// A Unix socket at this path. It is created with the process's umask and removed at the end.
    Unix(PathBuf),
}

impl Address {
    /// Parses `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` (every address of the name), `:8080` (any address: IPv6
    /// together with IPv4, or only IPv4), or `unix:/run/app.sock`.
    ///
    /// # Errors
    /// The text has another form, or the name is unknown.
    pub fn parse(text: &str) -> Result<Vec<Address>, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::usage("unix: must be followed by the path of the socket"));
            }
            return Ok(vec![Address::Unix(path.into())]);
        }
        if text.starts_with("fd:") || text.starts_with("systemd:") {
            let why = "names a socket that was passed to this process, and only Server::bind takes it";
            return Err(Error::usage(format!("{text:?} {why}")));
        }
        let wanted = "127.0.0.1:8080, [::1]:8080, localhost:8080, :8080 or unix:/path";
        let any = [format!("[::]{text}"), format!("0.0.0.0{text}")];
        let meant = if text.starts_with(':') { &any[..] } else { &[text.to_owned()] };
        let mut all: Vec<Address> = Vec::new();
        for full in meant {
            let found = full.to_socket_addrs();
            let found = found.map_err(|error| {
                Error::io(format!("cannot listen at {text:?} (expected {wanted})"), error)
            })?;
            for address in found.map(Address::Tcp) {
                if !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        if all.is_empty() {
            return Err(Error::usage(format!("{text:?} resolves to no address")));
        }
        Ok(all)
    }

    /// Returns the URL of `/` at this address. A Unix socket has none.
    pub fn url(&self) -> Option<String> {
        match self {
            Address::Tcp(address) if address.ip().is_unspecified() => {
                Some(format!("http://localhost:{}/", address.port()))
            }
            Address::Tcp(address) => Some(format!("http://{address}/")),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
