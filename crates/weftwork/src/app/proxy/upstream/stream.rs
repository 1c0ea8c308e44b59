//! The byte stream to the upstream server, in clear or over TLS. No call waits, except for the end of a direction.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::net::{self, RecvFlags};

#[cfg(feature = "_tls")]
use super::tls::TlsStream;

/// One stream. Two threads may use it at once, one for each direction.
pub(in crate::app::proxy) enum UpstreamStream {
    Plain(TcpStream),
    #[cfg(feature = "_tls")]
    Tls(Box<TlsStream>),
}

impl UpstreamStream {
    /// Sends a part of `bytes`. Returns how many bytes are accepted, which is 0 if only encrypted bytes of an
    /// earlier call were sent. The kernel has all accepted bytes if [`has_unsent`](Self::has_unsent) is false.
    pub(in crate::app::proxy) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            UpstreamStream::Plain(stream) => (&*stream).write(bytes),
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.write(bytes),
        }
    }

    /// Returns whether accepted bytes are still to be sent. [`write`](Self::write) without bytes sends them.
    pub(in crate::app::proxy) fn has_unsent(&self) -> bool {
        match self {
            UpstreamStream::Plain(_) => false,
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Returns 0 if the server has ended its side. Over TLS, that is a `close_notify`. An end without it is
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), because anyone in between can cause it.
    pub(in crate::app::proxy) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            UpstreamStream::Plain(stream) => (&*stream).read(into),
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.read(into),
        }
    }

    /// Returns whether bytes for a reader, or the end, have arrived.
    pub(in crate::app::proxy) fn has_input(&self) -> io::Result<bool> {
        match self {
            UpstreamStream::Plain(stream) => {
                match net::recv(stream, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                    Ok(_) => Ok(true),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.has_input(),
        }
    }

    /// Ends one direction or both. Over TLS, the end of the sending direction is a `close_notify` first, and the
    /// server may read nothing until `until`. An end of both directions is the same as a failure.
    pub(in crate::app::proxy) fn shutdown(&self, how: Shutdown, until: Instant) -> io::Result<()> {
        match self {
            UpstreamStream::Plain(stream) => {
                let _ = until;
                stream.shutdown(how)
            }
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.shutdown(how, until),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self, UpstreamStream::Plain(_))
    }

    /// Returns whether the server has chosen HTTP/2 (ALPN).
    pub(super) fn has_chosen_http2(&self) -> bool {
        match self {
            UpstreamStream::Plain(_) => false,
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.has_chosen_http2(),
        }
    }

    /// Frees what an idle connection does not need.
    pub(super) fn release_buffers(&self) {
        #[cfg(feature = "_tls")]
        if let UpstreamStream::Tls(stream) = self {
            stream.release_buffers();
        }
    }
}

impl AsFd for UpstreamStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            UpstreamStream::Plain(stream) => stream.as_fd(),
            #[cfg(feature = "_tls")]
            UpstreamStream::Tls(stream) => stream.as_fd(),
        }
    }
}
