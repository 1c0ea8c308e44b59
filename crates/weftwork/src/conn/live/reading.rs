//! How a handler gets the body of its request: what has come already, then what comes while it waits.

use std::io;
use std::os::fd::AsFd;

use http::StatusCode;
use weftwork_wire::{BodyEvent, Fault};

use super::{Live, tell};
use crate::conn::Readiness;
use crate::message::BodyError;
use crate::message::exchange::Exchange;
use crate::transport::Tick;
use crate::transport::counters::Counters;
use crate::transport::deadlines::{Pace, Timeout};
use crate::transport::stream::{is_timed_out, is_would_block};

/// Room of a handler's that is worth a read of its own.
const DIRECT_BYTES_MIN: usize = 16 << 10;

impl Live<'_> {
    /// Sees to it that there is payload which was not consumed, unless the body is over. False: nothing has come until `by`.
    pub(super) fn gather_payload(&mut self, by: Option<Tick>) -> Result<bool, BodyError> {
        self.check_kept()?;
        while self.conn.held().payload.is_empty() {
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
        if is_lost { Err(BodyError::LetGo) } else { Ok(()) }
    }

    /// Moves payload into the room that a handler has. What has not come yet is read into that at once, if the room is large, and
    /// nothing behind the body can get there.
    pub(super) fn take_payload(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.check_kept()?;
        if self.reads_directly(into) {
            self.prepare_wait()?;
            let count = self.receive(Some(into), None)?;
            return self.note_direct(into, count);
        }
        self.gather_payload(None)?;
        let room = into.capacity() - into.len();
        let buffers = self.conn.held();
        let part = &buffers.input[buffers.payload.clone()];
        let count = part.len().min(room);
        into.extend_from_slice(&part[..count]);
        buffers.payload.start += count;
        Ok(count + self.top_up(into)?)
    }

    fn reads_directly(&self, into: &Vec<u8>) -> bool {
        let room = into.capacity() - into.len();
        let is_within = self.conn.http.body_left().is_some_and(|left| left >= room as u64);
        room >= DIRECT_BYTES_MIN && is_within && self.conn.buffered_body() == 0
    }

    /// Adds what has come meanwhile, behind what was read ahead: one long part costs less to pass on than two. An end is for the next
    /// read, which meets it again, and after an error finds one.
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

    /// The last `count` bytes of `into` never were in a buffer of ours.
    fn note_direct(&mut self, into: &[u8], count: usize) -> Result<usize, BodyError> {
        let read = self.conn.http.read_body(&into[into.len() - count..], &self.cx.limits);
        read.map_err(|fault| self.malformed(fault))?;
        Ok(count)
    }

    /// Who waits for leave to send gets it.
    fn prepare_wait(&mut self) -> Result<(), BodyError> {
        if self.conn.http.wants_continue() && self.conn.buffered_body() == 0 {
            self.say_continue()?;
        }
        if self.body.is_none() {
            // Now, while all that came with the head is still there.
            self.body_pace(self.wait.now());
        }
        match self.streamed {
            // What a writer has written goes out where it would wait: see `wait_for_body`.
            Some(_) => Ok(()),
            // Of earlier answers, whose clients have waited for long enough.
            None => self.send_some(),
        }
    }

    #[cold]
    fn malformed(&self, fault: Fault) -> BodyError {
        let (asked, id) = (self.target(), self.id_for_log());
        let knob = fault.knob().map(|knob| format!("; {}", self.cx.settings.show(&[knob])));
        let (rule, knob) = (fault.rule(), knob.unwrap_or_default());
        tell(self.cx, format_args!("a request body is malformed at {asked}: {fault} ({rule}{knob}){id}"));
        BodyError::Malformed(fault)
    }

    fn say_continue(&mut self) -> Result<(), BodyError> {
        let said = self.interim(StatusCode::CONTINUE, &[]);
        said.map_err(|error| BodyError::Socket(error.kind()))
    }

    /// Before a wait for the client: it may be waiting for what was written so far.
    fn send_some(&mut self) -> Result<(), BodyError> {
        if self.conn.unsent() == 0 {
            self.conn.stream.uncork();
            return Ok(());
        }
        let now = self.wait.now();
        self.body_pace(now);
        self.conn.pace.resume(now);
        self.conn.flush(now).map(drop).map_err(|error| BodyError::Socket(error.kind()))
    }

    /// Waits for bytes of the body, and reads them: into our buffer, or where a handler has room. 0: nothing has come until
    /// `by`.
    fn receive(&mut self, mut room: Option<&mut Vec<u8>>, by: Option<Tick>) -> Result<usize, BodyError> {
        self.wait.go_on(self.cx).map_err(|_| BodyError::ServerStops)?;
        let head_end = {
            let buffers = self.conn.held();
            buffers.start + buffers.head.bytes as usize
        };
        let mut has_waited = false;
        loop {
            let buffers = self.conn.buffers.get_or_insert_default();
            let into = match room.as_deref_mut() {
                Some(into) => into,
                None => {
                    buffers.compact(head_end);
                    buffers.make_room(1);
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
                    self.body_pace(now).advance(count, now);
                    return Ok(count);
                }
                Err(error) if is_would_block(&error) => {
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

    /// Since the last byte came, the time was the handler's, or that of a queue, unless somebody waited for more in vain.
    fn note_back(&mut self, now: Tick) {
        if !std::mem::take(&mut self.waits) {
            self.body_pace(now).resume(now);
            self.note_writer(now);
        }
    }

    /// How the body gets on: begun by whoever read ahead, or now, and then the same for the whole call. The pace of
    /// the connection is that of its responses meanwhile. What came with the head counts for the average as if it had come
    /// behind it: who sends all in one piece is not slower.
    fn body_pace(&mut self, now: Tick) -> &mut Pace {
        self.body.get_or_insert_with(|| match self.conn.pace.what {
            Timeout::Body => self.conn.pace,
            _ => {
                let mut pace = Pace::start(Timeout::Body, now);
                pace.count(self.conn.bytes_ahead());
                pace
            }
        })
    }

    /// False: nothing has come until `by`, and the client has more time.
    fn wait_for_body(&mut self, now: Tick, by: Option<Tick>) -> Result<bool, BodyError> {
        self.send_some()?;
        let settings = &self.cx.settings;
        let deadline = self.body_pace(now).deadline(settings);
        let until = by.map_or(deadline, |by| by.min(deadline));
        // A client may take its answer up to here before it sends on: what the kernel has no room for yet follows as soon as it has.
        let ready = if self.conn.unsent() > 0 { Readiness::Either } else { Readiness::Read };
        let waited = self.wait_unseen(until, |live| live.wait.ready(live.conn.stream.as_fd(), ready, until));
        if until < deadline && waited.as_ref().is_err_and(is_timed_out) {
            return Ok(false);
        }
        waited.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                // What still comes of the body is not waited for: the answer says so.
                self.conn.http.close_after();
                Counters::count(&self.cx.counters.timeouts);
                let knobs = self.cx.settings.show(Timeout::Body.knobs());
                let (asked, id) = (self.target(), self.id_for_log());
                tell(self.cx, format_args!("a request body came too slowly ({knobs}) at {asked}{id}"));
                BodyError::Timeout
            }
            io::ErrorKind::ConnectionAborted => BodyError::ServerStops,
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
