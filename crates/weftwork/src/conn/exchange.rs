//! The exchange between a request's head and its response: the handler's view of the connection.

mod long_lived;
mod panics;
mod pause;
mod read_body;
mod request_view;
mod trailers;
mod wait_future;
mod write_body;

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use weftwork_wire::{After, BodyLength, Misuse, ResponseHead, Version};

use super::deferred::RequestSummary;
use super::io::read_file;
use super::refusal::log_client;
use super::{Conn, IoWait, PendingBody, Phase};
use crate::error::{Error, ErrorClass, OneLine};
use crate::message::body::Quota;
use crate::message::exchange::Exchange;
use crate::message::observer::ResponseEnd;
use crate::message::{BodyPart, Handler, Payload, Request, RequestLine, Response, is_proxy_in_use};
use crate::transport::context::Context;
use crate::transport::deadlines::PeerTimer;
use crate::transport::events::ConnState;
use crate::transport::log_queue::log_line;
use crate::transport::watchdog::line_of;
use crate::transport::{Buffers, CallSlot, DateCache, Tick};

/// Maximum length of a file, or a part of it, that is read and copied after its head. That saves a system call, and the
/// file is closed earlier. Longer files use `sendfile`, which is cheaper unless the bytes are in memory. At 10 kB, the
/// copies cost a third more CPU per request.
const FILE_COPIED_BYTES_MAX: usize = 4 << 10;

/// Context of a call of the handler.
pub(crate) struct Call<'a> {
    pub(crate) cx: &'a Context,
    /// Start of the call.
    pub(crate) now: Tick,
    pub(crate) handler: &'a dyn Handler,
    pub(crate) wait: &'a dyn IoWait,
    pub(crate) dates: &'a mut DateCache,
    pub(crate) slot: &'a CallSlot,
}

/// A request in progress.
struct ConnExchange<'a> {
    conn: &'a mut Conn,
    cx: &'a Context,
    wait: &'a dyn IoWait,
    dates: &'a mut DateCache,
    /// Time at which the request had arrived, as far as it was read.
    received: Tick,
    /// Set if the response was sent later. Then nothing else is left of the request.
    left: Option<RequestSummary>,
    /// Progress of the request's body, after the handler has waited for it.
    body: Option<PeerTimer>,
    /// Whether a wait for it has failed, and nothing else was done since.
    waits: bool,
    /// Slot of the watchdog while the handler or the writer of its response runs.
    watched: Option<&'a CallSlot>,
    /// Limit of the body.
    quota: Quota,
    /// The response, if it is streamed. Most responses are not, and they should not be copied to this stack or dropped
    /// from it.
    streamed: Option<Box<Streamed>>,
    /// Name of the request for the log.
    id: Option<Box<str>>,
    /// Whether the handler has taken the body, to be read after the call.
    is_body_taken: bool,
}

/// A response that is written while its writer runs.
#[derive(Default)]
struct Streamed {
    /// Its head. The head is written with the first byte of the body. Until then, a writer that reads the request first
    /// can send 100 Continue, and a writer that fails at once can send 500.
    pending: Option<Response>,
    /// Why the head cannot be written, after an attempt.
    misuse: Option<Misuse>,
    /// Trailer fields.
    trailers: Vec<(HeaderName, HeaderValue)>,
    /// Whether its writer was told that the server stops.
    knows_of_stop: bool,
    /// When it is told in a pause, after the server has begun to drain.
    stops_at: Option<Tick>,
}

impl Conn {
    /// Runs the handler after [`Step::Call`](super::Step::Call), and takes its response. Blocks only in the handler and
    /// in the writer of a streamed body, and there only through `call.wait`. Returns when the call ended, except for
    /// calls that never wait.
    pub(crate) fn run(&mut self, call: Call<'_>) -> Tick {
        let Call { cx, now: begun, handler, wait, dates, slot } = call;
        if self.is_handshaking() {
            return self.run_handshake(wait, cx);
        }
        if self.is_stream() && !self.begins_call() {
            return begun;
        }
        self.count.enter(ConnState::Idle);
        if self.observed.is_some() {
            self.note_call(begun, cx);
        }
        let received = self.timer.progress();
        let mut response = None;
        let quota = Quota::new(cx.settings.body_bytes_max);
        let mut live = ConnExchange {
            conn: self,
            cx,
            wait,
            dates,
            received,
            left: None,
            body: None,
            waits: false,
            watched: None,
            quota,
            streamed: None,
            id: None,
            is_body_taken: false,
        };
        // All code of users runs in here: the handler, filters, writers, and destructors of their values.
        match catch_unwind(AssertUnwindSafe(|| live.respond(handler, &mut response, begun, slot))) {
            Ok(now) => now,
            Err(panic) => live.recover(panic, response),
        }
    }

