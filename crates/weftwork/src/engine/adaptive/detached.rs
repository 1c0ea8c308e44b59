//! A thread without a loop: it answers one connection by itself, and then others whose calls block.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::blocking_set::NextConn;
use super::{Hand, Job, Shared};
use crate::conn::{Call, Conn, Flushed, Readiness, Registered, Step, Wait};
use crate::engine::conn_thread::TURN;
use crate::engine::loops::LoopMessage;
use crate::engine::predictor::QUICK;
use crate::engine::shared_poller::AddResult;
use crate::engine::thread_wait::{OwnedThreadWait, ThreadWait};
use crate::message::Blocking;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::counters::Counters;
use crate::transport::stream::is_would_block;

/// How long a thread waits for the next request of a connection whose last one blocked, where that is not for the set. Long
/// enough for a client that asks again at once, also when 400 of them share a core and a round takes 8 ms.
const STICKY: Duration = Duration::from_millis(20);

/// What becomes of the connection.
enum Fate {
    /// Its loop takes care of it.
    Home,
    /// It waits for its next request in the set, from now on.
    BlockingSet(Tick),
    /// It is over.
    Over,
    /// It is over, and its last call blocked.
    Spent,
    /// Another protocol has it from now on, on this thread.
    TakeOver,
}

/// A connection to serve, and whether its last call blocked, if that is known.
type Guest = (Box<Conn>, Option<bool>);

impl Shared {
    /// Serves a connection until it ends, or is better off with its loop. While calls block, others after it: whoever of
    /// those that block asks first, and who comes in at the door.
    pub(super) fn serve_away(self: &Arc<Shared>, conn: Box<Conn>, hand: &mut Hand) {
        self.serve_all((conn, None), hand);
    }

    /// Waits in the set for whoever asks.
    pub(super) fn attend(self: &Arc<Shared>, hand: &mut Hand) {
        if let Some(guest) = self.next_in_commons(true) {
            self.serve_all(guest, hand);
        }
    }

    fn serve_all(self: &Arc<Shared>, guest: Guest, hand: &mut Hand) {
        let mut next = Some(guest);
        while let Some(guest) = next {
            next = self.serve(guest, hand);
        }
    }

