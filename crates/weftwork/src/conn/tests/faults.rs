//! Tests of a connection on the worst of networks. A simulated kernel cuts reads and writes short, interrupts, blocks,
//! resets and lets time jump, by a seed.
//!
//! Always true: no panic, a bounded number of steps, and responses in the order of the requests. Nothing after a fault
//! is interpreted. Every deadline ends its phase, neither early nor late. Buffers stay small and are returned.
//!
//! `WEFTWORK_FAULT_SEEDS=1000000` runs that many seeds, and `WEFTWORK_FAULT_SEED=7` runs one.

mod dice;
mod judge;
mod kernel;
mod talk;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::message::{Response, WakeConn};
use crate::testing::{TestResponse, take_response};
use dice::Dice;
use judge::{Judge, Who};
use kernel::{Kernel, Mood};
use talk::{Ends, Promised, Script, Want};

const SEEDS: u64 = 2_000;
/// A connection with more steps than this at one event is in an endless loop.
const STEPS_MAX: usize = 10_000;
/// A connection with this many events is in one too.
const TURNS_MAX: usize = 1_000_000;
/// With more deadlines than this in a row, a deadline does not end its phase.
const DEADLINES_MAX: usize = 8;
/// More bytes than this in either direction exceed the limits, with parts as short as those of [`talk`] and any growth
/// of a `Vec`.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// A connection between a scripted client and the handler of [`talk`], on a simulated [`Kernel`].
struct Rig {
    conn: Option<Box<Conn>>,
    kernel: Arc<Kernel>,
    cx: Arc<Context>,
    pool: BufferPool,
    dates: DateCache,
    /// Numbers of the requests that handlers saw.
    calls: Arc<Mutex<Vec<usize>>>,
    promised: Arc<Promised>,
    /// Woken by the sender of a response.
    bell: Arc<dyn WakeConn>,
    turns: usize,
}

impl WakeConn for Kernel {
    fn wake(&self, _: usize) {
        self.make_event();
    }
}

/// The simulated kernel decides what a handler waits for, and the time after the wait.
struct OnKernel<'a> {
    kernel: &'a Kernel,
}

impl IoWait for OnKernel<'_> {
    fn now(&self) -> Tick {
        self.kernel.now()
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, ready: Readiness, until: Tick, _: Stage) -> std::io::Result<()> {
        let in_time = match ready {
            Readiness::Write => self.kernel.wait_writable(until),
            Readiness::Read | Readiness::Either => self.kernel.wait_readable(until),
        };
        if in_time { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
    }
}

impl Rig {
    fn new(script: &Script, dice: Dice, mood: Mood, cx: Arc<Context>) -> Rig {
        let kernel = Arc::new(Kernel::new(script.bytes.clone(), dice, mood));
        let now = kernel.now();
        let conn = Some(Conn::new(Stream::Memory(kernel.clone()), None, now, &cx));
        let (pool, dates, bell) = (BufferPool::alone(), DateCache::new(now), kernel.clone());
        Rig { conn, kernel, cx, pool, dates, calls: Arc::default(), promised: Arc::default(), bell, turns: 0 }
    }

