//! TLS as handlers see it, without a handshake.

use std::sync::Arc;

#[cfg(feature = "_tls")]
use rustls::pki_types::CertificateDer;
#[cfg(feature = "_tls")]
use rustls::pki_types::pem::PemObject;

#[cfg(feature = "_tls")]
use super::TestClient;

/// Facts about the session that the connections of a client stand for. None in clear.
#[cfg(feature = "_tls")]
pub(super) type Secured = Option<Arc<crate::TlsInfo>>;
#[cfg(not(feature = "_tls"))]
pub(super) type Secured = Option<Arc<std::convert::Infallible>>;

#[cfg(feature = "_tls")]
impl TestClient {
    /// Lets handlers see a TLS connection. [`Request::scheme`](crate::Request::scheme) is `https`, and
    /// [`Request::tls`](crate::Request::tls) has a new session of TLS 1.3 for the name `localhost`. Absolute URLs and `Secure`
    /// cookies follow. There is no handshake, and the bytes of [`connect`](TestClient::connect) are in clear. Applies to new
    /// connections. Default: off. Needs the feature `tls` or `tls-ring`.
    ///
    /// ```
    /// use weftwork::{Request, TestClient};
    ///
    /// let page = |req: &mut Request| format!("{}, {}", req.scheme(), req.tls().map_or("in clear", |tls| tls.version()));
    /// assert_eq!(TestClient::new(page).get("/").send().text(), "http, in clear");
    /// assert_eq!(TestClient::new(page).secured().get("/").send().text(), "https, TLSv1.3");
    /// ```
    ///
    /// To test certificates, names and handshakes, use a real [`Server`](crate::Server) with
    /// [`Tls::self_signed`](crate::Tls::self_signed).
    #[must_use]
    pub fn secured(self) -> TestClient {
        self.with_session(&[])
    }

    /// Lets handlers see a TLS connection of a client with this certificate in PEM, as
    /// [`Request::client_certificate`](crate::Request::client_certificate) returns it. Certificates of authorities may follow.
    /// No authority and no date is checked. Otherwise the same as [`secured`](TestClient::secured).
    ///
    /// ```
    /// # #[cfg(feature = "tls-self-signed")]
    /// # {
    /// use weftwork::{Request, TestClient, Tls};
    ///
    /// let whoami = |req: &mut Request| match req.client_certificate() {
    ///     Some(certificate) => certificate.dns_names().join(" "),
    ///     None => "nobody".to_owned(),
    /// };
    /// // Any certificate will do, such as a file of the tests.
    /// let ada = Tls::self_signed(["ada.example"]).unwrap().chain_pem();
    /// let mut client = TestClient::new(whoami).client_certificate(ada);
    /// assert_eq!(client.get("/").send().text(), "ada.example");
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the text has no certificate, or a malformed one.
    #[must_use]
    #[track_caller]
    pub fn client_certificate(self, chain_pem: impl AsRef<[u8]>) -> TestClient {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem.as_ref()).collect();
        match read {
            Ok(chain) if !chain.is_empty() => self.with_session(&chain),
            Ok(_) => panic!("a client certificate is expected in PEM, and the text has none"),
            Err(error) => panic!("the client certificate is not PEM: {error}"),
        }
    }

    fn with_session(self, chain: &[CertificateDer<'static>]) -> TestClient {
        let session = crate::TlsInfo::of_test(chain);
        TestClient { secured: Some(Arc::new(session)), connection: None, http2: None, ..self }
    }
}
