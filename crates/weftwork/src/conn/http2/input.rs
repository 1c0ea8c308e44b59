//! Reads frames: requests, their bodies, and what concerns the connection.

use std::io::Write;

use http::Method;
use weftwork_wire::{
    Budget, ErrorCode, ExpectedBody, Field, Frame, Framing, Head, Http2, Http2Fault, Priority, Violation,
    Window,
};

use super::request::prepare_connect;
use super::stop::write_reset;
use super::streams::{ResponsePart, StreamEntry};
use super::{Http2Conn, Role, replies_max};
use crate::conn::Conn;
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::{CostlyFrame, Event};
use crate::transport::stream::StreamPipe;
use crate::transport::{BufferPool, Buffers, Tick};

/// Space for what is added to the content of a frame: size and end of a chunk, and the end of the body.
const FRAMING_BYTES: usize = 16;

/// What frames may lead to: the bytes to send, and what is needed for them.
struct Replies<'a> {
    output: &'a mut Vec<u8>,
    now: Tick,
    cx: &'a Context,
}

/// A request that a frame has opened.
struct Opened {
    stream: u32,
    ends: bool,
    priority: Priority,
    /// Its DATA are bytes of another protocol.
    is_connect: bool,
    /// Why it is not valid.
    fault: Option<Http2Fault>,
}

impl Opened {
    #[cold]
    fn with_protocol(self, request: &mut Buffers) -> Opened {
        match prepare_connect(&mut request.head, &mut request.input) {
            Ok(()) => Opened { is_connect: true, ..self },
            Err(violation) => {
                request.head.framing = Framing::None;
                Opened { fault: Some(Http2Fault::stream_error(self.stream, violation)), ..self }
            }
        }
    }
}

impl Conn {
    /// Reads the frames that have arrived, after [`Step::Stream`](crate::conn::Step::Stream). Returns the next request,
    /// for its own thread, fiber or call. None: nothing more has arrived.
    #[inline(never)]
    pub(crate) fn read_frames(
        &mut self,
        now: Tick,
        cx: &Context,
        pool: &mut BufferPool,
    ) -> Option<Box<Conn>> {
        let Role::Connection(mut http2) = std::mem::take(&mut self.role) else { return None };
        let mut buffers = self.buffers.take().unwrap_or_default();
        let mut request = pool.take();
        let replies = replies_max(&self.timer);
        let opened = http2.read_until_request(&mut buffers, &mut request, None, replies, now, cx);
        let stream = match opened {
            Ok(None) => {
                pool.give_back(request);
                None
            }
            Ok(Some(opened)) => {
                // A request may be over before the connection waits. The time without requests begins again.
                if self.timer.kind != TimeoutKind::Write {
                    self.timer = self.timer.then(TimeoutKind::Heartbeat, now);
                }
                let mut stream = self.open(&mut http2, &opened, request, now, cx);
                if stream.http.wants_continue() && Http2::is_data(buffers.unread(), opened.stream) {
                    self.read_unasked(&mut http2, &mut buffers, (opened.stream, &mut stream), now, cx, pool);
                }
                Some(stream)
            }
            Err(fault) => {
                pool.give_back(request);
                http2.fail(&fault, &mut buffers.output, cx);
                self.log_fault_of_http2(&fault, cx);
                None
            }
        };
        if buffers.start == buffers.input.len() {
            buffers.input.clear();
            buffers.start = 0;
        }
        (buffers.raw, buffers.payload) = (buffers.start, buffers.start..buffers.start);
        self.buffers = Some(buffers);
        self.role = Role::Connection(http2);
        stream
    }

    /// Reads what has come of a body for which the client might have waited: it needs no 100 Continue (RFC 9110 section
    /// 10.1.1).
    #[cold]
    fn read_unasked(
        &self,
        http2: &mut Http2Conn,
        buffers: &mut Buffers,
        (id, stream): (u32, &mut Conn),
        now: Tick,
        cx: &Context,
        pool: &mut BufferPool,
    ) {
        let mut unused = pool.take();
        let replies = replies_max(&self.timer);
        if let Err(fault) = http2.read_until_request(buffers, &mut unused, Some(id), replies, now, cx) {
            http2.fail(&fault, &mut buffers.output, cx);
            self.log_fault_of_http2(&fault, cx);
        }
        pool.give_back(unused);
        // If nothing has come, the request finds that out.
        let _ = stream.fill(now, pool);
    }

