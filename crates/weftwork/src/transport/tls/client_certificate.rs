//! Describes the certificate that a client has shown.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::provider;
use super::x509::{CertificateFacts, fingerprint};

/// Certificate of a client, verified by the server's [`ClientCertificates`](crate::tls::ClientCertificates).
/// [`Request::client_certificate`](crate::Request::client_certificate) returns it.
///
/// The names are those of the first certificate, the client's own (RFC 5280). A name that is absent is empty. A name is
/// only as good as the authority that wrote it: compare the name that your authority controls.
#[derive(Clone)]
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    facts: CertificateFacts,
    fingerprint: String,
}

impl ClientCertificate {
    /// Reads a chain whose first certificate is the client's. The chain must not be empty.
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> ClientCertificate {
        let leaf = chain.first().map_or(&[][..], |leaf| leaf.as_ref());
        ClientCertificate {
            facts: CertificateFacts::of(leaf),
            fingerprint: fingerprint(leaf, provider::sha256()),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
        }
    }

    /// Returns the chain that the client has sent, in DER. The first certificate is the client's.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.chain.iter().map(|certificate| certificate.as_ref())
    }

    /// Returns the distinguished name, such as `CN=ada,O=Example` (RFC 4514).
    pub fn subject(&self) -> &str {
        &self.facts.subject
    }

    /// Returns the distinguished name of the authority.
    pub fn issuer(&self) -> &str {
        &self.facts.issuer
    }

    /// Returns the common name, which most private authorities use for a user or a service.
    pub fn common_name(&self) -> Option<&str> {
        self.facts.common_name.as_deref()
    }

    /// Returns the DNS names, in lower case.
    pub fn dns_names(&self) -> &[String] {
        &self.facts.dns_names
    }

    /// Returns the mail addresses.
    pub fn emails(&self) -> &[String] {
        &self.facts.emails
    }

    /// Returns the URIs. The identity of a SPIFFE workload is one.
    pub fn uris(&self) -> &[String] {
        &self.facts.uris
    }

    /// Returns the IP addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.facts.addresses
    }

    /// Returns the serial number in lower case hexadecimal digits.
    pub fn serial(&self) -> &str {
        &self.facts.serial
    }

    /// Returns the time after which the certificate is not valid.
    pub fn expires(&self) -> Option<SystemTime> {
        self.facts.expires
    }

    /// Returns the SHA-256 hash of the client's certificate, in capitals with colons as `openssl x509` shows it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("subject", &self.subject())
            .field("issuer", &self.issuer())
            .field("serial", &self.serial())
            .finish_non_exhaustive()
    }
}
