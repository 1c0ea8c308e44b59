//! Certificates of ACME as the listeners of a server show them.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error, ServerConnection};

use super::super::{ACME_TLS_ALPN, answer_challenges, challenge_kinds};
use super::pebble::site::SeenChain;
use super::worker_tests::World;
use crate::message::{Handler, Request};
use crate::settings::Settings;
use crate::testing::TestClient;
use crate::tls::{Live, Place, Reachable, Tls};
use crate::transport::tls::provider;

const NAME: &str = "example.org";

/// Shakes hands in memory. Returns the certificate and the protocol that the client got.
fn shake_hands(live: &Live, name: &str, protocols: &[&[u8]]) -> Result<(Vec<u8>, Option<Vec<u8>>), Error> {
    let seen = Arc::new(SeenChain::default());
    let config = ClientConfig::builder_with_provider(provider::default_provider());
    let config = config.with_safe_default_protocol_versions().unwrap().dangerous();
    let mut config = config.with_custom_certificate_verifier(seen.clone()).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(live.acceptor().current().config.clone()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets()?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets()?;
    }
    let leaf = seen.0.lock().unwrap()[0].to_vec();
    Ok((leaf, client.alpn_protocol().map(<[u8]>::to_vec)))
}

#[test]
fn handshakes_are_refused_until_there_is_a_certificate_and_then_served_without_a_restart() {
    let world = World::new();
    let live = Tls::from(world.acme()).start(&Settings::default(), &Place::default()).unwrap();
    let mut process = world.process_of(live.acme().unwrap().clone());
    shake_hands(&live, NAME, &[b"http/1.1"]).unwrap_err();
    let challenged = live.clone();
    world.ca.state().verify = Box::new(move |_, name, _| {
        let (leaf, protocol) = shake_hands(&challenged, name, &[ACME_TLS_ALPN]).unwrap();
        // A client that offers more gets what other clients get.
        let other = shake_hands(&challenged, name, &[ACME_TLS_ALPN, b"http/1.1"]);
        assert!(other.is_err() || other.is_ok_and(|(other, _)| other != leaf));
        assert_eq!(protocol.as_deref(), Some(ACME_TLS_ALPN));
        leaf.windows(8).any(|bytes| bytes == [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f])
    });
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf().expect("a certificate");
    let served = || shake_hands(&live, NAME, &[b"http/1.1", ACME_TLS_ALPN]).unwrap();
    assert_eq!(served(), (first.clone(), Some(b"http/1.1".to_vec())));
    shake_hands(&live, NAME, &[ACME_TLS_ALPN]).unwrap_err();
    // A reload of files leaves it in place.
    live.reload().unwrap();
    assert_eq!(served().0, first);
    world.step(&mut process, Duration::from_secs(61 * 86400));
    assert_ne!(served().0, first);
    assert_eq!(live.certificates().len(), 1);
    assert_eq!(live.certificates()[0].names, [NAME]);
}

#[test]
fn a_plain_listener_answers_challenges_before_the_site() {
    let world = World::new();
    let process = world.process_with(|acme| acme);
    let site: Arc<dyn Handler> = Arc::new(|req: &mut Request| format!("site {}", req.path()));
    let mut client = TestClient::new(answer_challenges(std::slice::from_ref(&process.certificates), site));
    let mut get = |path: &str| {
        let response = client.get(path).send();
        (response.header("content-type").unwrap_or_default().to_owned(), response.text().to_owned())
    };
    let published = process.certificates.store.publish_token("abc", "abc.def").unwrap();
    assert_eq!(get("/.well-known/acme-challenge/abc"), ("application/octet-stream".into(), "abc.def".into()));
    assert_eq!(get("/abc").1, "site /abc");
    drop(published);
    for path in [
        "/.well-known/acme-challenge/abc",
        "/.well-known/acme-challenge/",
        "/.well-known/acme-challenge/../x",
    ] {
        assert!(get(path).1.starts_with("site /"), "{path}");
    }
}

#[test]
fn a_server_that_no_authority_can_reach_does_not_start() {
    let error = challenge_kinds(Reachable { tls: false, plain: false }).unwrap_err().to_string();
    assert!(error.contains("client certificates") && error.contains("redirect_from"), "{error}");
    assert_eq!(challenge_kinds(Reachable { tls: false, plain: true }).unwrap().len(), 1);
    assert_eq!(challenge_kinds(Reachable { tls: true, plain: true }).unwrap().len(), 2);
}
