//! A response that is sent after its handler has returned: when another thread provides it, when a future is ready, or after
//! a delay.
//!
//! The connection waits for it as for a [`Feed`](super::Feed): without a thread and without a buffer.

mod closed;
mod future;
mod reason;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};

use super::drop_caught::{DropEach, Guarded};
use super::feed::WakeConn;
use super::filter::StreamFilter;
use super::headers::{OF_CONTENT, OF_STATE};
use super::into_response::IntoResponse;
use super::listeners::Listeners;
use super::pending_future::PendingFuture;
use super::response::{LongLived, Payload, Response};
pub use reason::LaterReason;
use reason::OtherwiseFn;

/// Sends a response to a client that waits for it. See [`Response::later`]. If the sender is dropped, the client gets
/// the alternative response.
pub struct ResponseSender {
    core: Arc<Core>,
}

/// The client has gone, or already has a response: its time was up, the server stops, or a middleware has responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseClosed;

impl fmt::Display for ResponseClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has gone, or has its response already")
    }
}

impl std::error::Error for ResponseClosed {}

#[derive(Default)]
struct Core {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sent: Option<Box<Response>>,
    /// Whether no response is accepted any more. A response was sent, the senders were dropped, or it is too late.
    is_over: bool,
    /// Connection to wake. The connection sets it when it has nothing else to do.
    waiter: Option<(Arc<dyn WakeConn>, usize)>,
    /// Whether the connection waits for nothing more.
    is_released: bool,
    /// Told of that.
    listeners: Listeners,
}

/// Connection's end.
pub(crate) struct Deferred {
    provider: Provider,
    /// Body of the alternative response. Its status and headers are those of the placeholder.
    otherwise: Payload,
    /// Makes the alternative response when it is known why it is sent.
    otherwise_with: Option<OtherwiseFn>,
    /// Headers of the alternative response, which a sent response does not get. All other headers come from middleware
    /// and are added.
    own: Vec<(HeaderName, HeaderValue)>,
    /// None: the request's time, from the settings.
    time: Option<Duration>,
    /// Deadline for a response. After it, this response is sent.
    until: Option<(Instant, Box<Response>)>,
    filters: Vec<Box<dyn StreamFilter>>,
    /// Changes by middleware to the final response, the innermost first.
    changes: Vec<Change>,
    /// Whether the alternative is sent when the server stops.
    pub(crate) is_endless: bool,
}

/// What the response comes from.
enum Provider {
    /// Only time has to pass.
    Time,
    Sender(Arc<Core>),
    Future(PendingFuture<Response>),
}

type Change = Box<dyn Fn(Response) -> Response + Send>;

impl Response {
    /// Returns a response that another thread sends, or `otherwise`. The alternative is sent after `timeout` ([`Duration::MAX`] is no limit), or when the
    /// sender is dropped. [`later_with`](Response::later_with) is told which. Use it for long polls. No thread and no buffer is held meanwhile. In the engine `workers`, the
    /// connection keeps the thread that it has anyway. The timeout of a proxy in front must be longer than `timeout`.
    ///
    /// When the server stops, the response counts as a request in flight for at most
    /// [`drain_timeout`](crate::Settings::drain_timeout). With [`endless`](Response::endless), the alternative is sent at
    /// once. Use that for long polls whose clients ask again.
    ///
    /// The handler ends with this response. Middleware sees `otherwise` without a body. Headers that middleware adds
    /// are sent with the final response, and [`StreamFilter::answered`] reports that response. The body of a sent
    /// response is not compressed. A client that closes only its sending side still gets it (RFC 9112 section 9.6). The
    /// request no longer exists when it is sent, so read what you need of its body before ([`BodyError::AfterResponse`](crate::BodyError::AfterResponse)).
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    /// use weftwork::ResponseSender;
    ///
    /// static WAITING: Mutex<Vec<ResponseSender>> = Mutex::new(Vec::new());
    ///
    /// fn news(_: &mut Request) -> Response {
    ///     let (sender, response) = Response::later(Duration::from_secs(20), StatusCode::NO_CONTENT);
    ///     WAITING.lock().unwrap().push(sender);
    ///     response
    /// }
    ///
    /// fn publish(news: &'static str) {
    ///     for sender in WAITING.lock().unwrap().drain(..) {
    ///         let _ = sender.send(news);      // whoever has gone meanwhile asks again
    ///     }
    /// }
    ///
    /// let mut client = weftwork::TestClient::new(news).connect();
    /// client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    /// publish("it rains");
    /// assert_eq!(client.response().text(), "it rains");
    /// ```
    pub fn later(timeout: Duration, otherwise: impl IntoResponse) -> (ResponseSender, Response) {
        let core = Arc::new(Core::default());
        let response = otherwise.into_response().after(Some(timeout), Provider::Sender(core.clone()));
        (ResponseSender { core }, response)
    }

