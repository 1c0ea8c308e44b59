//! One connection to the upstream server, and waits for it.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use http::Method;
use rustix::net::{self, AddressFamily, sockopt};
use weftwork_wire::{BodyEvent, Limits, Received, ResponseFault, ResponseReader};

use super::either::Part;
use super::from_now;
use super::stream::UpstreamStream;
use crate::transport::stream::is_timed_out;
use crate::transport::system;

const READ_BYTES: usize = 16 << 10;

/// Connects without blocking the thread if a fiber can wait.
pub(super) fn connect(address: SocketAddr, until: Instant) -> io::Result<TcpStream> {
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

/// One connection of HTTP/1.1 in use.
pub(in crate::app::proxy) struct Http1Conn {
    stream: UpstreamStream,
    pub(super) address: SocketAddr,
    /// Whether the server may have authenticated the client of this connection. Only this client may use it.
    pub(super) is_authenticated: bool,
    /// Received bytes, unused from `at` on.
    pub(super) input: Vec<u8>,
    pub(super) at: usize,
    /// Number of unused bytes that were examined and are incomplete.
    examined: usize,
    pub(super) reader: ResponseReader,
    /// Whether no byte has arrived since the connection was acquired.
    pub(in crate::app::proxy) has_received_nothing: bool,
    /// Bytes to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Number of bytes that the server has accepted.
    pub(in crate::app::proxy) bytes_sent: u64,
}

impl Http1Conn {
    pub(super) fn new(stream: UpstreamStream, address: SocketAddr) -> Http1Conn {
        let (input, output) = (Vec::new(), Vec::new());
        let reader = ResponseReader::new();
        Http1Conn {
            stream,
            address,
            is_authenticated: false,
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
    fn unused(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// Queues bytes to send.
    pub(in crate::app::proxy) fn queue(&mut self, bytes: &[u8]) {
        if self.is_sent() {
            self.output.clear();
            self.sent = 0;
        }
        self.output.extend_from_slice(bytes);
    }

    /// Queues a part of the request body. In chunks, an empty part is the end.
    pub(super) fn put(&mut self, part: &[u8], in_chunks: bool) {
        if !in_chunks {
            return self.queue(part);
        }
        let mut chunk = Vec::with_capacity(part.len() + 16);
        // Cannot fail: writing to a vector does not fail.
        let _ = write!(chunk, "{:x}\r\n", part.len());
        chunk.extend_from_slice(part);
        chunk.extend_from_slice(b"\r\n");
        self.queue(&chunk);
    }

    /// Returns the next head, if all of it has arrived.
    pub(super) fn read_head(
        &mut self,
        method: &Method,
        limits: &Limits,
    ) -> Result<Option<Received>, ResponseFault> {
        let given = &self.input[self.at..];
        self.examined = 0;
        let Some((used, received)) = self.reader.read_head(given, method, limits)? else {
            self.examined = given.len();
            return Ok(None);
        };
        self.at += used;
        Ok(Some(received))
    }

    /// Returns the next part of the body behind the head.
    pub(super) fn next_part(&mut self, limits: &Limits) -> Result<Part<'_>, ResponseFault> {
        let at = self.at;
        let (used, event) = self.reader.read_body(&self.input[at..], limits)?;
        self.at += used;
        Ok(match event {
            BodyEvent::Data { start, len } => Part::Data(&self.input[at + start..][..len]),
            BodyEvent::End => Part::End,
            BodyEvent::NeedMore => {
                self.examined = self.unused().len();
                Part::NeedMore
            }
        })
    }

    pub(in crate::app::proxy) fn is_sent(&self) -> bool {
        self.sent == self.output.len() && !self.stream.has_unsent()
    }

    /// Sends the queued bytes. Returns false if the server stopped reading and has sent something. The server
    /// may read nothing for `timeout`, and must have read everything by `end`.
    pub(in crate::app::proxy) fn send_output(&mut self, timeout: Duration, end: Instant) -> io::Result<bool> {
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
    pub(in crate::app::proxy) fn has_input(&self) -> io::Result<bool> {
        if self.examined < self.unused().len() {
            return Ok(true);
        }
        self.stream.has_input()
    }

    /// Waits for input. Returns false if no input arrives by `until`.
    pub(in crate::app::proxy) fn wait_for_input(&self, until: Instant) -> io::Result<bool> {
        while !self.has_input()? {
            match wait_readable(&self.stream, until) {
                Err(error) if is_timed_out(&error) => return Ok(false),
                waited => waited?,
            }
        }
        Ok(true)
    }

    /// Reads once and waits if necessary. Returns 0 if the server has ended its side.
    pub(in crate::app::proxy) fn fill(&mut self, until: Instant) -> io::Result<usize> {
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

    pub(in crate::app::proxy) fn into_parts(self) -> (UpstreamStream, Vec<u8>) {
        let rest = self.unused().to_vec();
        (self.stream, rest)
    }
}

/// Suspends the fiber if the caller runs on one. Otherwise blocks the thread.
#[cfg(feature = "fibers")]
pub(in crate::app::proxy) fn wait_readable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    weftwork_fiber::wait_readable(socket.as_fd(), Some(until))
}

#[cfg(feature = "fibers")]
pub(in crate::app::proxy) fn wait_writable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    weftwork_fiber::wait_writable(socket.as_fd(), Some(until))
}

#[cfg(not(feature = "fibers"))]
pub(in crate::app::proxy) fn wait_readable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
    wait(socket, rustix::event::PollFlags::IN, until)
}

#[cfg(not(feature = "fibers"))]
pub(in crate::app::proxy) fn wait_writable(socket: &impl AsFd, until: Instant) -> io::Result<()> {
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