    pub(super) fn buffers_mut(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_default()
    }
}

impl<'a> ConnExchange<'a> {
    /// Runs the handler, and writes its response. Returns when the call ended, except for calls that never wait.
    ///
    /// The response is placed where it stays until it is written. Moving it by value three times took as long as parsing
    /// the head.
    #[inline]
    fn respond(
        &mut self,
        handler: &dyn Handler,
        response: &mut Option<Response>,
        begun: Tick,
        slot: &'a CallSlot,
    ) -> Tick {
        if self.conn.needs_no_handler() {
            self.take_what_came(response, begun, slot);
        } else {
            let (head, text) = self.head();
            match head.version {
                Version::Http2 => slot.enter(begun, &line_of(&head.method, head.path.of(text))),
                _ => slot.enter(begun, text),
            }
            self.watched = Some(slot);
            let mut request = Request::new(self);
            if is_proxy_in_use() {
                request.normalize_path(handler);
            }
            *response = Some(handler.call(&mut request));
            drop(request);
            slot.leave();
        }
        let now = self.wait.now();
        // Most calls end in the tick in which they began.
        if now > begun {
            self.note_took(now);
            self.conn.handler_ran = true;
            self.conn.note_if_client_closed();
        }
        self.watched = None;
        let now = response.as_mut().map_or(now, |response| self.answer(response, now, slot));
        // Dropped here, where a panic is caught.
        *response = None;
        now
    }

    /// Takes the provided response, or polls its future. No handler runs for it.
    #[cold]
    fn take_what_came(&mut self, response: &mut Option<Response>, begun: Tick, slot: &'a CallSlot) {
        if !self.conn.awaits_response() {
            return self.conn.poll_source(self.cx);
        }
        let Some(mut pending) = self.conn.take_pending() else { return };
        let summary = self.left.insert(pending.take_summary());
        if !pending.is_over(begun, self.cx)
            && let Some(future) = pending.future_mut()
        {
            slot.enter_later_part(begun, &line_of(&summary.method, &summary.path));
            self.watched = Some(slot);
            if let Some(flow) = &mut self.conn.owned_body {
                flow.enter_call();
            }
            let is_pending = future.poll_is_pending();
            slot.leave();
            if is_pending {
                let summary = self.left.take().unwrap_or_default();
                return self.conn.put_back(pending, summary);
            }
        }
        *response = Some(pending.take(self.wait.moment(), begun, self.cx));
        self.conn.note_if_client_closed();
    }

