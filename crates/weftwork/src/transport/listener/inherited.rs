//! Listeners that a process takes over from the process that it replaces.

use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Listener;
use crate::error::Error;
use crate::transport::address::Address;
use crate::transport::socket_file::SocketFile;
use crate::transport::socket_share::{Bound, SocketShare};

impl Listener {
    /// Wraps a socket of the process that this one replaces. The process before holds it too, until this one is ready.
    pub(crate) fn inherited(
        fd: OwnedFd,
        queues: Vec<OwnedFd>,
        is_proxied: bool,
        is_given: bool,
        bound: &Bound,
    ) -> Result<Listener, Error> {
        let address = Listener::prepare(&fd)?;
        let share = SocketShare::new(Some(bound.clone()), None, is_given);
        share.hold_elsewhere(true);
        let listener = Listener::new(share, fd, address, is_proxied);
        for queue in queues {
            Listener::prepare(&queue)?;
            let queue = listener.share.add(queue);
            listener.queues().push(queue);
        }
        Ok(listener)
    }

    /// Returns the listener, and one for each further queue of its address.
    pub(crate) fn with_queues(self) -> Vec<Listener> {
        let queues = std::mem::take(&mut *self.queues());
        let (share, address, is_proxied) = (self.share.clone(), self.address.clone(), self.is_proxied);
        #[cfg(feature = "_tls")]
        let tls = self.tls.clone();
        let further = queues.into_iter().map(|fd| {
            let listener = Listener::of(share.clone(), fd, address.clone(), is_proxied);
            #[cfg(feature = "_tls")]
            let listener = Listener { tls: tls.clone(), ..listener };
            listener
        });
        std::iter::once(self).chain(further).collect()
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Vec<Arc<OwnedFd>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the share, for the list of what a replacement has taken over.
    pub(crate) fn share(&self) -> &Arc<SocketShare> {
        &self.share
    }

    /// Owns the socket from now on, because the process before has left it. `has_file` says whether the file of a Unix
    /// socket is to be removed at the end.
    pub(crate) fn take_over(share: &SocketShare, has_file: bool) {
        share.hold_elsewhere(false);
        let Some(socket) = share.sockets().into_iter().next().filter(|_| has_file) else { return };
        if let Ok(Address::Unix(path)) = Listener::prepare(&socket) {
            share.adopt_file(SocketFile::adopt(&path).ok());
        }
    }
}
