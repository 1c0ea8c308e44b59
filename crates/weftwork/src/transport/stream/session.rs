//! The TLS session of a stream. In clear, these functions do nothing.

use std::io;
#[cfg(feature = "_tls")]
use std::sync::Arc;

use super::Stream;
#[cfg(feature = "_tls")]
use crate::transport::tls::{TlsAcceptor, TlsInfo, TlsStream};

impl Stream {
    /// Tells the peer of a TLS session that nothing more follows. Returns false if the kernel has no space for that yet.
    /// Without it, the peer cannot tell the end from a truncation (RFC 8446 section 6.1).
    #[inline]
    pub(crate) fn close_session(&self) -> bool {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.close(),
            _ => true,
        }
    }

    /// Returns how many bytes have arrived since the last call that no read has returned, because they are a part of a
    /// record.
    #[inline]
    pub(crate) fn take_progress(&self) -> usize {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.take_progress(),
            _ => 0,
        }
    }

    /// Returns how many of `count` bytes of a read were not progress before: [`take_progress`](Stream::take_progress).
    #[inline]
    pub(crate) fn take_unreported(&self, count: usize) -> usize {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.take_unreported(count),
            _ => count,
        }
    }

    /// Returns whether the kernel has not taken all records that were made.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.has_unsent(),
            _ => false,
        }
    }

    /// Returns whether the connection has or begins a TLS session.
    #[inline(always)]
    pub(crate) fn is_tls(&self) -> bool {
        #[cfg(feature = "_tls")]
        if let Stream::Tls(_) = self {
            return true;
        }
        false
    }

    /// Returns whether the next bytes to send must be those that a short or blocked send has left. In clear, others can
    /// follow.
    #[inline]
    pub(crate) fn owes_report(&self) -> bool {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.owes_report(),
            _ => false,
        }
    }

    /// Ends this side after a send that is not tried again. The peer of a TLS session sees a truncated stream.
    #[inline]
    pub(crate) fn abandon_unsent(&self) {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.abandon_unsent(),
            _ => {}
        }
    }

    /// Sends what the connection itself does not hold: records of a handshake. 0 means that nothing is left.
    #[inline]
    pub(crate) fn flush(&self) -> io::Result<usize> {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.flush(),
            _ => Ok(0),
        }
    }
}

#[cfg(feature = "_tls")]
impl Stream {
    /// Makes the connection one that begins TLS. Until then, its bytes are in clear.
    pub(crate) fn with_tls(self, acceptor: Arc<TlsAcceptor>) -> Stream {
        match self {
            Stream::Socket(socket) => Stream::Tls(Box::new(TlsStream::new(socket, acceptor))),
            other => other,
        }
    }

    #[inline(always)]
    pub(crate) fn tls(&self) -> Option<&TlsStream> {
        match self {
            Stream::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// Returns the facts of the session that a connection in memory stands for.
    #[cold]
    pub(crate) fn info_of_test(&self) -> Option<&TlsInfo> {
        match self {
            Stream::Memory(memory) => memory.tls_info(),
            _ => None,
        }
    }

    /// Returns whether the peer speaks TLS, or will.
    #[inline(always)]
    pub(crate) fn is_secured(&self) -> bool {
        match self {
            Stream::Socket(_) => false,
            Stream::Tls(_) => true,
            Stream::Memory(_) => self.info_of_test().is_some(),
        }
    }
}
