//! States why TLS with the upstream server failed, and what to set.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::fmt_http_date;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use super::{Trust, Verification};

/// Maximum number of names of a certificate in a line of the log.
const NAMES_MAX: usize = 8;

/// Returns the error for the log. Its kind tells it from errors of the socket.
pub(super) fn reason(error: &Error, verification: &Verification) -> io::Error {
    let why = match error {
        Error::InvalidCertificate(error) => certificate(error, verification),
        Error::AlertReceived(alert) => alerted(*alert, verification),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => version(),
        Error::PeerIncompatible(why) => {
            format!("the server has no parameters in common with this proxy: {why:?}")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::MessageTooLarge)
        | Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => {
            "the server sent bytes that are not TLS: use an http:// URL, or the port for https://".to_owned()
        }
        error => error.to_string(),
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {why}"))
}

fn version() -> String {
    "the server has no TLS version in common with this proxy, which has 1.2 and 1.3".to_owned()
}

fn certificate(error: &CertificateError, verification: &Verification) -> String {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the certificate of the server expired on {}: renew it there", date(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let from = date(*not_before);
            format!("the certificate of the server is valid from {from} on: check the clock of this machine")
        }
        // An authority that was made again has the same name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            unknown_issuer(&verification.trust)
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the certificate of the server is for {} and not for {}: set Proxy::server_name, or the URL",
            names(presented),
            expected.to_str(),
        ),
        // webpki, as `openssl req -x509` makes such certificates by default.
        error if format!("{error:?}").contains("CaUsedAsEndEntity") => {
            "the certificate of the server is one of an authority (CA:TRUE), so no server may use it: make \
             another one with basicConstraints=CA:FALSE"
                .to_owned()
        }
        error => format!("the certificate of the server is not valid: {error}"),
    }
}

fn unknown_issuer(trust: &Trust) -> String {
    let set = "or the server does not send its intermediate certificates";
    match trust {
        Trust::File(path, _) => {
            format!("no certificate in {} signed the certificate of the server, {set}", path.display())
        }
        _ => format!(
            "no authority that this system trusts signed the certificate of the server, {set}: set Proxy::ca_file"
        ),
    }
}

/// Returns the names as a user writes them. webpki gives `DnsName("a.example")` and `IpAddress(::1)`.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(&**name, |(_, inner)| inner.trim_end_matches(')'));
        inner.trim_matches('"').to_owned()
    };
    let mut names: Vec<String> = presented.iter().take(NAMES_MAX).map(plain).collect();
    if presented.len() > NAMES_MAX {
        names.push(format!("{} more", presented.len() - NAMES_MAX));
    }
    if names.is_empty() { "no name".to_owned() } else { names.join(", ") }
}

fn date(time: UnixTime) -> String {
    // The year 9999 is the last one that the format has.
    const SECONDS_MAX: u64 = 253_402_300_799;
    fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs().min(SECONDS_MAX)))
}

/// The server refused something and said what.
fn alerted(alert: AlertDescription, verification: &Verification) -> String {
    let client = if verification.has_client_certificate { "this" } else { "a" };
    let certificate = |why: &str| {
        format!("the server {why} {client} client certificate: set Proxy::client_certificate_files")
    };
    match alert {
        AlertDescription::CertificateRequired => certificate("requires"),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            let why = if verification.has_client_certificate { "does not accept" } else { "requires" };
            format!("{} ({alert:?})", certificate(why))
        }
        AlertDescription::UnrecognisedName => format!(
            "the server has no certificate for the name {}: set Proxy::server_name",
            verification.name.to_str()
        ),
        AlertDescription::ProtocolVersion => version(),
        AlertDescription::NoApplicationProtocol => "the server does not speak HTTP/1.1 over TLS".to_owned(),
        AlertDescription::HandshakeFailure if !verification.has_client_certificate => {
            "the server refused the handshake: it may have no cipher suite in common with this proxy, or require a \
             client certificate (Proxy::client_certificate_files)"
                .to_owned()
        }
        alert => format!("the server ended TLS with the alert {alert:?}"),
    }
}
