//! Facts about the TLS session of a connection, for handlers and logs.

use rustls::{ProtocolVersion, SupportedCipherSuite};

/// Facts about the TLS session of a connection.
#[derive(Debug)]
pub struct TlsInfo {
    pub(super) version: Option<ProtocolVersion>,
    pub(super) suite: Option<SupportedCipherSuite>,
    pub(super) server_name: Option<Box<str>>,
    pub(super) alpn: Option<Box<[u8]>>,
    pub(super) is_resumed: bool,
}
