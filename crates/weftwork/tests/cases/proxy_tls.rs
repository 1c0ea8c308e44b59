//! Tests how a proxy verifies its server over TLS, what it says if it cannot, and how sessions and connections end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::HandshakeKind;
use weftwork::http::HeaderValue;
use weftwork::{Proxy, Request, Response, Result, Running, Server, Settings, Tls, Upgraded};

use super::CASE;
use crate::support::tls_peer::{Authority, Identity, TlsConn, head, listening, secure};
use crate::support::{Client, Tree, is_logged, keep_log, noise};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers every request on the connection.
fn answers(conn: &mut TlsConn) -> io::Result<()> {
    loop {
        head(conn)?;
        conn.write_all(OK.as_bytes())?;
    }
}

fn trusting(address: &str, authority: &Authority) -> Proxy {
    let (_tree, ca) = authority.file();
    Proxy::to(&format!("https://{address}")).unwrap().ca_file(ca).unwrap()
}

fn start(proxy: Proxy) -> Running {
    CASE.bind("127.0.0.1:0").start(proxy).unwrap()
}

/// Sends one request through the proxy. Returns its status.
fn status(proxy: Proxy) -> u16 {
    Client::connect(&start(proxy)).get("/").status
}

fn pair() -> (Authority, Identity) {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1", "inner.example"], |_| ());
    (authority, identity)
}

