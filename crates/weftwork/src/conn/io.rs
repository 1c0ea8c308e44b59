//! Moves bytes between a connection's socket and its buffers, and applies the framing.
//!
//! The functions are inlined down to the system call, for the reason in `transport/stream.rs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use weftwork_wire::{BodyEvent, Fault};

use super::{Conn, PendingBody, Phase, Role};
use crate::message::BodyPart;
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::ConnState;
use crate::transport::log_queue::log_line;
use crate::transport::slow_file;
use crate::transport::stream::is_would_block;
use crate::transport::{BufferPool, Buffers, Tick};

/// Maximum bytes of a large response to a fast peer before other connections are served. With 1 MiB, the kernel's own
/// buffer grew less, and a file of 10 MiB took 3 to 4 % more CPU.
///
/// A cycle may send as much to each connection, in 0.3 to 0.5 ms over loopback. A slower network takes less a cycle. Beside 8
/// such downloads of one loop on 2 cores, 64 quick clients had a p99 of 12 to 22 ms. They had 15 to 36 ms with nginx, which also
/// sends 2 MiB (`sendfile_max_chunk`), and 10 to 15 ms with 256 KiB there. A budget of the cycle would gain little.
const TURN_BYTES: usize = 2 << 20;

/// Bytes that a peer is sent before its first acknowledgement: ten Ethernet segments (RFC 6928).
const INITIAL_WINDOW_BYTES: usize = 10 * 1460;

/// Progress of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The kernel has accepted everything.
    All,
    /// The kernel accepts no more now.
    WouldBlock,
    /// The kernel would accept more, but other connections wait.
    BudgetSpent,
    /// The next part of a file may not be in memory.
    SlowFile,
}

impl Conn {
    /// Reads once, without waiting. `Ok(0)` means that the peer has closed its side.
    #[inline(always)]
    pub(crate) fn fill(&mut self, now: Tick, pool: &mut BufferPool) -> io::Result<usize> {
        let buffers = self.buffers.get_or_insert_with(|| pool.take());
        let space = reserve(buffers);
        let read = self.stream.recv(&mut buffers.input);
        self.note_read(read, space, now)
    }

    /// Reads once, and waits for at most `patience`. After that time, call [`note_progress`](Conn::note_progress).
    #[inline(always)]
    pub(crate) fn fill_timeout(
        &mut self,
        timeout: Duration,
        now: Tick,
        pool: &mut BufferPool,
    ) -> io::Result<usize> {
        let buffers = self.buffers.get_or_insert_with(|| pool.take());
        let space = reserve(buffers);
        let read = self.stream.recv_for(&mut buffers.input, timeout);
        self.note_read(read, space, now)
    }

    /// Takes buffers of the pool for responses of HTTP/2, which the connection collects. New buffers would have to grow each time,
    /// and the allocator returned their pages to the kernel.
    ///
    /// Only loops serve such connections, also in `workers` and `pool`. Their threads serve the requests, whose buffers come from the
    /// loop with them.
    pub(crate) fn take_buffers(&mut self, pool: &mut BufferPool) {
        self.buffers.get_or_insert_with(|| pool.take());
    }

    /// Records that the bytes arrived while the thread waited, and not before, so the request's time starts now.
    pub(crate) fn note_progress(&mut self, now: Tick) {
        self.note_arrived(0, now);
    }

    /// Counts bytes for the deadline of what is read: the request, or the body that outlives its handler.
    #[inline(always)]
    fn note_arrived(&mut self, count: usize, now: Tick) {
        match self.owned_body {
            // What a client of HTTP/2 sends gives it no more time to read its responses.
            None if self.phase == Phase::Http2 && self.timer.kind == TimeoutKind::Write => {}
            None => self.timer.advance(count, now),
            Some(_) => self.note_body_read(count, now),
        }
    }

    /// Records that the kernel has ended the connection, because the client took nothing for too long. A busy loop may see that
    /// before its own timeout.
    #[cold]
    fn note_lost(&mut self, error: &io::Error) {
        self.note_end_of_stream();
        if error.kind() == io::ErrorKind::TimedOut && self.timer.kind == TimeoutKind::Write {
            self.note_write_timeout();
        }
    }

    #[inline(always)]
    fn note_read(&mut self, read: io::Result<usize>, space: usize, now: Tick) -> io::Result<usize> {
        match &read {
            Ok(count) => {
                if let Some(observed) = &mut self.observed {
                    observed.note_read();
                }
                // A short read has emptied the socket. The poller reports further bytes (epoll(7), edge-triggered).
                self.read_ready = !self.stream.is_emptied(*count, space) || self.read_closed;
                let count = self.stream.take_unreported(*count);
                self.note_arrived(count, now);
            }
            Err(error) if is_would_block(error) => {
                // Perhaps a part of a TLS record was read. The part is progress, and the poller does not report the end behind
                // it again.
                self.read_ready = self.read_closed;
                let count = self.stream.take_progress();
                if count > 0 {
                    self.note_arrived(count, now);
                }
            }
            Err(error) => self.note_lost(error),
        }
        read
    }

