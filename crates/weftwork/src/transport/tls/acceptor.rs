//! Holds the TLS configuration of a listener, which a reload replaces.

use std::sync::{Arc, PoisonError, RwLock};

use super::names::NameTable;

/// The TLS configuration of a listener. A reload replaces it as a whole. Established connections keep the old one.
#[derive(Debug)]
pub(crate) struct TlsAcceptor(RwLock<Arc<Current>>);

/// A configuration, and what its keys cost.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// Whether a signature takes over 1 ms. Handshakes then run on another thread.
    pub(crate) signs_slowly: bool,
    /// Names of the certificates, to tell which requests are on the wrong connection.
    pub(crate) names: Arc<NameTable>,
}

impl TlsAcceptor {
    pub(crate) fn new(current: Current) -> Arc<TlsAcceptor> {
        Arc::new(TlsAcceptor(RwLock::new(Arc::new(current))))
    }

    /// Replaces the configuration for later connections.
    pub(crate) fn replace(&self, current: Current) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
