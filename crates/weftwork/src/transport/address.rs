//! Which addresses a server listens at: how they are written, and what they stand for.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::error::Error;

/// Where a server listens, as [`Server::bind`](crate::Server::bind) takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IPv4 or IPv6 address with its port; after the start the real port, where 0 was asked for.
    Tcp(SocketAddr),
    /// A Unix socket at this path. It is made with the process's umask and removed at the end.
    Unix(PathBuf),
}

impl Address {
    /// Reads `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` (every address the name stands for),
    /// `:8080` (any address: of IPv6 and with it IPv4, or of IPv4 alone), or `unix:/run/app.sock`.
    ///
    /// # Errors
    /// It is none of these, or the name is not known.
    pub fn parse(text: &str) -> Result<Vec<Address>, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::usage("unix: must be followed by the path of the socket"));
            }
            return Ok(vec![Address::Unix(path.into())]);
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

    /// The URL of `/` there, where there is one.
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
