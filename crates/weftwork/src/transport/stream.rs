//! A connected socket, of whichever family, and the few things that are done with it.
//!
//! Sockets stay in blocking mode. Loops say `MSG_DONTWAIT` at each call; a thread that waits for one
//! connection simply reads, which spares it a `poll(2)` for every request.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags};

/// A connected TCP or Unix socket.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    /// A receive timeout is set: see [`Stream::recv_for`].
    patience: Patience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    Millis(u16),
}

/// Whether an I/O error only says: not now.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Stream {
        Stream { fd, patience: Patience::Endless }
    }

    /// Reads what is there into the spare room of `into`. 0: the peer has ended its side.
    pub(crate) fn recv(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        self.recv_with(into, RecvFlags::DONTWAIT)
    }

    /// Reads, and waits for at most `patience` when nothing is there (then: `WouldBlock`).
    pub(crate) fn recv_for(&mut self, into: &mut Vec<u8>, patience: Duration) -> io::Result<usize> {
        let wanted = Patience::Millis(patience.as_millis().clamp(1, u128::from(u16::MAX)) as u16);
        if self.patience != wanted {
            net::sockopt::set_socket_timeout(&self.fd, net::sockopt::Timeout::Recv, Some(patience))?;
            self.patience = wanted;
        }
        self.recv_with(into, RecvFlags::empty())
    }

    fn recv_with(&self, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        loop {
            match net::recv(&self.fd, spare_capacity(into), flags) {
                Ok((_, count)) => return Ok(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends what the kernel takes now.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| net::send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
    }

    /// Sends head and body with one system call, without copying either.
    pub(crate) fn send_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        retry(|| net::sendmsg(&self.fd, &parts, &mut SendAncillaryBuffer::default(), flags))
    }

    /// Sends a part of a file from `offset`, which moves on; the bytes never enter this process on Linux.
    #[cfg(target_os = "linux")]
    pub(crate) fn send_file(&self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        // sendfile(2) has no flag for "do not wait": the socket's own mode has to say it.
        rustix::io::ioctl_fionbio(&self.fd, true)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(FILE_BYTES_A_CALL);
        let sent = retry(|| rustix::fs::sendfile(&self.fd, file, Some(offset), count));
        rustix::io::ioctl_fionbio(&self.fd, false)?;
        sent
    }

    /// Sends a part of a file from `offset`, which moves on.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn send_file(&self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut bytes = [0; 16 << 10];
        let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
        let read = file.read_at(&mut bytes[..wanted], *offset)?;
        let sent = self.send(&bytes[..read])?;
        *offset += sent as u64;
        Ok(sent)
    }

    /// Ends our side; the peer sees the end of what was sent (RFC 9112 section 9.6).
    pub(crate) fn shutdown_write(&self) {
        // The peer may be gone already, which is as good.
        let _ = net::shutdown(&self.fd, net::Shutdown::Write);
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(net::getsockname(&self.fd).ok()?).ok()
    }
}

/// One slow disk or fast peer must not keep a loop: a quarter MiB a turn.
#[cfg(target_os = "linux")]
const FILE_BYTES_A_CALL: usize = 256 << 10;

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
