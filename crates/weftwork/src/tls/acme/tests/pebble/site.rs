//! The two listeners that the authority connects to, in their simplest form.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::super::super::challenges::CHALLENGE_PATH;
use super::super::super::{ACME_TLS_ALPN, AcmeCertificates, Choice};
use super::authority::Pebble;
use crate::transport::tls::provider;

type Served = Arc<Mutex<Option<Arc<AcmeCertificates>>>>;

pub(super) struct Site {
    served: Served,
    tls_port: u16,
}

#[derive(Debug)]
struct Resolver(Served);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.lock().unwrap().clone()?;
        let name = hello.server_name()?;
        match certificates.choose(&hello) {
            Choice::Certificate(key) => Some(key),
            Choice::Refuse => None,
            Choice::Table => certificates.get(name),
        }
    }
}

impl Site {
    /// Listens where the authority connects to. A second site of one authority is not reached.
    pub(super) fn new(pebble: &Pebble) -> Site {
        let served = Served::default();
        let provider = provider::default_provider();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(Resolver(served.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec(), ACME_TLS_ALPN.to_vec()];
        let config = Arc::new(config);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", pebble.tls_port)) {
            thread::spawn(move || {
                for socket in listener.incoming().map_while(Result::ok) {
                    shake_hands(socket, config.clone());
                }
            });
        }
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", pebble.http_port)) {
            let served = served.clone();
            thread::spawn(move || {
                for socket in listener.incoming().map_while(Result::ok) {
                    answer_request(socket, &served);
                }
            });
        }
        Site { served, tls_port: pebble.tls_port }
    }

    pub(super) fn serve(&self, certificates: &Arc<AcmeCertificates>) {
        *self.served.lock().unwrap() = Some(certificates.clone());
    }

    /// Connects as a client that trusts `root` and has that time, and returns the certificate that it got.
    pub(super) fn shown(&self, name: &str, root: &CertificateDer<'static>, at: SystemTime) -> Vec<u8> {
        let chain = chain_shown(self.tls_port, name);
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let roots = Arc::new(roots);
        let provider = provider::default_provider();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
        let (name, at) =
            (ServerName::try_from(name).unwrap(), at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        let at = UnixTime::since_unix_epoch(at);
        verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], at).unwrap();
        chain[0].to_vec()
    }
}

/// Connects, and returns the chain that the server shows.
fn chain_shown(port: u16, name: &str) -> Vec<CertificateDer<'static>> {
    let seen = Arc::new(SeenChain::default());
    let provider = provider::default_provider();
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(seen.clone()).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tls.complete_io(&mut socket).unwrap();
    std::mem::take(&mut *seen.0.lock().unwrap())
}

fn shake_hands(mut socket: TcpStream, config: Arc<ServerConfig>) {
    let mut tls = ServerConnection::new(config).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    // The end of the client, or a handshake that failed.
    let _ = stream.read(&mut [0; 64]);
}

fn answer_request(mut socket: TcpStream, served: &Served) {
    let mut line = String::new();
    let _ = BufReader::new(&socket).read_line(&mut line);
    let path = line.split(' ').nth(1).unwrap_or_default();
    let certificates = served.lock().unwrap().clone();
    let response = path
        .strip_prefix(CHALLENGE_PATH)
        .zip(certificates)
        .and_then(|(token, certificates)| certificates.http01().response(token));
    let (status, body) = response.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
    let _ = write!(
        socket,
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

/// Accepts every chain and notes it.
#[derive(Debug, Default)]
pub(in super::super) struct SeenChain(pub(in super::super) Mutex<Vec<CertificateDer<'static>>>);

impl ServerCertVerifier for SeenChain {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = std::iter::once(leaf).chain(others).map(|certificate| certificate.clone().into_owned());
        *self.0.lock().unwrap() = chain.collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