    /// Returns what was requested.
    #[cold]
    fn target(&self) -> RequestLine<'_> {
        match &self.left {
            Some(left) => RequestLine::new(&left.method, &left.path),
            None => self.conn.request_line(),
        }
    }

    /// Logs a watched call if it took long, without its waits for the client.
    #[inline]
    fn note_took(&self, now: Tick) {
        let took = self.watched.map_or(Duration::ZERO, |slot| slot.begun().until(now));
        if took >= self.cx.warn_after {
            self.warn_of_slowness(took);
        }
    }

    #[cold]
    fn warn_of_slowness(&self, took: Duration) {
        let subject = if self.streamed.is_some() { "the writer of a streamed body" } else { "a handler" };
        let thread = std::thread::current();
        let (line, name) = (self.target(), thread.name().unwrap_or("unnamed"));
        let id = self.id_for_log();
        log_line!(Warn, "{subject} took {took:.1?} (handler_warn_after) at {line}, on the thread {name}{id}");
    }

    /// Returns the suffix of the request's log lines.
    #[cold]
    fn id_for_log(&self) -> String {
        let id = self.left.as_ref().map_or(&self.id, |left| &left.id);
        id.as_ref().map(|id| format!(", request {id}")).unwrap_or_default()
    }

    fn has_left(&self) -> bool {
        self.conn.phase == Phase::Done || self.conn.stream.peer_has_gone()
    }

    /// If the client leaves or sends bad data, that is no error of the handler. A client that has sent bad data, or none in
    /// time, has not gone: the server cuts its response short.
    #[cold]
    fn note_early_end(&mut self, error: Error) {
        let (has_left, is_answered) = (self.has_left(), matches!(error.class(), ErrorClass::Client(_)));
        self.conn.note_end_of_stream();
        self.conn.note_error(if has_left { ResponseEnd::CLIENT_GONE } else { ResponseEnd::CUT_SHORT });
        let (line, id) = (self.target(), self.id_for_log());
        let why = OneLine(&error);
        let line = format!("a response ended early at {line}, and its connection with it: {why}{id}");
        if has_left || is_answered {
            log_client(self.cx, format_args!("{line}"));
        } else {
            log_line!(Error, "{line}");
        }
    }

    /// Writes the part of the response that needs this thread. The engine sends the rest. Returns when the call ended,
    /// except for calls that never wait.
    ///
    /// Not inlined: otherwise the compiler copies each response once more.
    #[inline(never)]
    fn answer(&mut self, response: &mut Response, now: Tick, slot: &'a CallSlot) -> Tick {
        self.conn.timer.resume(now);
        if self.conn.http.is_connect() {
            let is_extended = self.target().method() != Method::CONNECT;
            if long_lived::refuse_without_tunnel(response, self.conn.is_stream(), is_extended) {
                let close = response.close;
                *response = self.in_shape(std::mem::take(response));
                response.close |= close;
            }
        }
        response.close |= self.is_last_response() || now >= self.conn.expires;
        let copied = match &response.payload {
            Payload::Bytes(bytes) if bytes.len() <= self.conn.copied_bytes_max => Some(bytes),
            Payload::File { read, .. } => read.as_ref(),
            _ => None,
        };
        let Some(bytes) = copied else { return self.answer_uncopied(response, now, slot) };
        let answered = self.copied(response, bytes, now);
        self.complete(answered);
        now
    }

    /// Writes any response that is not copied. Cold: otherwise the compiler does not inline what appends the bytes of copied
    /// responses.
    #[cold]
    fn answer_uncopied(&mut self, response: &mut Response, mut now: Tick, slot: &'a CallSlot) -> Tick {
        let answered = match std::mem::replace(&mut response.payload, Payload::Empty) {
            Payload::Stream(write) => {
                let streamed = self.stream(std::mem::take(response), write, slot);
                now = self.wait.now();
                streamed
            }
            // Otherwise the call would wait once more for a client whose time is up.
            Payload::LongLived(_) if self.conn.phase == Phase::Done => return now,
            Payload::LongLived(long_lived) => {
                self.last(response, *long_lived, now);
                return now;
            }
            Payload::HandlerError(mut failed) => {
                let said = failed.log(&self.target(), &self.id_for_log());
                let written = self.whole(response, &mut Payload::Bytes(said), now);
                response.payload = Payload::HandlerError(failed);
                written
            }
            mut payload => {
                let written = self.whole(response, &mut payload, now);
                // What is left of it is dropped when the answer is complete.
                response.payload = payload;
                written
            }
        };
        self.complete(answered);
        now
    }

    /// Leaves the rest of a response to the engine. If the response has failed, nothing follows it.
    #[inline]
    fn complete(&mut self, answered: io::Result<After>) {
        let after = answered.unwrap_or_else(|error| {
            self.note_early_end(error.into());
            After::Close
        });
        if self.conn.phase != Phase::Done {
            self.conn.phase = Phase::Send(after);
        }
    }

    /// Returns whether the server stops, and no request that has arrived waits behind this one.
    #[inline]
    fn is_last_response(&self) -> bool {
        self.cx.is_stopping() && !self.has_next_request()
    }

    #[cold]
    fn has_next_request(&self) -> bool {
        let is_more = self.conn.buffers.as_deref().is_some_and(|buffers| buffers.raw < buffers.input.len());
        is_more && self.conn.http.request_is_read()
    }

    /// Writes a response that is copied after its head, as most are.
    #[inline]
    fn copied(&mut self, response: &Response, bytes: &[u8], now: Tick) -> io::Result<After> {
        if !self.conn.http.request_is_read() {
            self.give_up_long_body();
        }
        let head = head_of(response, BodyLength::Exact(bytes.len() as u64));
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        let written = conn.http.write_response(&head, bytes, self.dates.at(now), output);
        if conn.observed.is_some() {
            conn.note_whole(response.status, bytes.len());
        }
        written.or_else(|misuse| self.fail(&misuse, Response::default()))
    }

    /// Closes the connection if the handler has left more of the request unread than is dropped to keep the connection.
    #[cold]
    fn give_up_long_body(&mut self) {
        if self.conn.http.body_left().is_some_and(|left| left > self.cx.settings.unread_bytes_max)
            && self.conn.owned_body.is_none()
        {
            self.conn.http.close_after();
        }
    }

    /// Writes a response of known length, which is handed over whole.
    #[inline(never)]
    fn whole(&mut self, response: &Response, payload: &mut Payload, now: Tick) -> io::Result<After> {
        self.give_up_long_body();
        let length = match payload {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::File { count, .. } => *count,
            Payload::Parts(parts) => parts.iter().map(BodyPart::count).sum(),
            _ => 0,
        };
        if let Err(misuse) = self.write_head(response, BodyLength::Exact(length), now) {
            return self.fail(&misuse, Response::default());
        }
        if length > 0 && self.conn.http.sends_body() {
            self.conn.note_body(length);
            match std::mem::replace(payload, Payload::Empty) {
                Payload::Bytes(bytes) => self.bypass(vec![BodyPart::Bytes(bytes)], length)?,
                Payload::File { file, offset, count, .. } if count <= FILE_COPIED_BYTES_MAX as u64 => {
                    self.append_file(&file, offset, count as usize)?
                }
                Payload::File { file, offset, count, .. } => {
                    self.bypass(vec![BodyPart::File { file, offset, count }], count)?
                }
                Payload::Parts(parts) => self.bypass(parts, length)?,
                _ => {}
            }
        }
        self.finish()
    }

    /// Replaces a response that cannot be written, before any part of it was written. It keeps some fields of that
    /// response.
    fn fail(&mut self, why: &dyn std::fmt::Display, meant: Response) -> io::Result<After> {
        let (line, id, why) = (self.target(), self.id_for_log(), OneLine(why));
        log_line!(Error, "a response could not be written at {line}, 500 is sent instead: {why}{id}");
        let response = self.in_shape(Response::server_error());
        let response = self.last_of(response).in_place_of(meant);
        let body = response.body().map_or(&[][..], |body| body);
        let head = head_of(&response, BodyLength::Exact(body.len() as u64));
        let date = self.dates.at(self.wait.now());
        let output = &mut self.conn.buffers.get_or_insert_default().output;
        let written = self.conn.http.write_response(&head, body, date, output);
        // The fields of that response may be why it cannot be written.
        let bare = ResponseHead { fields: &[], ..head };
        let written = written.or_else(|_| self.conn.http.write_response(&bare, body, date, output));
        self.conn.note_whole(response.status, body.len());
        written.map_err(io::Error::other)
    }

    /// Returns a response that replaces that of the handler, in the shape of the user.
    #[cold]
    fn in_shape(&mut self, response: Response) -> Response {
        let cx = self.cx;
        let Some((shape, problem)) = cx.problems.as_ref().zip(response.problem()) else { return response };
        match self.left {
            // The buffer holds the next request.
            Some(_) => shape.whole(&problem, None),
            None => shape.whole(&problem, Some(&Request::new(self))),
        }
    }

    /// Makes a response the last one of its connection, after an error. A request of HTTP/2 has no connection of its own, and
    /// its siblings go on.
    fn last_of(&self, response: Response) -> Response {
        if self.conn.is_stream() { response } else { response.with_close() }
    }

    fn write_head(&mut self, response: &Response, length: BodyLength, now: Tick) -> Result<(), Misuse> {
        let head = head_of(response, length);
        let date = self.dates.at(now);
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        let before = output.len();
        let written = conn.http.write_head(&head, date, output);
        match written {
            Ok(()) => conn.note_status(response.status),
            Err(_) => output.truncate(before),
        }
        written
    }

    fn bypass(&mut self, parts: Vec<BodyPart>, count: u64) -> io::Result<()> {
        self.conn.http.body_bypassed(count).map_err(io::Error::other)?;
        if self.conn.is_stream() {
            self.conn.leave_body(parts);
            return Ok(());
        }
        let mut then = parts.into_iter();
        *self.conn.pending_body = then.next().map(|part| Box::new(PendingBody::Known { part, then }));
        Ok(())
    }

    /// Limit of the bytes that are read here and leave together with the head.
    fn append_file(&mut self, file: &File, offset: u64, count: usize) -> io::Result<()> {
        let conn = &mut *self.conn;
        conn.http.body_bypassed(count as u64).map_err(io::Error::other)?;
        let output = &mut conn.buffers.get_or_insert_default().output;
        let start = output.len();
        output.resize(start + count, 0);
        let read = read_file(file, &mut output[start..], offset);
        if read.is_err() {
            output.truncate(start);
        }
        read
    }

    fn finish(&mut self) -> io::Result<After> {
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        let trailers = self.streamed.as_ref().map_or(&[][..], |streamed| &streamed.trailers);
        conn.http.finish(trailers, output).map_err(io::Error::other)
    }
}

fn head_of(response: &Response, length: BodyLength) -> ResponseHead<'_> {
    ResponseHead {
        status: response.status,
        content_type: response.content_type.as_ref(),
        fields: &response.fields,
        length,
        close: response.close,
    }
}
