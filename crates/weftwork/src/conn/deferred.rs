//! A connection whose response is sent after its handler has returned. It holds a summary of the request
//! while it waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use weftwork_wire::Head;

use super::feed_body::AHEAD_BYTES_MAX;
use super::{Conn, PendingBody, Phase, Step};
use crate::message::{Deferred, LaterReason, RequestLine, Response, WakeConn};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::events::ConnState;

/// Time of a future if the settings limit no request.
const FUTURE_TIMEOUT: Duration = Duration::from_secs(60);

/// Parts that are kept of a request whose response is sent later.
#[derive(Default)]
pub(super) struct RequestSummary {
    pub(super) method: Method,
    pub(super) path: Box<[u8]>,
    pub(super) id: Option<Box<str>>,
    /// Whether its body was not read to its end.
    pub(super) body_is_lost: bool,
    /// Whether its client accepts trailers.
    pub(super) wants_trailers: bool,
    /// Its head and the bytes of the head, if its client asks for another protocol.
    pub(super) upgrade: Option<Box<(Head, Vec<u8>)>>,
}

/// A response that is not available yet.
pub(super) struct PendingResponse {
    later: Deferred,
    /// Response that middleware has built from the placeholder.
    placeholder: Response,
    /// Time at which the response is sent at the latest. None if the clock cannot reach it.
    due: Option<Instant>,
    /// First tick at or after that time.
    due_tick: Tick,
    /// Whether the owner says that the time has come.
    is_due: bool,
    /// Kept parts of the request. The path is only for the log.
    summary: RequestSummary,
    /// Token for which its loop checks it when it is due.
    alarm: Option<usize>,
}

impl PendingResponse {
    pub(super) fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        self.later.watch(wakes, key)
    }

    /// Returns whether a client that has closed its side has left.
    pub(super) fn ends_with_client(&self) -> bool {
        self.later.is_endless || self.later.is_future()
    }

    /// Returns whether its time is up. The server's stop ends the time of what is endless.
    pub(super) fn is_over(&self, now: Tick, cx: &Context) -> bool {
        self.is_late(now) || self.is_stopped(cx)
    }

    fn is_late(&self, now: Tick) -> bool {
        self.is_due || now >= self.due_tick
    }

    fn is_stopped(&self, cx: &Context) -> bool {
        self.later.is_endless && cx.stage() != Stage::Running
    }

    /// Returns the future that provides the response.
    pub(super) fn future_mut(&mut self) -> Option<&mut Deferred> {
        Some(&mut self.later).filter(|later| later.is_future())
    }

    pub(super) fn take_summary(&mut self) -> RequestSummary {
        std::mem::take(&mut self.summary)
    }

    /// Returns the response to send at this moment. The call has begun at `now`.
    pub(super) fn take(self, moment: Instant, now: Tick, cx: &Context) -> Response {
        let is_stopped = self.is_stopped(cx) && !self.is_late(now);
        let reason = if is_stopped { LaterReason::ShuttingDown } else { LaterReason::Timeout };
        self.later.take(self.placeholder, moment, reason)
    }

    /// Returns what was requested, for the log.
    pub(super) fn request_line(&self) -> RequestLine<'_> {
        RequestLine::new(&self.summary.method, &self.summary.path)
    }
}

impl Conn {
    /// Ends the request, except for the kept parts.
    pub(super) fn left_of_request(&self, id: Option<Box<str>>) -> RequestSummary {
        let line = self.request_line();
        let has_payload = self.buffers.as_deref().is_some_and(|buffers| !buffers.payload.is_empty());
        RequestSummary {
            method: line.method().clone(),
            path: line.path().as_bytes().into(),
            id,
            body_is_lost: has_payload || !self.http.request_is_read(),
            wants_trailers: self.wants_trailers(),
            upgrade: self.upgrade_of_request(),
        }
    }

    fn upgrade_of_request(&self) -> Option<Box<(Head, Vec<u8>)>> {
        let buffers = self.buffers.as_deref().filter(|buffers| buffers.head.upgrade)?;
        let bytes = &buffers.unread()[..buffers.head.bytes as usize];
        Some(Box::new((buffers.head.clone(), bytes.to_vec())))
    }

    /// Starts the wait: the handler's response is sent later, or a provided response is itself sent later.
    pub(super) fn respond_later(
        &mut self,
        later: Deferred,
        placeholder: Response,
        summary: RequestSummary,
        moment: Instant,
        cx: &Context,
    ) {
        let timeout = cx.settings.request_timeout;
        let timeout = if timeout.is_zero() { FUTURE_TIMEOUT } else { timeout };
        let due = moment.checked_add(later.time().unwrap_or(timeout));
        let due_tick = due.map_or(Tick(u64::MAX), |due| cx.clock.at_last(due));
        self.forget_request();
        let pending =
            PendingResponse { later, placeholder, due, due_tick, is_due: false, summary, alarm: None };
        self.wait_for_response(Box::new(pending));
    }

