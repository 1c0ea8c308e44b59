//! What happens between a request's head and its response: the handler's view of the connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::{After, BodyEvent, BodyLength, Head, ResponseHead};

use super::{Conn, Flushed, OUTPUT_BYTES_MAX, Phase, Rest, Wait};
use crate::message::exchange::Exchange;
use crate::message::{BodyError, BodyWriter, Handler, Payload, Request, Response};
use crate::transport::context::{Context, Stage};
use crate::transport::counters::Counters;
use crate::transport::deadlines::{Pace, Timeout};
use crate::transport::stream::is_would_block;
use crate::transport::{Buffers, DateCache};

/// Bodies up to this are copied behind their head: cheaper than a second slice for the kernel to walk.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// A streamed response is sent when this much of it is there.
const STREAM_BYTES: usize = 16 << 10;

/// What a run of the handler needs.
pub(crate) struct Call<'a> {
    pub(crate) cx: &'a Context,
    pub(crate) handler: &'a dyn Handler,
    pub(crate) wait: &'a dyn Wait,
    pub(crate) dates: &'a mut DateCache,
}

/// A request in progress.
struct Live<'a> {
    conn: &'a mut Conn,
    cx: &'a Context,
    wait: &'a dyn Wait,
}

impl Conn {
    /// After [`Step::Call`](super::Step::Call): runs the handler and takes its response. Blocks only in the
    /// handler, in the writer of a streamed body, and there only through `call.wait`.
    pub(crate) fn run(&mut self, call: Call<'_>) {
        let Call { cx, handler, wait, dates } = call;
        let mut live = Live { conn: self, cx, wait };
        let response = live.respond(handler);
        live.answer(response, dates);
    }

    fn held(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_default()
    }
}

