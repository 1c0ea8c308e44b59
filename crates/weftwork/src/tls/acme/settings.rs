//! Settings of ACME as values, and their check.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Result};

pub(super) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
pub(super) const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// RFC 1035 section 2.3.4
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// How the authority verifies that a name leads to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChallengeKind {
    /// A handshake at port 443 (RFC 8737).
    TlsAlpn01,
    /// A request at port 80 (RFC 8555 section 8.3).
    Http01,
}

impl fmt::Display for ChallengeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
            ChallengeKind::Http01 => "http-01",
        })
    }
}

/// An account that was made outside of ACME (RFC 8555 section 7.3.4).
#[derive(Clone)]
pub(super) struct ExternalAccount {
    pub(super) id: String,
    pub(super) key: Vec<u8>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Settings of [`Acme`](super::Acme).
#[derive(Clone, Debug)]
pub(super) struct AcmeSettings {
    pub(super) names: Vec<String>,
    pub(super) contact: Vec<String>,
    pub(super) store: Option<PathBuf>,
    pub(super) directory_url: String,
    pub(super) directory_ca_file: Option<PathBuf>,
    pub(super) terms_are_accepted: bool,
    pub(super) external_account: Option<ExternalAccount>,
    pub(super) profile: Option<String>,
}

impl AcmeSettings {
    pub(super) fn new(names: Vec<String>) -> AcmeSettings {
        AcmeSettings {
            names,
            contact: Vec::new(),
            store: None,
            directory_url: LETS_ENCRYPT.to_owned(),
            directory_ca_file: None,
            terms_are_accepted: false,
            external_account: None,
            profile: None,
        }
    }

    /// Checks what needs no network, and puts the names into their normal form.
    pub(super) fn check(&mut self) -> Result<()> {
        let usage = |text: String| Err(Error::usage(text));
        if self.names.is_empty() {
            return usage("Tls::acme needs at least one name, such as example.org".into());
        }
        for name in &mut self.names {
            *name = normal_name(name)?;
        }
        let mut seen = std::collections::HashSet::new();
        self.names.retain(|name| seen.insert(name.clone()));
        if self.store.is_none() {
            return usage(
                "Tls::acme needs a folder for the account and the certificates: call store(\"/var/lib/site\")".into(),
            );
        }
        if !self.terms_are_accepted {
            return usage(format!(
                "the certificate authority demands that you accept its terms: read them (termsOfService in {}), then call accept_terms()",
                self.directory_url
            ));
        }
        let is_url = self.directory_url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty());
        if !is_url || self.directory_url.parse::<http::Uri>().is_err() {
            return usage(format!(
                "invalid directory URL {:?}: expected https://host/path",
                self.directory_url
            ));
        }
        match self.contact.iter().find(|contact| !contact.starts_with("mailto:") || !contact.contains('@')) {
            Some(contact) => usage(format!(
                "invalid contact {contact:?}: expected an address such as mailto:ops@example.org"
            )),
            None => Ok(()),
        }
    }
}

/// Returns the name in lower case without a final dot. It can then be the name of a file.
fn normal_name(name: &str) -> Result<String> {
    let bad =
        |why: &str| Err(Error::usage(format!("Tls::acme cannot get a certificate for {name:?}: {why}")));
    let normal = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if normal.contains('*') {
        return bad(
            "a wildcard needs a challenge in the DNS. List the names, or use a certificate from files",
        );
    }
    if normal.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() {
        return bad("it is an IP address. Expected a name");
    }
    if !normal.is_ascii() {
        return bad("write it in its ASCII form, xn--...");
    }
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if normal.len() > NAME_BYTES_MAX || !normal.split('.').all(is_label) {
        return bad(
            "it is no name of the DNS. Expected a name such as example.org, without scheme, port or path",
        );
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str) -> AcmeSettings {
        let mut settings = AcmeSettings::new(vec![name.to_owned()]);
        settings.store = Some("/var/lib/site".into());
        settings.terms_are_accepted = true;
        settings
    }

    #[test]
    fn names_are_put_into_their_normal_form_once() {
        let mut settings = settings("Example.ORG.");
        settings.names.push("example.org".into());
        settings.names.push("xn--bcher-kva.example".into());
        settings.check().unwrap();
        assert_eq!(settings.names, ["example.org", "xn--bcher-kva.example"]);
    }

    #[test]
    fn each_invalid_setting_says_what_to_do() {
        type Change = fn(&mut AcmeSettings);
        let cases: &[(Change, &str)] = &[
            (|s| s.names.clear(), "at least one name"),
            (|s| s.names[0] = "*.example.org".into(), "wildcard"),
            (|s| s.names[0] = "192.0.2.1".into(), "IP address"),
            (|s| s.names[0] = "[2001:db8::1]".into(), "IP address"),
            (|s| s.names[0] = "bücher.example".into(), "xn--"),
            (|s| s.names[0] = "https://example.org/".into(), "without scheme"),
            (|s| s.names[0] = "example.org:443".into(), "without scheme"),
            (|s| s.names[0] = "../etc".into(), "no name of the DNS"),
            (|s| s.names[0] = "a..b".into(), "no name of the DNS"),
            (|s| s.names[0] = String::new(), "no name of the DNS"),
            (|s| s.store = None, "store("),
            (|s| s.terms_are_accepted = false, "accept_terms()"),
            (|s| s.directory_url = "http://localhost:14000/dir".into(), "https://host/path"),
            (|s| s.directory_url = "https://".into(), "https://host/path"),
            (|s| s.contact.push("ops@example.org".into()), "mailto:"),
        ];
        for (change, wanted) in cases {
            let mut settings = settings("example.org");
            change(&mut settings);
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
    }
}
