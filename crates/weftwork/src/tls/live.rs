//! Loads, replaces and watches the certificates of a running server.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{KeyLogFile, ServerConfig, SupportedProtocolVersion, version};

use super::acme::{ACME_TLS_ALPN, AcmeCertificates};
use super::client_auth::{ClientCertificates, Verifier};
use super::pair::{Pair, PairSource};
use super::pem::Source;
use super::tickets::{self, Tickets};
use super::{CertificateInfo, Choice, Place, Tls};
use crate::error::{Error, Result};
use crate::settings::{Settings, TlsVersion};
use crate::transport::log_queue::log_line;
use crate::transport::tls::names::NameTable;
use crate::transport::tls::{ALPN, Current, HTTP2_ALPN, TlsAcceptor, provider};

/// Time before the end of a certificate from which on the log warns.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Interval of these warnings.
const WARN_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Interval of lines about files that cannot be used.
const FAILURE_INTERVAL: Duration = Duration::from_secs(60);
/// Readings of files that change while they are read.
const READINGS_MAX: u32 = 3;

/// Certificates and keys of a server that runs.
pub(crate) struct Live {
    pairs: Vec<PairSource>,
    acme: Option<Arc<AcmeCertificates>>,
    clients: Option<ClientCertificates>,
    provider: Arc<CryptoProvider>,
    is_strict: bool,
    versions: Vec<&'static SupportedProtocolVersion>,
    logs_keys: bool,
    http2: bool,
    ticket_file: Option<Source>,
    /// Absent if clients do not resume.
    tickets: Option<Arc<Tickets>>,
    acceptor: Arc<TlsAcceptor>,
    state: Mutex<State>,
}

struct State {
    /// Those of `Live::pairs`, and then those of ACME.
    pairs: Vec<Arc<Pair>>,
    verifier: Option<Verifier>,
    /// What the files were when they were read. Absent after a failure, so that the next check reads them again.
    stamps: Option<Vec<Stamp>>,
    warned: Option<SystemTime>,
    failure_logged: Option<Instant>,
}

/// Identity and change of a file. A switched symbolic link leads to another file.
type Stamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

