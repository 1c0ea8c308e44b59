//! Certificates from an authority that speaks ACME (RFC 8555), such as Let's Encrypt.
//!
//! One thread per server works with the authority. Loops and handlers only read its results.

mod answers;
mod certificate;
mod challenges;
mod client;
mod facts;
mod failure;
mod http_client;
mod schedule;
mod settings;
mod stop;
mod store;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};

use super::{Choice, Reachable};
use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;
pub(crate) use answers::answer_challenges;
use certificate::Certificate;
pub(crate) use challenges::ACME_TLS_ALPN;
use challenges::{Http01Challenges, is_challenge};
use client::{Client, Connect, Notes};
use facts::Facts;
use http_client::HttpsClient;
use settings::{AcmeSettings, ChallengeKind, ExternalAccount, LETS_ENCRYPT_STAGING};
use stop::Stop;
use store::Store;
pub(crate) use worker::AcmeThread;
use worker::Worker;

/// Certificates that the server gets and renews itself, from an authority that speaks ACME (RFC 8555).
/// [`Tls::acme`](crate::Tls::acme) creates it. Feature `acme`, or `acme-ring` with the cryptography of *ring*.
///
/// ```no_run
/// use weftwork::prelude::*;
/// use weftwork::Tls;
///
/// fn main() -> weftwork::Result<()> {
///     let tls = Tls::acme(["example.org", "www.example.org"])
///         .contact("mailto:ops@example.org")
///         .store("/var/lib/site")
///         .accept_terms();
///     Server::bind("[::]:443")?.tls(tls).run(|_: &mut Request| "hello")
/// }
/// ```
///
/// Each name gets a certificate of its own, so that a name that fails does not affect the others. Only the listed names
/// get one, whatever clients ask for. The keys are ECDSA P-256, new with each certificate.
///
/// # How the authority verifies a name
///
/// It connects to port 443 of the name (`tls-alpn-01`), or to port 80 (`http-01`). The first one needs nothing but the
/// TLS listener. The second one is used after a failure of the first one, if the server has a plain listener or a redirect
/// listener. A listener that requires client certificates refuses `tls-alpn-01`. The server then uses `http-01` alone, and
/// does not start without a plain listener.
///
/// # When a certificate is missing
///
/// The server starts at once and gets the certificates then. Until a name has its first certificate, handshakes for that
/// name are refused with an alert, and the log says why. There is no self-signed placeholder: users would have to accept
/// a warning. Requests for other names are not affected.
///
/// # Renewal
///
/// The time of a renewal is a point in the window that the authority suggests (RFC 9773), or else two thirds of the life,
/// less up to a twentieth. If an attempt fails, the old certificate stays. The next attempts come after 1, 5 and 15
/// minutes, 1, 3 and 6 hours, and never before the time that the authority asks for (`Retry-After`). The log has one line
/// an hour about it, with the reason and with what to do. Established connections keep their certificate.
///
/// # The store
///
/// The folder has a part for each directory URL, with the account (`account.json`) and a file for each name
/// (`example.org.pem`: key and chain). Folders have mode 700 and files 600. Failed attempts are kept there too, so that a
/// server that starts again and again stays within the rate limits. Several processes can share the folder on one
/// machine. One of them at a time works with the authority, and the others take its results over within a minute. All of
/// them can answer the authority.
#[derive(Clone, Debug)]
pub struct Acme {
    settings: AcmeSettings,
    invalid: Option<String>,
}

impl Acme {
    pub(crate) fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Acme {
        Acme { settings: AcmeSettings::new(names.into_iter().map(Into::into).collect()), invalid: None }
    }

    /// Adds an address for mail from the authority: `mailto:ops@example.org`. Default: none. Let's Encrypt sends no mail
    /// any more.
    #[must_use]
    pub fn contact(mut self, contact: impl Into<String>) -> Acme {
        self.settings.contact.push(contact.into());
        self
    }

    /// Sets the folder for account and certificates. It is made if it is missing. There is no default, because a server
    /// that loses its certificates soon exceeds the rate limits of the authority.
    #[must_use]
    pub fn store(mut self, folder: impl Into<PathBuf>) -> Acme {
        self.settings.store = Some(folder.into());
        self
    }

    /// Accepts the terms of the authority in your name. The directory has their address (`termsOfService`). Without
    /// this call, the server does not start.
    #[must_use]
    pub fn accept_terms(mut self) -> Acme {
        self.settings.terms_are_accepted = true;
        self
    }

