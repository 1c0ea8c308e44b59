//! Tests of what users configure about TLS, on real sockets.
#![cfg(feature = "tls-self-signed")]

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use support::{ENGINES, TIMEOUT, eventually, is_logged, keep_log};
use weftwork::prelude::*;
use weftwork::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use weftwork::rustls::{ClientConfig, ClientConnection, KeyLog, RootCertStore, StreamOwned};
use weftwork::tls::{ClientCertificates, Tls};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate and its key.
fn issue(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.signed_by(&key, authority).unwrap(), key)
}

fn tls_of(authority: &Authority, name: &str) -> Tls {
    let (certificate, key) = issue(authority, name);
    Tls::from_pem(certificate.pem(), key.serialize_pem()).unwrap()
}

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Returns a connection to a.test, before the first byte.
fn connect(
    address: SocketAddr,
    authority: &Authority,
    own: Option<&(rcgen::Certificate, KeyPair)>,
) -> Connection {
    connect_with(address, &config(authority, own))
}

fn connect_with(address: SocketAddr, config: &Arc<ClientConfig>) -> Connection {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let name = ServerName::try_from("a.test").unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), stream)
}

fn config(authority: &Authority, own: Option<&(rcgen::Certificate, KeyPair)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(weftwork::rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match own {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

/// Sends a request, and returns the body of the response.
fn get(mut stream: impl Read + Write) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(text))
}

fn tcp(address: &weftwork::Address) -> SocketAddr {
    match address {
        weftwork::Address::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

fn in_clear(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[test]
fn prefixes_say_which_addresses_have_tls() {
    let authority = authority();
    let probes = |_: &mut Request| "probe";
    let running = Server::bind("127.0.0.1:0")
        .and_then(|server| server.and_bind("plain+127.0.0.1:0"))
        .and_then(|server| server.and_bind("tls+127.0.0.1:0"))
        .and_then(|server| server.admin("127.0.0.1:0", probes))
        .unwrap()
        .tls(tls_of(&authority, "a.test"))
        .start(|req: &mut Request| req.scheme().to_owned())
        .unwrap();
    let [default, plain, tls] = running.addresses() else { panic!("three addresses") };
    for address in [default, tls] {
        assert_eq!(get(connect(tcp(address), &authority, None)).unwrap(), "https");
    }
    assert_eq!(get(in_clear(tcp(plain))).unwrap(), "http");
    assert_eq!(get(in_clear(tcp(&running.admin_addresses()[0]))).unwrap(), "probe");
}

#[test]
fn the_side_listener_has_the_certificates_of_the_site_if_asked() {
    let authority = authority();
    let server =
        Server::bind("127.0.0.1:0").unwrap().admin("tls+127.0.0.1:0", |_: &mut Request| "probe").unwrap();
    let running = server.tls(tls_of(&authority, "a.test")).start(|_: &mut Request| "site").unwrap();
    assert_eq!(get(connect(tcp(&running.admin_addresses()[0]), &authority, None)).unwrap(), "probe");
}

/// Clients of the redirect hear of a stop when those of the site do.
#[test]
fn a_redirect_during_the_drain_delay_closes_its_connection() {
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls_of(&authority(), "a.test"));
    let server = server.settings(|settings| settings.drain_delay(Duration::from_secs(2)));
    let running = server.redirect_from("127.0.0.1:0").unwrap().start(|_: &mut Request| "site").unwrap();
    let view = running.status();
    let mut client = in_clear(tcp(&running.redirect_addresses()[0]));
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("the server is told to stop", || view.is_stopping());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 308 ") && text.contains("Connection: close"), "{text}");
    stopping.join().unwrap();
}

#[test]
fn an_address_with_tls_needs_a_certificate() {
    for server in [
        Server::bind("tls+127.0.0.1:0").unwrap(),
        Server::bind("127.0.0.1:0").unwrap().admin("tls+127.0.0.1:0", |_: &mut Request| "probe").unwrap(),
    ] {
        let error = server.start(|_: &mut Request| "hello").unwrap_err().to_string();
        assert!(
            error.contains("cannot listen at tls+127.0.0.1:") && error.contains("Server::tls"),
            "{error}"
        );
    }
    let error = Server::bind("tls+plain+127.0.0.1:0").unwrap_err().to_string();
    assert!(error.contains("either tls+ or plain+"), "{error}");
    // An address that another one covers is left out only if both are alike.
    let any = Server::bind("[::]:0").unwrap();
    let port = tcp(&any.addresses()[0]).port();
    assert!(any.and_bind(format!("plain+0.0.0.0:{port}")).is_err());
}

#[test]
fn listeners_have_rules_of_their_own_for_clients() {
    let authority = authority();
    let site = tls_of(&authority, "a.test");
    let clients = ClientCertificates::required_pem(authority.pem()).unwrap();
    let partners = site.clone().client_certificates(clients);
    for engine in ENGINES {
        let server = Server::bind("127.0.0.1:0").unwrap().engine(*engine).tls(site.clone());
        let server = server.and_bind_tls("127.0.0.1:0", partners.clone()).unwrap();
        let running = server
            .start(|req: &mut Request| {
                let name = req.client_certificate().and_then(|certificate| certificate.common_name());
                name.unwrap_or("nobody").to_owned()
            })
            .unwrap();
        let [open, closed] = running.addresses() else { panic!("two addresses") };
        let own = issue(&authority, "ada.test");
        assert_eq!(get(connect(tcp(open), &authority, None)).unwrap(), "nobody");
        assert_eq!(get(connect(tcp(open), &authority, Some(&own))).unwrap(), "nobody", "nobody has asked");
        assert_eq!(get(connect(tcp(closed), &authority, Some(&own))).unwrap(), "ada.test");
        assert!(get(connect(tcp(closed), &authority, None)).is_err());
    }
}

#[test]
fn a_name_without_a_certificate_is_named_in_the_alert() {
    let authority = authority();
    let tls = tls_of(&authority, "b.test").strict_names();
    let running = Server::bind("127.0.0.1:0").unwrap().tls(tls).start(|_: &mut Request| "hello").unwrap();
    let error = get(connect(running.local_addr().unwrap(), &authority, None)).unwrap_err().to_string();
    assert!(error.contains("UnrecognisedName"), "{error}");
}

fn write(folder: &Path, (certificate, key): &(rcgen::Certificate, KeyPair)) {
    fs::write(folder.join("chain.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

#[test]
fn a_running_server_takes_new_certificates() {
    keep_log();
    let (authority, folder) = (authority(), tempfile::tempdir().unwrap());
    let [old, by_call, by_time] = [(); 3].map(|()| issue(&authority, "a.test"));
    write(folder.path(), &old);
    let tls = Tls::from_files(folder.path().join("chain.pem"), folder.path().join("key.pem")).unwrap();
    let interval = std::time::Duration::from_millis(1);
    let start = |interval| {
        let server = Server::bind("127.0.0.1:0").unwrap().tls(tls.clone());
        server.settings(|s| s.tls_check_interval(interval)).start(|_: &mut Request| "hello").unwrap()
    };
    let (still, watching) = (start(std::time::Duration::ZERO), start(interval));
    let shown = |running: &Running| {
        let mut connection = connect(running.local_addr().unwrap(), &authority, None);
        connection.conn.complete_io(&mut connection.sock).unwrap();
        connection.conn.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let is =
        |der: &CertificateDer<'_>, (certificate, _): &(rcgen::Certificate, KeyPair)| der == certificate.der();
    assert!(is(&shown(&still), &old));
    let mut kept = connect(still.local_addr().unwrap(), &authority, None);
    kept.conn.complete_io(&mut kept.sock).unwrap();
    write(folder.path(), &by_call);
    still.reload_tls().unwrap();
    assert!(is(&shown(&still), &by_call));
    write(folder.path(), &by_time);
    eventually("the watching server has the new certificate", || is(&shown(&watching), &by_time));
    assert!(is(&shown(&still), &by_call), "it never looks");
    assert_eq!(get(kept).unwrap(), "hello", "an established connection goes on");
    fs::write(folder.path().join("key.pem"), "nothing").unwrap();
    assert!(still.reload_tls().unwrap_err().to_string().contains("key.pem"));
    is_logged(&["what was loaded before stays in use", "key.pem"]);
    assert!(is(&shown(&watching), &by_time));
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_have_the_expiry_of_each_certificate() {
    use weftwork::middleware::Metrics;
    let authority = authority();
    let tls = tls_of(&authority, "a.test");
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls);
    let status = server.status();
    let page = Metrics::new().server(status.clone()).page();
    let running = server.start(|_: &mut Request| "hello").unwrap();
    let text = weftwork::TestClient::new(page).get("/").send().text().to_owned();
    let expires = status.certificates()[0].expires.unwrap();
    let seconds = expires.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let name = "weftwork_tls_certificate_expiration_timestamp_seconds";
    let line = format!("{name}{{name=\"a.test\",origin=\"given PEM\"}} {seconds}\n");
    assert!(text.contains(&line), "{text}");
    drop(running);
}

#[test]
fn the_start_is_logged_with_what_people_compare() {
    keep_log();
    let authority = authority();
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls_of(&authority, "logged.test"));
    let status = server.status();
    let _running = server.start(|_: &mut Request| "hello").unwrap();
    let fingerprint = status.certificates().remove(0).fingerprint;
    is_logged(&["certificate of logged.test", &format!("SHA-256 fingerprint {fingerprint}")]);
}

/// A request, encrypted on this connection.
fn records(client: &mut Connection) -> Vec<u8> {
    client.conn.writer().write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let mut records = Vec::new();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut records).unwrap();
    }
    records
}

/// The part and the end arrive together, so the server is told once. All its deadlines are an hour away.
#[test]
fn an_end_behind_a_part_of_a_record_is_read_at_once() {
    let authority = authority();
    let hour = std::time::Duration::from_secs(3600);
    for engine in ENGINES {
        let server = Server::bind("127.0.0.1:0").unwrap().engine(*engine).tls(tls_of(&authority, "a.test"));
        let running = server
            .settings(|s| {
                s.head_timeout(hour).idle_timeout(hour).tls_handshake_timeout(hour).body_idle_timeout(hour)
            })
            .start(|req: &mut Request| req.body().text())
            .unwrap();
        let connect = || connect(running.local_addr().unwrap(), &authority, None);
        let end = |client: &mut Connection, bytes: &[u8], after: &str| {
            #[cfg(target_os = "linux")]
            rustix::net::sockopt::set_tcp_cork(&client.sock, true).unwrap();
            client.sock.write_all(bytes).unwrap();
            client.sock.shutdown(std::net::Shutdown::Write).unwrap();
            if let Err(error) = client.sock.read_to_end(&mut Vec::new()) {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{engine}: {after}");
            }
        };
        let mut hello = connect();
        let first = records(&mut hello);
        end(&mut hello, &first[..first.len() / 2], "a part of a handshake");
        for part in [1, 5, 20] {
            let mut idle = connect();
            idle.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            idle.read_exact(&mut [0; 12]).unwrap();
            let next = records(&mut idle);
            end(&mut idle, &next[..part], "a response");

            let mut whole = connect();
            whole.conn.complete_io(&mut whole.sock).unwrap();
            let (mut both, next) = (records(&mut whole), records(&mut whole));
            both.extend_from_slice(&next[..part]);
            end(&mut whole, &both, "a request");

            let mut body = connect();
            body.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\n").unwrap();
            let next = records(&mut body);
            end(&mut body, &next[..part], "the head of a body");
        }
        eventually("every connection ends", || running.stats().connections == 0);
    }
}

const CHILD: &str = "WEFTWORK_TEST_TLS_FOLDER";

/// A site that SIGUSR2 replaces. Each process says where it listens.
fn program(folder: &Path) {
    let tls = Tls::from_files(folder.join("chain.pem"), folder.join("key.pem")).unwrap();
    let signals = weftwork::Signals::install().unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls);
    let running = server.start(|req: &mut Request| req.tls().unwrap().is_resumed().to_string()).unwrap();
    println!("\nprocess {} {}", std::process::id(), running.local_addr().unwrap());
    running.wait(signals).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn sessions_go_on_in_the_process_that_replaces_another() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    if let Some(folder) = std::env::var_os(CHILD) {
        return program(Path::new(&folder));
    }
    let (authority, folder) = (authority(), tempfile::tempdir().unwrap());
    write(folder.path(), &issue(&authority, "a.test"));
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = "sessions_go_on_in_the_process_that_replaces_another";
    child.args(["--exact", name, "--nocapture"]).env(CHILD, folder.path());
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_process = || {
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("process ")).unwrap();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        (Pid::from_raw(words[1].parse().unwrap()).unwrap(), words[2].parse::<SocketAddr>().unwrap())
    };
    let client = config(&authority, None);
    let (first, address) = next_process();
    let _first = Ended(first);
    assert_eq!(get(connect_with(address, &client)).unwrap(), "false");
    kill_process(first, Signal::USR2).unwrap();
    let (second, same) = next_process();
    let _second = Ended(second);
    assert_eq!(address, same);
    child.wait().unwrap();
    assert_eq!(get(connect_with(address, &client)).unwrap(), "true");
    kill_process(second, Signal::TERM).unwrap();
    assert!(lines.all(|line| line.is_ok()), "both have ended");
}

const KEY_LOG: &str = "WEFTWORK_TEST_TLS_KEY_LOG";

/// Notes the secrets of a client, in the lines of a key log.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<String>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.0.lock().unwrap().push(format!("{label} {} {}", hex(random), hex(secret)));
    }
}