impl Live {
    pub(super) fn start(tls: &Tls, settings: &Settings, place: &Place) -> Result<Arc<Live>> {
        let provider = tls.provider.clone().unwrap_or_else(provider::default_provider);
        let now = SystemTime::now();
        let stamps = stamps(tls);
        let acme = tls.acme.clone().map(|acme| acme.open(provider.clone())).transpose()?;
        let mut pairs = tls
            .pairs
            .iter()
            .map(|pair| pair.load(&provider, now).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        pairs.extend(acme_pairs(acme.as_ref()));
        let verifier = tls.clients.as_ref().map(|clients| clients.load(&provider)).transpose()?;
        let tickets = match tls.clients.as_ref().is_none_or(ClientCertificates::resumes) {
            true => Some(Arc::new(make_tickets(tls, &provider, verifier.as_ref(), place)?)),
            false => None,
        };
        if let Some(tickets) = &tickets {
            tickets::register(&place.addresses, tickets);
        }
        let versions: &[&SupportedProtocolVersion] = match settings.tls_min_version {
            TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
            TlsVersion::Tls13 => &[&version::TLS13],
        };
        let parts = Parts {
            provider: &provider,
            versions,
            is_strict: tls.is_strict,
            logs_keys: settings.tls_key_log,
            http2: settings.http2,
            tickets: tickets.as_ref(),
            acme: acme.as_ref(),
        };
        let acceptor = TlsAcceptor::new(parts.config(&pairs, verifier.as_ref())?);
        let state = State { pairs, verifier, stamps: Some(stamps), warned: None, failure_logged: None };
        let live = Arc::new(Live {
            pairs: tls.pairs.clone(),
            acme,
            clients: tls.clients.clone(),
            is_strict: tls.is_strict,
            versions: versions.to_vec(),
            logs_keys: settings.tls_key_log,
            http2: settings.http2,
            ticket_file: tls.ticket_keys.clone(),
            tickets,
            acceptor,
            state: Mutex::new(state),
            provider,
        });
        if let Some(acme) = &live.acme {
            let weak = Arc::downgrade(&live);
            acme.on_change(move || {
                if let Some(live) = weak.upgrade() {
                    live.take_acme();
                }
            });
        }
        Ok(live)
    }

    /// Lets new connections use the certificates that ACME has now.
    fn take_acme(&self) {
        let mut state = self.state();
        state.pairs.truncate(self.pairs.len());
        state.pairs.extend(acme_pairs(self.acme.as_ref()));
        if let Err(error) = self.replace(&state) {
            log_line!(Error, "TLS: what was loaded before stays in use: {error}");
        }
    }

    pub(crate) fn acme(&self) -> Option<&Arc<AcmeCertificates>> {
        self.acme.as_ref()
    }

    /// Returns whether each client has to show a certificate.
    pub(crate) fn requires_client_certificates(&self) -> bool {
        self.clients.as_ref().is_some_and(ClientCertificates::is_required)
    }

    pub(crate) fn acceptor(&self) -> &Arc<TlsAcceptor> {
        &self.acceptor
    }

    /// Logs each certificate, and what its key costs.
    pub(crate) fn log_start(&self) {
        for pair in &self.state().pairs {
            let (names, origin, time) = (pair.names(), &pair.origin, pair.signature.as_secs_f64() * 1e3);
            let expires = pair.facts.expires.map_or("at an unknown time".into(), httpdate::fmt_http_date);
            let algorithm = pair.algorithm();
            log_line!(
                Info,
                "TLS: certificate of {names} ({origin}) expires {expires}, a signature of its {algorithm} key takes \
                 {time:.2} ms, SHA-256 fingerprint {}",
                pair.fingerprint
            );
            if pair.signs_slowly() {
                log_line!(
                    Warn,
                    "TLS: the {algorithm} key of {names} costs {time:.1} ms a new connection, an ECDSA key about 0.03 ms"
                );
            }
            if let Some(issuer) = &pair.missing_issuer {
                log_line!(
                    Info,
                    "TLS: {origin} has no certificate of the issuer {issuer}, so clients that do not know the issuer \
                     refuse it (fullchain.pem instead of cert.pem)"
                );
            }
            if pair.facts.begins.is_some_and(|begins| begins > SystemTime::now()) {
                log_line!(
                    Warn,
                    "TLS: the certificate of {names} ({origin}) is not valid yet, or the clock is wrong"
                );
            }
        }
        self.warn_of_expiry(SystemTime::now());
    }

    /// Reads all files again. What cannot be used is left as it is, and the rest is replaced.
    pub(crate) fn reload(&self) -> Result<()> {
        let mut state = self.state();
        self.reload_at(&mut state, SystemTime::now())
    }

    /// Reads all files again if one has changed.
    pub(super) fn check(&self, now: SystemTime) {
        let mut state = self.state();
        if state.stamps.as_ref() == Some(&self.stamps()) {
            return;
        }
        match self.reload_at(&mut state, now) {
            Ok(()) => {
                log_line!(Info, "TLS: certificate files have changed and are in use for new connections");
                state.failure_logged = None;
                drop(state);
                self.log_start();
            }
            Err(error) if state.failure_logged.is_none_or(|logged| logged.elapsed() >= FAILURE_INTERVAL) => {
                state.failure_logged = Some(Instant::now());
                log_line!(Error, "TLS: what was loaded before stays in use: {error}");
            }
            Err(_) => {}
        }
    }

    fn reload_at(&self, state: &mut State, now: SystemTime) -> Result<()> {
        for _ in 0..READINGS_MAX {
            let before = self.stamps();
            let (loaded, errors) = self.load(state, now);
            if self.stamps() != before {
                continue;
            }
            let Loaded { pairs, verifier } = loaded;
            if let Some(verifier) = verifier {
                state.verifier = Some(verifier);
            }
            state.pairs = pairs;
            self.replace(state)?;
            state.stamps = errors.is_empty().then_some(before);
            return if errors.is_empty() { Ok(()) } else { Err(joined(errors)) };
        }
        state.stamps = None;
        Err(Error::internal("the certificate files change all the time"))
    }

    /// Reads what comes from files. What fails is what was there before.
    fn load(&self, state: &State, now: SystemTime) -> (Loaded, Vec<Error>) {
        let mut errors = Vec::new();
        let mut pairs = Vec::new();
        for (source, former) in self.pairs.iter().zip(&state.pairs) {
            let is_file = source.sources().any(|source| source.path().is_some());
            pairs.push(match is_file.then(|| source.load(&self.provider, now)) {
                Some(Ok(pair)) => Arc::new(pair),
                Some(Err(error)) => {
                    errors.push(error);
                    former.clone()
                }
                None => former.clone(),
            });
        }
        pairs.extend(state.pairs.iter().skip(self.pairs.len()).cloned());
        let verifier = self.clients.as_ref().map(|clients| clients.load(&self.provider));
        let verifier = verifier.and_then(|loaded| loaded.map_err(|error| errors.push(error)).ok());
        if let (Some(tickets), Some(file)) = (&self.tickets, &self.ticket_file) {
            errors.extend(tickets.read_again(file).err());
        }
        (Loaded { pairs, verifier }, errors)
    }

    /// Lets new connections use what is loaded.
    fn replace(&self, state: &State) -> Result<()> {
        if let (Some(tickets), Some(verifier)) = (&self.tickets, &state.verifier) {
            tickets.verify_against(verifier.verifies.clone());
        }
        let parts = Parts {
            provider: &self.provider,
            versions: &self.versions,
            is_strict: self.is_strict,
            logs_keys: self.logs_keys,
            http2: self.http2,
            tickets: self.tickets.as_ref(),
            acme: self.acme.as_ref(),
        };
        self.acceptor.replace(parts.config(&state.pairs, state.verifier.as_ref())?);
        Ok(())
    }

    /// Does what is due from time to time, without the check of files.
    pub(super) fn tick(&self, now: SystemTime) {
        self.warn_of_expiry(now);
        if let Some(tickets) = &self.tickets {
            tickets.rotate(Instant::now());
        }
    }

    fn warn_of_expiry(&self, now: SystemTime) {
        let mut state = self.state();
        let is_recent =
            |warned: SystemTime| now.duration_since(warned).is_ok_and(|since| since < WARN_INTERVAL);
        if state.warned.is_some_and(is_recent) {
            return;
        }
        for line in expiry_warnings(&state.pairs, now) {
            log_line!(Warn, "{line}");
            state.warned = Some(now);
        }
    }

    #[cfg(test)]
    pub(super) fn expiry_warnings(&self, now: SystemTime) -> Vec<String> {
        expiry_warnings(&self.state().pairs, now)
    }

    /// Describes the certificates in use.
    pub(crate) fn certificates(&self) -> Vec<CertificateInfo> {
        self.state().pairs.iter().map(|pair| CertificateInfo::of(pair)).collect()
    }

    fn stamps(&self) -> Vec<Stamp> {
        let clients = self.clients.iter().flat_map(ClientCertificates::sources);
        let pairs = self.pairs.iter().flat_map(PairSource::sources);
        pairs.chain(clients).chain(&self.ticket_file).map(stamp).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("pairs", &self.state().pairs).finish_non_exhaustive()
    }
}

struct Loaded {
    pairs: Vec<Arc<Pair>>,
    verifier: Option<Verifier>,
}

/// What a configuration is made of, beside certificates.
struct Parts<'l> {
    provider: &'l Arc<CryptoProvider>,
    versions: &'l [&'static SupportedProtocolVersion],
    is_strict: bool,
    logs_keys: bool,
    http2: bool,
    tickets: Option<&'l Arc<Tickets>>,
    acme: Option<&'l Arc<AcmeCertificates>>,
}

