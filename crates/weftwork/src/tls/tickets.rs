//! Seals session tickets with keys that rotate, that several processes share, or that the successor takes over.
//!
//! A ticket is the name of its key (16 bytes), a random nonce (12 bytes), and the session, sealed by the AEAD of a cipher suite of TLS 1.3.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use rustls::crypto::SecureRandom;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, OutboundChunks, OutboundPlainMessage, Tls13AeadAlgorithm,
};
use rustls::server::ProducesTickets;
use rustls::{ContentType, ProtocolVersion, SupportedCipherSuite};

use super::pem::Source;
use crate::error::{Error, Result};
use crate::transport::tls::provider;
use crate::transport::tls::x509::hex;

/// Time for which a key seals. It opens for as long again.
const ROTATION: Duration = Duration::from_secs(6 * 60 * 60);
const KEY_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
/// Keys of a file. The writer of the file adds one and drops the oldest.
const FILE_KEYS_MAX: usize = 16;
/// Bytes of a ticket. A session with a chain of a client is below that.
const TICKET_BYTES_MAX: usize = 16 * 1024;

type BaseKey = [u8; KEY_BYTES];

/// Seals and opens tickets. The first key seals, and all keys open.
pub(super) struct Tickets {
    aead: &'static dyn Tls13AeadAlgorithm,
    random: &'static dyn SecureRandom,
    /// Whether keys are made here, and not read from a file.
    is_own: bool,
    state: RwLock<State>,
}

struct State {
    base: Vec<BaseKey>,
    keys: Vec<Key>,
    /// What clients are verified against. A ticket opens only where the same is required of clients.
    verifies: Vec<u8>,
    rotated: Instant,
}

struct Key {
    name: [u8; NAME_BYTES],
    secret: BaseKey,
}

impl Key {
    /// Derives a key, so that a change of what clients are verified against makes former tickets useless.
    fn new(base: &BaseKey, verifies: &[u8]) -> Key {
        let sha256 = provider::sha256();
        let derived = |label: &str| {
            let mut context = sha256.start();
            [label.as_bytes(), base, verifies].iter().for_each(|part| context.update(part));
            let mut out = [0; KEY_BYTES];
            out.copy_from_slice(context.finish().as_ref());
            out
        };
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&derived("weftwork ticket name")[..NAME_BYTES]);
        Key { name, secret: derived("weftwork ticket key") }
    }
}

impl Tickets {
    /// Makes keys of its own, or takes those of the process before.
    pub(super) fn own(provider: &CryptoProvider, verifies: Vec<u8>, former: Option<&str>) -> Result<Tickets> {
        let (base, age) = match former.and_then(handed_over) {
            Some((base, age)) => (base, age),
            None => (vec![random_key(provider.secure_random)?], Duration::ZERO),
        };
        let rotated = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        Tickets::new(provider, base, verifies, Some(rotated))
    }

    /// Reads the keys from a file.
    pub(super) fn from_file(provider: &CryptoProvider, verifies: Vec<u8>, file: &Source) -> Result<Tickets> {
        Tickets::new(provider, read_keys(file)?, verifies, None)
    }

    fn new(
        provider: &CryptoProvider,
        base: Vec<BaseKey>,
        verifies: Vec<u8>,
        rotated: Option<Instant>,
    ) -> Result<Tickets> {
        let aead = provider.cipher_suites.iter().find_map(|suite| match suite {
            SupportedCipherSuite::Tls13(suite) if suite.aead_alg.key_len() == KEY_BYTES => {
                Some(suite.aead_alg)
            }
            _ => None,
        });
        let aead = aead.ok_or_else(|| {
            Error::usage(
                "the provider has no cipher suite of TLS 1.3 with a key of 32 bytes, which tickets need",
            )
        })?;
        let keys = base.iter().map(|base| Key::new(base, &verifies)).collect();
        let is_own = rotated.is_some();
        let state = State { base, keys, verifies, rotated: rotated.unwrap_or_else(Instant::now) };
        Ok(Tickets { aead, random: provider.secure_random, is_own, state: RwLock::new(state) })
    }

    /// Reads the file of the keys again. Does nothing for keys of this process.
    pub(super) fn read_again(&self, file: &Source) -> Result<()> {
        let base = read_keys(file)?;
        let mut state = self.write();
        state.base = base;
        state.derive();
        Ok(())
    }

    /// Notes what clients are verified against from now on.
    pub(super) fn verify_against(&self, verifies: Vec<u8>) {
        let mut state = self.write();
        if state.verifies != verifies {
            state.verifies = verifies;
            state.derive();
        }
    }

