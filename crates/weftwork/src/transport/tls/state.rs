//! State of a TLS connection: its session, bytes of incomplete records, and records that the kernel has not taken.

use std::io;

use rustix::net::RecvFlags;
use rustls::HandshakeKind;

use super::acceptor::Current;
use super::failure::HandshakeError;
use super::records;
use super::scratch::{Scratch, with_scratch};
use super::session::{Fed, PLAIN_BYTES_MAX, Session};
use crate::transport::stream::{Socket, is_would_block};

/// Plaintext that is encrypted at a time. What the kernel does not take is kept, so this bounds it too.
pub(super) const SEALED_BYTES_MAX: usize = 64 << 10;
/// Bytes of a handshake that may wait for the rest of a message. The messages of usual clients have up to 2 KiB, and
/// chains of certificates some 10.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once during a handshake.
const HANDSHAKE_READ_BYTES: usize = 2 << 10;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) step: TlsStep,
    pub(super) session: Option<Box<Session>>,
    pub(super) server_name: Option<Box<str>>,
    /// Start of a record or a message that has not arrived completely.
    pub(super) partial: Vec<u8>,
    /// Plaintext that did not fit into the reader's buffer.
    pub(super) pending: Vec<u8>,
    pub(super) unsent: Option<Box<Unsent>>,
    /// Bytes of `partial` that were reported as progress.
    pub(super) credited: usize,
    /// Bytes of complete records that were reported as progress, and that the next read returns again.
    pub(super) repeated: usize,
    /// Whether the last read has emptied the socket.
    pub(super) emptied: bool,
    /// Whether the peer has said that it sends nothing more.
    pub(super) peer_closed: bool,
    /// Whether our side has said that it sends nothing more.
    pub(super) closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TlsStep {
    /// A PROXY header comes first, or the connection is refused.
    #[default]
    Clear,
    /// The client does not speak TLS.
    NotTls,
    Handshake,
    Open,
    Failed,
}

/// Records that the kernel has not taken.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pub(super) bytes: Vec<u8>,
    pub(super) sent: usize,
    /// Ends of the records in `bytes`, each with the plaintext of its record.
    pub(super) records: Vec<(usize, usize)>,
    /// Records that were reported as sent.
    pub(super) reported: usize,
}

impl Unsent {
    /// Returns the plaintext of the records that were sent whole since the last call.
    fn take_reported(&mut self) -> usize {
        let more = self.records[self.reported..].iter().take_while(|(end, _)| *end <= self.sent);
        let (count, plain) = more.fold((0, 0), |(count, sum), (_, plain)| (count + 1, sum + plain));
        self.reported += count;
        plain
    }

    /// Returns whether a record is on its way whose plaintext was not reported.
    fn owes_report(&self) -> bool {
        self.records[self.reported..].iter().any(|(_, plain)| *plain > 0)
    }
}

impl State {
    pub(super) fn advance(&mut self, current: &Current) -> Result<Option<HandshakeKind>, HandshakeError> {
        if self.session.is_none() {
            if !records::is_tls(&self.partial) {
                return Err(HandshakeError::NotTls);
            }
            self.server_name = records::server_name(&self.partial);
            let session = Session::new(current.config.clone()).map_err(HandshakeError::Tls)?;
            self.session = Some(Box::new(session));
        }
        let mut incoming = std::mem::take(&mut self.partial);
        self.credited = 0;
        let (error, kind) = {
            let State { session, pending, unsent, peer_closed, .. } = self;
            let Some(session) = session.as_deref_mut() else { return Ok(None) };
            let unsent = unsent.get_or_insert_default();
            let fed = session.feed(&mut incoming, pending, &mut unsent.bytes);
            unsent.records.push((unsent.bytes.len(), 0));
            *peer_closed |= fed.peer_closed;
            incoming.drain(..fed.used);
            (fed.error, (!session.is_handshaking()).then(|| session.kind()))
        };
        if let Some(error) = error {
            return Err(HandshakeError::Tls(error));
        }
        if kind.is_none() && incoming.len() >= HANDSHAKE_BYTES_MAX {
            return Err(HandshakeError::TooLong);
        }
        // The buffer of the ClientHello is not kept.
        self.partial = if incoming.is_empty() { Vec::new() } else { incoming };
        if kind.is_some() {
            self.step = TlsStep::Open;
        }
        Ok(kind)
    }

