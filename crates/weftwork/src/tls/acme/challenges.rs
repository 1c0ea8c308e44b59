//! Answers the questions with which the authority verifies that a name leads to this server.
//!
//! The answers are files of the store. A request of the authority may thus reach any process with that store: the
//! successor during a replacement, or another server behind the same address.

use std::sync::Arc;

use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

use super::certificate::read_pair;
use super::store::Store;
use crate::transport::log_queue::log_line;

/// A listener offers it after its own protocols.
pub(crate) use crate::transport::tls::ACME_TLS_ALPN;
/// Path of `http-01` (RFC 8555 section 8.3).
pub(super) const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// Returns whether a client asks for the certificate of a challenge: it offers that protocol and no other (RFC 8737
/// section 3).
pub(super) fn is_challenge(hello: &ClientHello<'_>) -> bool {
    let mut offered = hello.alpn().into_iter().flatten();
    offered.next() == Some(ACME_TLS_ALPN) && offered.next().is_none()
}

/// Responses to `http-01` challenges.
#[derive(Clone, Debug)]
pub(super) struct Http01Challenges(pub(super) Store);

impl Http01Challenges {
    /// Returns the body for the path after [`CHALLENGE_PATH`]. It is sent with the type `application/octet-stream`.
    pub(super) fn response(&self, token: &str) -> Option<String> {
        self.0.read_token(token).unwrap_or_else(|error| {
            log_line!(Error, "ACME: cannot answer a challenge: {error}");
            None
        })
    }
}

/// Returns the certificate of the challenge for `name`, if one is waited for.
pub(super) fn challenge_certificate(
    store: &Store,
    name: &str,
    provider: &CryptoProvider,
) -> Option<Arc<CertifiedKey>> {
    let pem = store.read_alpn(name).map_err(|error| error.to_string());
    match pem.and_then(|pem| pem.map(|pem| read_pair(&pem, provider)).transpose()) {
        Ok(key) => key.map(Arc::new),
        Err(error) => {
            log_line!(Error, "ACME: cannot answer a challenge for {name}: {error}");
            None
        }
    }
}

/// Makes the self-signed certificate of a `tls-alpn-01` challenge (RFC 8737 section 3), with its key.
pub(super) fn alpn_certificate(name: &str, authorization: &KeyAuthorization) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(authorization.digest().as_ref())];
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}
