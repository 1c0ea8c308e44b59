//! The end of a connection: in two steps, so that no request on its way is lost (RFC 9113 section 6.8).

use std::time::Duration;

use weftwork_wire::{After, ErrorCode, Frame, Head, Http2, Http2Fault};

use super::streams::ResponsePart;
use super::{Http2Conn, Role};
use crate::conn::close::FIRST_REQUEST;
use crate::conn::observed::Observed;
use crate::conn::refusal::{Peer, log_client};
use crate::conn::{Conn, Flushed, Phase};
use crate::message::observer::ResponseEnd;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::{Event, GoawayReason};
use crate::transport::{Buffers, Tick};

/// Number of a GOAWAY that only announces the next one.
const ANNOUNCED: u32 = 0x7fff_ffff;
/// Content of the PING that follows the first GOAWAY.
const PING: [u8; 8] = *b"goaway\r\n";
/// Content of the PING that follows the last response.
const LAST_PING: [u8; 8] = *b"the end\n";
/// Bytes at the end of the last responses that a client has read before `linger_timeout` is over, however slow it is.
const TAIL_BYTES: u64 = 32 << 10;
/// Time for the client to answer that PING.
const ROUND_TRIP: Duration = Duration::from_secs(1);
/// Time for the client to answer the PING of a quiet connection, if `heartbeat` is shorter. Mobile networks may take seconds.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How far the end of the connection is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goaway {
    step: GoawayStep,
    /// The client opens no more streams.
    is_of_client: bool,
    /// Bytes of responses that were sent before the first GOAWAY.
    sent_before: u64,
    /// The client has not answered the last PING.
    awaits_last_ping: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GoawayStep {
    #[default]
    None,
    /// The connection is to end.
    Wanted(GoawayReason),
    /// The first GOAWAY and a PING were sent.
    Announced { until: Tick },
    /// All streams on their way have arrived.
    Answered,
    /// The last GOAWAY was sent, which names the last stream that is answered.
    Last { stream: u32 },
    /// It was sent because of an error. Nothing is answered.
    Failed,
}

impl Goaway {
    /// Begins the end of the connection.
    pub(super) fn begin(&mut self, why: GoawayReason) {
        if self.step == GoawayStep::None {
            self.step = GoawayStep::Wanted(why);
        }
    }

    /// Returns whether a new stream is accepted.
    pub(super) fn takes(&self, stream: u32) -> bool {
        match self.step {
            GoawayStep::Last { stream: last } => stream <= last,
            GoawayStep::Failed => false,
            _ => true,
        }
    }

    pub(super) fn client_leaves(&mut self) {
        self.is_of_client = true;
    }

    /// Returns whether the client was told that the connection ends.
    pub(super) fn is_announced(&self) -> bool {
        !matches!(self.step, GoawayStep::None | GoawayStep::Wanted(_))
    }

    /// Returns whether no frame of the client matters any more.
    pub(super) fn is_final(&self) -> bool {
        self.step == GoawayStep::Failed
    }
}

fn is_stopping(cx: &Context) -> bool {
    cx.stage() != Stage::Running || cx.is_stopping()
}

/// Writes a reset, and counts it.
pub(super) fn write_reset(stream: u32, code: ErrorCode, output: &mut Vec<u8>, cx: &Context) {
    cx.record(Event::ResetSent(code.into()));
    Http2::write_reset(stream, code, output);
}

impl Http2Conn {
    /// Ends the connection over an error of the client.
    pub(super) fn fail(&mut self, fault: &Http2Fault, output: &mut Vec<u8>, cx: &Context) {
        cx.record(Event::GoawaySent(fault.into()));
        Http2::write_goaway(self.last_stream(), fault.code(), output);
        self.goaway.step = GoawayStep::Failed;
    }

    /// Returns the last stream that may be answered. A later GOAWAY names no higher one (RFC 9113 section 6.8).
    fn last_stream(&self) -> u32 {
        match self.goaway.step {
            GoawayStep::Last { stream } => stream,
            _ => self.http.last_stream(),
        }
    }

    /// Takes the answer to a PING. The client has read what was sent before.
    pub(super) fn take_ping(&mut self, data: [u8; 8]) {
        match data {
            PING => {
                self.data_read = self.data_read.max(self.goaway.sent_before);
                if matches!(self.goaway.step, GoawayStep::Announced { .. }) {
                    self.goaway.step = GoawayStep::Answered;
                }
            }
            LAST_PING => self.goaway.awaits_last_ping = false,
            _ => {}
        }
    }

    /// Returns whether the client may still have much to read.
    fn has_long_tail(&self, now: Tick, cx: &Context) -> bool {
        let is_old = now >= self.data_at.after(cx.settings.write_timeout);
        self.goaway.step != GoawayStep::Failed && !is_old && self.data_sent - self.data_read > TAIL_BYTES
    }

