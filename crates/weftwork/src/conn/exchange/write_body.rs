//! Writes a response while its writer runs: in parts, as fast as its client reads them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::Method;
use weftwork_wire::{After, BodyLength, Version};

use super::{ConnExchange, Streamed, log_client};
use crate::conn::{Flushed, OUTPUT_BYTES_MAX, Phase, Readiness};
use crate::error::{Error, ErrorClass};
use crate::message::drop_caught::drop_caught;
use crate::message::exchange::Exchange;
use crate::message::{BodyWriter, IntoResponse, Payload, Response, Stream};
use crate::transport::events::{Event, ShedReason};
use crate::transport::stream::is_timed_out;
use crate::transport::watchdog::line_of;
use crate::transport::{CallSlot, Tick};

/// Size from which collected bytes of a streamed response are sent. With 16 KiB, an echo of 64 KiB or 1 MiB took a
/// third more CPU, because each write wakes the peer.
const STREAM_BYTES: usize = 64 << 10;
/// Bytes that are passed to the kernel at a time, and copied if it does not accept them. With half of it, an echo of 1
/// MiB took 2 % more CPU.
const PART_BYTES_MAX: usize = 256 << 10;

impl<'a> ConnExchange<'a> {
    /// A response that is written while this runs.
    pub(super) fn stream(
        &mut self,
        response: Response,
        write: Stream,
        slot: &'a CallSlot,
    ) -> io::Result<After> {
        self.streamed = Some(Box::new(Streamed { pending: Some(response), ..Streamed::default() }));
        self.conn.handler_ran = true;
        let written = if self.head().0.method == Method::HEAD {
            drop_caught(write).map_err(|panic| self.error_of_panic(panic))
        } else {
            self.write_with(write, slot)
        };
        let after = match written.and_then(|()| self.start()) {
            Ok(()) => self.finish(),
            Err(error) if self.has_begun() => Err(error),
            Err(error) => self.answer_failure(error),
        };
        match self.conn.unsent() {
            // No later write sends the bytes.
            0 => self.conn.stream.uncork(),
            // The rest is sent without a thread, for as long as its client takes. It does not keep the space of a whole
            // part.
            _ => self.conn.buffers_mut().output.shrink_to(OUTPUT_BYTES_MAX),
        }
        after
    }

    /// The writer failed before anything was sent, so its error becomes a response as in any handler.
    #[cold]
    fn answer_failure(&mut self, error: io::Error) -> io::Result<After> {
        let (error, meant) = (Error::from(error), self.take_pending().unwrap_or_default());
        if !matches!(error.class(), ErrorClass::Client(_)) {
            return self.fail(&error, meant);
        }
        let response = self.in_shape(error.into_response());
        let mut response = self.last_of(response).in_place_of(meant);
        let mut payload = std::mem::replace(&mut response.payload, Payload::Empty);
        let now = self.wait.now();
        self.whole(&response, &mut payload, now)
    }

