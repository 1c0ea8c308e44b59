//! Why handshakes fail: by reason for the counters, and in words for the log.

use rustls::{AlertDescription, Error, PeerIncompatible};

use crate::transport::events::HandshakeFailure;

/// Why a handshake has failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The client sent something else, such as HTTP in clear.
    NotTls,
    /// The client sent more than a handshake needs.
    TooLong,
    /// The session failed.
    Tls(Error),
}

impl HandshakeError {
    /// Returns the reason, what happened, and what to do about it.
    pub(crate) fn explain(&self) -> (HandshakeFailure, String, &'static str) {
        use AlertDescription as Alert;
        let error = match self {
            HandshakeError::NotTls => {
                let cure = "let clients use https here, or serve another port in clear";
                return (HandshakeFailure::NotTls, "it does not speak TLS".to_owned(), cure);
            }
            HandshakeError::TooLong => {
                let why = "its handshake messages are too long".to_owned();
                return (HandshakeFailure::Malformed, why, "nothing, it is no usual client");
            }
            HandshakeError::Tls(error) => error,
        };
        let (reason, cure) = match error {
            Error::AlertReceived(
                Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateUnknown
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::UnsupportedCertificate,
            ) => (
                HandshakeFailure::CertificateRejected,
                "the client does not trust the certificate: check its chain, names and dates",
            ),
            Error::AlertReceived(_) => {
                (HandshakeFailure::ClientAlert, "the client ended the handshake, and may log why")
            }
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
                (HandshakeFailure::Incompatible, "the client offers no cipher suite of this server")
            }
            Error::PeerIncompatible(_) => (
                HandshakeFailure::Incompatible,
                "the client is too old, or the minimum version of this server is too new",
            ),
            Error::NoApplicationProtocol => {
                (HandshakeFailure::Incompatible, "the client speaks no protocol of this server (ALPN)")
            }
            Error::NoCertificatesPresented => {
                (HandshakeFailure::ClientCertificate, "give the client a certificate of the expected CA")
            }
            Error::InvalidCertificate(_) => (
                HandshakeFailure::ClientCertificate,
                "check the client's certificate: its CA, its dates, the revocation list",
            ),
            // rustls says so if the resolver has no certificate for the name.
            Error::General(why) if why.contains("certificate") => {
                (HandshakeFailure::UnknownName, "add a certificate for the name, or check the client's URL")
            }
            _ => (HandshakeFailure::Malformed, "nothing, unless it is a known client"),
        };
        (reason, error.to_string(), cure)
    }
}
