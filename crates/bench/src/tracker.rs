//! Has a commit made weft slower? One line a commit, compared with the best of the last ones by ratios to the floor
//! and to nginx of the same run, with commits that were measured on the same CPU: ratios change by a third from one to another.

mod action;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::full::write;
use crate::page;
use crate::results::{Cell, Column, Results};

#[derive(Debug)]
pub(crate) struct TrackOptions {
    /// The JSON of a run of `full`.
    pub(crate) run: PathBuf,
    pub(crate) history: PathBuf,
    /// Ratios and absolute figures, as the usual benchmark action reads them.
    pub(crate) bigger: Option<PathBuf>,
    pub(crate) smaller: Option<PathBuf>,
    /// The page that draws the trend.
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct CompareOptions {
    pub(crate) run: PathBuf,
    pub(crate) history: PathBuf,
    /// Commits that are compared with.
    pub(crate) last: usize,
    /// The least share of the best.
    pub(crate) least: f64,
}

/// What a commit reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) commit: String,
    pub(crate) when: String,
    pub(crate) cpu: String,
    /// By workload and engine: `health-64 weft:adaptive`.
    pub(crate) figures: BTreeMap<String, Track>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Track {
    pub(crate) requests_per_s: f64,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) p99_ms: f64,
    pub(crate) errors: f64,
    /// Rounds that gave no figures: the server did not start, died, or answered wrong.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(crate) failed_rounds: usize,
    /// How near to the floor, 1 is there: by CPU a request, or by rate where handlers block. More is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) of_floor: Option<f64>,
    /// The same against nginx.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) of_nginx: Option<f64>,
}

/// Adds a run to the history, and makes what is wanted of it.
pub(crate) fn track(options: &TrackOptions) -> Result<()> {
    let entry = read_run(&options.run)?;
    keep(&options.history, &entry)?;
    if let Some(path) = &options.bigger {
        write(path, &action::bigger(&entry)?)?;
    }
    if let Some(path) = &options.smaller {
        write(path, &action::smaller(&entry)?)?;
    }
    if let Some(path) = &options.html {
        write(path, &page::trend(&read(&options.history)?))?;
    }
    Ok(())
}

/// Fails where a run is broken, has lost figures, or is worse than the best of the last ones.
pub(crate) fn compare(options: &CompareOptions) -> Result<()> {
    let now = read_run(&options.run)?;
    let history = read(&options.history)?;
    let before: Vec<&Entry> = history.iter().filter(|entry| is_comparable(entry, &now)).collect();
    let last = &before[before.len().saturating_sub(options.last)..];
    let lines = compared(&now, last);
    write_lines(&mut io::stdout().lock(), &lines, last.len())?;
    let worse = lines.iter().filter(|line| line.now < line.best * options.least).map(Line::alert);
    let alerts: Vec<String> = broken(&now).into_iter().chain(lost(&now, last)).chain(worse).collect();
    match alerts.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!(
            "broken, lost, or under {:.0} % of the best:\n{}",
            options.least * 100.0,
            alerts.join("\n")
        ))),
    }
}

fn write_lines(out: &mut impl Write, lines: &[Line], commits: usize) -> io::Result<()> {
    if commits == 0 {
        return writeln!(out, "no history on this CPU: there is nothing to compare this run with");
    }
    let (share, ratio) = ("share of", "now/best");
    writeln!(out, "{share:<40} {:>8} {:>8} {ratio:>8}  best of {commits} commits", "now", "best")?;
    for Line { name, now, best, commit } in lines {
        writeln!(out, "{name:<40} {now:>8.3} {best:>8.3} {:>8.2}  {commit}", now / best)?;
    }
    Ok(())
}

/// Another commit, on the same CPU. (On one and another, what 1 ms of blocking with 100 connections has of the floor was 1.24
/// and 0.92 with the same code.)
fn is_comparable(before: &Entry, now: &Entry) -> bool {
    before.cpu == now.cpu && before.commit != now.commit
}

/// A ratio that is compared.
pub(crate) type Share = fn(&Track) -> Option<f64>;

const SHARES: [(&str, Share); 2] = [("floor", |track| track.of_floor), ("nginx", |track| track.of_nginx)];

/// One ratio, and the best one before.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    now: f64,
    best: f64,
    /// Whose it is.
    commit: String,
}

impl Line {
    fn alert(&self) -> String {
        format!("  {}: {:.3}, was {:.3} at {}", self.name, self.now, self.best, self.commit)
    }
}