    fn wait_for_response(&mut self, pending: Box<PendingResponse>) {
        *self.pending_body = Some(Box::new(PendingBody::Deferred(pending)));
        self.count.enter(ConnState::Waiting);
        self.phase = Phase::Deferred;
    }

    #[inline(never)]
    pub(super) fn await_response(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        if self.owned_body.is_some() {
            self.pass_body(now, cx);
        }
        if self.phase == Phase::Done {
            return None;
        }
        let Some(pending) = self.pending() else {
            self.phase = Phase::Done;
            return None;
        };
        let is_known = pending.is_over(now, cx) || pending.later.is_ready();
        if self.unsent() > 0 {
            // Responses to earlier requests do not wait for this one.
            return Some(if self.reads_body_first() { Step::Read } else { Step::Write });
        }
        if is_known {
            return Some(Step::Call);
        }
        if self.owned_body.is_some() {
            return Some(self.read_body_or_wait());
        }
        let ahead = self.buffers.as_deref().map_or(0, |buffers| buffers.input.len() - buffers.start);
        let takes = ahead < AHEAD_BYTES_MAX;
        if self.read_closed && !takes && pending.ends_with_client() {
            // The end comes after bytes that are never read.
            self.phase = Phase::Done;
            return None;
        }
        Some(if self.read_ready && takes { Step::Read } else { Step::WaitFeed })
    }

    /// Returns when its response is sent if no other thread provides it. None if it waits for no response.
    #[inline]
    pub(crate) fn response_due(&self) -> Option<Tick> {
        if self.phase != Phase::Deferred { None } else { self.pending().map(|pending| pending.due_tick) }
    }

    /// Returns the same time exactly, and once for each token, for an owner that must set a timer.
    #[inline]
    pub(crate) fn take_alarm(&mut self) -> Option<Instant> {
        let (token, is_later) = (self.owner.token, self.phase == Phase::Deferred);
        let Some(PendingBody::Deferred(pending)) = self.pending_body.as_deref_mut().filter(|_| is_later)
        else {
            return None;
        };
        pending.due.filter(|_| pending.alarm.replace(token) != Some(token))
    }

    /// Returns whether this is its timer, and not the timer of an earlier response.
    pub(crate) fn has_alarm(&self, due: Instant) -> bool {
        self.phase == Phase::Deferred && self.pending().is_some_and(|pending| pending.due == Some(due))
    }

    /// Records that its timer has fired.
    pub(crate) fn note_due(&mut self, due: Instant) {
        if self.has_alarm(due)
            && let Some(PendingBody::Deferred(pending)) = self.pending_body.as_deref_mut()
        {
            pending.is_due = true;
        }
    }

    /// Handles a timer that may have fired while the connection was out of its loop. Returns true if it was due at
    /// `moment` and that was unknown.
    #[cold]
    pub(crate) fn note_due_by(&mut self, moment: Instant) -> bool {
        let Some(PendingBody::Deferred(pending)) = self.pending_body.as_deref_mut() else { return false };
        let is_due = pending.due.is_some_and(|due| due <= moment);
        is_due && !std::mem::replace(&mut pending.is_due, true)
    }

    /// Returns whether it waits for its response.
    #[inline]
    pub(crate) fn awaits_response(&self) -> bool {
        self.phase == Phase::Deferred
    }

    /// Takes what the response comes from, for a call without a handler.
    #[cold]
    pub(super) fn take_pending(&mut self) -> Option<Box<PendingResponse>> {
        let Some(PendingBody::Deferred(pending)) = self.pending_body.take().map(|rest| *rest) else {
            return None;
        };
        self.phase = Phase::Ready;
        self.read_ready |= self.peer_ended;
        self.count.enter(ConnState::Idle);
        self.handler_ran = true;
        self.buffers_mut().head = Head { method: pending.summary.method.clone(), ..Head::default() };
        Some(pending)
    }

    /// Waits on: the future was polled, and is not ready.
    pub(super) fn put_back(&mut self, mut pending: Box<PendingResponse>, summary: RequestSummary) {
        pending.summary = summary;
        self.wait_for_response(pending);
    }

    fn pending(&self) -> Option<&PendingResponse> {
        match self.pending_body.as_deref() {
            Some(PendingBody::Deferred(pending)) => Some(pending),
            _ => None,
        }
    }
}
