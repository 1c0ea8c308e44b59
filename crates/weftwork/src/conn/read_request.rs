//! Reads a request up to the call of its handler: its head, and as much of its body as is read ahead.

use weftwork_wire::{BodyEvent, Framing, HeadEvent};

use super::{Conn, OUTPUT_BYTES_MAX, Phase, Step};
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::ConnState;

impl Conn {
    pub(super) fn read_head(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let Some(buffers) = self.buffers.as_deref_mut().filter(|buffers| !buffers.has_no_request()) else {
            return Some(self.between_requests(now, cx));
        };
        match self.http.read_head(&buffers.input[buffers.start..], &cx.limits, &mut buffers.head) {
            Ok(HeadEvent::NeedMore) => Some(self.read_on(TimeoutKind::Head, now)),
            Ok(HeadEvent::Head(bytes)) => {
                self.peer_keep_alive = buffers.head.keep_alive;
                buffers.raw = buffers.start + bytes;
                buffers.payload = buffers.raw..buffers.raw;
                self.begin_request(self.stream.is_tls(), cx)
            }
            Err(_) if buffers.unread().starts_with(b"PRI ") && self.may_begin_http2(cx) => {
                self.begin_http2(now, cx);
                None
            }
            Err(fault) => {
                self.refuse_fault(fault, cx);
                None
            }
        }
    }

    /// Continues after the head of a request. None: the step is to be asked for again.
    #[inline(always)]
    pub(super) fn begin_request(&mut self, is_secured: bool, cx: &Context) -> Option<Step> {
        let head = &self.buffers.as_deref()?.head;
        let has_use = match head.framing {
            Framing::None => false,
            // The handler rejects it at once, or has a limit of its own.
            Framing::Length(length) => length <= cx.settings.body_bytes_max,
            Framing::Chunked => true,
        };
        // A client that waits for 100 Continue sends nothing before the handler asks for it.
        let may_read_ahead = has_use && !self.http.wants_continue();
        let is_absolute = head.is_absolute();
        let ahead = if may_read_ahead { self.reads_ahead(cx)? } else { false };
        self.phase = if ahead { Phase::Body } else { Phase::Ready };
        if is_absolute || is_secured {
            self.refuse_if_misdirected(cx);
        }
        None
    }

    /// Waits for more of the request. Unsent bytes go first, and until then the peer's time is that of the response.
    /// Otherwise each byte that arrives would give the peer more time to leave the response unread.
    pub(super) fn read_on(&mut self, what: TimeoutKind, now: Tick) -> Step {
        if self.unsent() > 0 {
            return Step::Write;
        }
        // The timer of a first head has begun with the connection.
        self.count.enter(ConnState::Reading);
        if self.timer.kind != what {
            self.owner.arrived = None;
            self.timer = self.timer.then(what, now);
            // The request may have been split into any segments, so a part may have arrived with earlier bytes.
            self.timer.count(match what {
                TimeoutKind::Head => self.buffers.as_ref().map_or(0, |buffers| buffers.unread().len()),
                TimeoutKind::Body => self.bytes_ahead(),
                _ => 0,
            });
        }
        Step::Read
    }

    /// Returns whether the response to another request may wait behind unsent bytes. If the peer was slow, it may not.
    /// The peer must read everything first, so that its time is that of a wait, and not of a call.
    #[inline]
    pub(super) fn has_output_space(&self) -> bool {
        let unsent = self.unsent();
        unsent == 0 || (unsent <= OUTPUT_BYTES_MAX && self.timer.kind != TimeoutKind::Write)
    }

    /// Starts the peer's next step, unless it still has a response to read. If every request restarted that time, a
    /// client that pipelines would never have to read.
    #[inline]
    pub(super) fn turn_to(&mut self, what: TimeoutKind, now: Tick) {
        if self.timer.kind != TimeoutKind::Write || self.unsent() == 0 {
            self.timer = self.timer.then(what, now);
        }
    }

    /// Returns whether no byte of the next request has arrived.
    fn between_requests(&mut self, now: Tick, cx: &Context) -> Step {
        if self.unsent() > 0 {
            return Step::Write;
        }
        // Only after a read that found nothing, because closing after a request has arrived would reset it (RFC 9112
        // section 9.6).
        let is_over = now >= self.expires || self.is_drained(now, cx);
        if is_over && !self.read_ready {
            self.phase = Phase::Done;
            return Step::Close;
        }
        Step::Read
    }

    #[inline(never)]
    pub(super) fn read_ahead(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        loop {
            match self.decode(cx) {
                Ok(BodyEvent::Data { .. }) => {}
                Ok(BodyEvent::End) => {
                    self.phase = Phase::Ready;
                    return None;
                }
                Ok(BodyEvent::NeedMore) => {
                    if self.bytes_ahead() as u64 >= cx.settings.body_ahead_bytes_max {
                        self.phase = Phase::Ready;
                        return None;
                    }
                    return Some(self.read_on(TimeoutKind::Body, now));
                }
                Err(fault) => {
                    self.refuse_fault(fault, cx);
                    return None;
                }
            }
        }
    }
}
