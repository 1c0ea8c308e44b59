//! Pebble as a child process, with a stub of the DNS that leads every name to loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use instant_acme::{BodyWrapper, HttpClient};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::super::super::block_on;
use super::super::super::client::Notes;
use super::super::super::http_client::HttpsClient;
use super::super::super::stop::Stop;
use super::super::super::{Acme, client_config};
use crate::transport::tls::provider;

const INSTALL: &str = "Install Pebble with `go install github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3`, and set WEFT_PEBBLE to the path of the program";
pub(super) const HMAC_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

pub(super) struct Pebble {
    child: Child,
    folder: tempfile::TempDir,
    directory: String,
    roots: String,
    pub(super) http_port: u16,
    pub(super) tls_port: u16,
    log: Arc<Mutex<String>>,
}

impl Pebble {
    /// Starts an authority whose certificates live for some seconds.
    pub(super) fn start(life: u64) -> Option<Pebble> {
        Pebble::launch(json!({ "default": { "description": "short", "validityPeriod": life } }), false)
    }

    pub(super) fn with_external_accounts() -> Option<Pebble> {
        let profiles = json!({
            "default": { "description": "short", "validityPeriod": 20 },
            "long": { "description": "long", "validityPeriod": 7_776_000 },
        });
        Pebble::launch(profiles, true)
    }

    fn launch(profiles: serde_json::Value, wants_external: bool) -> Option<Pebble> {
        let Ok(program) = std::env::var("WEFT_PEBBLE") else {
            println!("left out: WEFT_PEBBLE is not set. {INSTALL}");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(path("cert.pem"), certificate.pem()).unwrap();
        fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        let [acme, management, http_port, tls_port] = free_ports();
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{acme}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": path("cert.pem"),
            "privateKey": path("key.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "externalAccountBindingRequired": wants_external,
            "externalAccountMACKeys": { "kid-1": HMAC_KEY },
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": profiles,
        }});
        fs::write(path("config.json"), config.to_string()).unwrap();
        let child = Command::new(&program)
            .args(["-strict", "-dnsserver", &dns_stub(), "-config"])
            .arg(path("config.json"))
            // Every order is verified, and some of the nonces are refused.
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0"), ("PEBBLE_WFE_NONCEREJECT", "3")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}. {INSTALL}"));
        let mut pebble = Pebble {
            child,
            directory: format!("https://localhost:{acme}/dir"),
            roots: format!("https://localhost:{management}/roots/0"),
            folder,
            http_port,
            tls_port,
            log: Arc::default(),
        };
        pebble.wait_until_ready();
        Some(pebble)
    }

    /// Reads the log of Pebble until it listens.
    fn wait_until_ready(&mut self) {
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let log = self.log.clone();
        let (sender, ready) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("ACME directory available") {
                    let _ = sender.send(());
                }
                *log.lock().unwrap() += &format!("{line}\n");
            }
        });
        let is_ready = ready.recv_timeout(Duration::from_secs(60));
        assert!(is_ready.is_ok(), "Pebble does not start: {}", self.log.lock().unwrap());
        let address = self.directory.trim_start_matches("https://").trim_end_matches("/dir");
        while TcpStream::connect(address).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn acme(&self, names: &[&str], store: &Path) -> Acme {
        let acme = Acme::new(names.iter().copied()).contact("mailto:ops@example.org").accept_terms();
        acme.directory(&self.directory).directory_ca_file(self.folder.path().join("cert.pem")).store(store)
    }

    /// The root of the certificates that it issues.
    pub(super) fn root(&self) -> CertificateDer<'static> {
        let acme = self.acme(&["example.org"], Path::new("/"));
        let provider = provider::default_provider();
        let config = client_config(&acme.settings, &provider).unwrap();
        let client = HttpsClient::new(Arc::new(config), Stop::default(), Notes::default());
        let request = http::Request::builder().uri(&self.roots).body(BodyWrapper::default()).unwrap();
        let mut response = block_on(client.request(request)).unwrap().unwrap();
        let pem = block_on(response.body.into_bytes()).unwrap().unwrap();
        CertificateDer::from_pem_slice(&pem).unwrap()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{}", self.log.lock().unwrap());
        }
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Answers questions for an IPv4 address with 127.0.0.1, except for names in `invalid`.
fn dns_stub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || while answer_question(&mut socket).is_ok() {});
        }
    });
    address
}

/// RFC 1035 sections 4.1 and 4.2.2.
fn answer_question(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut length = [0; 2];
    socket.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    socket.read_exact(&mut query)?;
    let name_end = 12 + query[12..].iter().position(|&byte| byte == 0).unwrap();
    let question = &query[12..name_end + 5];
    let is_lost = query[..name_end].ends_with(b"\x07invalid");
    let has_address = question[question.len() - 4..] == [0, 1, 0, 1] && !is_lost;
    let code = if is_lost { 3 } else { 0 };
    let mut response =
        vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, u8::from(has_address), 0, 0, 0, 0];
    response.extend_from_slice(question);
    if has_address {
        response.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    let length = u16::try_from(response.len()).unwrap().to_be_bytes();
    socket.write_all(&[&length[..], &response].concat())
}
