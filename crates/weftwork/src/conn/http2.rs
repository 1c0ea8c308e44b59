//! A connection of HTTP/2 (RFC 9113): many requests on one socket.
//!
//! ```text
//!            Step::Stream                  engine, as any connection
//!   frames -- input.rs --> Conn of a stream -----------------------> handler
//!                            |      ^                                   |
//!   StreamPipe: response <---+      +--- body of the request            |
//!        |                                                              v
//!        +-- output.rs --> frames, as windows and priorities allow <-- response
//! ```
//!
//! Each request is a [`Conn`] of its own, whose stream is one end of a [`StreamPipe`]. So everything that happens to a
//! request of HTTP/1.1 happens in the same code to a request of HTTP/2: reading ahead, deadlines, feeds, panics,
//! observers. The engine may move the request to any thread. The connection itself never leaves its loop, and no
//! handler holds it.

mod input;
mod late;
mod output;
mod request;
mod stop;
mod streams;

use std::sync::Arc;

use weftwork_wire::{Budget, Http2, Http2Settings, Window};

use self::late::LateStreams;
pub(super) use self::request::StreamEnd;
use self::stop::Goaway;
use self::streams::Streams;
use super::{Conn, Phase, Step};
use crate::message::{BodyPart, WakeConn};
use crate::transport::context::Context;
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::events::ConnState;
use crate::transport::stream::StreamHub;
use crate::transport::{Stream, Tick};

/// Number of urgencies (RFC 9218 section 4.1).
const URGENCIES: usize = 8;
/// Number of unsent bytes above which the streams wait. With twice as many, 1,000 clients that never read held 40 MB more.
const FRAMES_BYTES_MAX: usize = 32 << 10;

/// Part of a connection in HTTP/2.
#[derive(Debug, Default)]
pub(super) enum Role {
    /// None: the connection speaks HTTP/1.1, or another protocol.
    #[default]
    Http1,
    /// It has the socket.
    Connection(Box<Http2Conn>),
    /// It is one request.
    Stream(StreamEnd),
}

/// Returns the number of unsent bytes below which frames of the client are read and taken. The client's side of a connection goes
/// on while a response is not read: uploads, and windows.
fn replies_max(timer: &PeerTimer) -> usize {
    match timer.kind {
        TimeoutKind::Write => 2 * FRAMES_BYTES_MAX,
        _ => FRAMES_BYTES_MAX,
    }
}

impl Role {
    pub(super) fn into_stream_end(self) -> Option<StreamEnd> {
        match self {
            Role::Stream(end) => Some(end),
            Role::Http1 | Role::Connection(_) => None,
        }
    }

    /// Records why responses break off: those that wait at the connection, and those that its requests still make.
    #[cold]
    pub(super) fn note_error(&self, why: &'static str) {
        match self {
            Role::Http1 => {}
            Role::Connection(http2) => http2.streams.iter().for_each(|stream| stream.pipe.note_error(why)),
            Role::Stream(end) => end.pipe.note_error(why),
        }
    }
}

/// State of a connection that has the socket.
#[derive(Debug)]
pub(super) struct Http2Conn {
    http: Http2,
    hub: Arc<StreamHub>,
    streams: Streams,
    late: LateStreams,
    /// The last stream with an incremental response that had its turn, for each urgency.
    last_turns: [u32; URGENCIES],
    /// Bytes of bodies that the client takes.
    send_window: Window,
    /// Bytes of bodies that the client may still send.
    recv_window: Window,
    /// Bytes of bodies that requests have not read.
    held: u64,
    budget: Budget,
    /// Bytes of the input that are no whole frame.
    part_bytes: usize,
    /// When a PING was sent, if nothing has arrived since.
    pinged_at: Option<Tick>,
    /// A block of fields was written. The first one tells the client that the table is empty.
    has_written_block: bool,
    goaway: Goaway,
    /// Bytes of responses that were sent, and those that the client is known to have read.
    data_sent: u64,
    data_read: u64,
    /// When the last of them were sent.
    data_at: Tick,
    begun: Tick,
    /// Streams that have changed. Kept for its capacity.
    changed: Vec<u32>,
    /// Streams whose requests have more of their bodies, and are woken when the connection has read what has arrived.
    given: Vec<u32>,
}

impl Conn {
    /// Begins HTTP/2. The preface of the client is still unread.
    pub(crate) fn begin_http2(&mut self, now: Tick, cx: &Context) {
        let settings = Http2Settings {
            streams_max: cx.settings.http2_streams_max,
            head_bytes_max: cx.limits.head_bytes_max,
            ..Http2Settings::default()
        };
        let open = Some(self.count.share());
        let mut http2 = Box::new(Http2Conn {
            http: Http2::server(&settings),
            hub: match &self.stream {
                Stream::Memory(memory) => StreamHub::in_memory(memory.clone(), open),
                stream => StreamHub::new(stream.local_addr(), open),
            },
            streams: Streams::new(&cx.counters),
            late: LateStreams::new(cx.settings.http2_streams_max),
            last_turns: [0; URGENCIES],
            send_window: Window::default(),
            recv_window: Window::default(),
            held: 0,
            budget: Budget::new(now.0),
            part_bytes: 0,
            pinged_at: None,
            has_written_block: false,
            goaway: Goaway::default(),
            data_sent: 0,
            data_read: 0,
            data_at: now,
            begun: now,
            changed: Vec::new(),
            given: Vec::new(),
        });
        let output = &mut self.buffers_mut().output;
        http2.http.write_preface(output);
        http2.grant_connection(cx, output);
        self.role = Role::Connection(http2);
        self.phase = Phase::Http2;
        self.count.enter(ConnState::Idle);
        self.timer = self.timer.then(TimeoutKind::Head, now);
    }