    /// Adds a stream, and returns its request.
    fn open(
        &self,
        http2: &mut Http2Conn,
        opened: &Opened,
        request: Box<Buffers>,
        now: Tick,
        cx: &Context,
    ) -> Box<Conn> {
        let pipe = StreamPipe::new(opened.stream, &http2.hub);
        let is_connect = opened.is_connect;
        if is_connect && opened.ends {
            pipe.end();
        }
        let framing = request.head.framing;
        http2.streams.push(StreamEntry {
            id: opened.stream,
            pipe: pipe.clone(),
            priority: opened.priority,
            send_window: Window::new(http2.http.peer().window),
            recv_window: Window::default(),
            body: ExpectedBody::new(if is_connect { Framing::Chunked } else { framing }),
            is_connect,
            framing,
            end_code: opened.fault.as_ref().map_or(ErrorCode::NO_ERROR, Http2Fault::code),
            is_refused: opened.fault.is_some(),
            client_ended: opened.ends,
            is_padded: false,
            given: 0,
            taken: 0,
            response: ResponsePart::Head,
            is_ready: false,
            is_reset: false,
            client_reset: false,
            is_closed: false,
            left: None,
        });
        let mut conn = self.of_stream(pipe, request, now, cx);
        match &opened.fault {
            None => conn.begin_stream(cx),
            Some(fault) => conn.refuse_stream(fault, cx),
        }
        conn
    }
}

impl Http2Conn {
    /// Reads frames up to the next request, or DATA `of` one stream, while fewer bytes than `replies_max` wait for the client.
    fn read_until_request(
        &mut self,
        buffers: &mut Buffers,
        request: &mut Buffers,
        of: Option<u32>,
        replies_max: usize,
        now: Tick,
        cx: &Context,
    ) -> Result<Option<Opened>, Http2Fault> {
        let Buffers { input, start, output, sent, .. } = buffers;
        let mut to = Replies { output, now, cx };
        while to.output.len() - *sent < replies_max {
            let bytes = &input[*start..];
            if of.is_some_and(|stream| !Http2::is_data(bytes, stream)) {
                break;
            }
            let (used, frame) = self.http.read(bytes, &cx.limits, &mut request.head, &mut request.input)?;
            if frame == Frame::NeedMore {
                self.part_bytes = bytes.len() - used;
                *start += used;
                return Ok(None);
            }
            (self.part_bytes, self.pinged_at) = (0, None);
            let price = self.budget.price(&frame);
            if price > 0 {
                self.charge((&frame).into(), price, &to)?;
            }
            let opened = self.take_frame(frame, bytes, request, &mut to)?;
            *start += used;
            if opened.is_some() {
                return Ok(opened);
            }
        }
        Ok(None)
    }

