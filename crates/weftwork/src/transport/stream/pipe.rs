//! Passes the bytes of one stream between an HTTP/2 connection and its request, which may be on different threads.
//!
//! ```text
//!  connection (on its loop) -- body of the request, at most the window --> request (on any thread)
//!             ^                <-- response, at most 64 KiB --------------      |
//!             +--- StreamHub: which streams have changed, and whom to wake -----+
//! ```
//!
//! Each lock is held for a copy at most. No thread waits for the other side while it holds one.

mod hub;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use rustix::io::Errno;

pub(crate) use self::hub::StreamHub;
use super::Duplex;
use crate::message::drop_caught::{drop_caught, drop_payload};
use crate::message::observer::UnsentResponse;
use crate::message::{BodyPart, WakeConn};
use crate::transport::wake_pipe::WakePipe;

/// Bytes of a response that may wait for the connection. It is as much as a request holds in its own buffer.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// A thread may wait for any of two directions: bytes to read (1) and space to write (2). In any case it waits for the end.
const SIGNALS: usize = 4;

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamPipe {
    id: u32,
    hub: Arc<StreamHub>,
    /// The handler has the request, or the connection refuses it: see [`StreamPipe::claim`].
    is_claimed: AtomicBool,
    flow: Mutex<Flow>,
    /// End a poll(2) of a thread that waits for the stream: see [`StreamPipe::fd`]. Each is created for its first wait. Few streams
    /// have any.
    signals: OnceLock<Box<[OnceLock<WakePipe>; SIGNALS]>>,
}

#[derive(Default)]
struct Flow {
    /// Bytes for the request. Those before `read` were read.
    to_request: Vec<u8>,
    read: usize,
    /// All bytes that the request has read.
    taken: u64,
    /// Bytes for the connection. Those before `sent` were sent.
    to_client: Vec<u8>,
    sent: usize,
    /// The rest of the response, which is not copied. Nothing follows it.
    tail: VecDeque<BodyPart>,
    /// The response, once it is complete and if it has observers. They are told without the lock.
    observed: Option<Box<UnsentResponse>>,
    /// Why the response breaks off that the request still makes.
    error: Option<&'static str>,
    /// The request could not write everything, and is told when there is space.
    is_blocked: bool,
    /// The client sends nothing more. Only another protocol learns that from here, because the framing of a body says where it
    /// ends.
    has_client_ended: bool,
    /// The request sends nothing more.
    is_shut: bool,
    /// The request has disconnected its client.
    is_cut: bool,
    /// The request is gone.
    is_closed: bool,
    /// The client, or its connection, waits for nothing more.
    is_reset: bool,
    /// The hub has a note that the connection has not taken.
    is_noted: bool,
    /// Which signals are given.
    is_given: [bool; SIGNALS],
    waiter: Option<(Arc<dyn WakeConn>, usize)>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("to_client", &self.to_client.len()).finish_non_exhaustive()
    }
}

impl Flow {
    /// Ends both directions. Returns what is left of the response.
    fn reset(&mut self) -> (VecDeque<BodyPart>, Option<Box<UnsentResponse>>) {
        let left = self.cut();
        self.to_client = Vec::new();
        self.sent = 0;
        left
    }

    /// Ends both directions behind the bytes that can be sent at once. Returns what is never sent.
    fn cut(&mut self) -> (VecDeque<BodyPart>, Option<Box<UnsentResponse>>) {
        self.is_reset = true;
        let mut observed = self.observed.take();
        if let Some(response) = &mut observed {
            let unsent = (self.to_client.len() - self.sent) as u64;
            response.note_unsent(self.tail.iter().map(BodyPart::count).sum::<u64>() + unsent);
        }
        (std::mem::take(&mut self.tail), observed)
    }

    /// Returns whether the request can go on in one of these directions.
    fn is_ready(&self, reads: bool, writes: bool) -> bool {
        let may_read = self.read < self.to_request.len() || self.has_client_ended;
        self.is_reset || reads && may_read || writes && !self.is_blocked
    }
}

/// Gives the signal or takes it back, as `flow` is.
fn update(signal: &WakePipe, index: usize, flow: &mut Flow) {
    let is_ready = flow.is_ready(index & 1 != 0, index & 2 != 0);
    if is_ready == std::mem::replace(&mut flow.is_given[index], is_ready) {
        return;
    }
    match is_ready {
        true => signal.wake(),
        false => signal.clear(),
    }
}

/// State of a stream, as its connection finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamState {
    /// All bytes that the request has read.
    pub(crate) taken: u64,
    /// The request is gone, and all its bytes were taken.
    pub(crate) is_closed: bool,
    /// The request is gone. Its bytes wait for the client.
    pub(crate) is_left: bool,
    /// The request sends nothing more, and all its bytes were taken.
    pub(crate) is_shut: bool,
    /// The request has disconnected its client.
    pub(crate) is_cut: bool,
    /// The response is complete, and its observers wait: see [`StreamPipe::take_observed`].
    pub(crate) is_observed: bool,
}

