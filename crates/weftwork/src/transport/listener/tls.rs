//! Says whether the connections of a listener begin with TLS.

use std::os::fd::OwnedFd;
#[cfg(feature = "_tls")]
use std::sync::Arc;

use super::{Listener, Stream};
#[cfg(feature = "_tls")]
use crate::transport::tls::TlsAcceptor;

/// Whether a listener serves TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListenerTls {
    /// As the server says.
    #[default]
    Default,
    /// The prefix `tls+`.
    On,
    /// The prefix `plain+`.
    Off,
    /// With certificates of its own, which have this number.
    #[cfg(feature = "_tls")]
    Own(usize),
}

impl Listener {
    pub(crate) fn with_wish(self, wish: ListenerTls) -> Listener {
        Listener { wish, ..self }
    }

    pub(crate) fn wish(&self) -> ListenerTls {
        self.wish
    }

    #[cfg(feature = "_tls")]
    pub(crate) fn tls(&self) -> Option<&Arc<TlsAcceptor>> {
        self.tls.as_ref()
    }

    /// Returns the address as the program wrote it, or else the real address.
    #[cfg(feature = "_tls")]
    pub(crate) fn name(&self) -> String {
        self.share.bound().map_or_else(|| self.address.to_string(), |bound| bound.address.to_string())
    }

    /// Begins TLS on all later connections.
    #[cfg(feature = "_tls")]
    pub(crate) fn set_tls(&mut self, acceptor: Arc<TlsAcceptor>) {
        self.tls = Some(acceptor);
    }

    #[cfg(not(feature = "_tls"))]
    pub(super) fn stream(&self, fd: OwnedFd) -> Stream {
        Stream::new(fd)
    }

    #[cfg(feature = "_tls")]
    pub(super) fn stream(&self, fd: OwnedFd) -> Stream {
        match &self.tls {
            None => Stream::new(fd),
            Some(acceptor) => Stream::new(fd).with_tls(acceptor.clone()),
        }
    }
}
