//! A connected socket, of whichever family, and the few things that are done with it.
//!
//! On Linux, sockets stay in blocking mode. Loops say `MSG_DONTWAIT` at each call; a thread that waits for one
//! connection simply reads, which spares it a `poll(2)` for every request. Only files need the other mode: it is
//! set at the first one, and taken back by the next read that waits. Elsewhere sockets never wait, and that read is a
//! `poll(2)` first.
//!
//! What each request does here is inlined into the loops, with its system call. The first return behind a system call, to a
//! frame that was entered before it, costs 0.3 us on Zen 4: the processor's stack of return addresses is the kernel's by
//! then. A keep-alive request was two of them (docs/performance.md).

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, sockopt};

use super::system::{MORE, SEND, SOCKETS_WAIT, cork, limit_unread};

/// A connected TCP or Unix socket, or what stands in for one.
#[derive(Debug)]
pub(crate) enum Stream {
    Socket(Socket),
    /// In memory, driven by its owner and never by an engine: for tests.
    Memory(Arc<dyn Duplex>),
}

#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// A receive timeout is set: see [`Stream::recv_for`].
    patience: Patience,
    /// The socket's own mode is not to wait: see [`Stream::send_file`].
    hurried: bool,
    /// Its end would be a reset: see [`Stream::reset_unless_ended`].
    resets: bool,
    cork: Cork,
}

/// Whether only full segments leave: see [`Stream::cork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cork {
    Out,
    In,
    /// There is none, as in Unix sockets: it is not asked for again.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    Millis(u16),
}

