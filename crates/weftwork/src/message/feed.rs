//! A bounded queue of messages that other threads send to a connection.
//!
//! A response with a [`Feed`] holds no thread, and no buffer while there is nothing to send. Any thread can send
//! messages through the [`FeedSender`], and the connection's event loop writes them. Messages are [`Bytes`], so a
//! message for ten thousand clients is in memory once.

mod listen;
mod readiness;
mod source;

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use self::listen::Extras;
use super::drop_caught::DropEach;
use super::listeners::Listeners;
use super::pending_future::PendingFuture;
use super::response::{LongLived, Payload, Response};

/// Limits of the queue of one client, and the action when they are exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Maximum number of waiting messages. Default: 4,096. The main limit of a queue is its bytes. Each message also
    /// takes 32 bytes in the queue. The queue must hold what is sent while the client's loop is busy, or a burst
    /// disconnects healthy clients.
    pub messages_max: usize,
    /// Maximum number of waiting bytes, over all messages. Default: 1 MiB. A single message may be larger: it is accepted
    /// while there is [`room`](FeedSender::room).
    pub bytes_max: u64,
    /// Action if one more message would exceed a limit. Default: [`OverflowStrategy::Disconnect`].
    pub overflow: OverflowStrategy,
}

impl Default for FeedLimits {
    fn default() -> FeedLimits {
        FeedLimits { messages_max: 4096, bytes_max: 1 << 20, overflow: OverflowStrategy::Disconnect }
    }
}

/// Returns a random number below `end`, or 0 if `end` is 0.
pub(crate) fn random_below(end: u64) -> u64 {
    RandomState::new().build_hasher().finish().checked_rem(end).unwrap_or(0)
}

/// Length above which a queue frees its memory when it becomes empty.
const PLACES_KEPT: usize = 64;

/// Action for a client that reads its messages more slowly than they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverflowStrategy {
    /// Drops the messages that have waited longest. The client misses some messages and gets the newest.
    DropOldest,
    /// Disconnects the client. A client that needs all messages can reconnect and say where it was.
    Disconnect,
}

/// The client has gone or was disconnected, or the feed was closed. Messages are no longer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedClosed;

impl fmt::Display for FeedClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has gone, or its feed was closed")
    }
}

impl std::error::Error for FeedClosed {}

/// Receiving end of a feed, for the connection. See [`Response::feed`].
pub struct Feed {
    core: Arc<Core>,
    /// Bytes to send before the messages.
    backlog: VecDeque<Bytes>,
    /// Future that fills the feed.
    source: Option<PendingFuture<()>>,
    /// Message to send after a silence of the setting `heartbeat`.
    heartbeat: Option<Bytes>,
    /// Message to send last when the server stops.
    final_message: Option<Bytes>,
    /// Whether it ends when the server stops, because it would never end by itself.
    pub(crate) is_endless: bool,
}

/// Sending end of a feed. Clones send to the same client. When the last clone is dropped, the feed is closed.
pub struct FeedSender {
    core: Arc<Core>,
}

struct Core {
    limits: FeedLimits,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<Bytes>,
    bytes: u64,
    senders: usize,
    end: End,
    /// Connection to wake on the next event. The connection sets it when it has nothing left to do.
    waiter: Option<(Arc<dyn WakeConn>, usize)>,
    /// Whether the connection still has bytes to send. Then only a disconnect wakes it.
    waits_for_cut: bool,
    /// Whether the client was disconnected because too much waited for it.
    overflowed: bool,
    /// The server stops, and ends the feed. Then a sender cannot cut it, as one that gives up does.
    is_finished: bool,
    /// Whether the last message closes this side. The client then only has to confirm.
    is_last_queued: bool,
    /// Whether the receiver of an upgrade has no room for bytes, and was not woken.
    awaits_room: bool,
    /// What few feeds have.
    extras: Option<Box<Extras>>,
}

/// What a feed has left when its client is disconnected. It is dropped and told without the lock.
#[must_use]
struct Remains {
    unsent: VecDeque<Bytes>,
    listeners: Listeners,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// Waiting messages are sent, and no more are accepted.
    Closed,
    /// Nothing is sent any more.
    Cut,
}

/// Wakes a waiting connection from other threads, by the key that it gave.
pub(crate) trait WakeConn: Send + Sync {
    fn wake(&self, key: usize);
}

/// Next thing that a feed has for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedPoll {
    Message(Bytes),
    /// Nothing now.
    Nothing,
    /// The end. Everything was sent.
    End,
    /// The client must be disconnected.
    Cut,
}