    /// Goes on with the end of the connection. Returns whether it is over, except for what is unsent.
    pub(super) fn stop(&mut self, now: Tick, cx: &Context, output: &mut Vec<u8>, expires: Tick) -> bool {
        if is_stopping(cx) && self.first_until(cx).is_none_or(|until| now >= until) {
            self.goaway.begin(GoawayReason::Stop);
        } else if now >= expires {
            self.goaway.begin(GoawayReason::Age);
        }
        match self.goaway.step {
            GoawayStep::Wanted(why) => {
                cx.record(Event::GoawaySent(why));
                Http2::write_goaway(ANNOUNCED, ErrorCode::NO_ERROR, output);
                Http2::write_ping(PING, output);
                self.goaway.sent_before = self.data_sent;
                self.goaway.step = GoawayStep::Announced { until: now.after(ROUND_TRIP) };
            }
            GoawayStep::Announced { until } if now >= until => self.goaway.step = GoawayStep::Answered,
            _ => {}
        }
        if self.goaway.step == GoawayStep::Answered {
            let stream = self.http.last_stream();
            Http2::write_goaway(stream, ErrorCode::NO_ERROR, output);
            self.goaway.step = GoawayStep::Last { stream };
        }
        match self.goaway.step {
            GoawayStep::Failed => true,
            GoawayStep::Last { .. } => self.streams.is_empty(),
            _ => self.goaway.is_of_client && self.streams.is_empty(),
        }
    }

    /// Ends all streams, because the server ends: those whose handlers have not run first, so that they never will.
    fn cut(&mut self, now: Tick, cx: &Context, output: &mut Vec<u8>, observed: &mut Option<Box<Observed>>) {
        for stream in self.streams.iter_mut() {
            if stream.response == ResponsePart::Head && !stream.is_reset && stream.pipe.claim() {
                stream.is_reset = true;
                write_reset(stream.id, ErrorCode::REFUSED_STREAM, output, cx);
            }
        }
        self.collect(now, cx, output, observed);
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_done()) {
            stream.break_off(ErrorCode::CANCEL, output, cx);
        }
        if !matches!(self.goaway.step, GoawayStep::Last { .. } | GoawayStep::Failed) {
            cx.record(Event::GoawaySent(GoawayReason::Stop));
            Http2::write_goaway(self.http.last_stream(), ErrorCode::NO_ERROR, output);
        }
    }

    /// Returns until when the first request may come although the server stops. Some clients, such as HAProxy, fail that
    /// request if GOAWAY comes first, also one that takes it.
    fn first_until(&self, cx: &Context) -> Option<Tick> {
        let until = match cx.stage() {
            // New connections are welcome.
            Stage::Running => Tick(u64::MAX),
            _ => self.begun.after(FIRST_REQUEST),
        };
        (self.http.last_stream() == 0).then_some(until)
    }

    /// Returns when the client must have opened a window for a response whose request is gone.
    fn left_until(&self, cx: &Context) -> Option<Tick> {
        self.streams.iter().filter_map(|stream| Some(stream.left.as_ref()?.deadline(&cx.settings))).min()
    }

    /// Ends the responses whose clients have opened no window in time.
    fn reset_late(&mut self, now: Tick, cx: &Context, output: &mut Vec<u8>) {
        for stream in self.streams.iter_mut() {
            if stream.left.as_ref().is_some_and(|left| now >= left.deadline(&cx.settings)) {
                cx.record(Event::TimedOut(TimeoutKind::Write));
                write_reset(stream.id, ErrorCode::CANCEL, output, cx);
                stream.pipe.note_error(ResponseEnd::WRITE_TIMEOUT);
                stream.pipe.reset();
                (stream.is_reset, stream.is_ready, stream.left) = (true, true, None);
            }
        }
    }

    /// Returns when the end of the connection goes on by itself.
    fn stops_at(&self, cx: &Context) -> Option<Tick> {
        match self.goaway.step {
            GoawayStep::Announced { until } => Some(until),
            GoawayStep::None if is_stopping(cx) => self.first_until(cx),
            _ => None,
        }
    }
}

impl Conn {
    #[cold]
    pub(super) fn log_fault_of_http2(&self, fault: &Http2Fault, cx: &Context) {
        log_client(cx, format_args!("closing {}: {fault}", Peer(self)));
    }

    /// Begins the end of a connection of HTTP/2 that has sent its last response. A client that reads slowly sends WINDOW_UPDATE
    /// meanwhile, and the kernel answers those with a reset once the socket is closed: the rest would be lost. So the socket is
    /// kept until the client has answered a PING.
    #[cold]
    pub(super) fn end_http2(&mut self, now: Tick, cx: &Context) {
        self.phase = Phase::Send(After::Linger);
        let may_linger = !cx.settings.linger_timeout.is_zero();
        match &mut self.role {
            Role::Connection(http2) if may_linger && http2.has_long_tail(now, cx) => {
                let output = &mut self.buffers.get_or_insert_default().output;
                Http2::write_ping(LAST_PING, output);
                http2.goaway.awaits_last_ping = true;
            }
            _ => self.role = Role::Http1,
        }
    }

