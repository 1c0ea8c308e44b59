//! Tests with a client of rustls in memory.

use std::io::{Read, Write};

use rustls::ClientConnection;
use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion};

use super::super::testing::Configs;
use super::*;

/// A session, and what the caller keeps for it.
struct Server {
    session: Session,
    rest: Vec<u8>,
    plain: Vec<u8>,
    out: Vec<u8>,
    peer_closed: bool,
}

impl Server {
    fn new(configs: &Configs) -> Server {
        let session = Session::new(configs.server.clone()).unwrap();
        Server { session, rest: Vec::new(), plain: Vec::new(), out: Vec::new(), peer_closed: false }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), rustls::Error> {
        self.rest.extend_from_slice(bytes);
        let fed = self.session.feed(&mut self.rest, &mut self.plain, &mut self.out);
        self.rest.drain(..fed.used);
        self.peer_closed |= fed.peer_closed;
        fed.error.map_or(Ok(()), Err)
    }

    fn feed_by(&mut self, size: usize, bytes: &[u8]) -> Result<(), rustls::Error> {
        bytes.chunks(size).try_for_each(|part| self.feed(part))
    }

    fn send(&mut self, plain: &[u8]) {
        let mut sealed = Output::default();
        for part in plain.chunks(PLAIN_BYTES_MAX) {
            self.session.seal(part, &mut self.rest, &mut sealed).unwrap();
        }
        self.out.extend_from_slice(sealed.bytes());
    }
}

fn taken(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets().unwrap();
        let _ = client.reader().read_to_end(&mut plain);
    }
    plain
}

/// Runs the handshake. Messages of the client arrive in parts of `size`.
fn shake(client: &mut ClientConnection, server: &mut Server, size: usize) {
    while client.is_handshaking() || server.session.is_handshaking() {
        server.feed_by(size, &taken(client)).unwrap();
        give(client, &std::mem::take(&mut server.out));
    }
    server.feed_by(size, &taken(client)).unwrap();
    give(client, &std::mem::take(&mut server.out));
}

fn open(configs: &Configs) -> (ClientConnection, Server) {
    let (mut client, mut server) = (configs.client(), Server::new(configs));
    shake(&mut client, &mut server, usize::MAX);
    (client, server)
}

fn echo(client: &mut ClientConnection, server: &mut Server, text: &[u8]) {
    client.writer().write_all(text).unwrap();
    server.feed(&taken(client)).unwrap();
    assert_eq!(std::mem::take(&mut server.plain), text);
    server.send(text);
    assert_eq!(give(client, &std::mem::take(&mut server.out)), text);
}

#[test]
fn every_version_of_every_provider_is_spoken_and_resumed() {
    for configs in Configs::all() {
        let (mut client, mut server) = open(&configs);
        assert_eq!(server.session.kind(), HandshakeKind::Full);
        echo(&mut client, &mut server, b"hello");
        let info = server.session.info(Some("a.example".into()));
        assert_eq!((info.alpn(), info.is_resumed()), (Some("http/1.1"), false), "{info:?}");
        let (mut client, mut server) = open(&configs);
        assert_eq!(server.session.kind(), HandshakeKind::Resumed, "{:?}", server.session.info(None));
        echo(&mut client, &mut server, b"again");
    }
}

#[test]
fn a_hello_may_be_cut_at_each_byte() {
    for configs in Configs::all() {
        let mut client = configs.client();
        let hello = taken(&mut client);
        assert_eq!(super::super::records::server_name(&hello).as_deref(), Some("a.example"));
        for at in 1..hello.len() {
            assert!(!super::super::records::has_hello(&hello[..at]), "{at}");
            let mut server = Server::new(&configs);
            server.feed(&hello[..at]).unwrap();
            assert!(server.out.is_empty(), "{at}");
            server.feed(&hello[at..]).unwrap();
            assert!(!server.out.is_empty(), "{at}");
        }
        assert!(super::super::records::has_hello(&hello));
        let (mut client, mut server) = (configs.client(), Server::new(&configs));
        shake(&mut client, &mut server, 1);
        echo(&mut client, &mut server, b"in single bytes");
    }
}

#[test]
fn records_have_any_length() {
    for configs in Configs::all() {
        let (mut client, mut server) = open(&configs);
        let text: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        for size in [1, 4096, usize::MAX] {
            let part = &text[..text.len().min(size.saturating_mul(100))];
            for one in part.chunks(size.min(PLAIN_BYTES_MAX)) {
                client.writer().write_all(one).unwrap();
                server.feed_by(7, &taken(&mut client)).unwrap();
            }
            assert_eq!(std::mem::take(&mut server.plain), part);
            server.send(part);
            assert_eq!(give(&mut client, &std::mem::take(&mut server.out)), part);
        }
    }
}

