//! A connected socket of any family, and the operations on it.
//!
//! On Linux, sockets stay in blocking mode. Loops pass `MSG_DONTWAIT` with each call. A thread that waits for one
//! connection simply reads, which saves a `poll(2)` for every request. Only sending a file needs the non-blocking mode.
//! It is set for the first file, and reset by the next read that waits. On other systems, sockets never block, and such
//! a read calls `poll(2)` first.
//!
//! The operations of each request are inlined into the loops, together with the system call. On Zen 4, the first
//! return after a system call costs 0.3 us, if its frame was entered before the call. The processor's stack of return
//! addresses then belongs to the kernel. A keep-alive request had two of those returns, which cost 0.66 us
//! (docs/performance.md, "Returns after system calls").

mod pipe;
mod session;
mod socket;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, sockopt};

pub(crate) use self::pipe::{StreamHub, StreamPipe, StreamState};
pub(crate) use self::socket::Socket;
use self::socket::{Cork, RecvTimeout, retry};
use super::system::{SEND, SOCKETS_WAIT, cork, limit_unread};
#[cfg(feature = "_tls")]
use super::tls::TlsStream;

/// A connected TCP or Unix socket, or a test connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Socket(Socket),
    /// A socket with a TLS session. Its code is kept out of the functions for sockets in clear.
    #[cfg(feature = "_tls")]
    Tls(Box<TlsStream>),
    /// A connection in memory: one request of an HTTP/2 connection, or a test.
    Memory(Arc<dyn Duplex>),
}

/// An end of a connection in memory, such as one request of HTTP/2. It fails with the same errors as a socket.
pub(crate) trait Duplex: fmt::Debug + Send + Sync {
    /// Reads available bytes into the spare capacity of `into`. 0 means that the peer has closed its side.
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize>;
    /// Writes as much of the two consecutive parts as there is space for.
    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize>;
    /// Closes the write side.
    fn shutdown_write(&self);
    /// Closes both sides.
    fn shutdown_both(&self);
    /// Returns whether the peer has closed its side, even if bytes are still unread.
    fn peer_has_gone(&self) -> bool;
    fn local_addr(&self) -> Option<SocketAddr>;
    /// Returns the facts of the TLS session that the connection stands for.
    #[cfg(feature = "_tls")]
    fn tls_info(&self) -> Option<&crate::TlsInfo> {
        None
    }
    /// Returns whether a thread can wait for it. The owner of other connections in memory decides how waits end.
    fn is_pollable(&self) -> bool {
        false
    }
    /// Returns a descriptor for a thread that waits for bytes, for space, or for one of the two. It is readable while there are
    /// some, and after the end.
    fn fd(&self, reads: bool, writes: bool) -> io::Result<BorrowedFd<'_>>;
}

