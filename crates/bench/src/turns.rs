//! How much does one request cost two servers, or more, where a tenth of a microsecond counts? All of them run at once, and one
//! after the other has the load for some hundredths of a second. What the host does to the machine meanwhile befalls all:
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
use crate::measure::expected;
use crate::peers::Peers;
use crate::procs::distance::{Apart, Distance};
use crate::procs::server::Server;
use crate::procs::usage::Usage;
use crate::subject::Subject;
use crate::workloads::Workload;

#[derive(Debug)]
pub(crate) struct TurnOptions {
    /// Its rounds are how often everybody has a turn.
    pub(crate) grid: GridOptions,
    /// Another build of weft, that takes part as `beside`.
    pub(crate) beside: Option<PathBuf>,
    /// How long a turn is, where that was said.
    pub(crate) turn: Option<Duration>,
}

/// Short beside the tenths of a second after which hosts move cores, long beside the 64 requests under way at its end.
const TURN: Duration = Duration::from_millis(30);
/// Where handlers block: servers take some ten milliseconds to find as many threads as that takes.
const TURN_BLOCKING: Duration = Duration::from_millis(400);
/// Caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(200);
/// The name of the other build.
const BESIDE: &str = "beside";

pub(crate) fn run(options: &TurnOptions) -> Result<()> {
    let mut peers = grid::prepare(&options.grid)?;
    let mut distance = Distance::survey(options.grid.cores, options.grid.apart)?;
    for workload in &options.grid.workloads {
        let mut contestants = start(options, &mut peers, workload)?;
        let default = if workload.sleep.is_zero() { TURN } else { TURN_BLOCKING };
        let turn = options.turn.unwrap_or(default);
        measure(&mut contestants, options.grid.rounds, turn, &mut distance)?;
        io::stdout().write_all(table::table(workload, turn, &contestants).as_bytes())?;
    }
    Ok(())
}

/// One server and the connections that ask it.
struct Contestant {
    name: String,
    server: Server,
    generator: Generator,
    turns: Vec<Turn>,
}

/// What a server did when it was its turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// None: the cores were moved meanwhile.
    apart: Option<Apart>,
    answers: u64,
    errors: u64,
    elapsed: Duration,
    cpu_us: f64,
}

impl Turn {
    /// Microseconds of the server's core for an answer, where the server is what the load waits for.
    fn us(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }
}

fn start(options: &TurnOptions, peers: &mut Peers, workload: &Workload) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::new();
    for subject in peers.subjects.clone().iter().filter(|subject| subject.can(workload.ask)) {
        let server = peers.start(subject, workload)?;
        contestants.push(Contestant::new(subject.to_string(), server, subject, workload)?);
    }
    if let Some(build) = &options.beside {
        let subject = Subject::Weft { engine: None };
        let server = peers.start_build(build, &subject, workload)?;
        contestants.push(Contestant::new(BESIDE.to_owned(), server, &subject, workload)?);
    }
    Ok(contestants)
}

impl Contestant {
    fn new(name: String, server: Server, subject: &Subject, workload: &Workload) -> Result<Self> {
        let workload = &*workload.of(subject);
        let body = expected(&server, subject, workload)?;
        let groups = std::slice::from_ref(workload.group());
        let mut generator = Generator::expecting(server.port, groups, Some(&body), false)?;
        generator.drive(WARM_UP)?;
        Ok(Contestant { name, server, generator, turns: Vec::new() })
    }

    fn take_turn(&mut self, time: Duration, distance: &mut Distance) -> Result<()> {
        let before = distance.apart()?;
        let used = Usage::of(self.server.pid());
        let tallies = self.generator.drive(time)?;
        let cpu_us = Usage::of(self.server.pid()).cpu_us_since(&used);
        let apart = (distance.apart()? == before).then_some(before);
        for tally in &tallies {
            let (answers, errors, elapsed) = (tally.answers(), tally.errors(), tally.elapsed);
            self.turns.push(Turn { apart, answers, errors, elapsed, cpu_us });
        }
        self.server.check()
    }
}

/// Everybody begins in turn, so that none always follows the same one.
fn measure(
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
    eprintln!("{rounds} turns each, {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
