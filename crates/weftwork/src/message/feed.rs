//! What a connection is to send, when other threads bring it: a bounded queue that the engine empties.
//!
//! A response with a [`Feed`] holds no thread and, while nothing is to be sent, no buffer. Whoever has the
//! [`FeedSender`] brings messages from any thread; the event loop of the connection sends them. Messages are
//! [`Bytes`]: the same one brought to ten thousand clients is in memory once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::response::{Lasting, Payload, Response};

/// How much may wait for one client, and what happens past that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Messages that may wait. Default 4,096: what bounds a queue are its bytes, and this its places, of 32 bytes each.
    /// It has to hold what is brought while the client's loop is busy elsewhere, or a burst cuts clients that are well.
    pub messages_max: usize,
    /// Bytes that may wait, over all messages. Default 1 MiB. A message that is alone may be larger.
    pub bytes_max: usize,
    /// What happens when one more would pass either. Default [`Overflow::Disconnect`].
    pub overflow: Overflow,
}

impl Default for FeedLimits {
    fn default() -> FeedLimits {
        FeedLimits { messages_max: 4096, bytes_max: 1 << 20, overflow: Overflow::Disconnect }
    }
}

/// A queue that has been longer gives its places back when it is empty.
const PLACES_KEPT: usize = 64;

/// What happens to a client that takes its messages more slowly than they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The messages that have waited longest are dropped: the client misses some and gets the newest.
    DropOldest,
    /// The client is disconnected: one that gets everything or nothing can come again and say where it was.
    Disconnect,
}

/// The client has gone, was disconnected, or the feed was closed: nothing that is brought is sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedClosed;

impl fmt::Display for FeedClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has gone, or its feed was closed")
    }
}

impl std::error::Error for FeedClosed {}

/// The receiving end of a feed: the connection's. See [`Response::feed`].
pub struct Feed {
    core: Arc<Core>,
    /// Sent before what is brought.
    backlog: VecDeque<Bytes>,
    /// Sent when nothing else was, for the time of the setting `heartbeat`.
    heartbeat: Option<Bytes>,
    /// Sent last when the server stops.
    farewell: Option<Bytes>,
}

/// The sending end of a feed. Clones send to the same client; when the last is dropped, the feed is closed.
pub struct FeedSender {
    core: Arc<Core>,
}

struct Core {
    limits: FeedLimits,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<Bytes>,
    bytes: usize,
    senders: usize,
    end: End,
    /// Whom to wake when something happens. Set by the connection when it has nothing left to do.
    waiter: Option<(Arc<dyn Wakes>, usize)>,
    /// It has still to send what it has: only that it is cut off is news.
    waits_for_cut: bool,
    /// It was cut off because more waited for its client than may.
    overflowed: bool,
    /// What was brought last ends this side: the client has only to answer that.
    is_last_said: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// What waits is sent, nothing more is taken.
    Closed,
    /// Nothing is sent any more.
    Cut,
}

/// How a waiting connection is reached from other threads: by the key that it gave.
pub(crate) trait Wakes: Send + Sync {
    fn wake(&self, key: usize);
}

/// What a feed has for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    Message(Bytes),
    /// Nothing now.
    Nothing,
    /// Nothing any more: all was sent.
    End,
    /// The client is to be cut off.
    Cut,
}

impl Feed {
    /// A feed for one client, and the end that brings it messages.
    pub fn new(limits: FeedLimits) -> (FeedSender, Feed) {
        let state = State {
            queue: VecDeque::new(),
            bytes: 0,
            senders: 1,
            end: End::Open,
            waiter: None,
            waits_for_cut: false,
            overflowed: false,
            is_last_said: false,
        };
        let core = Arc::new(Core { limits, state: Mutex::new(state) });
        let feed = Feed { core: core.clone(), backlog: VecDeque::new(), heartbeat: None, farewell: None };
        (FeedSender { core }, feed)
    }

    /// The same, and these are sent first. They do not count against the limits: a client that comes for what it has
    /// missed would never get it if that were more than may wait.
    pub(crate) fn with_backlog(mut self, messages: impl Iterator<Item = Bytes>) -> Feed {
        self.backlog = messages.collect();
        self
    }