/// Returns whether an I/O error means that the operation would block.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Returns whether an I/O error means that the wait timed out.
pub(crate) fn is_timed_out(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Stream {
        Stream::Socket(Socket {
            fd,
            recv_timeout: RecvTimeout::None,
            nonblocking: false,
            resets: false,
            cork: Cork::Out,
        })
    }

    /// Reads available bytes into the spare capacity of `into`. 0 means that the peer has closed its side.
    #[inline(always)]
    pub(crate) fn recv(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        self.recv_with(into, RecvFlags::DONTWAIT)
    }

    /// Reads available bytes into `into` without waiting. 0 means that the peer has closed its side.
    pub(crate) fn recv_into(&self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "_tls")]
        if let Stream::Tls(tls) = self {
            return tls.recv_into(into);
        }
        retry(|| match self {
            Stream::Socket(socket) => {
                net::recv(&socket.fd, &mut *into, RecvFlags::DONTWAIT).map(|(count, _)| count)
            }
            Stream::Memory(memory) => {
                let mut taken = Vec::with_capacity(into.len());
                let count = memory.recv(&mut taken)?.min(into.len());
                into[..count].copy_from_slice(&taken[..count]);
                Ok(count)
            }
            #[cfg(feature = "_tls")]
            Stream::Tls(_) => unreachable!("it was read above"),
        })
    }

    /// Reads, and waits for at most `timeout` if nothing is available. After that time, it returns `WouldBlock`.
    #[inline(always)]
    pub(crate) fn recv_for(&mut self, into: &mut Vec<u8>, timeout: Duration) -> io::Result<usize> {
        if !SOCKETS_WAIT {
            self.await_input(timeout);
            return self.recv(into);
        }
        let wanted = RecvTimeout::Millis(timeout.as_millis().clamp(1, u128::from(u16::MAX)) as u16);
        if let Some(socket) = self.socket_mut() {
            if socket.recv_timeout != wanted {
                socket.set_recv_timeout(wanted, timeout)?;
            }
            socket.set_nonblocking(false)?;
        }
        self.recv_with(into, RecvFlags::empty())
    }

    /// The read after the wait shows what is available, whatever has ended the wait.
    fn await_input(&self, timeout: Duration) {
        #[cfg(feature = "_tls")]
        if let Stream::Tls(tls) = self
            && !tls.must_read()
        {
            return;
        }
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
    }

    #[inline(always)]
    fn recv_with(&self, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        match self {
            Stream::Socket(socket) => socket.recv(into, flags),
            Stream::Memory(memory) => retry(|| memory.recv(into)),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls_recv(tls, into, flags),
        }
    }

    /// Sends what the kernel accepts now. If `more` follows at once (bytes or the end), a packet that is not full may
    /// wait for it.
    #[inline(always)]
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        match self {
            Stream::Socket(socket) => socket.send(bytes, more),
            Stream::Memory(memory) => retry(|| memory.send(bytes, &[])),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls_send(tls, bytes, &[], more),
        }
    }

    /// Sends head and body with one system call, without a copy.
    pub(crate) fn send_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        match self {
            Stream::Socket(socket) => {
                retry(|| net::sendmsg(&socket.fd, &parts, &mut SendAncillaryBuffer::default(), SEND))
            }
            Stream::Memory(memory) => retry(|| memory.send(first, second)),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls_send(tls, first, second, false),
        }
    }

    /// Sends a part of a file from `offset`, and advances `offset`. On Linux, the bytes never enter this process.
    pub(crate) fn send_file(&mut self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        #[cfg(test)]
        super::slow_file::testing::wait_if_held(file);
        #[cfg(target_os = "linux")]
        if let Stream::Socket(socket) = self {
            return socket.send_file(file, offset, count);
        }
        #[cfg(feature = "_tls")]
        if let Stream::Tls(tls) = self {
            let sent = tls.send_file(file, *offset, count)?;
            *offset += sent as u64;
            return Ok(sent);
        }
        self.copy_file(file, offset, count)
    }

    /// Not inlined, because every write would reserve stack for these bytes. With that, a keep-alive request took 8 %
    /// more CPU.
    #[inline(never)]
    fn copy_file(&self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut bytes = [0; 16 << 10];
        let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
        let read = file.read_at(&mut bytes[..wanted], *offset)?;
        let sent = self.send(&bytes[..read], false)?;
        *offset += sent as u64;
        Ok(sent)
    }

    /// Lets only full segments leave until [`uncork`](Stream::uncork). The kernel keeps the last bytes until 200 ms
    /// or more after all earlier bytes have arrived (tcp(7), `TCP_CORK`). Without the option, each part of a long
    /// response ends in a short segment. `MSG_MORE` does not help, because the next acknowledgement pushes that
    /// segment out. Without the option, a streamed MiB in parts of 128 KiB took 25 segments instead of 17.
    pub(crate) fn cork(&mut self) {
        if let Some(socket) = self.socket_mut()
            && socket.cork == Cork::Out
        {
            socket.cork = if cork(&socket.fd, true).is_ok() { Cork::In } else { Cork::Absent };
        }
    }

    #[inline(always)]
    pub(crate) fn is_corked(&self) -> bool {
        self.socket().is_some_and(|socket| socket.cork == Cork::In)
    }

    /// Sends the bytes that the kernel has kept.
    pub(crate) fn uncork(&mut self) {
        if let Some(socket) = self.socket_mut()
            && socket.cork == Cork::In
            && cork(&socket.fd, false).is_ok()
        {
            socket.cork = Cork::Out;
        }
    }

    /// Returns whether the peer has closed its side or the connection is broken. The call neither waits nor reads.
    pub(crate) fn peer_has_gone(&self) -> bool {
        match self {
            Stream::Socket(socket) => socket.peer_has_gone(),
            Stream::Memory(memory) => memory.peer_has_gone(),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.has_peer_closed() || tls.socket.peer_has_gone(),
        }
    }

    /// Returns whether the connection was reset after the peer had closed its side. A read does not tell that.
    #[cold]
    pub(crate) fn is_reset(&self) -> bool {
        match self.socket() {
            Some(socket) => {
                let mut fds = [PollFd::new(&socket.fd, PollFlags::empty())];
                // An error leaves no events. The connection then counts as open.
                let _ = poll(&mut fds, Some(&Timespec::default()));
                fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
            }
            None => false,
        }
    }

    /// Returns whether the connection was reset, and what the peer has sent is lost. The bytes in a Unix socket stay when its peer
    /// closes it.
    #[cold]
    pub(crate) fn has_lost_input(&self) -> bool {
        self.is_reset() && self.local_addr().is_some()
    }

    /// Makes every end of the connection a reset, even if this process is killed, so that a partial response does not
    /// look complete. [`end_in_order`](Stream::end_in_order) reverts this.
    pub(crate) fn reset_unless_ended(&mut self) {
        if let Some(socket) = self.socket_mut() {
            socket.reset_at_end(true);
        }
    }

    /// Makes the end of the connection a regular close, because everything was sent.
    pub(crate) fn end_in_order(&mut self) {
        if let Some(socket) = self.socket_mut()
            && socket.resets
        {
            socket.reset_at_end(false);
        }
    }

    /// Enables keep-alive probes after a minute of silence. If the peer has vanished, the connection ends after two
    /// minutes.
    pub(crate) fn enable_keepalive(&self, write_timeout: Duration) {
        const SILENCE: Duration = Duration::from_secs(60);
        const PAUSE: Duration = Duration::from_secs(10);
        const PROBES: u32 = 6;
        if let Some(Socket { fd, .. }) = self.socket() {
            // Errors are ignored, because the peer of a Unix socket cannot vanish.
            let _ = sockopt::set_socket_keepalive(fd, true)
                .and_then(|()| sockopt::set_tcp_keepidle(fd, SILENCE))
                .and_then(|()| sockopt::set_tcp_keepintvl(fd, PAUSE))
                .and_then(|()| sockopt::set_tcp_keepcnt(fd, PROBES));
            self.limit_unread(Some(write_timeout));
        }
    }

    /// Sets how long the peer of a probed connection may read nothing, to twice this time. None means no limit. The
    /// minimum is two minutes, because the limit of the listener would also apply to the probes.
    pub(crate) fn limit_unread(&self, write_timeout: Option<Duration>) {
        const LEAST: Duration = Duration::from_secs(60);
        if let Some(Socket { fd, .. }) = self.socket() {
            // Errors are ignored.
            let _ = limit_unread(fd, write_timeout.map_or(Duration::ZERO, |time| time.max(LEAST)));
        }
    }

    /// Closes the write side. The peer sees the end of what was sent (RFC 9112 section 9.6).
    pub(crate) fn shutdown_write(&self) {
        match self {
            // The peer may be gone already, which has the same effect.
            Stream::Socket(socket) => drop(net::shutdown(&socket.fd, net::Shutdown::Write)),
            Stream::Memory(memory) => memory.shutdown_write(),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => {
                tls.close();
                let _ = net::shutdown(&tls.socket.fd, net::Shutdown::Write);
            }
        }
    }

    /// Closes both sides. A thread that waits for the socket sees the end.
    pub(crate) fn shutdown_both(&self) {
        match self {
            // As above, the peer may be gone.
            Stream::Socket(socket) => drop(net::shutdown(&socket.fd, net::Shutdown::Both)),
            Stream::Memory(memory) => memory.shutdown_both(),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => {
                let _ = net::shutdown(&tls.socket.fd, net::Shutdown::Both);
            }
        }
    }

    /// Closes both sides, and makes the end of the connection a reset. A peer that sends and does not read is told at once. After a
    /// regular close it could wait for a minute: its window is closed, so no byte of it would be answered.
    pub(crate) fn cut(&self) {
        if let Some(socket) = self.socket() {
            // Without it, the peer learns of the end later.
            let _ = sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
        }
        self.shutdown_both();
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Memory(memory) => memory.local_addr(),
            _ => SocketAddr::try_from(net::getsockname(self.as_fd()).ok()?).ok(),
        }
    }

    #[inline(always)]
    fn socket(&self) -> Option<&Socket> {
        match self {
            Stream::Socket(socket) => Some(socket),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => Some(&tls.socket),
            Stream::Memory(_) => None,
        }
    }

    #[inline(always)]
    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match self {
            Stream::Socket(socket) => Some(socket),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => Some(&mut tls.socket),
            Stream::Memory(_) => None,
        }
    }

    /// Returns the end of a connection in memory, if this is one.
    pub(crate) fn memory(&self) -> Option<&dyn Duplex> {
        match self {
            Stream::Memory(memory) => Some(&**memory),
            _ => None,
        }
    }

    /// Returns whether a read of `count` bytes into this space has emptied the socket.
    #[inline(always)]
    pub(crate) fn is_emptied(&self, count: usize, space: usize) -> bool {
        match self {
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.is_emptied(),
            _ => count != space,
        }
    }
}