    /// Continues after an event, like a loop in `engine/event_loop.rs`.
    fn turn(&mut self) {
        // The clock of a loop stands still during a cycle.
        let now = self.kernel.now();
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "it never comes to an end");
        let mut steps = 0;
        let event = self.kernel.take_event();
        if let (Some(conn), true) = (&mut self.conn, event) {
            conn.note_ready(self.kernel.client_has_ended());
            if conn.reads_first() {
                self.read(now);
            }
        }
        while let Some(conn) = &mut self.conn {
            steps += 1;
            assert!(steps < STEPS_MAX, "it goes round in circles");
            look_into(conn, &self.kernel);
            match conn.step(now, &self.cx) {
                Step::Call => self.call(),
                Step::Handshake => conn.advance_handshake(now, &self.cx),
                Step::Stream => unreachable!("HTTP/2 is off"),
                Step::Close => self.close(),
                Step::Upgrade => unreachable!("nothing in this talk is an upgrade"),
                Step::WaitFeed if !conn.watch_feed(&self.bell, 0) => {}
                Step::WaitFeed => {
                    conn.release_buffers(&mut self.pool);
                    return;
                }
                Step::Read if conn.is_read_ready() => self.read(now),
                Step::Read => {
                    conn.release_buffers(&mut self.pool);
                    let is_bare = conn.buffers.as_ref().is_none_or(|buffers| !buffers.is_empty());
                    assert!(!conn.is_idle() || is_bare, "an idle connection holds buffers");
                    return;
                }
                Step::Write => match conn.flush(now) {
                    Ok(Flushed::All) => {}
                    Ok(Flushed::BudgetSpent | Flushed::SlowFile) => return self.kernel.make_event(),
                    Ok(Flushed::WouldBlock) => {
                        conn.release_buffers(&mut self.pool);
                        let due = conn.deadline(&self.cx);
                        return self.kernel.judged(|judge| judge.check_write(due));
                    }
                    Err(_) => self.close(),
                },
            }
        }
    }

    fn read(&mut self, now: Tick) {
        let Some(conn) = &mut self.conn else { return };
        match conn.fill(now, &mut self.pool) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => conn.on_eof(),
        }
    }

    fn call(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        let wait = OnKernel { kernel: &self.kernel };
        let (calls, promised, kernel) = (self.calls.clone(), self.promised.clone(), self.kernel.clone());
        let handler = move |req: &mut Request| -> Response { talk::answer(req, &calls, &promised, &kernel) };
        let (cx, dates, slot) = (&*self.cx, &mut self.dates, &CallSlot::default());
        let held = if conn.awaits_response() { 0 } else { conn.bytes_ahead() };
        self.kernel.judged(|judge| judge.begins_call(held));
        // The connection waits for a thread.
        self.kernel.work();
        conn.run(Call { cx, now: wait.now(), handler: &handler, wait: &wait, dates, slot });
        self.kernel.judged(Judge::ends_call);
    }

    fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.reclaim(&mut self.pool);
            assert!(conn.buffers.is_none());
        }
        self.kernel.server_closes();
    }

    /// Lets the deadline pass if it is before `until`, like the timer wheel. Returns false if there is no deadline.
    fn meet_deadline(&mut self, until: Tick) -> bool {
        let Some(conn) = &self.conn else { return false };
        let due = conn.deadline(&self.cx);
        if due > until {
            return false;
        }
        self.pass_until(due);
        if let Some(conn) = &mut self.conn {
            conn.on_timeout(self.kernel.now(), &self.cx);
        }
        self.turn();
        true
    }

    fn pass_until(&mut self, then: Tick) {
        self.kernel.judged(|judge| judge.pass(judge.now().until(then).as_millis() as u64, Who::Client));
    }

    /// Lets time pass without an action of the client. Returns false if the connection has ended in that time.
    fn idles(&mut self, time: Duration) -> bool {
        let until = self.kernel.now().after(time);
        while self.meet_deadline(until) {}
        self.pass_until(until);
        self.conn.is_some()
    }

    /// Sends what other threads have promised. It fails if the client has gone. Returns false if nothing was promised.
    fn bring(&mut self) -> bool {
        let promised = self.promised.lock().unwrap().pop();
        promised.map(|(sender, response)| sender.send(response)).is_some()
    }

    /// Lets the client, or other threads, act.
    fn goes_on(&mut self) -> bool {
        self.kernel.brings() && self.bring() || self.kernel.goes_on() || self.bring()
    }

    /// Runs all planned events. After that, only time passes.
    fn play(&mut self, mood: Mood) {
        self.turn();
        while self.conn.is_some() && self.goes_on() {
            if let Some(jump) = self.kernel.jump() {
                self.idles(jump);
            }
            if mood.drains && self.turns > 20 {
                self.cx.enter(Stage::Draining);
            }
            self.turn();
        }
        let mut met = 0;
        while self.conn.is_some() {
            assert!(self.meet_deadline(Tick(u64::MAX - 1)), "nothing ends it");
            met += 1;
            assert!(met < DEADLINES_MAX, "no deadline ends it");
        }
    }
}

/// Checks that memory is bounded, and tells the checker when nothing is left to send.
fn look_into(conn: &Conn, kernel: &Kernel) {
    let held = conn.buffers.as_deref().map_or((0, 0), |b| (b.input.capacity(), b.output.capacity()));
    assert!(held.0.max(held.1) < BUFFER_BYTES_MAX, "{held:?} bytes are held");
    if conn.unsent() == 0 && (conn.pending_body.is_none() || conn.awaits_response()) {
        kernel.judged(Judge::is_done);
    }
}

/// Names the seed if its run fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with WEFTWORK_FAULT_SEED={}", self.0);
        }
    }
}

fn context(dice: &mut Dice, mood: Mood) -> Arc<Context> {
    let ahead = *dice.one_of(&[0, 100, 64 << 10]);
    let unread = *dice.one_of(&[0, 1000, 64 << 10]);
    let mut settings = Settings::default().body_ahead_bytes_max(ahead).unread_bytes_max(unread);
    if !mood.may_cut() {
        // Handlers that take long make a connection old.
        settings = settings.age_max(Duration::from_secs(u64::from(u32::MAX)));
    }
    Arc::new(Context::new(settings).unwrap())
}

fn run(seed: u64) {
    let _seed = Seed(seed);
    let mut dice = Dice::new(seed);
    let mood = Mood::random(&mut dice);
    let script = Script::random(&mut dice);
    let mood = if script.wants.iter().any(|want| want.is_brought) { mood.without_half_close() } else { mood };
    let cx = context(&mut dice, mood);
    let mut rig = Rig::new(&script, dice, mood, cx);
    rig.play(mood);
    check(&rig, &script, mood);
}

