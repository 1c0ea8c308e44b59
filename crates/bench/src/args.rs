//! What did the person ask for?

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::failure::{Failure, Result};
use crate::floors::{Floor, FloorOptions};
use crate::instructions::InstructionOptions;
use crate::procs::pin::Cores;
use crate::subject::Subject;
use crate::workloads::{self, Workload};

mod help;

#[derive(Debug)]
pub(crate) enum Command {
    Help(&'static str),
    Quick(QuickOptions),
    Floor(FloorOptions),
    Instructions(InstructionOptions),
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadKind {
    Own,
    Wrk,
}

#[derive(Debug)]
pub(crate) struct QuickOptions {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) workloads: Vec<&'static Workload>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) cores: Cores,
    pub(crate) load: LoadKind,
    /// Connections of the idle workload.
    pub(crate) idle: usize,
    /// The engine of the plain subject `weft`.
    pub(crate) engine: Option<String>,
    /// A binary to measure instead of the one that would be built.
    pub(crate) weft: Option<PathBuf>,
    pub(crate) json: bool,
}

impl Default for QuickOptions {
    fn default() -> Self {
        QuickOptions {
            rounds: 3,
            time: Duration::from_secs(2),
            workloads: workloads::ALL.iter().collect(),
            subjects: vec![Subject::Floor, Subject::Nginx, Subject::Weft { engine: None }],
            cores: Cores { server: 0, load: 1 },
            load: LoadKind::Own,
            idle: 15_000,
            engine: None,
            weft: None,
            json: false,
        }
    }
}

pub(crate) fn parse(mut parser: Parser) -> Result<Command> {
    match parser.next()? {
        None | Some(Arg::Short('h') | Arg::Long("help")) => Ok(Command::Help(help::ROOT)),
        Some(Arg::Value(name)) => match name.to_str() {
            Some("quick") => quick(&mut parser),
            Some("floor") => floor(&mut parser),
            Some("instructions") => instructions(&mut parser),
            Some("help") => Ok(Command::Help(help::ROOT)),
            _ => Err(Failure::Usage(format!("unknown command {name:?}: quick, instructions or floor"))),
        },
        Some(other) => Err(other.unexpected().into()),
    }
}

fn quick(parser: &mut Parser) -> Result<Command> {
    let mut options = QuickOptions::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("rounds") => options.rounds = parser.value()?.parse()?,
            Arg::Long("seconds") => options.time = parser.value()?.parse_with(seconds)?,
            Arg::Long("only") => options.workloads = list(&parser.value()?.string()?, workloads_named)?,
            Arg::Long("subjects") => {
                options.subjects = list(&parser.value()?.string()?, |name| Ok(vec![name.parse()?]))?;
            }
            Arg::Long("cores") => options.cores = parser.value()?.parse_with(cores)?,
            Arg::Long("load") => options.load = parser.value()?.parse_with(load_kind)?,
            Arg::Long("idle") => options.idle = parser.value()?.parse()?,
            Arg::Long("engine") => options.engine = Some(parser.value()?.string()?),
            Arg::Long("weft") => options.weft = Some(parser.value()?.into()),
            Arg::Long("json") => options.json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::QUICK)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    within("--rounds", options.rounds, 1, 100)?;
    within("--idle", options.idle, 1, 1_000_000)?;
    Ok(Command::Quick(options))
}

fn floor(parser: &mut Parser) -> Result<Command> {
    let mut floor = None;
    let mut port = None;
    let mut options = FloorOptions {
        floor: Floor::Epoll,
        port: 0,
        close: false,
        pipelined: false,
        sleep: Duration::ZERO,
        spawn: false,
        answer_bytes: 130,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(name) if floor.is_none() => floor = Some(name.parse_with(floor_kind)?),
            Arg::Long("port") => port = Some(parser.value()?.parse()?),
            Arg::Long("close") => options.close = true,
            Arg::Long("pipelined") => options.pipelined = true,
            Arg::Long("sleep-ms") => options.sleep = Duration::from_millis(parser.value()?.parse()?),
            Arg::Long("spawn") => options.spawn = true,
            Arg::Long("answer-bytes") => options.answer_bytes = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::FLOOR)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.floor = floor.ok_or_else(|| Failure::Usage("which floor: epoll or threads?".to_owned()))?;
    options.port = port.ok_or_else(|| Failure::Usage("floor needs --port N".to_owned()))?;
    within("--answer-bytes", options.answer_bytes, 1, 64 * 1024)?;
    Ok(Command::Floor(options))
}

fn instructions(parser: &mut Parser) -> Result<Command> {
    let mut options = InstructionOptions::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("check") => options.check = true,
            Arg::Long("update") => options.update = true,
            Arg::Long("only") => {
                options.only = list(&parser.value()?.string()?, |name| Ok(vec![name.to_owned()]))?
            }
            Arg::Long("inside") => {
                options.inside = Some((parser.value()?.string()?, parser.value()?.parse()?));
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::INSTRUCTIONS)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Command::Instructions(options))
}

fn within(what: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Failure::Usage(format!("{what} must be from {least} to {most}, not {value}")))
}

/// Splits at commas; one name may stand for several things, and nothing is taken twice.
fn list<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> std::result::Result<Vec<T>, String>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for name in text.split(',') {
        for one in parse(name.trim()).map_err(Failure::Usage)? {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

fn workloads_named(name: &str) -> std::result::Result<Vec<&'static Workload>, String> {
    let found = workloads::named(name);
    if found.is_empty() {
        let names: Vec<_> = workloads::ALL.iter().map(|workload| workload.name).collect();
        return Err(format!("unknown workload '{name}': {}", names.join(", ")));
    }
    Ok(found)
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.2..=60.0).contains(&seconds) {
        return Err("from 0.2 to 60 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn cores(text: &str) -> std::result::Result<Cores, String> {
    let pair = text.split_once(',').and_then(|(server, load)| {
        Some(Cores { server: server.trim().parse().ok()?, load: load.trim().parse().ok()? })
    });
    pair.ok_or_else(|| "two core numbers, SERVER,LOAD".to_owned())
}

fn load_kind(text: &str) -> std::result::Result<LoadKind, &'static str> {
    match text {
        "own" => Ok(LoadKind::Own),
        "wrk" => Ok(LoadKind::Wrk),
        _ => Err("own or wrk"),
    }
}

fn floor_kind(text: &str) -> std::result::Result<Floor, &'static str> {
    match text {
        "epoll" => Ok(Floor::Epoll),
        "threads" => Ok(Floor::Threads),
        _ => Err("epoll or threads"),
    }
}

#[cfg(test)]
mod tests;
