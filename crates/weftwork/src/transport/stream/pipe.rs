//! Passes the bytes of one stream between an HTTP/2 connection and its request, which may be on different threads.
//!
//! ```text
//!  connection (on its loop) -- body of the request, at most the window --> request (on any thread)
//!             ^                <-- response, at most 256 KiB -------------      |
//!             +--- StreamHub: which streams have changed, and whom to wake -----+
//! ```
//!
//! Each lock is held for a copy at most. No thread waits for the other side while it holds one.

mod hub;
mod request_end;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

pub(crate) use self::hub::StreamHub;
use crate::message::drop_caught::{drop_caught, drop_payload};
use crate::message::observer::UnsentResponse;
use crate::message::{BodyPart, WakeConn};
use crate::transport::wake_pipe::WakePipe;

/// Bytes of a response that may wait for the connection. It is as much as a request holds in its own buffer.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The same while a handler writes the response. With 64 KiB, an echo of 1 MiB took a fifth more CPU, because its writer was
/// woken for each 32 KiB.
const WRITER_BYTES_MAX: usize = 256 << 10;

/// Bytes for a request lie in parts of this size, if the frames of its client are smaller. A part is not moved as more follows.
const PART_BYTES: usize = 16 << 10;

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
    /// Bytes for the request, in parts of about a frame. None is empty. Those of the first one before `read` were read.
    to_request: VecDeque<Vec<u8>>,
    read: u32,
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
    /// A handler writes the response while it runs.
    has_writer: bool,
    /// Bytes that the connection needs before it can go on: the rest of a field block, or of the header of a segment.
    missing: u32,
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
        let may_read = !self.to_request.is_empty() || self.has_client_ended;
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

    /// Passes about `bytes` to the request. The windows limit them. A request that waits is woken by
    /// [`wake_request`](StreamPipe::wake_request).
    pub(crate) fn give(&self, bytes: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut flow = lock(&self.flow);
        if let Some(last) = flow.to_request.back_mut().filter(|last| last.len() + bytes <= PART_BYTES) {
            return fill(last);
        }
        let mut part = Vec::with_capacity(bytes);
        fill(&mut part);
        if !part.is_empty() {
            flow.to_request.push_back(part);
        }
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

    /// Lets `take` look at the bytes for the client, and at what follows them. It returns how many of the bytes are done, and how
    /// many are missing behind the others. It takes the parts that are done.
    pub(crate) fn take(
        &self,
        take: impl FnOnce(&[u8], &mut VecDeque<BodyPart>) -> (usize, u32),
    ) -> StreamState {
        let mut flow = lock(&self.flow);
        flow.is_noted = false;
        let Flow { to_client, sent, tail, .. } = &mut *flow;
        let (done, missing) = take(&to_client[*sent..], tail);
        *sent += done;
        flow.missing = missing;
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
        // A writer is woken once for all of the space, so that nothing that waits has to be moved, or for what is missing.
        if flow.is_blocked && (flow.to_client.is_empty() || missing > 0) {
            flow.is_blocked = false;
            self.wake(flow);
        }
        state
    }

    /// Records why the response breaks off: the one that was passed on, or the one that the request still makes.
    #[cold]
    pub(crate) fn note_error(&self, why: &'static str) {
        let mut flow = lock(&self.flow);
        match &mut flow.observed {
            Some(response) => response.note_error(why),
            None => {
                flow.error.get_or_insert(why);
            }
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
