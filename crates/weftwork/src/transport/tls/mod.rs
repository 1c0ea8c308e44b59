//! TLS between a socket and the connection core.

// The builder of users is the caller.
#![allow(dead_code, unused_imports)]

mod acceptor;
mod info;

pub(crate) use acceptor::{Current, TlsAcceptor};
pub use info::TlsInfo;

/// Protocols that the server offers to clients (RFC 7301), the preferred one first.
pub(crate) const ALPN: &[&[u8]] = &[b"http/1.1"];