#[test]
fn ends_are_told_in_each_direction() {
    for configs in Configs::all() {
        let (mut client, mut server) = open(&configs);
        client.writer().write_all(b"last").unwrap();
        client.send_close_notify();
        server.feed(&taken(&mut client)).unwrap();
        assert_eq!((&server.plain[..], server.peer_closed), (&b"last"[..], true));
        // The other direction stays open.
        server.send(b"the response");
        assert_eq!(give(&mut client, &std::mem::take(&mut server.out)), b"the response");
        server.session.close(&mut server.rest, &mut server.out);
        let mut bytes = &server.out[..];
        client.read_tls(&mut bytes).unwrap();
        assert!(client.process_new_packets().unwrap().peer_has_closed());
        // What follows is not read.
        server.feed(b"more").unwrap();
    }
}

#[test]
fn garbage_gets_an_alert_in_each_state() {
    for configs in Configs::all() {
        let hello = taken(&mut configs.client());
        let mut server = Server::new(&configs);
        assert!(server.feed(&[22, 3, 1, 0, 4, 9, 0, 0, 0]).is_err());
        assert_eq!(server.out[0], 21, "an alert");
        let mut server = Server::new(&configs);
        server.feed(&hello).unwrap();
        server.out.clear();
        assert!(
            server
                .feed(&[
                    23, 3, 3, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    0, 0, 0, 0, 0, 0
                ])
                .is_err()
        );
        assert!(!server.out.is_empty(), "an alert");
        let (_, mut server) = open(&configs);
        server.out.clear();
        assert!(
            server
                .feed(&[
                    23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
                ])
                .is_err()
        );
        assert!(!server.out.is_empty(), "an alert");
        // An oversized record, of which only the header has arrived.
        let (_, mut server) = open(&configs);
        assert!(server.feed(&[23, 3, 3, 0xff, 0xff]).is_err());
    }
}

/// A client that encrypts records of any content.
struct RawClient {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

impl RawClient {
    /// Returns the client's keys of an open session of TLS 1.3.
    #[allow(deprecated)]
    fn of(client: ClientConnection) -> RawClient {
        let suite = client.negotiated_cipher_suite().unwrap().tls13().unwrap();
        let (sequence, secret) = client.dangerous_extract_secrets().unwrap().tx;
        let (key, iv) = match secret {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => panic!("an unknown cipher"),
        };
        RawClient { encrypter: suite.aead_alg.encrypter(key, iv), sequence }
    }

    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload: payload.into() };
        let record = self.encrypter.encrypt(plain, self.sequence).unwrap().encode();
        self.sequence += 1;
        record
    }
}

fn tls13() -> impl Iterator<Item = Configs> {
    Configs::all().into_iter().skip(1).step_by(2)
}

#[test]
fn parts_of_messages_after_the_handshake_do_not_hurt_what_is_sent() {
    for configs in tls13() {
        let (client, mut server) = open(&configs);
        let mut client = RawClient::of(client);
        // A part of a KeyUpdate, then a response, then the rest.
        server.feed(&client.record(ContentType::Handshake, &[24, 0, 0])).unwrap();
        server.send(b"a response in between");
        assert!(!server.out.is_empty());
        server.session.close(&mut server.rest, &mut server.out);
        server.feed(&client.record(ContentType::Handshake, &[1, 0])).unwrap();
    }
}

#[test]
fn key_updates_are_answered_once_and_cost_a_bounded_output() {
    for configs in tls13() {
        let (mut client, mut server) = open(&configs);
        for _ in 0..3 {
            client.refresh_traffic_keys().unwrap();
            echo(&mut client, &mut server, b"with new keys");
        }
        let (client, mut server) = open(&configs);
        let mut client = RawClient::of(client);
        // With these keys, only the first one can be read.
        let update = client.record(ContentType::Handshake, &[24, 0, 0, 1, 1]);
        server.feed(&update).unwrap();
        assert!(server.out.is_empty(), "it waits for the next response");
        let start = server.out.len();
        server.send(b"x");
        assert!(server.out.len() - start < 100);
    }
}

#[test]
fn empty_records_end_the_session() {
    for configs in tls13() {
        let (client, mut server) = open(&configs);
        let mut client = RawClient::of(client);
        let mut flood = (0..1000).map(|_| client.record(ContentType::ApplicationData, b""));
        assert!(flood.any(|record| server.feed(&record).is_err()));
    }
}

#[test]
fn renegotiation_is_refused() {
    for configs in Configs::all().iter().step_by(2) {
        let (mut client, mut server) = open(configs);
        echo(&mut client, &mut server, b"x");
        // A ClientHello in clear within a session.
        assert!(server.feed(&taken(&mut configs.client())).is_err());
    }
}
