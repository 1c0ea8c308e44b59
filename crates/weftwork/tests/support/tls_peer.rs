//! Certificates, and servers that speak TLS, without Weftwork.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use super::{TIMEOUT, Tree};

pub(crate) type TlsConn = StreamOwned<ServerConnection, TcpStream>;

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A certificate and its key.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pub(crate) pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let pem = certificate.pem();
        Authority { issuer: Issuer::new(params, key), certificate: certificate.der().clone(), pem }
    }

    /// Writes the certificate into a file.
    pub(crate) fn file(&self) -> (Tree, std::path::PathBuf) {
        let tree = Tree::new();
        let path = tree.write("ca.pem", &self.pem);
        (tree, path)
    }

    pub(crate) fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Identity {
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config_for(rustls::ALL_VERSIONS, None)
    }

    /// `clients` signs the certificates that clients must have.
    pub(crate) fn config_for(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        clients: Option<&Authority>,
    ) -> Arc<ServerConfig> {
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
                builder.with_client_cert_verifier(verifier.unwrap())
            }
        };
        let chain = vec![self.certificate.clone()];
        let mut config = builder.with_single_cert(chain, self.key.clone_key()).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls")]
    use rustls::crypto::aws_lc_rs::default_provider;
    #[cfg(not(feature = "tls"))]
    use rustls::crypto::ring::default_provider;
    Arc::new(default_provider())
}

/// A server that gives each connection to a thread of `serve`. An error ends the connection, as it does in a server.
pub(crate) fn secure(
    config: Arc<ServerConfig>,
    serve: impl Fn(&mut TlsConn) -> io::Result<()> + Send + Sync + 'static,
) -> String {
    let serve = Arc::new(serve);
    listening(move |stream| {
        stream.set_read_timeout(Some(TIMEOUT))?;
        let tls = ServerConnection::new(config.clone()).unwrap();
        let mut conn = StreamOwned::new(tls, stream);
        let served = serve(&mut conn);
        // The alert, if there is one.
        let _ = conn.conn.write_tls(&mut conn.sock);
        served
    })
}

/// A server that gives each connection to a thread of `serve`.
pub(crate) fn listening(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            // A reset discards what waits for an acknowledgement.
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads up to the end of a head.
pub(crate) fn head(stream: &mut impl Read) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// A server with TLS in front of the one at `address`, which has no TLS. Ends and resets pass in both directions.
pub(crate) fn relay(config: Arc<ServerConfig>, address: String) -> String {
    listening(move |stream| {
        let plain = TcpStream::connect(&address)?;
        let tls = ServerConnection::new(config.clone()).unwrap();
        let reset = stream.try_clone()?;
        let relayed = Relay { tls, stream, plain, to_plain: Vec::new(), ended: [false; 2] }.run();
        if relayed.is_err() {
            rustix::net::sockopt::set_socket_linger(&reset, Some(Duration::ZERO))?;
        }
        relayed
    })
}

struct Relay {
    tls: ServerConnection,
    stream: TcpStream,
    plain: TcpStream,
    to_plain: Vec<u8>,
    /// Whether the client of TLS has ended its side, and whether the server has.
    ended: [bool; 2],
}

impl Relay {
    fn run(mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        self.plain.set_nonblocking(true)?;
        while self.ended != [true; 2] || self.tls.wants_write() || !self.to_plain.is_empty() {
            let on = |flags: PollFlags, is_on: bool| if is_on { flags } else { PollFlags::empty() };
            let from_client = !self.ended[0] && self.to_plain.is_empty();
            let from_server = !self.ended[1] && !self.tls.wants_write() && !self.tls.is_handshaking();
            let client = on(PollFlags::IN, from_client) | on(PollFlags::OUT, self.tls.wants_write());
            let server = on(PollFlags::IN, from_server) | on(PollFlags::OUT, !self.to_plain.is_empty());
            let mut fds = [PollFd::new(&self.stream, client), PollFd::new(&self.plain, server)];
            poll(&mut fds, None)?;
            let [client, server] = fds.map(|fd| fd.revents());
            let arrived = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
            if from_client && client.intersects(arrived) {
                self.receive()?;
            }
            // Bytes before a reset are read first.
            if from_server && server.intersects(arrived) {
                self.answer()?;
            }
            self.send()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let count = self.tls.read_tls(&mut self.stream)?;
        let state = self.tls.process_new_packets();
        if state.is_err() {
            let _ = self.tls.write_tls(&mut self.stream);
        }
        let state = state.map_err(io::Error::other)?;
        let mut bytes = vec![0; state.plaintext_bytes_to_read()];
        self.tls.reader().read_exact(&mut bytes)?;
        self.to_plain.append(&mut bytes);
        if state.peer_has_closed() {
            self.ended[0] = true;
        } else if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        let count = self.plain.read(&mut bytes)?;
        self.tls.writer().write_all(&bytes[..count])?;
        if count == 0 {
            self.ended[1] = true;
            self.tls.send_close_notify();
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let is_later = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => Ok(0),
            _ => Err(error),
        };
        if !self.to_plain.is_empty() {
            match self.plain.write(&self.to_plain).or_else(is_later) {
                Ok(count) => drop(self.to_plain.drain(..count)),
                // The server takes no more. What it has sent is still to be read.
                Err(_) => {
                    self.ended[0] = true;
                    self.to_plain.clear();
                }
            }
        }
        if self.to_plain.is_empty() && self.ended[0] {
            // Again and again does no harm.
            let _ = self.plain.shutdown(Shutdown::Write);
        }
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.stream).or_else(is_later)? == 0 {
                return Ok(());
            }
        }
        if self.ended[1] {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }
}