impl Feed {
    /// Creates a feed for one client, and its sending end.
    pub fn new(limits: FeedLimits) -> (FeedSender, Feed) {
        let state = State {
            queue: VecDeque::new(),
            bytes: 0,
            senders: 1,
            end: End::Open,
            waiter: None,
            waits_for_cut: false,
            overflowed: false,
            is_finished: false,
            is_last_queued: false,
            awaits_room: false,
            extras: None,
        };
        let core = Arc::new(Core { limits, state: Mutex::new(state) });
        let feed = Feed {
            core: core.clone(),
            backlog: VecDeque::new(),
            source: None,
            heartbeat: None,
            final_message: None,
            is_endless: false,
        };
        (FeedSender { core }, feed)
    }

    /// Sends these messages first. They do not count against the limits, so that a reconnecting client can get more
    /// missed messages than may wait.
    pub(crate) fn with_backlog(mut self, messages: impl Iterator<Item = Bytes>) -> Feed {
        self.backlog = messages.collect();
        self
    }

    /// Sends `message` after each silence of the setting `heartbeat`. It keeps proxies from closing the connection, and
    /// detects a peer that has gone. On an upgraded connection ([`Response::upgrade_fed`]), the silence is the time in
    /// which nothing *arrived*.
    #[must_use]
    pub fn with_heartbeat(mut self, message: Bytes) -> Feed {
        self.heartbeat = Some(message);
        self
    }

    /// Sends `message` last when the server stops, and ends the feed: the response is then [endless](Response::endless).
    #[must_use]
    pub fn with_final_message(mut self, message: Bytes) -> Feed {
        self.final_message = Some(message);
        self.is_endless = true;
        self
    }

    pub(crate) fn pull(&mut self) -> FeedPoll {
        let mut state = self.core.lock();
        if state.end == End::Cut {
            return FeedPoll::Cut;
        }
        if let Some(message) = self.backlog.pop_front() {
            return FeedPoll::Message(message);
        }
        match state.queue.pop_front() {
            Some(message) => {
                state.bytes -= message.len() as u64;
                if state.queue.is_empty() && state.queue.capacity() > PLACES_KEPT {
                    state.queue = VecDeque::new();
                }
                let listeners = state.due(&self.core.limits);
                drop(state);
                listeners.tell();
                FeedPoll::Message(message)
            }
            None if state.end == End::Closed => FeedPoll::End,
            None => FeedPoll::Nothing,
        }
    }

    /// WakeConn `wakes` on the next event. Returns false if there is an event already.
    pub(crate) fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut state = self.core.lock();
        let nothing = self.backlog.is_empty() && state.queue.is_empty() && state.end == End::Open;
        if nothing {
            (state.waiter, state.waits_for_cut) = (Some((wakes.clone(), key)), false);
        }
        drop(state);
        nothing && self.source.as_ref().is_none_or(|source| source.watch(wakes, key))
    }

    /// Wakes the connection only when it is disconnected. Returns false if it is disconnected already.
    pub(crate) fn watch_cut(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut state = self.core.lock();
        let is_cut = state.end == End::Cut;
        if !is_cut {
            (state.waiter, state.waits_for_cut) = (Some((wakes.clone(), key)), true);
        }
        !is_cut
    }

    /// Returns None if the client is not to be disconnected.
    pub(crate) fn why_cut(&self) -> Option<&'static str> {
        let state = self.core.lock();
        let why = if state.overflowed {
            "its client reads the feed too slowly"
        } else {
            "its feed was disconnected"
        };
        (state.end == End::Cut).then_some(why)
    }

    pub(crate) fn is_last_queued(&self) -> bool {
        self.core.lock().is_last_queued
    }

    pub(crate) fn heartbeat(&self) -> Option<Bytes> {
        self.heartbeat.clone()
    }

    /// Records that the server stops. Waiting messages are sent, then the final message, then the end.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let mut state = self.core.lock();
        if state.end == End::Open {
            (state.end, state.is_finished) = (End::Closed, true);
        }
        let listeners = state.due(&self.core.limits);
        drop(state);
        listeners.tell();
        self.final_message.take()
    }
}

impl Drop for Feed {
    /// Records that the connection has ended.
    fn drop(&mut self) {
        let mut each = DropEach::default();
        // Before the feed is closed, as the future may have a sender.
        each.drop_value(self.source.take());
        let Remains { unsent, listeners } = self.core.cut();
        each.drop_all(unsent);
        listeners.tell();
        each.drop_all(std::mem::take(&mut self.backlog));
        each.drop_all([self.heartbeat.take(), self.final_message.take()]);
    }
}

impl FeedSender {
    /// Sends a message to the client. Never waits. [`FeedLimits::overflow`] says what happens if the client is too
    /// slow. An empty message is ignored.
    ///
    /// # Errors
    /// [`FeedClosed`]: the client has gone, or was just disconnected because it is too slow.
    pub fn send(&self, message: impl Into<Bytes>) -> Result<(), FeedClosed> {
        self.core.push(message.into(), false)
    }

