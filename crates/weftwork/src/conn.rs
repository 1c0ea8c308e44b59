//! Layer 2: joins a socket and the protocol. An engine asks [`Conn::step`] what to do next, and does it.
//!
//! ```text
//!           +--------------------------- next request ----------------------------+
//!           v                                                                     |
//! accept -> Head -> Body (read ahead) -> Ready -> [handler runs] -> Send -> Drain +
//!            |        |                                              |
//!            +--------+---- fault, timeout: the refusal --> Send ----+-> Linger -> Done
//! ```
//!
//! A response may continue after its handler. Then one of these phases comes before `Send` or in its place:
//!
//! - `Deferred`: another thread provides the response.
//! - `FeedBody`: other threads send the body.
//! - `Upgrade`: the connection speaks another protocol.
//!
//! `step` never blocks, never spawns and never reads a clock. A connection is owned by one thread at a time.

mod before_call;
mod close;
mod conn_count;
mod deferred;
mod exchange;
mod feed_body;
mod handshake;
mod http2;
mod io;
mod io_wait;
mod observed;
mod owned_body;
mod owner;
mod pending_body;
mod proxy_header;
mod read_request;
mod receiver;
mod refusal;
#[cfg(test)]
mod tests;
mod upgrade;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use http::Method;
use weftwork_wire::{After, Http1, Proxied};

pub(crate) use exchange::Call;
pub(crate) use io::Flushed;
pub(crate) use io_wait::{IoWait, Readiness};
pub(crate) use owner::Registered;

use self::conn_count::CountGuard;
use self::http2::Role;
use self::observed::Observed;
use self::owned_body::OwnedBodyFlow;
use self::owner::Owner;
use self::pending_body::{PendingBody, SafeDrop};
use crate::message::RequestLine;
use crate::message::exchange::ConnValue;
use crate::settings::or_never;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::events::Event;
use crate::transport::{BufferPool, Buffers, Stream, Tick};

/// Number of unsent bytes above which the connection's next request waits.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a body that is copied after its head. A copy is cheaper than a second slice for the kernel to
/// walk.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// The same for one request of HTTP/2, which may have to wait for its client with a hundred others. It holds as little as
/// possible meanwhile.
const STREAM_COPIED_BYTES_MAX: usize = 1 << 10;

/// Next step of a connection, for its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes from the peer.
    Read,
    /// Space in the kernel's send buffer.
    Write,
    /// A call of the handler: [`Conn::run`].
    Call,
    /// A thread or a fiber of its own: [`Conn::run_upgraded`].
    Upgrade,
    /// A part of a TLS handshake, which takes some CPU: [`Conn::advance_handshake`].
    #[cfg_attr(not(feature = "_tls"), allow(dead_code))]
    Handshake,
    /// Frames of HTTP/2 to read, with requests among them: [`Conn::read_frames`].
    Stream,
    /// Bytes from the peer, from its feed, or from its streams: [`Conn::watch_feed`].
    WaitFeed,
    /// To be dropped.
    Close,
}

