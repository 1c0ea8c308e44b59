//! Configurations for tests, with a certificate for `a.example` that the client trusts.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::acceptor::{Current, TlsAcceptor};

/// Returns the providers that are compiled in.
pub(crate) fn providers() -> Vec<Arc<CryptoProvider>> {
    vec![
        #[cfg(feature = "tls")]
        Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        #[cfg(feature = "tls-ring")]
        Arc::new(rustls::crypto::ring::default_provider()),
    ]
}

pub(crate) struct Configs {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Configs {
    pub(crate) fn of(provider: &Arc<CryptoProvider>, version: &'static SupportedProtocolVersion) -> Configs {
        Configs::with_names(provider, version, &["a.example".to_owned()])
    }

    fn with_names(
        provider: &Arc<CryptoProvider>,
        version: &'static SupportedProtocolVersion,
        names: &[String],
    ) -> Configs {
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        server.alpn_protocols = super::ALPN.iter().map(|name| name.to_vec()).collect();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        Configs { server: Arc::new(server), client: Arc::new(client) }
    }

    /// Returns one for each provider and version.
    pub(crate) fn all() -> Vec<Configs> {
        Configs::all_with(&["a.example".to_owned()])
    }

    /// Returns them with a certificate for these names.
    pub(crate) fn all_with(names: &[String]) -> Vec<Configs> {
        let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
        providers()
            .iter()
            .flat_map(|provider| versions.map(|version| Configs::with_names(provider, version, names)))
            .collect()
    }

    pub(crate) fn client(&self) -> ClientConnection {
        ClientConnection::new(self.client.clone(), ServerName::try_from("a.example").unwrap()).unwrap()
    }

    pub(crate) fn acceptor(&self) -> Arc<TlsAcceptor> {
        TlsAcceptor::new(Current { config: self.server.clone(), signs_slowly: false, names: Arc::default() })
    }
}
