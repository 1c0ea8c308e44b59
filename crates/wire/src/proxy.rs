//! Reads the PROXY protocol, versions 1 and 2, which stands before the first request.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. Whether a connection starts with it is for the
//! server to know: to find out from the bytes would let any client choose.

mod version1;
mod version2;

use core::net::SocketAddr;
use std::error::Error;
use std::fmt::{Display, Formatter, Result as Formatted};

/// Whom a PROXY header speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxied {
    /// For a client that connected by TCP (or whose HTTP/3 the proxy has translated).
    Client {
        /// Address of the client.
        source: SocketAddr,
        /// Address to which the client connected.
        destination: SocketAddr,
    },
    /// For a client without an Internet address: a Unix socket, or one the proxy does not know.
    Unnamed,
    /// For itself (`LOCAL`): a health check, say. Its own address is the one to use.
    Itself,
}

/// Result of [`read_proxy_header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyEvent {
    /// The header is not complete: come again with the same bytes and more.
    NeedMore,
    /// The header took that many of the given bytes.
    Header(usize, Proxied),
}

/// What is wrong with the start of a connection that has to begin with a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyFault {
    /// There is no such header.
    Missing,
    /// The header is longer than the limit, or than a header of version 1 can be.
    TooLong,
    /// The header breaks the grammar of its version.
    Malformed,
    /// It has a checksum, and another one is right.
    Checksum,
}

impl Display for ProxyFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str(match self {
            ProxyFault::Missing => "The connection does not start with a PROXY header.",
            ProxyFault::TooLong => "The PROXY header is too long.",
            ProxyFault::Malformed => "The PROXY header is malformed.",
            ProxyFault::Checksum => "The checksum of the PROXY header is wrong.",
        })
    }
}

impl Error for ProxyFault {}

/// Reads the PROXY header that `bytes` have to start with.
///
/// # Errors
/// What is wrong with it. The connection cannot be used then: nobody can tell where its first request starts.
pub fn read_proxy_header(bytes: &[u8], bytes_max: u32) -> Result<ProxyEvent, ProxyFault> {
    let bytes_max = bytes_max as usize;
    if starts_like(bytes, version1::START) {
        return version1::read(bytes, bytes_max);
    }
    if starts_like(bytes, version2::SIGNATURE) {
        return version2::read(bytes, bytes_max);
    }
    Err(ProxyFault::Missing)
}

/// As far as they go, `bytes` are those of `start`.
fn starts_like(bytes: &[u8], start: &[u8]) -> bool {
    let len = bytes.len().min(start.len());
    bytes[..len] == start[..len]
}

#[cfg(test)]
mod tests;
