//! A socket with a TLS session: receives and sends plaintext.
//!
//! The lock inside is free, except if two threads use the halves of an upgraded connection. No thread waits for the
//! socket while it holds the lock.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::net::RecvFlags;
use rustls::HandshakeKind;

use super::acceptor::{Current, TlsAcceptor};
use super::failure::HandshakeError;
use super::info::TlsInfo;
use super::names::NameTable;
use super::records;
use super::scratch::{Scratch, with_scratch};
use super::session::{Fed, PLAIN_BYTES_MAX, Session};
use crate::transport::stream::{Socket, is_would_block};

/// Plaintext that is encrypted at a time. What the kernel does not take is kept, so this bounds it too.
const SEALED_BYTES_MAX: usize = 64 << 10;
/// Bytes of a handshake that may wait for the rest of a message. The messages of usual clients have up to 2 KiB, and
/// chains of certificates some 10.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once during a handshake.
const HANDSHAKE_READ_BYTES: usize = 2 << 10;
/// Alert for a client that is refused before its handshake: `internal_error` (RFC 8446 section 6.2).
const REFUSAL: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// State of a handshake, for the connection.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// Bytes of the client are missing.
    Read,
    /// Bytes for the client have not been accepted by the kernel.
    Write,
    /// A message of the client is complete: [`TlsStream::advance`].
    Advance {
        /// The answer takes a slow signature.
        signs_slowly: bool,
    },
    Done,
}

pub(crate) struct TlsStream {
    pub(in crate::transport) socket: Socket,
    state: Mutex<State>,
    established: OnceLock<Established>,
    acceptor: Arc<TlsAcceptor>,
}

/// What stays of the handshake.
#[derive(Debug)]
struct Established {
    info: TlsInfo,
    names: Arc<NameTable>,
}

#[derive(Debug, Default)]
struct State {
    step: TlsStep,
    session: Option<Box<Session>>,
    server_name: Option<Box<str>>,
    /// Start of a record or a message that has not arrived completely.
    partial: Vec<u8>,
    /// Plaintext that did not fit into the reader's buffer.
    pending: Vec<u8>,
    unsent: Option<Box<Unsent>>,
    /// Bytes of `partial` that were reported as progress.
    credited: usize,
    /// Whether the last read has emptied the socket.
    emptied: bool,
    /// Whether the peer has said that it sends nothing more.
    peer_closed: bool,
    /// Whether our side has said that it sends nothing more.
    closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TlsStep {
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
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    /// Ends of the records in `bytes`, each with the plaintext of its record.
    records: Vec<(usize, usize)>,
    /// Records that were reported as sent.
    reported: usize,
}

impl Unsent {
    /// Returns the plaintext of the records that were sent whole since the last call.
    fn take_reported(&mut self) -> usize {
        let more = self.records[self.reported..].iter().take_while(|(end, _)| *end <= self.sent);
        let (count, plain) = more.fold((0, 0), |(count, sum), (_, plain)| (count + 1, sum + plain));
        self.reported += count;
        plain
    }
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Until [`begin`](TlsStream::begin), bytes are passed on as they are.
    pub(in crate::transport) fn new(socket: Socket, acceptor: Arc<TlsAcceptor>) -> TlsStream {
        TlsStream { socket, state: Mutex::default(), established: OnceLock::new(), acceptor }
    }

    /// Begins the handshake. `early` has arrived already.
    pub(crate) fn begin(&self, early: &[u8]) {
        let mut state = self.state();
        state.step = TlsStep::Handshake;
        state.partial.extend_from_slice(early);
    }