/// One end of a connection in memory. It fails as a socket would, with the same errors.
pub(crate) trait Duplex: fmt::Debug + Send + Sync {
    /// Takes what is there into the spare room of `into`. 0: the peer has ended its side.
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize>;
    /// Takes as much of the two parts, which follow one another, as there is room for now.
    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize>;
    /// Nothing more is sent.
    fn shutdown_write(&self);
    /// Nothing more is sent or read.
    fn shutdown_both(&self);
    /// The peer has ended its side, whatever of it is still to be read.
    fn peer_has_gone(&self) -> bool;
    fn local_addr(&self) -> Option<SocketAddr>;
    /// Any open descriptor: whoever waits for this connection knows better than to poll it.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// Whether an I/O error only says: not now.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Whether an I/O error says: not until then.
pub(crate) fn is_timed_out(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Stream {
        Stream::Socket(Socket {
            fd,
            patience: Patience::Endless,
            hurried: false,
            resets: false,
            cork: Cork::Out,
        })
    }

    /// Reads what is there into the spare room of `into`. 0: the peer has ended its side.
    #[inline(always)]
    pub(crate) fn recv(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        self.recv_with(into, RecvFlags::DONTWAIT)
    }

    /// Reads what is there into `into`, without waiting. 0: the peer has ended its side.
    pub(crate) fn recv_into(&self, into: &mut [u8]) -> io::Result<usize> {
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
        })
    }

    /// Reads, and waits for at most `patience` when nothing is there (then: `WouldBlock`).
    #[inline(always)]
    pub(crate) fn recv_for(&mut self, into: &mut Vec<u8>, patience: Duration) -> io::Result<usize> {
        if !SOCKETS_WAIT {
            self.await_input(patience);
            return self.recv(into);
        }
        let wanted = Patience::Millis(patience.as_millis().clamp(1, u128::from(u16::MAX)) as u16);
        if let Stream::Socket(socket) = self {
            if socket.patience != wanted {
                socket.be_patient(wanted, patience)?;
            }
            socket.hurry(false)?;
        }
        self.recv_with(into, RecvFlags::empty())
    }

    /// Whatever ends the wait, the read that follows tells what there is.
    fn await_input(&self, patience: Duration) {
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Timespec::try_from(patience).ok().as_ref());
    }

    #[inline(always)]
    fn recv_with(&self, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        retry(|| match self {
            Stream::Socket(socket) => {
                net::recv(&socket.fd, spare_capacity(into), flags).map(|(_, count)| count)
            }
            Stream::Memory(memory) => memory.recv(into),
        })
    }

    /// Sends what the kernel takes now. With `more` to follow at once, bytes or the end, a packet that is not full may wait
    /// for it.
    #[inline(always)]
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let flags = if more { SEND | MORE } else { SEND };
        retry(|| match self {
            Stream::Socket(socket) => net::send(&socket.fd, bytes, flags),
            Stream::Memory(memory) => memory.send(bytes, &[]),
        })
    }

    /// Sends head and body with one system call, without copying either.
    pub(crate) fn send_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        retry(|| match self {
            Stream::Socket(socket) => {
                net::sendmsg(&socket.fd, &parts, &mut SendAncillaryBuffer::default(), SEND)
            }
            Stream::Memory(memory) => memory.send(first, second),
        })
    }

    /// Sends a part of a file from `offset`, which moves on; the bytes never enter this process on Linux.
    pub(crate) fn send_file(&mut self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if let Stream::Socket(socket) = self {
            return socket.send_file(file, offset, count);
        }
        self.copy_file(file, offset, count)
    }

    /// Not inlined, or every write would make room on its stack for these bytes: a keep-alive request then took 8 %
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

    /// From here on only full segments leave, until [`uncork`](Stream::uncork); the kernel keeps the end of what was sent, until 200 ms or
    /// more after all before it has arrived (tcp(7), `TCP_CORK`). Without it each part of a long response that is sent by itself ends in a short segment, and
    /// `MSG_MORE` does not help: the next acknowledgement pushes it out. A streamed MiB, in parts of 128 KiB, was 25 segments for 17.
    pub(crate) fn cork(&mut self) {
        if let Stream::Socket(socket) = self
            && socket.cork == Cork::Out
        {
            socket.cork = if cork(&socket.fd, true).is_ok() { Cork::In } else { Cork::Absent };
        }
    }

    #[inline(always)]
    pub(crate) fn is_corked(&self) -> bool {
        matches!(self, Stream::Socket(Socket { cork: Cork::In, .. }))
    }

    /// What the kernel has kept leaves.
    pub(crate) fn uncork(&mut self) {
        if let Stream::Socket(socket) = self
            && socket.cork == Cork::In
            && cork(&socket.fd, false).is_ok()
        {
            socket.cork = Cork::Out;
        }
    }

    /// The peer has ended its side, or the connection is broken. Found without waiting, and without reading.
    pub(crate) fn peer_has_gone(&self) -> bool {
        match self {
            Stream::Socket(socket) => socket.peer_has_gone(),
            Stream::Memory(memory) => memory.peer_has_gone(),
        }
    }

    /// From here on the end of the connection is a reset, however it comes about, also if this process is killed: what
    /// the peer has got so far must not look whole. Until [`end_in_order`](Stream::end_in_order).
    pub(crate) fn reset_unless_ended(&mut self) {
        if let Stream::Socket(socket) = self {
            socket.reset_at_end(true);
        }
    }

    /// The end of the connection says that all was sent.
    pub(crate) fn end_in_order(&mut self) {
        if let Stream::Socket(socket) = self
            && socket.resets
        {
            socket.reset_at_end(false);
        }
    }

    /// Has the kernel find out whether the peer still exists, when nothing has come for a minute: one that has vanished
    /// ends the connection after two.
    pub(crate) fn probe(&self, write_timeout: Duration) {
        const SILENCE: Duration = Duration::from_secs(60);
        const PAUSE: Duration = Duration::from_secs(10);
        const PROBES: u32 = 6;
        if let Stream::Socket(Socket { fd, .. }) = self {
            // What cannot be set is done without: a Unix socket's peer does not vanish.
            let _ = sockopt::set_socket_keepalive(fd, true)
                .and_then(|()| sockopt::set_tcp_keepidle(fd, SILENCE))
                .and_then(|()| sockopt::set_tcp_keepintvl(fd, PAUSE))
                .and_then(|()| sockopt::set_tcp_keepcnt(fd, PROBES));
            self.limit_unread(Some(write_timeout));
        }
    }

    /// The peer of a connection that is probed may take nothing for twice as long; none: as long as it likes. Two minutes at
    /// least: the limit that it has from its listener would count for the probes as well.
    pub(crate) fn limit_unread(&self, write_timeout: Option<Duration>) {
        const LEAST: Duration = Duration::from_secs(60);
        if let Stream::Socket(Socket { fd, .. }) = self {
            // What cannot be set is done without.
            let _ = limit_unread(fd, write_timeout.map_or(Duration::ZERO, |time| time.max(LEAST)));
        }
    }

    /// Ends our side; the peer sees the end of what was sent (RFC 9112 section 9.6).
    pub(crate) fn shutdown_write(&self) {
        match self {
            // The peer may be gone already, which is as good.
            Stream::Socket(socket) => drop(net::shutdown(&socket.fd, net::Shutdown::Write)),
            Stream::Memory(memory) => memory.shutdown_write(),
        }
    }

    /// Ends both sides: whoever waits for the socket sees the end.
    pub(crate) fn shutdown_both(&self) {
        match self {
            // As above.
            Stream::Socket(socket) => drop(net::shutdown(&socket.fd, net::Shutdown::Both)),
            Stream::Memory(memory) => memory.shutdown_both(),
        }
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Socket(socket) => SocketAddr::try_from(net::getsockname(&socket.fd).ok()?).ok(),
            Stream::Memory(memory) => memory.local_addr(),
        }
    }
}

