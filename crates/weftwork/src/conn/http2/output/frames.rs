//! Writes the frames of one response.

use std::collections::VecDeque;
use std::io;

use bytes::Buf;
use weftwork_wire::{Budget, ErrorCode, Http2, Segment, Window};

use crate::conn::http2::FRAMES_BYTES_MAX;
use crate::conn::http2::stop::write_reset;
use crate::conn::http2::streams::{ResponsePart, StreamEntry};
use crate::conn::io::read_file;
use crate::conn::observed::Observed;
use crate::message::BodyPart;
use crate::message::observer::ResponseEnd;
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::log_queue::log_line;
use crate::transport::stream::{StreamPipe, StreamState};

/// RFC 9113 section 4.1.
const FRAME_HEADER_BYTES: usize = 9;
/// Content of a DATA frame, which with its header fills a TLS record.
pub(super) const DATA_BYTES_MAX: u32 = (16 << 10) - FRAME_HEADER_BYTES as u32;

/// The end of the connection that frames are written to.
pub(super) struct Sink<'a> {
    pub(super) output: &'a mut Vec<u8>,
    pub(super) window: &'a mut Window,
    pub(super) data_sent: &'a mut u64,
    pub(super) budget: &'a mut Budget,
    pub(super) frame_bytes_max: u32,
    pub(super) has_written_block: &'a mut bool,
    /// The record of the connection, to which the responses of its streams go with their last frames.
    pub(super) observed: &'a mut Option<Box<Observed>>,
    /// A response asked for the end of the connection.
    pub(super) closes: bool,
    pub(super) now: Tick,
    pub(super) cx: &'a Context,
}

impl Sink<'_> {
    /// Returns how many bytes of content still fit, with the header of their frame. A limit that is kept exactly fills whole TLS
    /// records, so that no small record costs a call of its own.
    fn space(&self) -> usize {
        FRAMES_BYTES_MAX.saturating_sub(self.output.len() + FRAME_HEADER_BYTES)
    }

    pub(super) fn is_full(&self) -> bool {
        self.space() == 0
    }

    fn block(&mut self, stream: u32, block: &[u8], ends: bool) {
        let is_first = !std::mem::replace(self.has_written_block, true);
        Http2::write_block(stream, block, is_first, ends, self.output);
    }

    /// Begins a DATA frame.
    fn data(&mut self, stream: u32, len: usize, ends: bool) {
        self.output.extend_from_slice(&Http2::data_header(stream, len as u32, ends));
    }
}

impl StreamEntry {
    /// Appends frames with the next bytes of the response, at most this many DATA frames.
    pub(super) fn send(&mut self, frames_max: usize, sink: &mut Sink<'_>) {
        let mut frames = frames_max;
        let pipe = self.pipe.clone();
        let (mut goes_on, mut sent) = (false, 0);
        let state = pipe.take(|bytes, tail| {
            let before = sink.output.len();
            let mut used = 0;
            goes_on = loop {
                if frames == 0 || sink.is_full() {
                    break used < bytes.len() || !tail.is_empty();
                }
                match self.frame(&bytes[used..], tail, sink) {
                    Some((more, was_data)) => {
                        used += more;
                        frames -= usize::from(was_data);
                    }
                    None => break false,
                }
            };
            sent = sink.output.len() - before;
            let rest = &bytes[used..];
            let is_of_body = matches!(self.response, ResponsePart::Body { .. } | ResponsePart::Tunnel);
            let is_cut = !rest.is_empty() && !goes_on && !is_of_body;
            (used, if is_cut { Segment::missing(rest) } else { 0 })
        });
        self.is_ready = goes_on;
        self.taken = state.taken;
        self.is_closed = state.is_closed;
        if state.is_observed {
            self.pass_observed(sink);
        }
        self.end_early(state, sink);
        if state.is_left {
            let timer = self.left.get_or_insert_with(|| PeerTimer::start(TimeoutKind::Write, sink.now));
            if sent > 0 {
                timer.advance(sent, sink.now);
            }
        }
    }

    /// Passes the response on to the record of the connection, if its last frame was written or another protocol has begun. If it
    /// has failed, its observers are told.
    #[cold]
    fn pass_observed(&self, sink: &mut Sink<'_>) {
        let left = match self.response {
            ResponsePart::Ended | ResponsePart::Tunnel => None,
            ResponsePart::Body { left, .. } if self.is_reset => Some(left),
            _ => return,
        };
        let Some(mut response) = self.pipe.take_observed() else { return };
        match left {
            None => Observed::add_written(sink.observed, response, sink.cx),
            Some(left) => {
                response.note_unsent(left);
                response.note_error(ResponseEnd::CUT_SHORT);
            }
        }
    }

    /// Resets the stream if its request has disconnected the client. Ends another protocol, if its request has ended it and
    /// all its bytes were sent (RFC 8441 section 5).
    #[inline]
    fn end_early(&mut self, state: StreamState, sink: &mut Sink<'_>) {
        let is_over = self.response == ResponsePart::Ended && self.client_ended;
        if state.is_cut && !self.is_ready && !self.is_reset && !is_over {
            // What is left of its bytes is dropped with the next turn.
            (self.is_reset, self.is_ready) = (true, true);
            write_reset(self.id, ErrorCode::CANCEL, sink.output, sink.cx);
        } else if state.is_shut && self.response == ResponsePart::Tunnel && !self.is_reset {
            self.response = ResponsePart::Ended;
            sink.data(self.id, 0, true);
        }
    }

