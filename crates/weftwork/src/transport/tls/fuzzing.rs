//! Feeds a session anything, in every kind of pieces: bytes of a client that has no keys, and records of a client that
//! has them.

use std::sync::LazyLock;

use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::{ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion};

use super::scratch::Output;
use super::session::{PLAIN_BYTES_MAX, Session};
use super::testing::{Configs, providers};

static CONFIGS: LazyLock<[Configs; 2]> = LazyLock::new(|| {
    let provider = &providers()[0];
    [Configs::of(provider, &rustls::version::TLS12), Configs::of(provider, &rustls::version::TLS13)]
});

/// Calls of a client or of the server.
enum Action<'a> {
    /// A record of any type. In TLS 1.3, it is encrypted.
    Record(ContentType, &'a [u8]),
    /// Bytes on the wire.
    Raw(&'a [u8]),
    /// The server sends.
    Send(usize),
    /// The server ends its side.
    Close,
}

/// What must not depend on how the bytes arrive.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    plain: Vec<u8>,
    peer_closed: bool,
    has_failed: bool,
}

/// Runs `input` in three kinds of pieces. Panics if the outcome differs, or if a buffer grows without bound.
pub(crate) fn every_way(input: &[u8]) {
    let Some((mode, input)) = input.split_first() else { return };
    let run = |size: usize| match mode % 4 {
        0 => unknown(&CONFIGS[1], input, size),
        1 => unknown(&CONFIGS[0], input, size),
        2 => established(&CONFIGS[0], input, size),
        _ => established(&CONFIGS[1], input, size),
    };
    let whole = run(usize::MAX);
    for size in [1, 7] {
        assert_eq!(run(size), whole, "in pieces of {size}");
    }
}

/// A client that has sent nothing before.
fn unknown(configs: &Configs, input: &[u8], size: usize) -> Outcome {
    let mut server = Server::new(configs);
    server.feed(input, size);
    server.outcome
}

/// A client whose handshake has ended.
fn established(configs: &Configs, input: &[u8], size: usize) -> Outcome {
    let (client, mut server) = open(configs);
    let mut client = RawClient::of(client);
    for action in actions(input) {
        match action {
            Action::Record(typ, payload) => match client.record(typ, payload) {
                Some(record) => server.feed(&record, size),
                None => return server.outcome,
            },
            Action::Raw(bytes) => server.feed(bytes, size),
            Action::Send(count) => server.send(count),
            // Nothing is fed after it: rustls with debug assertions panics at an error after our end, and the fuzzer ends
            // at each panic, also at one that is caught.
            Action::Close => {
                server.session.close(&mut server.rest, &mut server.out);
                return server.outcome;
            }
        }
        server.out.clear();
    }
    server.outcome
}

fn actions(mut input: &[u8]) -> Vec<Action<'_>> {
    let mut actions = Vec::new();
    while let [kind, length, rest @ ..] = input {
        let (payload, others) = rest.split_at(rest.len().min(usize::from(*length)));
        input = others;
        actions.push(match kind % 8 {
            0 => Action::Record(ContentType::ChangeCipherSpec, payload),
            1 => Action::Record(ContentType::Alert, payload),
            2 => Action::Record(ContentType::Handshake, payload),
            3 | 4 => Action::Record(ContentType::ApplicationData, payload),
            5 => Action::Send(usize::from(*length) * 200),
            6 => Action::Close,
            _ => Action::Raw(payload),
        });
    }
    actions
}

struct Server {
    session: Session,
    rest: Vec<u8>,
    out: Vec<u8>,
    outcome: Outcome,
}

impl Server {
    fn new(configs: &Configs) -> Server {
        let session = Session::new(configs.server.clone()).expect("a configuration that works");
        Server { session, rest: Vec::new(), out: Vec::new(), outcome: Outcome::default() }
    }

    fn feed(&mut self, bytes: &[u8], size: usize) {
        for piece in bytes.chunks(size) {
            // A stream reads nothing after an end or an error.
            if self.outcome.has_failed || self.outcome.peer_closed {
                return;
            }
            self.rest.extend_from_slice(piece);
            let fed = self.session.feed(&mut self.rest, &mut self.outcome.plain, &mut self.out);
            self.rest.drain(..fed.used);
            self.outcome.peer_closed |= fed.peer_closed;
            self.outcome.has_failed |= fed.error.is_some();
            assert!(self.out.len() < 64 << 10, "{} bytes for the client", self.out.len());
        }
    }

    fn send(&mut self, count: usize) {
        if !self.outcome.has_failed {
            for part in vec![0; count].chunks(PLAIN_BYTES_MAX) {
                let mut sealed = Output::default();
                // After its end, the session refuses.
                let _ = self.session.seal(part, &mut self.rest, &mut sealed);
                self.out.extend_from_slice(sealed.bytes());
            }
        }
    }
}

fn open(configs: &Configs) -> (ClientConnection, Server) {
    let (mut client, mut server) = (configs.client(), Server::new(configs));
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory");
        }
        server.feed(&bytes, usize::MAX);
        let mut answer = &server.out[..];
        while !answer.is_empty() {
            client.read_tls(&mut answer).expect("memory");
            client.process_new_packets().expect("a server that keeps to the protocol");
        }
        server.out.clear();
    }
    assert!(!client.is_handshaking() && !server.session.is_handshaking());
    (client, server)
}

/// A client that encrypts records of any content.
pub(super) struct RawClient {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

impl RawClient {
    #[allow(deprecated, reason = "its replacement gives no keys for records of other types")]
    pub(super) fn of(client: ClientConnection) -> RawClient {
        let suite = client.negotiated_cipher_suite().expect("a suite");
        let (sequence, secret) = client.dangerous_extract_secrets().expect("it is enabled").tx;
        let (key, iv) = match secret {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => unreachable!("the providers have no other cipher"),
        };
        let encrypter = match (suite.tls13(), suite) {
            (Some(suite), _) => suite.aead_alg.encrypter(key, iv),
            (None, rustls::SupportedCipherSuite::Tls12(suite)) => {
                // The explicit part of the nonce is any.
                suite.aead_alg.encrypter(key, &iv.as_ref()[..4], &[0; 8])
            }
            _ => unreachable!("each suite is of one of the versions"),
        };
        RawClient { encrypter, sequence }
    }

    pub(super) fn record(&mut self, typ: ContentType, payload: &[u8]) -> Option<Vec<u8>> {
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload: payload.into() };
        let record = self.encrypter.encrypt(plain, self.sequence).ok()?.encode();
        self.sequence += 1;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run of the fuzz target `tls`. `WEFTWORK_TLS_ROUNDS=10000` makes it longer.
    #[test]
    fn any_client_has_the_same_outcome_however_its_bytes_arrive() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let common: [&[u8]; 8] = [
            &[2, 5, 24, 0, 0, 1, 1],
            &[2, 5, 24, 0, 0, 1, 0],
            &[2, 3, 24, 0, 0],
            &[2, 2, 1, 1],
            &[1, 2, 1, 0],
            &[1, 2, 2, 40],
            &[3, 5, b'h', b'e', b'l', b'l', b'o'],
            &[5, 200],
        ];
        let rounds = std::env::var("WEFTWORK_TLS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
        for round in 0..rounds.unwrap_or(100) {
            let mut input = vec![random() as u8];
            for _ in 0..random() % 8 {
                match random() % 3 {
                    0 => input.extend((0..random() % 40).map(|_| random() as u8)),
                    _ => input.extend_from_slice(common[(random() % 8) as usize]),
                }
            }
            println!("round {round}: {input:?}");
            every_way(&input);
        }
    }
}
