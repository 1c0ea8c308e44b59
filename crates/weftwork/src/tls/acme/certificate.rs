//! A certificate with its key, as the store keeps it and as the TLS session uses it.

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::facts::Facts;

/// A certificate that is ready for use.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) facts: Facts,
}

impl Certificate {
    /// Reads chain and key from one text. The key must belong to the certificate, and the certificate to `name`.
    ///
    /// # Errors
    /// What is wrong with the text, for a log line.
    pub(super) fn from_pem(pem: &str, name: &str, provider: &CryptoProvider) -> Result<Certificate, String> {
        let key = Arc::new(read_pair(pem, provider)?);
        let leaf = key.cert.first().ok_or("it has no certificate")?;
        key.keys_match().map_err(|error| format!("key and certificate do not belong together: {error}"))?;
        let facts = Facts::read(leaf).ok_or("its certificate is malformed")?;
        let server_name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        ParsedCertificate::try_from(leaf)
            .and_then(|parsed| verify_server_name(&parsed, &server_name))
            .map_err(|error| format!("its certificate is not for {name}: {error}"))?;
        Ok(Certificate { key, facts })
    }
}

/// Reads chain and key from one text. The certificate of a challenge has a critical extension that no client knows,
/// so its content is not checked.
pub(super) fn read_pair(pem: &str, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("its PEM is malformed: {error}"))?;
    if chain.is_empty() {
        return Err("it has no certificate".into());
    }
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("it has no private key: {error}"))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| format!("its private key cannot be used: {error}"))?;
    Ok(CertifiedKey::new(chain, key))
}
