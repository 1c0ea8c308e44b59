//! How a thread serves one connection by blocking: one system call to read, one to write, and poll(2) only
//! where a client keeps it waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::crowd::{Crowd, Sample, Way};
use super::gate::Gate;
use super::lookout::{Lookout, OnTheLookout};
use super::shared_poller::SharedPoller;
use super::thread_wait::{self, ThreadWait};
use crate::conn::{Call, Conn, Flushed, Step, Wait};
use crate::message::{Handler, Wakes};
use crate::transport::context::{Context, Stage};
use crate::transport::stream::{is_timed_out, is_would_block};
use crate::transport::system::{self, GONE};
use crate::transport::{DateCache, Pool, Post, Tick};

/// How long a read itself waits. A client that asks again at once is answered within it, and costs no
/// `poll(2)`; a server that stops is noticed after it.
const READ_TIMEOUT: Duration = Duration::from_millis(5);

/// A client that asks faster than it is answered has the thread for so long, where others wait for one.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// The [crowd](Crowd) is told of one in so many requests of a thread.
const SAMPLED: u8 = 16;

/// What a thread has of its own.
pub(super) struct Hand {
    pub(super) dates: DateCache,
    pub(super) pool: Pool,
    post: Arc<Post>,
    /// How often it has read on behind an answer, for samples of that.
    reads: u8,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is over.
    Over,
    /// Its client keeps the thread for longer than it may.
    Park,
    /// It waits for its next request, and has not looked yet whether that is there.
    Rest,
    /// Another protocol has it from now on, on this thread.
    TakeOver,
}

/// One thread with its connection.
pub(super) struct ConnThread<'a> {
    cx: &'a Context,
    handler: &'a dyn Handler,
    hand: &'a mut Hand,
    patience: &'a dyn Fn(&Conn, Stage) -> Option<Duration>,
    gate: &'a Gate,
    /// Where the connection may [rest](Fate::Rest) between requests, while the server runs. It leaves for a call whose
    /// body is on its way: each packet would wake another thread there. For 200 MB, 8,500 switches of threads and not 2,100.
    pub(super) members: Option<&'a SharedPoller>,
    /// Of the threads of the engine, where each has one connection and reads on behind its answer.
    pub(super) crowd: Option<&'a Crowd>,
    /// Where nobody is at the door of the thread meanwhile.
    pub(super) lookout: Option<&'a Lookout<'a>>,
    /// Rung when the connection's feed has something. Made when it is first waited for.
    bell: Option<Arc<PipeWaker>>,
    /// When the thread took the connection up.
    begun: Tick,
    /// What the last call took, until it is read on behind its answer.
    call: Option<Duration>,
    /// Read after whatever takes time: a call, a wait. A write that does not block takes none.
    now: Tick,
}

impl Hand {
    pub(super) fn new(cx: &Context) -> Hand {
        Hand {
            dates: DateCache::new(cx.clock.now()),
            pool: Pool::of_thread(&cx.surplus),
            post: cx.watchdog.post(),
            reads: 0,
        }
    }
}

