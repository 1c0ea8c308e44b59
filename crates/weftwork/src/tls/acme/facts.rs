//! Reads what the renewal needs from a certificate: its validity, and its identifier for renewal information.

use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use rustls::pki_types::Der;
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::AuthorityKeyIdentifier;
use x509_cert::time::Time;

/// Facts of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// The content of the INTEGER in DER.
    pub(super) serial: Vec<u8>,
    /// The `keyIdentifier` of the authority.
    pub(super) authority_key: Option<Vec<u8>>,
}

impl Facts {
    /// Reads a certificate. Returns None if it is malformed.
    pub(super) fn read(certificate: &[u8]) -> Option<Facts> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let part = certificate.tbs_certificate();
        let at = |time: &Time| SystemTime::UNIX_EPOCH.checked_add(time.to_unix_duration());
        let authority_key = part.get_extension::<AuthorityKeyIdentifier>().ok().flatten();
        Some(Facts {
            not_before: at(&part.validity().not_before)?,
            not_after: at(&part.validity().not_after)?,
            // Tag and length are a byte each, because a serial number has at most 20 bytes.
            serial: part.serial_number().to_der().ok()?.get(2..)?.to_vec(),
            authority_key: authority_key.and_then(|(_, id)| Some(id.key_identifier?.as_bytes().to_vec())),
        })
    }

    /// The identifier for renewal information (RFC 9773 section 4.1).
    pub(super) fn renewal_id(&self) -> Option<CertificateIdentifier<'static>> {
        let key = self.authority_key.as_deref()?;
        Some(CertificateIdentifier::new(Der::from_slice(key), Der::from_slice(&self.serial)))
    }

    pub(super) fn life(&self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, Issuer, KeyPair, SerialNumber, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_of_an_authority_has_all_facts() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["example.org".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 2, 28);
        params.not_after = date_time_ymd(2055, 3, 1);
        // The example of RFC 9773 section 4.1: the zero byte of a positive number belongs to it.
        params.serial_number = Some(SerialNumber::from(vec![0x87, 0x65, 0x43, 0x21]));
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let facts = Facts::read(certificate.der()).unwrap();
        let at = |date: &str| httpdate::parse_http_date(date).unwrap();
        assert_eq!(facts.not_before, at("Sat, 28 Feb 2026 00:00:00 GMT"));
        assert_eq!(facts.not_after, at("Mon, 01 Mar 2055 00:00:00 GMT"));
        assert_eq!(facts.authority_key.as_ref().map(Vec::len), Some(20));
        assert!(facts.renewal_id().unwrap().to_string().ends_with(".AIdlQyE"));
    }

    #[test]
    fn a_cut_certificate_is_malformed() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        for end in 0..certificate.der().len() {
            assert_eq!(Facts::read(&certificate.der()[..end]), None);
        }
    }
}
