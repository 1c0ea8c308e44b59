//! TLS between a socket and the connection core, which sees plaintext.
//!
//! - `session`: one TLS session, on the unbuffered API of rustls
//! - `stream`: a socket with a session, which receives and sends plaintext
//! - `records`: what can be seen of records without a session
//! - `acceptor`: what a listener needs to begin TLS
//! - `info`: facts about an established session
//! - `failure`: why handshakes fail

mod acceptor;
pub(crate) mod client_certificate;
mod failure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod info;
pub(crate) mod names;
pub(crate) mod provider;
mod records;
mod scratch;
mod session;
mod state;
mod stream;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
pub(crate) mod x509;

pub(crate) use acceptor::{Current, TlsAcceptor};
pub(crate) use failure::HandshakeError;
pub use info::TlsInfo;
pub(crate) use scratch::trim_scratch;
pub(crate) use stream::{Established, Handshake, TlsStream};

/// Protocols that the server offers to clients (RFC 7301), the preferred one first.
pub(crate) const ALPN: &[&[u8]] = &[HTTP2_ALPN, b"http/1.1"];
/// Name of HTTP/2 in that list (RFC 9113 section 3.2).
pub(crate) const HTTP2_ALPN: &[u8] = b"h2";
/// Protocol of the challenge `tls-alpn-01` (RFC 8737 section 6.2). It ends with the handshake.
pub(crate) const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";
