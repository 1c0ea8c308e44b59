//! The state of a shared connection, and of its streams.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use weftwork_wire::{ErrorCode, ExpectedBody, Framing, Head, Http2, Http2Fault, Limits, Received, Window};

use super::conn::{CONN_WINDOW, IDLE_AGE_MAX, STREAM_WINDOW};
use crate::transport::wake_pipe::WakePipe;

pub(super) type Fields = Vec<(HeaderName, HeaderValue)>;

/// How a stream has ended, or must end.
#[derive(Clone, Debug)]
pub(super) enum StreamEnd {
    /// The response is whole.
    Whole,
    /// The server reset the stream.
    Reset(ErrorCode),
    /// The response breaks a rule.
    Fault(Http2Fault),
    /// The server has said that it did not begin the request.
    Unprocessed,
    /// The connection has ended.
    Closed,
}

/// What has arrived for a request, and what its server lets it send.
pub(super) struct Stream {
    pub(super) signal: Arc<WakePipe>,
    /// The request waits for the signal.
    pub(super) waits: bool,
    pub(super) is_head: bool,
    /// Interim responses, and the final one.
    pub(super) heads: VecDeque<Received>,
    pub(super) has_final_head: bool,
    pub(super) expected: ExpectedBody,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Fields,
    pub(super) end: Option<StreamEnd>,
    /// The server takes nothing more of the request.
    pub(super) is_reset: bool,
    /// Bytes that the server may still send.
    pub(super) window: Window,
    pub(super) send_window: Window,
    /// When the request was sent.
    pub(super) opened: Instant,
}

impl Stream {
    /// `send_window` is what the server lets a new stream send.
    pub(super) fn new(signal: Arc<WakePipe>, is_head: bool, send_window: u32) -> Stream {
        Stream {
            signal,
            waits: false,
            is_head,
            heads: VecDeque::new(),
            has_final_head: false,
            expected: ExpectedBody::new(Framing::None),
            body: Vec::new(),
            trailers: Vec::new(),
            end: None,
            is_reset: false,
            window: Window::new(STREAM_WINDOW),
            send_window: Window::new(send_window),
            opened: Instant::now(),
        }
    }

    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.signal.wake();
        }
    }

    /// Ends the stream, unless it has ended.
    pub(super) fn end(&mut self, end: StreamEnd) {
        self.is_reset |= !matches!(end, StreamEnd::Whole);
        self.end.get_or_insert(end);
        self.wake();
    }
}

pub(super) struct State {
    pub(super) http: Http2,
    pub(super) limits: Limits,
    pub(super) head: Head,
    pub(super) text: Vec<u8>,
    /// Frames to send, from `sent` on.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// The driver has to send the rest of `out`.
    pub(super) wants_write: bool,
    pub(super) streams: HashMap<u32, Stream>,
    /// Requests that have a place and no stream yet.
    pub(super) reserved: usize,
    pub(super) send_window: Window,
    /// Bytes that the server may still send, and those that it gets back.
    pub(super) window: Window,
    pub(super) granted_later: u32,
    pub(super) has_settings: bool,
    /// The connection takes no new requests.
    pub(super) is_retired: bool,
    /// The server takes no new streams.
    pub(super) has_goaway: bool,
    /// The connection has ended.
    pub(super) is_over: bool,
    pub(super) last_received: Instant,
    pub(super) idle_since: Instant,
    pub(super) spare_signals: Vec<Arc<WakePipe>>,
}

impl State {
    /// `out` is sent first.
    pub(super) fn new(http: Http2, limits: Limits, out: Vec<u8>) -> State {
        let now = Instant::now();
        State {
            http,
            limits,
            head: Head::default(),
            text: Vec::new(),
            out,
            sent: 0,
            wants_write: false,
            streams: HashMap::new(),
            reserved: 0,
            send_window: Window::default(),
            window: Window::new(CONN_WINDOW),
            granted_later: 0,
            has_settings: false,
            is_retired: false,
            has_goaway: false,
            is_over: false,
            last_received: now,
            idle_since: now,
            spare_signals: Vec::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_retired && !self.has_goaway && !self.is_over
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.reserved == 0
    }

    /// Returns how many bytes wait for the socket.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns when a connection without requests ends. None: it has requests.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let age_max = if self.is_open() { IDLE_AGE_MAX } else { Duration::ZERO };
        self.is_idle().then(|| self.idle_since + age_max)
    }

    /// Ends a connection that is idle for too long, before a request takes a place on it.
    pub(super) fn end_idle(&mut self) {
        self.is_retired = true;
        Http2::write_goaway(0, ErrorCode::NO_ERROR, &mut self.out);
    }

    /// Wakes requests that wait for space.
    pub(super) fn wake_all(&mut self) {
        self.streams.values_mut().for_each(Stream::wake);
    }

    pub(super) fn end_writing(&mut self) {
        self.out.clear();
        self.sent = 0;
        for stream in self.streams.values_mut() {
            stream.is_reset = true;
            stream.wake();
        }
    }

    /// The connection has ended.
    pub(super) fn end_all(&mut self) {
        self.end_all_with(StreamEnd::Closed);
        self.is_over = true;
    }

    pub(super) fn end_all_with(&mut self, end: StreamEnd) {
        self.is_retired = true;
        self.streams.values_mut().for_each(|stream| stream.end(end.clone()));
    }
}