    /// Makes a new key if the time of the current one is over, and drops those that open no more.
    pub(super) fn rotate(&self, now: Instant) {
        let is_due = |state: &State| now.saturating_duration_since(state.rotated) >= ROTATION;
        if !self.is_own || !is_due(&self.read()) {
            return;
        }
        // Without random bytes the former keys go on.
        let Ok(key) = random_key(self.random) else { return };
        let mut state = self.write();
        if !is_due(&state) {
            return;
        }
        let is_former_over = now.saturating_duration_since(state.rotated) >= 2 * ROTATION;
        if is_former_over {
            state.base.clear();
        }
        state.base.insert(0, key);
        state.base.truncate(2);
        state.rotated = now;
        state.derive();
    }

    fn seal(&self, message: &[u8], now: Instant) -> Option<Vec<u8>> {
        self.rotate(now);
        let mut nonce = [0; NONCE_BYTES];
        self.random.fill(&mut nonce).ok()?;
        let state = self.read();
        let key = state.keys.first()?;
        let plain = OutboundPlainMessage {
            typ: ContentType::ApplicationData,
            version: ProtocolVersion::TLSv1_3,
            payload: OutboundChunks::Single(message),
        };
        // The nonce of the record with the number 0 is the whole of `nonce`.
        let mut encrypter = self.aead.encrypter(AeadKey::from(key.secret), Iv::from(nonce));
        let sealed = encrypter.encrypt(plain, 0).ok()?;
        let sealed = sealed.payload.as_ref();
        Some([&key.name[..], &nonce, sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: Instant) -> Option<Vec<u8>> {
        self.rotate(now);
        let (name, rest) =
            ticket.split_at_checked(NAME_BYTES).filter(|_| ticket.len() <= TICKET_BYTES_MAX)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
        let state = self.read();
        let key = state.keys.iter().find(|key| key.name == name)?;
        let mut decrypter = self.aead.decrypter(AeadKey::from(key.secret), Iv::from(nonce));
        let mut sealed = sealed.to_vec();
        let message =
            InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_3, &mut sealed);
        let plain = decrypter.decrypt(message, 0).ok()?;
        Some(plain.payload.to_vec())
    }

    /// Returns the keys as text, for the process that replaces this one.
    fn hand_over(&self, now: Instant) -> Option<String> {
        if !self.is_own {
            return None;
        }
        self.rotate(now);
        let state = self.read();
        let age = now.saturating_duration_since(state.rotated).as_secs();
        Some(state.base.iter().fold(age.to_string(), |text, key| format!("{text},{}", hex(key))))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn derive(&mut self) {
        self.keys = self.base.iter().map(|base| Key::new(base, &self.verifies)).collect();
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        2 * ROTATION.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, Instant::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, Instant::now())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("is_own", &self.is_own).finish_non_exhaustive()
    }
}

fn random_key(random: &dyn SecureRandom) -> Result<BaseKey> {
    let mut key = [0; KEY_BYTES];
    random.fill(&mut key).map_err(|_| Error::internal("the provider gives no random bytes"))?;
    Ok(key)
}

/// Reads keys from lines of 64 hexadecimal digits. Empty lines and lines after `#` do not count.
fn read_keys(file: &Source) -> Result<Vec<BaseKey>> {
    let text = file.read("file of ticket keys")?;
    let content = String::from_utf8_lossy(text.bytes());
    let lines = content.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(number, line)| {
        // The line is a secret, so the error does not show it.
        let wanted = "is not 64 hexadecimal digits, which `openssl rand -hex 32` writes";
        key_from_hex(line).ok_or_else(|| text.error(format_args!("line {number} {wanted}")))
    });
    let keys = keys.take(FILE_KEYS_MAX).collect::<Result<Vec<BaseKey>>>()?;
    if keys.is_empty() { Err(text.error("it has no key")) } else { Ok(keys) }
}

fn key_from_hex(text: &str) -> Option<BaseKey> {
    let mut key = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(key)
}

/// Tickets of the servers of this process, by the addresses of the server.
static SERVERS: Mutex<Vec<(String, Weak<Tickets>)>> = Mutex::new(Vec::new());

/// Lets the process that replaces this one take the keys over. `addresses` are those of the server, as they are written.
pub(super) fn register(addresses: &str, tickets: &Arc<Tickets>) {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.retain(|(_, tickets)| tickets.strong_count() > 0);
    servers.push((addresses.to_owned(), Arc::downgrade(tickets)));
}

/// Returns the keys of all servers of this process: addresses and keys in turn.
pub(crate) fn to_hand_over() -> Vec<(String, String)> {
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let keys = |(addresses, tickets): &(String, Weak<Tickets>)| {
        Some((addresses.clone(), tickets.upgrade()?.hand_over(now)?))
    };
    servers.iter().filter_map(keys).collect()
}

