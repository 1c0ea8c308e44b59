//! A kernel that does all that a kernel may do, and an edge-triggered poller that tells of it once.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;

use super::dice::Dice;
use super::judge::{Judge, Who};
use crate::transport::Tick;
use crate::transport::stream::Duplex;

/// What happens in a run, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    /// The most bytes that the client's packets have.
    packet_bytes_max: usize,
    /// Reads and writes are cut short, interrupted, and told to come again, one time in so many.
    short: usize,
    interrupts: usize,
    blocks: usize,
    /// Time jumps one time in so many, by up to this.
    jumps: usize,
    jump_max: Duration,
    /// The connection breaks when so many bytes have moved.
    reset_at: Option<usize>,
    /// How many unread bytes the client lets come, and how often it stops reading, one time in so many.
    window: usize,
    stops: usize,
    /// Handlers take long, one time in so many.
    works: usize,
    /// Does it end its side behind its last request?
    half_closes: bool,
    /// The server is told to stop in the middle.
    pub(super) drains: bool,
}

const NEVER: usize = usize::MAX;

impl Mood {
    pub(super) fn calm() -> Mood {
        Mood {
            packet_bytes_max: NEVER,
            short: NEVER,
            interrupts: NEVER,
            blocks: NEVER,
            jumps: NEVER,
            jump_max: Duration::ZERO,
            reset_at: None,
            window: NEVER,
            stops: NEVER,
            works: NEVER,
            half_closes: false,
            drains: false,
        }
    }

    pub(super) fn broken_at(byte: usize) -> Mood {
        Mood { reset_at: Some(byte), ..Mood::calm() }
    }

    /// The client reads all, so many bytes at a time.
    pub(super) fn narrow(window: usize) -> Mood {
        Mood { window, ..Mood::calm() }
    }

    /// Handlers take long, and longer.
    pub(super) fn busy() -> Mood {
        Mood { works: 1, ..Mood::calm() }
    }

    /// Half of the moods only split and delay, for as long as handlers like: then nothing may be lost.
    pub(super) fn random(dice: &mut Dice) -> Mood {
        let mut mood = Mood {
            packet_bytes_max: *dice.one_of(&[1, 7, 100, 1500, NEVER]),
            short: *dice.one_of(&[1, 2, 5, NEVER]),
            interrupts: *dice.one_of(&[2, 10, NEVER]),
            blocks: *dice.one_of(&[2, 3, 10, NEVER]),
            works: *dice.one_of(&[2, 10, NEVER]),
            half_closes: dice.once_in(3),
            ..Mood::calm()
        };
        if dice.once_in(2) {
            mood.reset_at = dice.once_in(3).then(|| dice.below(20_000));
            mood.jumps = *dice.one_of(&[3, 30, NEVER]);
            mood.jump_max = *dice.one_of(&[Duration::from_millis(900), Duration::from_secs(40)]);
            mood.window = *dice.one_of(&[50, 1_000, 20_000, NEVER]);
            mood.stops = 20;
            mood.drains = dice.once_in(4);
        }
        mood
    }

    /// A client that ends its side counts as gone where its response is still to come.
    pub(super) fn without_half_close(self) -> Mood {
        Mood { half_closes: false, ..self }
    }

    /// The client may not get all that it asked for.
    pub(super) fn may_cut(self) -> bool {
        self.reset_at.is_some() || self.jumps != NEVER || self.window != NEVER || self.drains
    }
}

#[derive(Debug)]
pub(super) struct Kernel {
    null: File,
    mood: Mood,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    judge: Judge,
    /// What the client is going to send.
    plan: Vec<u8>,
    /// How much of it was sent, and how much the server took.
    sent: usize,
    taken: usize,
    from_server: Vec<u8>,
    space: usize,
    /// The poller has something to tell.
    event: bool,
    client_ended: bool,
    server_ended: bool,
    reset: bool,
    moved: usize,
}