    /// The same, and `message` is sent whenever nothing else was for the time of the setting `heartbeat`, so
    /// that proxies keep the connection and a peer that is gone is noticed. On an upgraded connection
    /// ([`Response::upgrade_fed`]) it is sent whenever nothing *came* for that time.
    #[must_use]
    pub fn with_heartbeat(mut self, message: Bytes) -> Feed {
        self.heartbeat = Some(message);
        self
    }

    /// The same, and `message` is sent last when the server stops.
    #[must_use]
    pub fn with_farewell(mut self, message: Bytes) -> Feed {
        self.farewell = Some(message);
        self
    }

    pub(crate) fn pull(&mut self) -> Pulled {
        let mut state = self.core.lock();
        if state.end == End::Cut {
            return Pulled::Cut;
        }
        if let Some(message) = self.backlog.pop_front() {
            return Pulled::Message(message);
        }
        match state.queue.pop_front() {
            Some(message) => {
                state.bytes -= message.len();
                if state.queue.is_empty() && state.queue.capacity() > PLACES_KEPT {
                    state.queue = VecDeque::new();
                }
                Pulled::Message(message)
            }
            None if state.end == End::Closed => Pulled::End,
            None => Pulled::Nothing,
        }
    }

    /// Has `wakes` woken at the next thing that happens. False: something has happened already.
    pub(crate) fn watch(&self, wakes: &Arc<dyn Wakes>, key: usize) -> bool {
        let mut state = self.core.lock();
        let nothing = self.backlog.is_empty() && state.queue.is_empty() && state.end == End::Open;
        if nothing {
            (state.waiter, state.waits_for_cut) = (Some((wakes.clone(), key)), false);
        }
        nothing
    }

    /// Has the connection woken when it is cut off, and by nothing else. False: it is already.
    pub(crate) fn watch_cut(&self, wakes: &Arc<dyn Wakes>, key: usize) -> bool {
        let mut state = self.core.lock();
        let is_cut = state.end == End::Cut;
        if !is_cut {
            (state.waiter, state.waits_for_cut) = (Some((wakes.clone(), key)), true);
        }
        !is_cut
    }

    /// None: it is not cut.
    pub(crate) fn why_cut(&self) -> Option<&'static str> {
        let state = self.core.lock();
        let why =
            if state.overflowed { "its client takes too slowly what it is fed" } else { "its feed was cut" };
        (state.end == End::Cut).then_some(why)
    }

    pub(crate) fn is_last_said(&self) -> bool {
        self.core.lock().is_last_said
    }

    pub(crate) fn heartbeat(&self) -> Option<Bytes> {
        self.heartbeat.clone()
    }

    /// The server stops: what waits is sent, then the farewell, then the end.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let mut state = self.core.lock();
        if state.end == End::Open {
            state.end = End::Closed;
        }
        drop(state);
        self.farewell.take()
    }
}

impl Drop for Feed {
    /// The connection is over, whoever ended it.
    fn drop(&mut self) {
        self.core.cut();
    }
}

impl FeedSender {
    /// Brings a message to the client. It never waits; what happens to a client that is too slow is what
    /// [`FeedLimits::overflow`] says. An empty message is none.
    ///
    /// # Errors
    /// [`FeedClosed`]: the client has gone, or has just been disconnected for being too slow.
    pub fn send(&self, message: impl Into<Bytes>) -> Result<(), FeedClosed> {
        self.core.bring(message.into(), false)
    }

    /// Ends the response in good order, behind what waits.
    pub fn close(&self) {
        self.core.end(End::Closed);
    }

    /// Disconnects the client at once; one that takes nothing, in the engine `workers`, when its `write_timeout` is over.
    pub fn cut(&self) {
        self.core.end(End::Cut);
    }

    /// Brings what ends this side of the protocol that is spoken: nothing is taken behind it. Once the server stops and it is
    /// sent, the client has the time of the setting `linger_timeout` to end its own.
    #[cfg(feature = "websocket")]
    pub(crate) fn send_last(&self, message: impl Into<Bytes>) -> Result<(), FeedClosed> {
        self.core.bring(message.into(), true)
    }

