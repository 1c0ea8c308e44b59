//! Keeps one line a commit, and warns if a commit is worse than the best of the last ones. Ratios to servers of the same run decide, and
//! only runs on the same CPU are compared: ratios change by a third from one CPU to another.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::args::count;
use crate::failure::{Failure, Result};
use crate::measure::Metric;
use crate::report::charts::{Series, lines, svg};
use crate::report::table::short;
use crate::report::{decides, write};
use crate::results::{Cell, Column, Results};

/// A commit below this share of the best is warned of.
const LEAST: f64 = 0.8;
/// Commits that are drawn.
const DRAWN_MAX: usize = 200;

#[derive(Args, Debug)]
pub(crate) struct TrackArgs {
    /// What --json has written
    #[arg(value_name = "RUN.json")]
    run: PathBuf,
    /// JSON lines, one a commit and CPU. The run is added
    #[arg(long, value_name = "PATH", default_value = "bench-history.jsonl")]
    history: PathBuf,
    /// Draw requests/s and ratios over the commits, into this folder
    #[arg(long, value_name = "FOLDER")]
    charts: Option<PathBuf>,
    /// Commits to compare with
    #[arg(long, value_name = "N", default_value = "20", value_parser = count(1, 10_000))]
    last: usize,
}

/// What a commit reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    commit: String,
    when: String,
    cpu: String,
    /// By workload and engine: `health-64 weft:adaptive`.
    figures: BTreeMap<String, Track>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Track {
    requests_per_s: f64,
    p99_ms: f64,
    /// Errors, and rounds that gave no figures: the server did not start, ended, or answered wrong.
    errors: f64,
    failed_rounds: usize,
    /// How near it is to nginx and to the floor: by CPU a request, or by rate if handlers block. 1 is there, more is better.
    of_nginx: Option<f64>,
    of_floor: Option<f64>,
}

/// Adds a run to the history, warns, and draws the charts. Fails if answers were wrong, or rounds failed.
pub(crate) fn track(args: &TrackArgs) -> Result<()> {
    let now = entry(Results::read(&args.run)?)?;
    let mut history = read(&args.history)?;
    let before = history.iter().filter(|entry| entry.cpu == now.cpu && entry.commit != now.commit);
    let before: Vec<&Entry> = before.collect();
    let last = &before[before.len().saturating_sub(args.last)..];
    println!("{} commits on this CPU to compare with", last.len());
    for warning in warnings(&now, last) {
        println!("::warning::{warning}");
    }
    // A commit that is measured again on the same CPU has one line, the last.
    history.retain(|kept| (&kept.commit, &kept.cpu) != (&now.commit, &now.cpu));
    history.push(now.clone());
    let lines: serde_json::Result<Vec<String>> = history.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| Failure::step("JSON", error))?;
    write(&args.history, &(lines.join("\n") + "\n"))?;
    if let Some(folder) = &args.charts {
        fs::create_dir_all(folder).map_err(|error| Failure::step(folder.display(), error))?;
        let drawn = &history[history.len().saturating_sub(DRAWN_MAX)..];
        write(&folder.join("requests.svg"), &chart(drawn, &[("weft", |track| Some(track.requests_per_s))])?)?;
        write(&folder.join("p99.svg"), &chart(drawn, &[("weft", |track| Some(track.p99_ms))])?)?;
        write(&folder.join("ratios.svg"), &chart(drawn, &RATIOS)?)?;
    }
    let broken: Vec<String> = now.figures.iter().filter_map(|(name, track)| track.broken(name)).collect();
    if broken.is_empty() { Ok(()) } else { Err(Failure::Run(broken.join("\n"))) }
}

