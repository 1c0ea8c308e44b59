//! What did the person ask for?

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::crowd::CrowdOptions;
use crate::failure::{Failure, Result};
use crate::floors::{Floor, FloorOptions};
use crate::instructions::InstructionOptions;
use crate::procs::distance::Apart;
use crate::procs::pin::Cores;
use crate::site::SiteOptions;
use crate::soak::SoakOptions;
use crate::subject::{self, Subject};
use crate::tracker::{CompareOptions, TrackOptions};
use crate::turns::TurnOptions;
use crate::workloads::{self, GRID, QUICK, Workload};
use crate::{events, held};

mod help;
mod router;
mod soak;
mod tracking;
mod turns;

#[derive(Debug)]
pub(crate) enum Command {
    Help(&'static str),
    Quick(GridOptions),
    Full(FullOptions),
    Router(GridOptions),
    Track(TrackOptions),
    Compare(CompareOptions),
    Report { results: PathBuf, html: Option<PathBuf>, markdown: Option<PathBuf> },
    Floor(FloorOptions),
    Site(SiteOptions),
    Events(CrowdOptions),
    Held(CrowdOptions),
    Soak(SoakOptions),
    SlowHeads(SoakOptions),
    Instructions(InstructionOptions),
    Turns(TurnOptions),
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadKind {
    Own,
    Wrk,
}

#[derive(Debug)]
pub(crate) struct GridOptions {
    pub(crate) rounds: usize,
    /// How long each of those who were close to the first of a column has the load once more, in turn.
    pub(crate) runoff: Duration,
    pub(crate) time: Duration,
    pub(crate) workloads: Vec<&'static Workload>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) cores: Cores,
    pub(crate) load: LoadKind,
    /// Connections of the idle workload.
    pub(crate) idle: usize,
    /// The engine of the plain subject `weft`.
    pub(crate) engine: Option<String>,
    /// Where the host moves the cores: which cells count, if not those where they mostly are.
    pub(crate) apart: Option<Apart>,
    /// A binary to measure instead of the one that would be built.
    pub(crate) weft: Option<PathBuf>,
    pub(crate) json: bool,
}

#[derive(Debug)]
pub(crate) struct FullOptions {
    pub(crate) grid: GridOptions,
    pub(crate) json: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
}

/// Measured time of each cell of `full`: there are many, and the shorter one is, the rarer the host moves the cores in it.
const FULL_TIME: Duration = Duration::from_millis(300);
/// With all that surrounds it a cell takes 0.6 s, and a fifth more where the host moves the cores; at a fixed rate 4.5 s, of
/// idle connections 10. With twenty contestants these are 630 cells a round, and once 120 and 19 of the others.
const FULL_ROUNDS: usize = 2;
/// Two rounds of 0.3 s do not tell apart who is close: columns that were lost by 6 to 29 % in such runs were won in turns. Of 40
/// columns some 30 have a run-off, of four on average.
const RUNOFF: Duration = Duration::from_secs(4);

impl Default for GridOptions {
    fn default() -> Self {
        GridOptions {
            rounds: 5,
            runoff: Duration::ZERO,
            time: Duration::from_secs(1),
            workloads: QUICK.iter().collect(),
            subjects: ["floor", "nginx", "weft"].into_iter().filter_map(|name| name.parse().ok()).collect(),
            cores: Cores::default(),
            apart: None,
            load: LoadKind::Own,
            idle: 9_000,
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
            Some("full") => full(&mut parser),
            Some("router") => router::router(&mut parser),
            Some("turns") => turns::turns(&mut parser),
            Some("report") => report(&mut parser),
            Some("track") => tracking::track(&mut parser),
            Some("compare") => tracking::compare(&mut parser),
            Some("floor") => floor(&mut parser),
            Some("site") => router::site(&mut parser),
            Some("events") => {
                let options = CrowdOptions::default().parse(&mut parser)?;
                Ok(options.map_or(Command::Help(events::HELP), Command::Events))
            }
            Some("held") => {
                let options = held::defaults().parse(&mut parser)?;
                Ok(options.map_or(Command::Help(held::HELP), Command::Held))
            }
            Some("instructions") => instructions(&mut parser),
            Some("soak") => soak::soak(&mut parser),
            Some("slow-heads") => soak::slow_heads(&mut parser),
            Some("help") => Ok(Command::Help(help::ROOT)),
            _ => Err(Failure::Usage(format!(
                "unknown command {name:?}: quick, full, router, turns, report, track, compare, instructions, events, held, floor, site, soak or slow-heads"
            ))),
        },
        Some(other) => Err(other.unexpected().into()),
    }
}

fn quick(parser: &mut Parser) -> Result<Command> {
    let mut options = GridOptions::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("json") => options.json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::QUICK)),
            Arg::Long(name) => {
                let name = name.to_owned();
                grid(&name, parser, &QUICK, &mut options)?;
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.check()?;
    Ok(Command::Quick(options))
}

fn full(parser: &mut Parser) -> Result<Command> {
    let mut options = FullOptions {
        grid: GridOptions {
            time: FULL_TIME,
            rounds: FULL_ROUNDS,
            runoff: RUNOFF,
            workloads: GRID.iter().collect(),
            subjects: subject::all(),
            ..GridOptions::default()
        },
        json: None,
        html: None,
        markdown: None,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("json") => options.json = Some(parser.value()?.into()),
            Arg::Long("html") => options.html = Some(parser.value()?.into()),
            Arg::Long("markdown") => options.markdown = Some(parser.value()?.into()),
            Arg::Long("runoff") => options.grid.runoff = parser.value()?.parse_with(seconds_or_none)?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::FULL)),
            Arg::Long(name) => {
                let name = name.to_owned();
                grid(&name, parser, &GRID, &mut options.grid)?;
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.grid.check()?;
    Ok(Command::Full(options))
}

/// An option that `quick` and `full` share.
fn grid(
    name: &str,
    parser: &mut Parser,
    table: &'static [Workload],
    options: &mut GridOptions,
) -> Result<()> {
    match name {
        "rounds" => options.rounds = parser.value()?.parse()?,
        "seconds" => options.time = parser.value()?.parse_with(seconds)?,
        "only" => options.workloads = list(&parser.value()?.string()?, |name| workloads_named(table, name))?,
        "subjects" => {
            options.subjects = list(&parser.value()?.string()?, |name| Ok(vec![name.parse()?]))?;
        }
        "cores" => options.cores = parser.value()?.parse()?,
        "distance" => options.apart = Some(parser.value()?.parse_with(apart)?),
        "load" => options.load = parser.value()?.parse_with(load_kind)?,
        "idle" => options.idle = parser.value()?.parse()?,
        "engine" => options.engine = Some(parser.value()?.string()?),
        "weft" => options.weft = Some(parser.value()?.into()),
        _ => return Err(Arg::Long(name).unexpected().into()),
    }
    Ok(())
}

impl GridOptions {
    fn check(&self) -> Result<()> {
        within("--rounds", self.rounds, 1, 100)?;
        within("--idle", self.idle, 1, 1_000_000)
    }
}

fn report(parser: &mut Parser) -> Result<Command> {
    let (mut results, mut html, mut markdown) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(path) if results.is_none() => results = Some(path.into()),
            Arg::Long("html") => html = Some(parser.value()?.into()),
            Arg::Long("markdown") => markdown = Some(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::REPORT)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let results = results.ok_or_else(|| Failure::Usage("report needs the JSON of a run".to_owned()))?;
    if html.is_none() && markdown.is_none() {
        return Err(Failure::Usage("report needs --html PATH or --markdown PATH, or both".to_owned()));
    }
    Ok(Command::Report { results, html, markdown })
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
        loops: 1,
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
            Arg::Long("loops") => options.loops = parser.value()?.parse()?,
            Arg::Long("answer-bytes") => options.answer_bytes = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::FLOOR)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.floor = floor.ok_or_else(|| Failure::Usage("which floor: epoll or threads?".to_owned()))?;
    options.port = port.ok_or_else(|| Failure::Usage("floor needs --port N".to_owned()))?;
    within("--loops", options.loops, 1, 1024)?;
    within("--answer-bytes", options.answer_bytes, 1, 64 * 1024)?;
    Ok(Command::Floor(options))
}

fn instructions(parser: &mut Parser) -> Result<Command> {
    let mut options = InstructionOptions::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("check") => options.check = true,
            Arg::Long("same-toolchain") => options.same_toolchain = true,
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

fn workloads_named(
    table: &'static [Workload],
    name: &str,
) -> std::result::Result<Vec<&'static Workload>, String> {
    let found = workloads::named(table, name);
    if found.is_empty() {
        let names: Vec<_> = table.iter().map(|workload| workload.name.as_str()).collect();
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

fn seconds_or_none(text: &str) -> std::result::Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text) }
}

fn apart(text: &str) -> std::result::Result<Apart, &'static str> {
    match text {
        "far" => Ok(Apart::Far),
        "near" => Ok(Apart::Near),
        _ => Err("far or near"),
    }
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