    /// Sends without waiting for the peer.
    #[inline(always)]
    pub(crate) fn flush(&mut self, now: Tick) -> io::Result<Flushed> {
        self.flush_with(now, true)
    }

    /// Sends without waiting for the peer, and without waiting for files unless `may_wait`.
    #[inline(always)]
    pub(crate) fn flush_with(&mut self, now: Tick, may_wait: bool) -> io::Result<Flushed> {
        let mut total = 0;
        while total < TURN_BYTES {
            match self.send_once(may_wait) {
                Ok(0) => return Ok(self.note_flushed(now)),
                Ok(count) => {
                    total += count;
                    self.has_sent_much |= total > INITIAL_WINDOW_BYTES;
                    if self.timer.kind == TimeoutKind::Write {
                        self.timer.advance(count, now);
                    }
                    if self.unsent() == 0 && self.pending_body.is_none() {
                        return Ok(self.note_flushed(now));
                    }
                }
                // The deadline of a handshake holds for both directions.
                Err(error) if is_would_block(&error) && self.is_handshaking() => {
                    return Ok(Flushed::WouldBlock);
                }
                Err(error) if is_would_block(&error) => {
                    if self.timer.kind != TimeoutKind::Write {
                        self.timer = self.timer.then(TimeoutKind::Write, now);
                    }
                    self.count.enter(ConnState::Sending);
                    self.note_sent();
                    self.has_sent_much = true;
                    return Ok(Flushed::WouldBlock);
                }
                Err(error) if !may_wait && error.kind() == io::ErrorKind::ResourceBusy => {
                    return Ok(Flushed::SlowFile);
                }
                Err(error) => {
                    self.note_lost(&error);
                    self.note_sent();
                    return Err(error);
                }
            }
        }
        // The peer makes progress, so the time of its request has ended, whatever is left to send.
        if self.timer.kind != TimeoutKind::Write {
            self.timer = self.timer.then(TimeoutKind::Write, now);
        }
        Ok(Flushed::BudgetSpent)
    }

    /// Handles the deadline of a peer that reads a response. Returns whether it has read some of it all the same, and
    /// fast enough.
    ///
    /// Only a send shows progress. Pollers report space only if there is much. Linux does so when a third of a TCP
    /// socket's buffer is free. That was 1.3 MB, or 40 s for a client that read 32 KiB a second.
    #[cold]
    pub(crate) fn makes_progress(&mut self, now: Tick, cx: &Context) -> io::Result<bool> {
        let before = self.timer.bytes();
        let flushed = self.flush(now)?;
        Ok(flushed == Flushed::All || (self.timer.bytes() > before && self.deadline(cx) > now))
    }

    /// The peer has read everything, so the next time it blocks is a new time.
    #[inline(always)]
    fn note_flushed(&mut self, now: Tick) -> Flushed {
        if self.timer.kind == TimeoutKind::Write {
            self.timer = self.timer.then(TimeoutKind::Idle, now);
            if !self.is_fed() {
                self.count.enter(ConnState::Idle);
            }
        }
        if self.observed.is_some() {
            self.note_sent();
        }
        // The end of the connection follows at once, and takes the kept bytes with it.
        if self.stream.is_corked() && !self.ends_in_order() {
            self.stream.uncork();
        }
        Flushed::All
    }

    #[cold]
    fn note_short_file(&mut self) -> io::Error {
        self.note_body_cut_short();
        let (line, error) = (self.request_line(), short_file());
        log_line!(Error, "a response ended early at {line}, and its connection with it: {error}");
        error
    }

    /// Sends the waiting bytes and `data` with one system call. Returns how much of `data` the kernel has accepted. The
    /// end of `data` may stay there until the next [`flush`](Conn::flush): see
    /// [`Stream::cork`](crate::transport::Stream::cork).
    pub(super) fn send_with(&mut self, data: &[u8], now: Tick) -> io::Result<usize> {
        self.stream.cork();
        let buffers = self.buffers.get_or_insert_default();
        let unsent = &buffers.output[buffers.sent..];
        let sent = match self.stream.send_both(unsent, data) {
            Err(error) if is_would_block(&error) => 0,
            sent => sent?,
        };
        self.has_sent_much = true;
        if self.timer.kind == TimeoutKind::Write {
            self.timer.advance(sent, now);
        }
        let of_data = sent.saturating_sub(unsent.len());
        buffers.note_sent(sent - of_data);
        Ok(of_data)
    }