    /// Returns whether a connection that lingers waits for a client that may still have much to read.
    #[inline]
    pub(in crate::conn) fn awaits_reader(&self) -> bool {
        matches!(&self.role, Role::Connection(http2) if http2.goaway.awaits_last_ping)
    }

    /// Returns whether the client has answered the last PING.
    pub(in crate::conn) fn has_read_end(&self) -> bool {
        matches!(&self.role, Role::Connection(http2) if !http2.goaway.awaits_last_ping)
    }

    /// Takes frames of a client that reads the end of its responses. If a frame breaks a rule, the connection lingers as any
    /// other.
    #[cold]
    pub(in crate::conn) fn read_last_frames(&mut self, cx: &Context) {
        let Role::Connection(http2) = &mut self.role else { return };
        let Some(Buffers { input, start, .. }) = self.buffers.as_deref_mut() else { return };
        let (mut head, mut text) = (Head::default(), Vec::new());
        loop {
            let read = http2.http.read(&input[*start..], &cx.limits, &mut head, &mut text);
            let Ok((used, frame)) = read else {
                self.role = Role::Http1;
                return;
            };
            *start += used;
            match frame {
                Frame::NeedMore => break,
                Frame::PingAcked(data) => http2.take_ping(data),
                _ => {}
            }
        }
        input.drain(..*start);
        *start = 0;
    }

    /// Ends a connection of HTTP/2 whose requests are in progress, because the server ends. Its client learns which requests were
    /// not begun, so that it may send them again (RFC 9113 section 8.7). No thread waits for the client.
    #[cold]
    pub(crate) fn cut_off_http2(mut self: Box<Conn>, now: Tick, cx: &Context) {
        let mut buffers = self.buffers.take().unwrap_or_default();
        if let Role::Connection(http2) = &mut self.role {
            http2.cut(now, cx, &mut buffers.output, &mut self.observed);
        }
        self.buffers = Some(buffers);
        match self.flush(now) {
            Ok(Flushed::All) => self.send_and_close(now),
            _ => self.cut_off(),
        }
    }

    /// Handles a deadline of a connection of HTTP/2.
    #[cold]
    pub(in crate::conn) fn on_timeout_of_http2(&mut self, now: Tick, cx: &Context) {
        let Role::Connection(http2) = &mut self.role else { return };
        if http2.left_until(cx).is_some_and(|until| now >= until) {
            let output = &mut self.buffers.get_or_insert_default().output;
            return http2.reset_late(now, cx, output);
        }
        let is_aged = http2.goaway.step == GoawayStep::None && now >= self.expires;
        if is_aged || http2.stops_at(cx).is_some_and(|until| now >= until) {
            // The next step goes on.
            return;
        }
        let output = &mut self.buffers.get_or_insert_default().output;
        if now < self.timer.deadline(&cx.settings) {
            return;
        }
        let is_gone = http2.pinged_at.is_some_and(|at| now >= at.after(PING_TIMEOUT));
        if self.timer.kind == TimeoutKind::Heartbeat && !is_gone {
            if http2.pinged_at.is_none() {
                Http2::write_ping(*b"life\r\n\r\n", output);
                http2.pinged_at = Some(now);
            }
            self.timer = self.timer.then(TimeoutKind::Heartbeat, now);
            return;
        }
        let why = match self.timer.kind {
            TimeoutKind::Idle => GoawayReason::Idle,
            _ => GoawayReason::Timeout,
        };
        if self.timer.kind == TimeoutKind::Head {
            cx.record(Event::TimedOut(TimeoutKind::Head));
        }
        cx.record(Event::GoawaySent(why));
        Http2::write_goaway(http2.last_stream(), ErrorCode::NO_ERROR, output);
        http2.goaway.step = GoawayStep::Failed;
    }

    /// Returns when a connection of HTTP/2 must be looked at.
    #[cold]
    pub(in crate::conn) fn deadline_of_http2(&self, cx: &Context) -> Tick {
        let due = self.timer.deadline(&cx.settings);
        match &self.role {
            Role::Connection(http2) => {
                let ages = if http2.goaway.step == GoawayStep::None { self.expires } else { Tick(u64::MAX) };
                let until = due.min(ages).min(http2.stops_at(cx).unwrap_or(ages));
                match self.timer.kind {
                    // The client has to read first.
                    TimeoutKind::Write => due,
                    _ => http2.left_until(cx).map_or(until, |left| left.min(until)),
                }
            }
            _ => due,
        }
    }
}
