//! Facts about the TLS session of a connection, for handlers and logs.

use std::fmt;

use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, ProtocolVersion};

use super::client_certificate::ClientCertificate;

/// Facts about the TLS session of a connection. [`Request::tls`](crate::Request::tls) returns them.
pub struct TlsInfo {
    version: Option<ProtocolVersion>,
    suite: Option<CipherSuite>,
    server_name: Option<Box<str>>,
    /// One of those that the server offers.
    alpn: Option<&'static [u8]>,
    is_resumed: bool,
    client_certificate: Option<Box<ClientCertificate>>,
}

impl TlsInfo {
    pub(super) fn new(
        version: Option<ProtocolVersion>,
        suite: Option<CipherSuite>,
        server_name: Option<Box<str>>,
        alpn: Option<&[u8]>,
        is_resumed: bool,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> TlsInfo {
        let chain = chain.filter(|chain| !chain.is_empty());
        let client_certificate = chain.map(|chain| Box::new(ClientCertificate::new(chain)));
        let mut offered = super::ALPN.iter().chain([&super::ACME_TLS_ALPN]).copied();
        let alpn = alpn.and_then(|agreed| offered.find(|offered| *offered == agreed));
        TlsInfo { version, suite, server_name, alpn, is_resumed, client_certificate }
    }

    /// Returns the facts of a session that a test stands for. The client has shown this chain.
    pub(crate) fn of_test(chain: &[CertificateDer<'static>]) -> TlsInfo {
        let (version, suite) = (ProtocolVersion::TLSv1_3, CipherSuite::TLS13_AES_128_GCM_SHA256);
        let name = Some("localhost".into());
        TlsInfo::new(Some(version), Some(suite), name, Some(b"http/1.1"), false, Some(chain))
    }

    /// Returns the version, as OpenSSL and nginx write it: `TLSv1.2` or `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        match self.version {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "unknown",
        }
    }

    /// Returns the name of the cipher suite in the registry of IANA, such as `TLS13_AES_128_GCM_SHA256`.
    pub fn cipher_suite(&self) -> &'static str {
        self.suite.and_then(|suite| suite.as_str()).unwrap_or("unknown")
    }

    /// Returns the name that the client asked for (SNI, RFC 6066), in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the protocol that was agreed on (ALPN, RFC 7301), such as `http/1.1`. None if the client offered nothing.
    pub fn alpn(&self) -> Option<&str> {
        self.alpn.and_then(|name| std::str::from_utf8(name).ok())
    }

    /// Returns whether the client only wanted to see the certificate of a challenge (RFC 8737 section 3).
    pub(crate) fn is_challenge(&self) -> bool {
        self.alpn == Some(super::ACME_TLS_ALPN)
    }

    /// Returns whether the client has chosen HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.alpn == Some(super::HTTP2_ALPN)
    }

    /// Returns whether the client resumed an earlier session, which is cheaper than a full handshake.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns the client's certificate, which was verified. None without a certificate.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.client_certificate.as_deref()
    }
}

impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInfo")
            .field("version", &self.version())
            .field("cipher_suite", &self.cipher_suite())
            .field("server_name", &self.server_name())
            .field("alpn", &self.alpn())
            .field("is_resumed", &self.is_resumed)
            .finish_non_exhaustive()
    }
}
