//! Body of a request that outlives its handler: the connection brings the parts, and any thread or future reads them.
//!
//! ```text
//!   connection (on its loop or its thread) -- parts, at most 64 KiB --> OwnedBody (a thread, or a future)
//!            ^                                                         |
//!            +---- wake-up: there is room, or the reader has gone -----+
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, Read};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue};

use super::body::BodyError;
use super::exchange::Exchange;
use super::feed::WakeConn;
use super::listeners::run;

/// Bytes of a body that may wait for their reader. The connection reads no more beyond it.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Body of a request that outlives its handler. See [`Request::take_body`](super::Request::take_body).
///
/// A future reads it with [`chunk`](OwnedBody::chunk) or [`poll_chunk`](OwnedBody::poll_chunk), a thread of its own through
/// [`Read`] and [`BufRead`]. If it is dropped before its end, the connection drops what is left, or closes if that is too much.
#[derive(Default)]
pub struct OwnedBody {
    /// None: nothing more follows.
    core: Option<Reader>,
    /// Rest of a part that was read in part.
    part: Bytes,
    /// Bytes that were not read, if the head declares a length.
    left: Option<u64>,
    trailers: Vec<(HeaderName, HeaderValue)>,
    failed: Option<BodyError>,
}

#[derive(Default)]
struct Core {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Bytes>,
    /// Bytes of the parts.
    bytes: usize,
    end: Option<Result<Vec<(HeaderName, HeaderValue)>, BodyError>>,
    /// Whether the reader has asked for a part.
    is_wanted: bool,
    has_reader_gone: bool,
    reader: Option<Waker>,
    /// The connection, while it has nothing else to do, and what it knows of the reader.
    conn: Option<(Arc<dyn WakeConn>, usize)>,
    known: Option<ReaderState>,
    /// Thread of the handler, or of a poll of its future. The connection brings nothing meanwhile.
    in_call: Option<ThreadId>,
}

impl OwnedBody {
    /// Returns a body that has failed.
    pub(crate) fn failed(error: BodyError) -> OwnedBody {
        OwnedBody { failed: Some(error), ..OwnedBody::default() }
    }

    /// Returns a body of which nothing is left.
    pub(crate) fn ended(trailers: &[(HeaderName, HeaderValue)]) -> OwnedBody {
        OwnedBody { left: Some(0), trailers: trailers.to_vec(), ..OwnedBody::default() }
    }

    /// Reads a body to its end.
    pub(super) fn collect(exchange: &mut (impl Exchange + ?Sized)) -> OwnedBody {
        let mut all = Vec::new();
        loop {
            let limit = exchange.quota().limit;
            let count = match exchange.fill() {
                Ok([]) => break,
                Ok(part) => {
                    all.extend_from_slice(part);
                    part.len()
                }
                Err(error) => return OwnedBody::failed(error),
            };
            exchange.consume(count);
            exchange.quota_mut().taken += count as u64;
            if exchange.quota().taken > limit {
                return OwnedBody::failed(BodyError::TooLarge { limit });
            }
        }
        OwnedBody { trailers: exchange.trailers().to_vec(), ..OwnedBody::from(Bytes::from(all)) }
    }

    /// Returns the next bytes of the body, in parts as they arrived. `None` is the end of the body. After an error, each call
    /// returns that error.
    ///
    /// # Errors
    /// Those of [`Body::bytes`](super::Body::bytes): the client has gone, is too slow, or sends too much, or the server stops.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        poll_fn(|cx| self.poll_chunk(cx)).await.transpose()
    }

    /// Polls for the next bytes of the body, as [`chunk`](OwnedBody::chunk) does.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if !self.part.is_empty() {
            let part = std::mem::take(&mut self.part);
            return Poll::Ready(Some(Ok(self.take(part))));
        }
        match self.poll_part(cx) {
            Poll::Ready(Ok(part)) if part.is_empty() => Poll::Ready(None),
            Poll::Ready(Ok(part)) => Poll::Ready(Some(Ok(self.take(part)))),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Returns how many bytes were not read, if the head declares a length.
    pub fn body_left(&self) -> Option<u64> {
        self.left
    }

    /// Returns whether the whole body has arrived, so that reading it never waits.
    pub fn has_arrived(&self) -> bool {
        self.core.as_deref().map_or(self.failed.is_none(), |core| matches!(core.lock().end, Some(Ok(_))))
    }

    /// Returns how many bytes have arrived and were not read.
    pub fn available(&self) -> usize {
        self.part.len() + self.core.as_deref().map_or(0, |core| core.lock().bytes)
    }

    /// Returns the trailer fields, after the body was read to its end.
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        if self.core.is_none() && self.part.is_empty() { &self.trailers } else { &[] }
    }

    fn take(&mut self, part: Bytes) -> Bytes {
        self.left = self.left.map(|left| left.saturating_sub(part.len() as u64));
        part
    }

    /// Returns the next part, or an empty one at the end.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        let Some(core) = &self.core else { return Poll::Ready(Ok(Bytes::new())) };
        let end = match core.poll(cx) {
            Poll::Ready(Ok(part)) => return Poll::Ready(Ok(part)),
            Poll::Ready(Err(end)) => end,
            Poll::Pending => return Poll::Pending,
        };
        self.core = None;
        match end {
            Ok(trailers) => {
                self.trailers = trailers;
                Poll::Ready(Ok(Bytes::new()))
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Poll::Ready(Err(error))
            }
        }
    }

    /// Waits for the next part.
    fn wait_for_part(&mut self) -> Result<(), BodyError> {
        if !self.part.is_empty() {
            return Ok(());
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(part) = self.poll_part(&mut Context::from_waker(&waker)) {
                self.part = part?;
                return Ok(());
            }
            // Nobody brings the next part while this thread waits.
            if self.core.as_deref().is_some_and(Core::is_called_here) {
                return Err(BodyError::BeforeResponse);
            }
            std::thread::park();
        }
    }
}

