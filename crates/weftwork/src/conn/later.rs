//! What a connection does whose response comes when its handler is done: it waits, and holds nothing meanwhile.

use std::sync::Arc;
use std::time::Instant;

use http::Method;
use weftwork_wire::Head;

use super::fed::AHEAD_BYTES_MAX;
use super::{Conn, Phase, Rest, Step};
use crate::message::{Later, Response, Wakes};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};

/// What is left of a request whose response comes later.
pub(super) struct Left {
    pub(super) method: Method,
    pub(super) path: Box<[u8]>,
    pub(super) id: Option<Box<str>>,
    /// It had a body that was not read whole.
    pub(super) body_is_lost: bool,
    /// Its client takes trailers.
    pub(super) wants_trailers: bool,
}

/// A response that is to come.
pub(super) struct Pending {
    later: Later,
    /// What middleware has made of the response that stands in for it.
    stand_in: Response,
    /// When it is sent at the latest; none where no clock gets there.
    due: Option<Instant>,
    /// The first tick by then.
    due_tick: Tick,
    /// So it is, says the owner.
    is_due: bool,
    /// No more is needed of the request, and the path for the log alone.
    asked: Left,
    /// Under which token its loop will look at it when it is due.
    alarm: Option<usize>,
}

impl Pending {
    pub(super) fn watch(&self, wakes: &Arc<dyn Wakes>, key: usize) -> bool {
        self.later.watch(wakes, key)
    }
}

impl Conn {
    /// The request will be over, but for this.
    pub(super) fn left_of_request(&self, id: Option<Box<str>>) -> Left {
        let asked = self.asked();
        let has_payload = self.buffers.as_deref().is_some_and(|buffers| !buffers.payload.is_empty());
        Left {
            method: asked.method().clone(),
            path: asked.path().as_bytes().into(),
            id,
            body_is_lost: has_payload || !self.http.request_is_read(),
            wants_trailers: self.wants_trailers(),
        }
    }

    /// The handler has answered that its response comes later; or the response that has come has.
    pub(super) fn respond_later(
        &mut self,
        later: Later,
        stand_in: Response,
        asked: Left,
        moment: Instant,
        cx: &Context,
    ) {
        let due = moment.checked_add(later.time());
        let due_tick = due.map_or(Tick(u64::MAX), |due| cx.clock.at_last(due));
        self.forget_request();
        let pending = Pending { later, stand_in, due, due_tick, is_due: false, asked, alarm: None };
        *self.rest = Some(Box::new(Rest::Later(Box::new(pending))));
        self.phase = Phase::Later;
    }

    #[inline(never)]
    pub(super) fn await_response(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let Some(pending) = self.pending() else {
            self.phase = Phase::Done;
            return None;
        };
        let is_due = pending.is_due || now >= pending.due_tick || cx.stage() != Stage::Running;
        let is_known = is_due || pending.later.is_over();
        if self.unsent() > 0 {
            // Answers to earlier requests do not wait for this one.
            return Some(Step::Write);
        }
        if is_known {
            return Some(Step::Call);
        }
        let ahead = self.buffers.as_deref().map_or(0, |buffers| buffers.input.len() - buffers.start);
        let takes = ahead < AHEAD_BYTES_MAX;
        if self.ended && !takes {
            // Its end stands behind what nobody will read.
            self.phase = Phase::Done;
            return None;
        }
        Some(if self.readable && takes { Step::Read } else { Step::Wait })
    }

    /// When its response is sent, whoever brings it or does not. None: it waits for nothing of the kind.
    #[inline]
    pub(crate) fn response_due(&self) -> Option<Tick> {
        if self.phase != Phase::Later { None } else { self.pending().map(|pending| pending.due_tick) }
    }

    /// The same, exactly, and once for each token: for an owner that has to be told when to look at it.
    #[inline]
    pub(crate) fn take_alarm(&mut self) -> Option<Instant> {
        let (token, is_later) = (self.token, self.phase == Phase::Later);
        let Some(Rest::Later(pending)) = self.rest.as_deref_mut().filter(|_| is_later) else { return None };
        pending.due.filter(|_| pending.alarm.replace(token) != Some(token))
    }

    /// Whether this is its alarm, and not one of a response that it has had.
    pub(crate) fn has_alarm(&self, due: Instant) -> bool {
        self.phase == Phase::Later && self.pending().is_some_and(|pending| pending.due == Some(due))
    }

    /// Its alarm has come.
    pub(crate) fn note_due(&mut self, due: Instant) {
        if self.has_alarm(due)
            && let Some(Rest::Later(pending)) = self.rest.as_deref_mut()
        {
            pending.is_due = true;
        }
    }

    /// Its alarm may have come and found it out. True: so it has, by `moment`, and nobody knew.
    #[cold]
    pub(crate) fn note_due_by(&mut self, moment: Instant) -> bool {
        let Some(Rest::Later(pending)) = self.rest.as_deref_mut() else { return false };
        let is_due = pending.due.is_some_and(|due| due <= moment);
        is_due && !std::mem::replace(&mut pending.is_due, true)
    }

    /// It waits for its response.
    #[inline]
    pub(crate) fn awaits_response(&self) -> bool {
        self.phase == Phase::Later
    }

    /// What has come, for a call that has no handler to make, and the response that stands in for it; and what was asked for.
    #[cold]
    pub(super) fn take_response(&mut self) -> Option<(Later, Response, Left)> {
        let Some(Rest::Later(pending)) = self.rest.take().map(|rest| *rest) else { return None };
        let Pending { later, stand_in, asked, .. } = *pending;
        self.phase = Phase::Ready;
        self.has_dwelt = true;
        self.held().head = Head { method: asked.method.clone(), ..Head::default() };
        Some((later, stand_in, asked))
    }

    fn pending(&self) -> Option<&Pending> {
        match self.rest.as_deref() {
            Some(Rest::Later(pending)) => Some(pending),
            _ => None,
        }
    }
}
