//! What does each system lack of what Linux has? One call that differs is here; where a whole way differs, its own file
//! has both: `app/files/beneath.rs`, `engine/doors.rs`, `engine/pool/bell`, and files and ends in `stream.rs`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Result;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrAny, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether `MSG_DONTWAIT` keeps a send from waiting. Darwin heeds it in recv(2) alone, so where we do not know the sockets
/// themselves never wait.
pub(super) const SOCKETS_WAIT: bool = cfg!(target_os = "linux");

/// Whether listeners with `SO_REUSEPORT` at one address share its connections. Elsewhere one gets all of them.
/// `SO_REUSEPORT_LB` of FreeBSD shares them, but counts from the bind on: an address in use would be no error.
pub(super) const REUSEPORT_SHARES: bool = cfg!(target_os = "linux");

/// How everything is sent: without waiting, and without a signal where the peer is gone.
#[cfg(not(target_vendor = "apple"))]
pub(super) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// Here it is the socket that sends no signal: see `prepare`.
#[cfg(target_vendor = "apple")]
pub(super) const SEND: SendFlags = SendFlags::DONTWAIT;

/// More follows at once.
#[cfg(target_os = "linux")]
pub(super) const MORE: SendFlags = SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
pub(super) const MORE: SendFlags = SendFlags::empty();

/// Whether only full segments leave from here on. Others have `TCP_NOPUSH` for it, which rustix does not.
#[cfg(target_os = "linux")]
pub(super) fn cork(tcp: impl AsFd, corked: bool) -> Result<()> {
    net::sockopt::set_tcp_cork(tcp, corked)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cork(_: impl AsFd, _: bool) -> Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
}

/// The peer has ended its side. Where poll(2) has no word for that, it is seen when both have.
#[cfg(target_os = "linux")]
pub(crate) const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
pub(crate) const GONE: PollFlags = PollFlags::empty();

/// The end that is read, and the one that is written. Neither waits.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    flagged::pipe()
}

/// A stream socket that does not wait.
pub(crate) fn socket(family: AddressFamily) -> Result<OwnedFd> {
    flagged::socket(family)
}

/// The next connection of a listener; whether it waits says [`SOCKETS_WAIT`].
pub(super) fn accept(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddr>)> {
    let (fd, peer) = flagged::accept(listener)?;
    Ok((fd, peer.and_then(|peer: SocketAddrAny| SocketAddr::try_from(peer).ok())))
}

/// The kernel gives a connection up whose peer has taken nothing of what it was sent for twice `write_timeout`, also when it was
/// closed here: else a peer that answers the kernel and reads nothing keeps megabytes there. Twice, as where it is we that wait
/// for it, that is over before, and is logged. Connections have it from their listener (tcp(7), `TCP_USER_TIMEOUT`). No time: it
/// may take as long as it likes. Other systems have no such option.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn limit_unread(tcp: impl AsFd, write_timeout: Duration) -> Result<()> {
    let ms = (2 * write_timeout.as_millis()).min(i32::MAX as u128);
    net::sockopt::set_tcp_user_timeout(tcp, ms as u32)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn limit_unread(_: impl AsFd, _: Duration) -> Result<()> {
    Ok(())
}

/// Descriptors are what a server runs out of first, and the soft limit is often a thousand. How many there are then.
pub(crate) fn raise_descriptor_limit() -> u64 {
    raise(getrlimit(Resource::Nofile), |wanted| setrlimit(Resource::Nofile, wanted));
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The kernel makes room for descriptors as they are used: for 64 of them, 256, 512 and so on. In a process with threads it
/// waits each time until all cores have taken note: 4 to 8 ms on two cores, some 20 on sixteen, in which nobody accepts
/// and the loop that was about to stands still. So there is room for this many from the start, for 8 bytes each.
const DESCRIPTORS_KEPT: u64 = 16 << 10;

/// Has the kernel make room for descriptors that are still to come, `limit` at most.
pub(crate) fn make_room_for_descriptors(some: impl AsFd, limit: u64) {
    let last = limit.min(DESCRIPTORS_KEPT).saturating_sub(1);
    if cfg!(target_os = "linux") {
        // The room stays when the copy is closed. Where there is none, descriptors are made room for as ever.
        let _ = rustix::io::fcntl_dupfd_cloexec(some, last as RawFd);
    }
}

fn raise(limit: Rlimit, set: impl Fn(Rlimit) -> Result<()>) {
    let raised = set(Rlimit { current: limit.maximum, ..limit });
    // macOS has no hard limit, and refuses that as the soft one; so much it always takes (setrlimit(2), OPEN_MAX).
    const OPEN_MAX: u64 = 10_240;
    if raised.is_err() && limit.current.is_some_and(|soft| soft < OPEN_MAX) {
        // Where that is refused as well, the server does with what there is.
        let _ = set(Rlimit { current: Some(OPEN_MAX), ..limit });
    }
}

/// Descriptors that no child inherits, and that do not wait: in one call each.
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

/// The same where the calls have no flags. A child that is started in between inherits them all the same.
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
        // An option cannot be set any more where the peer has reset the connection meanwhile.
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
    //! What is asked of kernels that do not run the tests.

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
        // macOS has no hard limit, and refuses none as the soft one.
        check(256, None, 10_240, 10_240);
        check(256, Some(1 << 20), 10_240, 10_240);
        // The second try does not lower what the first could not raise.
        check(20_000, None, 30_000, 20_000);
    }
}