    pub(super) fn recv(
        &mut self,
        socket: &Socket,
        into: &mut Vec<u8>,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        if self.step != TlsStep::Open {
            return self.recv_without_session(socket, into, flags);
        }
        if !self.pending.is_empty() {
            self.emptied = false;
            let count = self.pending.len();
            into.append(&mut self.pending);
            self.pending = Vec::new();
            return Ok(count);
        }
        let start = into.len();
        with_scratch(|scratch| {
            loop {
                if self.peer_closed {
                    self.emptied = false;
                    return Ok(0);
                }
                let kept = self.partial.len();
                let input = scratch.input_after(&self.partial);
                let space = input.len() - kept;
                let count = socket.recv_slice(&mut input[kept..], flags)?;
                if count == 0 {
                    self.emptied = false;
                    return Ok(0);
                }
                let fed = self.feed(&mut scratch.input[..kept + count], into, &mut scratch.control);
                if let Some(error) = fed.error {
                    self.fail(socket, scratch);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                if !scratch.control.is_empty() {
                    self.send_control(socket, &mut scratch.control);
                }
                // After its end, the peer's silence is known without another read of the socket.
                self.peer_closed |= fed.peer_closed;
                self.emptied = count < space && !self.peer_closed;
                let gained = into.len() - start;
                if gained > 0 {
                    return Ok(gained);
                }
                if self.emptied {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        })
    }

    /// Reads bytes in clear, or bytes for the handshake.
    #[cold]
    fn recv_without_session(
        &mut self,
        socket: &Socket,
        into: &mut Vec<u8>,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        match self.step {
            TlsStep::Clear | TlsStep::NotTls => {
                if into.len() == into.capacity() {
                    into.reserve(HANDSHAKE_READ_BYTES);
                }
                let space = into.capacity() - into.len();
                let count = socket.recv(into, flags)?;
                self.emptied = count < space;
                Ok(count)
            }
            // The bytes are for the handshake.
            TlsStep::Open | TlsStep::Handshake | TlsStep::Failed => {
                if self.step == TlsStep::Failed {
                    self.partial.clear();
                }
                self.partial.reserve(HANDSHAKE_READ_BYTES);
                let space = self.partial.capacity() - self.partial.len();
                let count = socket.recv(&mut self.partial, flags)?;
                self.emptied = count < space;
                Ok(count)
            }
        }
    }

    /// Feeds the session, and keeps what is left of a record.
    fn feed(&mut self, input: &mut [u8], into: &mut Vec<u8>, out: &mut Vec<u8>) -> Fed {
        let Some(session) = self.session.as_deref_mut() else { return Fed::default() };
        let fed = session.feed(input, into, out);
        let rest = &input[fed.used..];
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
        if fed.used > 0 {
            self.repeated += std::mem::take(&mut self.credited);
        }
        fed
    }

    /// Tells the peer why, if the kernel takes it.
    #[cold]
    fn fail(&mut self, socket: &Socket, scratch: &mut Scratch) {
        self.step = TlsStep::Failed;
        self.send_control(socket, &mut scratch.control);
    }

    /// Sends records about the session, behind those that wait.
    #[cold]
    fn send_control(&mut self, socket: &Socket, control: &mut Vec<u8>) {
        let unsent = self.unsent.get_or_insert_default();
        unsent.bytes.append(control);
        unsent.records.push((unsent.bytes.len(), 0));
        let _ = self.flush(socket, false);
    }

    pub(super) fn send(
        &mut self,
        socket: &Socket,
        first: &[u8],
        second: &[u8],
        more: bool,
    ) -> io::Result<usize> {
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.unsent.is_some() {
            let reported = self.send_unsent(socket, more)?;
            if reported > 0 {
                return Ok(reported);
            }
        }
        match self.step {
            TlsStep::Open => with_scratch(|scratch| self.send_with(socket, first, second, more, scratch)),
            TlsStep::Clear | TlsStep::NotTls => {
                socket.send(if first.is_empty() { second } else { first }, more)
            }
            TlsStep::Handshake | TlsStep::Failed => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends records that were made before. Returns their plaintext, or `WouldBlock` if the kernel takes no whole record.
    pub(super) fn send_unsent(&mut self, socket: &Socket, more: bool) -> io::Result<usize> {
        loop {
            let Some(unsent) = self.unsent.as_deref_mut() else { return Ok(0) };
            if unsent.sent < unsent.bytes.len() {
                unsent.sent += socket.send(&unsent.bytes[unsent.sent..], more)?;
            }
            let reported = unsent.take_reported();
            if unsent.sent == unsent.bytes.len() {
                self.unsent = None;
                return Ok(reported);
            }
            if reported > 0 {
                return Ok(reported);
            }
        }
    }

    /// Returns whether the next bytes must be those whose records were made before.
    pub(super) fn owes_report(&self) -> bool {
        self.unsent.as_deref().is_some_and(Unsent::owes_report)
    }

    /// Returns whether the kernel has taken all records.
    pub(super) fn is_flushed(&self) -> bool {
        self.unsent.as_deref().is_none_or(|unsent| unsent.sent == unsent.bytes.len())
    }

    /// Sends records without plaintext, as of a handshake. 0 means that nothing is left.
    pub(super) fn flush(&mut self, socket: &Socket, more: bool) -> io::Result<usize> {
        let Some(unsent) = self.unsent.as_deref_mut() else { return Ok(0) };
        let count = match unsent.sent < unsent.bytes.len() {
            true => socket.send(&unsent.bytes[unsent.sent..], more)?,
            false => 0,
        };
        unsent.sent += count;
        // Records with plaintext stay until their plaintext is reported.
        if unsent.sent == unsent.bytes.len() && !unsent.owes_report() {
            self.unsent = None;
        }
        Ok(count)
    }

    pub(super) fn send_with(
        &mut self,
        socket: &Socket,
        first: &[u8],
        second: &[u8],
        more: bool,
        scratch: &mut Scratch,
    ) -> io::Result<usize> {
        let mut records = Records::default();
        let Some(session) = self.session.as_deref_mut() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let (mut first, mut second) = (first, second);
        while !(records.is_full() || first.is_empty() && second.is_empty()) {
            let (of_first, of_second) = next_part(first.len(), second.len());
            let part = match (of_first, of_second) {
                (0, _) => &second[..of_second],
                (_, 0) => &first[..of_first],
                // Only a record with bytes of both is copied.
                _ => {
                    scratch.joined.clear();
                    scratch.joined.extend_from_slice(first);
                    scratch.joined.extend_from_slice(&second[..of_second]);
                    &scratch.joined[..]
                }
            };
            (first, second) = (&first[of_first..], &second[of_second..]);
            session
                .seal(part, &mut self.partial, &mut scratch.sealed)
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            records.push(scratch.sealed.bytes().len(), part.len());
        }
        let sealed = scratch.sealed.bytes();
        let sent = match socket.send(sealed, more) {
            Err(error) if is_would_block(&error) => 0,
            sent => sent?,
        };
        if sent == sealed.len() {
            return Ok(records.plain);
        }
        let unsent = records.after(sent, sealed);
        let reported = records.plain - unsent.records.iter().map(|(_, plain)| plain).sum::<usize>();
        self.unsent = Some(Box::new(unsent));
        if reported > 0 { Ok(reported) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

/// Records of one call.
#[derive(Default)]
struct Records {
    ends: [(usize, usize); 8],
    count: usize,
    plain: usize,
}

impl Records {
    fn push(&mut self, end: usize, plain: usize) {
        self.ends[self.count] = (end, plain);
        self.count += 1;
        self.plain += plain;
    }

    /// Returns what is left of the records if only `sent` bytes of them were sent.
    fn after(&self, sent: usize, sealed: &[u8]) -> Unsent {
        let left = self.ends[..self.count].iter().filter(|(end, _)| *end > sent);
        let records = left.map(|(end, plain)| (end - sent, *plain)).collect();
        Unsent { bytes: sealed[sent..].to_vec(), sent: 0, records, reported: 0 }
    }

    fn is_full(&self) -> bool {
        self.plain >= SEALED_BYTES_MAX || self.count == self.ends.len()
    }
}

/// Returns how many bytes of both parts are in the next record.
fn next_part(first: usize, second: usize) -> (usize, usize) {
    let of_first = first.min(PLAIN_BYTES_MAX);
    (of_first, second.min(PLAIN_BYTES_MAX - of_first))
}
