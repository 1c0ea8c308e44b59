//! Issues certificates for tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::DAY;

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(super) struct Issued {
    certificate: rcgen::Certificate,
    key: KeyPair,
    issuer: String,
    serial: SerialNumber,
}

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn issue(&self, name: &str) -> Issued {
        self.issue_until(name, SystemTime::now() + 90 * DAY)
    }

    pub(super) fn issue_until(&self, name: &str, end: SystemTime) -> Issued {
        self.issue_with(name, end, KeyPair::generate().unwrap())
    }

    pub(super) fn issue_with(&self, name: &str, end: SystemTime, key: KeyPair) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = (SystemTime::now() - 100 * DAY).into();
        params.not_after = end.into();
        static SERIALS: AtomicU64 = AtomicU64::new(1000);
        let serial = SerialNumber::from(SERIALS.fetch_add(1, Ordering::Relaxed));
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate, key, issuer: self.pem(), serial }
    }

    /// Returns a list that revokes the certificates.
    pub(super) fn revoke(&self, issued: &[&Issued]) -> String {
        let now = SystemTime::now();
        let revoked = issued.iter().map(|issued| RevokedCertParams {
            serial_number: issued.serial.clone(),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: (now + DAY).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

impl Issued {
    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// The certificate and its issuer.
    pub(super) fn chain(&self) -> String {
        format!("{}{}", self.certificate.pem(), self.issuer)
    }

    pub(super) fn alone(&self) -> String {
        self.certificate.pem()
    }

    pub(super) fn key(&self) -> String {
        self.key.serialize_pem()
    }

    pub(super) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}
