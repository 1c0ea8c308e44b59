//! A thread without a loop: it answers one connection by itself, and stays with it while its calls block.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Hand, Shared};
use crate::conn::{Call, Conn, Flushed, Registered, Step, Wait};
use crate::engine::errand::Errand;
use crate::engine::habits::QUICK;
use crate::engine::hub::Letter;
use crate::engine::patience::{OnAnyThread, OnThisThread};
use crate::message::Blocking;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::stream::is_would_block;

/// How long a thread waits for the next request of a connection whose last one blocked. Long enough for a
/// client that asks again at once, also when 400 of them share a core and a round takes 8 ms: 20 ms answered
/// 7 % more of them than 5 ms did, 50 ms no more. An idle client costs a thread no more than that.
const STICKY: Duration = Duration::from_millis(20);

/// A request that has waited for a thread for this long may have lost its client: worth a system call.
const LONG: Duration = Duration::from_millis(20);

/// What becomes of the connection.
enum Fate {
    /// Its loop takes care of it.
    Home,
    /// It is over.
    Over,
    /// It is over, and its last call blocked.
    Spent,
    /// Another protocol has it from now on, on this thread.
    TakeOver,
}

impl Shared {
    /// Serves a connection until it ends, or is better off with its loop. While they end and their calls block, the next
    /// one at the door after it.
    pub(super) fn serve_away(self: &Arc<Shared>, mut conn: Box<Conn>, hand: &mut Hand) {
        loop {
            match self.stay_with(&mut conn, hand) {
                Fate::Home => return self.hub.post(conn.home as usize, Letter::Home(conn)),
                Fate::Over => return conn.reclaim(&mut hand.pool),
                Fate::TakeOver => return conn.take_over(&self.cx, Arc::new(OnAnyThread(self.cx.clone()))),
                Fate::Spent => {
                    let home = conn.home;
                    conn.reclaim(&mut hand.pool);
                    let Some(next) = self.next_at_door() else { return };
                    (conn, conn.home) = (next, home);
                }
            }
        }
    }

    /// Whoever waits at the door would wake a loop, whose leader would wake a thread for the call. This one is awake: with 100
    /// connections of one call of 1 ms each, it answers 1.32 of the requests/s.
    fn next_at_door(&self) -> Option<Box<Conn>> {
        let others_wait = self.standby.has_queue() || self.crowd.is_gathered();
        if others_wait || self.cx.stage() != Stage::Running {
            return None;
        }
        self.listeners.accept(self.cx.clock.now(), &self.cx)
    }

    /// Answers a connection that keeps its place in its loop, and brings it back.
    pub(super) fn answer(self: &Arc<Shared>, mut errand: Errand, since: Tick, hand: &mut Hand) {
        let now = self.cx.clock.now();
        if since.until(now) >= LONG {
            errand.conn.forsake_if_vain(now, &self.cx);
        }
        match errand.with_conn(&self.hub, |conn| self.stay_with(conn, hand)) {
            Fate::Home => self.hub.post(errand.conn.home as usize, Letter::Back(errand.conn)),
            Fate::Over | Fate::Spent => errand.part(&self.hub).reclaim(&mut hand.pool),
            Fate::TakeOver => {
                errand.part(&self.hub).take_over(&self.cx, Arc::new(OnAnyThread(self.cx.clone())));
            }
        }
    }

    fn stay_with(self: &Arc<Shared>, conn: &mut Conn, hand: &mut Hand) -> Fate {
        // Whether the last call of this stay did.
        let mut blocked = None;
        // The clock is read after each wait and each call, and not in between.
        let mut at = Instant::now();
        let mut now = self.cx.clock.at(at);
        loop {
            if self.cx.stage() == Stage::Closing {
                return Fate::Over;
            }
            match conn.step(now, &self.cx) {
                Step::Call => {
                    let begun = at;
                    let habit = self.habit(conn, blocked);
                    (now, at) = self.call_away(conn, now, hand);
                    blocked = Some(at - begun >= QUICK);
                    self.crowd.note_call();
                    if let Blocking::Learn { route } = habit {
                        self.habits.saw(route, at - begun);
                    }
                }
                Step::Close if blocked == Some(true) => return Fate::Spent,
                Step::Close => return Fate::Over,
                Step::Takeover => return Fate::TakeOver,
                Step::Wait => return Fate::Home,
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All) => {}
                    Ok(Flushed::Blocked | Flushed::Enough) => return Fate::Home,
                    Err(_) => return Fate::Over,
                },
                Step::Read if !self.may_stay(conn, blocked) => return Fate::Home,
                Step::Read => {
                    // Who came in at the door and has not asked yet is waited for by the loop.
                    let read = match conn.is_unused() {
                        true => conn.fill(now, &mut hand.pool),
                        false => conn.fill_for(STICKY, now, &mut hand.pool),
                    };
                    at = Instant::now();
                    now = self.cx.clock.at(at);
                    match read {
                        Ok(0) => conn.end_of_input(),
                        Ok(_) => {}
                        Err(error) if is_would_block(&error) => return Fate::Home,
                        Err(_) => return Fate::Over,
                    }
                }
            }
        }
    }

    /// Whether to wait for this client, for a moment.
    fn may_stay(&self, conn: &Conn, blocked: Option<bool>) -> bool {
        blocked != Some(false)
            // A head that has begun has a deadline, which its loop keeps.
            && conn.is_idle()
            && self.cx.stage() == Stage::Running
            // Its loop would hear of each request, too.
            && conn.registered == Registered::Not
            && !self.standby.has_queue()
            && !self.crowd.is_gathered()
    }

    /// What is to be learned from the next call. Nothing once a call of this stay has blocked: the others are mostly the
    /// same, and to look up their route takes 100 instructions of 2,500.
    fn habit(&self, conn: &Conn, blocked: Option<bool>) -> Blocking {
        if blocked == Some(true) { Blocking::Always } else { self.handler.blocking(&conn.asked()) }
    }

    /// Calls the handler. When that had ended, as a tick and exactly.
    fn call_away(&self, conn: &mut Conn, now: Tick, hand: &mut Hand) -> (Tick, Instant) {
        let wait = Away { shared: self, here: OnThisThread::new(&self.cx) };
        let Hand { dates, post, .. } = hand;
        let call = Call { cx: &self.cx, now, handler: &*self.handler, wait: &wait, dates, post };
        (conn.run(call), wait.here.last_look())
    }
}

/// How a handler waits on a thread without a loop: not while a loop is without a thread.
struct Away<'a> {
    shared: &'a Shared,
    here: OnThisThread<'a>,
}

impl Wait for Away<'_> {
    fn now(&self) -> Tick {
        self.here.now()
    }

    fn readable_in(&self, fd: BorrowedFd<'_>, until: Tick, stage: Stage) -> io::Result<()> {
        self.shared.may_wait()?;
        self.here.readable_in(fd, until, stage)
    }

    fn writable(&self, fd: BorrowedFd<'_>, until: Tick) -> io::Result<()> {
        self.shared.may_wait()?;
        self.here.writable(fd, until)
    }
}
