//! Differences between the supported systems and Linux. A single call that differs is in this file. Larger differences
//! have their own files: `app/files/beneath.rs`, `engine/doors.rs`, `engine/pool/bell`, and files and ends in
//! `stream.rs`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::{FdFlags, Result, fcntl_getfd, fcntl_setfd};
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrAny, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether `MSG_DONTWAIT` keeps a send from blocking. Darwin supports it only in recv(2). On unknown systems, the
/// sockets themselves are non-blocking.
pub(super) const SOCKETS_WAIT: bool = cfg!(target_os = "linux");

/// Whether listeners with `SO_REUSEPORT` at one address share its connections. On other systems, one listener gets all
/// of them. FreeBSD's `SO_REUSEPORT_LB` shares them. But it applies from the bind on, so that an address in use would
/// be no error.
pub(super) const REUSEPORT_SHARES: bool = cfg!(target_os = "linux");

/// Flags of every send: do not block, and send no signal if the peer has gone.
#[cfg(not(target_vendor = "apple"))]
pub(super) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// On these systems, a socket option suppresses the signal: see `prepare`.
#[cfg(target_vendor = "apple")]
pub(super) const SEND: SendFlags = SendFlags::DONTWAIT;

/// Flag for a send that is followed by another at once.
#[cfg(target_os = "linux")]
pub(super) const MORE: SendFlags = SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
pub(super) const MORE: SendFlags = SendFlags::empty();

/// Sets whether only full segments leave. Other systems have `TCP_NOPUSH` for it, which rustix does not support.
#[cfg(target_os = "linux")]
pub(super) fn cork(tcp: impl AsFd, corked: bool) -> Result<()> {
    net::sockopt::set_tcp_cork(tcp, corked)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cork(_: impl AsFd, _: bool) -> Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
}

/// Whether the peer has closed its side. On systems where poll(2) cannot report that, it is seen when both sides are
/// closed.
#[cfg(target_os = "linux")]
pub(crate) const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
pub(crate) const GONE: PollFlags = PollFlags::empty();

/// Creates a pipe, and returns the read end and the write end. Both are non-blocking.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    flagged::pipe()
}

/// Creates a non-blocking stream socket.
pub(crate) fn socket(family: AddressFamily) -> Result<OwnedFd> {
    flagged::socket(family)
}

/// Keeps a descriptor that was made elsewhere from being inherited by child processes.
pub(crate) fn close_on_exec(fd: impl AsFd) -> Result<()> {
    let flags = fcntl_getfd(&fd)?;
    if flags.contains(FdFlags::CLOEXEC) { Ok(()) } else { fcntl_setfd(fd, flags | FdFlags::CLOEXEC) }
}

/// Accepts the next connection of a listener. [`SOCKETS_WAIT`] says whether its socket blocks.
pub(super) fn accept(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddr>)> {
    let (fd, peer) = flagged::accept(listener)?;
    Ok((fd, peer.and_then(|peer: SocketAddrAny| SocketAddr::try_from(peer).ok())))
}

/// Sets up a connection that other code has accepted, and returns its peer, as [`accept`] does.
pub(crate) fn prepare_accepted(socket: &OwnedFd, write_timeout: Duration) -> Result<Option<SocketAddr>> {
    let peer = net::getpeername(socket)?.and_then(|peer| SocketAddr::try_from(peer).ok());
    rustix::io::ioctl_fionbio(socket, !SOCKETS_WAIT)?;
    close_on_exec(socket)?;
    #[cfg(target_vendor = "apple")]
    net::sockopt::set_socket_nosigpipe(socket, true)?;
    if peer.is_some() {
        net::sockopt::set_tcp_nodelay(socket, true)?;
        // Without the limit, unread data may stay in the kernel, as for a listener.
        let _ = limit_unread(socket, write_timeout);
    }
    Ok(peer)
}

/// Lets the kernel drop a connection whose peer has read nothing for twice `write_timeout`, even after the server has
/// closed it. Otherwise, a peer that acknowledges packets and reads nothing would keep megabytes in the kernel. The
/// factor of two lets the server's own timeout end first, because that one is logged. Connections inherit the option
/// from their listener (tcp(7), `TCP_USER_TIMEOUT`). Without a timeout, there is no limit. Other systems have no such
/// option.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn limit_unread(tcp: impl AsFd, write_timeout: Duration) -> Result<()> {
    let ms = (2 * write_timeout.as_millis()).min(i32::MAX as u128);
    net::sockopt::set_tcp_user_timeout(tcp, ms as u32)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn limit_unread(_: impl AsFd, _: Duration) -> Result<()> {
    Ok(())
}

