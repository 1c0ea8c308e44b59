//! Names the cryptography that the library is built with.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::hash::Hash;

#[cfg(not(any(feature = "tls", feature = "tls-ring")))]
compile_error!("TLS needs the feature `tls` (aws-lc-rs) or `tls-ring` (ring) of weftwork");

#[cfg(feature = "tls")]
use rustls::crypto::aws_lc_rs as built_in;
#[cfg(all(feature = "tls-ring", not(feature = "tls")))]
use rustls::crypto::ring as built_in;

/// Returns aws-lc-rs with the feature `tls`, and ring with the feature `tls-ring` alone.
pub(crate) fn default_provider() -> Arc<CryptoProvider> {
    Arc::new(built_in::default_provider())
}

/// Returns SHA-256.
pub(crate) fn sha256() -> &'static dyn Hash {
    match built_in::cipher_suite::TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
        #[allow(unreachable_patterns)]
        _ => unreachable!("the suite is one of TLS 1.3"),
    }
}
