//! Serves one connection on a thread with blocking calls: one system call to read, one to write, and poll(2) only if
//! the client is slow.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::event_loop::{IDLE_KEPT, LINGER_KEPT};
use super::thread_wait::{self, ThreadWait};
use super::threads::ThreadState;
use crate::conn::{Call, Conn, Flushed, Readiness, Step};
use crate::message::{Handler, WakeConn};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::stream::{is_timed_out, is_would_block};
use crate::transport::system::{self, GONE};

/// Maximum time that a read itself waits. A client that sends its next request within this time costs no poll(2). The
/// thread notices a stop after this time.
const READ_TIMEOUT: Duration = Duration::from_millis(5);

/// The result of serving the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Closed,
    /// The upgrade handler of the connection runs on this thread.
    Upgraded,
    /// A connection of HTTP/2 has many requests, and one of its requests waits: a loop serves both.
    ToLoop,
}

/// A thread with its connection.
pub(super) struct ConnThread<'a> {
    cx: &'a Context,
    handler: &'a dyn Handler,
    state: &'a mut ThreadState,
    /// Returns whether other connections wait for a thread or a slot.
    is_wanted: &'a dyn Fn() -> bool,
    /// Woken when the feed of the connection has data. Created for the first wait.
    waker: Option<Arc<PipeWaker>>,
    /// The time, read after each call and each wait. A write that does not block takes no time.
    now: Tick,
}

