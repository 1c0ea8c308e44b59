//! The same events for everybody: a list of feeds, which their loops send.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::{Event, HEARTBEAT, as_event_stream, last_event_id};
use crate::message::{Feed, FeedLimits, FeedSender, Request, Response};

/// When the server stops, clients are told to come again after this: by then another one may have its place.
const RETRY: Duration = Duration::from_secs(2);

/// Sends events to all who subscribe. Clones are the same hub; any thread may send.
///
/// A client costs its connection and its queue, no thread and no buffer (but in the engine `workers`). One that
/// is slow is bounded by [`FeedLimits`], and never holds the others up. An event is in memory once, however many
/// clients wait for it.
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
#[derive(Clone, Default)]
pub struct EventHub {
    shared: Arc<Mutex<Shared>>,
    limits: FeedLimits,
}

#[derive(Default)]
struct Shared {
    clients: Vec<FeedSender>,
    history: VecDeque<(Option<String>, Bytes)>,
    history_max: usize,
}

impl EventHub {
    /// A hub whose clients are bounded so.
    pub fn with_limits(limits: FeedLimits) -> EventHub {
        EventHub { limits, ..EventHub::default() }
    }

    /// The same hub, and it keeps the last `events_max` events for clients that come again: they get what came after
    /// their `Last-Event-ID`, or all that is kept if that is not known any more. What they missed does not count
    /// against [`FeedLimits`]. Default 0.
    #[must_use]
    pub fn with_history(self, events_max: usize) -> EventHub {
        let mut shared = self.lock();
        shared.history_max = events_max;
        let too_many = shared.history.len().saturating_sub(events_max);
        shared.history.drain(..too_many);
        drop(shared);
        self
    }

    /// Answers a request with the events from now on.
    pub fn subscribe(&self, req: &Request<'_>) -> Response {
        let (sender, feed) = Feed::new(self.limits);
        let farewell = Bytes::from(format!("retry: {}\n\n", RETRY.as_millis()));
        let feed = feed.with_heartbeat(Bytes::from_static(HEARTBEAT)).with_farewell(farewell);
        let mut shared = self.lock();
        let feed = match last_event_id(req) {
            Some(id) => feed.with_backlog(shared.since(&id)),
            None => feed,
        };
        shared.take_in(sender);
        drop(shared);
        as_event_stream(Response::feed(feed))
    }

    /// Sends an event to everybody, and returns to how many.
    pub fn send(&self, event: &Event) -> usize {
        let bytes = event.to_bytes();
        let mut shared = self.lock();
        shared.keep(event.known_id(), &bytes);
        // Those who have gone, or are cut off for being too slow, are forgotten.
        shared.clients.retain(|client| client.send(bytes.clone()).is_ok());
        shared.clients.len()
    }

    /// Ends every stream in good order. Clients that come again are served again.
    pub fn close_all(&self) {
        std::mem::take(&mut self.lock().clients).iter().for_each(FeedSender::close);
    }

    /// How many clients there are now.
    pub fn clients(&self) -> usize {
        let mut shared = self.lock();
        shared.clients.retain(|client| !client.is_closed());
        shared.clients.len()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn take_in(&mut self, client: FeedSender) {
        if self.clients.len() == self.clients.capacity() {
            // A hub that sends seldom must not collect those who have gone.
            self.clients.retain(|client| !client.is_closed());
        }
        self.clients.push(client);
    }

    fn keep(&mut self, id: Option<&str>, bytes: &Bytes) {
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

impl fmt::Debug for EventHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHub").field("clients", &self.clients()).finish_non_exhaustive()
    }
}
