//! The monitor thread. It retakes loops from stuck handlers, starts threads for requests that wait, and evicts idle
//! connections from the shared poller.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use crate::engine::log_caught_panic;
use crate::engine::predictor::QUICK;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::events::Event;

/// Time between two checks. At 100 us, the checks cost a busy core 0.7 to 1.0 us a request, a fifth of the request.
const TICK: Duration = Duration::from_millis(1);
/// Time between two checks after [`CALM_LOOKS`] checks have found nothing, unless a loop is lent at that moment. That
/// saves 3 to 4 % of the CPU of a keep-alive request. A handler that blocks unexpectedly then delays other requests
/// by at most 5 ms instead of 2 ms.
const CALM_TICK: Duration = Duration::from_millis(4);
const CALM_LOOKS: u32 = 50;
/// Time between two close checks, to which the kernel adds up to 50 us. With 512 streams of HTTP/2 on a route of which one
/// call in 100 blocks for 1 ms, that gives 3 times the requests/s of [`TICK`]. Go's monitor begins with 20 us.
const CLOSE_TICK: Duration = Duration::from_micros(25);
/// Number of checks after a loop was retaken that are followed by close checks.
const CLOSE_LOOKS: u32 = 20;
/// Number of checks in a row after which a lent loop counts as stuck although its calls end in between. Such calls
/// take a large part of the time, for example 100 us in a database.
const LENT_LOOKS: u32 = 10;
/// Number of checks in a row with waiting requests after which a thread is added even if all cores are busy.
const SHORT_LOOKS: u32 = 10;
/// Time over which the use of the cores is measured.
const CPU_WINDOW: Duration = Duration::from_millis(10);
/// Time for which a connection may wait in the shared poller while its events find no thread. Ten times [`TICK`]: with
/// calls of a few milliseconds, a thread comes before that.
const NO_THREAD_WAIT: Duration = Duration::from_millis(10);
/// Time between two searches for idle connections.
const EVICT_TICK: Duration = Duration::from_millis(100);
/// Time that the monitor runs on after the stop. A leader only finishes the requests of one batch. A leader that
/// takes longer loses its loop.
const LAST_LOOKS: Duration = Duration::from_secs(1);

/// The results of earlier checks.
pub(super) struct Looks {
    cells: Vec<CellLook>,
    /// Checks in a row that have found nothing to do.
    calm: u32,
    /// Number of checks that close checks still follow.
    pub(super) close: u32,
    /// Checks in a row at which requests waited for a thread.
    short: u32,
    /// Checks in a row at which no loop was active.
    quiet: u32,
    evicted: Tick,
    cpu: CpuLook,
}

/// Measures whether this process uses all cores that it may use.
struct CpuLook {
    cores: u32,
    used: Duration,
    at: Instant,
    is_full: bool,
}

impl CpuLook {
    fn new() -> CpuLook {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        CpuLook { cores, used: cpu_time(), at: Instant::now(), is_full: false }
    }

