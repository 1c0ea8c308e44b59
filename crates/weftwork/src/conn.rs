//! Floor 2: joins a socket and the protocol. An engine asks [`Conn::step`] what to do next and does it.
//!
//! ```text
//!           +--------------------------- next request ----------------------------+
//!           v                                                                     |
//! accept -> Head -> Body (read ahead) -> Ready -> [handler runs] -> Send -> Drain +
//!            |        |                                              |
//!            +--------+---- fault, timeout: the refusal --> Send ----+-> Linger -> Done
//! ```
//!
//! Where the handler answers with something that lasts, `Later` (a response that others bring), `Fed` (bytes that others bring) or
//! `Takeover` (another protocol, elsewhere) comes before `Send`, or in its place.
//!
//! `step` never blocks, never spawns and never reads a clock. A connection is owned by one thread at a time.

mod ending;
mod fed;
mod io;
mod later;
mod live;
mod open;
mod preface;
mod refusal;
mod rest;
mod takeover;
#[cfg(test)]
mod tests;
mod wait;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use weftwork_wire::{After, BodyEvent, Framing, HeadEvent, Http1, Proxied};

pub(crate) use io::Flushed;
pub(crate) use live::Call;
pub(crate) use wait::{Readiness, Wait};

use self::open::Open;
use self::rest::{Kept, Rest};
use crate::message::Asked;
use crate::settings::or_never;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::{Pace, Timeout};
use crate::transport::{Buffers, Pool, Stream, Tick};

/// When this much waits to be sent, the connection's next request waits too.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bodies up to this are copied behind their head: cheaper than a second slice for the kernel to walk.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// What a connection wants from its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes from the peer.
    Read,
    /// Room to send.
    Write,
    /// A call of the handler: [`Conn::run`].
    Call,
    /// A thread or a fiber of its own: [`Conn::take_over`].
    Takeover,
    /// Bytes from the peer, or from its feed: [`Conn::watch_feed`].
    Wait,
    /// To be dropped.
    Close,
}

/// What the poller of its owner tells of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registered {
    /// No loop's, but that of the threads that share it: its token is its place there.
    Shared,
    #[default]
    Not,
    /// That bytes have come.
    ForBytes,
    /// That, or that there is room to send.
    ForRoom,
}

/// Where a connection is in the exchange of one request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before or within a PROXY header, where the listener expects one.
    Proxy,
    /// Before or within a head.
    Head,
    /// Within a body that is read ahead of the handler.
    Body,
    /// A request waits for the handler.
    Ready,
    /// The response is still to come: others bring it, or time has to pass.
    Later,
    /// The response goes on for as long as others bring bytes for it.
    Fed,
    /// The answer to an upgrade is being sent; then the connection is somebody else's.
    Takeover,
    /// All that is left of a response is being sent.
    Send(After),
    /// The rest of a body that nobody read is being dropped.
    Drain,
    /// Our side has ended; what the peer still sends is dropped (RFC 9112 section 9.6).
    Linger,
    /// Over.
    Done,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: Stream,
    http: Http1,
    phase: Phase,
    pace: Pace,
    /// After this the connection ends with its response.
    expires: Tick,
    peer: Option<SocketAddr>,
    /// For whom the peer speaks, if it said so before the first request.
    proxied: Option<Box<Proxied>>,
    /// None while the connection is idle.
    buffers: Option<Box<Buffers>>,
    rest: Kept,
    open: Open,
    /// Something may be there to read. Cleared by a read that finds no more.
    readable: bool,
    /// The peer has ended its side, says the poller: a short read is not the last one.
    ended: bool,
    /// The last request did not ask for the end of the connection. Its head may be gone before its answer is sent.
    peer_persists: bool,
    /// A handler may have taken its time, and what came meanwhile is not known.
    has_dwelt: bool,
    /// More was sent than a network takes at once, or the peer let us wait: some of it may still be with our kernel.
    has_sent_much: bool,
    /// The owner's notes: which loop it belongs to, its place there, what it had of this turn, and
    /// whether the poller knows it.
    pub(crate) home: u32,
    pub(crate) calls: u32,
    /// It was read from in this turn, where that counts.
    pub(crate) has_read: bool,
    /// It is in the loop where it is to stay.
    pub(crate) is_placed: bool,
    pub(crate) token: usize,
    pub(crate) registered: Registered,
    /// Since when it has waited for a thread: see [`Conn::forsake_if_vain`].
    pub(crate) queued_since: Option<Tick>,
}

impl Conn {
    pub(crate) fn new(stream: Stream, peer: Option<SocketAddr>, now: Tick, cx: &Context) -> Box<Conn> {
        let accepted = cx.counters.accepted.fetch_add(1, Ordering::Relaxed);
        // Spread by up to a tenth, so that connections opened together do not end together.
        let age = or_never(cx.settings.age_max);
        let age = age - age.mul_f64((accepted.wrapping_mul(0x9e37_79b9) % 1024) as f64 / 10_240.0);
        Box::new(Conn {
            stream,
            http: Http1::new(),
            phase: Phase::Head,
            pace: Pace::start(Timeout::Head, now),
            expires: now.after(age),
            peer,
            proxied: None,
            buffers: None,
            rest: Kept::default(),
            open: Open::new(&cx.counters),
            readable: true,
            ended: false,
            peer_persists: false,
            has_dwelt: false,
            has_sent_much: false,
            home: 0,
            calls: 0,
            has_read: false,
            is_placed: false,
            token: 0,
            registered: Registered::Not,
            queued_since: None,
        })
    }