impl Parts<'_> {
    fn config(&self, pairs: &[Arc<Pair>], verifier: Option<&Verifier>) -> Result<Current> {
        let mut names = NameTable::new(self.is_strict, verifier.is_some());
        pairs.iter().for_each(|pair| names.push(pair.facts.names_for_clients()));
        let names = Arc::new(names);
        let keys = pairs.iter().map(|pair| pair.key.clone()).collect();
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)
            .map_err(|error| {
                Error::usage(format!(
                    "the provider does not have the TLS version of tls_min_version: {error}"
                ))
            })?;
        let builder = match verifier {
            Some(Verifier { verifier, .. }) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver {
            names: names.clone(),
            keys,
            acme: self.acme.cloned(),
        }));
        let offered = ALPN.iter().filter(|&&protocol| self.http2 || protocol != HTTP2_ALPN);
        config.alpn_protocols = offered.map(|protocol| protocol.to_vec()).collect();
        // A client that offers HTTP too never gets it (RFC 8737 section 3).
        config.alpn_protocols.extend(self.acme.map(|_| ACME_TLS_ALPN.to_vec()));
        // Sessions are in the tickets, so the server keeps none.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match self.tickets {
            Some(tickets) => config.ticketer = tickets.clone(),
            None => config.send_tls13_tickets = 0,
        }
        if self.logs_keys {
            config.key_log = Arc::new(KeyLogFile::new());
        }
        let signs_slowly = pairs.iter().any(|pair| pair.signs_slowly());
        Ok(Current { config: Arc::new(config), signs_slowly, names })
    }
}

