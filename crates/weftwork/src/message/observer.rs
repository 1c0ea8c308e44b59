//! Observers of requests. The metrics and the access log are observers of each response, however it is made.
//!
//! Middleware [attaches](super::Request::observe) an observer to each request that passes it. For a request that the server
//! refuses, no middleware runs, and an [`Observer`] of the server is asked for the observer of the response.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::{Method, StatusCode, Version};
use weftwork_wire::{Field, Head};

use super::client::{self, Source};
use super::drop_caught::caught;
use crate::error::{OneLine, panic_message};
use crate::transport::events::Counters;
pub(crate) use crate::transport::events::Event;
use crate::transport::log_queue::log_line;

/// Observes a whole server.
pub trait Observer: Send + Sync {
    /// Takes an event. The caller may be an event loop, so the function must not block.
    fn on_event(&self, event: &Event) {
        let _ = event;
    }

    /// Returns the observer for the response to a request that the server refuses. The same holds for the caller.
    fn on_refusal(&self, request: &RefusedRequest<'_>) -> Box<dyn ResponseObserver>;
}

/// Observes one response.
pub trait ResponseObserver: Send {
    /// Takes the end of the response. The caller may be an event loop, so the function must not block.
    fn on_end(self: Box<Self>, end: &ResponseEnd);
}

/// Logs the panic of an observer, which costs what the callback returns.
#[cold]
pub(crate) fn log_panic<T: Default>(panic: &(dyn Any + Send)) -> T {
    log_line!(Error, "an observer of responses panicked: {}", OneLine(panic_message(panic)));
    T::default()
}

/// End of a response: the kernel has accepted its last byte, or nothing more of it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseEnd {
    /// Status that was written. `None` if no response was written.
    pub(crate) status: Option<StatusCode>,
    /// Status of a response for which there is no session of TLS. The client got an alert instead.
    pub(crate) withheld: Option<StatusCode>,
    /// Bytes of the body that were written, before chunking.
    pub(crate) body_bytes: u64,
    /// Why the request failed, as a short name. `None` for a whole response of a handler.
    pub(crate) error: Option<&'static str>,
}

impl ResponseEnd {
    /// The client closed its side or the connection before the response was written.
    pub(crate) const CLIENT_GONE: &'static str = "client_gone";
    /// The client did not read the response in time.
    pub(crate) const WRITE_TIMEOUT: &'static str = "write_timeout";
    /// The writer of the response failed after a part was sent.
    pub(crate) const CUT_SHORT: &'static str = "cut_short";
    /// The server cut its connections when it stopped.
    pub(crate) const SHUTDOWN: &'static str = "shutdown";
    /// Status for a response that its client has not taken, as in nginx.
    const CLIENT_CLOSED: u16 = 499;

    /// Returns the status to show. It is 499 if the client has left, because no status that was sent has reached it.
    pub(crate) fn shown_status(&self) -> u16 {
        match (self.error, self.status) {
            (Some(ResponseEnd::CLIENT_GONE | ResponseEnd::WRITE_TIMEOUT), _) | (None, None) => {
                ResponseEnd::CLIENT_CLOSED
            }
            (_, Some(status)) => status.as_u16(),
            (Some(_), None) => self.withheld.unwrap_or(StatusCode::SERVICE_UNAVAILABLE).as_u16(),
        }
    }

    /// Returns whether the response was written to its end.
    pub(crate) fn is_whole(&self) -> bool {
        use ResponseEnd as End;
        let broken = [End::CLIENT_GONE, End::WRITE_TIMEOUT, End::CUT_SHORT, End::SHUTDOWN];
        self.status.is_some() && !self.error.is_some_and(|error| broken.contains(&error))
    }
}

pub(crate) type Observers = Vec<Box<dyn ResponseObserver>>;

/// A response that is written and not sent. If it is dropped, nothing more of it is sent.
pub(crate) struct UnsentResponse {
    observers: Observers,
    end: ResponseEnd,
    counters: Arc<Counters>,
}

impl UnsentResponse {
    pub(crate) fn new(observers: Observers, end: ResponseEnd, counters: Arc<Counters>) -> UnsentResponse {
        UnsentResponse { observers, end, counters }
    }

    /// Records why it is not sent. The first reason counts.
    pub(crate) fn note_error(&mut self, why: &'static str) {
        self.end.error.get_or_insert(why);
    }

    /// Records that bytes at the end of its body are not sent.
    pub(crate) fn note_unsent(&mut self, bytes: u64) {
        self.end.body_bytes = self.end.body_bytes.saturating_sub(bytes);
    }

    /// Tells its observers that it was sent.
    pub(crate) fn note_sent(mut self) {
        self.tell();
    }

    /// A panic of an observer costs a line in the log. The connection may end because another panic unwinds.
    fn tell(&mut self) {
        for observer in self.observers.drain(..) {
            caught(|| observer.on_end(&self.end), log_panic);
        }
    }
}

impl Drop for UnsentResponse {
    fn drop(&mut self) {
        let is_closing = self.counters.closing.load(Ordering::Relaxed);
        self.note_error(if is_closing { ResponseEnd::SHUTDOWN } else { ResponseEnd::CLIENT_GONE });
        self.tell();
    }
}

impl fmt::Debug for UnsentResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsentResponse").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Time at which a request had arrived: its head, and the part of its body that is read ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// Part of the time since then in which the request waited for a thread.
    pub(crate) queued: Duration,
}

/// A request that the server refuses.
pub struct RefusedRequest<'a> {
    /// The head, if it was whole.
    pub(crate) head: Option<(&'a Head, &'a [u8])>,
    /// A stream of HTTP/2. Its version is known without a head.
    pub(crate) is_stream: bool,
    pub(crate) source: Source<'a>,
    /// Pattern of the route, if one matches.
    pub(crate) route: Option<String>,
    pub(crate) arrival: Arrival,
}

impl fmt::Debug for RefusedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedRequest").finish_non_exhaustive()
    }
}

impl<'a> RefusedRequest<'a> {
    pub(crate) fn method(&self) -> Option<&'a Method> {
        self.head.map(|(head, _)| &head.method)
    }

    pub(crate) fn target(&self) -> &'a str {
        self.head.map_or("", |(head, bytes)| std::str::from_utf8(head.target.of(bytes)).unwrap_or_default())
    }

    pub(crate) fn version(&self) -> Option<Version> {
        let version = self.head.map(|(head, _)| match head.version {
            weftwork_wire::Version::Http10 => Version::HTTP_10,
            weftwork_wire::Version::Http11 => Version::HTTP_11,
            weftwork_wire::Version::Http2 => Version::HTTP_2,
        });
        version.or(self.is_stream.then_some(Version::HTTP_2))
    }

    pub(crate) fn client_addr(&self) -> Option<IpAddr> {
        client::address(&self.source, self.fields())
    }

    pub(crate) fn scheme(&self) -> &'static str {
        client::scheme(&self.source, self.fields())
    }

    /// Returns the first value of a field.
    pub(crate) fn header(&self, name: &str) -> &'a [u8] {
        self.fields()
            .find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes()))
            .map_or(b"", |(_, value)| value)
    }

    fn fields(&self) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (fields, bytes) = self.head.map_or((&[][..], &[][..]), |(head, bytes)| (&head.fields[..], bytes));
        fields.iter().map(move |Field { name, value }| (name.of(bytes), value.of(bytes)))
    }
}