    fn write_with(&mut self, write: Stream, slot: &'a CallSlot) -> io::Result<()> {
        let now = self.wait.now();
        match &self.left {
            // The head is gone, and the buffer holds the next request.
            Some(left) => slot.enter_later_part(now, &line_of(&left.method, &left.path)),
            None => {
                let (head, text) = self.head();
                match head.version {
                    Version::Http2 => slot.enter_later_part(now, &line_of(&head.method, head.path.of(text))),
                    _ => slot.enter_later_part(now, text),
                }
            }
        }
        self.watched = Some(slot);
        let mut writer = BodyWriter::new(self);
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut writer)))
            .unwrap_or_else(|panic| Err(self.error_of_panic(panic)));
        let now = self.wait.now();
        self.note_writer(now);
        self.watched = None;
        self.conn.timer.resume(now);
        slot.leave();
        written
    }

    fn take_pending(&mut self) -> Option<Response> {
        self.streamed.as_mut().and_then(|streamed| streamed.pending.take())
    }

    /// Writes the head of a streamed response, unless it was written.
    ///
    /// # Errors
    /// Fails if the peer has gone, or the head cannot be written.
    pub(super) fn start(&mut self) -> io::Result<()> {
        // The head is taken in any case, because a 500 cannot replace a head that was not read.
        let pending = self.take_pending();
        self.check_client()?;
        let Some(response) = pending else { return Ok(()) };
        let misuse = self.streamed.as_ref().and_then(|streamed| streamed.misuse);
        let written = match misuse {
            Some(misuse) => Err(misuse),
            None => self.write_head(&response, BodyLength::Unknown, self.wait.now()),
        };
        if let (Err(misuse), Some(streamed)) = (written, &mut self.streamed) {
            // The writer may continue as if it had begun. Its fields may be why it has not.
            (streamed.misuse, streamed.pending) = (Some(misuse), Some(Response::default()));
        }
        self.conn.guard_end();
        written.map_err(io::Error::other)
    }

    /// # Errors
    /// The peer has gone.
    pub(super) fn check_client(&self) -> io::Result<()> {
        if self.conn.phase == Phase::Done {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone, or its time is up"));
        }
        Ok(())
    }

    /// Collects small pieces. A large piece goes to the kernel without a copy, as far as the kernel accepts it.
    ///
    /// Each part is written completely before anything can end the call, such as a wait or a logger that panics. Code
    /// that catches the panic and continues to write (such as a `BufWriter` on drop) must not write into the middle of
    /// a chunk.
    pub(super) fn write_part(&mut self, data: &[u8]) -> io::Result<()> {
        self.waits = false;
        self.start()?;
        if !self.conn.http.sends_body() {
            return Ok(());
        }
        self.conn.note_body(data.len() as u64);
        // A stream of HTTP/2 has space for four such parts in its pipe, and holds no more beside it.
        let part_bytes_max = if self.conn.is_stream() { STREAM_BYTES } else { PART_BYTES_MAX };
        for part in data.chunks(part_bytes_max) {
            if self.conn.unsent() + part.len() < STREAM_BYTES {
                self.append(part)?;
            } else {
                self.send_part(part)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, part: &[u8]) -> io::Result<()> {
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        conn.http.write_body(part, output).map_err(io::Error::other)
    }

    fn send_part(&mut self, part: &[u8]) -> io::Result<()> {
        let now = self.begin_sending();
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        let end = conn.http.begin_part(part.len() as u64, output).map_err(io::Error::other)?;
        let sent = conn.send_with(part, now);
        let sent = self.done_if_failed(sent)?;
        let output = &mut self.conn.buffers_mut().output;
        output.extend_from_slice(&part[sent..]);
        output.extend_from_slice(end);
        let unsent = self.conn.unsent();
        if unsent >= STREAM_BYTES {
            return self.push(OUTPUT_BYTES_MAX);
        }
        if unsent == 0 && self.conn.http.has_written_all() {
            self.conn.stream.uncork();
        }
        let checked = self.wait.check(self.cx);
        self.done_if_failed(checked)
    }

    pub(super) fn start_and_push(&mut self) -> io::Result<()> {
        self.start()?;
        self.push_all()
    }

    /// Sends everything. A request of HTTP/2 leaves it to its connection, which may wait for this thread.
    pub(super) fn push_all(&mut self) -> io::Result<()> {
        self.push(0)?;
        if self.conn.is_stream() {
            self.wait.exchange_frames();
        }
        Ok(())
    }

    /// Sends until at most `left` bytes wait. A client that has failed is not tried again. It would get its time twice,
    /// and a writer that ignores errors would fill the buffer.
    pub(super) fn push(&mut self, left: usize) -> io::Result<()> {
        let pushed = self.send_until(left);
        self.done_if_failed(pushed)
    }

    fn done_if_failed<T>(&mut self, sent: io::Result<T>) -> io::Result<T> {
        if sent.is_err() {
            self.conn.phase = Phase::Done;
        }
        sent
    }

    /// The time until now belonged to the handler, or to the body of its client.
    fn begin_sending(&mut self) -> Tick {
        let now = self.wait.now();
        self.conn.timer.resume(now);
        self.note_writer(now);
        now
    }

    fn send_until(&mut self, left: usize) -> io::Result<()> {
        let mut now = self.begin_sending();
        loop {
            let flushed = self.conn.flush(now)?;
            self.wait.check(self.cx)?;
            if flushed == Flushed::All || self.conn.unsent() <= left {
                return Ok(());
            }
            if flushed == Flushed::WouldBlock {
                let until = self.conn.deadline(self.cx);
                let waited = self.wait_unseen(until, |live| {
                    let (fd, ready) = Readiness::Write.of(&live.conn.stream)?;
                    live.wait.ready(fd, ready, until)
                });
                match waited {
                    Err(error)
                        if is_timed_out(&error) && self.conn.makes_progress(self.wait.now(), self.cx)? => {}
                    waited => waited.inspect_err(|error| self.note_failure(error))?,
                }
            }
            now = self.wait.now();
        }
    }

    #[cold]
    fn note_failure(&mut self, why: &io::Error) {
        match why.kind() {
            io::ErrorKind::TimedOut => {
                self.conn.note_timeout(self.cx);
                self.conn.cut_stream();
            }
            io::ErrorKind::ResourceBusy => self.note_overload("to wait for the client of a streamed body"),
            _ => {}
        }
    }

    /// Fails if all threads are busy and a loop needs this one, so that it must not wait.
    #[cold]
    pub(super) fn note_overload(&self, what_for: &str) {
        self.cx.record(Event::Shed(ShedReason::NoThread));
        let setting = self.cx.settings.show(&["threads_max"]);
        let (line, id) = (self.target(), self.id_for_log());
        log_client(self.cx, format_args!("no thread is free {what_for} ({setting}) at {line}{id}"));
    }

    /// Restarts the watchdog's time, because the writer of a streamed body has called in and is not stuck.
    pub(super) fn note_writer(&self, now: Tick) {
        if self.streamed.is_some()
            && let Some(slot) = self.watched
        {
            self.note_took(now);
            slot.exclude_until(now);
        }
    }

    /// Waits for the client until this time. The watchdog does not count the wait as time of the handler.
    pub(super) fn wait_unseen(
        &self,
        until: Tick,
        wait: impl FnOnce(&Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(slot) = self.watched else { return wait(self) };
        let (begun, from) = (slot.begun(), self.wait.now());
        slot.exclude_until(until);
        let waited = wait(self);
        let now = self.wait.now();
        slot.exclude_until(if self.streamed.is_some() { now } else { begun.after(from.until(now)) });
        waited
    }
}
