//! Shows a program the certificates of its running server, and reloads them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use super::live::Live;
use super::pair::Pair;
use crate::error::{Error, Result};

/// Reloads the files of a server. [`Tls::handle`](super::Tls::handle) returns it before the start, and
/// [`Running::reload_tls`](crate::Running::reload_tls) does the same later.
///
/// ```no_run
/// use weftwork::Tls;
/// use weftwork::prelude::*;
///
/// let tls = Tls::from_files("fullchain.pem", "privkey.pem")?;
/// let handle = tls.handle();
/// let renewed = move || handle.reload().map(|()| "reloaded");
/// let site = Router::new().post("/renewed", renewed);
/// let running = Server::bind("[::]:443")?.tls(tls).start(site)?;
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone, Default)]
pub struct TlsHandle(Arc<Mutex<Vec<Weak<Live>>>>);

impl TlsHandle {
    pub(super) fn add(&self, live: &Arc<Live>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(live));
    }

    /// Reads all files again: certificates, keys, authorities and revocation lists of clients, ticket keys. New connections
    /// use them, and established connections go on. PEM that the program has given stays as it is.
    ///
    /// # Errors
    /// Something cannot be used. What was loaded before stays in use instead of it. Or no server uses this value.
    pub fn reload(&self) -> Result<()> {
        let live = self.live();
        if live.is_empty() {
            return Err(Error::usage("no server that runs uses this TLS handle"));
        }
        live.iter().try_for_each(|live| live.reload())
    }

    /// Returns the certificates in use.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.live().iter().flat_map(|live| live.certificates()).collect()
    }

    fn live(&self) -> Vec<Arc<Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for TlsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandle").field("certificates", &self.certificates()).finish()
    }
}

/// A certificate that a server shows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// Names and addresses that the certificate is for.
    pub names: Vec<String>,
    /// Path of the chain, or a few words if it comes from the program.
    pub origin: String,
    /// Time after which clients refuse it, if the certificate can be read.
    pub expires: Option<SystemTime>,
    /// SHA-256 hash, in capitals with colons as browsers show it.
    pub fingerprint: String,
}

impl CertificateInfo {
    pub(super) fn of(pair: &Pair) -> CertificateInfo {
        CertificateInfo {
            names: pair.facts.names(),
            origin: pair.origin.clone(),
            expires: pair.facts.expires,
            fingerprint: pair.fingerprint.clone(),
        }
    }
}
