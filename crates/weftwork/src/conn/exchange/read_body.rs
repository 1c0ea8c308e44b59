//! Reading the body of a request for a handler: bytes that have arrived, then bytes that it waits for.

use std::io;

use http::StatusCode;
use weftwork_wire::{BodyEvent, Fault};

use super::{ConnExchange, log_client};
use crate::conn::Readiness;
use crate::conn::owned_body::OwnedBodyFlow;
use crate::message::exchange::Exchange;
use crate::message::owned_body::OwnedBodySender;
use crate::message::{BodyError, OwnedBody};
use crate::transport::Tick;
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::events::Event;
use crate::transport::stream::{is_timed_out, is_would_block};

/// Size of a handler's buffer from which a direct read pays off.
const DIRECT_BYTES_MIN: usize = 16 << 10;

impl ConnExchange<'_> {
    /// Makes payload available, unless the body has ended. Returns false if nothing has arrived by `by`.
    pub(super) fn gather_payload(&mut self, by: Option<Tick>) -> Result<bool, BodyError> {
        self.check_kept()?;
        while self.conn.buffers_mut().payload.is_empty() {
            match self.conn.decode(self.cx).map_err(|fault| self.malformed(fault))? {
                BodyEvent::Data { .. } => {}
                BodyEvent::End => break,
                BodyEvent::NeedMore => {
                    self.prepare_wait()?;
                    if self.receive(None, by)? == 0 {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn check_kept(&self) -> Result<(), BodyError> {
        let is_lost = self.left.as_ref().is_some_and(|left| left.body_is_lost);
        if self.is_body_taken || self.conn.owned_body.is_some() {
            return Err(BodyError::AlreadyRead);
        }
        if is_lost { Err(BodyError::AfterResponse) } else { Ok(()) }
    }

    /// Takes the body out of the call. What has arrived is passed on at once.
    pub(super) fn take_owned_body(&mut self) -> OwnedBody {
        if let Err(error) = self.check_kept() {
            return OwnedBody::failed(error);
        }
        self.is_body_taken = true;
        if self.body_left() == Some(0) {
            return OwnedBody::ended(self.conn.http.trailers());
        }
        let now = self.wait.now();
        let (sender, body) = OwnedBodySender::new(self.body_left());
        let pace = *self.body_pace(now);
        self.conn.owned_body = Some(OwnedBodyFlow::new(sender, self.quota.left(), pace));
        self.conn.pass_body(now, self.cx);
        body
    }

    /// Moves payload to a handler's buffer. Bytes that have not arrived are read into that buffer directly, if it is
    /// large and only bytes of the body can get there.
    pub(super) fn take_payload(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.check_kept()?;
        if self.reads_directly(into) {
            self.prepare_wait()?;
            let count = self.receive(Some(into), None)?;
            return self.note_direct(into, count);
        }
        self.gather_payload(None)?;
        let space = into.capacity() - into.len();
        let buffers = self.conn.buffers_mut();
        let part = &buffers.input[buffers.payload.clone()];
        let count = part.len().min(space);
        into.extend_from_slice(&part[..count]);
        buffers.payload.start += count;
        Ok(count + self.top_up(into)?)
    }

    fn reads_directly(&self, into: &Vec<u8>) -> bool {
        let space = into.capacity() - into.len();
        let is_within = self.conn.http.body_left().is_some_and(|left| left >= space as u64);
        // A TLS record may hold more than the body. A stream of HTTP/2 gives no more than fits.
        let is_exact = self.conn.is_stream() || !self.conn.is_secured();
        space >= DIRECT_BYTES_MIN && is_within && self.conn.buffered_body() == 0 && is_exact
    }

    /// Appends bytes that have arrived since, because one long part costs less to pass on than two. An end is left to
    /// the next read, which finds it again, as it also does after an error.
    fn top_up(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        if !self.reads_directly(into) {
            return Ok(0);
        }
        let Ok(count @ 1..) = self.conn.stream.recv(into) else { return Ok(0) };
        let now = self.wait.now();
        self.note_back(now);
        self.body_pace(now).advance(count, now);
        self.note_direct(into, count)
    }

    /// Records that the last `count` bytes of `into` were read directly.
    fn note_direct(&mut self, into: &[u8], count: usize) -> Result<usize, BodyError> {
        let read = self.conn.http.read_body(&into[into.len() - count..], &self.cx.limits);
        read.map_err(|fault| self.malformed(fault))?;
        Ok(count)
    }

    /// Sends 100 Continue to a client that waits for it.
    fn prepare_wait(&mut self) -> Result<(), BodyError> {
        if self.conn.http.wants_continue() && self.conn.buffered_body() == 0 {
            self.say_continue()?;
        }
        if self.body.is_none() {
            // This must come while the bytes that arrived with the head are still in the buffer.
            self.body_pace(self.wait.now());
        }
        match self.streamed {
            // Before a wait, written bytes are sent: see `wait_for_body`.
            Some(_) => Ok(()),
            // These belong to earlier responses, whose clients have waited long enough.
            None => self.send_some(),
        }
    }

    #[cold]
    fn malformed(&self, fault: Fault) -> BodyError {
        let (line, id) = (self.target(), self.id_for_log());
        let setting = fault.setting().map(|setting| format!("; {}", self.cx.settings.show(&[setting])));
        let (rule, setting) = (fault.rule(), setting.unwrap_or_default());
        log_client(
            self.cx,
            format_args!("a request body is malformed at {line}: {fault} ({rule}{setting}){id}"),
        );
        BodyError::Malformed(fault)
    }

    fn say_continue(&mut self) -> Result<(), BodyError> {
        let said = self.interim(StatusCode::CONTINUE, &[]);
        said.map_err(|error| BodyError::Socket(error.kind()))
    }

    /// Sends written bytes before a wait, because the client may be waiting for them.
    fn send_some(&mut self) -> Result<(), BodyError> {
        if self.conn.unsent() == 0 {
            self.conn.stream.uncork();
            return Ok(());
        }
        let now = self.wait.now();
        self.body_pace(now);
        self.conn.timer.resume(now);
        self.conn.flush(now).map(drop).map_err(|error| BodyError::Socket(error.kind()))
    }

    /// Waits for bytes of the body and reads them, into the connection's buffer or a handler's. 0 means that nothing
    /// has arrived by `by`.
    fn receive(&mut self, mut direct: Option<&mut Vec<u8>>, by: Option<Tick>) -> Result<usize, BodyError> {
        self.wait.check(self.cx).map_err(|_| BodyError::ShuttingDown)?;
        let head_end = {
            let buffers = self.conn.buffers_mut();
            buffers.start + buffers.head.bytes as usize
        };
        let mut has_waited = false;
        loop {
            let buffers = self.conn.buffers.get_or_insert_default();
            let into = match direct.as_deref_mut() {
                Some(into) => into,
                None => {
                    buffers.compact(head_end);
                    buffers.reserve(1);
                    &mut buffers.input
                }
            };
            let received = self.conn.stream.recv(into);
            let now = self.wait.now();
            if !has_waited {
                self.note_back(now);
            }
            match received {
                Ok(0) => return Err(BodyError::Disconnected),
                Ok(count) => {
                    let more = self.conn.stream.take_unreported(count);
                    self.body_pace(now).advance(more, now);
                    return Ok(count);
                }
                Err(error) if is_would_block(&error) => {
                    let count = self.conn.stream.take_progress();
                    if count > 0 {
                        self.body_pace(now).advance(count, now);
                    }
                    if !self.wait_for_body(now, by)? {
                        self.waits = true;
                        return Ok(0);
                    }
                }
                Err(error) => return Err(BodyError::Socket(error.kind())),
            }
            has_waited = true;
        }
    }

    /// Since the last byte, the time belonged to the handler or a queue, unless a wait has failed.
    fn note_back(&mut self, now: Tick) {
        if !std::mem::take(&mut self.waits) {
            self.body_pace(now).resume(now);
            self.note_writer(now);
        }
    }

    /// Returns the progress of the body. It was started when the body was read ahead, or starts now, and stays the same
    /// for the whole call. Meanwhile, the connection's own timer is that of its responses. Bytes that arrived with the
    /// head count as if they came after it, so that a client that sends everything at once is not slower.
    fn body_pace(&mut self, now: Tick) -> &mut PeerTimer {
        self.body.get_or_insert_with(|| match self.conn.timer.kind {
            TimeoutKind::Body => self.conn.timer,
            _ => {
                let mut timer = PeerTimer::start(TimeoutKind::Body, now);
                timer.count(self.conn.bytes_ahead());
                timer
            }
        })
    }

    /// Returns false if nothing has arrived by `by` and the client has more time.
    fn wait_for_body(&mut self, now: Tick, by: Option<Tick>) -> Result<bool, BodyError> {
        self.send_some()?;
        let settings = &self.cx.settings;
        let deadline = self.body_pace(now).deadline(settings);
        let until = by.map_or(deadline, |by| by.min(deadline));
        // A client may read its response up to here before it sends more. Bytes that the kernel could not accept follow
        // as soon as it has space.
        let ready = if self.conn.unsent() > 0 { Readiness::Either } else { Readiness::Read };
        let waited = self.wait_unseen(until, |live| {
            let (fd, ready) = ready.of(&live.conn.stream)?;
            live.wait.ready(fd, ready, until)
        });
        if until < deadline && waited.as_ref().is_err_and(is_timed_out) {
            return Ok(false);
        }
        waited.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                // The rest of the body is not waited for, and the response says so.
                self.conn.http.close_after();
                self.cx.record(Event::TimedOut(TimeoutKind::Body));
                let settings = self.cx.settings.show(TimeoutKind::Body.settings());
                let (line, id) = (self.target(), self.id_for_log());
                log_client(
                    self.cx,
                    format_args!("a request body arrived too slowly ({settings}) at {line}{id}"),
                );
                BodyError::Timeout
            }
            io::ErrorKind::ConnectionAborted => BodyError::ShuttingDown,
            io::ErrorKind::ResourceBusy => {
                self.conn.http.close_after();
                self.note_overload("to wait for a request body");
                BodyError::Overload
            }
            kind => BodyError::Socket(kind),
        })?;
        self.send_some().map(|()| true)
    }
}