#[cfg(feature = "_tls")]
#[cold]
#[inline(never)]
fn tls_recv(tls: &TlsStream, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
    tls.recv(into, flags)
}

#[cfg(feature = "_tls")]
#[cold]
#[inline(never)]
fn tls_send(tls: &TlsStream, first: &[u8], second: &[u8], more: bool) -> io::Result<usize> {
    tls.send(first, second, more)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Socket(socket) => socket.fd.as_fd(),
            #[cfg(feature = "_tls")]
            Stream::Tls(tls) => tls.socket.fd.as_fd(),
            // Its waits use `Stream::memory`. Without a descriptor of its own, nothing is reported.
            Stream::Memory(memory) => memory.fd(true, true).unwrap_or_else(|_| rustix::stdio::stdin()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of reads that wait on non-blocking sockets. Linux does not need such reads, but they work there too.

    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn input_is_awaited_until_the_timeout() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::new(ours.into());
        let (began, timeout) = (Instant::now(), Duration::from_millis(20));
        stream.await_input(timeout);
        assert!(began.elapsed() >= timeout);
        theirs.write_all(b"x").unwrap();
        let (began, timeout) = (Instant::now(), Duration::from_secs(60));
        stream.await_input(timeout);
        assert!(began.elapsed() < timeout);
    }
}