    /// Sends with one system call. 0 means that nothing was left to send. `ResourceBusy`: a file may have to be read first, and
    /// this may not wait.
    #[inline(always)]
    fn send_once(&mut self, may_wait: bool) -> io::Result<usize> {
        // For a later response, the body may be all that is left, because the request is gone and the head was sent.
        let unsent = self.buffers.as_deref().map_or(&[][..], |buffers| &buffers.output[buffers.sent..]);
        let sent = match self.pending_body.as_deref_mut() {
            None | Some(PendingBody::Deferred(_) | PendingBody::FeedBody(_) | PendingBody::Upgrade(_))
                if unsent.is_empty() =>
            {
                return self.stream.flush();
            }
            Some(PendingBody::Known { part: BodyPart::Bytes(bytes), .. }) => {
                let sent = self.stream.send_both(unsent, bytes)?;
                let taken = bytes.split_to(sent.saturating_sub(unsent.len()));
                let is_sent = bytes.is_empty();
                // The last piece has the owner of the bytes.
                self.drop_sent(taken);
                if is_sent {
                    self.next_part();
                }
                sent
            }
            Some(PendingBody::Known { part: BodyPart::File { file, offset, count }, .. })
                if unsent.is_empty() =>
            {
                // A stream of HTTP/2 passes the file on to its connection.
                if !may_wait
                    && !matches!(self.role, Role::Stream(_))
                    && slow_file::may_wait(file, *offset, *count)
                {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                if *count >= CORKED_BYTES_MIN {
                    self.stream.cork();
                }
                let sent = self.stream.send_file(file, offset, *count)?;
                *count -= sent as u64;
                if sent == 0 {
                    return Err(self.note_short_file());
                }
                if *count == 0 {
                    self.next_part();
                }
                return Ok(sent);
            }
            Some(PendingBody::Known { .. }) => self.stream.send(unsent, true)?,
            None => self.stream.send(unsent, self.ends_in_order())?,
            Some(PendingBody::Deferred(_) | PendingBody::FeedBody(_) | PendingBody::Upgrade(_)) => {
                self.stream.send(unsent, false)?
            }
        };
        let Some(buffers) = self.buffers.as_deref_mut() else { return Ok(sent) };
        buffers.note_sent(sent.min(unsent_len(buffers)));
        Ok(sent)
    }

    /// Parses the unread bytes once and turns them into payload.
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

    /// Returns the bytes that were read and not parsed.
    pub(super) fn undecoded(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.input.len() - b.raw)
    }

    /// Returns the bytes of the current body that are in memory.
    pub(super) fn buffered_body(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.payload.len()) + self.undecoded()
    }

    /// Returns the bytes after the head that are in memory, including chunk framing. For chunks of one byte, that is
    /// five times the payload.
    pub(super) fn bytes_ahead(&self) -> usize {
        self.buffers.as_ref().map_or(0, |b| b.input.len() - (b.start + b.head.bytes as usize))
    }

    /// Drops payload that is not needed, and its space.
    pub(super) fn forget_payload(&mut self) {
        let Some(buffers) = self.buffers.as_deref_mut() else { return };
        buffers.payload = buffers.raw..buffers.raw;
        if self.phase == Phase::Drain {
            buffers.start = buffers.raw;
        }
    }
}

/// Length from which a file is sent in full segments (`Stream::cork`). With the cork, a file of 1 MiB took 17
/// segments instead of 20, and 0.83 of the time. A file of 100 KiB has two segments in any case, and took 15.1 us
/// with the cork and 12.5 us without.
const CORKED_BYTES_MIN: u64 = 128 << 10;

fn short_file() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a file got shorter while it was sent")
}

/// Reads a part of a file that is sent, to its end.
pub(super) fn read_file(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    let read = file.read_exact_at(into, offset);
    read.map_err(|error| if error.kind() == io::ErrorKind::UnexpectedEof { short_file() } else { error })
}

/// Returns the space for a read. Bytes of earlier requests at the start of the buffer are dropped first.
fn reserve(buffers: &mut Buffers) -> usize {
    buffers.reserve(1);
    buffers.input.capacity() - buffers.input.len()
}

impl Conn {
    /// Goes on with the next part of a body.
    fn next_part(&mut self) {
        if let Some(PendingBody::Known { part, then }) = self.pending_body.as_deref_mut()
            && let Some(next) = then.next()
        {
            let sent = std::mem::replace(part, next);
            self.drop_sent(sent);
        } else {
            let sent = self.pending_body.take();
            self.drop_sent(sent);
        }
    }
}

fn unsent_len(buffers: &Buffers) -> usize {
    buffers.output.len() - buffers.sent
}

/// Appends `len` bytes at `start` in `raw` to the payload. Chunk framing between the two parts is dropped.
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