    /// Appends one frame. Returns how many bytes it took, and whether it was DATA. None: there is nothing to send, or
    /// a window is empty.
    fn frame(
        &mut self,
        bytes: &[u8],
        tail: &mut VecDeque<BodyPart>,
        sink: &mut Sink<'_>,
    ) -> Option<(usize, bool)> {
        if self.is_done() {
            // Nobody waits for them.
            self.pipe.drop_parts(tail.drain(..));
            return (!bytes.is_empty()).then_some((bytes.len(), false));
        }
        match self.response {
            ResponsePart::Body { left, ends } => return self.data_frame(bytes, tail, (left, ends), sink),
            ResponsePart::Tunnel => {
                let sent = self.data_frame(bytes, tail, (u64::MAX, false), sink);
                self.response = ResponsePart::Tunnel;
                return sent;
            }
            _ => {}
        }
        let (header, segment) = Segment::read(bytes)?;
        let rest = &bytes[header..];
        let (used, next) = match segment {
            Segment::Interim(len) => {
                sink.block(self.id, rest.get(..len)?, false);
                (len, self.response)
            }
            Segment::Head { len, closes } => {
                let block = rest.get(..len)?;
                sink.closes |= closes;
                // A head without a body is written together with its end.
                let end = Segment::read(&rest[len..]).filter(|(_, next)| *next == Segment::End);
                sink.block(self.id, block, end.is_some());
                match end {
                    Some((end, _)) => (len + end, ResponsePart::Ended),
                    None => (len, ResponsePart::Between),
                }
            }
            Segment::Body { len, ends } => (0, ResponsePart::Body { left: len, ends }),
            Segment::Trailers(len) => {
                sink.block(self.id, rest.get(..len)?, true);
                (len, ResponsePart::Ended)
            }
            Segment::Tunnel => (0, ResponsePart::Tunnel),
            Segment::End => {
                sink.data(self.id, 0, true);
                (0, ResponsePart::Ended)
            }
        };
        self.response = next;
        Some((header + used, false))
    }

    fn data_frame(
        &mut self,
        bytes: &[u8],
        tail: &mut VecDeque<BodyPart>,
        (left, ends): (u64, bool),
        sink: &mut Sink<'_>,
    ) -> Option<(usize, bool)> {
        let available = match tail.front() {
            Some(part) if bytes.is_empty() => part.count(),
            _ => bytes.len() as u64,
        };
        let available = available.min(left);
        if available == 0 {
            return None;
        }
        let window = self.send_window.available().min(sink.window.available()).min(sink.frame_bytes_max);
        let len = (available.min(u64::from(window)) as usize).min(sink.space());
        if len == 0 {
            return None;
        }
        let is_last = len as u64 == left;
        let of_bytes = if bytes.is_empty() { 0 } else { len };
        // The end is often known already.
        let end =
            Segment::read(&bytes[of_bytes..]).filter(|(_, next)| is_last && !ends && *next == Segment::End);
        let has_ended = is_last && (ends || end.is_some());
        let start = sink.output.len();
        sink.data(self.id, len, has_ended);
        if of_bytes > 0 {
            sink.output.extend_from_slice(&bytes[..len]);
        } else if let Err(error) = append_part(&self.pipe, tail, len, sink.output) {
            log_line!(Error, "a response ended early, and its stream with it: {error}");
            sink.output.truncate(start);
            self.is_reset = true;
            write_reset(self.id, ErrorCode::INTERNAL_ERROR, sink.output, sink.cx);
            self.pipe.drop_parts(tail.drain(..));
            return None;
        }
        // They were just compared.
        let _ = sink.window.take(len as u32, 0);
        let _ = self.send_window.take(len as u32, self.id);
        *sink.data_sent += len as u64;
        let is_cut = u64::from(window) < available.min(u64::from(sink.frame_bytes_max));
        sink.budget.note_data(len, is_cut);
        self.response = match (is_last, has_ended) {
            (_, true) => ResponsePart::Ended,
            (true, false) => ResponsePart::Between,
            (false, false) => ResponsePart::Body { left: left - len as u64, ends },
        };
        Some((of_bytes + end.map_or(0, |(end, _)| end), true))
    }
}

/// Appends `len` bytes of the first part, which has at least as many.
fn append_part(
    pipe: &StreamPipe,
    tail: &mut VecDeque<BodyPart>,
    len: usize,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    match tail.front_mut() {
        Some(BodyPart::Bytes(bytes)) => {
            output.extend_from_slice(&bytes[..len]);
            // The owner stays until the part is dropped, where a panic is caught.
            bytes.advance(len);
        }
        Some(BodyPart::File { file, offset, count }) => {
            let start = output.len();
            output.resize(start + len, 0);
            read_file(file, &mut output[start..], *offset)?;
            *offset += len as u64;
            *count -= len as u64;
        }
        None => {}
    }
    if tail.front().is_some_and(|part| part.count() == 0) {
        pipe.drop_parts(tail.pop_front());
    }
    Ok(())
}