    /// Sets the directory URL of the authority. Default: `https://acme-v02.api.letsencrypt.org/directory`.
    #[must_use]
    pub fn directory(mut self, url: impl Into<String>) -> Acme {
        self.settings.directory_url = url.into();
        self
    }

    /// Uses the staging directory of Let's Encrypt. Browsers do not trust its certificates, and its rate limits are
    /// high. Use it to test a deployment.
    #[must_use]
    pub fn staging(self) -> Acme {
        self.directory(LETS_ENCRYPT_STAGING)
    }

    /// Sets a PEM file with the roots that verify the directory's own HTTPS, for an authority of your own. Default: the
    /// roots of the system.
    #[must_use]
    pub fn directory_ca_file(mut self, path: impl Into<PathBuf>) -> Acme {
        self.settings.directory_ca_file = Some(path.into());
        self
    }

    /// Binds the ACME account to an account that the authority gave you (RFC 8555 section 7.3.4): its key identifier, and
    /// its HMAC key in base64url.
    #[must_use]
    pub fn external_account(mut self, id: impl Into<String>, hmac_key: &str) -> Acme {
        match URL_SAFE_NO_PAD.decode(hmac_key.trim().trim_end_matches('=')) {
            Ok(key) => self.settings.external_account = Some(ExternalAccount { id: id.into(), key }),
            Err(_) => {
                self.invalid = Some(
                    "the HMAC key of external_account is not base64url. Copy it as the authority shows it"
                        .into(),
                );
            }
        }
        self
    }

    /// Chooses one of the authority's profiles, such as `shortlived` at Let's Encrypt. Default: that of the authority.
    #[must_use]
    pub fn profile(mut self, profile: impl Into<String>) -> Acme {
        self.settings.profile = Some(profile.into());
        self
    }

    /// Opens the store and loads the certificates that it has. The work begins with [`AcmeCertificates::start`].
    pub(crate) fn open(mut self, provider: Arc<CryptoProvider>) -> Result<Arc<AcmeCertificates>> {
        if let Some(invalid) = self.invalid.take() {
            return Err(Error::usage(invalid));
        }
        self.settings.check()?;
        let folder = self.settings.store.clone().unwrap_or_default();
        let store = Store::open(&folder, &self.settings.directory_url)?;
        let settings = Arc::new(self.settings);
        let table = RwLock::new(HashMap::new());
        let certificates = AcmeCertificates { settings, store, provider, table, changed: OnceLock::new() };
        certificates.load_all();
        Ok(Arc::new(certificates))
    }
}

/// The certificates of the listed names, as they are now.
pub(crate) struct AcmeCertificates {
    settings: Arc<AcmeSettings>,
    store: Store,
    provider: Arc<CryptoProvider>,
    table: RwLock<HashMap<String, Certificate>>,
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl AcmeCertificates {
    /// Starts the thread that gets and renews the certificates.
    ///
    /// # Errors
    /// The authority can reach no listener, the file with its roots is invalid, or the system refuses a thread.
    pub(crate) fn start(self: &Arc<Self>, reachable: Reachable) -> Result<AcmeThread> {
        let challenges = challenge_kinds(reachable)?;
        let config = client_config(&self.settings, &self.provider)?;
        let (stop, notes) = (Stop::default(), Notes::default());
        let http = HttpsClient::new(Arc::new(config), stop.clone(), notes.clone());
        let connect: Connect = Box::new(move || Box::new(http.clone()));
        let client = Client::new(self.settings.clone(), self.store.clone(), stop.clone(), notes, connect);
        let worker = Worker::new(self.clone(), client, stop, challenges, SystemTime::now());
        let thread = worker.start().map_err(|error| Error::io("cannot start the thread of ACME", error))?;
        let missing: Vec<&str> =
            self.names().iter().filter(|name| self.facts(name).is_none()).map(String::as_str).collect();
        if !missing.is_empty() {
            log_line!(
                Info,
                "ACME: no certificate yet for {}. Handshakes are refused until the authority has issued",
                missing.join(", ")
            );
        }
        Ok(thread)
    }

    /// Sets the function that is called after each change of a certificate. Only the first one counts.
    pub(crate) fn on_change(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.changed.set(Box::new(changed));
    }

    /// Returns the listed names, in their normal form.
    fn names(&self) -> &[String] {
        &self.settings.names
    }

    /// Returns the certificates, each with the file that it comes from.
    pub(crate) fn keys(&self) -> Vec<(String, Arc<CertifiedKey>)> {
        let path = |name: &str| self.store.certificate_path(name).display().to_string();
        self.names().iter().filter_map(|name| Some((path(name), self.get(name)?))).collect()
    }

    /// Chooses the certificate of a handshake, if that is not left to the table of names.
    pub(crate) fn choose(&self, hello: &ClientHello<'_>) -> Choice {
        let Some(name) = hello.server_name() else { return Choice::Table };
        if is_challenge(hello) {
            return self.challenge(name).map_or(Choice::Refuse, Choice::Certificate);
        }
        match self.listed(name) {
            Some(listed) if self.get(listed).is_none() => Choice::Refuse,
            _ => Choice::Table,
        }
    }

    fn listed(&self, name: &str) -> Option<&str> {
        self.names().iter().find(|listed| listed.eq_ignore_ascii_case(name)).map(String::as_str)
    }

    /// Returns the certificate for a name, if it has one yet.
    fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.read(name, |certificate| certificate.key.clone())
    }

