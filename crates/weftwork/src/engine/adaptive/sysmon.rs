//! Finds leaders that are stuck in a handler, and has their loops led by somebody else. Sees to the
//! [set](super::set), too: that there are threads for whoever asks, and that who is quiet goes home; and to whether
//! loops wait at the [doors](super::visits).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::accept_mode::AcceptMode;
use super::{Job, Shared};
use crate::engine::cpu_pressure::CpuPressure;
use crate::engine::log_caught_panic;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::counters::Counters;

/// How often the cells are looked at. At 100 us a busy core pays 0.7 to 1.0 us a request for it, a fifth.
const TICK: Duration = Duration::from_millis(1);
/// How often, where so many looks were in vain, nobody waits for a thread or is in the set, the loops wait at the doors, and none is in a call
/// just now: 3 to 4 % less CPU a keep-alive request. A handler that blocks out of the blue holds the others up for 5 ms at the most then, not 2.
const CALM_TICK: Duration = Duration::from_millis(4);
const CALM_LOOKS: u32 = 64;
/// After so many looks at nothing, the watcher sleeps until a loop wakes it.
const QUIET_TICKS: u32 = 50;
/// It sleeps no longer than this while somebody is in the set. On a full core a look costs 8 us, so each millisecond would be
/// 0.8 % of it.
const COMMONS_TICK: Duration = Duration::from_millis(4);
/// When so many calls end in each millisecond, the next is 100 us away at most; to wake a thread takes 50 on a busy core.
const BRISK: u64 = 10;
/// How often it looks for members that are quiet.
const QUIET_LOOK: Duration = Duration::from_millis(100);
/// So many threads are called in one look for requests that wait in the queue: the system may have refused them before.
const CALLED_MAX: usize = 2;
/// When the server stops, a leader goes on for the requests of one turn, at the most. Whatever holds its thread for longer
/// than this is one that has lost its loop.
const LAST_LOOKS: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) fn start_watcher(self: &Arc<Shared>) -> io::Result<()> {
        let shared = self.clone();
        let thread =
            std::thread::Builder::new().name("weft-sysmon".into()).spawn(move || shared.watch(BRISK))?;
        self.threads.keep(thread);
        Ok(())
    }

    /// So many looks at the doors in each millisecond are often.
    pub(super) fn watch(self: &Arc<Shared>, looks_often: u64) {
        self.loops.watch.attach();
        // A panic is a bug of ours, or of the log.
        while catch_unwind(AssertUnwindSafe(|| self.run_sysmon(looks_often))).is_err() {
            log_caught_panic();
        }
    }

    fn run_sysmon(self: &Arc<Shared>, looks_often: u64) {
        let over = || self.cx.stage() == Stage::Closing;
        let mut seen: Vec<u64> = self.cells.iter().map(|cell| cell.epoch()).collect();
        let mut gauge = CpuPressure::new(BRISK);
        let (mut calm, mut quiet) = (0_u32, 0);
        let mut homed = self.cx.clock.now();
        let mut visits = AcceptMode::new(looks_often, Instant::now());
        while !over() {
            let (mut moved, mut is_calm, mut is_calling) = (false, !self.set.has_anybody(), false);
            for (index, seen) in seen.iter_mut().enumerate() {
                let turn = self.cells[index].epoch();
                moved |= turn != *seen || self.loops.watch.is_busy(index);
                if is_stuck(*seen, turn) {
                    is_calm = false;
                    self.take_away(index);
                }
                is_calling |= turn % 2 == 1;
                *seen = turn;
            }
            let is_short = self.see_to_the_queue();
            let is_left = self.see_to_the_doors(&mut visits);
            (moved, is_calm) = (moved | is_short | is_left, is_calm & !is_short & !is_left);
            moved |= self.see_to_the_commons(&mut gauge, &mut homed);
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > QUIET_TICKS {
                let patience = match self.set.has_anybody() {
                    true => Some(COMMONS_TICK),
                    // Whoever is out may be there again without a loop's being busy.
                    false => (self.set.members() > 0).then_some(QUIET_LOOK),
                };
                // A request may have been left in the queue since that was looked at, and somebody may have joined.
                let has_joined = || patience.is_none() && self.set.members() > 0;
                let is_wanted =
                    || over() || self.standby.has_queue() || self.set.has_asking() || has_joined();
                if self.loops.watch.sleep_until_busy(patience, is_wanted) {
                    (quiet, is_calm) = (0, false);
                }
            }
            calm = if is_calm { calm.saturating_add(1) } else { 0 };
            std::thread::sleep(if calm > CALM_LOOKS && !is_calling { CALM_TICK } else { TICK });
        }
        self.look_for_the_last_time();
    }

    /// Loops that lie there now would lie there until their handlers return, with their connections; so would those
    /// whose leaders have not heard yet that the server stops, and call one more handler.
    fn look_for_the_last_time(self: &Arc<Shared>) {
        let until = Instant::now() + LAST_LOOKS;
        loop {
            (0..self.cells.len()).for_each(|index| self.take_away(index));
            self.send_members_home(Duration::ZERO);
            if self.standby.count().0 == 0 || Instant::now() >= until {
                return;
            }
            std::thread::sleep(TICK);
        }
    }

    /// True: requests wait for a thread.
    fn see_to_the_queue(self: &Arc<Shared>) -> bool {
        let queued = self.standby.stats().queued;
        (0..queued.min(CALLED_MAX)).for_each(|_| self.call_for_queue());
        queued > 0
    }

    /// True: they are left to threads that come back from calls.
    pub(super) fn see_to_the_doors(&self, visits: &mut AcceptMode) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let accepted = self.cx.counters.accepted.load(Ordering::Relaxed);
        let is_left = visits.look(looks, accepted, Instant::now());
        self.loops.set_accepting(!is_left);
        is_left
    }

    /// True: requests wait there for a thread.
    pub(super) fn see_to_the_commons(self: &Arc<Shared>, gauge: &mut CpuPressure, homed: &mut Tick) -> bool {
        if !self.set.has_anybody() {
            self.set.note(false, 0);
            return false;
        }
        let now = self.cx.clock.now();
        let is_over = self.cx.stage() != Stage::Running;
        if is_over || homed.after(QUIET_LOOK) <= now {
            *homed = now;
            let quiet = if is_over { Duration::ZERO } else { self.cx.settings.idle_timeout };
            self.send_members_home(quiet);
        }
        let at_work = self.standby.stats().busy.saturating_sub(self.cells.len());
        gauge.look(at_work, self.set.calls.load(Ordering::Relaxed), now);
        self.set.note(gauge.is_served_soon(), gauge.asking_max());
        let is_short = self.set.is_short();
        if is_short && self.standby.has_queue() {
            // Threads take from the queue for as long as that lasts, however soon they come back: there members have their turn.
            self.set.note(gauge.is_served_soon(), 0);
            self.send_members_home(Duration::ZERO);
            return true;
        }
        // Those who ask are to have threads in the end, as members have, even on full cores.
        let called = gauge.called(is_short).max(usize::from(self.set.has_asking()));
        for _ in 0..called {
            if self.give(Job::Attend).is_err() {
                // Their loops have them wait in the queue, which is bounded, and not here again.
                self.set.note(false, 0);
                self.send_members_home(Duration::ZERO);
                self.note_starved(now);
                break;
            }
        }
        is_short
    }

    fn take_away(self: &Arc<Shared>, index: usize) {
        if let Some(lp) = self.cells[index].retake() {
            // Until there is a new leader, too, the old one can tell that its loop is gone: it looks at the clock itself.
            self.cells[index].invalidate();
            Counters::count(&self.cx.counters.loops_retaken);
            self.give_on(lp);
        }
    }
}

/// Both looks found the loop on its cell, and at most one call has ended in between: calls take half a
/// millisecond or more. (Counting a second call catches handlers of just one tick, which no two looks at the
/// same call would.)
pub(in crate::engine) fn is_stuck(seen: u64, turn: u64) -> bool {
    seen % 2 == 1 && turn % 2 == 1 && turn.wrapping_sub(seen) <= 2
}
