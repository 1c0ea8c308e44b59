//! The end of a connection: after a body, a timeout, or a close by the peer.

use std::time::Duration;

use weftwork_wire::{After, BodyEvent};

use super::{Conn, Phase, Step};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::ConnState;

/// Time after accept in which the first request may still arrive while the server drains, because it may be on its way
/// already. The request of a client that has just connected is in the next packet.
pub(super) const FIRST_REQUEST: Duration = Duration::from_millis(250);

impl Conn {
    /// Returns whether the server drains and nothing more is to be waited for here.
    pub(crate) fn is_drained(&self, now: Tick, cx: &Context) -> bool {
        cx.stage() != Stage::Running && self.is_idle() && now >= self.drained_at(cx)
    }

    /// Returns when an idle connection ends while the server drains. A request that is on its way arrives before.
    pub(super) fn drained_at(&self, cx: &Context) -> Tick {
        match self.is_new() {
            true => self.timer.began().after(FIRST_REQUEST),
            false => self.timer.progress().after(cx.drain_idle_timeout()),
        }
    }

    /// Returns whether no byte of the first request has arrived.
    pub(crate) fn is_new(&self) -> bool {
        use TimeoutKind::{Handshake, Head, ProxyHeader};
        matches!(self.timer.kind, Head | ProxyHeader | Handshake) && self.is_idle()
    }

    /// The head of a response was written whose body may break off.
    pub(super) fn guard_end(&mut self) {
        if self.http.is_cut_short() {
            self.stream.reset_unless_ended();
        }
    }

    /// Announces that only the end follows the bytes to send, so that both leave in one packet. `/health` with
    /// `Connection: close` took 27.8 us of CPU with two packets, and 22.6 us with one.
    #[inline]
    pub(super) fn ends_in_order(&self) -> bool {
        matches!(self.phase, Phase::Send(After::Close | After::Linger)) && !self.http.is_cut_short()
    }

    /// Continues after the whole last response was sent. The end of a TLS session may have to wait.
    pub(super) fn end(&mut self, after: After, now: Tick) -> Option<Step> {
        if self.passes_body_before_end() {
            return None;
        }
        if self.is_stream() && !self.is_tunnel() {
            self.phase = Phase::Done;
            return None;
        }
        if self.http.is_cut_short() {
            self.phase = Phase::Done;
            return None;
        }
        if !self.stream.close_session() {
            // The phase does not change, and comes back here.
            return Some(Step::Write);
        }
        self.stream.end_in_order();
        let lingers = after != After::Close || self.may_send_more();
        // Also without the lingering, because a reset would drop bytes that are held back for the end.
        self.stream.shutdown_write();
        if !lingers {
            self.phase = Phase::Done;
            return None;
        }
        self.timer = self.timer.then(TimeoutKind::Linger, now);
        self.count.enter(ConnState::Lingering);
        self.phase = Phase::Linger;
        None
    }

    /// Returns whether the peer may send more. Bytes after the last request would turn the close into a reset, which
    /// destroys the part of the response that has not arrived. A peer that did not ask for the close may have sent some
    /// already. During a long response, it may send some at any time.
    fn may_send_more(&mut self) -> bool {
        self.peer_keep_alive
            || self.has_sent_much
            || self.buffers.as_deref().is_some_and(|b| b.raw < b.input.len())
            || (self.read_ready || self.handler_ran) && self.has_sent_more()
    }

    /// Checking costs a system call, which is not needed for a short response to a quick request.
    #[cold]
    fn has_sent_more(&mut self) -> bool {
        let input = &mut self.buffers.get_or_insert_default().input;
        input.reserve(1);
        matches!(self.stream.recv(input), Ok(1..))
    }

    /// Drops the rest of the body after the response, up to a limit, to keep the connection.
    #[inline(never)]
    pub(super) fn drain(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        if self.owned_body.is_some() {
            return self.pass_rest(now, cx);
        }
        loop {
            let dropped = self.decode(cx);
            self.forget_payload();
            match dropped {
                Ok(BodyEvent::Data { .. }) => {}
                Ok(BodyEvent::End) => {
                    self.count.enter(ConnState::Idle);
                    self.next_request(now);
                    return None;
                }
                Ok(BodyEvent::NeedMore) if self.may_drain_on(cx) => {
                    return Some(self.read_on(TimeoutKind::Drain, now));
                }
                Ok(BodyEvent::NeedMore) | Err(_) => {
                    self.phase = Phase::Send(After::Linger);
                    return None;
                }
            }
        }
    }

    /// While the response is unsent, only the progress of the response counts for the peer.
    fn may_drain_on(&self, cx: &Context) -> bool {
        self.timer.kind != TimeoutKind::Drain || self.timer.bytes() <= cx.settings.unread_bytes_max
    }

    /// Drops what the peer still sends, up to a limit. After that nothing is read until the deadline: many clients look for
    /// the response only when they cannot send, and a reset would make their sending fail first.
    #[inline(never)]
    pub(super) fn linger(&mut self, cx: &Context) -> Option<Step> {
        if self.awaits_reader() {
            self.read_last_frames(cx);
            if self.has_read_end() {
                self.phase = Phase::Done;
                return None;
            }
        } else if let Some(buffers) = self.buffers.as_deref_mut() {
            buffers.input.clear();
            (buffers.start, buffers.raw) = (0, 0);
        }
        let is_over = self.timer.bytes() > cx.settings.linger_bytes_max;
        // The end of a stream of HTTP/2 resets no kernel's buffer.
        if cx.stage() == Stage::Closing || is_over && self.is_stream() {
            self.phase = Phase::Done;
            return None;
        }
        // If the peer has ended its side, no more than the kernel's buffer is left, and the end is behind it.
        if is_over && !self.read_closed {
            self.read_ready = true;
            return Some(Step::WaitFeed);
        }
        Some(Step::Read)
    }