    /// Ends the response regularly, after the waiting messages.
    pub fn close(&self) {
        self.core.end(End::Closed);
    }

    /// Disconnects the client at once. In the engine `workers`, a client that reads nothing is disconnected after its
    /// `write_timeout`.
    pub fn cut(&self) {
        self.core.end(End::Cut);
    }

    /// Sends the message that closes this side of the protocol. No further messages are accepted. If the server stops
    /// after the message was sent, the client has the time of the setting `linger_timeout` to close its side.
    #[cfg(feature = "websocket")]
    pub(crate) fn send_last(&self, message: impl Into<Bytes>) -> Result<(), FeedClosed> {
        self.core.push(message.into(), true)
    }

    /// Returns whether a message would no longer reach the client.
    pub fn is_closed(&self) -> bool {
        self.core.lock().is_closed()
    }

    /// Returns the number of messages and bytes that wait for the client.
    pub fn waiting(&self) -> (usize, u64) {
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
    fn push(&self, message: Bytes, is_last: bool) -> Result<(), FeedClosed> {
        self.push_to(self.lock(), message, is_last)
    }

    fn push_to(
        &self,
        mut state: MutexGuard<'_, State>,
        message: Bytes,
        is_last: bool,
    ) -> Result<(), FeedClosed> {
        if state.is_closed() {
            return Err(FeedClosed);
        }
        state.is_last_queued = is_last;
        if message.is_empty() {
            return Ok(());
        }
        let has_room = state.has_room(&self.limits);
        let FeedLimits { messages_max, bytes_max, overflow } = self.limits;
        let (mut sent, space) = (Ok(()), bytes_max.saturating_sub(message.len() as u64));
        let mut unsent = VecDeque::new();
        while !has_room
            && (state.queue.len() >= messages_max.max(1) || (state.bytes > space && !state.queue.is_empty()))
        {
            if overflow == OverflowStrategy::Disconnect {
                unsent = state.cut();
                state.overflowed = true;
                sent = Err(FeedClosed);
                break;
            }
            let dropped = state.queue.pop_front();
            state.bytes -= dropped.as_ref().map_or(0, |message| message.len() as u64);
            unsent.extend(dropped);
        }
        if sent.is_ok() {
            state.bytes += message.len() as u64;
            state.queue.push_back(message);
        }
        self.wake(state);
        DropEach::default().drop_all(unsent);
        sent
    }

    fn end(&self, end: End) {
        let (mut state, mut unsent) = (self.lock(), VecDeque::new());
        match end {
            End::Cut if state.is_finished => return,
            End::Cut => unsent = state.cut(),
            End::Closed if state.end == End::Open => state.end = End::Closed,
            End::Closed | End::Open => return,
        }
        self.wake(state);
        DropEach::default().drop_all(unsent);
    }

    /// Drops the waker when the connection has ended, because it may hold descriptors.
    fn cut(&self) -> Remains {
        let mut state = self.lock();
        let (unsent, waiter) = (state.cut(), state.waiter.take());
        let listeners = state.due(&self.limits);
        drop(state);
        drop(waiter);
        Remains { unsent, listeners }
    }

    /// Wakes the connection, and tells those who wait for what `state` is now, after the lock was released.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let listeners = state.due(&self.limits);
        let is_woken = !state.waits_for_cut || state.end == End::Cut;
        let waiter = if is_woken { state.waiter.take() } else { None };
        drop(state);
        if let Some((wakes, key)) = waiter {
            wakes.wake(key);
        }
        listeners.tell();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Unsent messages are dropped without the lock, because their drop may run code of the user that takes the lock.
    #[must_use]
    fn cut(&mut self) -> VecDeque<Bytes> {
        self.end = End::Cut;
        self.bytes = 0;
        std::mem::take(&mut self.queue)
    }
}

impl Response {
    /// Returns 200 with a body that is sent through `feed`, until the feed is closed or the client leaves.
    ///
    /// The handler ends with this response. No thread and no buffer is held while there is nothing to send. In the
    /// engine `workers`, the connection keeps the thread that it has anyway.
    ///
    /// When the server stops, the response counts as a request in flight until the feed ends, or until
    /// [`drain_timeout`](crate::Settings::drain_timeout). Then its connection is reset, so that a partial body never looks
    /// complete. Mark a feed that has no end as [`endless`](Response::endless). A client that closes only its sending side
    /// still gets the rest (RFC 9112 section 9.6).
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
            payload: Payload::LongLived(Box::new(LongLived::Feed(feed))),
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
