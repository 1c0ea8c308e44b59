//! A hub that sends events to all or some of its clients through feeds.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Event, HEARTBEAT, as_event_stream, last_event_id};
use crate::message::drop_caught::Guarded;
use crate::message::{Feed, FeedLimits, FeedSender, Request, Response, random_below};

/// Range of the reconnection time for clients when the server stops, in milliseconds. After this time another server may have
/// replaced it. Each client gets a random time, so that not all return together.
const RETRY_MS: RangeInclusive<u64> = 1000..=5000;

/// Name of the event for a client whose last event is unknown.
const GAP: &str = "gap";

/// Sends events to its clients, to all or to some. Clones share the same hub, and any thread may send.
///
/// A client costs its connection and its queue, but no thread and no buffer (except in the engine `workers`).
/// [`FeedLimits`] limits slow clients, and they never delay others. An event is stored once, regardless of the
/// number of clients. With HTTP/1.1, a browser opens at most six connections to a host, and each `EventSource`
/// in any tab keeps one. A proxy that speaks HTTP/2 to browsers removes that limit.
///
/// **Restarts.** When the server stops, each client gets a reconnection time between 1 and 5 s, at random. The
/// streams end one after another, as described at [`drain_timeout`](crate::Settings::drain_timeout). So not all
/// clients return in the same moment.
///
/// **Proxies in front.** An `EventSource` reconnects after a connection that failed or ended. After a response
/// other than 200 with `text/event-stream`, such as a 502 or 503 of a proxy while the server restarts, it gives up
/// for good (HTML section 9.2.3). The proxy should try another server, or close the connection without a response
/// (nginx: `error_page 502 503 504 = @gone` and `return 444` there). Otherwise the page must open a new
/// `EventSource` when its `readyState` is `CLOSED`.
///
/// ```
/// use weftwork::{Event, EventHub, Request};
///
/// let hub = EventHub::default().with_history(100);
/// let news = { let hub = hub.clone(); move |req: &mut Request| hub.join(req) };
/// hub.send(&Event::new("it is told").id("1"));
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(news);
/// ```
///
/// The request tells which user joins. A hub with your own type keeps that value:
///
/// ```
/// use weftwork::{Event, EventHub, Request};
///
/// struct User { id: u64 }
///
/// let hub = EventHub::<User>::default();
/// let own = hub.clone();
/// let inbox = move |req: &mut Request| {
///     let user = User { id: 7 };      // who has logged in
///     own.join_with(req, user, [Event::new("3 unread")])
/// };
/// hub.send_where(&Event::new("4 unread"), |user| user.id == 7);
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(inbox);
/// ```
pub struct EventHub<T = ()> {
    shared: Arc<Mutex<Shared<T>>>,
    limits: FeedLimits,
}

struct Shared<T> {
    /// Shared with threads that read the list without the lock.
    clients: Arc<Clients<T>>,
    history: VecDeque<(Option<String>, Bytes)>,
    history_max: usize,
}

type Clients<T> = Vec<Arc<Client<T>>>;

struct Client<T> {
    sender: FeedSender,
    /// Several may go at once.
    value: Guarded<T>,
}

impl EventHub {
    /// Adds a client. The response sends all events from now on.
    pub fn join(&self, req: &Request<'_>) -> Response {
        self.join_as(req, ())
    }
}

impl<T> EventHub<T> {
    /// Creates a hub with these limits for each client.
    pub fn new(limits: FeedLimits) -> EventHub<T> {
        let shared = Shared { clients: Arc::default(), history: VecDeque::new(), history_max: 0 };
        EventHub { shared: Arc::new(Mutex::new(shared)), limits }
    }

    /// Keeps the last `events_max` events of [`send`](EventHub::send) for clients that reconnect. A client gets
    /// the events after its `Last-Event-ID`. These events do not count against [`FeedLimits`]. Default: 0, no
    /// history.
    ///
    /// If that id is unknown, events may be missing, or come twice. The client first gets an event with the name
    /// `gap`, whose data is the id, and then all stored events. Pages that ignore the event see no difference:
    ///
    /// ```js
    /// source.addEventListener("gap", () => location.reload());
    /// ```
    #[must_use]
    pub fn with_history(self, events_max: usize) -> EventHub<T> {
        let mut shared = self.lock();
        shared.history_max = events_max;
        let too_many = shared.history.len().saturating_sub(events_max);
        shared.history.drain(..too_many);
        drop(shared);
        self
    }

    /// Adds a client with a value, such as a user or a room. The response sends all events from now on.
    pub fn join_as(&self, req: &Request<'_>, value: T) -> Response {
        self.join_with(req, value, [])
    }

