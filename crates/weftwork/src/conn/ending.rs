//! When is a connection over? After what is left of a body, of its time, or of its peer.

use std::time::Duration;

use weftwork_wire::{After, BodyEvent};

use super::{Conn, Phase, Step};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::Timeout;

/// After the server has begun to drain, the first request of a connection may still come for so long behind the accept: it
/// may have been on its way already. Between two requests nobody waits: a client has to reckon with an end there.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

impl Conn {
    /// The server drains, and nothing more is to be waited for here.
    pub(crate) fn is_drained(&self, now: Tick, cx: &Context) -> bool {
        let may_yet_ask = || self.is_unused() && now < self.first_request_by();
        cx.stage() != Stage::Running && self.is_idle() && !may_yet_ask()
    }

    /// Nothing has come of its first request.
    pub(crate) fn is_unused(&self) -> bool {
        matches!(self.pace.what, Timeout::Head | Timeout::ProxyHeader) && self.is_idle()
    }

    pub(super) fn first_request_by(&self) -> Tick {
        self.pace.began().after(FIRST_REQUEST)
    }

    /// The head of a response is written whose body may break off.
    pub(super) fn guard_end(&mut self) {
        if self.http.is_cut_short() {
            self.stream.reset_unless_ended();
        }
    }

    /// Behind what is sent comes the end, and nothing else: both leave in one packet. `/health` with `Connection: close` took
    /// 27.8 us of CPU with two, and takes 22.6.
    #[inline]
    pub(super) fn ends_in_order(&self) -> bool {
        matches!(self.phase, Phase::Send(After::Close | After::Linger)) && !self.http.is_cut_short()
    }

    /// All that there is of the last response has been sent.
    pub(super) fn end(&mut self, after: After, now: Tick) {
        if self.http.is_cut_short() {
            self.phase = Phase::Done;
            return;
        }
        self.stream.end_in_order();
        let lingers = after != After::Close || self.may_send_more();
        // Also without: what is held back for the end would not leave with a reset.
        self.stream.shutdown_write();
        if !lingers {
            self.phase = Phase::Done;
            return;
        }
        self.pace = self.pace.then(Timeout::Linger, now);
        self.open.note_lingering();
        self.phase = Phase::Linger;
    }

    /// Bytes behind the last request would turn our close into a reset, which takes along what of the answer has not
    /// arrived. A peer that did not ask for the close may have some on their way; and of a long answer it may send some at any
    /// time before all has arrived.
    fn may_send_more(&mut self) -> bool {
        self.peer_persists
            || self.has_sent_much
            || self.buffers.as_deref().is_some_and(|b| b.raw < b.input.len())
            || (self.readable || self.has_dwelt) && self.has_sent_more()
    }

    /// One system call, which a short answer to a quick request is spared.
    #[cold]
    fn has_sent_more(&mut self) -> bool {
        let input = &mut self.buffers.get_or_insert_default().input;
        input.reserve(1);
        matches!(self.stream.recv(input), Ok(1..))
    }

    /// The answer is out and the body is not in: dropped up to a budget, to keep the connection.
    #[inline(never)]
    pub(super) fn drain(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        loop {
            let dropped = self.decode(cx);
            self.forget_payload();
            match dropped {
                Ok(BodyEvent::Data { .. }) => {}
                Ok(BodyEvent::End) => {
                    self.next_request(now);
                    return None;
                }
                Ok(BodyEvent::NeedMore) if self.may_drain_on(cx) => {
                    return Some(self.read_on(Timeout::Drain, now));
                }
                Ok(BodyEvent::NeedMore) | Err(_) => {
                    self.phase = Phase::Send(After::Linger);
                    return None;
                }
            }
        }
    }

    /// While the answer is unsent, what the peer has got on with is that.
    fn may_drain_on(&self, cx: &Context) -> bool {
        self.pace.what != Timeout::Drain || self.pace.bytes() <= cx.settings.unread_bytes_max.0
    }

    #[inline(never)]
    pub(super) fn linger(&mut self, cx: &Context) -> Option<Step> {
        if let Some(buffers) = self.buffers.as_deref_mut() {
            buffers.input.clear();
            (buffers.start, buffers.raw) = (0, 0);
        }
        if self.pace.bytes() > cx.settings.linger_bytes_max.0 || cx.stage() == Stage::Closing {
            self.phase = Phase::Done;
            return None;
        }
        Some(Step::Read)
    }

    /// Its last answer is out, and what its peer still sends is dropped.
    pub(crate) fn is_lingering(&self) -> bool {
        self.phase == Phase::Linger
    }

    /// A request has waited for a thread. If nobody waits for its answer any more, it is not worth one. Who has given up
    /// and closed looks like a client that has only ended its side; the latter is rare, and is told to try again.
    pub(crate) fn forsake_if_vain(&mut self, now: Tick, cx: &Context) {
        let timeout = cx.settings.request_timeout;
        // Where a thread reads the request, that has come when the thread has.
        let came = self.pace.progress();
        let since = self.queued_since.take().map_or(came, |queued| queued.min(came));
        let is_late = !timeout.is_zero() && now >= since.after(timeout);
        if self.phase == Phase::Ready && (is_late || self.stream.peer_has_gone()) {
            self.refuse_abandoned(is_late, cx);
        }
    }

    /// The peer has ended its side. Whole requests that it sent before are answered already.
    pub(crate) fn end_of_input(&mut self) {
        self.phase = match self.phase {
            Phase::Head if self.unsent() > 0 => Phase::Send(After::Close),
            _ => Phase::Done,
        };
    }

    /// The deadline passed: says so to the peer where that helps, and ends the connection.
    pub(crate) fn expire(&mut self, now: Tick, cx: &Context) {
        if self.awaits_response() && !self.awaits_room() {
            // It is the response that is due: the next step says so.
            return;
        }
        let started = self.buffers.as_ref().is_some_and(|buffers| !buffers.has_no_request());
        match self.pace.what {
            Timeout::Head if started => self.refuse_timeout(cx),
            Timeout::Body => self.refuse_timeout(cx),
            Timeout::Drain => {
                self.note_timeout(cx);
                self.phase = Phase::Send(After::Linger);
                self.pace = self.pace.then(Timeout::Linger, now);
            }
            Timeout::Idle | Timeout::Linger => self.phase = Phase::Done,
            Timeout::Silence => self.beat(now, cx),
            Timeout::Write => match self.gets_on(now, cx) {
                Ok(true) => {}
                Ok(false) => {
                    // What it has not taken would stay with the kernel.
                    self.stream.reset_unless_ended();
                    self.leave(cx);
                }
                // Its peer has gone, and that is not late.
                Err(_) => self.phase = Phase::Done,
            },
            // It is not late.
            Timeout::Head | Timeout::ProxyHeader if self.is_drained(now, cx) => self.phase = Phase::Done,
            Timeout::Head | Timeout::ProxyHeader => self.leave(cx),
        }
    }

    fn leave(&mut self, cx: &Context) {
        self.note_timeout(cx);
        self.phase = Phase::Done;
    }
}