    /// What the connection needs now. Asking again without doing it gives the same answer.
    ///
    /// It is asked four times a request. Phases that a short request does not pass are not inlined, so that
    /// the frame stays small.
    pub(crate) fn step(&mut self, now: Tick, cx: &Context) -> Step {
        loop {
            let step = match self.phase {
                Phase::Head => self.read_head(now, cx),
                Phase::Body => self.read_ahead(now, cx),
                Phase::Ready => Some(if self.has_room() { Step::Call } else { Step::Write }),
                Phase::Send(after) => self.finish_sending(after, now),
                Phase::Later => self.await_response(now, cx),
                Phase::Fed => self.feed_on(now, cx),
                Phase::Takeover => Some(if self.unsent() > 0 { Step::Write } else { Step::Takeover }),
                Phase::Drain => self.drain(now, cx),
                Phase::Linger => self.linger(cx),
                Phase::Proxy => self.read_proxy_header(now, cx),
                Phase::Done => Some(Step::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// The next deadline of the peer, and what for. Meaningless while a handler runs.
    pub(crate) fn deadline(&self, cx: &Context) -> Tick {
        if let Some(due) = self.response_due().filter(|_| !self.awaits_room()) {
            return due;
        }
        let due = self.pace.deadline(&cx.settings);
        if self.is_unused() && cx.stage() != Stage::Running { due.min(self.first_request_by()) } else { due }
    }

    /// Nothing is in progress: at shutdown such a connection ends at once, and a thread that is to spare may wait for
    /// its next request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head | Phase::Proxy)
            && self.buffers.as_ref().is_none_or(|b| b.has_no_request() && b.output.is_empty())
    }

    /// Nothing has come for so long, and nothing is in progress.
    pub(crate) fn is_idle_for(&self, time: Duration, now: Tick) -> bool {
        self.is_between_requests() && self.unsent() == 0 && self.pace.progress().after(time) <= now
    }

    /// When something last came of it.
    pub(crate) fn quiet_since(&self) -> Tick {
        self.pace.progress()
    }

    /// It answers what has come, and ends then.
    pub(crate) fn end_when_idle(&mut self, now: Tick) {
        self.expires = self.expires.min(now);
    }

    /// It may be asked something at any moment.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.phase == Phase::Head && self.is_idle()
    }

    /// What took it over has to be run, away from any loop: [`Conn::take_over`].
    pub(crate) fn is_taken_over(&self) -> bool {
        self.phase == Phase::Takeover
    }

    /// The request that was read last is the last one, or may be: its client does not ask for the connection to be kept.
    pub(crate) fn ends_with_request(&self) -> bool {
        !self.peer_persists
    }

    /// It was refused: all that is left is to say so.
    pub(crate) fn is_refused(&self) -> bool {
        self.phase == Phase::Send(After::Linger)
    }

    /// False: the response that was written last is over with its head.
    pub(crate) fn sends_body(&self) -> bool {
        self.http.sends_body()
    }

    /// The poller saw something happen to the socket.
    pub(crate) fn note_ready(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Its owner takes it up: it has had nothing of this turn.
    pub(crate) fn begin_turn(&mut self) {
        (self.calls, self.has_read) = (0, false);
    }

    /// A read is the next thing to do, whatever the clock says: nothing waits to be sent or handled before it.
    pub(crate) fn reads_first(&self) -> bool {
        self.readable && self.phase == Phase::Head && self.unsent() == 0
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    /// False: more of the request in progress may be to come.
    pub(crate) fn is_request_here(&self) -> bool {
        self.http.request_is_read()
            || self.http.body_left().is_some_and(|left| left <= self.undecoded() as u64)
    }

    /// What the request that waits for the handler asks for.
    pub(crate) fn asked(&self) -> Asked<'_> {
        static NONE: Method = Method::GET;
        match self.buffers.as_deref() {
            // Its head is gone: an idle connection holds no buffer.
            Some(_) if self.phase == Phase::Later => Asked::new(&NONE, b""),
            Some(buffers) => Asked::new(&buffers.head.method, buffers.head.path_in(buffers.unread())),
            None => Asked::new(&NONE, b""),
        }
    }

    /// The peer has not taken all that was to be sent.
    pub(crate) fn awaits_room(&self) -> bool {
        self.pace.what == Timeout::Write
    }

    /// A body of known length waits to be sent that was not copied, or is long.
    pub(crate) fn holds_body(&self) -> bool {
        matches!(self.rest.as_deref(), Some(Rest::Known { .. })) || self.unsent() > COPIED_BYTES_MAX
    }

    /// Gives the buffers of an idle connection back.
    pub(crate) fn rest(&mut self, pool: &mut Pool) {
        if let Some(buffers) = self.buffers.take_if(|buffers| buffers.is_empty()) {
            pool.give_back(buffers);
        }
    }

    /// The connection is about to be dropped; its buffers are as good as any.
    pub(crate) fn reclaim(&mut self, pool: &mut Pool) {
        if let Some(buffers) = self.buffers.take() {
            pool.give_back(buffers);
        }
    }

    fn read_head(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let Some(buffers) = self.buffers.as_deref_mut().filter(|buffers| !buffers.has_no_request()) else {
            return Some(self.between_requests(now, cx));
        };
        match self.http.read_head(&buffers.input[buffers.start..], &cx.limits, &mut buffers.head) {
            Ok(HeadEvent::NeedMore) => Some(self.read_on(Timeout::Head, now)),
            Ok(HeadEvent::Head(bytes)) => {
                self.peer_persists = buffers.head.keep_alive;
                buffers.raw = buffers.start + bytes;
                buffers.payload = buffers.raw..buffers.raw;
                let has_use = match buffers.head.framing {
                    Framing::None => false,
                    // The handler refuses it at once, or has a limit of its own.
                    Framing::Length(length) => length <= cx.settings.body_bytes_max.0,
                    Framing::Chunked => true,
                };
                // A client that waits for 100 Continue sends nothing before the handler has asked for it.
                let ahead = has_use && !self.http.wants_continue();
                let is_absolute = buffers.head.is_absolute();
                self.phase = if ahead && cx.reads_ahead(&self.asked()) { Phase::Body } else { Phase::Ready };
                if is_absolute {
                    self.refuse_if_misdirected(cx);
                }
                None
            }
            Err(fault) => {
                self.refuse_fault(fault, cx);
                None
            }
        }
    }

    /// More of the request is wanted. What is unsent goes first, and its time is the peer's until then: were
    /// the other one started meanwhile, each byte that comes would buy more time to leave the response unread.
    fn read_on(&mut self, what: Timeout, now: Tick) -> Step {
        if self.unsent() > 0 {
            return Step::Write;
        }
        if self.pace.what != what {
            self.pace = self.pace.then(what, now);
            // However it was cut into segments: some may have come with what was before.
            self.pace.count(match what {
                Timeout::Head => self.buffers.as_ref().map_or(0, |buffers| buffers.unread().len()),
                Timeout::Body => self.bytes_ahead(),
                _ => 0,
            });
        }
        Step::Read
    }

    /// Whether the answer to another request may wait behind what is unsent. Not where the peer has let us wait: it takes
    /// all before, so that its time is that of a wait, and not of a call.
    #[inline]
    fn has_room(&self) -> bool {
        let unsent = self.unsent();
        unsent == 0 || (unsent <= OUTPUT_BYTES_MAX && self.pace.what != Timeout::Write)
    }

    /// What the peer does next, unless it still has a response to take: were that time started anew with every
    /// request, one who pipelines would never have to read.
    #[inline]
    fn turn_to(&mut self, what: Timeout, now: Tick) {
        if self.pace.what != Timeout::Write || self.unsent() == 0 {
            self.pace = self.pace.then(what, now);
        }
    }

    /// Nothing of the next request is there.
    fn between_requests(&mut self, now: Tick, cx: &Context) -> Step {
        if self.unsent() > 0 {
            return Step::Write;
        }
        // Not before a look in vain: to close on a request that has come already would reset it (RFC 9112 section 9.6).
        let is_over = now >= self.expires || self.is_drained(now, cx);
        if is_over && !self.readable {
            self.phase = Phase::Done;
            return Step::Close;
        }
        Step::Read
    }

    #[inline(never)]
    fn read_ahead(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        loop {
            match self.decode(cx) {
                Ok(BodyEvent::Data { .. }) => {}
                Ok(BodyEvent::End) => {
                    self.phase = Phase::Ready;
                    return None;
                }
                Ok(BodyEvent::NeedMore) => {
                    if self.bytes_ahead() as u64 >= cx.settings.body_ahead_bytes_max.0 {
                        self.phase = Phase::Ready;
                        return None;
                    }
                    return Some(self.read_on(Timeout::Body, now));
                }
                Err(fault) => {
                    self.refuse_fault(fault, cx);
                    return None;
                }
            }
        }
    }

    /// A response has been handed over whole. The next request does not wait until it is sent, so that the
    /// answers to all requests of one read leave with one write.
    fn finish_sending(&mut self, after: After, now: Tick) -> Option<Step> {
        match after {
            After::Next if self.rest.is_none() => self.next_request(now),
            After::Drain if self.rest.is_none() => {
                self.turn_to(Timeout::Drain, now);
                self.phase = Phase::Drain;
            }
            _ if self.unsent() > 0 || self.rest.is_some() => return Some(Step::Write),
            _ => self.end(after, now),
        }
        None
    }

    /// Always inlined: as a call it took 10 instructions more of every request.
    #[inline(always)]
    fn next_request(&mut self, now: Tick) {
        self.http.next_request();
        self.turn_to(Timeout::Idle, now);
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