    /// Sends the response when this time has passed since the handler returned it, and never earlier. No thread is held meanwhile, as with [`later`](Response::later). Another protocol
    /// ([`upgrade`](Response::upgrade), [`tunnel`](Response::tunnel)) cannot be delayed: the response is then an error.
    /// For example, slow down password guessing:
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    ///
    /// fn refuse() -> Response {
    ///     Response::new(StatusCode::UNAUTHORIZED).with_delay(Duration::from_secs(1))
    /// }
    /// let answer = weftwork::TestClient::new(|_: &mut Request| refuse()).get("/").send();
    /// assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    /// ```
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Response {
        self.after(Some(delay), Provider::Time)
    }

    fn after(mut self, time: Option<Duration>, provider: Provider) -> Response {
        let own = self.fields.clone();
        let otherwise = std::mem::replace(&mut self.payload, Payload::Empty);
        let (filters, changes) = (Vec::new(), Vec::new());
        let later = Deferred {
            provider,
            otherwise,
            otherwise_with: None,
            own,
            time,
            until: None,
            filters,
            changes,
            is_endless: false,
        };
        self.payload = Payload::LongLived(Box::new(LongLived::Deferred(later)));
        self
    }

    /// Changes the response, and also the response that is sent [later](Response::later), if this one stands in for it.
    /// Use it in middleware that applies to every final response. A header that is only set on the placeholder is added to
    /// the sent response, unless that response has its own, or the placeholder already had the same. For a later response,
    /// the change runs twice, so it must set headers and not append them.
    ///
    /// ```
    /// use weftwork::http::header;
    /// use weftwork::prelude::*;
    ///
    /// fn private(req: &mut Request, next: Next) -> Response {
    ///     next.run(req).map_final(|mut response| {
    ///         response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    ///         response
    ///     })
    /// }
    /// let answer = weftwork::TestClient::new((|_: &mut Request| "hello").with(private)).get("/").send();
    /// assert_eq!(answer.header("cache-control"), Some("private"));
    /// ```
    #[must_use]
    pub fn map_final(self, change: impl Fn(Response) -> Response + Send + 'static) -> Response {
        let is_to_come = self.is_to_come();
        let mut response = change(self);
        // A response that the change itself delays has already been changed.
        if let Some(later) = response.later_mut().filter(|_| is_to_come) {
            later.changes.push(Box::new(change));
        }
        response
    }

    /// Sets a deadline for the response of another thread. After `deadline`, the client gets `too_late`. The earliest
    /// of several deadlines counts.
    pub(crate) fn sent_by(
        mut self,
        moment: Instant,
        deadline: Instant,
        too_late: impl FnOnce() -> Response,
    ) -> Response {
        if let Some(later) = self.later_mut().filter(|later| !matches!(later.provider, Provider::Time))
            && later.until.as_ref().is_none_or(|(soonest, _)| deadline < *soonest)
        {
            let left = deadline.saturating_duration_since(moment);
            later.time = Some(later.time.map_or(left, |time| time.min(left)));
            later.until = Some((deadline, Box::new(too_late())));
        }
        self
    }

    fn later_mut(&mut self) -> Option<&mut Deferred> {
        match &mut self.payload {
            Payload::LongLived(long_lived) => match &mut **long_lived {
                LongLived::Deferred(later) => Some(later),
                _ => None,
            },
            _ => None,
        }
    }
}

impl ResponseSender {
    /// Sends the response. A thread of the server writes a streamed body. The response may be a feed or an upgrade, or be sent
    /// later itself. Bytes that the client has sent meanwhile are the first ones of the other protocol.
    ///
    /// # Errors
    /// [`ResponseClosed`]: the client has gone, or already has a response. A client that leaves at this moment is not noticed.
    pub fn send(self, response: impl IntoResponse) -> Result<(), ResponseClosed> {
        let response = Box::new(response.into_response());
        let mut state = self.core.lock();
        if state.is_over {
            return Err(ResponseClosed);
        }
        state.sent = Some(response);
        end(state);
        Ok(())
    }

    /// Returns whether a response would no longer reach the client.
    pub fn is_closed(&self) -> bool {
        self.core.lock().is_over
    }
}