    /// Returns whether the first bytes of a connection in clear may be those of HTTP/2.
    #[cold]
    pub(super) fn may_begin_http2(&self, cx: &Context) -> bool {
        cx.settings.http2_cleartext && !self.is_secured()
    }

    #[inline(never)]
    pub(super) fn step_http2(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let step = self.next_step_of_http2(now, cx);
        if !matches!(step, Some(Step::Read | Step::Stream))
            && let Role::Connection(http2) = &mut self.role
        {
            http2.wake_given();
        }
        step
    }

    fn next_step_of_http2(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let Role::Connection(http2) = &mut self.role else {
            self.phase = Phase::Done;
            return None;
        };
        let mut unsent = 0;
        let replies_max = replies_max(&self.timer);
        if let Some(buffers) = self.buffers.as_deref_mut() {
            unsent = buffers.output.len() - buffers.sent;
            let has_input = buffers.unread().len() > http2.part_bytes;
            if has_input && unsent < replies_max && !http2.goaway.is_final() {
                return Some(Step::Stream);
            }
        }
        // While the client does not read, nothing more is kept for it.
        let has_space = unsent == 0 || (unsent < FRAMES_BYTES_MAX && self.timer.kind != TimeoutKind::Write);
        if has_space && (http2.hub.has_changes() || http2.streams.is_any_ready()) {
            let output = &mut self.buffers.get_or_insert_default().output;
            http2.collect(now, cx, output, &mut self.observed);
        }
        if http2.stop(now, cx, &mut self.buffers.get_or_insert_default().output, self.expires) {
            self.end_http2(now, cx);
            return None;
        }
        http2.streams.count();
        let (is_announced, is_empty) = (http2.goaway.is_announced(), http2.streams.is_empty());
        if self.observed.is_some() {
            self.note_sent();
        }
        let unsent = self.unsent();
        if is_announced {
            self.count.linger_if(is_empty && unsent == 0);
        }
        let may_read = self.read_ready && unsent < replies_max && self.timer.kind == TimeoutKind::Write;
        if unsent > 0 && !may_read {
            return Some(Step::Write);
        }
        if self.read_ready {
            return Some(Step::Read);
        }
        self.wait_for_frames(now);
        Some(Step::WaitFeed)
    }

    /// Starts the time of what the connection waits for.
    fn wait_for_frames(&mut self, now: Tick) {
        let Role::Connection(http2) = &self.role else { return };
        let has_part = self.buffers.as_deref().is_some_and(|buffers| !buffers.unread().is_empty());
        let what = match (has_part || http2.http.is_in_block(), http2.streams.is_empty()) {
            (true, _) => TimeoutKind::Head,
            (false, true) => TimeoutKind::Idle,
            (false, false) => TimeoutKind::Heartbeat,
        };
        if self.timer.kind != what {
            self.timer = self.timer.then(what, now);
        }
    }

    /// Returns whether the connection has many requests, and none of them is in progress.
    #[inline]
    pub(super) fn has_no_streams(&self) -> bool {
        self.phase == Phase::Http2
            && matches!(&self.role, Role::Connection(http2) if http2.streams.is_empty())
    }

    /// Wakes the owner when a stream has something for its connection. Returns false if one has already.
    pub(super) fn watch_streams(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match &self.role {
            Role::Connection(http2) if self.phase == Phase::Http2 => http2.hub.watch(wakes, key),
            _ => true,
        }
    }

    /// Wakes the owner of a request when its connection has something for it. Returns false if it has already.
    pub(crate) fn watch_stream(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        match &self.role {
            Role::Stream(end) => {
                // The end of the client's side would be reported each time.
                let reads = !self.read_ready && !self.peer_ended;
                end.pipe.watch(reads, self.awaits_output_space(), wakes, key)
            }
            Role::Http1 | Role::Connection(_) => true,
        }
    }

    /// Returns whether this is a connection of HTTP/2, whose requests are connections of their own.
    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.phase == Phase::Http2
    }

    /// Returns false if the client was told that its request is not run. Then the request is over.
    pub(super) fn begins_call(&mut self) -> bool {
        let is_refused =
            self.phase == Phase::Ready && matches!(&self.role, Role::Stream(end) if !end.pipe.claim());
        if is_refused {
            self.phase = Phase::Done;
        }
        !is_refused
    }

    /// Leaves the rest of the response to the connection. Its head follows with the bytes to send.
    #[cold]
    pub(super) fn leave_body(&self, parts: Vec<BodyPart>) {
        if let Role::Stream(end) = &self.role {
            end.pipe.leave(parts.into_iter());
        }
    }

    /// Begins another protocol, whose head was written.
    #[cold]
    pub(super) fn begin_tunnel(&mut self) {
        if let Role::Stream(end) = &mut self.role {
            end.is_tunnel = true;
        }
    }

    /// Returns whether this is one request of a connection, which has become another protocol (RFC 8441).
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(&self.role, Role::Stream(end) if end.is_tunnel)
    }

    /// Returns whether this is one request of a connection, which has no socket of its own.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.role, Role::Stream(_))
    }
}
