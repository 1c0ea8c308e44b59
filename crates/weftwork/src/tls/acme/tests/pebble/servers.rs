//! Whole servers, on every engine, whose listeners the authority connects to.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::TIMEOUT;
use super::authority::Pebble;
use crate::message::Request;
use crate::tls::{ClientCertificates, Tls};
use crate::transport::tls::provider;
use crate::{Engine, Running, Server};

const NAME: &str = "example.org";

fn engines() -> Vec<Engine> {
    vec![
        Engine::Adaptive { loops: Some(2) },
        Engine::Reactor { loops: Some(2) },
        Engine::Workers { listeners: Some(1) },
        Engine::Pool { standby: Some(2) },
        #[cfg(feature = "fibers")]
        Engine::Fibers { threads: Some(2) },
    ]
}

fn hello(_: &mut Request<'_>) -> &'static str {
    "hello"
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn connect(port: u16, root: &CertificateDer<'static>) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(provider::default_provider());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME).unwrap()).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    StreamOwned::new(session, socket)
}

fn get(client: &mut Client) -> std::io::Result<String> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")?;
    let mut text = String::new();
    while !text.ends_with("hello") {
        let mut bytes = [0; 1000];
        match client.read(&mut bytes)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => text += &String::from_utf8_lossy(&bytes[..count]),
        }
    }
    Ok(text)
}

fn wait_for_certificate(running: &Running) {
    let until = Instant::now() + TIMEOUT;
    while running.status().certificates().is_empty() {
        assert!(Instant::now() < until, "no certificate");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn every_engine_gets_a_certificate_at_its_tls_listener() {
    for engine in engines() {
        let Some(pebble) = Pebble::start(3600) else { return };
        let store = tempfile::tempdir().unwrap();
        let server = Server::bind(format!("127.0.0.1:{}", pebble.tls_port)).unwrap().engine(engine);
        let running = server.tls(pebble.acme(&[NAME], store.path())).start(hello).unwrap();
        let early = get(&mut connect(pebble.tls_port, &pebble.root()));
        wait_for_certificate(&running);
        let answer = get(&mut connect(pebble.tls_port, &pebble.root()));
        assert!(answer.unwrap_or_else(|error| panic!("{engine:?}: {error}")).ends_with("hello"));
        // A client that comes before the certificate is refused, unless the order was faster than the client.
        drop(early);
    }
}

#[test]
fn every_engine_gets_a_certificate_by_its_redirect_listener() {
    for engine in engines() {
        let Some(pebble) = Pebble::start(3600) else { return };
        let store = tempfile::tempdir().unwrap();
        let authority = rcgen::generate_simple_self_signed(["clients".to_owned()]).unwrap();
        // The authority has no certificate of a client, so only the redirect listener is left.
        let clients = ClientCertificates::required_pem(authority.cert.pem()).unwrap();
        let tls = Tls::from(pebble.acme(&[NAME], store.path())).client_certificates(clients);
        let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).tls(tls);
        let server = server.redirect_from(format!("127.0.0.1:{}", pebble.http_port)).unwrap();
        let running = server.start(hello).unwrap();
        wait_for_certificate(&running);
        assert_eq!(running.status().certificates()[0].names, [NAME], "{engine:?}");
        let error = get(&mut connect(running.local_addr().unwrap().port(), &pebble.root())).unwrap_err();
        assert!(error.to_string().contains("CertificateRequired"), "{engine:?}: {error}");
    }
}

#[test]
fn a_renewal_reaches_new_connections_and_leaves_kept_ones() {
    let Some(pebble) = Pebble::start(20) else { return };
    let store = tempfile::tempdir().unwrap();
    let server = Server::bind(format!("127.0.0.1:{}", pebble.tls_port)).unwrap();
    let running = server.tls(pebble.acme(&[NAME], store.path())).start(hello).unwrap();
    wait_for_certificate(&running);
    let root = pebble.root();
    let leaf = |client: &Client| client.conn.peer_certificates().unwrap()[0].clone().into_owned();
    let mut kept = connect(pebble.tls_port, &root);
    get(&mut kept).unwrap();
    let until = Instant::now() + TIMEOUT;
    let mut renewed = connect(pebble.tls_port, &root);
    // A client of the last moments may find a certificate that has just ended.
    while get(&mut renewed).is_err() || leaf(&renewed) == leaf(&kept) {
        assert!(Instant::now() < until, "no renewal");
        std::thread::sleep(std::time::Duration::from_millis(200));
        renewed = connect(pebble.tls_port, &root);
    }
    assert!(get(&mut kept).is_ok(), "an established connection goes on");
}
