//! Tests of what a program configures, against a client of rustls in memory.

mod authority;
mod clients;
mod files;
mod names;
mod reload;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, HandshakeKind, RootCertStore, ServerConnection, version};

use super::*;
use crate::settings::TlsVersion;
use authority::{Authority, Issued};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn live(tls: &Tls) -> Arc<Live> {
    tls.start(&Settings::default(), &Place::default()).unwrap()
}

/// A client and a server that have ended their handshake.
struct Session {
    client: ClientConnection,
    server: ServerConnection,
}

impl Session {
    /// Shakes hands. An error is that of the server, or else that of the client.
    fn new(live: &Live, client: &Arc<ClientConfig>, name: &str) -> Result<Session, rustls::Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = Session {
            client: ClientConnection::new(client.clone(), name).unwrap(),
            server: ServerConnection::new(live.acceptor().current().config.clone()).unwrap(),
        };
        session.pump()?;
        assert!(!session.client.is_handshaking() && !session.server.is_handshaking());
        Ok(session)
    }

    /// Moves bytes until both sides have none left.
    fn pump(&mut self) -> Result<(), rustls::Error> {
        loop {
            let mut bytes = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut bytes).unwrap();
            }
            let mut sent = bytes.len();
            let mut unread = &bytes[..];
            while !unread.is_empty() {
                self.server.read_tls(&mut unread).unwrap();
                self.server.process_new_packets()?;
            }
            bytes.clear();
            while self.server.wants_write() {
                self.server.write_tls(&mut bytes).unwrap();
            }
            sent += bytes.len();
            let mut unread = &bytes[..];
            while !unread.is_empty() {
                self.client.read_tls(&mut unread).unwrap();
                self.client.process_new_packets()?;
            }
            if sent == 0 {
                return Ok(());
            }
        }
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.client.peer_certificates().unwrap()[0].clone().into_owned()
    }

    fn is_resumed(&self) -> bool {
        self.server.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends a text each way.
    fn talk(&mut self) {
        self.client.writer().write_all(b"hello").unwrap();
        self.server.writer().write_all(b"world").unwrap();
        self.pump().unwrap();
        let mut text = [0; 5];
        self.server.reader().read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
        self.client.reader().read_exact(&mut text).unwrap();
        assert_eq!(&text, b"world");
    }
}

fn client_of(authority: &Authority) -> Arc<ClientConfig> {
    Arc::new(builder(authority).with_no_client_auth())
}

fn client_with(authority: &Authority, own: &Issued) -> Arc<ClientConfig> {
    let key = own.key_der();
    Arc::new(builder(authority).with_client_auth_cert(vec![own.der()], key).unwrap())
}

fn builder(authority: &Authority) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    ClientConfig::builder_with_provider(provider::default_provider())
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
}

#[test]
fn sessions_resume_in_both_versions_and_after_a_reload() {
    let authority = Authority::new("root");
    let server = authority.issue("a.test");
    let tls = Tls::from_pem(server.chain(), server.key()).unwrap();
    let live = live(&tls);
    for one in [&version::TLS12, &version::TLS13] {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der()).unwrap();
        let client = ClientConfig::builder_with_provider(provider::default_provider())
            .with_protocol_versions(&[one])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        let resumed = || Session::new(&live, &client, "a.test").unwrap().is_resumed();
        assert!(!resumed());
        assert!(resumed(), "{:?}", one.version);
        live.reload().unwrap();
        assert!(resumed(), "{:?}", one.version);
    }
    assert_eq!(live.acceptor().current().config.max_early_data_size, 0);
}

#[test]
fn an_old_version_is_refused_by_the_setting() {
    let authority = Authority::new("root");
    let server = authority.issue("a.test");
    let tls = Tls::from_pem(server.chain(), server.key()).unwrap();
    let mut client = (*client_of(&authority)).clone();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    client = ClientConfig::builder_with_provider(client.crypto_provider().clone())
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    assert!(Session::new(&live(&tls), &client, "a.test").is_ok());
    let strict =
        tls.start(&Settings::default().tls_min_version(TlsVersion::Tls13), &Place::default()).unwrap();
    let error = Session::new(&strict, &client, "a.test").err().unwrap();
    assert!(matches!(error, rustls::Error::PeerIncompatible(_)), "{error}");
}

#[test]
fn ticket_keys_of_a_file_join_servers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "5a".repeat(32)).unwrap();
    let authority = Authority::new("root");
    let server = authority.issue("a.test");
    let tls = || Tls::from_pem(server.chain(), server.key()).unwrap();
    let shared = || live(&tls().ticket_keys(&file).unwrap());
    let client = client_of(&authority);
    assert!(!Session::new(&shared(), &client, "a.test").unwrap().is_resumed());
    assert!(Session::new(&shared(), &client, "a.test").unwrap().is_resumed(), "another server");
    assert!(!Session::new(&live(&tls()), &client, "a.test").unwrap().is_resumed(), "keys of its own");
    let error = tls().ticket_keys(folder.path().join("absent")).unwrap_err().to_string();
    assert!(error.contains("cannot read the file of ticket keys"), "{error}");
}

#[test]
fn a_self_signed_certificate_serves_its_clients() {
    let pem = self_signed::certificate(&["localhost".into()], None, SystemTime::now()).unwrap();
    let tls = Tls::from_pem(pem.clone(), pem).unwrap();
    let root = tls.chain_pem();
    assert!(root.starts_with("-----BEGIN CERTIFICATE-----") && !root.contains("PRIVATE"), "{root}");
    let mut roots = RootCertStore::empty();
    roots
        .add(pem::Source::Given(root.into()).read("root").unwrap().certificates().unwrap().remove(0))
        .unwrap();
    let client = ClientConfig::builder_with_provider(provider::default_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert!(Session::new(&live(&tls), &client, name).is_ok(), "{name}");
    }
}

#[test]
fn a_handle_without_a_server_says_so() {
    let authority = Authority::new("root");
    let server = authority.issue("a.test");
    let tls = Tls::from_pem(server.chain(), server.key()).unwrap();
    let handle = tls.handle();
    assert!(handle.reload().unwrap_err().to_string().contains("no server that runs"));
    let live = live(&tls);
    handle.reload().unwrap();
    let [info] = &handle.certificates()[..] else { panic!("one certificate") };
    assert_eq!((info.names.as_slice(), info.origin.as_str()), (&["a.test".to_owned()][..], "given PEM"));
    assert_eq!(info.fingerprint.len(), 95);
    drop(live);
    assert!(handle.certificates().is_empty());
}
