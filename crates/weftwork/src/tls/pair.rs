//! Loads a certificate chain and its key, checks them against each other, and times the key.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{InconsistentKeys, SignatureAlgorithm, SignatureScheme};

use super::pem::{Source, Text};
use crate::error::Result;
use crate::transport::tls::provider;
use crate::transport::tls::x509::{CertificateFacts, fingerprint};

/// A signature that takes longer is made on another thread than the loop.
const SLOW: Duration = Duration::from_millis(1);
/// Signatures that are timed. The fastest counts, because the others may have waited for a core.
const SIGNATURES: u32 = 3;

/// Where a pair comes from.
#[derive(Clone)]
pub(super) enum PairSource {
    Pem {
        chain: Source,
        key: Source,
    },
    /// A key that the program holds, such as one in hardware.
    Ready(Arc<CertifiedKey>),
}

/// A chain and its key, ready for handshakes.
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) facts: CertificateFacts,
    pub(super) fingerprint: String,
    /// Where the chain comes from, for people.
    pub(super) origin: String,
    /// Time of one signature.
    pub(super) signature: Duration,
    /// It is renewed by this process.
    pub(super) is_of_acme: bool,
    /// Subject of the issuer, if the chain does not have it.
    pub(super) missing_issuer: Option<String>,
}

impl PairSource {
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        let (chain, key) = match self {
            PairSource::Pem { chain, key } => (Some(chain), Some(key)),
            PairSource::Ready(_) => (None, None),
        };
        chain.into_iter().chain(key)
    }

    /// Returns the source for people.
    pub(super) fn name(&self) -> String {
        match self {
            PairSource::Pem { chain: Source::File(path), .. } => path.display().to_string(),
            PairSource::Pem { chain: Source::Given(_), .. } => "given PEM".into(),
            PairSource::Ready(_) => "given key".into(),
        }
    }

    /// Reads chain and key, and checks them against each other and for expiry.
    pub(super) fn load(&self, provider: &CryptoProvider, now: SystemTime) -> Result<Pair> {
        match self {
            PairSource::Pem { chain, key } => {
                let (chain, key) = (chain.read("certificate chain")?, key.read("key")?);
                Pair::new(self.name(), &chain, chain.certificates()?, (&key, key.key()?), provider, now)
            }
            PairSource::Ready(key) => {
                let name = self.name();
                let text = Text::new("given certificate chain", &[]);
                let facts = check_dates(&text, &key.cert, now)?;
                Ok(Pair::finish(name, facts, key.clone()))
            }
        }
    }
}

impl Pair {
    fn new(
        origin: String,
        chain_text: &Text,
        chain: Vec<CertificateDer<'static>>,
        (key_text, key): (&Text, PrivateKeyDer<'static>),
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Pair> {
        let key = provider.key_provider.load_private_key(key).map_err(|error| {
            key_text.error(format_args!(
                "its key is of no supported kind (ECDSA, RSA of 2048 to 8192 bits, Ed25519): {error}"
            ))
        })?;
        check_key(chain_text, &chain, key_text, &key)?;
        let facts = check_dates(chain_text, &chain, now)?;
        Ok(Pair::finish(origin, facts, Arc::new(CertifiedKey::new(chain, key))))
    }

    /// A certificate that ACME has checked.
    pub(super) fn of_acme(origin: String, key: Arc<CertifiedKey>) -> Pair {
        let facts = key.cert.first().map(|leaf| CertificateFacts::of(leaf)).unwrap_or_default();
        Pair { is_of_acme: true, ..Pair::finish(origin, facts, key) }
    }

    fn finish(origin: String, facts: CertificateFacts, key: Arc<CertifiedKey>) -> Pair {
        let leaf = key.cert.first().map_or(&[][..], |leaf| leaf.as_ref());
        let is_alone = key.cert.len() == 1 && !facts.is_self_issued();
        Pair {
            fingerprint: fingerprint(leaf, provider::sha256()),
            signature: time_signature(&*key.key),
            is_of_acme: false,
            missing_issuer: is_alone.then(|| facts.issuer.clone()),
            origin,
            facts,
            key,
        }
    }

    pub(super) fn signs_slowly(&self) -> bool {
        self.signature > SLOW
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self.key.key.algorithm() {
            SignatureAlgorithm::RSA => "RSA",
            SignatureAlgorithm::ECDSA => "ECDSA",
            SignatureAlgorithm::ED25519 => "Ed25519",
            _ => "other",
        }
    }

    /// Returns the time until the certificate expires, or zero.
    pub(super) fn time_left(&self, now: SystemTime) -> Option<Duration> {
        Some(self.facts.expires?.duration_since(now).unwrap_or_default())
    }

    pub(super) fn names(&self) -> String {
        match self.facts.names() {
            names if names.is_empty() => "no name".into(),
            names if names.len() > 4 => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
            names => names.join(", "),
        }
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("names", &self.names())
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Checks that the key belongs to the first certificate of the chain.
fn check_key(
    chain_text: &Text,
    chain: &[CertificateDer<'static>],
    key_text: &Text,
    key: &Arc<dyn SigningKey>,
) -> Result<()> {
    let fits = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], key.clone()).keys_match()
    };
    let Some(leaf) = chain.first() else { return Err(chain_text.error("it has no certificate")) };
    match fits(leaf) {
        // Some keys in hardware do not tell their public half.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            let of = match chain.iter().position(|certificate| fits(certificate).is_ok()) {
                Some(place) => format!(
                    "it belongs to certificate {} of {}, and the server's own certificate must come first",
                    place + 1,
                    chain_text.name
                ),
                None => format!(
                    "it does not belong to the first certificate of the {}, which is of {}",
                    chain_text.name,
                    CertificateFacts::of(leaf).subject
                ),
            };
            Err(key_text.error(of))
        }
        Err(error) => Err(chain_text.error(format_args!("its first certificate is malformed: {error}"))),
    }
}

/// Checks that nothing in the chain has expired, except a root, which clients do not need. Returns what the first
/// certificate says.
fn check_dates(text: &Text, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<CertificateFacts> {
    let mut first = None;
    for (place, certificate) in chain.iter().enumerate() {
        let facts = CertificateFacts::of(certificate);
        let is_root = place > 0 && facts.is_self_issued();
        if let Some(expires) = facts.expires.filter(|expires| *expires <= now && !is_root) {
            let which = if chain.len() == 1 {
                "its certificate".into()
            } else {
                format!("certificate {}", place + 1)
            };
            let date = httpdate::fmt_http_date(expires);
            return Err(text.error(format_args!("{which} of {} expired on {date}", facts.subject)));
        }
        first.get_or_insert(facts);
    }
    first.ok_or_else(|| text.error("it has no certificate"))
}

/// Measures how long a signature of the key takes.
fn time_signature(key: &dyn SigningKey) -> Duration {
    const SCHEMES: [SignatureScheme; 9] = [
        SignatureScheme::ECDSA_NISTP256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        SignatureScheme::ECDSA_NISTP521_SHA512,
        SignatureScheme::ED25519,
        SignatureScheme::RSA_PSS_SHA256,
        SignatureScheme::RSA_PSS_SHA384,
        SignatureScheme::RSA_PSS_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::ED448,
    ];
    let Some(signer) = key.choose_scheme(&SCHEMES) else { return Duration::ZERO };
    let times = (0..SIGNATURES).map(|_| {
        let begun = Instant::now();
        // As many bytes as TLS 1.3 signs.
        let signed = signer.sign(&[0x20; 130]);
        signed.map_or(Duration::ZERO, |_| begun.elapsed())
    });
    times.min().unwrap_or_default()
}
