//! Compares servers to a per cent: all of them run at once, and have the load in turn for some hundredths of a second, or up to
//! one if that says too little. What the host does to the machine meanwhile happens to all. The middle half of the ratios lies 2 to
//! 5 % apart, and 15 to 50 % with cells that last seconds.

mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::args::{GridArgs, ServerArgs, chosen, count, milliseconds};
use crate::failure::{Failure, Result};
use crate::grid;
use crate::interrupt;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::measure::expected;
use crate::peers::Peers;
use crate::procs::distance::{Apart, Distance};
use crate::procs::server::Server;
use crate::procs::usage::Usage;
use crate::subject::{self, Subject};
use crate::workloads::{Kind, TURNS, Workload, keeps_up};
pub(crate) use table::TURNS_MIN;

#[derive(Args, Debug)]
pub(crate) struct TurnArgs {
    /// Turns of each server
    #[arg(long, value_name = "N", default_value = "300", value_parser = count(TURNS_MIN as u64, 10_000))]
    rounds: usize,
    /// Length of a turn [default: 30; 400 if handlers block, 300 with 8 MiB and more under way, 1000 at a fixed rate and for files of
    /// 10 MiB]
    #[arg(long, value_name = "N", value_parser = milliseconds(5, 10_000))]
    turn_ms: Option<Duration>,
    /// Workloads of quick and full, except mixed and idle
    #[arg(long, value_name = "A,B,..", value_delimiter = ',', default_value = "keepalive")]
    only: Vec<String>,
    /// As in quick. Ratios are to the first one [default: floor,nginx,weft]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// Another build of weft, on the default engine
    #[arg(long, value_name = "PATH")]
    beside: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(200);
/// In a shorter turn a connection may well get no answer, and gets it in the next.
const LATE_MIN: Duration = Duration::from_millis(100);
/// For long bodies, which go through connections that are new in each turn.
const WARM_UP_AGAIN: Duration = Duration::from_millis(100);
/// The name of the other build.
const BESIDE: &str = "beside";

pub(crate) fn run(args: &TurnArgs) -> Result<()> {
    let workloads = chosen(&TURNS, &args.only)?;
    if let Some(other) = workloads.iter().find(|one| !one.has_turns()) {
        return Err(Failure::Usage(format!("{}: only loads of one group of clients have turns", other.name)));
    }
    let subjects = if args.subjects.is_empty() { subject::quick() } else { args.subjects.clone() };
    let grid_args = GridArgs { server: args.server.clone(), ..GridArgs::default() };
    let mut peers = grid::prepare(&grid_args, &subjects, &workloads)?;
    let mut distance = Distance::survey(args.server.cores.cores)?;
    for workload in workloads {
        let subjects = peers.subjects.clone();
        let mut servers = start(&mut peers, &subjects, workload)?;
        if let Some(build) = &args.beside {
            let subject = Subject::Weft { engine: None };
            let server = peers.start_build(build, &subject, workload)?;
            servers.push(TurnServer::new(BESIDE.to_owned(), server, &subject, workload)?);
        }
        let turn = args.turn_ms.unwrap_or_else(|| workload.turn());
        measure(&mut servers, args.rounds, turn, &mut distance)?;
        io::stdout().write_all(table::table(workload, turn, &servers).as_bytes())?;
    }
    Ok(())
}

/// One server and the connections that ask it.
pub(crate) struct TurnServer {
    pub(crate) name: String,
    server: Server,
    generator: Generator,
    /// Requests a second, at a fixed rate.
    per_s: Option<f64>,
    /// Connections of long bodies are new in each turn: the size of the kernel's buffers of a connection is chance, of its first
    /// moments, and stays.
    reopens: bool,
    /// Errors before its first turn, which has them.
    early_errors: u64,
    pub(crate) turns: Vec<Turn>,
    /// Usage when its last turn began.
    used: Usage,
    is_charged: bool,
}

/// What a server did in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// None: the cores were moved meanwhile.
    pub(crate) apart: Option<Apart>,
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    /// At a fixed rate: answers that are owed at its end.
    pub(crate) unanswered: u64,
    pub(crate) elapsed: Duration,
    /// CPU until the next turn of the server: what a server puts off counts. At a fixed rate the server rests in between anyway, and CPU
    /// counts until the end of the turn.
    pub(crate) cpu_us: f64,
}