    /// Whether what is sent would reach nobody.
    pub fn is_closed(&self) -> bool {
        let state = self.core.lock();
        state.end != End::Open || state.is_last_said
    }

    /// Messages and bytes that wait for the client.
    pub fn waiting(&self) -> (usize, usize) {
        let state = self.core.lock();
        (state.queue.len(), state.bytes)
    }
}

impl Clone for FeedSender {
    fn clone(&self) -> FeedSender {
        self.core.lock().senders += 1;
        FeedSender { core: self.core.clone() }
    }
}

impl Drop for FeedSender {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.core.end(End::Closed);
        }
    }
}

impl Core {
    fn bring(&self, message: Bytes, is_last: bool) -> Result<(), FeedClosed> {
        let mut state = self.lock();
        if state.end != End::Open || state.is_last_said {
            return Err(FeedClosed);
        }
        state.is_last_said = is_last;
        if message.is_empty() {
            return Ok(());
        }
        let FeedLimits { messages_max, bytes_max, overflow } = self.limits;
        let (mut sent, room) = (Ok(()), bytes_max.saturating_sub(message.len()));
        let mut unsent = VecDeque::new();
        while state.queue.len() >= messages_max.max(1) || (state.bytes > room && !state.queue.is_empty()) {
            if overflow == Overflow::Disconnect {
                unsent = state.cut();
                state.overflowed = true;
                sent = Err(FeedClosed);
                break;
            }
            let dropped = state.queue.pop_front();
            state.bytes -= dropped.as_ref().map_or(0, Bytes::len);
            unsent.extend(dropped);
        }
        if sent.is_ok() {
            state.bytes += message.len();
            state.queue.push_back(message);
        }
        wake(state);
        drop(unsent);
        sent
    }

    fn end(&self, end: End) {
        let (mut state, mut unsent) = (self.lock(), VecDeque::new());
        match end {
            End::Cut => unsent = state.cut(),
            End::Closed if state.end == End::Open => state.end = End::Closed,
            End::Closed | End::Open => return,
        }
        wake(state);
        drop(unsent);
    }

    /// The connection is over: whom it had woken may be gone as well, with the descriptors that takes.
    fn cut(&self) {
        let mut state = self.lock();
        let (unsent, waiter) = (state.cut(), state.waiter.take());
        drop(state);
        drop((unsent, waiter));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What was not sent is to be dropped without the lock: it may be the user's, and ask for the lock as it goes.
    #[must_use]
    fn cut(&mut self) -> VecDeque<Bytes> {
        self.end = End::Cut;
        self.bytes = 0;
        std::mem::take(&mut self.queue)
    }
}

/// Wakes the connection, once it can have the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    if state.waits_for_cut && state.end != End::Cut {
        return;
    }
    let waiter = state.waiter.take();
    drop(state);
    if let Some((wakes, key)) = waiter {
        wakes.wake(key);
    }
}

impl Response {
    /// 200 with a body that is what others bring to `feed`, until the feed is closed or the client goes.
    ///
    /// The handler is done when it returns this. No thread and no buffer is held while nothing is sent, in
    /// every engine but `workers`, where the connection keeps the thread that it has anyway. A client that ends its
    /// sending side counts as gone.
    ///
    /// ```
    /// use weftwork::{Feed, FeedLimits, Response};
    /// let (sender, feed) = Feed::new(FeedLimits::default());
    /// let response = Response::feed(feed);
    /// sender.send("one\n")?;      // from any thread, at any time
    /// sender.close();
    /// # Ok::<(), weftwork::FeedClosed>(())
    /// ```
    pub fn feed(feed: Feed) -> Response {
        Response {
            content_type: Some(HeaderValue::from_static("application/octet-stream")),
            payload: Payload::Lasting(Box::new(Lasting::Feed(feed))),
            ..Response::new(StatusCode::OK)
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl fmt::Debug for FeedSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedSender").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
