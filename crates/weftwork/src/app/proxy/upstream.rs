//! Connections to the upstream server: connect, keep, reuse.

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, RecvFlags, sockopt};
use weftwork_wire::ResponseReader;

use super::Failure;
use crate::error::{Error, Result};
use crate::transport::stream::is_timed_out;
use crate::transport::system;

/// Maximum age of an idle connection. Many servers close theirs after five seconds.
const IDLE_AGE_MAX: Duration = Duration::from_secs(4);
/// Minimum time between two look-ups. If a server does not answer, its resolver often does not answer either.
const LOOKUP_INTERVAL_MIN: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 16 << 10;
/// Maximum of every timeout, so that neither the clock nor the milliseconds of poll(2) overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(20 * 24 * 3600);

/// The upstream server and its idle connections.
pub(super) struct Upstream {
    authority: Arc<str>,
    /// Authority with its port.
    pub(super) named: String,
    base: String,
    pub(super) addresses: Mutex<Vec<SocketAddr>>,
    pub(super) resolve: Resolver,
    /// Time of the last look-up, except the first one.
    resolved_at: Mutex<Option<Instant>>,
    pub(super) connect_timeout: Duration,
    pub(super) idle_max: usize,
    idle: IdleConns,
}

/// Resolves a name. Tests replace the system's resolver.
type Resolver = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Last in, first out, so that connections that are not needed expire.
type IdleConns = Arc<Mutex<Vec<(TcpStream, Instant)>>>;

