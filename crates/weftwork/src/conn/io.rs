//! How bytes move between a connection's socket and its buffers, and what the framing makes of them.
//!
//! Inlined down to the system call, for the reason that `transport/stream.rs` gives.

use std::io;
use std::time::Duration;

use weftwork_wire::{BodyEvent, Fault};

use super::{Conn, Phase, Rest};
use crate::message::Part;
use crate::transport::context::Context;
use crate::transport::deadlines::Timeout;
use crate::transport::stream::is_would_block;
use crate::transport::{Buffers, Pool, Tick};

/// A fast peer of a large response gets this much before others have their turn. With half of it the kernel's own buffer grew less,
/// and a file of 10 MiB took 3 to 4 % more CPU.
const TURN_BYTES: usize = 2 << 20;

/// What a peer is sent before it has acknowledged anything: ten segments of Ethernet (RFC 6928).
const INITIAL_WINDOW_BYTES: usize = 10 * 1460;

/// How far sending has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything is with the kernel.
    All,
    /// The kernel takes no more now.
    Blocked,
    /// It would take more, but others wait.
    Enough,
}

impl Conn {
    /// Reads once, without waiting. `Ok(0)`: the peer has ended its side.
    #[inline(always)]
    pub(crate) fn fill(&mut self, now: Tick, pool: &mut Pool) -> io::Result<usize> {
        let buffers = self.buffers.get_or_insert_with(|| pool.take());
        let asked = room(buffers);
        let read = self.stream.recv(&mut buffers.input);
        self.note_read(read, asked, now)
    }

    /// Reads once, and waits for at most `patience`. When that is over, [`came_by`](Conn::came_by) is told.
    #[inline(always)]
    pub(crate) fn fill_for(&mut self, patience: Duration, now: Tick, pool: &mut Pool) -> io::Result<usize> {
        let buffers = self.buffers.get_or_insert_with(|| pool.take());
        let asked = room(buffers);
        let read = self.stream.recv_for(&mut buffers.input, patience);
        self.note_read(read, asked, now)
    }

    /// What was read came while its thread waited, and not before: a request has its time from then on.
    pub(crate) fn came_by(&mut self, now: Tick) {
        self.pace.advance(0, now);
    }

    #[inline(always)]
    fn note_read(&mut self, read: io::Result<usize>, asked: usize, now: Tick) -> io::Result<usize> {
        match &read {
            Ok(count) => {
                // A short read has emptied the socket: the poller will tell of more (epoll(7), edge-triggered).
                self.readable = *count == asked || self.ended;
                self.pace.advance(*count, now);
            }
            Err(error) if is_would_block(error) => self.readable = false,
            Err(_) => {}
        }
        read
    }

    /// Sends what is to be sent, without waiting.
    #[inline(always)]
    pub(crate) fn flush(&mut self, now: Tick) -> io::Result<Flushed> {
        let mut total = 0;
        while total < TURN_BYTES {
            match self.send_once() {
                Ok(0) => return Ok(self.note_flushed(now)),
                Ok(count) => {
                    total += count;
                    self.has_sent_much |= total > INITIAL_WINDOW_BYTES;
                    if self.pace.what == Timeout::Write {
                        self.pace.advance(count, now);
                    }
                    if self.unsent() == 0 && self.rest.is_none() {
                        return Ok(self.note_flushed(now));
                    }
                }
                Err(error) if is_would_block(&error) => {
                    if self.pace.what != Timeout::Write {
                        self.pace = self.pace.then(Timeout::Write, now);
                    }
                    self.has_sent_much = true;
                    return Ok(Flushed::Blocked);
                }
                Err(error) => return Err(error),
            }
        }
        // It gets on, so the time that its request had is over, whatever is left to send.
        if self.pace.what != Timeout::Write {
            self.pace = self.pace.then(Timeout::Write, now);
        }
        Ok(Flushed::Enough)
    }

    /// The time of a peer that takes what is sent is up: has it taken some all the same, and fast enough?
    ///
    /// A send tells. Pollers speak of room only when there is much: Linux when a third of a TCP socket's buffer is free, which
    /// was 1.3 MB, and 40 s of a client that took 32 KiB a second.
    #[cold]
    pub(crate) fn gets_on(&mut self, now: Tick, cx: &Context) -> io::Result<bool> {
        let before = self.pace.bytes();
        let flushed = self.flush(now)?;
        Ok(flushed == Flushed::All || (self.pace.bytes() > before && self.deadline(cx) > now))
    }

    /// The peer took all: the next time it blocks is another time.
    #[inline(always)]
    fn note_flushed(&mut self, now: Tick) -> Flushed {
        if self.pace.what == Timeout::Write {
            self.pace = self.pace.then(Timeout::Idle, now);
        }
        // The end of a connection, which follows at once, has what is kept leave with it.
        if self.stream.is_corked() && !self.ends_in_order() {
            self.stream.uncork();
        }
        Flushed::All
    }

    #[cold]
    fn note_short_file(&self) -> io::Error {
        let why = "a file got shorter while it was sent";
        log::error!("a response ended early at {}, and its connection with it: {why}", self.asked());
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    }

