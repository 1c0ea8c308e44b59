//! How much does one request cost two servers, or more, where a tenth of a microsecond counts? All of them run at once, and one
//! after the other has the load for some hundredths of a second, or up to one where that says too little. What the host does to the machine meanwhile befalls all:
//! the middle half of the ratios lies 2 to 5 % apart, where those of cells that last seconds lie 15 to 50 % apart.

mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::args::GridOptions;
use crate::failure::Result;
use crate::grid;
use crate::interrupt;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::measure::expected;
use crate::peers::Peers;
use crate::procs::distance::{Apart, Distance};
use crate::procs::server::Server;
use crate::procs::usage::Usage;
use crate::subject::Subject;
use crate::workloads::{Kind, Workload, keeps_up};
pub(crate) use table::TURNS_MIN;

#[derive(Debug)]
pub(crate) struct TurnOptions {
    /// Its rounds are how often everybody has a turn.
    pub(crate) grid: GridOptions,
    /// Another build of weft, that takes part as `beside`.
    pub(crate) beside: Option<PathBuf>,
    /// How long a turn is, where that was said.
    pub(crate) turn: Option<Duration>,
}

/// Caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(200);
/// In a shorter turn somebody may well get no answer, and gets it in the next.
const LATE_MIN: Duration = Duration::from_millis(100);
/// Where long bodies go through connections that are new in each turn.
const WARM_UP_AGAIN: Duration = Duration::from_millis(100);
/// The name of the other build.
const BESIDE: &str = "beside";

pub(crate) fn run(options: &TurnOptions) -> Result<()> {
    let mut peers = grid::prepare(&options.grid)?;
    let mut distance = Distance::survey(options.grid.cores, options.grid.apart)?;
    for workload in &options.grid.workloads {
        let subjects = peers.subjects.clone();
        let mut contestants = start(&mut peers, &subjects, workload)?;
        if let Some(build) = &options.beside {
            let subject = Subject::Weft { engine: None };
            let server = peers.start_build(build, &subject, workload)?;
            contestants.push(Contestant::new(BESIDE.to_owned(), server, &subject, workload)?);
        }
        let turn = options.turn.unwrap_or_else(|| workload.turn());
        measure(&mut contestants, options.grid.rounds, turn, &mut distance)?;
        io::stdout().write_all(table::table(workload, turn, &contestants).as_bytes())?;
    }
    Ok(())
}

/// One server and the connections that ask it.
pub(crate) struct Contestant {
    pub(crate) name: String,
    server: Server,
    generator: Generator,
    /// What it is asked for at a fixed rate.
    per_s: Option<f64>,
    /// How large the kernel's buffers of a connection become is chance, of its first moments, and stays so: those of long bodies are new
    /// in each turn.
    reopens: bool,
    /// Made before its first turn, which has them.
    early_errors: u64,
    pub(crate) turns: Vec<Turn>,
    /// When its last turn began.
    used: Usage,
    is_charged: bool,
}

/// What a server did when it was its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// None: the cores were moved meanwhile.
    pub(crate) apart: Option<Apart>,
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    /// At a fixed rate: answers that are owed at its end.
    pub(crate) unanswered: u64,
    pub(crate) elapsed: Duration,
    /// And until its next one: what a server puts off counts. At a fixed rate it rests in between anyway, and pays for no more.
    pub(crate) cpu_us: f64,
}

impl Turn {
    /// Microseconds of the server's core for an answer, where the server is what the load waits for.
    fn us(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }

    /// Microseconds of CPU for an answer.
    fn cpu_us_each(&self) -> f64 {
        self.cpu_us / self.answers.max(1) as f64
    }
}

/// Those who can do what is asked, each with its connections.
pub(crate) fn start(peers: &mut Peers, subjects: &[Subject], workload: &Workload) -> Result<Vec<Contestant>> {
    let able = subjects.iter().filter(|subject| subject.can(workload.ask));
    able.map(|subject| {
        let server = peers.start(subject, workload)?;
        Contestant::new(subject.to_string(), server, subject, workload)
    })
    .collect()
}