    /// Returns whether a read needs bytes of the socket.
    pub(in crate::transport) fn must_read(&self) -> bool {
        let state = self.state();
        state.pending.is_empty() && !state.peer_closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the facts of an established session.
    pub(crate) fn info(&self) -> Option<&TlsInfo> {
        self.established.get().map(|established| &established.info)
    }

    /// Returns whether a request for `authority` belongs to another connection (421).
    pub(crate) fn is_misdirected(&self, authority: &str) -> bool {
        self.established
            .get()
            .is_some_and(|Established { info, names }| names.is_misdirected(info.server_name(), authority))
    }

    /// Returns the name that the client has asked for.
    pub(crate) fn server_name(&self) -> Option<Box<str>> {
        self.state().server_name.clone()
    }

    /// Returns what the handshake needs now.
    pub(crate) fn handshake(&self) -> Handshake {
        let state = self.state();
        if state.step != TlsStep::Handshake {
            return Handshake::Done;
        }
        let is_here = match &state.session {
            None => !records::is_tls(&state.partial) || records::has_hello(&state.partial),
            Some(_) => records::has_record(&state.partial),
        };
        if is_here || state.partial.len() >= HANDSHAKE_BYTES_MAX {
            let signs_slowly = state.session.is_none() && self.acceptor.current().signs_slowly;
            return Handshake::Advance { signs_slowly };
        }
        if state.unsent.is_some() { Handshake::Write } else { Handshake::Read }
    }

    /// Processes the messages of the client that have arrived. Returns the kind of the handshake at its end.
    pub(crate) fn advance(&self) -> Result<Option<HandshakeKind>, HandshakeError> {
        let mut state = self.state();
        if state.step != TlsStep::Handshake {
            return Ok(None);
        }
        let current = self.acceptor.current();
        let advanced = state.advance(&current);
        match &advanced {
            Ok(Some(_)) => {
                let name = state.server_name.take();
                if let Some(session) = &state.session {
                    let (info, names) = (session.info(name), current.names.clone());
                    let _ = self.established.set(Established { info, names });
                }
            }
            Ok(None) => {}
            Err(HandshakeError::NotTls) => state.step = TlsStep::NotTls,
            Err(_) => state.step = TlsStep::Failed,
        }
        // What the kernel does not take now follows when the socket is writable.
        let _ = state.flush(&self.socket, false);
        advanced
    }

    /// Reads into the spare capacity of `into`, which grows if more has arrived.
    pub(in crate::transport) fn recv(&self, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        self.state().recv(&self.socket, into, flags)
    }

    /// Reads at most as much as fits. A stream that ends without an alert is an error.
    pub(in crate::transport) fn recv_into(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        if state.pending.is_empty() {
            let mut plain = Vec::new();
            if state.recv(&self.socket, &mut plain, RecvFlags::DONTWAIT)? == 0 {
                return match state.peer_closed || state.step != TlsStep::Open {
                    true => Ok(0),
                    false => Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the client closed its side without an end of TLS (close_notify), so bytes may be missing",
                    )),
                };
            }
            state.pending = plain;
        }
        let count = state.pending.len().min(into.len());
        into[..count].copy_from_slice(&state.pending[..count]);
        state.pending.drain(..count);
        if state.pending.is_empty() {
            state.pending = Vec::new();
        }
        Ok(count)
    }

    /// Returns false if another read may find more.
    pub(in crate::transport) fn is_emptied(&self) -> bool {
        self.state().emptied
    }

    /// Returns how many bytes of a record have arrived since the last call, if the record is not complete.
    pub(in crate::transport) fn take_progress(&self) -> usize {
        let mut state = self.state();
        let more = state.partial.len().saturating_sub(state.credited);
        state.credited = state.partial.len();
        more
    }

    /// Sends from two consecutive parts. Returns how much of them is in records that the kernel has taken whole. The next
    /// call must begin with the bytes behind them, because records of those may be on their way.
    pub(in crate::transport) fn send(&self, first: &[u8], second: &[u8], more: bool) -> io::Result<usize> {
        self.state().send(&self.socket, first, second, more)
    }

    /// Sends a part of a file.
    pub(in crate::transport) fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut state = self.state();
        if state.unsent.is_some() {
            // The bytes are encrypted already.
            return state.send_unsent(&self.socket, false);
        }
        let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(SEALED_BYTES_MAX);
        with_scratch(|scratch| {
            let mut bytes = std::mem::take(&mut scratch.input);
            if bytes.len() < SEALED_BYTES_MAX {
                bytes.resize(SEALED_BYTES_MAX, 0);
            }
            let read = file.read_at(&mut bytes[..wanted], offset);
            let sent = read.and_then(|read| match read {
                0 => Ok(0),
                read => state.send_with(&self.socket, &bytes[..read], &[], false, scratch),
            });
            scratch.input = bytes;
            sent
        })
    }

    /// Sends what is left of records without plaintext. 0 means that nothing is left.
    pub(in crate::transport) fn flush(&self) -> io::Result<usize> {
        self.state().flush(&self.socket, false)
    }

    /// Tells the peer that nothing more follows, as far as the kernel takes it.
    pub(in crate::transport) fn close(&self) {
        let mut state = self.state();
        if state.step != TlsStep::Open || std::mem::replace(&mut state.closed, true) {
            return;
        }
        let State { session, partial, unsent, .. } = &mut *state;
        if let Some(session) = session.as_deref_mut() {
            let unsent = unsent.get_or_insert_default();
            session.close(partial, &mut unsent.bytes);
            unsent.records.push((unsent.bytes.len(), 0));
        }
        // The end of the socket follows at once, and takes it along.
        let _ = state.flush(&self.socket, true);
    }

    /// Returns whether the peer has said that it sends nothing more.
    pub(in crate::transport) fn has_peer_closed(&self) -> bool {
        self.state().peer_closed
    }

    /// Returns the alert that the client gets in place of a response, if the handshake has not ended.
    pub(crate) fn refuse(&self) -> Option<&'static [u8]> {
        let mut state = self.state();
        if matches!(state.step, TlsStep::Open | TlsStep::NotTls) {
            return None;
        }
        state.step = TlsStep::Clear;
        Some(REFUSAL)
    }

    /// Returns whether the client has sent a part of a handshake.
    pub(crate) fn has_begun(&self) -> bool {
        let state = self.state();
        state.session.is_some() || !state.partial.is_empty()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // A reset follows otherwise.
        if !self.socket.resets() {
            self.close();
        }
    }
}

