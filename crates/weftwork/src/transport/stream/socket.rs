//! A socket of any family, without TLS.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, RecvFlags, sockopt};

use crate::transport::log_queue::log_line;
#[cfg(target_os = "linux")]
use crate::transport::slow_file::FILE_BYTES_A_CALL;
use crate::transport::system::{MORE, SEND};

#[derive(Debug)]
pub(crate) struct Socket {
    pub(super) fd: OwnedFd,
    /// Whether a receive timeout is set. See [`Stream::recv_for`].
    pub(super) recv_timeout: RecvTimeout,
    /// Whether the socket is in non-blocking mode. See [`Stream::send_file`].
    pub(super) nonblocking: bool,
    /// Whether a close would be a reset. See [`Stream::reset_unless_ended`].
    pub(super) resets: bool,
    pub(super) cork: Cork,
}

/// Whether only full segments leave. See [`Stream::cork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cork {
    Out,
    In,
    /// Not supported, as with Unix sockets. It is not tried again.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvTimeout {
    None,
    Millis(u16),
}

impl Socket {
    #[inline(always)]
    pub(in crate::transport) fn recv(&self, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        retry(|| net::recv(&self.fd, spare_capacity(into), flags).map(|(_, count)| count))
    }

    #[inline(always)]
    pub(in crate::transport) fn send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let flags = if more { SEND | MORE } else { SEND };
        retry(|| net::send(&self.fd, bytes, flags))
    }

    #[cfg(feature = "_tls")]
    pub(in crate::transport) fn recv_slice(&self, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        retry(|| net::recv(&self.fd, &mut *into, flags).map(|(count, _)| count))
    }

    /// Returns whether the end of the connection will be a reset.
    #[cfg(feature = "_tls")]
    pub(in crate::transport) fn resets(&self) -> bool {
        self.resets
    }

    #[cold]
    pub(super) fn set_recv_timeout(&mut self, wanted: RecvTimeout, timeout: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, Some(timeout))?;
        self.recv_timeout = wanted;
        Ok(())
    }

    pub(super) fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
        if self.nonblocking != nonblocking {
            rustix::io::ioctl_fionbio(&self.fd, nonblocking)?;
            self.nonblocking = nonblocking;
        }
        Ok(())
    }

    pub(super) fn reset_at_end(&mut self, resets: bool) {
        let linger = resets.then_some(Duration::ZERO);
        match sockopt::set_socket_linger(&self.fd, linger) {
            Ok(()) => self.resets = resets,
            Err(error) => {
                log_line!(Warn, "cannot set SO_LINGER, a truncated response may look complete: {error}")
            }
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn peer_has_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        // An error leaves no events. The state is then unknown, and the peer counts as present.
        let _ = poll(&mut fds, Some(&Timespec::default()));
        fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// An end after unread bytes cannot be seen here.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn peer_has_gone(&self) -> bool {
        match net::recv(&self.fd, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn send_file(&mut self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        // sendfile(2) has no flag for non-blocking operation, so the socket's own mode must provide it.
        self.set_nonblocking(true)?;
        let count = usize::try_from(count.min(FILE_BYTES_A_CALL)).unwrap_or(usize::MAX);
        retry(|| rustix::fs::sendfile(&self.fd, file, Some(offset), count))
    }
}

#[inline(always)]
pub(super) fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}