impl From<Bytes> for OwnedBody {
    /// Makes a body of bytes that are there, for tests.
    fn from(bytes: Bytes) -> OwnedBody {
        OwnedBody { left: Some(bytes.len() as u64), part: bytes, ..OwnedBody::default() }
    }
}

impl Read for OwnedBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let part = self.fill_buf()?;
        let count = part.len().min(into.len());
        into[..count].copy_from_slice(&part[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for OwnedBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.wait_for_part()?;
        Ok(&self.part)
    }

    fn consume(&mut self, count: usize) {
        self.part.advance(count);
        self.left = self.left.map(|left| left.saturating_sub(count as u64));
    }
}

/// The reader's end. It tells the connection when it goes.
struct Reader(Arc<Core>);

impl Deref for Reader {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.lock();
        state.has_reader_gone = true;
        let kept = (std::mem::take(&mut state.parts), state.reader.take());
        wake_conn(state);
        drop(kept);
    }
}

impl fmt::Debug for OwnedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBody").field("left", &self.left).finish_non_exhaustive()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a reader gets: a part, or the end of the body.
type Next = Result<Bytes, Result<Vec<(HeaderName, HeaderValue)>, BodyError>>;

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.lock();
        state.is_wanted = true;
        // Dropped after the lock was released.
        let mut before = None;
        let next = match state.parts.pop_front() {
            Some(part) => {
                state.bytes -= part.len();
                Poll::Ready(Ok(part))
            }
            None => match state.end.take() {
                Some(end) => Poll::Ready(Err(end)),
                None => {
                    before = state.reader.replace(cx.waker().clone());
                    Poll::Pending
                }
            },
        };
        let has_room = state.bytes <= WAITING_BYTES_MAX / 2;
        match state.known {
            Some(ReaderState::Absent) => wake_conn(state),
            Some(ReaderState::Full) if has_room => wake_conn(state),
            _ => drop(state),
        }
        drop(before);
        next
    }

    fn is_called_here(&self) -> bool {
        self.lock().in_call == Some(std::thread::current().id())
    }
}

impl State {
    fn reader_state(&self) -> ReaderState {
        match (self.has_reader_gone, self.is_wanted) {
            (true, _) => ReaderState::Gone,
            _ if self.bytes >= WAITING_BYTES_MAX => ReaderState::Full,
            (_, false) => ReaderState::Absent,
            _ => ReaderState::Ready,
        }
    }
}

/// Wakes the connection after the lock was released.
fn wake_conn(mut state: MutexGuard<'_, State>) {
    state.known = None;
    let conn = state.conn.take();
    drop(state);
    if let Some((wakes, key)) = conn {
        wakes.wake(key);
    }
}

/// The connection's end. A body that is not whole when this end is dropped has lost its client.
pub(crate) struct OwnedBodySender {
    core: Arc<Core>,
}

/// What the reader of a body needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// It has not asked for the body.
    Absent,
    /// It takes more.
    Ready,
    /// Enough waits for it.
    Full,
    /// It was dropped.
    Gone,
}

impl OwnedBodySender {
    pub(crate) fn new(left: Option<u64>) -> (OwnedBodySender, OwnedBody) {
        let core = Arc::<Core>::default();
        (
            OwnedBodySender { core: core.clone() },
            OwnedBody { core: Some(Reader(core)), left, ..OwnedBody::default() },
        )
    }

    pub(crate) fn reader_state(&self) -> ReaderState {
        self.core.lock().reader_state()
    }

    /// Returns how many bytes more may wait.
    pub(crate) fn room(&self) -> usize {
        WAITING_BYTES_MAX.saturating_sub(self.core.lock().bytes)
    }

    /// Passes a part on, however much waits already.
    pub(crate) fn push(&self, part: Bytes) {
        self.change(|state| {
            state.bytes += part.len();
            state.parts.push_back(part);
        });
    }

    /// Ends the body, with its trailers or an error.
    pub(crate) fn end(&self, end: Result<Vec<(HeaderName, HeaderValue)>, BodyError>) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    /// Records whether the connection is in a call of this thread, and brings nothing.
    pub(crate) fn set_in_call(&self, is_in_call: bool) {
        self.core.lock().in_call = is_in_call.then(|| std::thread::current().id());
    }

    /// Wakes the connection when the reader's state is no longer `known`. Returns false if that is so already.
    pub(crate) fn watch(&self, known: ReaderState, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut state = self.core.lock();
        let is_same = match state.reader_state() {
            // Nothing is asked of it.
            ReaderState::Absent if known == ReaderState::Ready => true,
            found => found == known,
        };
        if is_same {
            (state.conn, state.known) = (Some((wakes.clone(), key)), Some(known));
        }
        is_same
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.core.lock();
        if state.has_reader_gone {
            return;
        }
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            run(|| reader.wake());
        }
    }
}

impl Drop for OwnedBodySender {
    fn drop(&mut self) {
        self.core.lock().conn = None;
        self.end(Err(BodyError::Disconnected));
    }
}