fn compared(now: &Entry, before: &[&Entry]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, track) in &now.figures {
        for (what, of) in SHARES {
            let sound =
                |entry: &&Entry| entry.figures.get(name).filter(|track| !track.is_broken()).and_then(of);
            let values = before.iter().filter_map(|entry| Some((sound(entry)?, &entry.commit)));
            let best = values.reduce(|best, next| if next.0 > best.0 { next } else { best });
            let (Some(now), Some((best, commit))) = (of(track), best) else { continue };
            lines.push(Line { name: format!("{what}: {name}"), now, best, commit: commit.clone() });
        }
    }
    lines
}

impl Track {
    /// It crashed, answered wrong, or not at all: what figures it has mean nothing.
    fn is_broken(&self) -> bool {
        self.failed_rounds > 0 || self.errors > 0.0 || self.requests_per_s == 0.0
    }
}

/// Whose answers were wrong or did not come.
fn broken(now: &Entry) -> Vec<String> {
    let broken = now.figures.iter().filter(|(_, track)| track.is_broken());
    let alert = |(name, track): (&String, &Track)| {
        let Track { errors, failed_rounds, requests_per_s, .. } = track;
        format!("  {name}: {failed_rounds} failed rounds, {errors} errors, {requests_per_s:.0} requests/s")
    };
    broken.map(alert).collect()
}

/// What any of these runs has measured, and this one has not: figures and ratios.
fn lost(now: &Entry, before: &[&Entry]) -> Vec<String> {
    let mut alerts = Vec::new();
    let names: BTreeSet<&String> = before.iter().flat_map(|entry| entry.figures.keys()).collect();
    for name in names.into_iter().filter(|name| !now.figures.contains_key(*name)) {
        let had = before.iter().rev().find(|entry| entry.figures.contains_key(name));
        alerts.extend(had.map(|entry| format!("  {name}: not measured, was at {}", entry.commit)));
    }
    for (name, track) in &now.figures {
        for (what, of) in SHARES.iter().filter(|(_, of)| of(track).is_none()) {
            let had = before.iter().rev().find(|entry| entry.figures.get(name).and_then(*of).is_some());
            alerts
                .extend(had.map(|entry| format!("  {what}: {name}: no ratio, had one at {}", entry.commit)));
        }
    }
    alerts
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Runs without a commit would pass for one commit: each would replace the last.
fn read_run(path: &Path) -> Result<Entry> {
    let results = Results::read(path)?;
    if results.commit.is_empty() {
        return Err(Failure::Run(format!(
            "{}: it does not say which commit was measured: it was a build given by --weft, or git could not describe the \
             checkout. Measure again without --weft, in a checkout that git knows",
            path.display()
        )));
    }
    Ok(entry(&results))
}

/// What of a run is kept: our engines, wherever they made requests, or failed to.
fn entry(results: &Results) -> Entry {
    let mut figures = BTreeMap::new();
    for column in &results.workloads {
        let ours = column.cells.iter().filter(|cell| cell.subject.starts_with("weft"));
        for cell in ours.filter(|cell| cell.failed_rounds > 0 || cell.median("requests_per_s").is_some()) {
            let figure = |key: &str| cell.median(key).unwrap_or(0.0);
            let track = Track {
                requests_per_s: figure("requests_per_s"),
                cpu_us_per_request: figure("cpu_us_per_request"),
                p99_ms: figure("p99_ms"),
                errors: cell.errors,
                failed_rounds: cell.failed_rounds,
                of_floor: share(column, cell, "floor"),
                of_nginx: share(column, cell, "nginx"),
            };
            figures.insert(format!("{} {}", column.name, cell.subject), track);
        }
    }
    Entry {
        commit: results.commit.clone(),
        when: results.when.clone(),
        cpu: results.machine.cpu.clone(),
        figures,
    }
}

/// More is better, 1 is as good as the other; none where the other one made errors, or failed: its figures mean nothing.
fn share(column: &Column, cell: &Cell, other: &str) -> Option<f64> {
    if column.cell(other).is_some_and(|other| other.errors > 0.0 || other.failed_rounds > 0) {
        return None;
    }
    match page::is_decided_by_rate(column) {
        true => cell.ratios.get(&format!("requests_per_s_over_{other}")).copied(),
        false => cell.ratios.get(&format!("cpu_over_{other}")).map(|ratio| 1.0 / ratio),
    }
}

/// The lines of a history; none before the first.
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

/// A commit that is measured again on the same CPU has one line, the last.
fn keep(path: &Path, entry: &Entry) -> Result<()> {
    let mut history = read(path)?;
    history.retain(|kept| (&kept.commit, &kept.cpu) != (&entry.commit, &entry.cpu));
    history.push(entry.clone());
    let lines: serde_json::Result<Vec<String>> = history.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| Failure::step("JSON", error))?;
    write(path, &(lines.join("\n") + "\n"))
}
