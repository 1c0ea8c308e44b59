//! Verifies the certificates of clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::pem::Source;
use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;
use crate::transport::tls::provider;
use crate::transport::tls::x509::next_update_of_crl;

/// Asks clients for certificates (mutual TLS), for [`Tls::client_certificates`](super::Tls::client_certificates).
///
/// A certificate must lead to an authority of the file, be within its dates, and be for client authentication (RFC 5280).
/// Anything else ends the handshake. This holds for every name of a listener. A second listener can have other rules:
/// [`Server::and_bind_tls`](crate::Server::and_bind_tls).
///
/// ```no_run
/// use weftwork::prelude::*;
/// use weftwork::tls::{ClientCertificates, Tls};
///
/// fn hello(req: &mut Request) -> String {
///     let name = req.client_certificate().and_then(|certificate| certificate.common_name());
///     format!("hello, {}\n", name.unwrap_or("stranger"))
/// }
///
/// fn main() -> weftwork::Result<()> {
///     let clients = ClientCertificates::optional("clients-ca.pem")?.revoked("revoked.pem")?;
///     let tls = Tls::from_files("fullchain.pem", "privkey.pem")?.client_certificates(clients);
///     Server::bind("[::]:443")?.tls(tls).run(hello)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    authorities: Vec<Source>,
    revoked: Vec<Source>,
    is_required: bool,
    resumes: bool,
}

/// What a listener verifies clients with.
pub(super) struct Verifier {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// A hash of all that a client is verified against.
    pub(super) verifies: Vec<u8>,
}

impl ClientCertificates {
    /// Ends the handshake with a client that shows no certificate. The file has the authorities, in PEM.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn required(authorities: impl Into<PathBuf>) -> Result<ClientCertificates> {
        ClientCertificates::new(Source::File(authorities.into()), true)
    }

    /// Also serves clients that show no certificate. [`Request::client_certificate`](crate::Request::client_certificate) is then
    /// `None`, and the handler decides. A certificate that is not valid still ends the handshake.
    ///
    /// # Errors
    /// See [`required`](ClientCertificates::required).
    pub fn optional(authorities: impl Into<PathBuf>) -> Result<ClientCertificates> {
        ClientCertificates::new(Source::File(authorities.into()), false)
    }

    /// Does as [`required`](ClientCertificates::required), with authorities in PEM that the program has.
    ///
    /// # Errors
    /// See [`required`](ClientCertificates::required).
    pub fn required_pem(authorities: impl Into<Vec<u8>>) -> Result<ClientCertificates> {
        ClientCertificates::new(Source::Given(authorities.into()), true)
    }

    /// Does as [`optional`](ClientCertificates::optional), with authorities in PEM that the program has.
    ///
    /// # Errors
    /// See [`required`](ClientCertificates::required).
    pub fn optional_pem(authorities: impl Into<Vec<u8>>) -> Result<ClientCertificates> {
        ClientCertificates::new(Source::Given(authorities.into()), false)
    }

    fn new(authorities: Source, is_required: bool) -> Result<ClientCertificates> {
        let new = ClientCertificates {
            authorities: vec![authorities],
            revoked: Vec::new(),
            is_required,
            resumes: false,
        };
        new.checked()
    }

    /// Rejects the certificates of a revocation list, in PEM. A file may have several lists. Each authority of a client's
    /// chain then needs a list, as in nginx: without one, its certificates are rejected. Default: no lists.
    ///
    /// The file is read again as the certificate files are. A list that is out of date still counts, with a line in the log.
    ///
    /// # Errors
    /// The file cannot be read, or has no list.
    pub fn revoked(mut self, lists: impl Into<PathBuf>) -> Result<ClientCertificates> {
        self.revoked.push(Source::File(lists.into()));
        self.checked()
    }

    /// Lets clients resume their sessions. Default: off, because a resumed session is not verified again. A change of the
    /// authorities or of the revocation lists still ends all sessions.
    #[must_use]
    pub fn with_resumption(mut self) -> ClientCertificates {
        self.resumes = true;
        self
    }

    fn checked(self) -> Result<ClientCertificates> {
        self.load(&provider::default_provider())?;
        Ok(self)
    }

    pub(super) fn is_required(&self) -> bool {
        self.is_required
    }

    pub(super) fn resumes(&self) -> bool {
        self.resumes
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.authorities.iter().chain(&self.revoked)
    }

    /// Reads all files.
    pub(super) fn load(&self, provider: &Arc<CryptoProvider>) -> Result<Verifier> {
        let (mut roots, mut lists) = (RootCertStore::empty(), Vec::new());
        let mut context = provider::sha256().start();
        context.update(&[u8::from(self.is_required)]);
        for source in &self.authorities {
            let text = source.read("client authorities")?;
            for (place, certificate) in text.certificates()?.into_iter().enumerate() {
                context.update(&certificate);
                roots.add(certificate).map_err(|error| {
                    text.error(format_args!("certificate {} is no authority: {error}", place + 1))
                })?;
            }
        }
        for source in &self.revoked {
            let text = source.read("revocation list")?;
            for list in text.revocation_lists()? {
                context.update(&list);
                if next_update_of_crl(&list).is_some_and(|next| next < SystemTime::now()) {
                    log_line!(
                        Warn,
                        "the {} is out of date, and counts until a newer one is there",
                        text.name
                    );
                }
                lists.push(list);
            }
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).with_crls(lists);
        let builder = if self.is_required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder
            .build()
            .map_err(|error| Error::usage(format!("cannot use the revocation lists of clients: {error}")))?;
        Ok(Verifier { verifier, verifies: context.finish().as_ref().to_vec() })
    }
}
