//! Copies bytes in both directions until either side ends. The proxy does not read the protocol.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::upstream::{Http1Conn, UpstreamStream, from_now, wait_readable, wait_writable};
use crate::message::{Upgraded, UpgradedReader, UpgradedWriter};
use crate::transport::log_queue::log_line;
use crate::transport::stream::is_timed_out;
use crate::transport::thread_memory;

const COPIED_BYTES: usize = 16 << 10;
/// Interval at which a blocked direction checks whether the server is closing all connections. The server then
/// waits for a second.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// State that both directions share.
struct Tunnel {
    /// Connection to the upstream server.
    upstream: UpstreamStream,
    /// Maximum time for which the upstream server may read nothing.
    write_timeout: Duration,
    /// Maximum time without any byte in either direction.
    idle_timeout: Option<Duration>,
    started: Instant,
    /// Time of the last transfer, in milliseconds from `started`.
    last_transfer_ms: AtomicU64,
}

/// Runs until both directions have ended, or one has failed.
pub(super) fn run(upgraded: Upgraded, conn: Http1Conn, write_timeout: Duration) -> io::Result<()> {
    let (upstream, rest) = conn.into_parts();
    let (mut client, mut client_writer) = upgraded.split();
    let (started, last_transfer_ms) = (Instant::now(), AtomicU64::new(0));
    let tunnel = Arc::new(Tunnel {
        upstream,
        write_timeout,
        idle_timeout: client.timeout(),
        started,
        last_transfer_ms,
    });
    client_writer.write_all(&rest)?;
    let returning = tunnel.clone();
    // If no thread can be started, everything is dropped, which closes both connections.
    let other = OtherDirection::start(move || returning.run_to_client(client_writer))?;
    let sent = tunnel.copy_to_upstream(&mut client);
    // The end of one direction is passed on. A failure, or a stop of the server, ends both directions.
    tunnel.end(if sent.is_ok() { Shutdown::Write } else { Shutdown::Both });
    other.join(|| {
        if client.is_closing() {
            tunnel.end(Shutdown::Both);
        }
    });
    sent
}

impl Tunnel {
    /// Copies from the client to the server.
    fn copy_to_upstream(&self, client: &mut UpgradedReader) -> io::Result<()> {
        let (mut bytes, mut stop_seen) = (vec![0; COPIED_BYTES], false);
        loop {
            client.set_timeout(self.idle_left());
            match client.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.note_transfer();
                    self.send(&bytes[..count], client)?;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // The endpoints may want to close their protocol before the server stops.
                    io::ErrorKind::ConnectionAborted if !std::mem::replace(&mut stop_seen, true) => {}
                    io::ErrorKind::TimedOut if !self.is_idle() => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends all bytes, unless the upstream server reads nothing for too long, or this server is closing all
    /// connections.
    fn send(&self, mut bytes: &[u8], client: &UpgradedReader) -> io::Result<()> {
        let mut until = from_now(self.write_timeout);
        while !bytes.is_empty() || self.upstream.has_unsent() {
            match self.upstream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    until = from_now(self.write_timeout);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if client.is_closing() {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    match wait_writable(&self.upstream, until.min(from_now(CHECK_INTERVAL))) {
                        Err(error) if is_timed_out(&error) && Instant::now() < until => {}
                        waited => waited?,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Copies from the server to the client.
    fn run_to_client(&self, mut client: UpgradedWriter) {
        match self.copy_to_client(&mut client) {
            Ok(()) => client.shutdown(),
            Err(_) => {
                client.cut();
                // The other direction may be waiting for the server to read.
                self.end(Shutdown::Both);
            }
        }
    }

    fn copy_to_client(&self, client: &mut UpgradedWriter) -> io::Result<()> {
        let mut bytes = vec![0; COPIED_BYTES];
        loop {
            match UpstreamReader(self).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.note_transfer();
                    client.write_all(&bytes[..count])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn end(&self, how: Shutdown) {
        // The server may have closed already, which has the same effect.
        let _ = self.upstream.shutdown(how, from_now(self.write_timeout));
    }

    fn note_transfer(&self) {
        self.last_transfer_ms.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the remaining time without a transfer.
    fn idle_left(&self) -> Option<Duration> {
        let last_transfer_ms =
            self.started + Duration::from_millis(self.last_transfer_ms.load(Ordering::Relaxed));
        self.idle_timeout.map(|idle_timeout| idle_timeout.saturating_sub(last_transfer_ms.elapsed()))
    }

    fn is_idle(&self) -> bool {
        self.idle_left() == Some(Duration::ZERO)
    }
}

/// Reads from the upstream server. A fiber or a thread waits for it.
struct UpstreamReader<'a>(&'a Tunnel);

impl Read for UpstreamReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let UpstreamReader(tunnel) = self;
        loop {
            match tunnel.upstream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = tunnel.idle_left().unwrap_or(Duration::MAX);
                    match wait_readable(&tunnel.upstream, from_now(left)) {
                        Err(error) if is_timed_out(&error) && !tunnel.is_idle() => {}
                        waited => waited?,
                    }
                }
                read => return read,
            }
        }
    }
}

/// The direction that does not run on the thread or fiber that started the tunnel.
enum OtherDirection {
    #[cfg(feature = "fibers")]
    Fiber(weftwork_fiber::JoinHandle<()>),
    /// A thread, and a channel that is disconnected when the thread ends.
    Thread(JoinHandle<()>, Receiver<()>),
}

impl OtherDirection {
    fn start(work: impl FnOnce() + Send + 'static) -> io::Result<OtherDirection> {
        #[cfg(feature = "fibers")]
        if weftwork_fiber::in_fiber() {
            return Ok(OtherDirection::Fiber(weftwork_fiber::spawn(work)));
        }
        let (alive, over) = channel();
        let work = move || {
            let _alive = alive;
            work();
        };
        let thread = thread_memory::spawn("weft-tunnel", work);
        let thread = thread.inspect_err(|error| {
            log_line!(Error, "cannot start a thread for a tunnel, closing it: {error}")
        })?;
        Ok(OtherDirection::Thread(thread, over))
    }

    /// Waits for the end and calls `check` now and then. The direction does not panic. If it did, the panic was
    /// already reported.
    fn join(self, check: impl Fn()) {
        match self {
            #[cfg(feature = "fibers")]
            OtherDirection::Fiber(fiber) => drop(fiber.join()),
            OtherDirection::Thread(thread, over) => {
                while over.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    check();
                }
                drop(thread.join());
            }
        }
    }
}