impl Turn {
    /// Microseconds of the server's core for an answer, if the load waits for the server.
    fn us(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }

    /// Microseconds of CPU for an answer.
    fn cpu_us_each(&self) -> f64 {
        self.cpu_us / self.answers.max(1) as f64
    }
}

/// Starts the servers that can do what is asked, each with its connections.
pub(crate) fn start(peers: &mut Peers, subjects: &[Subject], workload: &Workload) -> Result<Vec<TurnServer>> {
    let able = subjects.iter().filter(|subject| subject.takes(workload));
    able.map(|subject| {
        let server = peers.start(subject, workload)?;
        TurnServer::new(subject.to_string(), server, subject, workload)
    })
    .collect()
}

impl TurnServer {
    fn new(name: String, server: Server, subject: &Subject, workload: &Workload) -> Result<Self> {
        let workload = &*workload.of(subject);
        let group = workload.group();
        let body = expected(&server, subject, workload, group)?;
        let per_s = match workload.kind {
            Kind::Paced { per_s, .. } => Some(f64::from(per_s)),
            _ => None,
        };
        let groups = std::slice::from_ref(group);
        let generator = Generator::expecting(server.port, groups, &[&body], per_s.is_some())?;
        let (reopens, early_errors, turns) = (workload.is_bulk(), 0, Vec::new());
        let (used, is_charged) = (Usage::default(), true);
        let mut one =
            TurnServer { name, server, generator, per_s, reopens, early_errors, turns, used, is_charged };
        one.warm_up(WARM_UP)?;
        Ok(one)
    }

    /// Only errors of it count.
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
        self.turns.push(Turn {
            apart: (distance.apart()? == before).then_some(before),
            answers: tallies.iter().map(Tally::answers).sum(),
            errors: tallies.iter().map(Tally::errors).sum::<u64>() + std::mem::take(&mut self.early_errors),
            unanswered: tallies.iter().map(|tally| tally.unanswered).sum(),
            elapsed: tallies.iter().map(|tally| tally.elapsed).sum(),
            cpu_us: 0.0,
        });
        self.is_charged = false;
        if self.per_s.is_some() {
            self.charge();
        }
        self.server.check()
    }

    /// Gives the last turn all CPU that was used since it began.
    fn charge(&mut self) {
        if let Some(last) = self.turns.last_mut().filter(|_| !self.is_charged) {
            last.cpu_us = Usage::of(self.server.pid()).cpu_us_since(&self.used);
        }
        self.is_charged = true;
    }
}

/// Counts the answers that never came, of a server that did not keep up with a fixed rate: each is worth an error. In up to half of its
/// turns the machine may be the reason.
pub(crate) fn owed(turns: &[Turn]) -> u64 {
    let is_late = |turn: &&Turn| {
        !keeps_up(Some(turn.unanswered as f64), turn.answers as f64 / turn.elapsed.as_secs_f64())
    };
    let late: Vec<u64> = turns.iter().filter(is_late).map(|turn| turn.unanswered).collect();
    if 2 * late.len() > turns.len() { late.iter().sum() } else { 0 }
}

/// Gives each server its turns. Another one begins in each round, so that none always follows the same one.
pub(crate) fn measure(
    servers: &mut [TurnServer],
    rounds: usize,
    turn: Duration,
    distance: &mut Distance,
) -> Result<()> {
    let start = Instant::now();
    for round in 0..rounds {
        interrupt::check()?;
        let count = servers.len();
        for at in 0..count {
            servers[(round + at) % count].take_turn(turn, distance)?;
        }
    }
    servers.iter_mut().for_each(TurnServer::charge);
    eprintln!("{rounds} turns each, {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