impl<'a> ConnThread<'a> {
    pub(super) fn new(
        cx: &'a Context,
        handler: &'a dyn Handler,
        state: &'a mut ThreadState,
        is_wanted: &'a dyn Fn() -> bool,
    ) -> ConnThread<'a> {
        ConnThread { cx, handler, state, is_wanted, waker: None, now: cx.clock.now() }
    }

    /// Serves the connection until it ends.
    pub(super) fn serve(&mut self, conn: &mut Conn) -> Outcome {
        loop {
            // The stage is read once, because the code below must not wait for a stage that has already begun.
            let stage = self.cx.stage();
            if stage == Stage::Closing {
                conn.cut_off();
                return Outcome::Closed;
            }
            let step = conn.step(self.now, self.cx);
            if conn.has_streams() {
                return Outcome::ToLoop;
            }
            let outcome = match step {
                Step::Call => self.call(conn),
                Step::Close => Some(Outcome::Closed),
                Step::Read => self.read(conn, stage),
                Step::Write => self.write(conn, stage),
                Step::Handshake => self.handshake(conn),
                Step::Stream => Some(Outcome::ToLoop),
                Step::Upgrade => Some(Outcome::Upgraded),
                Step::WaitFeed => self.wait_for_feed(conn, stage),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Serves one request of HTTP/2, until it ends or waits for something else than its handler.
    pub(super) fn serve_stream(&mut self, conn: &mut Conn) -> Outcome {
        loop {
            let outcome = match conn.step(self.now, self.cx) {
                Step::Call => self.call(conn),
                Step::Close => Some(Outcome::Closed),
                Step::Upgrade => Some(Outcome::Upgraded),
                Step::Write => match conn.flush(self.now) {
                    Ok(Flushed::All) => None,
                    Ok(_) => Some(Outcome::ToLoop),
                    Err(_) => Some(Outcome::Closed),
                },
                Step::Read | Step::WaitFeed | Step::Handshake | Step::Stream => Some(Outcome::ToLoop),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn call(&mut self, conn: &mut Conn) -> Option<Outcome> {
        if conn.owner.queued_since.is_some() {
            conn.drop_if_abandoned(self.now, self.cx);
            return None;
        }
        let wait = ThreadWait::new(self.cx);
        let ThreadState { dates, slot, .. } = &mut *self.state;
        self.now =
            conn.run(Call { cx: self.cx, now: self.now, handler: self.handler, wait: &wait, dates, slot });
        None
    }

    fn handshake(&mut self, conn: &mut Conn) -> Option<Outcome> {
        conn.advance_handshake(self.now, self.cx);
        self.refresh();
        None
    }

    /// The request of a new connection has often arrived already. Such a read need not wait, and sets no timeout.
    #[inline(always)]
    fn read(&mut self, conn: &mut Conn, stage: Stage) -> Option<Outcome> {
        let now = self.now;
        let drained = conn.is_drained(now, self.cx);
        let at_once = drained || conn.is_read_ready();
        // Constant input must not bypass a deadline. Without this check, only a wait without input checks the
        // deadline.
        if !at_once && now >= conn.deadline(self.cx) {
            conn.on_timeout(now, self.cx);
            return None;
        }
        let read = match at_once {
            true => conn.fill(now, &mut self.state.pool),
            false => conn.fill_timeout(READ_TIMEOUT, now, &mut self.state.pool),
        };
        self.refresh();
        match read {
            Ok(0) => conn.on_eof(),
            Ok(_) => {
                conn.note_progress(self.now);
                conn.owner.has_read = true;
            }
            Err(error) if !is_would_block(&error) => return Some(Outcome::Closed),
            // From here on, the thread waits for the client.
            Err(_) if conn.owner.queued_since.take().is_some() => {}
            // No request has arrived, so at shutdown such a connection ends at once.
            Err(_) if drained => return Some(Outcome::Closed),
            // The next read waits.
            Err(_) if at_once => {}
            Err(_) => return self.wait(conn, Readiness::Read, stage),
        }
        None
    }

    #[inline(always)]
    fn write(&mut self, conn: &mut Conn, stage: Stage) -> Option<Outcome> {
        match conn.flush(self.now) {
            Ok(Flushed::All | Flushed::BudgetSpent | Flushed::SlowFile) => None,
            Ok(Flushed::WouldBlock) if conn.passes_body() => {
                conn.owner.has_read = false;
                self.wait_for_feed(conn, stage)
            }
            Ok(Flushed::WouldBlock) => self.wait(conn, Readiness::Write, stage),
            Err(_) => Some(Outcome::Closed),
        }
    }

    /// Waits until the peer makes progress, its deadline passes, the server's next stage begins, or other connections
    /// must be checked.
    fn wait(&mut self, conn: &mut Conn, ready: Readiness, stage: Stage) -> Option<Outcome> {
        conn.release_buffers(&mut self.state.pool);
        let cx = self.cx;
        let deadline = conn.deadline(cx);
        let look = match conn.is_lingering() {
            true => Some(LINGER_KEPT),
            false => conn.is_idle().then_some(IDLE_KEPT),
        };
        let until = look.map_or(deadline, |look| deadline.min(self.now.after(look)));
        let waited = thread_wait::wait_in(cx, conn.as_fd(), ready, until, stage);
        self.refresh();
        match waited {
            Ok(()) => conn.note_ready(false),
            // A request may have arrived together with the stop.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => conn.note_ready(false),
            Err(error) if !is_timed_out(&error) => return Some(Outcome::Closed),
            Err(_) if self.now >= deadline => conn.on_timeout(self.now, cx),
            Err(_) if conn.is_lingering() && (self.is_wanted)() => return Some(Outcome::Closed),
            Err(_) if conn.is_idle_for(IDLE_KEPT, self.now) && (self.is_wanted)() => {
                conn.end_when_idle(self.now);
                // A request may have arrived since the last read. The connection is read once more, and then ends.
                conn.note_ready(false);
            }
            Err(_) => {}
        }
        None
    }

    /// Waits for the peer, or for a feed or response from other threads.
    fn wait_for_feed(&mut self, conn: &mut Conn, stage: Stage) -> Option<Outcome> {
        conn.release_buffers(&mut self.state.pool);
        let waker = match &self.waker {
            Some(waker) => waker.clone(),
            None => match PipeWaker::new() {
                Ok(waker) => self.waker.insert(waker).clone(),
                Err(error) => {
                    self.cx.warn_resources(format_args!(
                        "a connection was ended, there are no two descriptors for it to wait for its feed with: {error}"
                    ));
                    return Some(Outcome::Closed);
                }
            },
        };
        let wakes: Arc<dyn WakeConn> = waker.clone();
        let is_blocked = conn.awaits_output_space();
        let nothing = if is_blocked { conn.watch_cut(&wakes, 0) } else { conn.watch_feed(&wakes, 0) };
        if !nothing {
            return None;
        }
        let deadline = conn.deadline(self.cx);
        let until = if conn.is_lingering() { deadline.min(self.now.after(LINGER_KEPT)) } else { deadline };
        let waited = waker.wait(conn, self.now.until(until), self.cx.stage_fd(stage));
        self.refresh();
        match waited {
            Ok(None) if self.now >= deadline => conn.on_timeout(self.now, self.cx),
            Ok(None) if conn.is_lingering() && (self.is_wanted)() => return Some(Outcome::Closed),
            Ok(None) => {}
            Ok(Some(ended)) => conn.note_ready(ended),
            Err(_) => return Some(Outcome::Closed),
        }
        None
    }

    fn refresh(&mut self) {
        self.now = self.cx.clock.now();
    }
}

/// A pipe that ends a poll(2). A thread that sends to a feed writes to the pipe.
struct PipeWaker {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl PipeWaker {
    fn new() -> io::Result<Arc<PipeWaker>> {
        let (reader, writer) = system::pipe()?;
        Ok(Arc::new(PipeWaker { reader, writer }))
    }

    /// Returns when the connection has an event, the pipe was written to, `stop` is readable, or `timeout` has
    /// passed. An event of the connection is returned: whether the client has ended. While bytes of the client are not
    /// wanted, only its end counts: poll(2) reports unread bytes each time.
    fn wait(&self, conn: &Conn, timeout: Duration, stop: BorrowedFd<'_>) -> io::Result<Option<bool>> {
        let mut wanted = match conn.has_peer_ended() {
            // It would be reported each time. A reset is reported anyway.
            true => PollFlags::empty(),
            false if conn.is_read_ready() => GONE,
            false => GONE | PollFlags::IN,
        };
        if conn.has_unread_end() {
            wanted = PollFlags::empty();
        }
        if conn.awaits_output_space() {
            wanted |= PollFlags::OUT;
        }
        let socket = if conn.has_hung_up() { self.reader.as_fd() } else { conn.as_fd() };
        let mut fds = [
            PollFd::from_borrowed_fd(socket, wanted),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.reader, PollFlags::IN),
        ];
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The pipe is empty if another event ended the wait.
        let _ = rustix::io::read(&self.reader, &mut [0; 64]);
        let events = fds[0].revents();
        let ended = events.intersects(GONE | PollFlags::HUP | PollFlags::ERR);
        Ok((!events.is_empty()).then_some(ended))
    }
}

impl WakeConn for PipeWaker {
    fn wake(&self, _: usize) {
        // A full pipe wakes the thread as well.
        let _ = rustix::io::write(&self.writer, &[0]);
    }
}
