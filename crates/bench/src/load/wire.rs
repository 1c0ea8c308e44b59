//! Sends and receives for a connection of the load: on a socket, in clear or with TLS over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self as sys, Errno};
use rustix::net::{self, RecvFlags, SendFlags};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};

use crate::failure::{Failure, Result};

pub(crate) const CERTIFICATE: &str = include_str!("../../peers/tls/cert.pem");
/// The cipher suites that are offered, one for each version, and X25519: all servers do the same work.
const SUITES: [CipherSuite; 2] =
    [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// A full handshake each time.
    Full(&'static SupportedProtocolVersion),
    /// Resumed, from the second connection of a client on.
    Resumed(&'static SupportedProtocolVersion),
    /// The first flight alone, always the same bytes: the server has all the work, and the load none. The client leaves as the answer comes.
    Hello,
}

impl Tls {
    /// What a client offers and keeps.
    pub(super) fn config(self) -> Result<Arc<ClientConfig>> {
        let (version, resumption) = match self {
            Tls::Full(version) => (version, Resumption::disabled()),
            Tls::Resumed(version) => (version, Resumption::in_memory_sessions(16)),
            Tls::Hello => (&rustls::version::TLS13, Resumption::disabled()),
        };
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| SUITES.contains(&suite.suite()));
        // Servers on OpenSSL take no certificate of a curve that is not offered. All of them choose the first one.
        provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
        let failed = |error: &dyn std::fmt::Display| Failure::step("TLS", error);
        let known = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).map_err(|error| failed(&error))?;
        let config = ClientConfig::builder_with_provider(provider.into());
        let config = config.with_protocol_versions(&[version]).map_err(|error| failed(&error))?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Known(known)));
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = resumption;
        Ok(Arc::new(config))
    }
}

/// Takes one certificate, and leaves out the check of its signatures: that is work of the load alone.
#[derive(Debug)]
struct Known(CertificateDer<'static>);

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match *leaf == self.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn client(config: Arc<ClientConfig>) -> Result<ClientConnection> {
    let name = ServerName::try_from("localhost").map_err(|error| Failure::step("TLS", error))?;
    ClientConnection::new(config, name).map_err(|error| Failure::step("TLS", error))
}

/// Returns the bytes of a first flight.
pub(super) fn hello() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    client(Tls::Hello.config()?)?.write_tls(&mut bytes)?;
    Ok(bytes)
}

pub(crate) trait Stream: Read + Write + std::fmt::Debug {}

impl<S: Read + Write + std::fmt::Debug> Stream for S {}

/// Returns a stream that blocks, for one request at a time.
pub(crate) fn blocking(tls: Option<Tls>, socket: TcpStream) -> Result<Box<dyn Stream>> {
    Ok(match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(StreamOwned::new(client(tls.config()?)?, socket)),
    })
}

/// A socket that does not block.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    must_resume: bool,
}

/// What came at once. More may wait unless `is_drained`.
pub(super) struct Received<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) has_ended: bool,
    pub(super) is_drained: bool,
}

/// Space for what comes, as it is on the wire and in clear.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) wire: Vec<u8>,
    pub(super) clear: Vec<u8>,
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Wire {
    pub(super) fn new(
        socket: OwnedFd,
        config: Option<Arc<ClientConfig>>,
        must_resume: bool,
    ) -> sys::Result<Self> {
        let tls = config.map(client).transpose().map_err(|_| Errno::PROTO)?.map(Box::new);
        Ok(Wire { socket, tls, must_resume })
    }

    /// Sends as much as the kernel takes. TLS keeps the rest, and what comes before the handshake ends.
    pub(super) fn send(&mut self, bytes: &[u8]) -> sys::Result<usize> {
        let Some(tls) = &mut self.tls else { return net::send(&self.socket, bytes, SendFlags::NOSIGNAL) };
        let taken = tls.writer().write(bytes).map_err(|_| Errno::PROTO)?;
        self.flush().map(|()| taken)
    }

    /// Sends what TLS has kept, if the kernel takes it.
    pub(super) fn flush(&mut self) -> sys::Result<()> {
        let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut Sink(self.socket.as_fd())) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::PROTO)),
            }
        }
        Ok(())
    }

    pub(super) fn receive<'a>(&mut self, input: &'a mut Input) -> sys::Result<Received<'a>> {
        let (_, received) = net::recv(&self.socket, &mut *input.wire, RecvFlags::empty())?;
        let (has_ended, is_drained) = (received == 0, received < input.wire.len());
        let mut wire = &input.wire[..received];
        let Some(tls) = &mut self.tls else { return Ok(Received { bytes: wire, has_ended, is_drained }) };
        input.clear.clear();
        while !wire.is_empty() {
            let was_handshaking = tls.is_handshaking();
            tls.read_tls(&mut wire).map_err(|_| Errno::PROTO)?;
            let state = tls.process_new_packets().map_err(|_| Errno::PROTO)?;
            let start = input.clear.len();
            input.clear.resize(start + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut input.clear[start..]).map_err(|_| Errno::PROTO)?;
            let is_full = tls.handshake_kind() != Some(HandshakeKind::Resumed);
            if was_handshaking && !tls.is_handshaking() && self.must_resume && is_full {
                return Err(Errno::PROTO);
            }
        }
        self.flush()?;
        Ok(Received { bytes: &input.clear, has_ended, is_drained })
    }
}

struct Sink<'a>(BorrowedFd<'a>);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// All records at once: the request goes with the end of the handshake.
    fn write_vectored(&mut self, records: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(sys::writev(self.0, records)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