/// Position of a connection in the exchange of a request and its response.
///
/// The tag is a byte of its own. If the compiler hides it in that of `After`, each look at the phase takes five instructions
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Before or within a PROXY header, if the listener expects one.
    Proxy,
    /// Within a TLS handshake.
    Handshake,
    /// Before or within a head.
    Head,
    /// Within a body that is read ahead of the handler.
    Body,
    /// A request waits for the handler.
    Ready,
    /// The response is sent later: another thread provides it, or time must pass.
    Deferred,
    /// The connection has many requests.
    Http2,
    /// The response continues while other threads send bytes for it.
    FeedBody,
    /// The response to an upgrade is being sent. Then the connection leaves this code.
    Upgrade,
    /// The rest of a response is being sent.
    Send(After),
    /// The rest of an unread body is being dropped.
    Drain,
    /// The write side is closed, and what the peer still sends is dropped (RFC 9112 section 9.6).
    Linger,
    /// The connection has ended.
    Done,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: Stream,
    http: Http1,
    phase: Phase,
    timer: PeerTimer,
    /// Time after which the connection closes with its next response.
    expires: Tick,
    peer: Option<SocketAddr>,
    /// The client for which the peer speaks, from a PROXY header.
    proxied: Option<Box<Proxied>>,
    /// Absent while the connection is idle.
    buffers: Option<Box<Buffers>>,
    pending_body: SafeDrop,
    /// Body of the request, if it outlives the handler.
    owned_body: Option<Box<OwnedBodyFlow>>,
    count: CountGuard,
    /// Whether there may be bytes to read. A read that finds no more clears it.
    read_ready: bool,
    /// Whether the poller has reported that the peer has closed its side. A short read is then not the last one.
    read_closed: bool,
    /// Whether the peer has closed its side and all its bytes were read, while a response is still to come.
    peer_ended: bool,
    /// Whether the last request keeps the connection open. Its head may be gone before its response is sent.
    peer_keep_alive: bool,
    /// Whether a handler may have taken long, so that bytes may have arrived meanwhile.
    handler_ran: bool,
    /// Whether so much was sent, or the peer was so slow, that bytes may still be in the local kernel.
    has_sent_much: bool,
    /// Observers of the responses. Absent without observers.
    observed: Option<Box<Observed>>,
    pub(crate) owner: Owner,
    /// Value that handlers keep for the connection.
    value: ConnValue,
    role: Role,
    /// Length up to which a body is copied after its head.
    copied_bytes_max: usize,
}

impl Conn {
    pub(crate) fn new(stream: Stream, peer: Option<SocketAddr>, now: Tick, cx: &Context) -> Box<Conn> {
        cx.record(Event::Accepted);
        let accepted = cx.counters.accepted.total();
        // Reduced by up to a tenth, so that connections opened together do not end together.
        let age = or_never(cx.settings.age_max);
        let age = age - age.mul_f64((accepted.wrapping_mul(0x9e37_79b9) % 1024) as f64 / 10_240.0);
        Box::new(Conn {
            stream,
            http: Http1::new(),
            phase: Phase::Head,
            timer: PeerTimer::start(TimeoutKind::Head, now),
            expires: now.after(age),
            peer,
            proxied: None,
            buffers: None,
            pending_body: SafeDrop::new(&cx.counters),
            owned_body: None,
            count: CountGuard::new(&cx.counters),
            read_ready: true,
            read_closed: false,
            peer_ended: false,
            peer_keep_alive: false,
            handler_ran: false,
            has_sent_much: false,
            observed: Observed::of_server(cx),
            owner: Owner::default(),
            value: None,
            role: Role::Http1,
            copied_bytes_max: COPIED_BYTES_MAX,
        })
    }

