//! TLS between a socket and the connection core.

// The builder of users is the caller.
#![allow(dead_code, unused_imports)]

mod acceptor;
pub(crate) mod client_certificate;
mod info;
pub(crate) mod names;
pub(crate) mod provider;
pub(crate) mod x509;

pub(crate) use acceptor::{Current, TlsAcceptor};
pub use info::TlsInfo;

/// Protocols that the server offers to clients (RFC 7301), the preferred one first.
pub(crate) const ALPN: &[&[u8]] = &[b"http/1.1"];
