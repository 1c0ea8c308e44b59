//! Keeps a server busy from one thread, and counts its answers: one epoll over all connections of all groups. It is bounded in time, in
//! connections, and in how long it waits for an answer.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::Group;
use super::connection::{Asking, Connection, Next};
use super::tally::Tally;
use super::wire::{self, Input, Tls};
use crate::failure::Result;
use crate::interrupt;

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// How long an answer may take: wrk's bound.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often late answers, failed connects and interrupts are looked for.
pub(super) const SWEEP: Duration = Duration::from_millis(50);
pub(super) const EVENTS_MAX: usize = 256;
const READ_BYTES: usize = 64 * 1024;

/// Open connections that ask while [`Generator::drive`] runs.
#[derive(Debug)]
pub(crate) struct Generator {
    epoll: OwnedFd,
    to: SocketAddrV4,
    pub(super) askings: Vec<Asking>,
    pub(super) connections: Vec<Connection>,
    /// Connections of a paced load that may be asked.
    pub(super) free: VecDeque<usize>,
    input: Input,
    timeout: Duration,
    /// When the last drive began.
    driven_from: Instant,
}

impl Generator {
    /// Opens every connection of every group to a port on loopback.
    pub(crate) fn open(port: u16, groups: &[Group]) -> Result<Self> {
        Generator::expecting(port, groups, &[], false)
    }

    /// Opens connections like [`Generator::open`]. Compares each body with the `expected` body of its group. If
    /// `paced`, only [`Generator::drive_at`] sends requests.
    pub(crate) fn expecting(port: u16, groups: &[Group], expected: &[&[u8]], paced: bool) -> Result<Self> {
        let now = Instant::now();
        let mut generator = Generator {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            askings: Vec::new(),
            connections: Vec::new(),
            free: VecDeque::new(),
            input: Input { wire: vec![0; READ_BYTES], clear: Vec::new() },
            timeout: TIMEOUT,
            driven_from: now,
        };
        for (at, group) in groups.iter().enumerate() {
            let depth = group.depth;
            let (request, last) = match group.tls {
                Some(Tls::Hello) => (wire::hello()?, wire::hello()?),
                _ => (group.request(port, group.close), group.request(port, true)),
            };
            let asking = Asking {
                requests: request.repeat(depth as usize),
                last: [request.repeat(depth as usize - 1), last].concat(),
                depth,
                lots_max: if group.close { 1 } else { group.lots_max },
                paced,
                expected: expected.get(at).map(|body| Rc::from(*body)),
                tls: group.tls,
                tally: Tally::new()?,
            };
            generator.askings.push(asking);
            generator.connections.extend((0..group.connections).map(|_| Connection::new(at, now)));
        }
        generator.reopen_all();
        Ok(generator)
    }

    /// Sends requests for so long, and counts the answers of that time and the errors since the last time. Returns a tally a group.
    pub(crate) fn drive(&mut self, time: Duration) -> Result<Vec<Tally>> {
        self.askings.iter_mut().for_each(|asking| asking.tally.begin());
        let start = Instant::now();
        let mut now = start;
        let mut sweep_at = start + SWEEP;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while now < start + time {
            self.turn(&mut events)?;
            now = Instant::now();
            self.sweep_when_due(now, &mut sweep_at)?;
        }
        self.driven_from = start;
        Ok(self.take_tallies(now - start))
    }

    /// Goes on until each connection was answered that was not answered in all the time of the last drive, or has waited for [`TIMEOUT`]. In
    /// a shorter time a slow server looks like one that forgot a connection. Returns what was counted meanwhile.
    pub(crate) fn wait_for_late(&mut self) -> Result<Vec<Tally>> {
        self.wait_for(self.driven_from)
    }

    /// Waits for all answers that are under way, before connections are closed.
    pub(crate) fn wait_for_all(&mut self) -> Result<Vec<Tally>> {
        self.wait_for(Instant::now())
    }

    /// Waits for the answers to requests that were sent before `from`.
    fn wait_for(&mut self, from: Instant) -> Result<Vec<Tally>> {
        self.askings.iter_mut().for_each(|asking| asking.tally.begin());
        let start = Instant::now();
        let (mut now, mut sweep_at) = (start, start);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let is_late = |one: &Connection| one.is_busy() && one.since() < from;
        while self.connections.iter().any(is_late) {
            self.turn(&mut events)?;
            now = Instant::now();
            self.sweep_when_due(now, &mut sweep_at)?;
        }
        Ok(self.take_tallies(now - start))
    }

    fn take_tallies(&mut self, elapsed: Duration) -> Vec<Tally> {
        self.askings.iter_mut().map(|asking| asking.tally.take(elapsed)).collect()
    }

    /// Handles what is ready. The load never sleeps, as it has its own core. If it slept, the server would pay for waking it at every
    /// send.
    pub(super) fn turn(&mut self, events: &mut Vec<Event>) -> Result<()> {
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&NO_WAIT)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.iter() {
            self.event(event.data.u64() as usize, event.flags);
        }
        Ok(())
    }

    fn event(&mut self, at: usize, flags: EventFlags) {
        let connection = &mut self.connections[at];
        let asking = &mut self.askings[connection.group];
        match connection.event(flags, asking, &mut self.input) {
            Next::Wait => {}
            Next::Free => self.free.push_back(at),
            Next::Reopen => self.reopen(at),
            Next::Broken => {
                asking.tally.socket_errors += 1;
                self.reopen(at);
            }
        }
    }

    /// Opens every connection again. Answers that are under way are lost.
    pub(crate) fn reopen_all(&mut self) {
        for at in 0..self.connections.len() {
            self.reopen(at);
        }
    }

    /// A connect that fails is counted, and tried again at the next sweep.
    pub(super) fn reopen(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let asking = &mut self.askings[connection.group];
        connection.discard();
        match connection.open(self.epoll.as_fd(), at, self.to, asking) {
            Ok(()) if asking.paced => self.free.push_back(at),
            Ok(()) => {}
            Err(_) => asking.tally.socket_errors += 1,
        }
    }

    /// Looks for an interrupt, and for connections that are late or not open, once in [`SWEEP`].
    pub(super) fn sweep_when_due(&mut self, now: Instant, due: &mut Instant) -> Result<()> {
        if now >= *due {
            interrupt::check()?;
            self.sweep(now);
            *due = now + SWEEP;
        }
        Ok(())
    }

    fn sweep(&mut self, now: Instant) {
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            let late =
                connection.is_busy() && now.saturating_duration_since(connection.since()) > self.timeout;
            if connection.is_open() && late {
                self.askings[connection.group].tally.timeouts += 1;
            }
            if late || !connection.is_open() {
                self.reopen(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
