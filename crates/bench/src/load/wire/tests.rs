//! The load speaks TLS as it is told: it counts answers, and a session that is not resumed counts as an error.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::load::Group;
use crate::load::generator::Generator;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

/// Serves connections until the test ends: one request each, or as many as come.
fn serve(tickets: usize, is_kept: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../../peers/tls/key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_protocol_versions(&[&TLS12, &TLS13]).unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.send_tls13_tickets = tickets;
    if tickets == 0 {
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    }
    let config = Arc::new(config);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let config = config.clone();
            thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket.unwrap());
                let mut input = [0; 1024];
                while matches!(stream.read(&mut input), Ok(1..)) && stream.write_all(ANSWER).is_ok() {
                    if !is_kept {
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Returns the good answers and the connections that broke, once there are some of either.
fn drive(tls: Tls, close: bool, port: u16) -> (u64, u64) {
    let group = Group { tls: Some(tls), close, ..Group::get("/health", 2) };
    let mut generator = Generator::expecting(port, &[group], &[b"OK"], false).unwrap();
    let (mut good, mut broken) = (0, 0);
    for _ in 0..400 {
        let tally = generator.drive(Duration::from_millis(50)).unwrap().remove(0);
        (good, broken) = (good + tally.ok, broken + tally.socket_errors);
        if good > 5 || broken > 0 {
            break;
        }
    }
    (good, broken)
}

#[test]
fn answers_over_tls_are_counted() {
    for version in [&TLS12, &TLS13] {
        let kept = drive(Tls::Full(version), false, serve(2, true));
        assert!(kept.0 > 2 && kept.1 == 0, "{kept:?}");
        for tls in [Tls::Full(version), Tls::Resumed(version)] {
            let closing = drive(tls, true, serve(2, false));
            assert!(closing.0 > 2 && closing.1 == 0, "{tls:?} {closing:?}");
        }
    }
    let hellos = drive(Tls::Hello, true, serve(2, false));
    assert!(hellos.0 > 2 && hellos.1 == 0, "{hellos:?}");
}

#[test]
fn a_session_that_is_not_resumed_is_an_error() {
    for version in [&TLS12, &TLS13] {
        let (_, errors) = drive(Tls::Resumed(version), true, serve(0, false));
        assert!(errors > 0, "{version:?}");
    }
}

#[test]
fn a_server_in_clear_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|socket| drop(socket.unwrap().write_all(ANSWER))));
    for tls in [Tls::Full(&TLS13), Tls::Hello] {
        let (good, errors) = drive(tls, true, port);
        assert!(good == 0 && errors > 0, "{tls:?}");
    }
}
