//! TLS to the upstream server: which certificates are trusted, and which one is shown.

mod reason;
mod session;

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

pub(in crate::app::proxy) use self::session::TlsStream;
use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;
use crate::transport::tls::provider::default_provider;

/// What a [`Proxy`](crate::Proxy) sets for TLS.
pub(in crate::app::proxy) struct UpstreamTls {
    name: ServerName<'static>,
    trust: Trust,
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// Made from the fields above when it is first needed. Sessions that can be resumed are in it.
    verification: OnceLock<Arc<Verification>>,
}

/// Which certificates of servers are trusted.
#[derive(Clone)]
enum Trust {
    System,
    File(PathBuf, Arc<RootCertStore>),
    Any,
}

/// What a session needs.
struct Verification {
    /// Asks for HTTP/1.1.
    config: Arc<ClientConfig>,
    /// Asks for HTTP/2 or HTTP/1.1. Sessions are the same.
    config_of_both: Arc<ClientConfig>,
    name: ServerName<'static>,
    trust: Trust,
    has_client_certificate: bool,
}

impl UpstreamTls {
    /// `host` is the host of the URL, without its port.
    pub(super) fn new(host: &str) -> Result<UpstreamTls> {
        let name = server_name(host)?;
        Ok(UpstreamTls { name, trust: Trust::System, client: None, verification: OnceLock::new() })
    }

    pub(in crate::app::proxy) fn set_server_name(&mut self, name: &str) -> Result<()> {
        self.name = server_name(name)?;
        self.verification = OnceLock::new();
        Ok(())
    }

    pub(in crate::app::proxy) fn set_ca_file(&mut self, path: &Path) -> Result<()> {
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(certificates(path, "the CA file")?);
        if roots.is_empty() {
            return Err(Error::usage(format!(
                "no certificate in the CA file {} can be used",
                path.display()
            )));
        }
        if unusable > 0 {
            log_line!(Warn, "{unusable} certificates in the CA file {} cannot be used", path.display());
        }
        self.trust = Trust::File(path.to_owned(), Arc::new(roots));
        self.verification = OnceLock::new();
        Ok(())
    }

    pub(in crate::app::proxy) fn set_client_certificate_files(
        &mut self,
        chain: &Path,
        key: &Path,
    ) -> Result<()> {
        let certificates = certificates(chain, "the client certificate")?;
        let private_key = private_key(key)?;
        CertifiedKey::from_der(certificates.clone(), private_key.clone_key(), &provider()).map_err(
            |error| {
                let (chain, key) = (chain.display(), key.display());
                Error::usage(format!(
                    "the key {key} cannot be used with the client certificate {chain}: {error}"
                ))
            },
        )?;
        self.client = Some((certificates, private_key));
        self.verification = OnceLock::new();
        Ok(())
    }

    pub(in crate::app::proxy) fn accept_any_certificate(&mut self) {
        self.trust = Trust::Any;
        self.verification = OnceLock::new();
    }

    /// Reads the certificates of the system, so that their absence is an error when the server starts.
    pub(in crate::app::proxy) fn check(&self) -> Result<()> {
        self.verification().map(drop).map_err(|error| Error::usage(error.to_string()))
    }

    pub(super) fn connect(
        &self,
        socket: TcpStream,
        offers_http2: bool,
        until: Instant,
    ) -> io::Result<TlsStream> {
        TlsStream::connect(socket, self.verification()?, offers_http2, until)
    }

    fn verification(&self) -> io::Result<Arc<Verification>> {
        if let Some(made) = self.verification.get() {
            return Ok(made.clone());
        }
        let (trust, client) = (self.trust.clone(), &self.client);
        let client = client.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        let has_client_certificate = client.is_some();
        // Reads files, and needs more stack than a fiber has. Another fiber may do the same meanwhile.
        let config = crate::blocking(move || config(trust, client))?;
        let (name, trust) = (self.name.clone(), self.trust.clone());
        let mut config_of_both = config.clone();
        config_of_both.alpn_protocols.insert(0, b"h2".to_vec());
        let (config, config_of_both) = (Arc::new(config), Arc::new(config_of_both));
        let made = Arc::new(Verification { config, config_of_both, name, trust, has_client_certificate });
        Ok(self.verification.get_or_init(|| made).clone())
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trust = match &self.trust {
            Trust::System => "system".to_owned(),
            Trust::File(path, _) => path.display().to_string(),
            Trust::Any => "any certificate".to_owned(),
        };
        f.debug_struct("Tls")
            .field("server_name", &self.name.to_str())
            .field("trust", &trust)
            .field("has_client_certificate", &self.client.is_some())
            .finish()
    }
}

fn config(
    trust: Trust,
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> io::Result<ClientConfig> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let builder = match trust {
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::File(_, roots) => builder.with_root_certificates(roots),
        Trust::Any => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    let mut config = match client {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn system_roots() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    let why = if errors.is_empty() { String::new() } else { format!(" ({})", errors.join(", ")) };
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "TLS: this system has no certificates of authorities{why}: install them (ca-certificates), or set \
             SSL_CERT_FILE or Proxy::ca_file"
        ),
    ))
}

/// Returns the provider of this process if one is installed.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(default_provider)
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(bare.to_owned());
    name.map_err(|_| {
        Error::usage(format!("invalid server name {host:?}: expected a DNS name or an IP address"))
    })
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found =
        found.map_err(|error| Error::usage(format!("cannot read {what} {}: {error}", path.display())))?;
    if found.is_empty() {
        let path = path.display();
        return Err(Error::usage(format!(
            "no certificate in {what} {path}: expected PEM (BEGIN CERTIFICATE)"
        )));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    use rustls::pki_types::pem::Error as PemError;
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let why = match error {
            PemError::NoItemsFound => {
                "it has no private key in PEM that is not encrypted (BEGIN PRIVATE KEY)".to_owned()
            }
            error => error.to_string(),
        };
        Error::usage(format!("cannot read the key {}: {why}", path.display()))
    })
}

/// Accepts every certificate, if the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
