//! Tells systemd the state of the service (sd_notify(3)).
//!
//! The crate `sd-notify` does not support abstract sockets, and the protocol is one datagram.

use crate::transport::log_queue::log_line;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time to send a message. systemd reads its socket at once.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) const READY: &str = "READY=1";
pub(crate) const STOPPING: &str = "STOPPING=1";
pub(crate) const WATCHDOG: &str = "WATCHDOG=1";

/// Returns the message that begins a reload. Its time lets systemd tell the messages of two reloads apart.
pub(crate) fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

/// Sends a message to the supervisor, if `NOTIFY_SOCKET` names one.
pub(crate) fn notify(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    let socket = socket.to_string_lossy();
    if let Err(error) = send(&socket, message) {
        log_line!(Warn, "cannot tell systemd {message:?} at {socket} (NOTIFY_SOCKET): {error}");
    }
}

/// Returns the interval at which systemd wants to hear of this process: half of `WATCHDOG_USEC`.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0)?;
    Some(Duration::from_micros(micros / 2).max(Duration::from_millis(1)))
}

fn send(socket: &str, message: &str) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(SEND_TIMEOUT))?;
    match socket.strip_prefix('@') {
        Some(name) => connect_abstract(&sender, name)?,
        None => sender.connect(socket)?,
    }
    loop {
        match sender.send(message.as_bytes()) {
            // With a time limit, the kernel does not go on after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return sent.map(|_| ()),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn connect_abstract(sender: &UnixDatagram, name: &str) -> io::Result<()> {
    #[cfg(target_os = "android")]
    use std::os::android::net::SocketAddrExt;
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt;
    sender.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn connect_abstract(_: &UnixDatagram, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    use super::*;

    #[test]
    fn a_message_reaches_both_kinds_of_sockets() {
        let name = format!("weftwork-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let named = UnixDatagram::bind(&path).unwrap();
        let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (receiver, socket) in [(named, path.display().to_string()), (unnamed, format!("@{name}"))] {
            send(&socket, READY).unwrap();
            let mut bytes = [0; 64];
            let length = receiver.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], READY.as_bytes(), "{socket}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_time_of_a_reload_is_the_monotonic_clock() {
        let text = reloading();
        let micros: u64 = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(micros > 0, "{text}");
    }
}