impl<'a> ConnThread<'a> {
    /// `patience` says how long the thread may be kept waiting just now by this connection, beyond [`READ_TIMEOUT`];
    /// none: until the client's deadline.
    pub(super) fn new(
        cx: &'a Context,
        handler: &'a dyn Handler,
        hand: &'a mut Hand,
        patience: &'a dyn Fn(&Conn, Stage) -> Option<Duration>,
        gate: &'a Gate,
    ) -> ConnThread<'a> {
        let now = cx.clock.now();
        let (members, crowd, lookout, bell, call) = (None, None, None, None, None);
        ConnThread { cx, handler, hand, patience, gate, members, crowd, lookout, bell, begun: now, call, now }
    }

    /// The time at the last look.
    pub(super) fn now(&self) -> Tick {
        self.now
    }

    /// Serves the connection until it ends, or has to be parked.
    pub(super) fn serve(&mut self, conn: &mut Conn) -> Fate {
        loop {
            // Asked once: what follows must not wait for a stage that has begun meanwhile.
            let stage = self.cx.stage();
            if stage == Stage::Closing {
                return Fate::Over;
            }
            if let Some(lookout) = self.lookout {
                lookout.look_if_due(self.now);
            }
            let fate = match conn.step(self.now, self.cx) {
                Step::Call if self.has_had_its_turn(conn, stage) => match conn.flush(self.now) {
                    Ok(_) => Some(Fate::Park),
                    Err(_) => Some(Fate::Over),
                },
                // It may go on for as long as its client sends, or takes.
                Step::Read if !conn.is_idle() && self.has_had_its_turn(conn, stage) => Some(Fate::Park),
                Step::Write if conn.is_fed() && self.has_had_its_turn(conn, stage) => Some(Fate::Park),
                Step::Call => self.call(conn),
                Step::Close => Some(Fate::Over),
                Step::Read => self.read(conn, stage),
                Step::Write => self.write(conn, stage),
                Step::Takeover => Some(Fate::TakeOver),
                Step::Wait => self.wait_for_feed(conn, stage),
            };
            if let Some(fate) = fate {
                return fate;
            }
        }
    }

    fn has_had_its_turn(&self, conn: &Conn, stage: Stage) -> bool {
        self.now >= self.begun.after(TURN)
            && (self.patience)(conn, stage).is_some_and(|patience| patience.is_zero())
    }

    fn call(&mut self, conn: &mut Conn) -> Option<Fate> {
        if conn.queued_since.is_some() {
            conn.forsake_if_vain(self.now, self.cx);
            return None;
        }
        if self.gate.pass() {
            self.refresh();
        }
        if !conn.is_request_here() {
            self.leave_members(conn);
        }
        let here = ThreadWait::new(self.cx);
        let begun = self.now;
        self.now = match self.lookout {
            None => self.run(conn, &here),
            Some(lookout) => self.run(conn, &OnTheLookout { here, lookout }),
        };
        self.call = Some(begun.until(self.now));
        None
    }

    #[inline(always)]
    fn run(&mut self, conn: &mut Conn, wait: &impl Wait) -> Tick {
        let Hand { dates, post, .. } = &mut *self.hand;
        conn.run(Call { cx: self.cx, now: self.now, handler: self.handler, wait, dates, post })
    }

    /// A new connection often brings its request along: that read need not wait, and sets no timeout.
    #[inline(always)]
    fn read(&mut self, conn: &mut Conn, stage: Stage) -> Option<Fate> {
        let now = self.now;
        let drained = conn.is_drained(now, self.cx);
        let at_once = drained || conn.is_readable();
        let may_rest = self.members.is_some() && stage == Stage::Running;
        if may_rest && !at_once && conn.is_idle() && !conn.is_unused() {
            return Some(Fate::Rest);
        }
        // Bytes that keep coming must not outrun a deadline: only a wait in vain looks at it otherwise.
        if !at_once && now >= conn.deadline(self.cx) {
            conn.expire(now, self.cx);
            return None;
        }
        let read = match self.crowd {
            _ if at_once => conn.fill(now, &mut self.hand.pool),
            Some(crowd) if conn.is_idle() && !conn.is_unused() => self.fill_with_next(conn, crowd),
            _ => conn.fill_for(READ_TIMEOUT, now, &mut self.hand.pool),
        };
        self.refresh();
        match read {
            Ok(0) => conn.end_of_input(),
            Ok(_) => conn.came_by(self.now),
            Err(error) if !is_would_block(&error) => return Some(Fate::Over),
            // From here on it is the client that is waited for.
            Err(_) if conn.queued_since.take().is_some() => {}
            // Nothing is on its way: at shutdown such a connection ends at once.
            Err(_) if drained => return Some(Fate::Over),
            // The next read is the one that waits.
            Err(_) if at_once => {}
            Err(_) => return self.wait(conn, PollFlags::IN, stage),
        }
        None
    }

    /// The request behind an answer, before which others may run.
    #[inline(always)]
    fn fill_with_next(&mut self, conn: &mut Conn, crowd: &Crowd) -> io::Result<usize> {
        // Whoever has looked once and found nothing waits for its client, not for its core.
        let Some(call) = self.call.take() else {
            return conn.fill_for(READ_TIMEOUT, self.now, &mut self.hand.pool);
        };
        let yields = crowd.is_here();
        let mut read = Err(io::ErrorKind::WouldBlock.into());
        if yields {
            thread::yield_now();
            read = conn.fill(self.now, &mut self.hand.pool);
        }
        let is_here = !is_not_here(&read);
        if !is_here {
            read = conn.fill_for(READ_TIMEOUT, self.now, &mut self.hand.pool);
        }
        self.hand.reads = self.hand.reads.wrapping_add(1);
        if self.hand.reads.is_multiple_of(SAMPLED) {
            let way = match yields {
                true if is_here => Way::Yielded,
                true => Way::InVain,
                false if is_not_here(&read) => return read,
                false => Way::Slept,
            };
            let begun = self.now;
            self.refresh();
            crowd.note(Sample { call, wait: begun.until(self.now), way }, self.now);
        }
        read
    }

    #[inline(always)]
    fn write(&mut self, conn: &mut Conn, stage: Stage) -> Option<Fate> {
        match conn.flush(self.now) {
            Ok(Flushed::All | Flushed::Enough) => None,
            Ok(Flushed::Blocked) => self.wait(conn, PollFlags::OUT, stage),
            Err(_) => Some(Fate::Over),
        }
    }

    /// Waits for the peer: until it gets on, its deadline, the server's next stage, or the end of our patience.
    fn wait(&mut self, conn: &mut Conn, event: PollFlags, stage: Stage) -> Option<Fate> {
        conn.rest(&mut self.hand.pool);
        let cx = self.cx;
        let deadline = conn.deadline(cx);
        let patience = (self.patience)(conn, stage);
        let until = patience.map_or(deadline, |patience| deadline.min(self.now.after(patience)));
        let until = self.lookout.map_or(until, |lookout| until.min(lookout.due()));
        let waited = thread_wait::poll_until(cx, conn.as_fd(), event, until, cx.moved_on_from(stage));
        self.refresh();
        match waited {
            Ok(()) => conn.note_ready(false),
            // A request may have come together with the stop.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => conn.note_ready(false),
            Err(error) if !is_timed_out(&error) => return Some(Fate::Over),
            Err(_) if self.now >= deadline => conn.expire(self.now, cx),
            // It is time to look, and not more.
            Err(_) if patience.is_none() => {}
            Err(_) => return Some(Fate::Park),
        }
        None
    }

    /// Waits for the peer, or for the feed or response that others bring: with the poller where there is one, else on this
    /// thread; and there, too, if the response is due as soon as a read would give up.
    fn wait_for_feed(&mut self, conn: &mut Conn, stage: Stage) -> Option<Fate> {
        let is_soon = conn.response_due().is_some_and(|due| self.now.until(due) <= READ_TIMEOUT);
        if (self.patience)(conn, stage).is_some_and(|patience| patience.is_zero() || !is_soon) {
            return Some(Fate::Park);
        }
        conn.rest(&mut self.hand.pool);
        let bell = match &self.bell {
            Some(bell) => bell.clone(),
            None => match PipeWaker::new() {
                Ok(bell) => self.bell.insert(bell).clone(),
                // With the poller it needs none.
                Err(_) if (self.patience)(conn, stage).is_some() => return Some(Fate::Park),
                Err(error) => {
                    self.cx.warn_of_want(format_args!(
                        "a connection was ended, there are no two descriptors for it to wait for its feed with: {error}"
                    ));
                    return Some(Fate::Over);
                }
            },
        };
        let wakes: Arc<dyn Wakes> = bell.clone();
        if !conn.watch_feed(&wakes, 0) {
            return None;
        }
        let deadline = conn.deadline(self.cx);
        let until = self.lookout.map_or(deadline, |lookout| deadline.min(lookout.due()));
        let waited = bell.wait(conn, self.now.until(until), self.cx.moved_on_from(stage));
        self.refresh();
        match waited {
            Ok(Woken::Nothing) if self.now >= deadline => conn.expire(self.now, self.cx),
            Ok(Woken::Nothing) => {}
            Ok(Woken::Peer { ended }) => conn.note_ready(ended),
            Err(_) => return Some(Fate::Over),
        }
        None
    }

    #[cold]
    fn leave_members(&self, conn: &mut Conn) {
        if let Some(members) = self.members {
            members.leave(conn);
        }
    }

    fn refresh(&mut self) {
        self.now = self.cx.clock.now();
    }
}

