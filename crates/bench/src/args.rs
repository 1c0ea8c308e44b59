//! The arguments that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{RangedU64ValueParser, TypedValueParser};

use crate::failure::{Failure, Result};
use crate::procs::pin::Cores;
use crate::subject::Subject;
use crate::workloads::{self, Workload};

/// Arguments of every command that starts weft.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerArgs {
    /// Engine of weft [default: its own]
    #[arg(long)]
    pub(crate) engine: Option<String>,
    /// Measure this binary instead of building weftwork-cli
    #[arg(long, value_name = "PATH")]
    pub(crate) weft: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cores: CoreArgs,
}

/// The argument `--cores`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct CoreArgs {
    /// Cores to pin to, or spans of them: 0-3,4-7 gives each server four, with as many workers, loops or GOMAXPROCS, and the load four threads
    #[arg(long, value_name = "SERVER,LOAD", default_value = "0,1")]
    pub cores: Cores,
}

/// Arguments of `quick`, `full` and `router`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GridArgs {
    /// Rounds. Medians over them are shown. Mixed and idle have one round in full, fixed rates two at most [default: 5 in
    /// quick, 2 in full, 15 in router]
    #[arg(long, value_name = "N", value_parser = count(1, 100))]
    pub(crate) rounds: Option<usize>,
    /// Measured time of each cell, after a short warm-up. At least 2 at a fixed rate, 1.2 in mixed, 1 for files of 10 MiB
    /// [default: 1, 0.3 in full]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Seconds that each server has the load once more, in turn with the others and in eight turns at least: the default
    /// engine, and up to four others that are within a quarter of a column's first by the medians, or within a tenth by their
    /// best round and its worst. That decides the column. 0: no run-off [default: 0, 4 in full]
    #[arg(long, value_name = "S", value_parser = seconds_or_zero)]
    pub(crate) runoff: Option<Duration>,
    /// Workloads, or families of them such as slow, file and rate [default: all of the command]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// floor, weft, weft:ENGINE, the server of another project, or bare and typed [default: floor,nginx,weft in quick; in full the floor,
    /// each engine, and every server of others that is installed; bare,typed in router]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub(crate) subjects: Vec<Subject>,
    /// Connections of the idle workload
    #[arg(long, value_name = "N", default_value_t = IDLE, value_parser = count(1, 1_000_000))]
    pub(crate) idle: usize,
    /// Write everything that was measured
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Write the page of docs/benchmarks.md, and its charts to a folder beside it
    #[arg(long, value_name = "PATH")]
    pub(crate) markdown: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const IDLE: usize = 9_000;

/// What `quick`, `full` and `router` measure.
#[derive(Debug)]
pub(crate) struct GridOptions {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) runoff: Duration,
    pub(crate) workloads: Vec<&'static Workload>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) args: GridArgs,
}

impl GridArgs {
    /// Fills in what was not given.
    pub(crate) fn options(
        mut self,
        rounds: usize,
        [time, runoff]: [Duration; 2],
        table: &'static [Workload],
        subjects: Vec<Subject>,
    ) -> Result<GridOptions> {
        let given = std::mem::take(&mut self.subjects);
        Ok(GridOptions {
            rounds: self.rounds.unwrap_or(rounds),
            time: self.seconds.unwrap_or(time),
            runoff: self.runoff.unwrap_or(runoff),
            workloads: chosen(table, &self.only)?,
            subjects: if given.is_empty() { subjects } else { given },
            args: self,
        })
    }
}

/// Returns the workloads of these names, or all. No workload is taken twice.
pub(crate) fn chosen(table: &'static [Workload], names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(table.iter().collect());
    }
    let mut all: Vec<&Workload> = Vec::new();
    for name in names {
        let found = workloads::named(table, name.trim());
        if found.is_empty() {
            let names: Vec<_> = table.iter().map(|workload| workload.name.as_str()).collect();
            return Err(Failure::Usage(format!("unknown workload '{name}': {}", names.join(", "))));
        }
        let is_new = |one: &&Workload| all.iter().all(|known| known.name != one.name);
        let new: Vec<_> = found.into_iter().filter(is_new).collect();
        all.extend(new);
    }
    Ok(all)
}

/// Accepts whole numbers in a range.
pub fn count(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// Accepts whole milliseconds in a range.
pub(crate) fn milliseconds(least: u64, most: u64) -> impl TypedValueParser<Value = Duration> {
    RangedU64ValueParser::<u64>::new().range(least..=most).map(Duration::from_millis)
}

pub(crate) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.2..=60.0).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err("must be from 0.2 to 60 seconds".to_owned())
}

fn seconds_or_zero(text: &str) -> std::result::Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text) }
}

#[cfg(test)]
mod tests;
