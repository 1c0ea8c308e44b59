//! A connection whose body other threads send. It sends the bytes as they are provided, and holds nothing meanwhile.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use weftwork_wire::{After, Misuse};

use super::receiver::Receiver;
use super::refusal::log_client;
use super::{Conn, PendingBody, Phase, Step};
use crate::error::{OneLine, panic_message};
use crate::message::drop_caught::{DropEach, caught};
use crate::message::observer::ResponseEnd;
use crate::message::{Feed, FeedPoll, UpgradePanic, WakeConn};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::{ConnState, Event};
use crate::transport::log_queue::log_line;

/// Bytes of messages that are copied to the write buffer at a time. A slow client holds no more than that, besides its
/// queue, whose messages are shared.
const PULLED_BYTES: usize = 16 << 10;
/// Bytes that a client may send ahead during a feed or before a later response. Further bytes wait in the kernel.
pub(super) const AHEAD_BYTES_MAX: usize = 16 << 10;

/// A feed and its progress.
pub(super) struct FeedBody {
    feed: Feed,
    /// Receiver of the other protocol. Absent if the feed is the body of a response.
    receiver: Option<Box<Receiver>>,
    /// Rest of a message that was partly sent.
    partial: Bytes,
    final_message: Option<Bytes>,
    /// Whether the other side was told that the server stops.
    stop_sent: bool,
    /// When it is told, after the server has begun to drain.
    stops_at: Option<Tick>,
    /// Whether its client accepts trailers.
    wants_trailers: bool,
    /// What was requested, for the log. Kept if the feed may fail by itself: see [`FeedBody::of_response`].
    request: Option<Box<str>>,
}

impl fmt::Debug for FeedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedBody").finish_non_exhaustive()
    }
}

impl FeedBody {
    pub(super) fn new(feed: Feed, receiver: Option<Box<Receiver>>) -> FeedBody {
        FeedBody {
            feed,
            receiver,
            partial: Bytes::new(),
            final_message: None,
            stop_sent: false,
            stops_at: None,
            wants_trailers: false,
            request: None,
        }
    }

    /// Returns the body of a response. `request` is what was requested, if the response declares a length or a future fills the
    /// feed. Most feeds have neither, and keep nothing of their request.
    pub(super) fn of_response(feed: Feed, wants_trailers: bool, request: Option<Box<str>>) -> FeedBody {
        let mut fed = FeedBody::new(feed, None);
        (fed.wants_trailers, fed.request) = (wants_trailers, request);
        fed
    }

    /// Returns what was requested, for a line of the log.
    fn at(&self) -> String {
        self.request.as_ref().map(|request| format!(" at {request}")).unwrap_or_default()
    }

    /// Returns the next bytes to send, at most `most`.
    fn next(&mut self, most: usize) -> FeedPoll {
        if self.partial.is_empty() {
            match self.feed.pull() {
                FeedPoll::Message(message) => self.partial = message,
                FeedPoll::End => match self.final_message.take() {
                    Some(final_message) => self.partial = final_message,
                    None => return FeedPoll::End,
                },
                other => return other,
            }
        }
        // A whole message is passed on with its owner, which is the user's.
        FeedPoll::Message(self.partial.split_to(most.min(self.partial.len())))
    }

    /// Wakes the connection when there is a message, or room for bytes. Returns false if that is so already.
    fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        self.feed.watch(wakes, key)
            && self.receiver.as_ref().is_none_or(|receiver| !receiver.is_woken(&self.feed))
    }

    fn refuse_if_cut(&self) -> io::Result<()> {
        self.feed.why_cut().map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    /// Returns whether it ends when the server stops, and when the peer closes its side.
    pub(super) fn is_endless(&self) -> bool {
        self.receiver.is_some() || self.feed.is_endless
    }

    /// Returns whether a client that has closed its side has left.
    pub(super) fn ends_with_client(&self) -> bool {
        self.is_endless() || self.feed.has_source()
    }

    /// Returns when the other side is told that the server stops, once that is known and still to come.
    pub(super) fn stops_at(&self) -> Option<Tick> {
        self.stops_at.filter(|_| !self.stop_sent)
    }

    /// Reports the stop of the server in its time.
    fn stop_in_time(&mut self, now: Tick, cx: &Context) {
        let stops_at = *self.stops_at.get_or_insert_with(|| now.after(cx.stop_delay()));
        if now >= stops_at {
            self.send_stop();
        }
    }

    /// Reports once that the server stops. The feed is ended, or the other protocol is told to end.
    fn send_stop(&mut self) {
        if std::mem::replace(&mut self.stop_sent, true) {
            return;
        }
        if !self.receiver.as_mut().is_some_and(|receiver| receiver.on_shutdown()) {
            self.final_message = self.feed.finish();
        }
    }

    /// Returns whether the other protocol waits only for the confirmation of its final message.
    fn is_last_queued(&self) -> bool {
        self.stop_sent && self.feed.is_last_queued()
    }

    /// Handles a long silence.
    fn heartbeat(&mut self, now: Tick, cx: &Context) -> io::Result<()> {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_idle(now, cx)?;
        }
        if self.partial.is_empty()
            && let Some(message) = self.feed.heartbeat()
        {
            self.partial = message;
        }
        Ok(())
    }
}