/// The connection's end.
impl StreamPipe {
    pub(crate) fn new(id: u32, hub: &Arc<StreamHub>) -> Arc<StreamPipe> {
        Arc::new(StreamPipe {
            id,
            hub: hub.clone(),
            is_claimed: AtomicBool::new(false),
            flow: Mutex::default(),
            signals: OnceLock::new(),
        })
    }

    /// Returns true to the first caller: the handler, which may then run, or the connection, which may then tell the client that
    /// the handler never will.
    pub(crate) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    /// Passes bytes to the request. The windows limit them. A request that waits is woken by
    /// [`wake_request`](StreamPipe::wake_request).
    pub(crate) fn give(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut flow = lock(&self.flow);
        if flow.read == flow.to_request.len() {
            flow.to_request.clear();
            flow.read = 0;
        }
        fill(&mut flow.to_request);
    }

    /// Wakes a request that waits for bytes, after some were given.
    pub(crate) fn wake_request(&self) {
        self.wake(lock(&self.flow));
    }

    /// Tells the other protocol that its client sends nothing more.
    pub(crate) fn end(&self) {
        let mut flow = lock(&self.flow);
        flow.has_client_ended = true;
        self.wake(flow);
    }

    /// Tells the request that its client has gone.
    pub(crate) fn reset(&self) {
        let mut flow = lock(&self.flow);
        let (tail, _observed) = flow.reset();
        self.wake(flow);
        self.drop_parts(tail);
    }

    /// Takes the response whose observers are to be told how it ends.
    #[cold]
    pub(crate) fn take_observed(&self) -> Option<UnsentResponse> {
        lock(&self.flow).observed.take().map(|response| *response)
    }

    /// Lets `take` look at the bytes for the client, and at what follows them. It returns how many of the bytes are done,
    /// and takes the parts that are done.
    pub(crate) fn take(&self, take: impl FnOnce(&[u8], &mut VecDeque<BodyPart>) -> usize) -> StreamState {
        let mut flow = lock(&self.flow);
        flow.is_noted = false;
        let Flow { to_client, sent, tail, .. } = &mut *flow;
        *sent += take(&to_client[*sent..], tail);
        let left = flow.to_client.len() - flow.sent + flow.tail.len();
        let state = StreamState {
            taken: flow.taken,
            is_closed: flow.is_closed && left == 0,
            is_left: flow.is_closed && left > 0,
            is_shut: (flow.is_closed || flow.is_shut) && left == 0,
            is_cut: flow.is_cut,
            is_observed: flow.observed.is_some(),
        };
        if flow.sent == flow.to_client.len() {
            // A writer that waits goes on at once. Any other may have nothing to say for hours.
            match flow.is_blocked {
                true => flow.to_client.clear(),
                false => flow.to_client = Vec::new(),
            }
            flow.sent = 0;
        }
        // Half of the space, so that a writer is not woken for each frame.
        if flow.is_blocked && left <= RESPONSE_BYTES_MAX / 2 {
            flow.is_blocked = false;
            self.wake(flow);
        }
        state
    }

    /// Drops parts of the response that were sent, or never will be. Each may have the last of its user's values, whose drop may
    /// panic.
    pub(crate) fn drop_parts(&self, parts: impl IntoIterator<Item = BodyPart>) {
        for part in parts {
            let Err(panic) = drop_caught(part) else { continue };
            if let Some(open) = &self.hub.open {
                open.note_panic(&*panic);
            }
            drop_payload(panic);
        }
    }

    /// Wakes the request, wherever it waits.
    fn wake(&self, mut flow: MutexGuard<'_, Flow>) {
        let waiter = flow.waiter.take();
        for (index, signal) in self.signals.get().into_iter().flat_map(|signals| signals.iter().enumerate()) {
            if let Some(signal) = signal.get() {
                update(signal, index, &mut flow);
            }
        }
        drop(flow);
        if let Some((wakes, key)) = waiter {
            wakes.wake(key);
        }
    }
}

/// The request's end. The other functions are those of [`Duplex`].
impl StreamPipe {
    /// Wakes the owner of the request at the next change. Returns false if the request can go on already, in a direction
    /// that it waits for.
    pub(crate) fn watch(&self, reads: bool, writes: bool, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut flow = lock(&self.flow);
        let nothing = !flow.is_ready(reads, writes);
        if nothing {
            flow.waiter = Some((wakes.clone(), key));
        }
        nothing
    }

    /// Leaves the rest of the response to the connection, without a copy.
    pub(crate) fn leave(&self, parts: impl ExactSizeIterator<Item = BodyPart>) {
        let mut flow = lock(&self.flow);
        match flow.is_reset {
            true => {
                drop(flow);
                self.drop_parts(parts);
            }
            false => {
                // Streams that wait for their clients hold no more than they need.
                flow.tail.reserve_exact(parts.len());
                flow.tail.extend(parts);
                self.note(flow);
            }
        }
    }