    /// Gives a new connection the bytes that other code has read from its socket.
    pub(crate) fn give_bytes_read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.buffers.get_or_insert_default().input.extend_from_slice(bytes);
        // They are served before the next read, which may find the end of the client's side. The poller reports that.
        self.read_ready = false;
        if let Some(observed) = &mut self.observed {
            observed.note_read();
        }
    }

    /// Returns what the connection needs now. Asking again without doing it gives the same answer.
    ///
    /// The function runs four times per request. Phases that a short request does not pass are not inlined, so that the
    /// frame stays small.
    pub(crate) fn step(&mut self, now: Tick, cx: &Context) -> Step {
        loop {
            let step = match self.phase {
                Phase::Head => self.read_head(now, cx),
                Phase::Body => self.read_ahead(now, cx),
                Phase::Ready => Some(if self.has_output_space() { Step::Call } else { Step::Write }),
                Phase::Send(after) => self.finish_sending(after, now),
                Phase::Deferred => self.await_response(now, cx),
                Phase::FeedBody => self.feed_on(now, cx),
                Phase::Upgrade => Some(if self.unsent() > 0 { Step::Write } else { Step::Upgrade }),
                Phase::Http2 => self.step_http2(now, cx),
                Phase::Drain => self.drain(now, cx),
                Phase::Linger => self.linger(cx),
                Phase::Proxy => self.read_proxy_header(now, cx),
                Phase::Handshake => self.handshake(now, cx),
                Phase::Done => Some(Step::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Returns the next deadline of the peer, and its kind. Meaningless while a handler runs.
    pub(crate) fn deadline(&self, cx: &Context) -> Tick {
        if matches!(
            self.phase,
            Phase::Deferred | Phase::Http2 | Phase::FeedBody | Phase::Drain | Phase::Linger
        ) && let Some(due) = self.deadline_of_phase(cx)
        {
            return due;
        }
        match cx.stage() {
            Stage::Running => self.timer.deadline(&cx.settings),
            _ => self.deadline_of_drain(cx),
        }
    }

    #[cold]
    fn deadline_of_phase(&self, cx: &Context) -> Option<Tick> {
        if self.phase == Phase::Http2 {
            return Some(self.deadline_of_http2(cx));
        }
        if self.phase == Phase::Linger {
            return self.awaits_reader().then(|| self.timer.reader_deadline(&cx.settings));
        }
        let response = match self.phase {
            // Only the body counts, unless the client has to read first.
            Phase::Drain if self.passes_body() && !self.awaits_output_space() => Some(Tick(u64::MAX)),
            _ => self.response_due().filter(|_| !self.awaits_output_space()),
        };
        if !self.passes_body() {
            return response;
        }
        let of_stage = || match cx.stage() {
            Stage::Running => self.timer.deadline(&cx.settings),
            _ => self.deadline_of_drain(cx),
        };
        Some(response.unwrap_or_else(of_stage).min(self.body_deadline(cx)))
    }

    #[cold]
    fn deadline_of_drain(&self, cx: &Context) -> Tick {
        let due = self.timer.deadline(&cx.settings);
        if self.is_idle() {
            return due.min(self.drained_at(cx));
        }
        match self.pending_body.as_deref() {
            Some(PendingBody::FeedBody(fed)) => fed.stops_at().map_or(due, |stops_at| due.min(stops_at)),
            _ => due,
        }
    }

    /// Returns whether nothing is in progress. At shutdown such a connection closes soon. A thread that is free may wait
    /// for its next request.
    pub(crate) fn is_idle(&self) -> bool {
        (matches!(self.phase, Phase::Head | Phase::Proxy) || self.awaits_handshake() || self.has_no_streams())
            && self.buffers.as_ref().is_none_or(|b| b.has_no_request() && b.output.is_empty())
    }

    /// Returns whether nothing has arrived for this time, and nothing is in progress.
    pub(crate) fn is_idle_for(&self, time: Duration, now: Tick) -> bool {
        (self.is_between_requests() || self.awaits_handshake() || self.has_no_streams())
            && self.unsent() == 0
            && self.timer.progress().after(time) <= now
    }

    /// Closes the connection after the requests that have arrived were answered.
    pub(crate) fn end_when_idle(&mut self, now: Tick) {
        match self.phase {
            Phase::Linger => self.phase = Phase::Done,
            _ => self.expires = self.expires.min(now),
        }
    }

    /// Returns whether a new request may arrive at any moment.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.phase == Phase::Head && self.is_idle()
    }

    /// Returns whether the upgraded protocol must be run, away from any loop: [`Conn::run_upgraded`].
    pub(crate) fn is_upgraded(&self) -> bool {
        self.phase == Phase::Upgrade
    }

    /// Returns whether the rest of a response is being sent.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Send(_))
    }

    /// Returns whether the last request read is the last one, or may be, because its client does not keep the
    /// connection open.
    pub(crate) fn ends_with_request(&self) -> bool {
        !self.peer_keep_alive
    }

    /// Returns whether the request was rejected, and only the refusal is left to send.
    pub(crate) fn is_refused(&self) -> bool {
        self.phase == Phase::Send(After::Linger)
    }

    /// Returns false if the last written response ends with its head.
    pub(crate) fn sends_body(&self) -> bool {
        self.http.sends_body()
    }

    /// Records an event of the poller.
    pub(crate) fn note_ready(&mut self, ended: bool) {
        self.read_ready = true;
        self.read_closed |= ended;
    }

    /// Records that another thread has woken the connection. For one request of HTTP/2, that is what an event is for a
    /// socket. If its client has gone, the request ends, whatever else it waits for.
    pub(crate) fn note_woken(&mut self) {
        if self.is_stream() {
            self.read_ready = true;
            if self.stream.peer_has_gone() {
                self.on_reset();
            }
        }
    }

    /// Resets the budget, because the owner takes the connection up.
    pub(crate) fn begin_cycle(&mut self) {
        (self.owner.budget_used, self.owner.has_read) = (0, false);
    }

    /// Returns whether a read is the next step, whatever the time is, because nothing waits to be sent or handled
    /// before it.
    pub(crate) fn reads_first(&self) -> bool {
        self.read_ready && self.phase == Phase::Head && self.unsent() == 0
    }

    pub(crate) fn is_read_ready(&self) -> bool {
        self.read_ready
    }

    /// Returns whether the peer sends nothing more, and its response is still to come.
    pub(crate) fn has_peer_ended(&self) -> bool {
        self.peer_ended
    }

    /// Returns false if more of the current request may arrive.
    pub(crate) fn is_request_here(&self) -> bool {
        // In HTTP/2, more follows than the payload: an end, which arrives whole.
        let end = u64::from(self.is_stream());
        self.http.request_is_read()
            || self.http.body_left().is_some_and(|left| left.saturating_add(end) <= self.undecoded() as u64)
    }

    /// Returns the properties of the request that waits for the handler.
    pub(crate) fn request_line(&self) -> RequestLine<'_> {
        static NONE: Method = Method::GET;
        match self.buffers.as_deref() {
            // The head is gone, because an idle connection holds no buffer.
            Some(_) if self.is_fed() => RequestLine::new(&NONE, b""),
            Some(buffers) => RequestLine::new(&buffers.head.method, buffers.head.path_in(buffers.unread())),
            None => RequestLine::new(&NONE, b""),
        }
    }

    /// Returns whether the peer has not read all that was to be sent.
    pub(crate) fn awaits_output_space(&self) -> bool {
        self.timer.kind == TimeoutKind::Write || self.is_handshaking() && self.stream.has_unsent()
    }

    /// Returns whether a body of known length waits to be sent, and is long or was not copied.
    pub(crate) fn holds_body(&self) -> bool {
        matches!(self.pending_body.as_deref(), Some(PendingBody::Known { .. }))
            || self.unsent() > COPIED_BYTES_MAX
    }

    /// Returns the buffers of an idle connection to the pool.
    pub(crate) fn release_buffers(&mut self, pool: &mut BufferPool) {
        if let Some(buffers) = self.buffers.take_if(|buffers| buffers.is_empty()) {
            pool.give_back(buffers);
        }
    }

    /// Takes the buffers of a connection that is about to be dropped.
    pub(crate) fn reclaim(&mut self, pool: &mut BufferPool) {
        if let Some(buffers) = self.buffers.take() {
            pool.give_back(buffers);
        }
    }

    /// Continues after a complete response was handed over. The next request does not wait until it is sent, so the
    /// responses to all requests of one read leave with one write.
    fn finish_sending(&mut self, after: After, now: Tick) -> Option<Step> {
        if self.observed.is_some() {
            self.note_response_written();
        }
        match after {
            After::Next if self.pending_body.is_none() => self.next_request(now),
            After::Drain if self.pending_body.is_none() => {
                self.turn_to(TimeoutKind::Drain, now);
                self.phase = Phase::Drain;
            }
            _ if self.unsent() > 0 || self.pending_body.is_some() => return Some(Step::Write),
            _ => return self.end(after, now),
        }
        None
    }

    /// Always inlined. As a call, it took 10 more instructions for every request.
    #[inline(always)]
    fn next_request(&mut self, now: Tick) {
        self.http.next_request();
        self.turn_to(TimeoutKind::Idle, now);
        self.phase = Phase::Head;
        if let Some(buffers) = self.buffers.as_deref_mut() {
            buffers.start = buffers.raw;
            if buffers.start == buffers.input.len() {
                buffers.input.clear();
                (buffers.start, buffers.raw) = (0, 0);
            }
            buffers.payload = buffers.start..buffers.start;
        }
    }

    fn unsent(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| buffers.output.len() - buffers.sent)
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