impl Drop for FeedBody {
    fn drop(&mut self) {
        let mut each = DropEach::default();
        each.drop_value(self.receiver.take());
        each.drop_all([std::mem::take(&mut self.partial), self.final_message.take().unwrap_or_default()]);
    }
}

impl Conn {
    /// Makes the messages of `fed` the response or its body.
    pub(super) fn feed_from(&mut self, fed: FeedBody, now: Tick, cx: &Context) {
        self.forget_request();
        // If nothing is sent to a peer, sending cannot show that it has gone.
        self.stream.enable_keepalive(cx.settings.write_timeout);
        let is_upgraded = fed.receiver.is_some();
        self.count.enter(if is_upgraded { ConnState::Upgraded } else { ConnState::Waiting });
        *self.pending_body = Some(Box::new(PendingBody::FeedBody(fed)));
        self.turn_to(TimeoutKind::Heartbeat, now);
        self.phase = Phase::FeedBody;
    }

    /// Ends the request, because its bytes are no longer read. An idle connection then needs no buffer.
    pub(super) fn forget_request(&mut self) {
        if let Some(flow) = &mut self.owned_body {
            flow.leave_call();
        }
        if let Some(buffers) = self.buffers.as_deref_mut() {
            if self.owned_body.is_some() && !buffers.payload.is_empty() {
                buffers.start = buffers.payload.start;
                return;
            }
            buffers.start = buffers.raw;
            buffers.payload = buffers.raw..buffers.raw;
        }
    }

    /// Wakes the owner when the feed has messages or the response was provided. Returns false if that is so already.
    pub(crate) fn watch_feed(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match self.pending_body.as_deref() {
            Some(PendingBody::FeedBody(fed)) => fed.watch(wakes, key) && self.watch_body(wakes, key),
            Some(PendingBody::Deferred(pending)) => pending.watch(wakes, key) && self.watch_body(wakes, key),
            _ => self.watch_streams(wakes, key) && self.watch_body(wakes, key),
        }
    }

    /// Wakes the owner when the client must be disconnected, for a connection whose client reads nothing. Returns false
    /// if it must be already.
    pub(crate) fn watch_cut(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match self.pending_body.as_deref() {
            Some(PendingBody::FeedBody(fed)) => fed.feed.watch_cut(wakes, key) && self.watch_body(wakes, key),
            _ => self.watch_body(wakes, key),
        }
    }

    /// Returns whether the future that fills its feed wants to be polled.
    fn awaits_poll(&self) -> bool {
        self.phase == Phase::FeedBody
            && matches!(self.pending_body.as_deref(), Some(PendingBody::FeedBody(fed)) if fed.feed.source_is_woken())
    }

    /// Returns whether its next call polls a future or sends what has come, and needs no handler.
    pub(crate) fn needs_no_handler(&self) -> bool {
        self.awaits_response() || self.awaits_poll()
    }

    /// Polls the future that fills its feed.
    #[cold]
    pub(super) fn poll_source(&mut self, cx: &Context) {
        let mut rest = self.pending_body.take_safely();
        let Some(PendingBody::FeedBody(fed)) = rest.as_deref_mut() else { return };
        if let Some(flow) = &mut self.owned_body {
            flow.enter_call();
        }
        let panicked = caught(
            || {
                fed.feed.poll_source();
                None
            },
            |panic| Some(OneLine(panic_message(panic)).to_string()),
        );
        let Some(message) = panicked else {
            self.pending_body = rest;
            return;
        };
        let at = fed.at();
        cx.record(Event::Panicked);
        log_line!(Error, "the future that fills a feed panicked{at}: {message}");
        self.note_error(ResponseEnd::CUT_SHORT);
        self.stream.reset_unless_ended();
        self.cut_stream();
        self.phase = Phase::Done;
    }

