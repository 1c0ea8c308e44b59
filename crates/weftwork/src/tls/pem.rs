//! Reads certificates and keys from PEM (RFC 7468). An error says what was found instead.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::error::{Error, Result};

/// A text in PEM, from a file or from the program.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File(PathBuf),
    Given(Vec<u8>),
}

/// The bytes of a source, with its name for errors.
pub(super) struct Text {
    pub(super) name: String,
    bytes: Vec<u8>,
}

impl Source {
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Source::File(path) => Some(path),
            Source::Given(_) => None,
        }
    }

    /// Reads the source. `what` names it in errors, such as "certificate chain".
    pub(super) fn read(&self, what: &str) -> Result<Text> {
        match self {
            Source::File(path) => {
                let name = format!("{what} {}", path.display());
                let bytes = fs::read(path).map_err(|error| {
                    let why = denied(path, &error).unwrap_or_default();
                    Error::io(format!("cannot read the {name}{why}"), error)
                })?;
                Ok(Text { name, bytes })
            }
            Source::Given(bytes) => Ok(Text { name: format!("given {what}"), bytes: bytes.clone() }),
        }
    }
}

impl Text {
    pub(super) fn new(name: &str, bytes: &[u8]) -> Text {
        Text { name: name.into(), bytes: bytes.into() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // Editors of Windows begin a file with this mark.
        self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.bytes)
    }

    /// Returns all certificates, and at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        self.all("certificate")
    }

    /// Returns the sections of certificates alone, without a key that is in the same text.
    pub(super) fn certificates_pem(&self) -> String {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        const END: &str = "-----END CERTIFICATE-----";
        let text = String::from_utf8_lossy(self.bytes());
        let sections = text.split(BEGIN).skip(1).filter_map(|section| section.split_once(END));
        sections.map(|(section, _)| format!("{BEGIN}{section}{END}\n")).collect()
    }

    /// Returns all revocation lists, and at least one.
    pub(super) fn revocation_lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>> {
        self.all("revocation list")
    }

    fn all<T: PemObject>(&self, wanted: &str) -> Result<Vec<T>> {
        let found = T::pem_slice_iter(self.bytes()).collect::<Result<Vec<T>, _>>();
        match found {
            Ok(found) if found.is_empty() => Err(self.lacks(wanted)),
            Ok(found) => Ok(found),
            Err(error) => Err(self.malformed(&error)),
        }
    }

    /// Returns the first private key: PKCS#8, PKCS#1 or SEC1.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>> {
        let is_encrypted = self.labels().iter().any(|label| kind(label) == Kind::EncryptedKey)
            || contains(self.bytes(), b"Proc-Type: 4,ENCRYPTED");
        match PrivateKeyDer::pem_slice_iter(self.bytes()).next() {
            // A server that starts alone has nobody to ask for the password.
            _ if is_encrypted => Err(Error::usage(format!(
                "cannot use the {}: it has an encrypted key, decrypt it with: openssl pkey -in KEY -out PLAIN-KEY",
                self.name
            ))),
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.malformed(&error)),
            None => Err(self.lacks("key")),
        }
    }

    pub(super) fn error(&self, why: impl std::fmt::Display) -> Error {
        Error::usage(format!("cannot use the {}: {why}", self.name))
    }

    fn malformed(&self, error: &pem::Error) -> Error {
        self.error(format_args!("its PEM is malformed: {error}"))
    }

    fn lacks(&self, wanted: &str) -> Error {
        self.error(format_args!("it has {} and no {wanted}", self.contents()))
    }

    /// Describes what the text has, such as "two certificates".
    fn contents(&self) -> String {
        let labels = self.labels();
        if labels.is_empty() {
            return match self.bytes() {
                [] => "no content".into(),
                [0x30, ..] => {
                    "binary data instead of PEM (openssl x509 -inform der, openssl pkey -inform der and openssl pkcs12 \
                     convert it)"
                        .into()
                }
                _ => "no line that begins with -----BEGIN".into(),
            };
        }
        let mut counts: Vec<(Kind, usize)> = Vec::new();
        for kind in labels.iter().map(|label| kind(label)) {
            match counts.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => counts.push((kind, 1)),
            }
        }
        counts.iter().map(|(kind, count)| kind.show(*count)).collect::<Vec<_>>().join(" and ")
    }

    fn labels(&self) -> Vec<String> {
        let lines = self.bytes().split(|byte| matches!(byte, b'\n' | b'\r'));
        let label = |line: &[u8]| {
            let text = String::from_utf8_lossy(line.strip_prefix(b"-----BEGIN ")?).trim_end().to_owned();
            Some(text.trim_end_matches('-').to_owned())
        };
        lines.filter_map(label).collect()
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Certificate,
    Key,
    EncryptedKey,
    Request,
    RevocationList,
    PublicKey,
    Other(String),
}