/// Raises the soft limit of descriptors, because a server runs out of them first, and the soft limit is often a
/// thousand. Returns the new limit.
pub(crate) fn raise_descriptor_limit() -> u64 {
    raise(getrlimit(Resource::Nofile), |wanted| setrlimit(Resource::Nofile, wanted));
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The kernel enlarges its table of descriptors on use: to 64, 256, 512 and so on. In a process with threads, each time
/// it waits for all cores: 4 to 8 ms on two cores, about 20 ms on sixteen. Nothing is accepted meanwhile, and a loop
/// stands still. So the table gets its size at the start, for 8 bytes each.
const DESCRIPTORS_KEPT: u64 = 16 << 10;

/// Lets the kernel enlarge its table for later descriptors, up to `limit`.
pub(crate) fn grow_descriptor_table(some: impl AsFd, limit: u64) {
    let last = limit.min(DESCRIPTORS_KEPT).saturating_sub(1);
    if cfg!(target_os = "linux") {
        // The table keeps its size when the copy is closed. If this fails, the table grows on use.
        let _ = rustix::io::fcntl_dupfd_cloexec(some, last as RawFd);
    }
}

fn raise(limit: Rlimit, set: impl Fn(Rlimit) -> Result<()>) {
    let raised = set(Rlimit { current: limit.maximum, ..limit });
    // macOS has no hard limit, and does not accept "no limit" as a soft limit. It always accepts this value
    // (setrlimit(2), OPEN_MAX).
    const OPEN_MAX: u64 = 10_240;
    if raised.is_err() && limit.current.is_some_and(|soft| soft < OPEN_MAX) {
        // If that fails too, the server uses the existing limit.
        let _ = set(Rlimit { current: Some(OPEN_MAX), ..limit });
    }
}

/// Functions that create descriptors which are non-blocking and not inherited, in one call each.
#[cfg(not(target_vendor = "apple"))]
mod flagged {
    use rustix::net::SocketFlags;
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
    }

    pub(super) fn socket(family: AddressFamily) -> Result<OwnedFd> {
        net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
    }

    pub(super) fn accept(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
        let mode = if SOCKETS_WAIT { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
        net::acceptfrom_with(listener, SocketFlags::CLOEXEC | mode)
    }
}

/// Functions for systems whose calls lack the flags. A child that is started in between inherits the descriptors.
#[cfg(target_vendor = "apple")]
mod flagged {
    use rustix::io::{Errno, ioctl_fioclex, ioctl_fionbio};
    use rustix::net::sockopt;

    use super::*;

    pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
        let (read, written) = rustix::pipe::pipe()?;
        for fd in [&read, &written] {
            ioctl_fioclex(fd)?;
            ioctl_fionbio(fd, true)?;
        }
        Ok((read, written))
    }

    pub(super) fn socket(family: AddressFamily) -> Result<OwnedFd> {
        let fd = net::socket(family, SocketType::STREAM, None)?;
        prepare(&fd)?;
        Ok(fd)
    }

    pub(super) fn accept(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
        let (fd, peer) = net::acceptfrom(listener)?;
        // If the peer has reset the connection meanwhile, an option can no longer be set.
        prepare(&fd).map_err(|_| Errno::CONNABORTED)?;
        Ok((fd, peer))
    }

    fn prepare(fd: &OwnedFd) -> Result<()> {
        ioctl_fioclex(fd)?;
        ioctl_fionbio(fd, true)?;
        sockopt::set_socket_nosigpipe(fd, true)
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the rules for kernels on which the tests do not run.

    use std::cell::Cell;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_soft_limit_of_descriptors_rises_as_far_as_the_kernel_lets_it() {
        let check = |soft: u64, hard: Option<u64>, most: u64, want: u64| {
            let now = Cell::new(soft);
            raise(Rlimit { current: Some(soft), maximum: hard }, |wanted| {
                assert_eq!(wanted.maximum, hard);
                now.set(wanted.current.filter(|wanted| *wanted <= most).ok_or(Errno::INVAL)?);
                Ok(())
            });
            assert_eq!(now.get(), want, "{soft} of {hard:?}, of which the kernel gives {most}");
        };
        check(1024, Some(524_288), 1 << 20, 524_288);
        check(256, Some(4096), 10_240, 4096);
        // macOS has no hard limit, and accepts "no limit" here as a soft limit.
        check(256, None, 10_240, 10_240);
        check(256, Some(1 << 20), 10_240, 10_240);
        // The second attempt does not lower what the first attempt could not raise.
        check(20_000, None, 30_000, 20_000);
    }
}