    /// One system call: sends what is to be sent and `data` behind it. Says how much of `data` the kernel has taken. The end of
    /// that may stay there until the next [`flush`](Conn::flush): see [`Stream::cork`](crate::transport::Stream::cork).
    pub(super) fn send_with(&mut self, data: &[u8], now: Tick) -> io::Result<usize> {
        self.stream.cork();
        let buffers = self.buffers.get_or_insert_default();
        let unsent = &buffers.output[buffers.sent..];
        let sent = match self.stream.send_both(unsent, data) {
            Err(error) if is_would_block(&error) => 0,
            sent => sent?,
        };
        self.has_sent_much = true;
        if self.pace.what == Timeout::Write {
            self.pace.advance(sent, now);
        }
        let of_data = sent.saturating_sub(unsent.len());
        buffers.note_sent(sent - of_data);
        Ok(of_data)
    }

    /// One system call. 0: nothing was left to send.
    #[inline(always)]
    fn send_once(&mut self) -> io::Result<usize> {
        // Of a response that came later its body may be all that there is: the request has gone, and the head is sent.
        let unsent = self.buffers.as_deref().map_or(&[][..], |buffers| &buffers.output[buffers.sent..]);
        let sent = match self.rest.as_deref_mut() {
            None | Some(Rest::Later(_) | Rest::Fed(_) | Rest::Take(_)) if unsent.is_empty() => return Ok(0),
            Some(Rest::Known { part: Part::Bytes(bytes), .. }) => {
                let sent = self.stream.send_both(unsent, bytes)?;
                let _ = bytes.split_to(sent.saturating_sub(unsent.len()));
                if bytes.is_empty() {
                    next_part(&mut self.rest);
                }
                sent
            }
            Some(Rest::Known { part: Part::File { file, offset, count }, .. }) if unsent.is_empty() => {
                if *count >= CORKED_BYTES_MIN {
                    self.stream.cork();
                }
                let sent = self.stream.send_file(file, offset, *count)?;
                *count -= sent as u64;
                if sent == 0 {
                    return Err(self.note_short_file());
                }
                if *count == 0 {
                    next_part(&mut self.rest);
                }
                return Ok(sent);
            }
            Some(Rest::Known { .. }) => self.stream.send(unsent, true)?,
            None => self.stream.send(unsent, self.ends_in_order())?,
            Some(Rest::Later(_) | Rest::Fed(_) | Rest::Take(_)) => self.stream.send(unsent, false)?,
        };
        let Some(buffers) = self.buffers.as_deref_mut() else { return Ok(sent) };
        buffers.note_sent(sent.min(unsent_len(buffers)));
        Ok(sent)
    }

    /// Looks at the unread bytes once and makes payload of them.
    pub(super) fn decode(&mut self, cx: &Context) -> Result<BodyEvent, Fault> {
        let raw = self.buffers.as_deref().map_or(&[][..], |buffers| &buffers.input[buffers.raw..]);
        let (used, event) = self.http.read_body(raw, &cx.limits)?;
        if let Some(buffers) = self.buffers.as_deref_mut() {
            if let BodyEvent::Data { start, len } = event {
                absorb(buffers, start, len);
            }
            buffers.raw += used;
        }
        Ok(event)
    }

    /// Bytes that were read and that nobody has looked at.
    pub(super) fn undecoded(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.input.len() - b.raw)
    }

    /// Bytes of the body in progress that are in memory.
    pub(super) fn buffered_body(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.payload.len()) + self.undecoded()
    }

    /// Bytes behind the head that are in memory, the framing of chunks included: of chunks of one byte it is five
    /// times the payload.
    pub(super) fn bytes_ahead(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.input.len() - (b.start + b.head.bytes as usize))
    }

    /// Drops payload that nobody wants, and the room it took.
    pub(super) fn forget_payload(&mut self) {
        let Some(buffers) = self.buffers.as_deref_mut() else { return };
        buffers.payload = buffers.raw..buffers.raw;
        if self.phase == Phase::Drain {
            buffers.start = buffers.raw;
        }
    }
}

/// A file this long is sent in full segments (`Stream::cork`): one of 1 MiB in 17 and not 20, for 0.83 of the time. One of 100 KiB is
/// two segments in any case, and took 15.1 us for 12.5.
const CORKED_BYTES_MIN: u64 = 128 << 10;

/// What a read may bring. The buffer's start is given up first: it belongs to requests that are over.
fn room(buffers: &mut Buffers) -> usize {
    buffers.make_room(1);
    buffers.input.capacity() - buffers.input.len()
}

fn next_part(rest: &mut Option<Box<Rest>>) {
    if let Some(Rest::Known { part, then }) = rest.as_deref_mut()
        && let Some(next) = then.next()
    {
        *part = next;
    } else {
        *rest = None;
    }
}

fn unsent_len(buffers: &Buffers) -> usize {
    buffers.output.len() - buffers.sent
}

/// Adds `len` bytes at `start` behind `raw` to the payload; chunk framing between the two parts goes.
fn absorb(buffers: &mut Buffers, start: usize, len: usize) {
    let from = buffers.raw + start;
    if buffers.payload.is_empty() {
        buffers.payload = from..from + len;
        return;
    }
    if buffers.payload.end != from {
        buffers.input.copy_within(from..from + len, buffers.payload.end);
    }
    buffers.payload.end += len;
}