    /// Returns the certificate for a handshake of the authority ([`is_challenge`]). Only a listed name has one, while
    /// the authority is asked to look.
    fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        challenges::challenge_certificate(&self.store, self.listed(name)?, &self.provider)
    }

    /// Returns what answers `http-01` challenges on a plain listener.
    fn http01(&self) -> Http01Challenges {
        Http01Challenges(self.store.clone())
    }

    fn facts(&self, name: &str) -> Option<Facts> {
        self.read(name, |certificate| certificate.facts.clone())
    }

    fn read<T>(&self, name: &str, read: impl FnOnce(&Certificate) -> T) -> Option<T> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(name).map(read)
    }

    fn set(&self, name: &str, certificate: Certificate) {
        let serial = certificate.facts.serial.clone();
        let former =
            self.table.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), certificate);
        let is_new = former.is_none_or(|former| former.facts.serial != serial);
        if let Some(changed) = self.changed.get().filter(|_| is_new) {
            changed();
        }
    }

    /// Takes over what the store has at the start.
    fn load_all(&self) {
        for name in self.names() {
            let _ = self.load(name);
        }
    }

    /// Takes over the certificate of the store, and returns whether there is one. A file that cannot be used is logged.
    fn load(&self, name: &str) -> bool {
        let pem = match self.store.read_certificate(name) {
            Ok(None) => return false,
            Ok(Some(pem)) => Ok(pem),
            Err(error) => Err(error.to_string()),
        };
        match pem.and_then(|pem| Certificate::from_pem(&pem, name, &self.provider)) {
            Ok(certificate) => {
                self.set(name, certificate);
                true
            }
            Err(error) => {
                let path = self.store.certificate_path(name);
                log_line!(Error, "ACME: the file {} is left out: {error}", path.display());
                false
            }
        }
    }
}

impl std::fmt::Debug for AcmeCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcmeCertificates").field("names", &self.names()).finish_non_exhaustive()
    }
}

fn challenge_kinds(reachable: Reachable) -> Result<Vec<ChallengeKind>> {
    let mut kinds = Vec::new();
    if reachable.tls {
        kinds.push(ChallengeKind::TlsAlpn01);
    } else {
        log_line!(Info, "ACME: the TLS listeners require client certificates, so only http-01 is used");
    }
    if reachable.plain {
        kinds.push(ChallengeKind::Http01);
    }
    if kinds.is_empty() {
        return Err(Error::usage(
            "ACME cannot verify the names: the TLS listeners require client certificates, which the authority does not \
             have. Add a plain listener on port 80, such as redirect_from(\"[::]:80\")",
        ));
    }
    Ok(kinds)
}

fn client_config(settings: &AcmeSettings, provider: &Arc<CryptoProvider>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &settings.directory_ca_file {
        Some(path) => {
            let failed = |error: &dyn std::fmt::Display| {
                Error::usage(format!("directory_ca_file {}: {error}", path.display()))
            };
            let pem = std::fs::read(path).map_err(|error| failed(&error))?;
            for root in CertificateDer::pem_slice_iter(&pem) {
                roots.add(root.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            }
            if roots.is_empty() {
                return Err(failed(&"it has no certificate"));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::usage(
                    "ACME: the system has no roots to verify the authority: install ca-certificates, or set directory_ca_file",
                ));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::usage(format!("ACME: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Polls a future of `instant-acme` once. Its HTTP client blocks, so the future never waits for anything else.
fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => {
            Err(io::Error::other("the ACME library waits for something else than its HTTP client"))
        }
    }
}