/// A site that lives until its input ends.
fn program_with_key_log(setting: &str, folder: &Path) {
    let tls = Tls::from_files(folder.join("chain.pem"), folder.join("key.pem")).unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls);
    let server = server.settings(|s| if setting == "default" { s } else { s.tls_key_log(setting == "on") });
    let running = server.start(|_: &mut Request| "hello").unwrap();
    println!("\naddress {}", running.local_addr().unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The variable belongs to the process, so each server has its own.
#[test]
fn secrets_go_to_a_file_only_if_the_setting_is_on() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    if let Ok(setting) = std::env::var(KEY_LOG) {
        return program_with_key_log(&setting, Path::new(&std::env::var_os(CHILD).unwrap()));
    }
    for setting in ["on", "off", "default"] {
        let (authority, folder) = (authority(), tempfile::tempdir().unwrap());
        write(folder.path(), &issue(&authority, "a.test"));
        let keys = folder.path().join("keys.log");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "secrets_go_to_a_file_only_if_the_setting_is_on", "--nocapture"]);
        child.env(KEY_LOG, setting).env(CHILD, folder.path()).env("SSLKEYLOGFILE", &keys);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("address ").map(str::to_owned)).unwrap();
        let secrets = Arc::new(Secrets::default());
        let mut client = ClientConfig::clone(&config(&authority, None));
        client.key_log = secrets.clone();
        assert_eq!(get(connect_with(address.parse().unwrap(), &Arc::new(client))).unwrap(), "hello");
        drop(child.stdin.take());
        assert!(lines.all(|line| !line.contains("panicked")) && child.wait().unwrap().success());
        if setting != "on" {
            assert!(!keys.exists(), "{setting}");
            continue;
        }
        let logged = fs::read_to_string(&keys).unwrap();
        let secrets = secrets.0.lock().unwrap();
        assert!(secrets.iter().any(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")), "{secrets:?}");
        for secret in secrets.iter() {
            assert!(logged.lines().any(|line| line == secret), "{secret} is not in {logged}");
        }
    }
}

/// Ends a process when the test has failed.
#[cfg(target_os = "linux")]
struct Ended(rustix::process::Pid);

#[cfg(target_os = "linux")]
impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = rustix::process::kill_process(self.0, rustix::process::Signal::KILL);
        }
    }
}