    /// Adds a client like [`join_as`](EventHub::join_as). Only this client gets `first_events`. They come after
    /// the events that it missed (see [`with_history`](EventHub::with_history)) and before all new events. They
    /// do not count against [`FeedLimits`].
    ///
    /// If `first_events` describe a state, such as a count, hold its lock while you read it and join, and while
    /// you change it and send. Then no change is lost or sent twice.
    ///
    /// After the client has gone, its value is dropped when the hub next goes through its clients, for example
    /// in [`send`](EventHub::send). The `Drop` of the value may use the hub. It must not take a lock that is
    /// held while the hub is used.
    pub fn join_with(
        &self,
        req: &Request<'_>,
        value: T,
        first_events: impl IntoIterator<Item = Event>,
    ) -> Response {
        // The iterator may use the hub, so it does not run under the lock.
        let first: Vec<Bytes> = first_events.into_iter().map(|event| event.to_bytes()).collect();
        let (sender, feed) = Feed::new(self.limits);
        let retry_ms = RETRY_MS.start() + random_below(RETRY_MS.end() - RETRY_MS.start() + 1);
        let final_message = Bytes::from(format!("retry: {retry_ms}\n\n"));
        let feed = feed.with_heartbeat(Bytes::from_static(HEARTBEAT)).with_final_message(final_message);
        let last = last_event_id(req).filter(|id| !id.is_empty());
        let mut shared = self.lock();
        let gap = last.as_ref().filter(|id| shared.position(id).is_none());
        let gap = gap.map(|id| Event::new(id.as_str()).name(GAP).to_bytes());
        let missed = last.iter().flat_map(|id| shared.since(id));
        let feed = feed.with_backlog(gap.into_iter().chain(missed).chain(first));
        let gone = shared.add(Client { sender, value: Guarded::new(value) });
        drop(shared);
        drop(gone);
        as_event_stream(Response::feed(feed))
    }

    /// Sends an event to all clients. Returns the number of clients.
    pub fn send(&self, event: &Event) -> usize {
        let bytes = event.to_bytes();
        let mut shared = self.lock();
        shared.record(event.event_id(), &bytes);
        // Clients that have gone, or were disconnected for being too slow, are removed.
        let gone = shared.remove_if(|client| client.sender.send(bytes.clone()).is_err());
        let clients = shared.clients.len();
        drop(shared);
        drop(gone);
        clients
    }

    /// Sends an event to the clients whose value `wanted` selects. Returns the number of clients.
    ///
    /// The event is not added to the [history](EventHub::with_history), which any client may get. A client that
    /// is away misses it, and gets what [`join_with`](EventHub::join_with) sends first. Do not give the
    /// event an id: a client that reconnects with an unknown id gets a `gap` and the whole history.
    ///
    /// `wanted` is called for every client. 10,000 clients take about 0.1 ms.
    pub fn send_where(&self, event: &Event, wanted: impl Fn(&T) -> bool) -> usize {
        let bytes = event.to_bytes();
        // `wanted` may use the hub, so it is not called under the lock.
        let all = self.lock().clients.clone();
        let wanted = all.iter().filter(|client| !client.sender.is_closed() && wanted(&client.value));
        wanted.filter(|client| client.sender.send(bytes.clone()).is_ok()).count()
    }

    /// Ends every stream at once, after its waiting events. Clients that reconnect are served again. They return
    /// after the reconnection time that they know. [`Event::retry`] sets it, and
    /// [`send_where`](EventHub::send_where) can set different times.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut self.lock().clients);
        all.iter().for_each(|client| client.sender.close());
    }

    /// Returns the current number of clients.
    pub fn clients(&self) -> usize {
        let mut shared = self.lock();
        let gone = shared.remove_if(|client| client.sender.is_closed());
        let clients = shared.clients.len();
        drop(shared);
        drop(gone);
        clients
    }

    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Shared<T> {
    /// Adds a client. Returns the clients that have gone, as [`remove_if`](Shared::remove_if) does.
    fn add(&mut self, client: Client<T>) -> Clients<T> {
        // Without this, a hub that rarely sends would collect clients that have gone.
        let is_full = self.clients.len() == self.clients.capacity();
        let gone = if is_full { self.remove_if(|client| client.sender.is_closed()) } else { Vec::new() };
        Arc::make_mut(&mut self.clients).push(Arc::new(client));
        gone
    }

    /// Removes clients. The caller drops them without the lock, because a value may use the hub when it is
    /// dropped.
    #[must_use]
    fn remove_if(&mut self, is_gone: impl Fn(&Client<T>) -> bool) -> Clients<T> {
        Arc::make_mut(&mut self.clients).extract_if(.., |client| is_gone(client)).collect()
    }

    fn record(&mut self, id: Option<&str>, bytes: &Bytes) {
        if self.history_max == 0 {
            return;
        }
        if self.history.len() == self.history_max {
            self.history.pop_front();
        }
        self.history.push_back((id.map(str::to_owned), bytes.clone()));
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.history.iter().rposition(|(known, _)| known.as_deref() == Some(id))
    }

    fn since(&self, id: &str) -> impl Iterator<Item = Bytes> {
        let seen = self.position(id);
        self.history.iter().skip(seen.map_or(0, |seen| seen + 1)).map(|(_, bytes)| bytes.clone())
    }
}

impl<T> Default for EventHub<T> {
    fn default() -> EventHub<T> {
        EventHub::new(FeedLimits::default())
    }
}

impl<T> Clone for EventHub<T> {
    fn clone(&self) -> EventHub<T> {
        EventHub { shared: self.shared.clone(), limits: self.limits }
    }
}

impl<T> fmt::Debug for EventHub<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHub").field("clients", &self.clients()).finish_non_exhaustive()
    }
}
