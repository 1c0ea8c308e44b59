//! Tells observers when the requests of a connection arrived, and how their responses ended.
//!
//! A connection without observers has none of this, and pays a comparison for each step of a response.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;

use super::{Conn, PendingBody, Phase, Role};
use crate::message::BodyPart;
use crate::message::drop_caught::caught;
use crate::message::observer::{
    Arrival, Observers, RefusedRequest, ResponseEnd, ResponseObserver, UnsentResponse, log_panic,
};
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::{Counters, Event};

/// Observers of the responses of a connection.
pub(super) struct Observed {
    counters: Arc<Counters>,
    /// Time of the last read.
    read_at: Option<Instant>,
    /// Time that the current request has waited for a thread, once it has one.
    queued: Option<Duration>,
    /// Observers of the current response.
    current: Observers,
    /// The current response, as far as it is written.
    end: ResponseEnd,
    /// Responses that wait in the buffer: those of the connection, or of its streams.
    written: Vec<UnsentResponse>,
    /// Bytes that the kernel had not accepted at the last look.
    unsent: u64,
    /// Whether the client had closed its side before the response was written. It may still read.
    has_closed: bool,
}

impl Observed {
    fn new(counters: &Arc<Counters>) -> Box<Observed> {
        Box::new(Observed {
            counters: counters.clone(),
            read_at: None,
            queued: None,
            current: Vec::new(),
            end: ResponseEnd::default(),
            written: Vec::new(),
            unsent: 0,
            has_closed: false,
        })
    }

    /// Returns the record for a new connection, if the server has observers.
    pub(super) fn of_server(cx: &Context) -> Option<Box<Observed>> {
        (!cx.observers().is_empty()).then(|| Observed::new(&cx.counters))
    }

    pub(super) fn note_read(&mut self) {
        self.read_at = Some(Instant::now());
    }

    /// Takes the current response, which is complete or broken off.
    fn take_current(&mut self) -> Option<UnsentResponse> {
        let end = std::mem::take(&mut self.end);
        let observers = std::mem::take(&mut self.current);
        (!observers.is_empty()).then(|| UnsentResponse::new(observers, end, self.counters.clone()))
    }

    /// Takes over a response of a stream whose last frame was written. `to` is the record of its connection.
    #[cold]
    pub(super) fn add_written(to: &mut Option<Box<Observed>>, response: UnsentResponse, cx: &Context) {
        to.get_or_insert_with(|| Observed::new(&cx.counters)).written.push(response);
    }
}