impl Kernel {
    pub(super) fn new(plan: Vec<u8>, dice: Dice, mut mood: Mood) -> Kernel {
        // A long talk byte by byte only takes long.
        mood.packet_bytes_max = mood.packet_bytes_max.max(plan.len() / 1_000);
        let state = State {
            dice,
            judge: Judge::default(),
            plan,
            sent: 0,
            taken: 0,
            from_server: Vec::new(),
            space: mood.window,
            event: false,
            client_ended: false,
            server_ended: false,
            reset: false,
            moved: 0,
        };
        Kernel { null: File::open("/dev/null").unwrap(), mood, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn now(&self) -> Tick {
        self.state().judge.now()
    }

    pub(super) fn judged<T>(&self, by: impl FnOnce(&mut Judge) -> T) -> T {
        by(&mut self.state().judge)
    }

    /// A handler does something else, which may take longer than any client has.
    pub(super) fn work(&self) {
        let state = &mut *self.state();
        if self.mood.works != NEVER && state.dice.once_in(self.mood.works) {
            let time = state.dice.below(100_000) as u64;
            state.judge.pass(time, Who::Us);
        }
    }

    pub(super) fn take_event(&self) -> bool {
        std::mem::take(&mut self.state().event)
    }

    pub(super) fn make_event(&self) {
        self.state().event = true;
    }

    pub(super) fn client_has_ended(&self) -> bool {
        let state = self.state();
        state.client_ended || state.reset
    }

    pub(super) fn server_closes(&self) {
        self.state().server_ended = true;
    }

    pub(super) fn take_received(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().from_server)
    }

    pub(super) fn received(&self) -> usize {
        self.state().from_server.len()
    }

    /// The client sends all that it has to send.
    pub(super) fn send_all(&self) {
        let state = &mut *self.state();
        state.sent = state.plan.len();
        state.event = true;
    }

    pub(super) fn moved(&self) -> usize {
        self.state().moved
    }

    /// The client does something. False: there is nothing left for it to do, and nothing to tell.
    pub(super) fn goes_on(&self) -> bool {
        let state = &mut *self.state();
        let acted = match state.dice.below(3) {
            0 => state.read(self.mood) || state.send(self.mood),
            _ => state.send(self.mood) || state.read(self.mood),
        };
        acted || state.event
    }

    /// Others do something before the client does.
    pub(super) fn brings(&self) -> bool {
        self.state().dice.once_in(4)
    }

    pub(super) fn jump(&self) -> Option<Duration> {
        self.state().jump(self.mood)
    }

    /// A thread waits: for what is there, or what the client does next, if it does something in time.
    pub(super) fn wait_readable(&self, until: Tick) -> bool {
        let state = &mut *self.state();
        state.judge.check_read(until);
        state.wait(self.mood, until, Who::Sender, |state, mood| state.is_readable() || state.send(mood))
    }

    pub(super) fn wait_writable(&self, until: Tick) -> bool {
        let state = &mut *self.state();
        state.judge.check_write(until);
        let reads = |state: &mut State, mood| state.space > 0 || state.reset || state.read(mood);
        state.wait(self.mood, until, Who::Taker, reads)
    }

    /// What goes wrong before anything moves.
    fn mishap(&self, state: &mut State) -> Result<(), Errno> {
        if state.reset {
            return Err(Errno::CONNRESET);
        }
        if self.mood.interrupts != NEVER && state.dice.once_in(self.mood.interrupts) {
            return Err(Errno::INTR);
        }
        if self.mood.blocks != NEVER && state.dice.once_in(self.mood.blocks) {
            // The poller will tell when it is over.
            state.event = true;
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    /// How much of `count` moves.
    fn share(&self, state: &mut State, count: usize) -> usize {
        let short = self.mood.short != NEVER && count > 1 && state.dice.once_in(self.mood.short);
        let count = if short { 1 + state.dice.below(count - 1) } else { count };
        match self.mood.reset_at {
            Some(at) if state.moved + count >= at => {
                state.reset = true;
                state.event = true;
                at.saturating_sub(state.moved)
            }
            _ => count,
        }
    }
}

impl State {
    fn jump(&mut self, mood: Mood) -> Option<Duration> {
        let jumps = mood.jumps != NEVER && self.dice.once_in(mood.jumps);
        jumps.then(|| mood.jump_max.mul_f64(self.dice.below(1000) as f64 / 1000.0))
    }

    /// False: nothing happened until then.
    fn wait(
        &mut self,
        mood: Mood,
        until: Tick,
        who: Who,
        happens: impl FnOnce(&mut State, Mood) -> bool,
    ) -> bool {
        let left = self.judge.now().until(until);
        let jump = self.jump(mood).unwrap_or_default();
        let in_time = jump < left && happens(self, mood);
        self.judge.pass((if in_time { jump } else { left }).as_millis() as u64, who);
        in_time
    }

    fn is_readable(&self) -> bool {
        self.taken < self.sent || self.client_ended || self.reset
    }

    fn send(&mut self, mood: Mood) -> bool {
        if self.sent == self.plan.len() {
            let ends = mood.half_closes && !self.client_ended;
            self.client_ended |= ends;
            self.event |= ends;
            return ends;
        }
        let most = (self.plan.len() - self.sent).min(mood.packet_bytes_max);
        self.sent += 1 + self.dice.below(most);
        self.event = true;
        true
    }

    fn stops(&mut self, mood: Mood) -> bool {
        mood.stops != NEVER && self.dice.once_in(mood.stops)
    }

    fn read(&mut self, mood: Mood) -> bool {
        if mood.window == NEVER || self.space >= mood.window || self.stops(mood) {
            return false;
        }
        self.event |= self.space == 0;
        self.space = mood.window;
        true
    }
}

impl Duplex for Kernel {
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let state = &mut *self.state();
        self.mishap(state)?;
        let most = (state.sent - state.taken).min(into.capacity() - into.len());
        if most == 0 {
            return if state.client_ended { Ok(0) } else { Err(Errno::AGAIN) };
        }
        let count = self.share(state, most);
        if count == 0 {
            return Err(Errno::CONNRESET);
        }
        into.extend_from_slice(&state.plan[state.taken..state.taken + count]);
        state.taken += count;
        state.moved += count;
        state.judge.received(count);
        // As if the rest had come just after.
        state.event |= count < most;
        Ok(count)
    }

    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize> {
        let state = &mut *self.state();
        let mishap = self.mishap(state);
        if mishap == Err(Errno::AGAIN) || mishap.is_ok() && state.space == 0 {
            state.judge.blocks();
            return Err(Errno::AGAIN);
        }
        mishap?;
        assert!(!state.server_ended, "bytes behind the end of the server's side");
        let offered = first.len() + second.len();
        let most = offered.min(state.space);
        let count = self.share(state, most);
        state.judge.sent(count, offered);
        if count == 0 && most > 0 {
            return Err(Errno::PIPE);
        }
        if self.mood.window != NEVER {
            state.space -= count;
        }
        let head = count.min(first.len());
        state.from_server.extend_from_slice(&first[..head]);
        state.from_server.extend_from_slice(&second[..count - head]);
        state.moved += count;
        Ok(count)
    }

    fn shutdown_write(&self) {
        self.state().server_ended = true;
    }

    fn shutdown_both(&self) {
        let state = &mut *self.state();
        (state.reset, state.event) = (true, true);
    }

    fn peer_has_gone(&self) -> bool {
        self.client_has_ended()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn fd(&self, _reads: bool, _writes: bool) -> io::Result<BorrowedFd<'_>> {
        Ok(self.null.as_fd())
    }
}