fn is_not_here(read: &io::Result<usize>) -> bool {
    matches!(read, Err(error) if is_would_block(error))
}

/// What ended the wait for a feed, as far as the connection is concerned.
enum Woken {
    Nothing,
    Peer { ended: bool },
}

/// A pipe that whoever brings something to a feed writes to, so that poll(2) sees it.
struct PipeWaker {
    heard: OwnedFd,
    rung: OwnedFd,
}

impl PipeWaker {
    fn new() -> io::Result<Arc<PipeWaker>> {
        let (heard, rung) = system::pipe()?;
        Ok(Arc::new(PipeWaker { heard, rung }))
    }

    /// Returns when the connection has something to say, the bell has rung, `stop` is given, or `patience` has passed.
    /// While what the client sends is not wanted, only its end counts: to poll(2) unread bytes are news each time.
    fn wait(&self, conn: &Conn, patience: Duration, stop: BorrowedFd<'_>) -> io::Result<Woken> {
        let wanted = if conn.is_readable() { GONE } else { GONE | PollFlags::IN };
        let mut fds = [
            PollFd::from_borrowed_fd(conn.as_fd(), wanted),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.heard, PollFlags::IN),
        ];
        match poll(&mut fds, Timespec::try_from(patience).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Empty when it was something else that ended the wait.
        let _ = rustix::io::read(&self.heard, &mut [0; 64]);
        let events = fds[0].revents();
        let ended = events.intersects(GONE | PollFlags::HUP | PollFlags::ERR);
        Ok(if events.is_empty() { Woken::Nothing } else { Woken::Peer { ended } })
    }
}

impl Wakes for PipeWaker {
    fn wake(&self, _: usize) {
        // A pipe that is full has been rung.
        let _ = rustix::io::write(&self.rung, &[0]);
    }
}