impl Socket {
    #[cold]
    fn be_patient(&mut self, wanted: Patience, patience: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, Some(patience))?;
        self.patience = wanted;
        Ok(())
    }

    fn hurry(&mut self, hurried: bool) -> io::Result<()> {
        if self.hurried != hurried {
            rustix::io::ioctl_fionbio(&self.fd, hurried)?;
            self.hurried = hurried;
        }
        Ok(())
    }

    fn reset_at_end(&mut self, resets: bool) {
        let linger = resets.then_some(Duration::ZERO);
        match sockopt::set_socket_linger(&self.fd, linger) {
            Ok(()) => self.resets = resets,
            Err(error) => log::warn!("cannot set SO_LINGER, a truncated response may look complete: {error}"),
        }
    }

    #[cfg(target_os = "linux")]
    fn peer_has_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        // An error leaves no events behind: then nobody knows, and the peer counts as there.
        let _ = poll(&mut fds, Some(&Timespec::default()));
        fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// An end behind bytes that nobody has read cannot be seen here.
    #[cfg(not(target_os = "linux"))]
    fn peer_has_gone(&self) -> bool {
        match net::recv(&self.fd, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    #[cfg(target_os = "linux")]
    fn send_file(&mut self, file: &File, offset: &mut u64, count: u64) -> io::Result<usize> {
        // sendfile(2) has no flag for "do not wait": the socket's own mode has to say it.
        self.hurry(true)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(FILE_BYTES_A_CALL);
        retry(|| rustix::fs::sendfile(&self.fd, file, Some(offset), count))
    }
}

/// One slow disk or fast peer must not keep a loop. With an eighth of it a file of 1 MiB took 8 % more CPU.
#[cfg(target_os = "linux")]
const FILE_BYTES_A_CALL: usize = 2 << 20;

#[inline(always)]
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
        match self {
            Stream::Socket(socket) => socket.fd.as_fd(),
            Stream::Memory(memory) => memory.fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! How a read waits where the sockets do not. Linux never asks for that: it can be tried here all the same.

    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn input_is_awaited_and_for_no_longer_than_patience_lasts() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::new(ours.into());
        let (began, patience) = (Instant::now(), Duration::from_millis(20));
        stream.await_input(patience);
        assert!(began.elapsed() >= patience);
        theirs.write_all(b"x").unwrap();
        let (began, patience) = (Instant::now(), Duration::from_secs(60));
        stream.await_input(patience);
        assert!(began.elapsed() < patience);
    }
}