    /// Returns whether the connection waits for a feed or a response, so that it must be told when the server stops.
    pub(crate) fn is_fed(&self) -> bool {
        matches!(self.phase, Phase::FeedBody | Phase::Deferred | Phase::Http2)
            || self.phase == Phase::Drain && self.owned_body.is_some()
    }

    #[inline(never)]
    pub(super) fn feed_on(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        // It is also dropped safely.
        let mut rest = self.pending_body.take_safely();
        let Some(PendingBody::FeedBody(fed)) = rest.as_deref_mut() else {
            self.phase = Phase::Done;
            return None;
        };
        match self.feed_with(fed, now, cx) {
            Ok(Some(step)) => {
                self.pending_body = rest;
                return Some(step);
            }
            Ok(None) => {}
            Err(error) => self.cut(fed, &error, cx),
        }
        None
    }

    /// Returns None if the feed has ended. The phase then says what follows.
    fn feed_with(&mut self, fed: &mut FeedBody, now: Tick, cx: &Context) -> io::Result<Option<Step>> {
        if cx.stage() != Stage::Running && fed.is_endless() {
            fed.stop_in_time(now, cx);
        }
        if self.owned_body.is_some() {
            self.pass_body(now, cx);
            if self.phase == Phase::Done {
                return Ok(None);
            }
        }
        // Before the bytes that came with the request are passed on, which may fail: earlier responses are not lost.
        if self.unsent() > 0 {
            // A client that is disconnected because it is slow would notice the end late.
            let step = if self.reads_body_first() { Step::Read } else { Step::Write };
            return fed.refuse_if_cut().map(|()| Some(step));
        }
        if fed.receiver.is_some() || self.owned_body.is_none() {
            self.pass_on(fed, now)?;
        }
        if fed.feed.source_is_woken() {
            return Ok(Some(Step::Call));
        }
        let mut left = PULLED_BYTES;
        while left > 0 {
            match fed.next(left) {
                FeedPoll::Message(message) => {
                    left -= message.len();
                    self.take_message(&message, fed.receiver.is_some())?;
                    self.drop_sent(message);
                }
                FeedPoll::Nothing => break,
                FeedPoll::End if self.unsent() > 0 => break,
                FeedPoll::End => return self.end_feed(fed, cx).map(|()| None),
                FeedPoll::Cut => return fed.refuse_if_cut().map(|()| None),
            }
        }
        // A client that never sends anything must be asked, however much is sent to it, because the kernel accepts
        // bytes for many minutes after the peer has vanished. For a client that only reads, any sent byte shows that
        // the server is alive.
        let shows_life = fed.receiver.is_none() && self.unsent() > 0;
        // If the client does not confirm the final message, the server waits no longer than for other lingering clients,
        // whatever the client still sends.
        let what = if self.unsent() == 0 && fed.is_last_queued() {
            TimeoutKind::Linger
        } else {
            TimeoutKind::Heartbeat
        };
        if self.timer.kind != what || shows_life {
            self.timer = self.timer.then(what, now);
        }
        if what == TimeoutKind::Linger && now >= self.timer.deadline(&cx.settings) {
            // If a thread reads the connection, a steady stream of bytes would delay this forever.
            self.phase = Phase::Done;
            return Ok(None);
        }
        if self.unsent() > 0 {
            return Ok(Some(Step::Write));
        }
        if self.owned_body.is_some() {
            return Ok(Some(self.read_body_or_wait()));
        }
        let ahead = self.buffers.as_deref().map_or(0, |buffers| buffers.input.len() - buffers.start);
        let takes = fed.receiver.as_ref().map_or(ahead < AHEAD_BYTES_MAX, |receiver| receiver.has_room());
        if self.read_closed && !takes && fed.ends_with_client() && !self.reads_later(fed) {
            self.phase = Phase::Done;
            return Ok(None);
        }
        Ok(Some(if self.read_ready && takes { Step::Read } else { Step::WaitFeed }))
    }

