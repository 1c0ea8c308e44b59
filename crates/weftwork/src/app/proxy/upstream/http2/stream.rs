//! One request on a shared connection: sends it, and takes its response.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use weftwork_wire::{ErrorCode, Http2, Received, RequestHead};

use super::super::super::Failure;
use super::super::super::request::Http2Head;
use super::super::conn::wait_readable;
use super::super::either::Part;
use super::super::from_now;
use super::conn::{OUT_BYTES_MAX, STREAM_WINDOW, SharedConn};
use super::state::{Fields, State, Stream, StreamEnd};
use crate::transport::stream::is_timed_out;
use crate::transport::wake_pipe::WakePipe;

/// A request on a shared connection. It gives up its stream when it is dropped.
pub(in crate::app::proxy) struct Http2Stream {
    conn: Arc<SharedConn>,
    signal: Arc<WakePipe>,
    /// 0 before the head is sent, or if the connection takes no more streams.
    id: u32,
    has_tried: bool,
    /// Received content, unused from `at` on.
    body: Vec<u8>,
    at: usize,
    /// The end of the response was returned.
    is_over: bool,
    pub(in crate::app::proxy) has_received_nothing: bool,
    trailers: Fields,
    /// Content to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    output_end: OutputEnd,
    pub(in crate::app::proxy) bytes_sent: u64,
}

enum OutputEnd {
    /// More content follows.
    Open,
    /// The end is to be sent, with these trailers.
    Queued(Fields),
    Sent,
}

impl Http2Stream {
    /// Returns a request that has a place on `conn`.
    pub(super) fn new(conn: Arc<SharedConn>) -> io::Result<Http2Stream> {
        let signal = conn.signal().inspect_err(|_| conn.give_back())?;
        Ok(Http2Stream {
            conn,
            signal,
            id: 0,
            has_tried: false,
            body: Vec::new(),
            at: 0,
            is_over: false,
            has_received_nothing: true,
            trailers: Fields::new(),
            output: Vec::new(),
            sent: 0,
            output_end: OutputEnd::Open,
            bytes_sent: 0,
        })
    }

    /// Sends the head. `ends`: no body follows.
    pub(in crate::app::proxy) fn send_head(&mut self, method: &Method, head: &Http2Head, ends: bool) {
        let request = RequestHead {
            method,
            scheme: Some(self.conn.scheme),
            path: Some(&head.path),
            authority: Some(&head.authority),
            protocol: None,
            fields: &head.fields,
        };
        let write = |http: &mut Http2, out: &mut Vec<u8>| http.write_request(&request, ends, out);
        self.signal.clear();
        self.id = self.conn.open(self.signal.clone(), *method == Method::HEAD, write);
        self.has_tried = true;
        if ends {
            self.output_end = OutputEnd::Sent;
        }
    }

    /// Lets no later request use the connection.
    pub(in crate::app::proxy) fn retire_conn(&self) {
        self.conn.retire();
    }

    /// Queues a part of the body.
    pub(in crate::app::proxy) fn put(&mut self, part: &[u8]) {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        self.output.extend_from_slice(part);
    }

    /// Queues the end of the body.
    pub(in crate::app::proxy) fn end_body(&mut self, trailers: Fields) {
        if matches!(self.output_end, OutputEnd::Open) {
            self.output_end = OutputEnd::Queued(trailers);
        }
    }

    /// Returns whether everything that was queued is sent.
    pub(in crate::app::proxy) fn is_sent(&self) -> bool {
        self.sent == self.output.len() && !matches!(self.output_end, OutputEnd::Queued(_))
    }

    /// Sends what is queued. Returns false if the server takes nothing more, or if it takes nothing now and has sent
    /// something. It may take nothing for `timeout`, and must have taken everything by `end`.
    pub(in crate::app::proxy) fn send_output(&mut self, timeout: Duration, end: Instant) -> io::Result<bool> {
        let mut until = from_now(timeout).min(end);
        let conn = self.conn.clone();
        while !self.is_sent() {
            self.signal.clear();
            let mut state = conn.lock();
            if self.send_some(&mut state) {
                conn.flush(&mut state);
                until = from_now(timeout).min(end);
                continue;
            }
            let has_input = self.has_unused() || self.has_more(&state);
            let Some(stream) = state.streams.get_mut(&self.id) else { return Ok(false) };
            // If the connection cannot be written, its end is near.
            if has_input || (stream.is_reset && stream.end.is_some()) {
                return Ok(false);
            }
            stream.waits = true;
            drop(state);
            wait_readable(&*self.signal, until)?;
        }
        Ok(true)
    }