#[test]
fn the_certificate_is_verified() {
    keep_log();
    let (authority, identity) = pair();
    let address = secure(identity.config(), answers);
    assert_eq!(status(trusting(&address, &authority)), 200);
    assert_eq!(status(trusting(&address, &Authority::new())), 502);
    is_logged(&["WARN", &address, "ca.pem signed the certificate"]);
    let wrong_name = trusting(&address, &authority).server_name("other.example").unwrap();
    assert_eq!(status(wrong_name), 502);
    is_logged(&["WARN", &address, "127.0.0.1", "inner.example", "other.example", "Proxy::server_name"]);
    let old = authority.issue(&["127.0.0.1"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let address = secure(old.config(), answers);
    assert_eq!(status(trusting(&address, &authority)), 502);
    is_logged(&["WARN", &address, "expired on Wed, 01 Jan 2020"]);
    let early = authority.issue(&["127.0.0.1"], |params| params.not_before = rcgen::date_time_ymd(3000, 1, 1));
    let address = secure(early.config(), answers);
    assert_eq!(status(trusting(&address, &authority)), 502);
    is_logged(&["WARN", &address, "clock"]);
}

#[test]
fn verification_is_switched_off_only_by_name() {
    keep_log();
    let stranger = Authority::new().issue(&["other.example"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let address = secure(stranger.config(), answers);
    let proxy = Proxy::to(&format!("https://{address}")).unwrap().dangerously_accept_any_certificate();
    is_logged(&["WARN", &address, "not verified"]);
    assert_eq!(status(proxy), 200);
}

/// RFC 6066 section 3: no address as SNI. RFC 7301: HTTP/1.1 if the server has no other protocol.
#[test]
fn the_server_is_asked_for_its_name_and_for_http_1_1() {
    let (authority, identity) = pair();
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let shared = seen.clone();
    let address = secure(identity.config(), move |conn| {
        head(conn)?;
        let alpn = conn.conn.alpn_protocol().map(<[u8]>::to_vec);
        shared.lock().unwrap().push((conn.conn.server_name().map(str::to_owned), alpn));
        conn.write_all(OK.as_bytes())
    });
    assert_eq!(status(trusting(&address, &authority)), 200);
    assert_eq!(status(trusting(&address, &authority).server_name("inner.example").unwrap()), 200);
    let alpn = Some(b"http/1.1".to_vec());
    assert_eq!(*seen.lock().unwrap(), [(None, alpn.clone()), (Some("inner.example".to_owned()), alpn)]);
}

#[test]
fn a_client_certificate_is_shown() {
    keep_log();
    let (authority, identity) = pair();
    let own = authority.issue(&["proxy.example"], |_| ());
    let tree = Tree::new();
    let (chain, key) = (tree.write("own.pem", &own.pem), tree.write("own.key", &own.key_pem));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = identity.config_for(&[version], Some(&authority));
        let address = secure(config, answers);
        assert_eq!(status(trusting(&address, &authority)), 502, "{version:?}");
        is_logged(&["WARN", &address, "Proxy::client_certificate_files"]);
        let proxy = trusting(&address, &authority).client_certificate_files(&chain, &key).unwrap();
        assert_eq!(status(proxy), 200, "{version:?}");
    }
    let other = tree.write("other.key", identity.key_pem);
    let proxy = Proxy::to("https://127.0.0.1:1").unwrap();
    let error = proxy.client_certificate_files(&chain, &other).unwrap_err().to_string();
    assert!(error.contains("other.key") && error.contains("own.pem"), "{error}");
}

#[test]
fn a_kept_connection_keeps_its_session_and_a_new_one_resumes_it() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (authority, identity) = pair();
        let kinds = Arc::<Mutex<Vec<_>>>::default();
        let shared = kinds.clone();
        // Two requests on each connection, and then its end.
        let address = secure(identity.config_for(&[version], None), move |conn| {
            for more in ["", "Connection: close\r\n"] {
                head(conn)?;
                shared.lock().unwrap().push(conn.conn.handshake_kind());
                write!(conn, "HTTP/1.1 200 OK\r\n{more}Content-Length: 2\r\n\r\nok")?;
            }
            Ok(())
        });
        let proxy = start(trusting(&address, &authority));
        let mut client = Client::connect(&proxy);
        for _ in 0..4 {
            client.get("/").is(200, "ok");
        }
        let (full, resumed) = (Some(HandshakeKind::Full), Some(HandshakeKind::Resumed));
        assert_eq!(*kinds.lock().unwrap(), [full, full, resumed, resumed], "{version:?}");
    }
}

/// How a server ends an idle connection.
#[derive(Clone, Copy, Debug)]
enum End {
    Notified,
    Unnotified,
    Reset,
}

#[test]
fn a_connection_that_was_closed_while_idle_costs_nothing() {
    for end in [End::Notified, End::Unnotified, End::Reset] {
        let (authority, identity) = pair();
        let served = Arc::new(AtomicUsize::new(0));
        let shared = served.clone();
        let address = secure(identity.config(), move |conn| {
            head(conn)?;
            // The client may have the response before the next line runs.
            shared.fetch_add(1, Ordering::SeqCst);
            conn.write_all(OK.as_bytes())?;
            finish(conn, end)
        });
        let proxy = start(trusting(&address, &authority));
        let mut client = Client::connect(&proxy);
        for _ in 0..5 {
            client.get("/").is(200, "ok");
        }
        assert_eq!(served.load(Ordering::SeqCst), 5, "{end:?}");
    }
}

fn finish(conn: &mut TlsConn, end: End) -> io::Result<()> {
    match end {
        End::Notified => {
            conn.conn.send_close_notify();
            conn.conn.write_tls(&mut conn.sock).map(drop)
        }
        End::Unnotified => conn.sock.shutdown(Shutdown::Write),
        End::Reset => Ok(rustix::net::sockopt::set_socket_linger(&conn.sock, Some(Duration::ZERO))?),
    }
}

/// In clear, nobody can tell.
#[test]
fn a_body_until_the_end_is_whole_only_after_a_close_notify() {
    keep_log();
    for (end, is_whole) in [(End::Notified, true), (End::Unnotified, false)] {
        let (authority, identity) = pair();
        let address = secure(identity.config(), move |conn| {
            head(conn)?;
            conn.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")?;
            finish(conn, end)
        });
        let proxy = start(trusting(&address, &authority));
        let mut client = Client::connect(&proxy);
        client.send(format!("GET /{address} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let got = String::from_utf8(client.rest()).unwrap();
        assert_eq!(got.ends_with("0\r\n\r\n"), is_whole, "{got}");
        if !is_whole {
            is_logged(&["ERROR", &address, "close_notify"]);
        }
    }
}

#[test]
fn a_port_without_tls_is_named() {
    keep_log();
    let plain = listening(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    // A fatal alert: protocol_version (RFC 8446 section 6).
    let old = listening(|mut stream| stream.write_all(b"\x15\x03\x01\x00\x02\x02\x46"));
    let closes = listening(|_| Ok(()));
    for (address, said) in [(plain, "not TLS"), (old, "version"), (closes, "handshake")] {
        let proxy = Proxy::to(&format!("https://{address}")).unwrap().dangerously_accept_any_certificate();
        assert_eq!(status(proxy), 502, "{said}");
        is_logged(&["WARN", &address, "cannot be reached: TLS: ", said]);
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_a_gateway_timeout() {
    keep_log();
    let address = listening(|mut stream| io::copy(&mut stream, &mut io::sink()).map(drop));
    let proxy = Proxy::to(&format!("https://{address}")).unwrap().connect_timeout(Duration::from_millis(100));
    assert_eq!(status(proxy.dangerously_accept_any_certificate()), 504);
    is_logged(&["WARN", &address, "handshake", "connect_timeout"]);
}

/// A server of Weftwork with TLS, which answers with the version of the request.
fn versions(authority: &Authority, change: impl FnOnce(Settings) -> Settings) -> Running {
    let identity = authority.issue(&["127.0.0.1"], |_| ());
    let tls = Tls::from_pem(identity.pem, identity.key_pem).unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().engine(CASE.engine).settings(change).tls(tls);
    server.start(|req: &mut Request| -> Result<Response> {
        if req.header("upgrade").is_some() {
            let echo = |mut line: Upgraded| {
                let mut bytes = [0; 4];
                line.read_exact(&mut bytes)?;
                line.write_all(&bytes)
            };
            return Ok(Response::upgrade(HeaderValue::from_static("websocket"), echo));
        }
        let length = req.body().bytes()?.len();
        Ok(Response::text(format!("{:?} {length}", req.version())))
    })
    .unwrap()
}

/// RFC 7301. The server chooses, unless it is not asked.
#[test]
fn a_server_chooses_the_version_of_http() {
    let authority = Authority::new();
    for (offers, takes, seen) in
        [(true, true, "HTTP/2.0 0"), (false, true, "HTTP/1.1 0"), (true, false, "HTTP/1.1 0")]
    {
        let server = versions(&authority, |settings| settings.http2(takes));
        let address = server.local_addr().unwrap().to_string();
        let proxy = start(trusting(&address, &authority).http2(offers));
        let mut client = Client::connect(&proxy);
        for _ in 0..3 {
            client.get("/").is(200, seen);
        }
        let body = noise(1_000_000);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        let aside = client.send_aside(body);
        client.answer().is(200, seen.replace(" 0", " 1000000"));
        aside.join().unwrap().unwrap();
        assert_eq!(server.stats().accepted, 1, "the connection is used again");
    }
}

/// HTTP/2 has no upgrades. A request for one gets a connection of its own.
#[test]
fn an_upgrade_goes_over_http_1_1() {
    let authority = Authority::new();
    let server = versions(&authority, |settings| settings);
    let proxy = start(trusting(&server.local_addr().unwrap().to_string(), &authority));
    Client::connect(&proxy).get("/").is(200, "HTTP/2.0 0");
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.answer_head().status, 101);
    client.send("ping");
    assert_eq!(client.exactly(4), b"ping");
    Client::connect(&proxy).get("/").is(200, "HTTP/2.0 0");
    assert_eq!(server.stats().accepted, 2);
}

/// A user that is known by the connection (RFC 4559) has a connection of HTTP/1.1.
#[test]
fn a_connection_with_a_user_is_not_shared() {
    let authority = Authority::new();
    let server = versions(&authority, |settings| settings);
    let proxy = start(trusting(&server.local_addr().unwrap().to_string(), &authority));
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "HTTP/2.0 0");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: NTLM ann\r\n\r\n");
    client.answer().is(200, "HTTP/1.1 0");
    client.get("/").is(200, "HTTP/1.1 0");
    Client::connect(&proxy).get("/").is(200, "HTTP/2.0 0");
    assert_eq!(server.stats().accepted, 2);
}