    /// Returns whether a client that has closed its side may have sent bytes that are read after a pause. The end comes after
    /// them. Other bytes are never read.
    fn reads_later(&self, fed: &FeedBody) -> bool {
        fed.receiver.is_some() && !self.stream.has_lost_input()
    }

    /// Returns whether the receiver of the other protocol has no room for bytes.
    pub(super) fn awaits_room(&self) -> bool {
        matches!(self.pending_body.as_deref(),
            Some(PendingBody::FeedBody(fed)) if fed.receiver.as_ref().is_some_and(|receiver| !receiver.has_room()))
    }

    /// Passes the client's bytes to the other protocol.
    fn pass_on(&mut self, fed: &mut FeedBody, now: Tick) -> io::Result<()> {
        let unread = self.buffers.as_deref().map_or(&[][..], |buffers| &buffers.input[buffers.start..]);
        let FeedBody { receiver, feed, .. } = fed;
        let used = receiver.as_mut().map_or(Ok(0), |receiver| receiver.on_data(unread, feed, now))?;
        let Some(buffers) = self.buffers.as_deref_mut() else { return Ok(()) };
        buffers.start += used;
        if buffers.start == buffers.input.len() {
            buffers.input.clear();
            buffers.start = 0;
        }
        buffers.raw = buffers.start;
        buffers.payload = buffers.raw..buffers.raw;
        Ok(())
    }

    fn take_message(&mut self, message: &[u8], raw: bool) -> io::Result<()> {
        let output = &mut self.buffers.get_or_insert_default().output;
        if raw {
            output.extend_from_slice(message);
            return Ok(());
        }
        self.http.write_body(message, output).map_err(io::Error::other)?;
        self.note_body(message.len() as u64);
        Ok(())
    }

    fn end_feed(&mut self, fed: &mut FeedBody, cx: &Context) -> io::Result<()> {
        self.count.enter(ConnState::Idle);
        let after = if fed.receiver.is_some() {
            After::Linger
        } else {
            if cx.is_stopping() {
                self.http.close_after();
            }
            self.read_ready |= self.peer_ended;
            let sends_trailers = fed.wants_trailers && self.http.sends_chunks();
            let trailers = if sends_trailers { fed.feed.take_trailers() } else { Vec::new() };
            let output = &mut self.buffers.get_or_insert_default().output;
            self.http.finish(&trailers, output).map_err(io::Error::other)?
        };
        self.phase = Phase::Send(after);
        Ok(())
    }

    /// Handles a silence of the setting `heartbeat`: nothing was sent, or, with another protocol, nothing arrived.
    pub(super) fn heartbeat(&mut self, now: Tick, cx: &Context) {
        self.timer = self.timer.then(TimeoutKind::Heartbeat, now);
        let mut rest = self.pending_body.take_safely();
        if let Some(PendingBody::FeedBody(fed)) = rest.as_deref_mut()
            && fed.stops_at().is_none_or(|stops_at| now < stops_at)
            && let Err(error) = fed.heartbeat(now, cx)
        {
            return self.cut(fed, &error, cx);
        }
        self.pending_body = rest;
    }

    #[cold]
    fn cut(&mut self, fed: &FeedBody, why: &io::Error, cx: &Context) {
        self.note_error(ResponseEnd::CUT_SHORT);
        let panic = why.get_ref().and_then(|why| why.downcast_ref::<UpgradePanic>());
        let Some(UpgradePanic { message, final_message }) = panic else {
            match why.get_ref().is_some_and(|why| why.is::<Misuse>()) {
                true => {
                    let at = fed.at();
                    log_line!(Error, "a response ended early{at}, and its connection with it: {why}");
                }
                false => log_client(cx, format_args!("a connection was cut: {why}")),
            }
            self.cut_stream();
            self.phase = Phase::Done;
            return;
        };
        cx.record(Event::Panicked);
        log_line!(Error, "the receiver of an upgraded connection panicked: {}", OneLine(message));
        // After a part of a message, it would be taken for the rest of that message.
        if !fed.partial.is_empty() || final_message.is_empty() {
            self.cut_stream();
            self.phase = Phase::Done;
            return;
        }
        self.buffers.get_or_insert_default().output.extend_from_slice(final_message);
        self.phase = Phase::Send(After::Linger);
    }
}