    /// Writes as many frames as the windows allow. Returns whether there were any.
    fn send_some(&mut self, state: &mut State) -> bool {
        let space = OUT_BYTES_MAX.saturating_sub(state.unsent());
        let State { http, out, streams, send_window, .. } = state;
        let Some(stream) = streams.get_mut(&self.id).filter(|stream| !stream.is_reset) else { return false };
        let rest = &self.output[self.sent..];
        let window = stream.send_window.available().min(send_window.available()) as usize;
        let count = rest.len().min(window).min(space);
        let is_last = count == rest.len();
        if count == 0 && !(is_last && space > 0) {
            return false;
        }
        // Cannot fail: both windows have as much.
        if stream.send_window.take(count as u32, self.id).and(send_window.take(count as u32, 0)).is_err() {
            return false;
        }
        let trailers = match &mut self.output_end {
            OutputEnd::Queued(trailers) if is_last => Some(std::mem::take(trailers)),
            _ => None,
        };
        let ends = trailers.as_ref().is_some_and(Fields::is_empty);
        Http2::write_data(self.id, &rest[..count], ends, out);
        if let Some(trailers) = trailers {
            self.output_end = OutputEnd::Sent;
            if !ends {
                http.write_trailers(self.id, &trailers, out);
            }
        }
        self.sent += count;
        self.bytes_sent += count as u64;
        true
    }

    fn has_unused(&self) -> bool {
        self.at < self.body.len()
    }

    /// Returns whether something has arrived that was not returned yet.
    fn has_more(&self, state: &State) -> bool {
        let has = |stream: &Stream| {
            !stream.heads.is_empty() || !stream.body.is_empty() || (stream.end.is_some() && !self.is_over)
        };
        state.streams.get(&self.id).map_or(self.has_tried, has)
    }

    /// Returns whether there is input, or an end. Does not wait.
    pub(in crate::app::proxy) fn has_input(&self) -> bool {
        self.has_unused() || self.has_more(&self.conn.lock())
    }

    /// Waits for input until `until`.
    pub(in crate::app::proxy) fn fill(&self, until: Instant) -> io::Result<()> {
        loop {
            self.signal.clear();
            let mut state = self.conn.lock();
            if self.has_unused() || self.has_more(&state) {
                return Ok(());
            }
            if let Some(stream) = state.streams.get_mut(&self.id) {
                stream.waits = true;
            }
            drop(state);
            wait_readable(&*self.signal, until)?;
        }
    }

    /// Waits for input. Returns false if no input arrives by `until`.
    pub(in crate::app::proxy) fn wait_for_input(&self, until: Instant) -> io::Result<bool> {
        match self.fill(until) {
            Err(error) if is_timed_out(&error) => Ok(false),
            waited => waited.map(|()| true),
        }
    }

    /// Takes the next head, if it has arrived.
    pub(in crate::app::proxy) fn read_head(&mut self) -> Result<Option<Received>, Failure> {
        let mut state = self.conn.lock();
        let Some(stream) = state.streams.get_mut(&self.id) else { return Err(Failure::Unprocessed) };
        match (stream.heads.pop_front(), &stream.end) {
            (Some(received), _) => {
                self.has_received_nothing = false;
                Ok(Some(received))
            }
            (None, None) => Ok(None),
            (None, Some(end)) => Err(failure(end)),
        }
    }

    /// Takes the next part of the body, if it has arrived.
    pub(in crate::app::proxy) fn next_part(&mut self) -> Result<Part<'_>, Failure> {
        if !self.has_unused() && !self.take_body()? {
            return Ok(if self.is_over { Part::End } else { Part::NeedMore });
        }
        let start = std::mem::replace(&mut self.at, self.body.len());
        Ok(Part::Data(&self.body[start..]))
    }

    /// Takes content from the connection, and lets the server send as much again. Returns false if no content is there.
    fn take_body(&mut self) -> Result<bool, Failure> {
        let mut state = self.conn.lock();
        let State { streams, out, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.id) else { return Err(Failure::Closed) };
        if stream.body.is_empty() {
            match &stream.end {
                None => {}
                Some(StreamEnd::Whole) => {
                    self.is_over = true;
                    self.trailers = std::mem::take(&mut stream.trailers);
                }
                Some(end) => return Err(failure(end)),
            }
            return Ok(false);
        }
        self.body.clear();
        self.at = 0;
        std::mem::swap(&mut self.body, &mut stream.body);
        // What was granted before is in use, or has arrived.
        let by = STREAM_WINDOW - stream.window.available().min(STREAM_WINDOW);
        if stream.end.is_none() && by >= STREAM_WINDOW / 4 && stream.window.add(by, self.id).is_ok() {
            Http2::write_window_update(self.id, by, out);
            self.conn.flush(&mut state);
        }
        Ok(true)
    }

    /// Returns the trailers of a response that was read to its end.
    pub(in crate::app::proxy) fn trailers(&self) -> &[(http::HeaderName, http::HeaderValue)] {
        &self.trailers
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        match self.id {
            0 => self.conn.give_back(),
            id => self.conn.close(id, matches!(self.output_end, OutputEnd::Sent)),
        }
    }
}

/// Returns why there is no response, or no more of it.
fn failure(end: &StreamEnd) -> Failure {
    match end {
        StreamEnd::Reset(ErrorCode::HTTP_1_1_REQUIRED) => Failure::NeedsHttp1,
        StreamEnd::Reset(code) => Failure::Reset(*code),
        StreamEnd::Fault(fault) => Failure::MalformedHttp2(*fault),
        StreamEnd::Unprocessed => Failure::Unprocessed,
        StreamEnd::Closed | StreamEnd::Whole => Failure::Closed,
    }
}