    /// Whether all cores were busy in the last whole [`CPU_WINDOW`]. Another thread would then only wait for a core.
    fn is_full(&mut self) -> bool {
        let passed = self.at.elapsed();
        if passed >= CPU_WINDOW {
            let used = cpu_time();
            let busy = used.saturating_sub(std::mem::replace(&mut self.used, used));
            self.is_full = busy * 10 >= passed * self.cores * 9;
            self.at += passed;
        }
        self.is_full
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[derive(Clone, Copy)]
struct CellLook {
    epoch: u64,
    /// Checks in a row at which the loop was lent.
    lent: u32,
}

impl Shared {
    pub(super) fn start_sysmon(self: &Arc<Shared>) -> io::Result<()> {
        let shared = self.clone();
        let work = move || shared.run_sysmon();
        self.threads.spawn("weft-sysmon", work)
    }

    fn run_sysmon(self: &Arc<Shared>) {
        self.loops.attach_monitor();
        // A panic is a bug of Weftwork, or of the logger.
        while catch_unwind(AssertUnwindSafe(|| self.monitor())).is_err() {
            log_caught_panic();
        }
    }

    fn monitor(self: &Arc<Shared>) {
        let mut looks = self.first_looks();
        while self.cx.stage() != Stage::Closing {
            self.look(&mut looks);
            if looks.quiet > CALM_LOOKS && self.sleep_until_busy() {
                (looks.quiet, looks.calm) = (0, 0);
            }
            // Without a free thread, a quick call that loses its core for a moment should keep its loop.
            if looks.close > 0 && self.pool.has_thread() {
                self.look_closely(&mut looks);
                continue;
            }
            let is_lent = looks.cells.iter().any(|cell| cell.lent > 0);
            std::thread::sleep(if looks.calm > CALM_LOOKS && !is_lent { CALM_TICK } else { TICK });
        }
        self.last_looks();
    }

    pub(super) fn first_looks(&self) -> Looks {
        let cells = self.cells.iter().map(|cell| CellLook { epoch: cell.epoch(), lent: 0 }).collect();
        let (calm, close, short, quiet) = (0, 0, 0, 0);
        Looks { cells, calm, close, short, quiet, evicted: self.cx.clock.now(), cpu: CpuLook::new() }
    }

    /// Retakes loops from calls that are not [`QUICK`], for one [`TICK`].
    pub(super) fn look_closely(self: &Arc<Shared>, looks: &mut Looks) {
        looks.close = looks.close.saturating_sub(1);
        let begun = Instant::now();
        let mut seen: Vec<(u64, Instant)> = self.cells.iter().map(|cell| (cell.epoch(), begun)).collect();
        loop {
            std::thread::sleep(CLOSE_TICK);
            let now = Instant::now();
            for (index, seen) in seen.iter_mut().enumerate() {
                let epoch = self.cells[index].epoch();
                if epoch != seen.0 {
                    *seen = (epoch, now);
                } else if epoch % 2 == 1 && now - seen.1 >= QUICK && self.retake(index) {
                    // The next call has just begun when it is met first.
                    looks.cells[index] = CellLook { epoch: epoch + 1, lent: 0 };
                    (looks.close, looks.calm) = (CLOSE_LOOKS, 0);
                }
            }
            if now - begun >= TICK {
                return;
            }
        }
    }

    pub(super) fn look(self: &Arc<Shared>, looks: &mut Looks) {
        let (mut moved, mut found) = (false, false);
        for (index, seen) in looks.cells.iter_mut().enumerate() {
            let epoch = self.cells[index].epoch();
            moved |= epoch != seen.epoch || self.loops.is_busy(index);
            seen.lent = if epoch % 2 == 1 { seen.lent + 1 } else { 0 };
            if is_stuck(seen.epoch, epoch) || seen.lent >= LENT_LOOKS {
                found |= self.retake(index);
                seen.lent = 0;
            }
            seen.epoch = epoch;
        }
        if found {
            looks.close = CLOSE_LOOKS;
        }
        found |= self.check_pool(looks);
        moved |= found;
        looks.quiet = if moved { 0 } else { looks.quiet + 1 };
        looks.calm = if found { 0 } else { looks.calm.saturating_add(1) };
    }

    /// Sleeps until a loop is busy. Returns false if it is time to check the connections in the shared poller.
    fn sleep_until_busy(&self) -> bool {
        let timeout = (self.pool.source.len() > 0).then_some(CALM_TICK);
        // A request may have been posted since the last check, and a connection may have been added.
        let is_wanted = || {
            self.cx.stage() == Stage::Closing
                || self.pool.has_queue()
                || timeout.is_none() && self.pool.source.len() > 0
        };
        self.loops.sleep_until_busy(timeout, is_wanted)
    }

    /// Starts a thread for requests that wait, and evicts idle connections. Returns true if requests wait.
    fn check_pool(self: &Arc<Shared>, looks: &mut Looks) -> bool {
        let now = self.cx.clock.now();
        let is_short = self.pool.has_queue() || self.is_short();
        looks.short = if is_short { looks.short + 1 } else { 0 };
        if is_short {
            self.pool.source.note_waiting(now);
        }
        // If all cores are busy, another thread is of little use. However, the threads that were expected to return may
        // all be parked.
        if is_short && (!looks.cpu.is_full() || looks.short.is_multiple_of(SHORT_LOOKS)) {
            self.pool.add_thread(&|| self.spawn());
        }
        if self.pool.has_queue() && !self.pool.has_thread() {
            self.warn_exhausted(now);
        }
        if self.cx.stage() != Stage::Running {
            self.evict_idle(Duration::ZERO);
        } else if !self.pool.has_thread() && self.is_short() {
            // They may ask for a quick route, which the loop answers.
            self.evict_idle(NO_THREAD_WAIT);
        } else if looks.evicted.after(EVICT_TICK) <= now {
            looks.evicted = now;
            self.evict_idle(self.cx.settings.idle_timeout);
        }
        is_short
    }

    /// Retakes loops whose handlers do not return, for a short time after the stop. Otherwise their connections would
    /// stay open. A leader that has not seen the stop yet may also call one more handler.
    fn last_looks(self: &Arc<Shared>) {
        let until = Instant::now() + LAST_LOOKS;
        loop {
            (0..self.cells.len()).for_each(|index| {
                self.retake(index);
            });
            self.evict_idle(Duration::ZERO);
            if self.pool.stats().threads == 0 || Instant::now() >= until {
                return;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Takes a loop from a leader that is stuck, and gives it to another thread.
    fn retake(self: &Arc<Shared>, index: usize) -> bool {
        let Some(lp) = self.cells[index].retake() else { return false };
        // The old leader can then tell that its loop is gone, even before there is a new leader. It reads the clock
        // itself.
        self.cells[index].invalidate();
        self.cx.record(Event::LoopRetaken);
        self.hand_off(lp);
        true
    }
}

/// Returns whether a loop is stuck. It is stuck if both checks found it lent and at most one call has ended in
/// between, so that a call takes half a millisecond or more. (One ended call is allowed, because two checks never
/// meet the same call of a handler of just one tick.)
pub(in crate::engine) fn is_stuck(seen: u64, epoch: u64) -> bool {
    seen % 2 == 1 && epoch % 2 == 1 && epoch.wrapping_sub(seen) <= 2
}