impl Drop for Observed {
    /// The connection has ended. What was not sent by now is never sent.
    fn drop(&mut self) {
        let current = self.take_current();
        for mut response in self.written.drain(..).chain(current) {
            response.note_unsent(self.unsent);
        }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Conn {
    /// Adds an observer to the current request.
    pub(super) fn observe(&mut self, observer: Box<dyn ResponseObserver>, cx: &Context) {
        self.observed.get_or_insert_with(|| Observed::new(&cx.counters)).current.push(observer);
    }

    /// Returns when the current request had arrived, for its handler.
    pub(super) fn arrival(&self, received: Tick, cx: &Context) -> Arrival {
        let observed = self.observed.as_deref();
        let read_at = observed.and_then(|observed| observed.read_at);
        let queued = observed.and_then(|observed| observed.queued).unwrap_or_default();
        let tick = self.owner.arrived.map_or(received, |arrived| arrived.min(received));
        Arrival { at: earlier(read_at, tick, cx), queued }
    }

    /// Records that the request has left the queue for a thread, in which it was since `since`.
    #[cold]
    pub(crate) fn leave_queue(&mut self, since: Tick, now: Tick, cx: &Context) {
        let since = self.owner.arrived.map_or(since, |arrived| arrived.min(since));
        let waited = since.until(now);
        cx.record(Event::LeftQueue(waited));
        self.owner.arrived = Some(since);
        if let Some(observed) = &mut self.observed {
            observed.queued = Some(observed.queued.unwrap_or_default() + waited);
        }
    }

    /// Records the wait of a request that was seen before a thread took it, and was in no queue.
    #[cold]
    pub(super) fn note_call(&mut self, now: Tick, cx: &Context) {
        let was_queued = self.observed.as_deref().is_some_and(|observed| observed.queued.is_some());
        if let Some(arrived) = self.owner.arrived.filter(|_| !was_queued) {
            self.leave_queue(arrived, now, cx);
        }
    }

    /// Records the status of the response that is about to be written.
    #[inline]
    pub(super) fn note_status(&mut self, status: StatusCode) {
        if let Some(observed) = &mut self.observed {
            (observed.end.status, observed.end.body_bytes) = (Some(status), 0);
        }
    }

    /// Records the status of a response that cannot be sent, because there is no session of TLS.
    #[cold]
    pub(super) fn note_withheld(&mut self, status: StatusCode) {
        if let Some(observed) = &mut self.observed {
            observed.end.withheld = Some(status);
        }
    }

    /// Records bytes of the body.
    #[inline]
    pub(super) fn note_body(&mut self, bytes: u64) {
        if let Some(observed) = &mut self.observed
            && self.http.sends_body()
        {
            observed.end.body_bytes += bytes;
        }
    }

    /// Records the status and the body of a response that is written whole.
    #[cold]
    pub(super) fn note_whole(&mut self, status: StatusCode, body_bytes: usize) {
        self.note_status(status);
        self.note_body(body_bytes as u64);
    }

    /// Records that the client does not read the responses that were written, those of streams included.
    #[cold]
    pub(super) fn note_write_timeout(&mut self) {
        self.note_error(ResponseEnd::WRITE_TIMEOUT);
        if let Some(observed) = &mut self.observed {
            observed.written.iter_mut().for_each(|response| response.note_error(ResponseEnd::WRITE_TIMEOUT));
        }
        self.role.note_error(ResponseEnd::WRITE_TIMEOUT);
    }

    /// Records why the response of a stream ends with its connection, if the connection has said why.
    #[cold]
    pub(super) fn note_end_of_stream(&mut self) {
        if let Role::Stream(end) = &self.role
            && let Some(why) = end.pipe.error()
        {
            self.note_error(why);
        }
    }

    /// Records that the body of the last response that was written breaks off. All bytes before it were sent.
    #[cold]
    pub(super) fn note_body_cut_short(&mut self) {
        let Some(mut last) = self.observed.as_mut().and_then(|observed| observed.written.pop()) else {
            return;
        };
        self.end_sent();
        last.note_error(ResponseEnd::CUT_SHORT);
        if let Some(observed) = &mut self.observed {
            observed.written.push(last);
        }
    }

    /// Records why the request has failed. The first reason counts.
    #[inline]
    pub(super) fn note_error(&mut self, why: &'static str) {
        if let Some(observed) = &mut self.observed {
            observed.end.error.get_or_insert(why);
        }
    }

    /// Looks whether the client has closed its side while the handler ran.
    pub(super) fn note_if_client_closed(&mut self) {
        if let Some(observed) = &mut self.observed {
            observed.has_closed |= self.stream.peer_has_gone();
        }
    }

    /// Returns whether the client has left that had closed its side. A client on this machine that still reads is known by the
    /// missing reset. Over a network the reset comes later, and few clients close only their sending side.
    fn has_client_left(&self) -> bool {
        let is_near = self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback());
        !is_near || self.stream.is_reset()
    }

    /// Ends the responses that were sent.
    fn end_sent(&mut self) {
        let has_closed = self.observed.as_deref().is_some_and(|observed| observed.has_closed);
        let has_left = has_closed && self.has_client_left();
        let Some(observed) = &mut self.observed else { return };
        for mut response in observed.written.drain(..) {
            if has_left {
                response.note_error(ResponseEnd::CLIENT_GONE);
            }
            response.note_sent();
        }
    }

    /// Records that the response is complete, and perhaps not sent. Calling it again changes nothing. That of a stream is sent by
    /// its connection.
    #[cold]
    pub(super) fn note_response_written(&mut self) {
        let unsent = self.unsent_in_all();
        let Some(observed) = &mut self.observed else { return };
        let response = observed.take_current();
        (observed.queued, self.owner.arrived) = (None, None);
        if let Role::Stream(end) = &self.role {
            return response.into_iter().for_each(|response| end.pipe.observe(response, unsent));
        }
        observed.written.extend(response);
        observed.unsent = unsent;
        if unsent == 0 {
            self.end_sent();
        }
    }

    /// Records that the kernel has accepted everything, or how much it has not.
    #[cold]
    pub(super) fn note_sent(&mut self) {
        let unsent = self.unsent_in_all();
        let Some(observed) = &mut self.observed else { return };
        observed.unsent = unsent;
        if unsent == 0 && !observed.written.is_empty() {
            self.end_sent();
        }
    }

    /// Returns the bytes that the kernel has not accepted, as far as their number is known.
    fn unsent_in_all(&self) -> u64 {
        let left = match self.pending_body.as_deref() {
            Some(PendingBody::Known { part, then }) => {
                part.count() + then.as_slice().iter().map(BodyPart::count).sum::<u64>()
            }
            _ => 0,
        };
        left + self.unsent() as u64
    }

    /// Gives a refused request to the observers of the server, unless its middleware has run.
    #[cold]
    pub(super) fn observe_refusal(&mut self, why: &'static str, cx: &Context) {
        let Some(observed) = self.observed.as_deref() else { return };
        if observed.current.is_empty() {
            let is_whole = matches!(self.phase, Phase::Body | Phase::Ready);
            let head = self.buffers.as_deref().filter(|_| is_whole);
            let route = is_whole.then(|| cx.pattern(&self.request_line())).flatten();
            let arrival = match self.phase {
                Phase::Ready => self.arrival(self.timer.progress(), cx),
                // A request that did not arrive as a whole counts from the time since when it was waited for.
                _ if matches!(self.timer.kind, TimeoutKind::Idle | TimeoutKind::Write) => {
                    self.arrival(self.timer.progress(), cx)
                }
                _ => self.arrival(self.timer.began(), cx),
            };
            let request = RefusedRequest {
                head: head.map(|buffers| (&buffers.head, buffers.unread())),
                is_stream: self.is_stream(),
                source: self.source_of_requests(&cx.settings),
                route,
                arrival,
            };
            let observers = cx.observers().iter();
            let observers =
                observers.filter_map(|observer| caught(|| Some(observer.on_refusal(&request)), log_panic));
            let observers = observers.collect();
            if let Some(observed) = self.observed.as_deref_mut() {
                observed.current = observers;
            }
        }
        self.note_error(why);
    }
}

/// Returns the time of the last read, unless it is later than the tick: a read may come long after its poller has told of the
/// bytes. Ticks are rounded down, so within a millisecond the exact time counts.
fn earlier(read_at: Option<Instant>, tick: Tick, cx: &Context) -> Instant {
    let of_tick = cx.clock.moment(tick);
    let latest = of_tick.and_then(|moment| moment.checked_add(Duration::from_millis(1)));
    match (read_at, latest) {
        (Some(read_at), Some(latest)) => read_at.min(latest),
        (Some(read_at), None) => read_at,
        (None, _) => of_tick.unwrap_or_else(Instant::now),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Panics if it has no count.
    struct Odd(Option<Arc<AtomicUsize>>);

    impl ResponseObserver for Odd {
        fn on_end(self: Box<Self>, _: &ResponseEnd) {
            self.0.expect("an observer panics").fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A handler that panics can end its connection. A second panic would end the process.
    #[test]
    fn observers_that_panic_while_a_panic_unwinds_cost_no_other() {
        let told = Arc::new(AtomicUsize::new(0));
        let observers = || -> Observers {
            vec![Box::new(Odd(None)), Box::new(Odd(Some(told.clone()))), Box::new(Odd(None))]
        };
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut observed = Observed::new(&Arc::default());
            observed.current = observers();
            let written = observed.take_current();
            observed.written.extend(written);
            observed.current = observers();
            panic!("as asked");
        }));
        assert!(unwound.is_err());
        assert_eq!(told.load(Ordering::SeqCst), 2);
    }
}
