//! A request body that outlives its handler: the connection reads on, and passes the parts to their reader.
//!
//! The connection does so while it waits for its response, while it sends a feed, and after its response. It reads no more
//! while the reader has enough, so the client has to wait.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use weftwork_wire::{After, BodyEvent};

use super::refusal::log_client;
use super::{Conn, Phase, Step};
use crate::message::owned_body::{OwnedBodySender, ReaderState};
use crate::message::{BodyError, WakeConn};
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::events::Event;

/// Space for one read of a body that is passed on. With the 8 KiB of a head, each read would bring less.
const READ_BYTES: usize = 32 << 10;

/// A body that is passed on, and its progress.
pub(super) struct OwnedBodyFlow {
    sender: OwnedBodySender,
    /// State of the reader at the last look. While it is `Ready`, the client has to send.
    known: ReaderState,
    pace: PeerTimer,
    limit: u64,
    passed: u64,
    /// Whether the connection ends after the body, because its response was the last one.
    closes: bool,
    is_in_call: bool,
}

impl OwnedBodyFlow {
    pub(super) fn new(sender: OwnedBodySender, limit: u64, pace: PeerTimer) -> Box<OwnedBodyFlow> {
        sender.set_in_call(true);
        Box::new(OwnedBodyFlow {
            sender,
            known: ReaderState::Absent,
            pace,
            limit,
            passed: 0,
            closes: false,
            is_in_call: true,
        })
    }

    /// Records that a call begins, in which the connection brings nothing. The client's time goes on when the connection
    /// reads on.
    pub(super) fn enter_call(&mut self) {
        self.sender.set_in_call(true);
        (self.is_in_call, self.known) = (true, ReaderState::Absent);
    }

    pub(super) fn leave_call(&mut self) {
        if std::mem::take(&mut self.is_in_call) {
            self.sender.set_in_call(false);
        }
    }

    fn take(&mut self, part: &[u8]) -> Result<(), BodyError> {
        self.passed += part.len() as u64;
        if self.passed > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        if !part.is_empty() {
            self.sender.push(Bytes::copy_from_slice(part));
        }
        Ok(())
    }
}

