//! A connection in memory between a test client and a server, with the client's next steps.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::secured::Secured;
use crate::transport::stream::Duplex;

/// Maximum number of unread bytes of a client. A handler that never stops writing thus ends its test.
pub(super) const RECEIVED_BYTES_MAX: usize = 64 << 20;

/// A step of the client, run when the server waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientStep {
    Bytes(Vec<u8>),
    /// Sends nothing for this long.
    Pause(Duration),
    /// Continues when `100 Continue` has arrived. A final response drops the remaining steps.
    Continue,
    /// Ends its side and keeps reading.
    End,
    /// Disconnects: the server's next read or write fails.
    Reset,
}

/// Result of the client's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// There is something for the server to read.
    Done,
    Pause(Duration),
    /// No more steps.
    Idle,
}

/// A connection without a socket.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Descriptor for callers that ask for one. It has no meaning.
    null: File,
    #[cfg_attr(not(feature = "_tls"), allow(dead_code, reason = "it is always None"))]
    secured: Secured,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    script: VecDeque<ClientStep>,
    to_server: VecDeque<u8>,
    from_server: Vec<u8>,
    /// Number of bytes that the client still accepts.
    accept_bytes: usize,
    /// Whether the client disconnects after these bytes.
    resets_when_full: bool,
    /// Whether the number is unlimited, so that bytes which the test takes make space for more.
    is_unlimited: bool,
    client_ended: bool,
    server_ended: bool,
    reset: bool,
}

impl Pipe {
    pub(super) fn new(secured: Secured) -> std::io::Result<Pipe> {
        let state = State {
            script: VecDeque::new(),
            to_server: VecDeque::new(),
            from_server: Vec::new(),
            accept_bytes: RECEIVED_BYTES_MAX,
            resets_when_full: true,
            is_unlimited: true,
            client_ended: false,
            server_ended: false,
            reset: false,
        };
        Ok(Pipe { null: File::open("/dev/null")?, secured, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step of the client.
    pub(super) fn push_step(&self, step: ClientStep) {
        self.state().script.push_back(step);
    }

    /// Runs the next step of the client, unless the server still has something to read.
    pub(super) fn run_step(&self) -> StepResult {
        let state = &mut *self.state();
        if !state.to_server.is_empty() {
            return StepResult::Done;
        }
        match state.script.front() {
            None => return StepResult::Idle,
            Some(ClientStep::Continue) if !said_continue(&state.from_server) => return StepResult::Idle,
            // A client that reads while it sends sees that the server has ended.
            Some(ClientStep::Pause(_)) if state.server_ended => return StepResult::Idle,
            Some(_) => {}
        }
        match state.script.pop_front() {
            Some(ClientStep::Bytes(bytes)) => state.to_server.extend(bytes),
            Some(ClientStep::Pause(time)) => return StepResult::Pause(time),
            Some(ClientStep::End) => state.client_ended = true,
            Some(ClientStep::Reset) => state.reset = true,
            Some(ClientStep::Continue) | None => {}
        }
        StepResult::Done
    }

    /// Puts back the rest of a pause.
    pub(super) fn resume_pause(&self, time: Duration) {
        self.state().script.push_front(ClientStep::Pause(time));
    }

    /// Takes the remaining steps.
    pub(super) fn take_script(&self) -> VecDeque<ClientStep> {
        std::mem::take(&mut self.state().script)
    }

    pub(super) fn put_script(&self, script: VecDeque<ClientStep>) {
        self.state().script = script;
    }

    /// Ends the client's side.
    pub(super) fn end(&self) {
        self.state().client_ended = true;
    }

    pub(super) fn client_has_ended(&self) -> bool {
        let state = self.state();
        state.client_ended && state.to_server.is_empty()
    }

    /// Ends the server's side.
    pub(super) fn close(&self) {
        self.state().server_ended = true;
    }

    pub(super) fn server_has_ended(&self) -> bool {
        self.state().server_ended
    }

    /// Accepts everything, up to [`RECEIVED_BYTES_MAX`].
    pub(super) fn take_all(&self) {
        let state = &mut *self.state();
        let accept_bytes = RECEIVED_BYTES_MAX.saturating_sub(state.from_server.len());
        (state.accept_bytes, state.resets_when_full, state.is_unlimited) = (accept_bytes, true, true);
    }

    /// Accepts this many more bytes. After that the client disconnects or waits.
    pub(super) fn take_at_most(&self, bytes: u64, resets_when_full: bool) {
        let state = &mut *self.state();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        (state.accept_bytes, state.resets_when_full, state.is_unlimited) = (bytes, resets_when_full, false);
    }

    pub(super) fn received<T>(&self, look: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let state = &mut *self.state();
        let before = state.from_server.len();
        let looked = look(&mut state.from_server);
        if state.is_unlimited {
            state.accept_bytes += before.saturating_sub(state.from_server.len());
        }
        looked
    }

    /// Returns whether the client disconnected because its buffer was full.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        state.reset && state.is_unlimited && state.accept_bytes == 0
    }
}

fn said_continue(bytes: &[u8]) -> bool {
    bytes.windows(13).any(|window| window == b"HTTP/1.1 100 ")
}

impl Duplex for Pipe {
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let state = &mut *self.state();
        if state.reset {
            return Err(Errno::CONNRESET);
        }
        let count = state.to_server.len().min(into.capacity() - into.len());
        if count == 0 && !state.client_ended {
            return Err(Errno::AGAIN);
        }
        // Copies two slices. A copy byte by byte costs more than everything that is tested.
        let (front, back) = state.to_server.as_slices();
        let of_front = count.min(front.len());
        into.extend_from_slice(&front[..of_front]);
        into.extend_from_slice(&back[..count - of_front]);
        state.to_server.drain(..count);
        Ok(count)
    }

    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize> {
        let state = &mut *self.state();
        if state.reset {
            return Err(Errno::PIPE);
        }
        if state.accept_bytes == 0 {
            state.reset = state.resets_when_full;
            return Err(if state.resets_when_full { Errno::PIPE } else { Errno::AGAIN });
        }
        let before = state.from_server.len();
        for part in [first, second] {
            let taken = part.len().min(state.accept_bytes);
            state.accept_bytes -= taken;
            state.from_server.extend_from_slice(&part[..taken]);
        }
        Ok(state.from_server.len() - before)
    }

    fn shutdown_write(&self) {
        self.close();
    }

    fn shutdown_both(&self) {
        let state = &mut *self.state();
        (state.server_ended, state.reset) = (true, true);
    }

    fn peer_has_gone(&self) -> bool {
        let state = self.state();
        state.client_ended || state.reset
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 80).into())
    }

    #[cfg(feature = "_tls")]
    fn tls_info(&self) -> Option<&crate::TlsInfo> {
        self.secured.as_deref()
    }

    fn fd(&self, _reads: bool, _writes: bool) -> io::Result<BorrowedFd<'_>> {
        Ok(self.null.as_fd())
    }
}
