//! TLS of the servers that take part over it: the certificate of a folder, tickets, no client certificates.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::Ticketer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads `cert.pem` and `key.pem`.
pub fn acceptor(folder: &Path) -> Result<TlsAcceptor, Box<dyn Error + Send + Sync>> {
    let chain = CertificateDer::pem_file_iter(folder.join("cert.pem"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem"))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.ticketer = Ticketer::new()?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