impl fmt::Debug for OwnedBodyFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBodyFlow").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Conn {
    /// Returns whether the connection brings parts of a body to their reader.
    pub(crate) fn passes_body(&self) -> bool {
        self.owned_body.is_some() && matches!(self.phase, Phase::Deferred | Phase::FeedBody | Phase::Drain)
    }

    /// Returns whether the client has closed its side, and what it has sent before waits for the reader of the body or the
    /// receiver of another protocol.
    pub(crate) fn has_unread_end(&self) -> bool {
        self.read_closed && (self.passes_body() && !self.wants_body() || self.awaits_room())
    }

    /// Returns whether the client of [`has_unread_end`](Conn::has_unread_end) has closed a Unix socket, whose poller reports
    /// that whatever it is asked for.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.has_unread_end()
            && !self.awaits_output_space()
            && self.stream.local_addr().is_none()
            && self.stream.is_reset()
    }

    /// Returns whether more of the body is to be read from the client.
    pub(super) fn wants_body(&self) -> bool {
        self.owned_body.as_ref().is_some_and(|flow| flow.known == ReaderState::Ready)
    }

    /// Returns whether a read comes before unsent bytes for which the client has no space. They have their turn after it.
    pub(super) fn reads_body_first(&self) -> bool {
        self.timer.kind == TimeoutKind::Write && self.read_ready && !self.owner.has_read && self.wants_body()
    }

    /// Passes on what has arrived, as far as the reader takes it. The body is gone afterwards if it has ended.
    #[inline(never)]
    pub(super) fn pass_body(&mut self, now: Tick, cx: &Context) {
        let Some(mut flow) = self.owned_body.take() else { return };
        if self.passes_body_on(&mut flow, now, cx) {
            self.owned_body = Some(flow);
        }
        if self.phase != Phase::Ready {
            self.forget_request();
        }
    }

    /// Returns false if nothing more is passed on.
    fn passes_body_on(&mut self, flow: &mut OwnedBodyFlow, now: Tick, cx: &Context) -> bool {
        loop {
            let known = flow.sender.reader_state();
            if known == ReaderState::Gone {
                self.drop_payload();
                return false;
            }
            let is_last = self.http.request_is_read();
            if known != ReaderState::Full || is_last {
                // A body that is whole is in memory anyway, and the connection goes on without it.
                let room = if is_last { usize::MAX } else { flow.sender.room() };
                let passed = self.take_payload_for(flow, room);
                if let Err(error) = passed {
                    log_client(
                        cx,
                        format_args!("an owned request body is larger than body_bytes_max: {error}"),
                    );
                    return self.fail_body(flow, error);
                }
            }
            if is_last {
                flow.sender.end(Ok(self.http.trailers().to_vec()));
                return false;
            }
            let has_more = self.buffers.as_deref().is_some_and(|buffers| !buffers.payload.is_empty());
            if known == ReaderState::Full || has_more {
                let known = ReaderState::Full;
                return self.keep_waiting(flow, known, now);
            }
            match self.decode(cx) {
                Ok(BodyEvent::Data { .. } | BodyEvent::End) => {}
                Ok(BodyEvent::NeedMore) if known == ReaderState::Absent && self.http.wants_continue() => {
                    return self.keep_waiting(flow, known, now);
                }
                Ok(BodyEvent::NeedMore) => {
                    self.say_continue();
                    return self.keep_waiting(flow, ReaderState::Ready, now);
                }
                Err(fault) => {
                    log_client(
                        cx,
                        format_args!("an owned request body is malformed: {fault} ({})", fault.rule()),
                    );
                    return self.fail_body(flow, BodyError::Malformed(fault));
                }
            }
        }
    }

    fn keep_waiting(&mut self, flow: &mut OwnedBodyFlow, known: ReaderState, now: Tick) -> bool {
        if flow.known != ReaderState::Ready {
            flow.pace.resume(now);
        }
        flow.known = known;
        if known == ReaderState::Ready
            && let Some(buffers) = self.buffers.as_deref_mut()
            && self.phase != Phase::Ready
        {
            buffers.reserve(READ_BYTES);
        }
        if known != ReaderState::Ready && self.read_closed && self.stream.has_lost_input() {
            self.phase = Phase::Done;
        }
        true
    }

    fn take_payload_for(&mut self, flow: &mut OwnedBodyFlow, room: usize) -> Result<(), BodyError> {
        let Some(buffers) = self.buffers.as_deref_mut() else { return Ok(()) };
        let part = &buffers.input[buffers.payload.clone()];
        let part = &part[..part.len().min(room)];
        flow.take(part)?;
        buffers.payload.start += part.len();
        Ok(())
    }

    fn drop_payload(&mut self) {
        if let Some(buffers) = self.buffers.as_deref_mut() {
            buffers.payload = buffers.raw..buffers.raw;
        }
    }

    /// The connection ends with its response, because nobody reads the rest of the request.
    fn fail_body(&mut self, flow: &OwnedBodyFlow, error: BodyError) -> bool {
        flow.sender.end(Err(error));
        self.http.close_after();
        self.drop_payload();
        if self.phase == Phase::Drain {
            self.phase = Phase::Send(After::Linger);
        }
        false
    }

    /// Sends 100 Continue to a client that waits for it. Nothing of the response was written.
    pub(super) fn say_continue(&mut self) {
        if self.http.wants_continue() {
            let output = &mut self.buffers.get_or_insert_default().output;
            // Cannot fail, because the client waits for it.
            let _ = self.http.write_interim(StatusCode::CONTINUE, &[], output);
        }
    }

    /// Goes on with a body after the response. Then the connection ends, if the response was the last one.
    #[cold]
    pub(super) fn pass_rest(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let closes = self.owned_body.as_ref().is_some_and(|flow| flow.closes);
        self.pass_body(now, cx);
        if self.phase != Phase::Drain {
            return None;
        }
        if self.owned_body.is_none() {
            match closes {
                true => self.phase = Phase::Send(After::Linger),
                false => self.turn_to(TimeoutKind::Drain, now),
            }
            return None;
        }
        if self.unsent() > 0 && !self.reads_body_first() {
            return Some(Step::Write);
        }
        Some(self.read_body_or_wait())
    }

    /// Puts the end of the connection off until the body was passed on. Returns false if no body is passed on.
    pub(super) fn passes_body_before_end(&mut self) -> bool {
        let Some(flow) = &mut self.owned_body else { return false };
        flow.closes = true;
        self.phase = Phase::Drain;
        true
    }

    pub(super) fn read_body_or_wait(&self) -> Step {
        if self.read_ready && self.wants_body() { Step::Read } else { Step::WaitFeed }
    }

    /// Wakes the owner when the reader of the body has room. Returns false if the connection can go on already.
    pub(super) fn watch_body(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match &self.owned_body {
            Some(flow) if self.passes_body() => {
                let can_read = self.read_ready && flow.known == ReaderState::Ready;
                !can_read && flow.sender.watch(flow.known, wakes, key)
            }
            _ => true,
        }
    }

    /// Returns when the client must have sent more of the body.
    #[cold]
    pub(super) fn body_deadline(&self, cx: &Context) -> Tick {
        match &self.owned_body {
            Some(flow) if self.passes_body() && flow.known == ReaderState::Ready => {
                flow.pace.deadline(&cx.settings)
            }
            _ => Tick(u64::MAX),
        }
    }

    /// Counts bytes of the body. They give the client no more time for its response.
    #[cold]
    pub(super) fn note_body_read(&mut self, count: usize, now: Tick) {
        if let Some(flow) = &mut self.owned_body {
            flow.pace.advance(count, now);
        }
    }

    /// Handles a deadline of a connection that passes a body on. Returns whether it was none of the response.
    #[cold]
    pub(super) fn on_body_timeout(&mut self, now: Tick, cx: &Context) -> bool {
        if now < self.body_deadline(cx) {
            // The time of a body may have been extended.
            return self.phase == Phase::Drain && self.unsent() == 0;
        }
        let Some(flow) = self.owned_body.take() else { return false };
        cx.record(Event::TimedOut(TimeoutKind::Body));
        let settings = cx.settings.show(TimeoutKind::Body.settings());
        log_client(cx, format_args!("an owned request body arrived too slowly ({settings})"));
        self.fail_body(&flow, BodyError::Timeout);
        true
    }

    /// Tells the reader that the server cuts the connection.
    pub(super) fn stop_body(&mut self) {
        if let Some(flow) = self.owned_body.take() {
            flow.sender.end(Err(BodyError::ShuttingDown));
        }
    }
}