/// Chooses the certificate for a client.
#[derive(Debug)]
struct Resolver {
    names: Arc<NameTable>,
    keys: Vec<Arc<CertifiedKey>>,
    acme: Option<Arc<AcmeCertificates>>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.acme.as_ref().map(|acme| acme.choose(&hello)) {
            Some(Choice::Certificate(key)) => return Some(key),
            Some(Choice::Refuse) => return None,
            Some(Choice::Table) | None => {}
        }
        let numbers = self.names.choose(hello.server_name());
        let schemes = hello.signature_schemes();
        let can_sign = |number: &&usize| self.keys[**number].key.choose_scheme(schemes).is_some();
        // A client that takes none of them gets an error of the handshake.
        let number = numbers.iter().find(can_sign).or(numbers.first())?;
        self.keys.get(*number).cloned()
    }
}

fn make_tickets(
    tls: &Tls,
    provider: &CryptoProvider,
    verifier: Option<&Verifier>,
    place: &Place,
) -> Result<Tickets> {
    let verifies = verifier.map_or(Vec::new(), |verifier| verifier.verifies.clone());
    match &tls.ticket_keys {
        Some(file) => Tickets::from_file(provider, verifies, file),
        None => Tickets::own(provider, verifies, place.former_ticket_keys.as_deref()),
    }
}

fn acme_pairs(acme: Option<&Arc<AcmeCertificates>>) -> Vec<Arc<Pair>> {
    let keys = acme.map_or(Vec::new(), |acme| acme.keys());
    keys.into_iter().map(|(origin, key)| Arc::new(Pair::of_acme(origin, key))).collect()
}

fn stamps(tls: &Tls) -> Vec<Stamp> {
    let clients = tls.clients.iter().flat_map(ClientCertificates::sources);
    tls.pairs.iter().flat_map(PairSource::sources).chain(clients).chain(&tls.ticket_keys).map(stamp).collect()
}

fn stamp(source: &Source) -> Stamp {
    let it = fs::metadata(source.path()?).ok()?;
    Some((it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()))
}

fn joined(errors: Vec<Error>) -> Error {
    Error::usage(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn expiry_warnings(pairs: &[Arc<Pair>], now: SystemTime) -> Vec<String> {
    pairs.iter().filter_map(|pair| expiry_warning(pair, now)).collect()
}

/// Returns the line about a certificate that ends soon.
fn expiry_warning(pair: &Pair, now: SystemTime) -> Option<String> {
    // ACME has lines of its own.
    let left = pair.time_left(now).filter(|left| *left <= WARN_BEFORE && !pair.is_of_acme)?;
    let when = match left.as_secs() / (24 * 60 * 60) {
        _ if left.is_zero() => "has expired".to_owned(),
        0 => "expires within a day".to_owned(),
        1 => "expires in one day".to_owned(),
        days => format!("expires in {days} days"),
    };
    let date = pair.facts.expires.map(httpdate::fmt_http_date).unwrap_or_default();
    Some(format!("TLS: the certificate of {} ({}) {when}, on {date}: renew it", pair.names(), pair.origin))
}