impl Upstream {
    pub(super) fn new(url: &str) -> Result<Upstream> {
        let wanted = || Error::usage(format!("invalid server {url:?}: expected http://host:port"));
        if url.starts_with("https://") {
            return Err(Error::usage(format!(
                "invalid server {url:?}: a Proxy does not support TLS, use http://host:port or put a TLS proxy in between"
            )));
        }
        let rest = url.strip_prefix("http://").ok_or_else(wanted)?;
        let (host, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        let base_is_plain = base.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
        if !plain || !base_is_plain {
            return Err(wanted());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let named = if has_port { host.to_owned() } else { format!("{host}:80") };
        let addresses = resolve(&named)
            .map_err(|error| Error::usage(format!("cannot look up the server {named}: {error}")))?;
        Ok(Upstream {
            authority: host.into(),
            named,
            base: base.trim_end_matches('/').to_owned(),
            addresses: Mutex::new(addresses),
            resolve,
            resolved_at: Mutex::default(),
            connect_timeout: Duration::from_secs(5),
            idle_max: 32,
            idle: IdleConns::default(),
        })
    }

    pub(super) fn authority(&self) -> &Arc<str> {
        &self.authority
    }

    /// Path of the URL without a final slash.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns a connection, and whether it was used before. A new connection must be established within
    /// `timeout`.
    pub(super) fn acquire(&self, timeout: Duration) -> Result<(UpstreamConn, bool), Failure> {
        while let Some(stream) = self.take_idle() {
            // A connection with unexpected input, or one that ended, cannot be used.
            if is_silent(&stream) {
                return Ok((UpstreamConn::new(stream), true));
            }
        }
        Ok((self.connect_new(timeout)?, false))
    }

    fn take_idle(&self) -> Option<TcpStream> {
        let (taken, _old) = {
            let mut idle = lock(&self.idle);
            let old = remove_expired(&mut idle);
            (idle.pop(), old)
        };
        taken.map(|(stream, _)| stream)
    }

    pub(super) fn connect_new(&self, timeout: Duration) -> Result<UpstreamConn, Failure> {
        let until = from_now(self.connect_timeout.min(timeout));
        Ok(UpstreamConn::new(self.connect(until).map_err(Failure::Unreachable)?))
    }

    fn connect(&self, until: Instant) -> io::Result<TcpStream> {
        let known = self.lock_addresses().clone();
        let failed = match self.connect_to(&known, until) {
            Err(error) => error,
            connected => return connected,
        };
        // The server may have moved. The usual sign is that its old address does not answer.
        let Some(found) = self.resolve_again() else { return Err(failed) };
        let new: Vec<SocketAddr> = found.iter().filter(|found| !known.contains(found)).copied().collect();
        if new.is_empty() {
            return Err(failed);
        }
        *self.lock_addresses() = found;
        // If no time is left, the next request uses the new addresses.
        if Instant::now() < until { self.connect_to(&new, until) } else { Err(failed) }
    }

    /// Looks the name up again. Returns `None` if the last look-up is too recent, or if the name is unknown.
    fn resolve_again(&self) -> Option<Vec<SocketAddr>> {
        let mut resolved_at = self.resolved_at.lock().unwrap_or_else(PoisonError::into_inner);
        if resolved_at.is_some_and(|at| at.elapsed() < LOOKUP_INTERVAL_MIN) {
            return None;
        }
        *resolved_at = Some(Instant::now());
        drop(resolved_at);
        let (resolve, named) = (self.resolve, self.named.clone());
        // The look-up blocks for as long as the resolver likes, and needs more stack than a fiber has.
        crate::blocking(move || resolve(&named)).ok()
    }

    /// Tries one address after another. Each one gets an equal share of the remaining time.
    fn connect_to(&self, addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the server has no address");
        for (at, address) in addresses.iter().enumerate() {
            let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
            let now = Instant::now();
            match connect(*address, now + until.saturating_duration_since(now) / others) {
                Ok(stream) => {
                    self.prefer(*address);
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Puts an address first, so that the next connection does not wait for addresses that do not answer.
    fn prefer(&self, address: SocketAddr) {
        let mut addresses = self.lock_addresses();
        if let Some(at) = addresses.iter().position(|known| *known == address) {
            addresses[..=at].rotate_right(1);
        }
    }

    /// Returns the pool for connections that can be reused.
    pub(super) fn idle_pool(&self) -> IdlePool {
        IdlePool { idle: self.idle.clone(), idle_max: self.idle_max }
    }

    fn lock_addresses(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct IdlePool {
    idle: IdleConns,
    idle_max: usize,
}

impl IdlePool {
    /// Keeps a connection whose last response was read to its end.
    pub(super) fn put_back(self, conn: UpstreamConn) {
        let _old = {
            let mut idle = lock(&self.idle);
            let old = remove_expired(&mut idle);
            if conn.at == conn.input.len() && conn.is_sent() && idle.len() < self.idle_max {
                idle.push((conn.stream, Instant::now()));
            }
            old
        };
    }
}

fn lock(idle: &IdleConns) -> MutexGuard<'_, Vec<(TcpStream, Instant)>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes connections that are too old. They are below newer ones, so they would never be taken, and their
/// server may have closed them. The caller drops them after it has released the lock, because closing takes
/// time.
fn remove_expired(idle: &mut Vec<(TcpStream, Instant)>) -> Vec<(TcpStream, Instant)> {
    let old = idle.partition_point(|(_, since)| since.elapsed() >= IDLE_AGE_MAX);
    idle.drain(..old).collect()
}

/// Returns the end of a timeout that the user chose.
pub(super) fn from_now(time: Duration) -> Instant {
    Instant::now() + time.min(TIMEOUT_MAX)
}

fn resolve(named: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = named.to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
}

fn is_silent(stream: &TcpStream) -> bool {
    let peeked = stream.peek(&mut [0]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Connects without blocking the thread if a fiber can wait.
fn connect(address: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = system::socket(family)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    wait_writable(&socket, until)?;
    sockopt::socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One connection in use.
pub(super) struct UpstreamConn {
    stream: TcpStream,
    /// Received bytes, unused from `at` on.
    pub(super) input: Vec<u8>,
    pub(super) at: usize,
    /// Number of unused bytes that were examined and are incomplete.
    pub(super) examined: usize,
    pub(super) reader: ResponseReader,
    /// Whether no byte has arrived since the connection was acquired.
    pub(super) has_received_nothing: bool,
    /// Bytes to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Number of bytes that the server has accepted.
    pub(super) bytes_sent: u64,
}

impl UpstreamConn {
    fn new(stream: TcpStream) -> UpstreamConn {
        let (input, output) = (Vec::new(), Vec::new());
        let reader = ResponseReader::new();
        UpstreamConn {
            stream,
            input,
            at: 0,
            examined: 0,
            reader,
            has_received_nothing: true,
            output,
            sent: 0,
            bytes_sent: 0,
        }
    }

    /// Returns the received bytes that are not used yet.
    pub(super) fn unused(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// Queues bytes to send.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        if self.is_sent() {
            self.output.clear();
            self.sent = 0;
        }
        self.output.extend_from_slice(bytes);
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.output.len()
    }

    /// Sends the queued bytes. Returns false if the server stopped reading and has sent something. The server
    /// may read nothing for `timeout`, and must have read everything by `end`.
    pub(super) fn send_output(&mut self, timeout: Duration, end: Instant) -> io::Result<bool> {
        let mut until = from_now(timeout).min(end);
        while !self.is_sent() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.bytes_sent += count as u64;
                    until = from_now(timeout).min(end);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    // A server that has responded and closed is not an error yet.
                    return if self.has_input()? { Ok(false) } else { Err(error) };
                }
                Err(_) if self.has_input()? => return Ok(false),
                Err(_) => self.wait_writable_briefly(until)?,
            }
        }
        Ok(true)
    }

    /// Waits briefly for buffer space, because the server may send something instead.
    fn wait_writable_briefly(&self, until: Instant) -> io::Result<()> {
        const MOMENT: Duration = Duration::from_millis(20);
        let soon = Instant::now() + MOMENT;
        match wait_writable(&self.stream, soon.min(until)) {
            Err(error) if is_timed_out(&error) && Instant::now() < until => Ok(()),
            waited => waited,
        }
    }

    /// Returns whether input is available, or was read before and not examined. Does not wait.
    pub(super) fn has_input(&self) -> io::Result<bool> {
        if self.examined < self.unused().len() {
            return Ok(true);
        }
        match net::recv(&self.stream, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for input. Returns false if no input arrives by `until`.
    pub(super) fn wait_for_input(&self, until: Instant) -> io::Result<bool> {
        if self.has_input()? {
            return Ok(true);
        }
        match wait_readable(&self.stream, until) {
            Err(error) if is_timed_out(&error) => Ok(false),
            waited => waited.map(|()| true),
        }
    }

    /// Reads once and waits if necessary. Returns 0 if the server has ended its side.
    pub(super) fn fill(&mut self, until: Instant) -> io::Result<usize> {
        if self.at > 0 {
            self.input.drain(..self.at);
            self.at = 0;
        }
        let held = self.input.len();
        self.input.resize(held + READ_BYTES, 0);
        let read = loop {
            match self.stream.read(&mut self.input[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = wait_readable(&self.stream, until) {
                        break Err(error);
                    }
                }
                read => break read,
            }
        };
        self.input.truncate(held + *read.as_ref().unwrap_or(&0));
        self.has_received_nothing &= self.input.len() == held;
        read
    }

    pub(super) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let rest = self.unused().to_vec();
        (self.stream, rest)
    }
}

/// Suspends the fiber if the caller runs on one. Otherwise blocks the thread.
#[cfg(feature = "fibers")]
pub(super) fn wait_readable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    weftwork_fiber::wait_readable(socket.as_fd(), Some(until))
}

#[cfg(feature = "fibers")]
pub(super) fn wait_writable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    weftwork_fiber::wait_writable(socket.as_fd(), Some(until))
}

#[cfg(not(feature = "fibers"))]
pub(super) fn wait_readable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    wait(socket, rustix::event::PollFlags::IN, until)
}

#[cfg(not(feature = "fibers"))]
pub(super) fn wait_writable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    wait(socket, rustix::event::PollFlags::OUT, until)
}

#[cfg(not(feature = "fibers"))]
fn wait(socket: &impl AsFd, event: rustix::event::PollFlags, until: Instant) -> io::Result<()> {
    use rustix::event::{PollFd, Timespec, poll};
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), event)], timeout.as_ref()) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