/// Reads keys of the process before, and the age of the first.
fn handed_over(text: &str) -> Option<(Vec<BaseKey>, Duration)> {
    let mut parts = text.split(',');
    let age = Duration::from_secs(parts.next()?.parse().ok()?);
    let keys: Vec<BaseKey> = parts.map(key_from_hex).collect::<Option<_>>()?;
    if keys.is_empty() {
        return None;
    }
    Some((keys, age))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Tickets {
        Tickets::own(&provider::default_provider(), Vec::new(), None).unwrap()
    }

    #[test]
    fn a_key_seals_for_six_hours_and_opens_for_six_more() {
        let (tickets, begun) = (own(), Instant::now());
        let first = tickets.seal(b"session", begun).unwrap();
        assert!(!first.windows(7).any(|part| part == b"session"));
        let later = begun + ROTATION + Duration::from_secs(1);
        let second = tickets.seal(b"session", later).unwrap();
        assert_ne!(first[..NAME_BYTES], second[..NAME_BYTES], "the key has changed");
        assert_eq!(tickets.open(&first, later).unwrap(), b"session", "the former key still opens");
        let last = later + ROTATION + Duration::from_secs(1);
        assert!(tickets.open(&first, last).is_none(), "it opens no more");
        assert_eq!(tickets.open(&second, last).unwrap(), b"session");
        // A server that nobody has asked for a day has forgotten both.
        assert!(tickets.open(&second, last + 3 * ROTATION).is_none());
    }

    #[test]
    fn a_ticket_that_was_changed_does_not_open() {
        let (tickets, now) = (own(), Instant::now());
        let ticket = tickets.seal(&[0; 300], now).unwrap();
        assert_eq!(tickets.open(&ticket, now).unwrap(), [0; 300]);
        assert_ne!(ticket, tickets.seal(&[0; 300], now).unwrap(), "the nonce is new each time");
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert!(tickets.open(&changed, now).is_none(), "byte {place}");
            assert!(tickets.open(&ticket[..place], now).is_none(), "{place} bytes");
        }
        assert!(own().open(&ticket, now).is_none(), "another server");
    }

    #[test]
    fn another_authority_of_clients_makes_tickets_useless() {
        let (tickets, now) = (own(), Instant::now());
        let ticket = tickets.seal(b"session", now).unwrap();
        tickets.verify_against(b"another".to_vec());
        assert!(tickets.open(&ticket, now).is_none());
        tickets.verify_against(Vec::new());
        assert!(tickets.open(&ticket, now).is_some());
    }

    #[test]
    fn the_successor_opens_the_tickets_of_the_process_before() {
        let (before, now) = (own(), Instant::now());
        let ticket = before.seal(b"session", now).unwrap();
        let keys = before.hand_over(now + Duration::from_secs(100)).unwrap();
        let after = Tickets::own(&provider::default_provider(), Vec::new(), Some(&keys)).unwrap();
        assert_eq!(after.open(&ticket, Instant::now()).unwrap(), b"session");
        let sealed = after.seal(b"session", Instant::now()).unwrap();
        assert_eq!(before.open(&sealed, now).unwrap(), b"session");
        for malformed in ["", "1", "x,00", "1,00", "1,zz"] {
            assert!(handed_over(malformed).is_none(), "{malformed}");
        }
    }

    #[test]
    fn processes_share_the_keys_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let (old, new) = ("0a".repeat(32), "0B".repeat(32));
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file = Source::File(path.clone());
            Tickets::from_file(&provider::default_provider(), Vec::new(), &file)
        };
        let now = Instant::now();
        let first = open(&format!("# first\n{old}\n")).unwrap();
        let ticket = first.seal(b"session", now).unwrap();
        let second = open(&format!("{new}\n\n{old}\n")).unwrap();
        assert_eq!(second.open(&ticket, now + 9 * ROTATION).unwrap(), b"session", "the file alone decides");
        let sealed = second.seal(b"session", now).unwrap();
        assert!(first.open(&sealed, now).is_none(), "the first process has not read the new key");
        first.read_again(&Source::File(path.clone())).unwrap();
        assert_eq!(first.open(&sealed, now).unwrap(), b"session");
        for (text, why) in
            [("", "it has no key"), ("# a\n0a0b", "line 2 is not 64"), (&"zz".repeat(32), "line 1")]
        {
            let error = open(text).unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("ticket keys") && !error.contains("zzzz"),
                "{error}"
            );
        }
    }
}