/// A figure over the commits, and the name of its line.
type Figure = (&'static str, fn(&Track) -> Option<f64>);

const RATIOS: [Figure; 2] = [("floor", |track| track.of_floor), ("nginx", |track| track.of_nginx)];

/// Names each ratio under 80 % of the best, and each that is gone.
fn warnings(now: &Entry, last: &[&Entry]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (what, of) in RATIOS {
        let mut best: BTreeMap<&String, (f64, &String)> = BTreeMap::new();
        for (entry, (name, track)) in
            last.iter().flat_map(|entry| entry.figures.iter().map(move |one| (entry, one)))
        {
            let ratio = of(track).filter(|_| track.broken(name).is_none());
            if let Some(ratio) = ratio.filter(|ratio| best.get(name).is_none_or(|known| *ratio > known.0)) {
                best.insert(name, (ratio, &entry.commit));
            }
        }
        for (name, (best, commit)) in best {
            let now = now.figures.get(name).and_then(of);
            if now.is_none_or(|now| now < best * LEAST) {
                let now = now.map_or("not measured".to_owned(), |now| format!("{now:.3}"));
                warnings.push(format!("{name} of {what}: {now}, was {best:.3} at {commit}"));
            }
        }
    }
    warnings
}

impl Track {
    /// Says why its figures mean nothing: it ended early, answered wrong, or not at all.
    fn broken(&self, name: &str) -> Option<String> {
        let Track { errors, failed_rounds, requests_per_s, .. } = self;
        let is_broken = *failed_rounds > 0 || *errors > 0.0 || *requests_per_s == 0.0;
        is_broken.then(|| {
            format!("{name}: {failed_rounds} failed rounds, {errors} errors, {requests_per_s:.0} requests/s")
        })
    }
}

/// Refuses a run without a commit: all of them would pass for one commit, and each would replace the last.
fn entry(results: Results) -> Result<Entry> {
    if results.commit.is_empty() {
        let why = "the run does not say which commit it is of: measure again without --weft, in a checkout that git knows";
        return Err(Failure::Run(why.to_owned()));
    }
    let figures = figures(&results);
    Ok(Entry { figures, commit: results.commit, when: results.when, cpu: results.machine.cpu })
}

/// Keeps our engines, if they made requests or failed to.
fn figures(results: &Results) -> BTreeMap<String, Track> {
    let mut figures = BTreeMap::new();
    for column in &results.workloads {
        let ours = column.cells.iter().filter(|cell| cell.subject.starts_with("weft"));
        for cell in ours.filter(|cell| cell.failed_rounds > 0 || cell.median(Metric::RATE).is_some()) {
            let track = Track {
                requests_per_s: cell.median(Metric::RATE).unwrap_or(0.0),
                p99_ms: cell.median(Metric::P99_MS).unwrap_or(0.0),
                errors: cell.errors,
                failed_rounds: cell.failed_rounds,
                of_nginx: share(column, cell, "nginx"),
                of_floor: share(column, cell, "floor"),
            };
            figures.insert(format!("{} {}", column.name, cell.subject), track);
        }
    }
    figures
}

/// None: the other server is not there, or its figures mean nothing, as it made errors or failed.
fn share(column: &Column, cell: &Cell, other: &str) -> Option<f64> {
    if column.cell(other).is_some_and(|other| other.errors > 0.0 || other.failed_rounds > 0) {
        return None;
    }
    match decides(&column.name) {
        Metric::RATE => cell.ratios.get(&format!("requests_per_s_over_{other}")).copied(),
        _ => cell.ratios.get(&format!("cpu_over_{other}")).map(|ratio| 1.0 / ratio),
    }
}

/// Reads the lines of a history. The first run has no history.
fn read(path: &Path) -> Result<Vec<Entry>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::step(path.display(), error))?;
    let parse = |(at, line)| {
        serde_json::from_str(line)
            .map_err(|error| Failure::step(format!("{}, line {}", path.display(), at + 1), error))
    };
    text.lines().enumerate().map(parse).collect()
}

/// Draws figures over the commits, a panel a workload and engine.
fn chart(history: &[Entry], figures: &[Figure]) -> Result<String> {
    const PANEL: (u32, u32) = (420, 200);
    let mut names: Vec<&String> = history.iter().flat_map(|entry| entry.figures.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.len().div_ceil(2).max(1);
    svg((2 * PANEL.0, rows as u32 * PANEL.1), |area| {
        for (panel, name) in area.split_evenly((rows, 2)).iter().zip(names) {
            let series = figures.iter().map(|(line, of)| Series {
                name: line,
                points: history
                    .iter()
                    .enumerate()
                    .filter_map(|(at, entry)| Some((at as f64, of(entry.figures.get(name)?)?)))
                    .collect(),
            });
            let series: Vec<Series<'_>> = series.collect();
            let all = series.iter().flat_map(|series| &series.points).map(|(_, value)| *value);
            let most = all.fold(0.0, f64::max) * 1.1;
            let x = 0.0..(history.len() as f64 - 1.0).max(1.0);
            if most > 0.0 {
                lines(panel, [name.as_str(), ""], x, 0.0..most, &|_| String::new(), &short, &series)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
