//! A socket with a TLS session: receives and sends plaintext.
//!
//! The lock inside is free, except if two threads use the halves of an upgraded connection. No thread waits for the
//! socket while it holds the lock.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::net::RecvFlags;
use rustls::HandshakeKind;

use super::acceptor::TlsAcceptor;
use super::failure::HandshakeError;
use super::info::TlsInfo;
use super::names::NameTable;
use super::records;
use super::scratch::with_scratch;
use super::state::{HANDSHAKE_BYTES_MAX, SEALED_BYTES_MAX, State, TlsStep};
use crate::transport::stream::{Socket, is_would_block};

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
    established: OnceLock<Arc<Established>>,
    acceptor: Arc<TlsAcceptor>,
}

/// What stays of the handshake.
#[derive(Debug)]
pub(crate) struct Established {
    info: TlsInfo,
    names: Arc<NameTable>,
}

impl Established {
    /// Returns the facts of the session.
    pub(crate) fn info(&self) -> &TlsInfo {
        &self.info
    }

    /// Returns whether a request for `authority` belongs to another connection (421).
    pub(crate) fn is_misdirected(&self, authority: &str) -> bool {
        self.names.is_misdirected(self.info.server_name(), authority)
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
        self.established.get().map(|established| established.info())
    }

    /// Returns what stays of the handshake, for the requests of the connection.
    pub(crate) fn established(&self) -> Option<&Arc<Established>> {
        self.established.get()
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
                    let _ = self.established.set(Arc::new(Established { info, names }));
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

    /// Returns how many of `count` bytes of a read were not reported as progress before.
    pub(in crate::transport) fn take_unreported(&self, count: usize) -> usize {
        let mut state = self.state();
        let repeated = state.repeated.min(count);
        state.repeated -= repeated;
        count - repeated
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
            // The bytes are encrypted already, unless the records are about the session.
            let reported = state.send_unsent(&self.socket, false)?;
            if reported > 0 {
                return Ok(reported);
            }
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

    pub(in crate::transport) fn has_unsent(&self) -> bool {
        self.state().unsent.is_some()
    }

    /// Returns whether the next bytes must be those whose records were made before.
    pub(in crate::transport) fn owes_report(&self) -> bool {
        self.state().owes_report()
    }

    /// Ends our side without a word to the peer, if a record cannot be completed. The peer sees a truncated stream.
    pub(in crate::transport) fn abandon_unsent(&self) {
        let mut state = self.state();
        state.closed |= state.owes_report();
    }

    /// Returns the capacity of all buffers of this connection.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        let state = self.state();
        let unsent = state.unsent.as_deref().map_or(0, |unsent| unsent.bytes.capacity());
        state.partial.capacity() + state.pending.capacity() + unsent
    }

    /// Tells the peer that nothing more follows. Returns false if the kernel has no space for that yet.
    pub(in crate::transport) fn close(&self) -> bool {
        let mut state = self.state();
        if state.step != TlsStep::Open {
            return true;
        }
        if !std::mem::replace(&mut state.closed, true) {
            let State { session, partial, unsent, .. } = &mut *state;
            if let Some(session) = session.as_deref_mut() {
                let unsent = unsent.get_or_insert_default();
                session.close(partial, &mut unsent.bytes);
                unsent.records.push((unsent.bytes.len(), 0));
            }
        }
        // The end of the socket follows at once, and takes it along.
        match state.flush(&self.socket, true) {
            Err(error) => !is_would_block(&error),
            // Records whose plaintext was not reported, after a write that took too long, stay although they were sent.
            Ok(_) => state.is_flushed(),
        }
    }

    /// Returns whether the peer has said that it sends nothing more.
    pub(in crate::transport) fn has_peer_closed(&self) -> bool {
        self.state().peer_closed
    }

    /// Returns whether no response can be sent, because the handshake has not ended.
    pub(crate) fn has_no_session(&self) -> bool {
        !matches!(self.state().step, TlsStep::Open | TlsStep::NotTls)
    }

    /// Ends the session before it begins. Returns the alert that the client gets in place of a response.
    pub(crate) fn refuse(&self) -> &'static [u8] {
        self.state().step = TlsStep::Clear;
        REFUSAL
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

#[cfg(test)]
mod tests;