impl State {
    fn advance(&mut self, current: &Current) -> Result<Option<HandshakeKind>, HandshakeError> {
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

    fn recv(&mut self, socket: &Socket, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<usize> {
        match self.step {
            TlsStep::Open => {}
            TlsStep::Clear | TlsStep::NotTls => {
                if into.len() == into.capacity() {
                    into.reserve(HANDSHAKE_READ_BYTES);
                }
                let space = into.capacity() - into.len();
                let count = socket.recv(into, flags)?;
                self.emptied = count < space;
                return Ok(count);
            }
            // The bytes are for the handshake.
            TlsStep::Handshake | TlsStep::Failed => {
                if self.step == TlsStep::Failed {
                    self.partial.clear();
                }
                self.partial.reserve(HANDSHAKE_READ_BYTES);
                let space = self.partial.capacity() - self.partial.len();
                let count = socket.recv(&mut self.partial, flags)?;
                self.emptied = count < space;
                return Ok(count);
            }
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
                let fed = self.feed(&mut scratch.input[..kept + count], into, &mut scratch.output);
                if let Some(error) = fed.error {
                    self.fail(socket, scratch);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                // After its end, the peer's silence is known without another read of the socket.
                self.peer_closed |= fed.peer_closed;
                self.emptied = count < space && !self.peer_closed;
                let gained = into.len() - start;
                if gained > 0 {
                    // Bytes that were reported before the record was complete do not count again.
                    return Ok(gained);
                }
                if self.emptied {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        })
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
            self.credited = 0;
        }
        fed
    }

    /// Tells the peer why, if the kernel takes it.
    #[cold]
    fn fail(&mut self, socket: &Socket, scratch: &mut Scratch) {
        self.step = TlsStep::Failed;
        let unsent = self.unsent.get_or_insert_default();
        unsent.bytes.append(&mut scratch.output);
        unsent.records.push((unsent.bytes.len(), 0));
        let _ = self.flush(socket, false);
    }

    fn send(&mut self, socket: &Socket, first: &[u8], second: &[u8], more: bool) -> io::Result<usize> {
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
    fn send_unsent(&mut self, socket: &Socket, more: bool) -> io::Result<usize> {
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

    /// Sends records without plaintext, as of a handshake. 0 means that nothing is left.
    fn flush(&mut self, socket: &Socket, more: bool) -> io::Result<usize> {
        let Some(unsent) = self.unsent.as_deref_mut() else { return Ok(0) };
        let count = match unsent.sent < unsent.bytes.len() {
            true => socket.send(&unsent.bytes[unsent.sent..], more)?,
            false => 0,
        };
        unsent.sent += count;
        // Records with plaintext stay until their plaintext is reported.
        let is_reported = unsent.records[unsent.reported..].iter().all(|(_, plain)| *plain == 0);
        if unsent.sent == unsent.bytes.len() && is_reported {
            self.unsent = None;
        }
        Ok(count)
    }

    fn send_with(
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
        while !records.is_full() && !(first.is_empty() && second.is_empty()) {
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
                .seal(part, &mut self.partial, &mut scratch.output)
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            records.push(scratch.output.len(), part.len());
        }
        let sent = match socket.send(&scratch.output, more) {
            Err(error) if is_would_block(&error) => 0,
            sent => sent?,
        };
        if sent == scratch.output.len() {
            return Ok(records.plain);
        }
        let bytes = std::mem::take(&mut scratch.output);
        let ends = records.ends[..records.count].to_vec();
        let mut unsent = Unsent { bytes, sent, records: ends, reported: 0 };
        let reported = unsent.take_reported();
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

    fn is_full(&self) -> bool {
        self.plain >= SEALED_BYTES_MAX || self.count == self.ends.len()
    }
}

/// Returns how many bytes of both parts are in the next record.
fn next_part(first: usize, second: usize) -> (usize, usize) {
    let of_first = first.min(PLAIN_BYTES_MAX);
    (of_first, second.min(PLAIN_BYTES_MAX - of_first))
}

#[cfg(test)]
mod tests;