    /// Leaves it to the connection to tell the observers of a complete response how it ends. `unsent` bytes are not in the pipe
    /// yet. Called before [`close`](StreamPipe::close).
    #[cold]
    pub(crate) fn observe(&self, response: UnsentResponse, unsent: u64) {
        let mut response = Box::new(response);
        let mut flow = lock(&self.flow);
        if flow.is_reset {
            let why = flow.error;
            // The observers are told without the lock.
            drop(flow);
            why.into_iter().for_each(|why| response.note_error(why));
            return response.note_unsent(unsent);
        }
        flow.observed = Some(response);
    }

    /// Records why the response breaks off: the one that was passed on, or the one that the request still makes.
    #[cold]
    pub(crate) fn note_error(&self, why: &'static str) {
        let mut flow = lock(&self.flow);
        match &mut flow.observed {
            Some(response) => response.note_error(why),
            None => flow.error = Some(why),
        }
    }

    /// Returns why the response breaks off that the request still makes, if its connection knows.
    #[cold]
    pub(crate) fn error(&self) -> Option<&'static str> {
        lock(&self.flow).error
    }

    /// Tells the connection that the request is gone, with all of its response or without.
    pub(crate) fn close(&self) {
        let mut flow = lock(&self.flow);
        flow.is_closed = true;
        flow.waiter = None;
        self.note(flow);
    }

    fn note(&self, mut flow: MutexGuard<'_, Flow>) {
        let is_new = !std::mem::replace(&mut flow.is_noted, true);
        drop(flow);
        if is_new {
            self.hub.note(self.id);
        }
    }
}

impl Duplex for StreamPipe {
    /// 0 is returned to another protocol only: the framing of a body says where the body ends.
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let mut flow = lock(&self.flow);
        if flow.is_reset {
            return Err(Errno::CONNRESET);
        }
        let unread = &flow.to_request[flow.read..];
        let count = unread.len().min(into.capacity() - into.len());
        if count == 0 {
            let has_ended = unread.is_empty() && flow.has_client_ended;
            return if has_ended { Ok(0) } else { Err(Errno::AGAIN) };
        }
        into.extend_from_slice(&unread[..count]);
        flow.read += count;
        flow.taken += count as u64;
        if flow.read == flow.to_request.len() {
            // A request that waits holds no buffer.
            flow.to_request = Vec::new();
            flow.read = 0;
        }
        // The window may grow.
        self.note(flow);
        Ok(count)
    }

    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize> {
        let mut flow = lock(&self.flow);
        if flow.is_reset || flow.is_shut {
            return Err(Errno::PIPE);
        }
        let waiting = flow.to_client.len() - flow.sent;
        // A head is taken whole, because its connection needs all of it.
        let least = if waiting == 0 { first.len() } else { 0 };
        let space = RESPONSE_BYTES_MAX.saturating_sub(waiting).max(least);
        let count = space.min(first.len() + second.len());
        if count == 0 {
            flow.is_blocked = true;
            return Err(Errno::AGAIN);
        }
        if flow.sent > 0 {
            let sent = std::mem::take(&mut flow.sent);
            flow.to_client.drain(..sent);
        }
        let of_first = count.min(first.len());
        flow.to_client.extend_from_slice(&first[..of_first]);
        flow.to_client.extend_from_slice(&second[..count - of_first]);
        self.note(flow);
        Ok(count)
    }

    /// Ends another protocol. A response ends with its last segment.
    fn shutdown_write(&self) {
        let mut flow = lock(&self.flow);
        flow.is_shut = true;
        self.note(flow);
    }

    /// Resets the stream behind the bytes that can be sent at once.
    fn shutdown_both(&self) {
        let mut flow = lock(&self.flow);
        if flow.is_reset {
            return;
        }
        flow.is_cut = true;
        let (tail, _observed) = flow.cut();
        let is_new = !std::mem::replace(&mut flow.is_noted, true);
        self.wake(flow);
        self.drop_parts(tail);
        if is_new {
            self.hub.note(self.id);
        }
    }

    fn is_pollable(&self) -> bool {
        true
    }

    fn peer_has_gone(&self) -> bool {
        lock(&self.flow).is_reset
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.hub.local_addr
    }

    #[cfg(feature = "_tls")]
    fn tls_info(&self) -> Option<&crate::TlsInfo> {
        self.hub.memory.as_ref()?.tls_info()
    }

    /// A change after the last attempt counts, also before the first call.
    fn fd(&self, reads: bool, writes: bool) -> io::Result<BorrowedFd<'_>> {
        let index = usize::from(reads) + 2 * usize::from(writes);
        let signal = &self.signals.get_or_init(Box::default)[index];
        if signal.get().is_none() {
            // Another thread may have been first.
            let _ = signal.set(WakePipe::open()?);
        }
        let signal = signal.get().ok_or(io::ErrorKind::Other)?;
        update(signal, index, &mut lock(&self.flow));
        Ok(signal.as_fd())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
