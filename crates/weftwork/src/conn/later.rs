//! What a connection does whose response comes when its handler is done: it waits, and holds nothing meanwhile.

use std::sync::Arc;

use http::Method;
use weftwork_wire::Head;

use super::fed::AHEAD_BYTES_MAX;
use super::{Conn, Phase, Rest, Step};
use crate::message::{Later, Response, Wakes};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};

/// A response that is to come.
pub(super) struct Pending {
    later: Later,
    /// What middleware has made of the response that stands in for it.
    stand_in: Response,
    /// At the latest.
    due: Tick,
    /// Of the request: no more is needed of that.
    method: Method,
    /// Under which token its loop will look at it when it is due.
    alarm: Option<usize>,
}

impl Pending {
    pub(super) fn watch(&self, wakes: &Arc<dyn Wakes>, key: usize) -> bool {
        self.later.watch(wakes, key)
    }
}

impl Conn {
    /// The handler has answered that its response comes later.
    pub(super) fn respond_later(&mut self, later: Later, stand_in: Response, due: Tick) {
        let method = self.buffers.as_deref().map_or(Method::GET, |buffers| buffers.head.method.clone());
        self.forget_request();
        self.rest =
            Some(Box::new(Rest::Later(Box::new(Pending { later, stand_in, due, method, alarm: None }))));
        self.phase = Phase::Later;
    }

    #[inline(never)]
    pub(super) fn await_response(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let Some(pending) = self.pending() else {
            self.phase = Phase::Done;
            return None;
        };
        let is_known = pending.later.is_over() || now >= pending.due || cx.stage() != Stage::Running;
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
        if self.phase != Phase::Later { None } else { self.pending().map(|pending| pending.due) }
    }

    /// The same, once for each token: for an owner that has to be told when to look at it.
    #[inline]
    pub(crate) fn take_alarm(&mut self) -> Option<Tick> {
        let due = self.response_due()?;
        let token = self.token;
        let Some(Rest::Later(pending)) = self.rest.as_deref_mut() else { return None };
        (pending.alarm.replace(token) != Some(token)).then_some(due)
    }

    /// It waits for its response.
    #[inline]
    pub(crate) fn awaits_response(&self) -> bool {
        self.phase == Phase::Later
    }

    /// The response that has come, for a call that has no handler to make.
    #[inline]
    pub(super) fn take_response(&mut self) -> Option<Response> {
        if self.phase != Phase::Later { None } else { self.take_pending() }
    }

    #[cold]
    fn take_pending(&mut self) -> Option<Response> {
        let Rest::Later(pending) = *self.rest.take()? else { return None };
        let Pending { later, stand_in, method, .. } = *pending;
        self.phase = Phase::Ready;
        self.has_dwelt = true;
        self.held().head = Head { method, ..Head::default() };
        Some(later.take(stand_in))
    }

    fn pending(&self) -> Option<&Pending> {
        match self.rest.as_deref() {
            Some(Rest::Later(pending)) => Some(pending),
            _ => None,
        }
    }
}
