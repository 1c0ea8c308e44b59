//! Events for everybody, or for some: a list of feeds, which their loops send.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::{Event, HEARTBEAT, as_event_stream, last_event_id};
use crate::message::{Feed, FeedLimits, FeedSender, Request, Response};

/// When the server stops, clients are told to come again after this: by then another one may have its place.
const RETRY: Duration = Duration::from_secs(2);

/// Sends events to those who subscribe: to all, or to some. Clones are the same hub; any thread may send.
///
/// A client costs its connection and its queue, no thread and no buffer (but in the engine `workers`). One that
/// is slow is bounded by [`FeedLimits`], and never holds the others up. An event is in memory once, however many
/// clients wait for it. A browser opens six connections to a host at most, over HTTP/1.1, and each `EventSource` keeps one, in whichever
/// tab: a proxy in front that speaks HTTP/2 to browsers lifts that.
///
/// ```
/// use weftwork::{Event, EventHub, Request};
///
/// let hub = EventHub::default().with_history(100);
/// let news = { let hub = hub.clone(); move |req: &mut Request| hub.subscribe(req) };
/// hub.send(&Event::new("it is told").id("1"));
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(news);
/// ```
///
/// Who a client is, the request knows. A hub of your own type keeps that:
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
///     own.subscribe_as(req, user, [Event::new("3 unread")])
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
    /// Shared with who looks at all of them without the lock.
    clients: Arc<Clients<T>>,
    history: VecDeque<(Option<String>, Bytes)>,
    history_max: usize,
}

type Clients<T> = Vec<Arc<Client<T>>>;

struct Client<T> {
    sender: FeedSender,
    value: T,
}

impl EventHub {
    /// Answers a request with the events from now on.
    pub fn subscribe(&self, req: &Request<'_>) -> Response {
        self.subscribe_as(req, (), [])
    }
}

impl<T> EventHub<T> {
    /// A hub whose clients are bounded so.
    pub fn with_limits(limits: FeedLimits) -> EventHub<T> {
        let shared = Shared { clients: Arc::default(), history: VecDeque::new(), history_max: 0 };
        EventHub { shared: Arc::new(Mutex::new(shared)), limits }
    }

    /// The same hub, and it keeps the last `events_max` events of [`send`](EventHub::send) for clients that come again:
    /// they get what came after their `Last-Event-ID`, or all that is kept if that is not known any more. What they
    /// missed does not count against [`FeedLimits`]. Default 0.
    #[must_use]
    pub fn with_history(self, events_max: usize) -> EventHub<T> {
        let mut shared = self.lock();
        shared.history_max = events_max;
        let too_many = shared.history.len().saturating_sub(events_max);
        shared.history.drain(..too_many);
        drop(shared);
        self
    }

    /// Answers a request with the events from now on, to a client that has this value: a user, a room, what you like.
    ///
    /// `first_events` go to this client alone, before all that is sent from now on and behind what it missed (see
    /// [`with_history`](EventHub::with_history)). They do not count against [`FeedLimits`].
    ///
    /// Where they tell of a state, such as a count, hold its lock while you read it and subscribe, and while you change it and
    /// send: then no change is lost between them and the events that follow, and none is told twice.
    ///
    /// The value is dropped when the hub next looks at its clients (by [`send`](EventHub::send), say) after this one has gone,
    /// and not at once. Its `Drop` may ask the hub, but take no lock that is held while the hub is asked.
    pub fn subscribe_as(
        &self,
        req: &Request<'_>,
        value: T,
        first_events: impl IntoIterator<Item = Event>,
    ) -> Response {
        // An iterator may ask the hub in turn, so it does not run under the lock.
        let first: Vec<Bytes> = first_events.into_iter().map(|event| event.to_bytes()).collect();
        let (sender, feed) = Feed::new(self.limits);
        let farewell = Bytes::from(format!("retry: {}\n\n", RETRY.as_millis()));
        let feed = feed.with_heartbeat(Bytes::from_static(HEARTBEAT)).with_farewell(farewell);
        let last = last_event_id(req);
        let mut shared = self.lock();
        let missed = last.iter().flat_map(|id| shared.since(id));
        let feed = feed.with_backlog(missed.chain(first));
        let gone = shared.add(Client { sender, value });
        drop(shared);
        drop(gone);
        as_event_stream(Response::feed(feed))
    }

    /// Sends an event to everybody, and returns to how many.
    pub fn send(&self, event: &Event) -> usize {
        let bytes = event.to_bytes();
        let mut shared = self.lock();
        shared.record(event.event_id(), &bytes);
        // Those who have gone, or are cut off for being too slow, are forgotten.
        let gone = shared.remove_if(|client| client.sender.send(bytes.clone()).is_err());
        let clients = shared.clients.len();
        drop(shared);
        drop(gone);
        clients
    }

    /// Sends an event to those whose value is `wanted`, and returns to how many.
    ///
    /// It is in no [history](EventHub::with_history), which everybody may get: who is away misses it, and gets what
    /// [`subscribe_as`](EventHub::subscribe_as) sends first. So give it no id: a client that comes again with one that the
    /// history does not know gets all that is kept.
    ///
    /// Everybody's value is looked at: 10,000 clients take some 0.1 ms.
    pub fn send_where(&self, event: &Event, wanted: impl Fn(&T) -> bool) -> usize {
        let bytes = event.to_bytes();
        // What is asked may ask the hub in turn, so it is not asked under the lock.
        let all = self.lock().clients.clone();
        let wanted = all.iter().filter(|client| !client.sender.is_closed() && wanted(&client.value));
        wanted.filter(|client| client.sender.send(bytes.clone()).is_ok()).count()
    }

    /// Ends every stream in good order. Clients that come again are served again.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut self.lock().clients);
        all.iter().for_each(|client| client.sender.close());
    }

    /// How many clients there are now.
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
    /// Returns those who have gone, as [`remove_if`](Shared::remove_if) does.
    fn add(&mut self, client: Client<T>) -> Clients<T> {
        // A hub that sends seldom must not collect those who have gone.
        let is_full = self.clients.len() == self.clients.capacity();
        let gone = if is_full { self.remove_if(|client| client.sender.is_closed()) } else { Vec::new() };
        Arc::make_mut(&mut self.clients).push(Arc::new(client));
        gone
    }

    /// To be dropped without the lock: a value may ask the hub in turn.
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

    fn since(&self, id: &str) -> impl Iterator<Item = Bytes> {
        let seen = self.history.iter().rposition(|(known, _)| known.as_deref() == Some(id));
        self.history.iter().skip(seen.map_or(0, |seen| seen + 1)).map(|(_, bytes)| bytes.clone())
    }
}

impl<T> Default for EventHub<T> {
    fn default() -> EventHub<T> {
        EventHub::with_limits(FeedLimits::default())
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