    /// Drops what the peer still sends after its last response.
    pub(crate) fn is_lingering(&self) -> bool {
        self.phase == Phase::Linger
    }

    /// Returns whether everything was sent to the peer, and the peer has sent nothing for this time.
    pub(crate) fn is_lingering_for(&self, time: Duration, now: Tick) -> bool {
        self.is_lingering() && !self.awaits_reader() && self.timer.progress().after(time) <= now
    }

    /// Drops a request that has waited for a thread if no client waits for its response. A client that has given up
    /// looks like a client that has closed only its sending side. The latter is rare, and is told to try again.
    pub(crate) fn drop_if_abandoned(&mut self, now: Tick, cx: &Context) {
        let timeout = cx.settings.request_timeout;
        // If a thread reads the request, it arrived together with the thread.
        let came = self.timer.progress();
        let queued = self.owner.queued_since.take();
        let since = queued.map_or(came, |queued| queued.min(came));
        if let Some(queued) = queued {
            self.leave_queue(queued, now, cx);
        }
        let is_late = !timeout.is_zero() && now >= since.after(timeout);
        if self.phase == Phase::Ready && (is_late || self.stream.peer_has_gone()) {
            self.refuse_abandoned(is_late, cx);
        }
    }

    /// Handles the end of the peer's side. Complete requests from before were already answered. A peer that waits for a
    /// response with an end has not gone (RFC 9112 section 9.6): it gets the response, and those to its requests behind.
    pub(crate) fn on_eof(&mut self) {
        if self.ends_handshake() {
            return;
        }
        // Without the rest of its request, a client is not waited for.
        let is_whole = self.owned_body.is_none();
        if is_whole && self.awaits_end_of_response() && !self.stream.is_reset() {
            (self.peer_ended, self.read_ready) = (true, false);
            return;
        }
        self.phase = match self.phase {
            Phase::Head if self.unsent() > 0 => Phase::Send(After::Close),
            _ => Phase::Done,
        };
    }

    /// Handles an error of the connection. The peer gets nothing more.
    pub(crate) fn on_reset(&mut self) {
        self.note_end_of_stream();
        if !self.ends_handshake() {
            self.phase = Phase::Done;
        }
    }

    fn awaits_end_of_response(&self) -> bool {
        matches!(self.phase, Phase::Deferred | Phase::FeedBody)
            && self.pending_body.as_deref().is_some_and(|body| !body.ends_with_client())
    }

    /// Makes the end of the connection a reset if a request or a response is in progress, so that a partial response never
    /// looks complete.
    pub(crate) fn cut_off(&mut self) {
        self.stop_body();
        if !self.is_idle() && !matches!(self.phase, Phase::Linger | Phase::Done) {
            self.stream.reset_unless_ended();
        }
    }

    /// Handles a deadline. Tells the peer, if that helps, and ends the connection.
    pub(crate) fn on_timeout(&mut self, now: Tick, cx: &Context) {
        if self.passes_body() && self.on_body_timeout(now, cx) {
            return;
        }
        if self.awaits_response() && !self.awaits_output_space() {
            // The delayed response is due, and the next step handles it.
            return;
        }
        if self.phase == Phase::Http2 && self.timer.kind != TimeoutKind::Write {
            return self.on_timeout_of_http2(now, cx);
        }
        let started = self.buffers.as_ref().is_some_and(|buffers| !buffers.has_no_request());
        match self.timer.kind {
            TimeoutKind::Head if started => self.refuse_timeout(cx),
            TimeoutKind::Body => self.refuse_timeout(cx),
            TimeoutKind::Drain => {
                self.note_timeout(cx);
                self.phase = Phase::Send(After::Linger);
                self.timer = self.timer.then(TimeoutKind::Linger, now);
            }
            TimeoutKind::Idle | TimeoutKind::Linger => self.phase = Phase::Done,
            TimeoutKind::Heartbeat => self.heartbeat(now, cx),
            TimeoutKind::Write => match self.makes_progress(now, cx) {
                Ok(true) => {}
                Ok(false) => {
                    // Bytes that the peer has not read would stay in the kernel.
                    self.stream.reset_unless_ended();
                    self.leave(cx);
                    self.cut_stream();
                }
                // The peer has gone, which is not a timeout.
                Err(_) => self.phase = Phase::Done,
            },
            // The deadline has not passed.
            TimeoutKind::Head | TimeoutKind::ProxyHeader | TimeoutKind::Handshake
                if self.is_drained(now, cx) =>
            {
                self.phase = Phase::Done
            }
            TimeoutKind::Head | TimeoutKind::ProxyHeader => self.leave(cx),
            TimeoutKind::Handshake => self.leave_handshake(cx),
        }
    }

    /// Resets a stream of HTTP/2 with `CANCEL`, because its client is too slow or another protocol has failed. Without it,
    /// the client would have its time once more for the bytes that the stream holds, and the end of a tunnel would look like
    /// an end in order.
    #[cold]
    pub(super) fn cut_stream(&self) {
        if self.is_stream() {
            self.stream.cut();
        }
    }

    fn leave(&mut self, cx: &Context) {
        self.note_timeout(cx);
        self.phase = Phase::Done;
    }
}
