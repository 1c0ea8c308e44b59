//! The settings of a [`Proxy`] for TLS to its server.

use std::path::Path;

use super::upstream::UpstreamTls;
use super::{Proxy, warn};
use crate::error::{Error, Result};

/// **TLS.** These settings are for `https://` URLs. They need the feature `tls` or `tls-ring`.
///
/// The certificate of the server is verified, with its name and its dates, and so is that the server has the
/// key. Versions 1.2 and 1.3 are supported. The server chooses HTTP/2 or HTTP/1.1 (ALPN), unless
/// [`http2`](Proxy::http2) is off. Kept connections keep their session. New connections resume an earlier session if the server allows it. A provider of
/// cryptography that this process has installed (`rustls::crypto::CryptoProvider`) is used.
///
/// A failed handshake is a 502, and a line in the log says what failed and what to set. The handshake must be
/// complete within [`connect_timeout`](Proxy::connect_timeout), otherwise 504. If the server ends a body without
/// a length by closing the connection, without a TLS `close_notify`, the response is incomplete: anyone on the
/// network path can close a connection.
impl Proxy {
    /// Trusts the certificates in this file, and not those of the system. The file has PEM, and may have many
    /// certificates. A certificate that a server signed itself works too, unless it is one of an authority
    /// (`CA:TRUE`). Default: the certificates of the system, or of the file and the folder that `SSL_CERT_FILE`
    /// and `SSL_CERT_DIR` name. If no certificate is found, the server does not start. The file is read now.
    ///
    /// ```no_run
    /// use weftwork::Proxy;
    ///
    /// let api = Proxy::to("https://10.0.0.7:8443")?.ca_file("internal-ca.pem")?.server_name("api.internal")?;
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no certificate, or if the URL is not `https://`.
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Result<Proxy> {
        self.tls("ca_file")?.set_ca_file(path.as_ref())?;
        Ok(self)
    }

    /// Sets the name that the certificate of the server must have, and that the server is asked for (SNI).
    /// Default: the host of the URL. An IP address is compared with the addresses in the certificate, and is not
    /// sent as SNI (RFC 6066 section 3). The field `Host` does not depend on it, see
    /// [`upstream_host`](Proxy::upstream_host).
    ///
    /// # Errors
    /// Fails if `name` is neither a DNS name nor an IP address, or if the URL is not `https://`.
    pub fn server_name(mut self, name: &str) -> Result<Proxy> {
        self.tls("server_name")?.set_server_name(name)?;
        Ok(self)
    }

    /// Sets the certificate that a server gets if it asks for one, with its intermediate certificates, and its
    /// key. Both files have PEM. The server then trusts what this proxy forwards, so check clients in front of
    /// it. The files are read now. Default: none.
    ///
    /// # Errors
    /// Fails if a file cannot be read, if the key is encrypted or is not that of the certificate, or if the URL
    /// is not `https://`.
    pub fn client_certificate_files(
        mut self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Proxy> {
        self.tls("client_certificate_files")?.set_client_certificate_files(chain.as_ref(), key.as_ref())?;
        Ok(self)
    }

    /// Accepts any certificate, with any name and dates. **Anyone between this proxy and the server can then read
    /// and change everything**, so it is for tests only. For a server that signs its own certificate, use
    /// [`ca_file`](Proxy::ca_file). A line in the log warns of it. No effect if the URL is not `https://`.
    #[must_use]
    pub fn dangerously_accept_any_certificate(mut self) -> Proxy {
        if let Some(tls) = &mut self.upstream.tls {
            tls.accept_any_certificate();
            warn(
                self.upstream.authority(),
                "its certificate is not verified, so the connection is not secure",
            );
        }
        self
    }

    fn tls(&mut self, setting: &str) -> Result<&mut UpstreamTls> {
        let authority = self.upstream.authority().clone();
        let unused = || {
            Error::usage(format!("{setting} needs an https:// URL, and the proxy is to http://{authority}"))
        };
        self.upstream.tls.as_mut().ok_or_else(unused)
    }
}
