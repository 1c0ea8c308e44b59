//! Configures TLS of a server: certificates, keys, and what clients must show.

#[cfg(feature = "_acme")]
mod acme;
#[cfg(not(feature = "_acme"))]
#[path = "tls/without_acme.rs"]
mod acme;
mod client_auth;
mod handle;
mod live;
mod pair;
mod pem;
#[cfg(feature = "tls-self-signed")]
mod self_signed;
#[cfg(test)]
mod tests;
mod tickets;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;

use crate::error::Result;
use crate::settings::Settings;
pub use crate::transport::tls::client_certificate::ClientCertificate;
use crate::transport::tls::provider;
#[cfg(feature = "_acme")]
pub use acme::Acme;
#[cfg(not(feature = "_acme"))]
use acme::Acme;
pub(crate) use acme::{AcmeThread, answer_challenges};
pub use client_auth::ClientCertificates;
pub use handle::{CertificateInfo, TlsHandle};
pub(crate) use live::Live;
use pair::PairSource;
use pem::Source;
pub(crate) use tickets::to_hand_over;
pub(crate) use watch::Watch;

/// Certificates and keys of a server, for [`Server::tls`](crate::Server::tls). Needs the feature `tls` (aws-lc-rs) or `tls-ring`.
///
/// ```no_run
/// use weftwork::Tls;
/// use weftwork::prelude::*;
///
/// fn main() -> weftwork::Result<()> {
///     let tls = Tls::from_files("fullchain.pem", "privkey.pem")?;
///     Server::bind("[::]:443")?.tls(tls).run(|_: &mut Request| "hello")
/// }
/// ```
///
/// # Certificates
///
/// A chain begins with the certificate of the server, and its intermediate certificates follow. A key is PKCS#8, PKCS#1 or
/// SEC1, and not encrypted. Both are PEM, and may be one file. A client gets the certificate with the name that it asks
/// for, then the one with a wildcard for that name, then the first. A wildcard stands for one label. Two certificates may
/// have the same name, one with an ECDSA key and one with an RSA key for old clients. The first that the client supports
/// is used.
///
/// A key that does not belong to its chain, an expired chain, an encrypted key, and a file that cannot be read each are an
/// error that names the file. The log says at the start when each certificate expires, and what a signature of its key
/// costs. An RSA key costs 25 to 170 times as much as an ECDSA key.
///
/// # New certificates
///
/// Files are read again when they change ([`tls_check_interval`](Settings::tls_check_interval)), on SIGHUP
/// ([`Signals`](crate::Signals)), and by [`TlsHandle::reload`]. Chain and key are read, checked against each other and for
/// expiry, and then used for new connections. Established connections go on. If the check fails, what was loaded before
/// stays in use, and the log says why. From 14 days before a certificate expires, the log warns once a day.
///
/// # Sessions
///
/// Clients resume sessions with tickets (RFC 8446 section 2.2, RFC 5077). A key of tickets is random, seals for 6 hours and
/// opens for 6 more. The process that replaces this one (SIGUSR2) takes the keys over, and
/// [`ticket_keys`](Tls::ticket_keys) shares them between machines. Early data (0-RTT) is never accepted, because it can be
/// replayed.
///
/// Versions are [`tls_min_version`](Settings::tls_min_version), and [`tls_key_log`](Settings::tls_key_log) helps with the analysis
/// of a capture.
#[derive(Clone)]
pub struct Tls {
    pairs: Vec<PairSource>,
    clients: Option<ClientCertificates>,
    is_strict: bool,
    provider: Option<Arc<CryptoProvider>>,
    ticket_keys: Option<Source>,
    acme: Option<Acme>,
    handle: TlsHandle,
}

/// What ACME says of a handshake.
#[cfg_attr(not(feature = "_acme"), allow(dead_code, reason = "ACME constructs it"))]
pub(crate) enum Choice {
    Certificate(Arc<CertifiedKey>),
    /// The name has no certificate yet, or no challenge is waited for.
    Refuse,
    /// The table of names decides.
    Table,
}