    fn take_frame(
        &mut self,
        frame: Frame,
        bytes: &[u8],
        request: &mut Buffers,
        to: &mut Replies<'_>,
    ) -> Result<Option<Opened>, Http2Fault> {
        match frame {
            Frame::Head { stream, ends, priority } => {
                let opened = self.accept(stream, ends, priority, to)?;
                return Ok(match request.head.method == Method::CONNECT {
                    true => opened.map(|opened| opened.with_protocol(request)),
                    false => opened,
                });
            }
            Frame::StreamError { fault, ends, is_request } => {
                return self.take_stream_error(fault, ends, is_request, &mut request.head, to);
            }
            Frame::Data { stream, start, len, flow, padding, ends } => {
                self.take_data(stream, &bytes[start..start + len], (flow, padding), ends, to)?;
                self.grant_connection(to.cx, to.output);
            }
            Frame::Trailers { stream } => self.take_trailers(stream, request, to)?,
            Frame::Window { stream: 0, by } => self.take_window_of_connection(by)?,
            Frame::Window { stream, by } => self.take_window(stream, by, to)?,
            Frame::Reset { stream, code } => {
                to.cx.record(Event::ResetReceived(code.into()));
                self.drops_late(stream, 0, true);
                self.take_reset(stream);
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.client_reset = true;
                }
            }
            Frame::Settings { window_shift } => {
                for stream in self.streams.iter_mut() {
                    stream.send_window.shift(window_shift)?;
                    stream.is_ready = true;
                }
                Http2::write_settings_ack(to.output);
            }
            Frame::Priority { stream, priority } => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.priority = priority;
                }
            }
            Frame::Ping(data) => Http2::write_ping_ack(data, to.output),
            Frame::PingAcked(data) => self.take_ping(data),
            Frame::GoAway { .. } => self.goaway.client_leaves(),
            Frame::NeedMore
            | Frame::Part
            | Frame::Nothing
            | Frame::SettingsAcked
            | Frame::Response { .. } => {}
        }
        Ok(None)
    }

    /// Returns the stream, unless too many requests are in progress. A request counts until its handler is done, also
    /// after a reset: otherwise a client that resets each request at once would have any number of them (CVE-2023-44487).
    fn accept(
        &mut self,
        stream: u32,
        ends: bool,
        priority: Priority,
        to: &mut Replies<'_>,
    ) -> Result<Option<Opened>, Http2Fault> {
        if self.streams.are_full(to.cx.settings.http2_streams_max as usize) || !self.goaway.takes(stream) {
            self.charge(CostlyFrame::Refused, Budget::REFUSED, to)?;
            write_reset(stream, ErrorCode::REFUSED_STREAM, to.output, to.cx);
            if !ends {
                self.late.push(stream, Window::default());
            }
            return Ok(None);
        }
        Ok(Some(Opened { stream, ends, priority, is_connect: false, fault: None }))
    }

    fn take_stream_error(
        &mut self,
        fault: Http2Fault,
        ends: bool,
        is_request: bool,
        head: &mut Head,
        to: &mut Replies<'_>,
    ) -> Result<Option<Opened>, Http2Fault> {
        let Some(stream) = fault.stream() else { return Err(fault) };
        if is_request && fault.status().is_some() {
            let opened = self.accept(stream, ends, Priority::default(), to)?;
            head.framing = Framing::None;
            return Ok(opened.map(|opened| Opened { fault: Some(fault), ..opened }));
        }
        if self.drops_late(stream, 0, ends) {
            return Ok(None);
        }
        let is_head = fault.status().is_some();
        match self.streams.get_mut(stream) {
            None if is_head => return Err(Http2Fault::connection(Violation::StreamClosed)),
            // RFC 9113 section 6.4: a stream that is idle is not reset.
            None if stream > self.http.last_stream() => return Err(Http2Fault::connection(fault.violation)),
            Some(entry) if is_head && entry.is_closed_by_client() => {
                return Err(Http2Fault::connection(Violation::StreamClosed));
            }
            _ => {}
        }
        // Trailers above a limit have no status, because the request may be in its handler.
        let code =
            if fault.code() == ErrorCode::NO_ERROR { ErrorCode::ENHANCE_YOUR_CALM } else { fault.code() };
        self.reset(stream, code, to);
        Ok(None)
    }

    /// Ends a stream over an error of the client.
    fn reset(&mut self, stream: u32, code: ErrorCode, to: &mut Replies<'_>) {
        write_reset(stream, code, to.output, to.cx);
        self.take_reset(stream);
    }

    /// Ends a stream over an error of the client that its frame has not paid for (CVE-2025-8671).
    fn reset_at_cost(&mut self, fault: Http2Fault, to: &mut Replies<'_>) -> Result<(), Http2Fault> {
        self.charge(CostlyFrame::Fault, Budget::STREAM_ERROR, to)?;
        self.reset(fault.stream, fault.code(), to);
        Ok(())
    }

    /// Takes points, or ends the connection.
    #[cold]
    fn charge(&mut self, what: CostlyFrame, points: u32, to: &Replies<'_>) -> Result<(), Http2Fault> {
        to.cx.record(Event::FrameCost(what));
        self.budget.spend(points, to.now.0)
    }

    fn take_reset(&mut self, stream: u32) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.is_reset = true;
            stream.pipe.reset();
        }
    }

    fn take_data(
        &mut self,
        stream: u32,
        data: &[u8],
        (flow, padding): (u32, u32),
        ends: bool,
        to: &mut Replies<'_>,
    ) -> Result<(), Http2Fault> {
        self.recv_window.take(flow, 0)?;
        let Some(entry) = self.streams.get_mut(stream).filter(|entry| !entry.is_reset || entry.client_reset)
        else {
            if !self.drops_late(stream, flow, ends) && flow > 0 {
                self.charge(CostlyFrame::LateData, Budget::LATE_DATA, to)?;
                self.reset(stream, ErrorCode::STREAM_CLOSED, to);
            }
            return Ok(());
        };
        if entry.is_refused && !entry.is_closed_by_client() {
            entry.client_ended = ends;
            return Ok(());
        }
        let counted = match entry.is_closed_by_client() {
            true => Err(Violation::StreamClosed),
            false => entry.body.count(data.len() as u64, ends),
        };
        let counted = counted.map_err(|violation| Http2Fault::stream_error(stream, violation));
        if let Err(fault) = counted.and_then(|()| entry.recv_window.take(flow, stream)) {
            return self.reset_at_cost(fault, to);
        }
        entry.client_ended = ends;
        entry.is_padded |= padding > 0;
        let framing = entry.framing;
        let before = entry.given;
        entry.pipe.give(data.len() + FRAMING_BYTES, |to| {
            let len = to.len();
            append(data, framing, to);
            if ends {
                append_end(framing, &[], &[], to);
            }
            entry.given += (to.len() - len) as u64;
        });
        if ends && entry.is_connect {
            entry.pipe.end();
        }
        self.held += entry.given - before;
        self.note_given(stream);
        Ok(())
    }

    fn take_trailers(
        &mut self,
        stream: u32,
        trailers: &Buffers,
        to: &mut Replies<'_>,
    ) -> Result<(), Http2Fault> {
        if self.drops_late(stream, 0, true) {
            return Ok(());
        }
        let open = self.streams.get_mut(stream).filter(|entry| !entry.is_closed_by_client());
        let entry = open.ok_or(Http2Fault::connection(Violation::StreamClosed))?;
        if entry.is_refused {
            entry.client_ended = true;
            return Ok(());
        }
        let counted = match entry.is_connect {
            true => Err(Violation::TrailersNotAllowed),
            false => entry.body.count(0, true),
        };
        if let Err(violation) = counted {
            return self.reset_at_cost(Http2Fault::stream_error(stream, violation), to);
        }
        entry.client_ended = true;
        let framing = entry.framing;
        let before = entry.given;
        entry.pipe.give(FRAMING_BYTES, |to| {
            let len = to.len();
            append_end(framing, &trailers.head.fields, &trailers.input, to);
            entry.given += (to.len() - len) as u64;
        });
        self.held += entry.given - before;
        self.note_given(stream);
        Ok(())
    }

    /// The request is woken later, because a thread that is woken for each frame would cost two switches for each.
    fn note_given(&mut self, stream: u32) {
        if self.given.last() != Some(&stream) {
            self.given.push(stream);
        }
    }

    /// Wakes the requests that have more of their bodies.
    pub(super) fn wake_given(&mut self) {
        for stream in self.given.drain(..) {
            if let Some(entry) = self.streams.get_mut(stream) {
                entry.pipe.wake_request();
            }
        }
    }

    fn take_window_of_connection(&mut self, by: u32) -> Result<(), Http2Fault> {
        if self.send_window.available() == 0 {
            // Any response may have waited for it.
            self.streams.iter_mut().for_each(|stream| stream.is_ready = true);
        }
        // Clients raise the window before their first request, and then by what they have read.
        self.data_read = self.data_sent.min(self.data_read + u64::from(by));
        self.send_window.add(by, 0)
    }

    fn take_window(&mut self, stream: u32, by: u32, to: &mut Replies<'_>) -> Result<(), Http2Fault> {
        let Some(entry) = self.streams.get_mut(stream) else { return Ok(()) };
        entry.is_ready = true;
        entry.send_window.add(by, stream).or_else(|fault| self.reset_at_cost(fault, to))
    }
}

/// Appends a part of a body, in the form in which a request reads it: see [`Http1::begin_stream`](weftwork_wire::Http1::begin_stream).
fn append(data: &[u8], framing: Framing, to: &mut Vec<u8>) {
    if framing != Framing::Chunked {
        return to.extend_from_slice(data);
    }
    if !data.is_empty() {
        // A vector takes everything.
        let _ = write!(to, "{:x}\r\n", data.len());
        to.extend_from_slice(data);
        to.extend_from_slice(b"\r\n");
    }
}

/// Appends the end of a body, with its trailers.
fn append_end(framing: Framing, trailers: &[Field], text: &[u8], to: &mut Vec<u8>) {
    match framing {
        Framing::None => return,
        Framing::Length(1..) => to.extend_from_slice(b"\r\n0\r\n"),
        Framing::Length(0) | Framing::Chunked => to.extend_from_slice(b"0\r\n"),
    }
    for field in trailers {
        to.extend_from_slice(field.name.of(text));
        to.extend_from_slice(b": ");
        to.extend_from_slice(field.value.of(text));
        to.extend_from_slice(b"\r\n");
    }
    to.extend_from_slice(b"\r\n");
}
