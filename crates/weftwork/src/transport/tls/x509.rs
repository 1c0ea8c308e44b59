//! Reads what users want to know of a certificate: its names, its dates and its fingerprint.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::crypto::hash::Hash;
use x509_cert::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Names and dates of a certificate (RFC 5280). If the certificate cannot be read, all are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// Distinguished name, in the form of RFC 4514.
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) common_name: Option<String>,
    pub(crate) dns_names: Vec<String>,
    pub(crate) emails: Vec<String>,
    pub(crate) uris: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Serial number, in lower case hexadecimal digits.
    pub(crate) serial: String,
    pub(crate) begins: Option<SystemTime>,
    pub(crate) expires: Option<SystemTime>,
}

impl CertificateFacts {
    pub(crate) fn of(der: &[u8]) -> CertificateFacts {
        let Ok(certificate) = Certificate::from_der(der) else { return CertificateFacts::default() };
        let part = certificate.tbs_certificate();
        let since_epoch = |time: Duration| SystemTime::UNIX_EPOCH.checked_add(time);
        let common_name = part.subject().common_name().ok().flatten();
        let mut facts = CertificateFacts {
            subject: part.subject().to_string(),
            issuer: part.issuer().to_string(),
            common_name: common_name.map(|name| name.value().into_owned()),
            serial: hex(part.serial_number().as_bytes()),
            begins: since_epoch(part.validity().not_before.to_unix_duration()),
            expires: since_epoch(part.validity().not_after.to_unix_duration()),
            ..CertificateFacts::default()
        };
        if let Ok(Some((_, names))) = part.get_extension::<SubjectAltName>() {
            names.0.into_iter().for_each(|name| facts.add(name));
        }
        facts
    }

    fn add(&mut self, name: GeneralName) {
        match name {
            GeneralName::DnsName(name) => self.dns_names.push(name.as_str().to_ascii_lowercase()),
            GeneralName::Rfc822Name(name) => self.emails.push(name.as_str().to_owned()),
            GeneralName::UniformResourceIdentifier(name) => self.uris.push(name.as_str().to_owned()),
            GeneralName::IpAddress(bytes) => {
                let bytes = bytes.as_bytes();
                let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                self.addresses.extend(v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)));
            }
            _ => {}
        }
    }

    /// Returns the names that the certificate is valid for. An old certificate without them has a common name.
    pub(crate) fn names(&self) -> Vec<String> {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let names: Vec<String> = self.dns_names.iter().cloned().chain(addresses).collect();
        if names.is_empty() { self.common_name.iter().cloned().collect() } else { names }
    }

    /// Returns the names that a client can ask for in its first message.
    pub(crate) fn names_for_clients(&self) -> impl Iterator<Item = &str> {
        let old = self.common_name.iter().filter(|_| self.dns_names.is_empty() && self.addresses.is_empty());
        self.dns_names.iter().chain(old).map(String::as_str)
    }

    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

/// Returns when the next list is to be published.
pub(crate) fn next_update_of_crl(der: &[u8]) -> Option<SystemTime> {
    let list: CertificateList = CertificateList::from_der(der).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(list.tbs_cert_list.next_update?.to_unix_duration())
}

/// Returns the SHA-256 hash of the certificate in capitals with colons, as browsers and `openssl x509` show it.
pub(crate) fn fingerprint(der: &[u8], sha256: &dyn Hash) -> String {
    let mut text = String::new();
    for byte in sha256.hash(der).as_ref() {
        let separator = if text.is_empty() { "" } else { ":" };
        // Writing to a `String` does not fail.
        let _ = write!(text, "{separator}{byte:02X}");
    }
    text
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