/// The listeners that a certificate authority can reach.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "_acme"), allow(dead_code, reason = "ACME reads it"))]
pub(crate) struct Reachable {
    /// A TLS listener that does not require client certificates.
    pub(crate) tls: bool,
    /// A plain listener, also one that only redirects.
    pub(crate) plain: bool,
}

/// Where a server listens.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Addresses as the program wrote them.
    pub(crate) addresses: String,
    /// Ticket keys of the process before, at the same addresses.
    pub(crate) former_ticket_keys: Option<String>,
}

impl Tls {
    /// Uses a certificate chain and its key, from files in PEM.
    ///
    /// # Errors
    /// A file cannot be read, the chain or the key is unusable, they do not belong together, or the chain has expired.
    pub fn from_files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Tls> {
        Tls::new().and_files(chain, key)
    }

    /// Uses a certificate chain and its key in PEM, which the program has read from elsewhere.
    ///
    /// # Errors
    /// See [`from_files`](Tls::from_files).
    pub fn from_pem(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Result<Tls> {
        Tls::new().and_pem(chain, key)
    }

    /// Uses a key that the program holds, such as one in hardware. If a signature takes more than 1 ms, a handshake is done
    /// on another thread than that of the event loop. Chain and dates are checked as in [`from_files`](Tls::from_files).
    ///
    /// # Errors
    /// The chain is empty or has expired.
    pub fn from_key(key: Arc<CertifiedKey>) -> Result<Tls> {
        Tls::new().and(PairSource::Ready(key))
    }

    /// Uses a certificate that is signed by its own key, for development. Browsers warn of it once. Names are such as
    /// `localhost`, which is also `127.0.0.1` and `::1`, or IP addresses. Needs the feature `tls-self-signed`.
    ///
    /// The certificate lives for a year and is kept for later starts in `$XDG_CACHE_HOME/weftwork`, by default
    /// `~/.cache/weftwork`, so that the exceptions of browsers hold. If the folder cannot be written, each start makes a
    /// new certificate. The line of the start has its SHA-256 fingerprint, as browsers show it.
    ///
    /// ```
    /// use weftwork::Tls;
    /// use weftwork::prelude::*;
    ///
    /// let tls = Tls::self_signed(["localhost"])?;
    /// let root = tls.chain_pem();    // what a client of a test has to trust
    /// let running = Server::bind("127.0.0.1:0")?.tls(tls).start(|_: &mut Request| "hello")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// A name is malformed, or no name is given.
    #[cfg(feature = "tls-self-signed")]
    pub fn self_signed<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Tls> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let pem =
            self_signed::certificate(&names, self_signed::cache_folder().as_deref(), SystemTime::now())?;
        Tls::from_pem(pem.clone(), pem)
    }

    /// Gets and renews certificates from an authority that speaks ACME, by default Let's Encrypt. Needs the feature
    /// `acme` or `acme-ring`. See [`Acme`] for all that can be set.
    ///
    /// Further certificates and settings are those of this type:
    ///
    /// ```no_run
    /// use weftwork::Tls;
    ///
    /// let acme = Tls::acme(["example.org"]).contact("mailto:ops@example.org").store("/var/lib/site").accept_terms();
    /// let tls = Tls::from(acme).and_files("internal.pem", "internal.key")?.strict_names();
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    #[cfg(feature = "_acme")]
    pub fn acme<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Acme {
        Acme::new(names)
    }

    fn new() -> Tls {
        Tls {
            pairs: Vec::new(),
            clients: None,
            is_strict: false,
            provider: None,
            ticket_keys: None,
            acme: None,
            handle: TlsHandle::default(),
        }
    }