fn kind(label: &str) -> Kind {
    match label {
        "CERTIFICATE" => Kind::Certificate,
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => Kind::Key,
        "ENCRYPTED PRIVATE KEY" => Kind::EncryptedKey,
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => Kind::Request,
        "X509 CRL" => Kind::RevocationList,
        "PUBLIC KEY" | "RSA PUBLIC KEY" => Kind::PublicKey,
        other => Kind::Other(other.chars().filter(|c| !c.is_control()).take(40).collect()),
    }
}

impl Kind {
    fn show(&self, count: usize) -> String {
        let (one, many) = match self {
            Kind::Certificate => ("one certificate", "certificates"),
            Kind::Key => ("one key", "keys"),
            Kind::EncryptedKey => ("an encrypted key", "encrypted keys"),
            Kind::Request => ("a certificate request", "certificate requests"),
            Kind::RevocationList => ("one revocation list", "revocation lists"),
            Kind::PublicKey => ("a public key", "public keys"),
            Kind::Other(label) => return format!("the PEM section {label:?}"),
        };
        match count {
            1 => one.into(),
            2 => format!("two {many}"),
            3 => format!("three {many}"),
            _ => format!("{count} {many}"),
        }
    }
}

/// Says who may read a file, if this process may not.
fn denied(path: &Path, error: &io::Error) -> Option<String> {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return None;
    }
    // If a directory above the file cannot be searched, that directory is at fault.
    let seen = path.ancestors().find_map(|at| Some((at, fs::metadata(at).ok()?)));
    let (at, metadata) = seen?;
    let place = if at == path { "it".to_owned() } else { at.display().to_string() };
    let user = rustix::process::geteuid().as_raw();
    Some(format!(
        " ({place} is owned by {}, mode {:o}, and this process is {})",
        user_name(metadata.uid()),
        metadata.mode() & 0o7777,
        user_name(user)
    ))
}

fn user_name(uid: u32) -> String {
    if uid == 0 { "root".into() } else { format!("uid {uid}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text { name: "key key.pem".into(), bytes: text.into() }
    }

    fn section(label: &str) -> String {
        format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n")
    }

    #[test]
    fn an_error_says_what_was_found_instead() {
        let (certificate, key) = (section("CERTIFICATE"), section("PRIVATE KEY"));
        let request = section("CERTIFICATE REQUEST");
        let keys = [
            (certificate.repeat(2), "it has two certificates and no key"),
            (
                format!("{certificate}{request}"),
                "it has one certificate and a certificate request and no key",
            ),
            (certificate.repeat(4), "it has 4 certificates and no key"),
            (section("OPENSSH PRIVATE KEY"), "it has the PEM section \"OPENSSH PRIVATE KEY\" and no key"),
            (section("ENCRYPTED PRIVATE KEY"), "it has an encrypted key, decrypt it with"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMAA=\n\
                 -----END RSA PRIVATE KEY-----\n"
                    .into(),
                "it has an encrypted key, decrypt it with",
            ),
            (String::new(), "it has no content and no key"),
            ("\x30\u{2}".into(), "it has binary data instead of PEM"),
            ("hello".into(), "it has no line that begins with -----BEGIN and no key"),
            ("-----BEGIN PRIVATE KEY-----\nMAA=\n".into(), "its PEM is malformed"),
            ("-----BEGIN PRIVATE KEY-----\nM!A=\n-----END PRIVATE KEY-----\n".into(), "its PEM is malformed"),
        ];
        for (pem, expected) in keys {
            let error = text(&pem).key().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("the key key.pem"), "{error}");
        }
        let error = text(&key).certificates().unwrap_err().to_string();
        assert!(error.contains("it has one key and no certificate"), "{error}");
        let error = text(&key).revocation_lists().unwrap_err().to_string();
        assert!(error.contains("it has one key and no revocation list"), "{error}");
    }

    #[test]
    fn a_mark_at_the_start_and_other_line_ends_do_no_harm() {
        let pem = format!("\u{feff}{}", section("CERTIFICATE").replace('\n', "\r\n"));
        assert_eq!(text(&pem).certificates().unwrap().len(), 1);
        let key = format!("{}{}", section("EC PARAMETERS"), section("EC PRIVATE KEY"));
        assert!(matches!(text(&key).key().unwrap(), PrivateKeyDer::Sec1(_)));
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = Source::File("/nonexistent/key.pem".into()).read("key").err().unwrap().to_string();
        assert!(error.contains("cannot read the key /nonexistent/key.pem"), "{error}");
        assert!(!error.contains("owned by"), "{error}");
    }

    #[test]
    fn an_unreadable_file_names_its_owner_and_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let denied = |path: &Path| denied(path, &io::ErrorKind::PermissionDenied.into()).unwrap();
        assert!(denied(&path).contains("(it is owned by "), "{}", denied(&path));
        assert!(denied(&path).contains(", mode 600, and this process is "), "{}", denied(&path));
        // A folder above the file is at fault if the file cannot be looked at.
        let below = denied(&folder.path().join("absent/key.pem"));
        assert!(below.contains(&format!("({} is owned by", folder.path().display())), "{below}");
        assert_eq!((user_name(0).as_str(), user_name(1000).as_str()), ("root", "uid 1000"));
    }
}