    /// Serves one, and says who is next.
    fn serve(self: &Arc<Shared>, (conn, blocked): Guest, hand: &mut Hand) -> Option<Guest> {
        let home = conn.home;
        let was_member = conn.registered == Registered::Shared;
        let absent = self.set.absent(&conn);
        // A panic closes it before its place is free for another.
        let mut conn = conn;
        let fate = self.stay_with(&mut conn, blocked, hand);
        std::mem::forget(absent);
        let goes_on =
            was_member || matches!(fate, Fate::BlockingSet(_) | Fate::Spent) || self.set.has_asking();
        match fate {
            Fate::Home => {
                self.set.leave(&mut conn);
                conn.is_placed = false;
                self.loops.send(home as usize, LoopMessage::Adopt(conn));
            }
            Fate::BlockingSet(now) => {
                conn.rest(&mut hand.pool);
                if let Some(conn) = self.set.put(conn, now) {
                    return Some((conn, Some(true)));
                }
            }
            Fate::Over | Fate::Spent => {
                conn.reclaim(&mut hand.pool);
                self.set.close(conn);
                if matches!(fate, Fate::Spent)
                    && !self.set.has_asking()
                    && let Some(guest) = self.next_at_door(home)
                {
                    return Some(guest);
                }
            }
            Fate::TakeOver => {
                self.set.leave(&mut conn);
                conn.take_over(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), || {
                    self.standby.has_queue()
                });
            }
        }
        if goes_on { self.next_in_commons(false) } else { None }
    }

    /// Whoever waits at the door would wake a loop, whose leader would wake a thread for the call. This one is awake: with 100
    /// connections of one call of 1 ms each, it answers 1.32 of the requests/s.
    pub(super) fn next_at_door(&self, home: u32) -> Option<Guest> {
        if !self.may_go_on() {
            return None;
        }
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let conn = self.listeners.accept(self.cx.clock.now(), &self.cx);
        if !self.loops.is_accepting() && self.listeners.has_anybody() {
            // Not always the same loop, whose leader may be in a call.
            self.loops.send(look as usize % self.cells.len(), LoopMessage::Accept);
        }
        let mut conn = conn?;
        conn.home = home;
        Some((conn, None))
    }

    /// Who is next in the set. Where this thread was waited for, or called, and nobody waits there any more, another is
    /// called: else whoever asks next would wait for a call to end.
    fn next_in_commons(self: &Arc<Shared>, is_called: bool) -> Option<Guest> {
        let news = self.set.next(|| self.may_go_on());
        if self.cx.stage() != Stage::Running {
            // It may have begun behind the watcher's last look.
            self.send_members_home(Duration::ZERO);
        }
        let NextConn { conn, was_waited_for } = news?;
        let absent = self.set.absent(&conn);
        // Closed before its place is free, should the log panic meanwhile.
        let mut conn = conn;
        let is_member = conn.registered == Registered::Shared;
        if !is_member {
            Counters::count(&self.cx.counters.queued);
            conn.forsake_if_vain(self.cx.clock.now(), &self.cx);
            if self.set.has_asking() {
                // Two rings may be one event.
                self.set.call_one();
            }
        }
        let was_last = (was_waited_for || is_called) && !self.set.is_waited_at();
        let is_missed = was_last && self.set.has_anybody();
        if is_missed && !self.set.is_served_soon.load(Ordering::Relaxed) {
            // Where there may be none, the watcher finds that out.
            let _ = self.give(Job::Attend);
        }
        std::mem::forget(absent);
        Some((conn, is_member.then_some(true)))
    }

    /// Threads may wait for others than the connection they were called for.
    pub(super) fn may_go_on(&self) -> bool {
        !self.standby.has_queue() && self.cx.stage() == Stage::Running
    }

    /// The loops have the members that have been quiet for so long, and are not out.
    pub(super) fn send_members_home(&self, quiet: Duration) {
        let to_loop = |mut conn: Box<Conn>| {
            // Its loop has not counted it, nor those that left it meanwhile.
            conn.is_placed = false;
            self.loops.send(conn.home as usize, LoopMessage::Adopt(conn));
        };
        self.set.send_away(quiet, self.cx.clock.now(), to_loop);
        if quiet.is_zero() {
            self.set.take_asking().into_iter().for_each(to_loop);
        }
    }

    /// `blocked`: whether its last call did.
    fn stay_with(self: &Arc<Shared>, conn: &mut Conn, mut blocked: Option<bool>, hand: &mut Hand) -> Fate {
        // The clock is read after each wait and each call, and not in between.
        let mut at = Instant::now();
        let mut now = self.cx.clock.at(at);
        let came = now;
        let mut was_long = false;
        let mut has_called = false;
        loop {
            if self.cx.stage() == Stage::Closing {
                return Fate::Over;
            }
            match conn.step(now, &self.cx) {
                Step::Call if self.is_wanted(now >= came.after(TURN)) => {
                    return if conn.flush(now).is_ok() { Fate::Home } else { Fate::Over };
                }
                Step::Call => {
                    let begun = at;
                    was_long = !conn.is_request_here();
                    let habit = self.habit(conn, blocked);
                    let is_back = !std::mem::replace(&mut has_called, true);
                    (now, at) = self.call_away(conn, now, is_back, hand);
                    blocked = Some(at - begun >= QUICK);
                    if let Blocking::Learn { route } = habit {
                        self.predictor.record(route, at - begun);
                    }
                }
                Step::Close if blocked == Some(true) => return Fate::Spent,
                Step::Close => return Fate::Over,
                Step::Takeover if self.is_wanted(false) => return Fate::Home,
                Step::Takeover => return Fate::TakeOver,
                Step::Wait => return Fate::Home,
                // It may go on for as long as its client sends, or takes.
                Step::Read | Step::Write if conn.is_fed() => {
                    return if conn.flush(now).is_ok() { Fate::Home } else { Fate::Over };
                }
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All) => {}
                    Ok(Flushed::Blocked | Flushed::Enough) => return Fate::Home,
                    Err(_) => return Fate::Over,
                },
                // From the set, or from the door: there it is seldom looked for in vain.
                Step::Read if conn.is_readable() => match conn.fill(now, &mut hand.pool) {
                    Ok(0) => conn.end_of_input(),
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => {}
                    Err(_) => return Fate::Over,
                },
                Step::Read if !self.may_stay(conn, blocked) => return Fate::Home,
                Step::Read => {
                    if !(was_long && self.may_wait_alone())
                        && let Some(fate) = self.join_commons(conn, now)
                    {
                        return fate;
                    }
                    let read = conn.fill_for(STICKY, now, &mut hand.pool);
                    at = Instant::now();
                    now = self.cx.clock.at(at);
                    match read {
                        Ok(0) => conn.end_of_input(),
                        Ok(_) => conn.came_by(now),
                        Err(error) if is_would_block(&error) => return Fate::Home,
                        Err(_) => return Fate::Over,
                    }
                }
            }
        }
    }

    /// Whether this thread may wait for its connection's next request, behind one that was longer than what had come of it when it
    /// was called. Nobody can call it meanwhile, so another is to be had, and none is asked for.
    ///
    /// In the set such a connection leaves for each call (below), and comes back. An echo of 1 MiB took 212 us of CPU so,
    /// and 201 where its thread stays (cores far apart; 139.5 and 137.5 near), with a p99 of 26 ms in some runs, and 2.6.
    fn may_wait_alone(&self) -> bool {
        self.standby.has_thread() && !self.set.has_asking()
    }

    /// Its next request is waited for there, if it has a place. None: there is no such thing here.
    fn join_commons(&self, conn: &mut Conn, now: Tick) -> Option<Fate> {
        match self.set.join(conn) {
            AddResult::Added { is_first } => {
                if is_first {
                    self.loops.watch.wake_if_asleep();
                }
                Some(Fate::BlockingSet(now))
            }
            AddResult::Full => Some(Fate::Home),
            AddResult::Unsupported => None,
        }
    }

    /// Others need this thread more than a connection that `has_had_its_turn`; and a loop without a thread more than any.
    fn is_wanted(&self, has_had_its_turn: bool) -> bool {
        self.standby.has_queue() && (has_had_its_turn || self.may_wait().is_err())
            || has_had_its_turn && self.set.is_short()
    }

    /// Whether its next request is to be waited for away from its loop.
    fn may_stay(&self, conn: &Conn, blocked: Option<bool>) -> bool {
        blocked != Some(false)
            // A head that has begun has a deadline, which its loop keeps; so does one that was never begun.
            && conn.is_idle()
            && !conn.is_unused()
            && self.may_go_on()
    }

    /// What is to be learned from the next call. Nothing once a call of this stay has blocked: the others are mostly the
    /// same, and to look up their route takes 100 instructions of 2,500.
    fn habit(&self, conn: &Conn, blocked: Option<bool>) -> Blocking {
        if blocked == Some(true) { Blocking::Always } else { self.handler.blocking(&conn.request_line()) }
    }

    /// Calls the handler. When that had ended, as a tick and exactly. `is_back`: from another connection, or from none.
    fn call_away(&self, conn: &mut Conn, now: Tick, is_back: bool, hand: &mut Hand) -> (Tick, Instant) {
        let was_member = conn.registered == Registered::Shared;
        if !conn.is_request_here() {
            // Each packet of it would wake another thread there.
            self.set.leave(conn);
        }
        let wait = Away { shared: self, here: ThreadWait::new(&self.cx) };
        let Hand { dates, post, .. } = hand;
        let call = Call { cx: &self.cx, now, handler: &*self.handler, wait: &wait, dates, post };
        let now = conn.run(call);
        if was_member && is_back {
            // The thread goes on there. Who has come from the door may find others at it for long.
            self.set.calls.fetch_add(1, Ordering::Relaxed);
        }
        (now, wait.here.last_look())
    }
}

/// How a handler waits on a thread without a loop: not while a loop is without a thread.
struct Away<'a> {
    shared: &'a Shared,
    here: ThreadWait<'a>,
}

impl Wait for Away<'_> {
    fn now(&self) -> Tick {
        self.here.now()
    }

    fn ready_in(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        self.shared.may_wait()?;
        self.here.ready_in(fd, ready, until, stage)
    }
}