impl Contestant {
    fn new(name: String, server: Server, subject: &Subject, workload: &Workload) -> Result<Self> {
        let workload = &*workload.of(subject);
        let group = workload.group();
        let body = expected(&server, subject, workload, group)?;
        let groups = std::slice::from_ref(group);
        let per_s = match workload.kind {
            Kind::Paced { per_s, .. } => Some(f64::from(per_s)),
            _ => None,
        };
        let generator = Generator::expecting(server.port, groups, &[&body], per_s.is_some())?;
        let (reopens, turns, used) = (workload.is_bulk(), Vec::new(), Usage::default());
        let (early_errors, is_charged) = (0, true);
        let mut one =
            Contestant { name, server, generator, per_s, reopens, early_errors, turns, used, is_charged };
        one.warm_up(WARM_UP)?;
        Ok(one)
    }

    /// Of this only errors count.
    fn warm_up(&mut self, time: Duration) -> Result<()> {
        self.early_errors += self.ask(time)?.iter().map(Tally::errors).sum::<u64>();
        Ok(())
    }

    fn ask(&mut self, time: Duration) -> Result<Vec<Tally>> {
        match self.per_s {
            Some(per_s) => Ok(vec![self.generator.drive_at(per_s, time)?]),
            None => self.generator.drive(time),
        }
    }

    fn take_turn(&mut self, time: Duration, distance: &mut Distance) -> Result<()> {
        let before = distance.apart()?;
        self.charge();
        if self.reopens {
            self.generator.reopen_all();
            self.warm_up(WARM_UP_AGAIN)?;
        }
        self.used = Usage::of(self.server.pid());
        let mut tallies = self.ask(time)?;
        if self.reopens {
            tallies.extend(self.generator.wait_for_all()?);
        } else if time >= LATE_MIN && self.per_s.is_none() {
            tallies.extend(self.generator.wait_for_late()?);
        }
        let unanswered = tallies.iter().map(|tally| tally.unanswered).sum();
        let apart = (distance.apart()? == before).then_some(before);
        let errors = tallies.iter().map(Tally::errors).sum::<u64>() + std::mem::take(&mut self.early_errors);
        let answers = tallies.iter().map(Tally::answers).sum();
        let elapsed = tallies.iter().map(|tally| tally.elapsed).sum();
        self.turns.push(Turn { apart, answers, errors, unanswered, elapsed, cpu_us: 0.0 });
        self.is_charged = false;
        if self.per_s.is_some() {
            self.charge();
        }
        self.server.check()
    }

    /// The last turn has all CPU that was used since it began.
    fn charge(&mut self) {
        if let Some(last) = self.turns.last_mut().filter(|_| !self.is_charged) {
            last.cpu_us = Usage::of(self.server.pid()).cpu_us_since(&self.used);
        }
        self.is_charged = true;
    }
}

/// What was never answered at a fixed rate, of who did not keep up: it is worth as much as an error. In up to half of its turns it may be the machine.
pub(crate) fn owed(turns: &[Turn]) -> u64 {
    let is_late = |turn: &&Turn| {
        !keeps_up(Some(turn.unanswered as f64), turn.answers as f64 / turn.elapsed.as_secs_f64())
    };
    let late: Vec<u64> = turns.iter().filter(is_late).map(|turn| turn.unanswered).collect();
    if 2 * late.len() > turns.len() { late.iter().sum() } else { 0 }
}

/// Everybody begins in turn, so that none always follows the same one.
pub(crate) fn measure(
    contestants: &mut [Contestant],
    rounds: usize,
    turn: Duration,
    distance: &mut Distance,
) -> Result<()> {
    let start = Instant::now();
    for round in 0..rounds {
        interrupt::check()?;
        let count = contestants.len();
        for at in 0..count {
            contestants[(round + at) % count].take_turn(turn, distance)?;
        }
    }
    contestants.iter_mut().for_each(Contestant::charge);
    eprintln!("{rounds} turns each, {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