impl Drop for ResponseSender {
    fn drop(&mut self) {
        end(self.core.lock());
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the connection after the lock was released.
fn end(mut state: MutexGuard<'_, State>) {
    if std::mem::replace(&mut state.is_over, true) {
        return;
    }
    let waiter = state.waiter.take();
    drop(state);
    if let Some((wakes, key)) = waiter {
        wakes.wake(key);
    }
}

impl Deferred {
    /// Returns the longest wait for the response, if it was given one.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.time
    }

    /// Returns whether the response is known, or its future wants to be polled.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.provider {
            Provider::Time => false,
            Provider::Sender(core) => core.lock().is_over,
            Provider::Future(future) => future.is_woken(),
        }
    }

    /// Wakes the connection when the response is known or its future wants to be polled. Returns false if that is so already.
    pub(crate) fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match &self.provider {
            Provider::Time => true,
            Provider::Sender(core) => {
                let mut state = core.lock();
                if !state.is_over {
                    state.waiter = Some((wakes.clone(), key));
                }
                !state.is_over
            }
            Provider::Future(future) => future.watch(wakes, key),
        }
    }

    /// Returns whether a future provides the response. It has no use if the client has left.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self.provider, Provider::Future(_))
    }

    /// Polls the future, if there is one. Returns whether it is still pending.
    pub(crate) fn poll_is_pending(&mut self) -> bool {
        match &mut self.provider {
            Provider::Future(future) => future.poll().is_pending(),
            Provider::Time | Provider::Sender(_) => false,
        }
    }

    pub(super) fn add_filter(&mut self, filter: impl StreamFilter) {
        self.filters.push(Box::new(filter));
    }

    /// Takes the response to send at this `moment`. It is then too late for another response. `placeholder` is the
    /// response that middleware saw and changed, and `reason` says why it is sent if no sender has provided another one.
    pub(crate) fn take(
        mut self,
        mut placeholder: Response,
        moment: Instant,
        mut reason: LaterReason,
    ) -> Response {
        let sent = match &mut self.provider {
            Provider::Time => None,
            Provider::Sender(core) => {
                let mut state = core.lock();
                if std::mem::replace(&mut state.is_over, true) {
                    reason = LaterReason::SenderDropped;
                }
                state.sent.take()
            }
            Provider::Future(future) => future.take_output(),
        };
        // An available response is sent, even if the loop could not check for it in time.
        let too_late =
            if sent.is_some() { None } else { self.until.take_if(|(deadline, _)| moment >= *deadline) };
        let made = if sent.is_some() || too_late.is_some() { None } else { self.otherwise_with.take() };
        let sent = sent.or_else(|| made.map(|make| Box::new(make(reason))));
        if sent.is_some() || too_late.is_some() {
            placeholder.fields.retain(|(name, value)| {
                // A changed value comes from middleware. A value about the body stays with the body, which middleware
                // may have changed.
                let is_of_body = OF_CONTENT.contains(name) || OF_STATE.contains(name);
                let is_it = |own: &HeaderValue| own == value || is_of_body;
                !self.own.iter().any(|(own, said)| own == name && is_it(said))
            });
        }
        let mut response = match (sent, too_late) {
            (Some(sent), _) => sent.joined_with(placeholder),
            (None, Some((_, too_late))) => {
                let close = placeholder.close;
                let error = too_late.in_place_of(placeholder);
                if close { error.with_close() } else { error }
            }
            (None, None) => {
                Response { payload: std::mem::replace(&mut self.otherwise, Payload::Empty), ..placeholder }
            }
        };
        // The response may be sent later itself.
        if let Some((deadline, too_late)) = self.until.take() {
            response = response.sent_by(moment, deadline, || *too_late);
        }
        // A change or filter that panics is dropped while it unwinds, and so are those that follow.
        self.changes.reverse();
        while let Some(change) = self.changes.pop() {
            let is_to_come = response.is_to_come();
            let mut change = Guarded::new(change);
            response = change(response);
            if let Some(later) = response.later_mut().filter(|_| is_to_come) {
                later.changes.extend(change.take());
            }
        }
        self.filters.reverse();
        while let Some(filter) = self.filters.pop() {
            response = filtered(Guarded::new(response), Guarded::new(filter));
        }
        response
    }
}

fn filtered(mut response: Guarded<Response>, mut filter: Guarded<Box<dyn StreamFilter>>) -> Response {
    filter.answered(&response);
    let response = response.take().unwrap_or_default();
    match filter.take() {
        Some(filter) => response.filter_stream(filter),
        None => response,
    }
}

impl Drop for Deferred {
    /// The connection has ended, or has its response.
    fn drop(&mut self) {
        let mut each = DropEach::default();
        each.drop_value(std::mem::replace(&mut self.otherwise, Payload::Empty));
        each.drop_value(self.otherwise_with.take());
        each.drop_value(self.until.take());
        each.drop_all(std::mem::take(&mut self.filters));
        each.drop_all(std::mem::take(&mut self.changes));
        let core = match std::mem::replace(&mut self.provider, Provider::Time) {
            Provider::Time => return,
            Provider::Future(future) => return each.drop_value(future),
            Provider::Sender(core) => core,
        };
        let mut state = core.lock();
        (state.is_over, state.is_released) = (true, true);
        let (sent, waiter) = (state.sent.take(), state.waiter.take());
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        each.drop_value(sent);
        drop(waiter);
        listeners.tell();
    }
}

impl fmt::Debug for ResponseSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseSender").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