fn check(rig: &Rig, script: &Script, mood: Mood) {
    assert_eq!(rig.cx.stats().connections, 0);
    let calls = rig.calls.lock().unwrap();
    assert!(calls.iter().copied().eq(0..calls.len()), "called out of order: {calls:?}");
    let refused = script.wants.iter().filter(|want| want.is_refused).count();
    assert!(calls.len() <= script.wants.len() - refused, "called for what is behind the end: {calls:?}");
    let mut bytes = rig.kernel.take_received();
    for (number, want) in script.wants.iter().enumerate() {
        if bytes.is_empty() {
            assert!(mood.may_cut(), "no answer to request {number}, {want:?}");
            return;
        }
        let method = if want.is_head { Method::HEAD } else { Method::GET };
        let got = match take_response(&mut bytes, &method, true) {
            Ok(got) => got,
            Err(none) => {
                assert!(mood.may_cut(), "half an answer to request {number}: {none}");
                assert!(none.is_cut(), "an answer out of step, to request {number}: {none}");
                if let Some(partial) = none.partial() {
                    assert!(want.is_begun_by(partial) || partial.status == 408, "{number}: {partial:?}");
                }
                return;
            }
        };
        let is_late = got.status == 408 && mood.may_cut();
        assert!(is_late || want.is(&got), "request {number}: wanted {want:?}, got {got:?}");
        if is_late && got.closes() || !is_late && ends(want, &got, mood) {
            assert!(calls.len() <= number + 1, "called behind the end of the connection: {calls:?}");
            if is_late && want.is_head {
                // It was not known yet that the method was HEAD.
                bytes.clear();
            }
            break;
        }
    }
    assert!(bytes.is_empty(), "bytes behind the last answer: {:?}", String::from_utf8_lossy(&bytes));
}

fn ends(want: &Want, got: &TestResponse, mood: Mood) -> bool {
    match want.ends {
        Ends::Yes => true,
        Ends::No => mood.drains && got.closes(),
        Ends::Maybe => got.closes(),
    }
}

#[test]
fn whatever_the_network_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("WEFTWORK_FAULT_SEED") {
        return run(seed);
    }
    let mut completed = 0;
    for seed in 0..number("WEFTWORK_FAULT_SEEDS").unwrap_or(SEEDS) {
        run(seed);
        completed += 1;
    }
    println!("{completed} seeds");
}

/// Runs the same exchange, cut off at each of its bytes, in both directions.
#[test]
fn resets_at_every_byte() {
    let script = Script::of_all_kinds();
    let mut moved = 0;
    for at in 0.. {
        let cx = Arc::new(Context::new(Settings::default()).unwrap());
        let mood = Mood::broken_at(at);
        let mut rig = Rig::new(&script, Dice::new(at as u64), mood, cx);
        rig.play(mood);
        check(&rig, &script, mood);
        moved = rig.kernel.moved();
        if moved < at {
            break;
        }
    }
    assert!(moved > 2_000, "only {moved} bytes went to and fro");
}

/// Without faults, the whole exchange succeeds, however long handlers take. Otherwise the tests above would accept an
/// empty exchange.
#[test]
fn every_exchange_completes_on_a_network_without_faults() {
    let script = Script::of_all_kinds();
    for mood in [Mood::calm(), Mood::narrow(1_000), Mood::busy()] {
        let mut rig = Rig::new(&script, Dice::new(1), mood, context(&mut Dice::new(1), mood));
        rig.play(mood);
        check(&rig, &script, Mood::calm());
        assert_eq!(rig.calls.lock().unwrap().len(), script.wants.len());
    }
}

/// A client that reads a little at a time never lets the write buffer become empty.
#[test]
fn a_small_window_makes_us_hold_no_more() {
    for script in [Script::flood(), Script::many(10_000)] {
        let cx = Arc::new(Context::new(Settings::default()).unwrap());
        let mut rig = Rig::new(&script, Dice::new(1), Mood::narrow(1_000), cx);
        rig.play(Mood::narrow(1_000));
        assert!(rig.kernel.received() > 1 << 20, "no more than {} bytes came", rig.kernel.received());
        check(&rig, &script, Mood::calm());
    }
}

/// Reads `window` bytes of the responses every ten seconds. Returns for how many seconds of 300 it was served.
fn served(script: &Script, window: usize) -> u64 {
    let cx = Arc::new(Context::new(Settings::default()).unwrap());
    let mut rig = Rig::new(script, Dice::new(1), Mood::narrow(window), cx);
    rig.kernel.send_all();
    rig.turn();
    while rig.idles(Duration::from_secs(10)) && rig.kernel.now() < Tick(300_000) {
        rig.kernel.goes_on();
        rig.turn();
    }
    rig.kernel.now().0 / 1000
}

/// Each response is a new one, but the client that does not read them is the same.
#[test]
fn every_peer_must_read_at_the_least_rate() {
    for script in [Script::pages(60), Script::larges(10)] {
        assert_eq!(served(&script, 4_900), 30);
        assert_eq!(served(&script, 8_000), 300);
    }
}
