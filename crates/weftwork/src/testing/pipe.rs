//! What is on its way between a test's client and a server, and what the client will send next?

use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::transport::stream::Duplex;

/// A client holds no more than this of what its test has not taken, so that a handler that never stops writing ends its test.
pub(super) const RECEIVED_BYTES_MAX: usize = 64 << 20;

/// Something that the client does when its turn comes: when the server waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientStep {
    Bytes(Vec<u8>),
    /// Says nothing for this long.
    Pause(Duration),
    /// Goes on when `100 Continue` has come; a final response drops what is behind it.
    Continue,
    /// Ends its side, and goes on reading.
    End,
    /// Is gone: the server's next read or write fails.
    Reset,
}

/// What became of the client's next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// There is something for the server to read.
    Done,
    Pause(Duration),
    /// Nothing more comes.
    Idle,
}

/// A connection without a socket.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Somebody may ask for a descriptor; this one means nothing.
    null: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    script: VecDeque<ClientStep>,
    to_server: VecDeque<u8>,
    from_server: Vec<u8>,
    /// How many bytes more the client takes.
    accept_bytes: usize,
    /// It leaves when it has taken them.
    resets_when_full: bool,
    /// Nobody has said how many; what the test takes makes room for more.
    is_unlimited: bool,
    client_ended: bool,
    server_ended: bool,
    reset: bool,
}

impl Pipe {
    pub(super) fn new() -> std::io::Result<Pipe> {
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
        Ok(Pipe { null: File::open("/dev/null")?, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what the client will do.
    pub(super) fn push_step(&self, step: ClientStep) {
        self.state().script.push_back(step);
    }

    /// The client does what is next on its list, unless the server still has something to read.
    pub(super) fn run_step(&self) -> StepResult {
        let state = &mut *self.state();
        if !state.to_server.is_empty() {
            return StepResult::Done;
        }
        match state.script.front() {
            None => return StepResult::Idle,
            Some(ClientStep::Continue) if !said_continue(&state.from_server) => return StepResult::Idle,
            // Whoever reads while it sends sees that there is no use in going on.
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

    /// The client's pause is not over: this much of it is left.
    pub(super) fn resume_pause(&self, time: Duration) {
        self.state().script.push_front(ClientStep::Pause(time));
    }

    /// Takes away what the client was going to do.
    pub(super) fn take_script(&self) -> VecDeque<ClientStep> {
        std::mem::take(&mut self.state().script)
    }

    pub(super) fn put_script(&self, script: VecDeque<ClientStep>) {
        self.state().script = script;
    }

    /// The client has nothing more to say.
    pub(super) fn end(&self) {
        self.state().client_ended = true;
    }

    pub(super) fn client_has_ended(&self) -> bool {
        let state = self.state();
        state.client_ended && state.to_server.is_empty()
    }

    /// The server has dropped its end.
    pub(super) fn close(&self) {
        self.state().server_ended = true;
    }

    pub(super) fn server_has_ended(&self) -> bool {
        self.state().server_ended
    }

    /// The client takes all, up to [`RECEIVED_BYTES_MAX`].
    pub(super) fn take_all(&self) {
        let state = &mut *self.state();
        let accept_bytes = RECEIVED_BYTES_MAX.saturating_sub(state.from_server.len());
        (state.accept_bytes, state.resets_when_full, state.is_unlimited) = (accept_bytes, true, true);
    }

    /// From now on the client takes this many bytes more, then it leaves or waits.
    pub(super) fn take_at_most(&self, bytes: usize, resets_when_full: bool) {
        let state = &mut *self.state();
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

    /// It has left with so much in its hands.
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
        // In two pieces at most: byte by byte, this costs more than all that is tested.
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

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
}