impl Live<'_> {
    fn respond(&mut self, handler: &dyn Handler) -> Response {
        let body_bytes_max = self.cx.settings.body_bytes_max.0;
        let mut request = Request::new(self, body_bytes_max);
        match catch_unwind(AssertUnwindSafe(|| handler.call(&mut request))) {
            Ok(response) => response,
            Err(panic) => {
                drop(request);
                self.note_panic(&panic);
                Response::text("the handler panicked\n").with_status(StatusCode::INTERNAL_SERVER_ERROR).with_close()
            }
        }
    }

    fn note_panic(&self, panic: &(dyn std::any::Any + Send)) {
        Counters::count(&self.cx.counters.panics);
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let (method, path) = self.conn.route();
        log::error!("a handler panicked at {method} {}: {said}", path.escape_debug());
    }

    /// Writes the response as far as this thread has to; the rest is sent by the engine.
    fn answer(&mut self, mut response: Response, dates: &mut DateCache) {
        let now = self.wait.now();
        response.close |= self.cx.stage() != Stage::Running || now >= self.conn.expires;
        let unread = self.conn.http.body_left();
        if unread.is_some_and(|left| left > self.cx.settings.unread_bytes_max.0) {
            self.conn.http.close_after();
        }
        if let Err(misuse) = self.write_head(&response, dates) {
            log::error!("a response could not be sent, 500 is sent instead: {misuse}");
            response = Response::new(StatusCode::INTERNAL_SERVER_ERROR).with_close();
            if self.write_head(&response, dates).is_err() {
                self.conn.phase = Phase::Send(After::Close);
                return;
            }
        }
        let after = match self.write_payload(response.payload) {
            Ok(after) => after,
            Err(error) => {
                log::info!("a response ended early, and its connection with it: {error}");
                After::Close
            }
        };
        self.conn.phase = Phase::Send(after);
    }

    fn write_head(&mut self, response: &Response, dates: &mut DateCache) -> Result<(), weftwork_wire::Misuse> {
        let length = match &response.payload {
            Payload::Empty => BodyLength::Exact(0),
            Payload::Bytes(bytes) => BodyLength::Exact(bytes.len() as u64),
            Payload::File { count, .. } => BodyLength::Exact(*count),
            Payload::Stream(_) => BodyLength::Unknown,
        };
        let head = ResponseHead {
            status: response.status,
            content_type: response.content_type.as_ref(),
            fields: &response.fields,
            length,
            close: response.close,
        };
        let date = dates.at(self.wait.now());
        self.conn.buffers.get_or_insert_default();
        let Some(buffers) = self.conn.buffers.as_deref_mut() else { return Ok(()) };
        let before = buffers.output.len();
        let written = self.conn.http.write_head(&head, date, &mut buffers.output);
        if written.is_err() {
            buffers.output.truncate(before);
        }
        written
    }

    fn write_payload(&mut self, payload: Payload) -> io::Result<After> {
        if self.conn.http.sends_body() {
            match payload {
                Payload::Empty => {}
                Payload::Bytes(bytes) if bytes.len() <= COPIED_BYTES_MAX => self.append(&bytes)?,
                Payload::Bytes(bytes) => {
                    self.conn.http.body_bypassed(bytes.len() as u64).map_err(io::Error::other)?;
                    self.conn.rest = Some(Box::new(Rest::Bytes(bytes)));
                }
                Payload::File { file, offset, count } if count > 0 => {
                    self.conn.http.body_bypassed(count).map_err(io::Error::other)?;
                    self.conn.rest = Some(Box::new(Rest::File { file, offset, count }));
                }
                Payload::File { .. } => {}
                Payload::Stream(write) => {
                    let mut writer = BodyWriter::new(self);
                    catch_unwind(AssertUnwindSafe(|| write(&mut writer))).unwrap_or_else(|panic| {
                        self.note_panic(&panic);
                        Err(io::Error::other("the writer of a streamed body panicked"))
                    })?;
                }
            }
        }
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        conn.http.finish(&[], output).map_err(io::Error::other)
    }

    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        conn.http.write_body(data, output).map_err(io::Error::other)
    }

    /// Sends until at most `left` bytes wait to be sent.
    fn push(&mut self, left: usize) -> io::Result<()> {
        loop {
            let flushed = self.conn.flush(self.wait.now())?;
            if flushed == Flushed::All || self.conn.unsent() <= left {
                return Ok(());
            }
            if flushed == Flushed::Blocked {
                let until = self.conn.deadline(self.cx);
                self.wait.writable(self.conn.stream.as_fd(), until)?;
            }
        }
    }

    /// Waits for bytes of the body, and reads them.
    fn receive(&mut self) -> Result<(), BodyError> {
        let head_end = {
            let buffers = self.conn.held();
            buffers.start + buffers.head.bytes as usize
        };
        loop {
            let buffers = self.conn.held();
            buffers.compact(head_end);
            buffers.make_room(1);
            match self.conn.stream.recv(&mut self.conn.buffers.get_or_insert_default().input) {
                Ok(0) => return Err(BodyError::Disconnected),
                Ok(count) => {
                    self.conn.pace.advance(count, self.wait.now());
                    return Ok(());
                }
                Err(error) if is_would_block(&error) => self.wait_for_body()?,
                Err(error) => return Err(BodyError::Socket(error.kind())),
            }
        }
    }

    fn wait_for_body(&mut self) -> Result<(), BodyError> {
        let now = self.wait.now();
        match self.conn.pace.what {
            Timeout::Body => self.conn.pace.resume(now),
            _ => self.conn.pace = Pace::start(Timeout::Body, now),
        }
        let until = self.conn.deadline(self.cx);
        self.wait.readable(self.conn.stream.as_fd(), until).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => BodyError::Timeout,
            io::ErrorKind::ConnectionAborted => BodyError::ServerStops,
            kind => BodyError::Socket(kind),
        })
    }

    fn say_continue(&mut self) -> Result<(), BodyError> {
        let said = self.interim(StatusCode::CONTINUE, &[]);
        said.map_err(|error| BodyError::Socket(error.kind()))
    }
}

impl Exchange for Live<'_> {
    fn head(&self) -> (&Head, &[u8]) {
        match self.conn.buffers.as_deref() {
            Some(buffers) => (&buffers.head, buffers.unread()),
            None => unreachable!("a request in progress holds the buffers its head is in"),
        }
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.peer
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.local_addr()
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        loop {
            if !self.conn.held().payload.is_empty() {
                break;
            }
            match self.conn.decode(self.cx).map_err(BodyError::Malformed)? {
                BodyEvent::Data { .. } => {}
                BodyEvent::End => break,
                BodyEvent::NeedMore => {
                    if self.conn.http.wants_continue() && self.conn.buffered_body() == 0 {
                        self.say_continue()?;
                    }
                    self.receive()?;
                }
            }
        }
        let buffers = self.conn.held();
        Ok(&buffers.input[buffers.payload.clone()])
    }

    fn consume(&mut self, count: usize) {
        let payload = &mut self.conn.held().payload;
        payload.start = (payload.start + count).min(payload.end);
    }

    fn body_left(&self) -> Option<u64> {
        let buffered = self.conn.buffers.as_deref().map_or(0, |buffers| buffers.payload.len() as u64);
        self.conn.http.body_left().map(|left| left + buffered)
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.conn.http.trailers()
    }

    fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        conn.http.write_interim(status, fields, output).map_err(io::Error::other)?;
        self.push(0)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        for part in data.chunks(OUTPUT_BYTES_MAX / 2) {
            self.append(part)?;
            if self.conn.unsent() >= STREAM_BYTES {
                self.push(OUTPUT_BYTES_MAX)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push(0)
    }
}
