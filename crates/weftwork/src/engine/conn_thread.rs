//! A thread that serves one connection by blocking: one system call to read, one to write, and poll(2) only if the client
//! keeps the thread waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::event_loop::IDLE_KEPT;
use super::thread_wait::{self, ThreadWait};
use super::threads::ThreadState;
use crate::conn::{Call, Conn, Flushed, Step};
use crate::message::{Handler, WakeConn};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::stream::{is_timed_out, is_would_block};
use crate::transport::system::{self, GONE};

/// How long a read itself waits. A client that asks again at once is answered within it and costs no poll(2). A server that
/// stops is noticed after it.
const READ_TIMEOUT: Duration = Duration::from_millis(5);
/// Time between two looks whether other connections wait, while this one only ends: its client still sends.
const LINGER_LOOK: Duration = Duration::from_millis(50);

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Closed,
    /// Its upgrade handler runs on this thread.
    Upgraded,
}

/// One thread with its connection.
pub(super) struct ConnThread<'a> {
    cx: &'a Context,
    handler: &'a dyn Handler,
    state: &'a mut ThreadState,
    /// Returns whether other connections wait for a thread or a slot.
    is_wanted: &'a dyn Fn() -> bool,
    /// Woken when the feed of the connection has something. Made when it is first waited for.
    waker: Option<Arc<PipeWaker>>,
    /// Read after whatever takes time: a call, a wait. A write that does not block takes none.
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
            // Read once: what follows must not wait for a stage that has begun meanwhile.
            let stage = self.cx.stage();
            if stage == Stage::Closing {
                conn.cut_off();
                return Outcome::Closed;
            }
            let outcome = match conn.step(self.now, self.cx) {
                Step::Call => self.call(conn),
                Step::Close => Some(Outcome::Closed),
                Step::Read => self.read(conn, stage),
                Step::Write => self.write(conn, stage),
                Step::Upgrade => Some(Outcome::Upgraded),
                Step::WaitFeed => self.wait_for_feed(conn, stage),
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

    /// A new connection often brings its request along: that read need not wait, and sets no timeout.
    #[inline(always)]
    fn read(&mut self, conn: &mut Conn, stage: Stage) -> Option<Outcome> {
        let now = self.now;
        let drained = conn.is_drained(now, self.cx);
        let at_once = drained || conn.is_read_ready();
        // Bytes that keep coming must not outrun a deadline: only a wait without bytes looks at it otherwise.
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
            Ok(_) => conn.note_progress(self.now),
            Err(error) if !is_would_block(&error) => return Some(Outcome::Closed),
            // From here on it is the client that is waited for.
            Err(_) if conn.owner.queued_since.take().is_some() => {}
            // Nothing is on its way: at shutdown such a connection ends at once.
            Err(_) if drained => return Some(Outcome::Closed),
            // The next read is the one that waits.
            Err(_) if at_once => {}
            Err(_) => return self.wait(conn, PollFlags::IN, stage),
        }
        None
    }

    #[inline(always)]
    fn write(&mut self, conn: &mut Conn, stage: Stage) -> Option<Outcome> {
        match conn.flush(self.now) {
            Ok(Flushed::All | Flushed::BudgetSpent) => None,
            Ok(Flushed::WouldBlock) => self.wait(conn, PollFlags::OUT, stage),
            Err(_) => Some(Outcome::Closed),
        }
    }

    /// Waits for the peer: until it gets on, its deadline, the server's next stage, or the next look at who else waits.
    fn wait(&mut self, conn: &mut Conn, event: PollFlags, stage: Stage) -> Option<Outcome> {
        conn.release_buffers(&mut self.state.pool);
        let cx = self.cx;
        let deadline = conn.deadline(cx);
        let look = match conn.is_lingering() {
            true => Some(LINGER_LOOK),
            false => conn.is_idle().then_some(IDLE_KEPT),
        };
        let until = look.map_or(deadline, |look| deadline.min(self.now.after(look)));
        let waited = thread_wait::poll_until(cx, conn.as_fd(), event, until, cx.stage_fd(stage));
        self.refresh();
        match waited {
            Ok(()) => conn.note_ready(false),
            // A request may have come together with the stop.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => conn.note_ready(false),
            Err(error) if !is_timed_out(&error) => return Some(Outcome::Closed),
            Err(_) if self.now >= deadline => conn.on_timeout(self.now, cx),
            Err(_) if conn.is_lingering() && (self.is_wanted)() => return Some(Outcome::Closed),
            Err(_) if conn.is_idle_for(IDLE_KEPT, self.now) && (self.is_wanted)() => {
                conn.end_when_idle(self.now);
                // A request may have come since the last look: there is one more, and then the connection ends.
                conn.note_ready(false);
            }
            Err(_) => {}
        }
        None
    }

    /// Waits for the peer, or for the feed or response that other threads bring.
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
        if !conn.watch_feed(&wakes, 0) {
            return None;
        }
        let deadline = conn.deadline(self.cx);
        let waited = waker.wait(conn, self.now.until(deadline), self.cx.stage_fd(stage));
        self.refresh();
        match waited {
            Ok(None) if self.now >= deadline => conn.on_timeout(self.now, self.cx),
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

/// A pipe. A thread that brings something to a feed writes to it, so that poll(2) sees it.
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
        let wanted = match conn.has_peer_ended() {
            // It would be reported each time. A reset is reported anyway.
            true => PollFlags::empty(),
            false if conn.is_read_ready() => GONE,
            false => GONE | PollFlags::IN,
        };
        let mut fds = [
            PollFd::from_borrowed_fd(conn.as_fd(), wanted),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.reader, PollFlags::IN),
        ];
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The pipe is empty if something else ended the wait.
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