    /// Adds a certificate for further names.
    ///
    /// ```no_run
    /// # use weftwork::Tls;
    /// let tls = Tls::from_files("example.org.pem", "example.org.key")?.and_files("example.net.pem", "example.net.key")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// See [`from_files`](Tls::from_files).
    pub fn and_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Tls> {
        self.and(PairSource::Pem { chain: Source::File(chain.into()), key: Source::File(key.into()) })
    }

    /// Adds a certificate in PEM for further names.
    ///
    /// # Errors
    /// See [`from_files`](Tls::from_files).
    pub fn and_pem(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Result<Tls> {
        self.and(PairSource::Pem { chain: Source::Given(chain.into()), key: Source::Given(key.into()) })
    }

    fn and(mut self, pair: PairSource) -> Result<Tls> {
        pair.load(&provider::default_provider(), SystemTime::now())?;
        self.pairs.push(pair);
        Ok(self)
    }

    /// Refuses clients that ask for a name that no certificate has, or for no name, with the alert `unrecognized_name`.
    /// Default: off, so that they get the
    /// first certificate. Clients that connect to an IP address ask for no name (RFC 6066 section 3).
    #[must_use]
    pub fn strict_names(mut self) -> Tls {
        self.is_strict = true;
        self
    }

    /// Asks clients for certificates. Default: off.
    #[must_use]
    pub fn client_certificates(mut self, clients: ClientCertificates) -> Tls {
        self.clients = Some(clients);
        self
    }

    /// Uses the ticket keys of a file, so that a client can resume its session at another machine. Default: keys of this
    /// process.
    ///
    /// Each line has a key of 64 hexadecimal digits, and `#` begins a comment. The first key seals, and all keys open, at
    /// most 16. Write the new key to all machines as the second line first, and make it the first line a minute later. The
    /// file is read again as certificate files are. A reader of it can decrypt sessions of TLS 1.2, so change keys at
    /// least daily.
    ///
    /// ```sh
    /// (openssl rand -hex 32; head -n 1 ticket-keys) > new && mv new ticket-keys
    /// ```
    ///
    /// # Errors
    /// The file cannot be read, has no key, or has a malformed line.
    pub fn ticket_keys(mut self, file: impl Into<PathBuf>) -> Result<Tls> {
        let file = Source::File(file.into());
        tickets::Tickets::from_file(&provider::default_provider(), Vec::new(), &file)?;
        self.ticket_keys = Some(file);
        Ok(self)
    }

    /// Uses other cryptography than the library was built with: other cipher suites, FIPS, or hardware. If it does not know
    /// the kind of a key, [`Server::start`](crate::Server::start) fails.
    #[must_use]
    pub fn provider(mut self, provider: Arc<CryptoProvider>) -> Tls {
        self.provider = Some(provider);
        self
    }

    /// Returns a handle that reloads the files of the server.
    pub fn handle(&self) -> TlsHandle {
        self.handle.clone()
    }

    /// Returns the first chain in PEM, for clients of tests that have to trust a [self-signed](Tls::self_signed) certificate. If its
    /// file cannot be read any more, the text is empty.
    pub fn chain_pem(&self) -> String {
        let text = match self.pairs.first() {
            Some(PairSource::Pem { chain, .. }) => chain.read("certificate chain").ok(),
            _ => None,
        };
        text.map_or(String::new(), |text| text.certificates_pem())
    }

    /// Loads everything for a server.
    pub(crate) fn start(&self, settings: &Settings, place: &Place) -> Result<Arc<Live>> {
        let live = Live::start(self, settings, place)?;
        self.handle.add(&live);
        Ok(live)
    }
}

#[cfg(feature = "_acme")]
impl From<Acme> for Tls {
    fn from(acme: Acme) -> Tls {
        Tls { acme: Some(acme), ..Tls::new() }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.pairs.iter().map(PairSource::name).collect();
        f.debug_struct("Tls").field("pairs", &names).field("clients", &self.clients).finish_non_exhaustive()
    }
}
