//! Who is first at what? By CPU a request where handlers do not block, by requests/s where they do; and only
//! who makes no errors can be first.

use crate::measure::Metric;
use crate::procs::pin::Span;
use crate::results::{Cell, Column, Results, Score, major_minor};
use crate::workloads::{self, UNKNOWN, keeps_up, why_lost};

use super::svg::short;

/// A figure of a column that decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) more_is_better: bool,
}

pub(super) const RATE: Measure = Measure { key: "requests_per_s", title: "requests/s", more_is_better: true };
pub(super) const CPU: Measure =
    Measure { key: "cpu_us_per_request", title: "CPU us a request", more_is_better: false };
const BYTES_EACH: Measure =
    Measure { key: "bytes_per_connection", title: "bytes a connection", more_is_better: false };

/// Within this of the first counts as first: machines are not more exact.
const TIE: f64 = 1.03;

/// What decides a column.
pub(super) fn decides(column: &Column) -> Measure {
    match workloads::decides(&column.name) {
        Metric::Rate => RATE,
        Metric::BytesEach => BYTES_EACH,
        _ => CPU,
    }
}

/// The cell's figure, if it may be compared: no round failed, nothing was answered wrong, and what was asked for was done.
pub(super) fn counts(results: &Results, cell: &Cell, measure: Measure) -> Option<f64> {
    let is_fair = cell.errors == 0.0 && cell.failed_rounds == 0 && results.is_honest(&cell.subject);
    let is_floor = cell.subject.starts_with("floor");
    let rate = cell.median("requests_per_s").unwrap_or(0.0);
    let keeps_up = keeps_up(cell.median("unanswered"), rate);
    // Nobody is judged by what was not measured: a server that used less than a tick.
    cell.median(measure.key).filter(|value| is_fair && keeps_up && !is_floor && *value > 0.0)
}

/// The best of a column, and its figure of the rounds.
pub(super) fn first<'r>(results: &Results, column: &'r Column, measure: Measure) -> Option<(&'r str, f64)> {
    let counted =
        column.cells.iter().filter_map(|cell| Some((cell.subject.as_str(), counts(results, cell, measure)?)));
    let ran_off = |name: &str| score(column, measure, name).map(|score| score.figure.median);
    let is_better = |one: (&str, f64), other: (&str, f64)| match (ran_off(one.0), ran_off(other.0)) {
        (Some(one), Some(other)) => better(measure, one, other),
        // Who was too far behind for the run-off is behind.
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => better(measure, one.1, other.1),
    };
    counted.reduce(|best, next| if is_better(next, best) { next } else { best })
}

/// How a subject did in the run-off, if that decides and it made no errors there.
pub(super) fn score<'r>(column: &'r Column, measure: Measure, subject: &str) -> Option<&'r Score> {
    let runoff = column.runoff.as_ref().filter(|_| measure == decides(column))?;
    runoff.scores.iter().find(|score| score.subject == subject && score.errors == 0.0)
}

fn better(measure: Measure, one: f64, other: f64) -> bool {
    if measure.more_is_better { one > other } else { one < other }
}

/// The default engine, by its own name or by that of the plain subject.
pub(super) fn ours(column: &Column) -> Option<&Cell> {
    column.cell("weft:adaptive").or_else(|| column.cell("weft"))
}

/// How the default engine stands in one column.
#[derive(Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) is_won: bool,
    pub(super) says: String,
    /// Where it is lost: why, as far as that is known.
    pub(super) why: String,
}

pub(super) fn standings(results: &Results) -> Vec<Standing> {
    results.workloads.iter().filter_map(|column| standing(results, column)).collect()
}

/// Where none of ours took part there is none; where ours made errors, it is lost. That another of our
/// engines is first is no loss: it is the same library.
fn standing(results: &Results, column: &Column) -> Option<Standing> {
    let measure = decides(column);
    let ours = ours(column)?;
    let theirs = |cell: &&Cell| !cell.subject.starts_with("weft") || cell.subject == ours.subject;
    let others = Column { cells: column.cells.iter().filter(theirs).cloned().collect(), ..column.clone() };
    let lost = |says: String, why: Option<&str>| {
        let why = why.and_then(|why| why.lines().next()).unwrap_or(UNKNOWN).to_owned();
        Some(Standing { is_won: false, says: format!("{}: {says}", column.name), why })
    };
    let Some(mine) = counts(results, ours, measure) else {
        let says = format!("{} errors, {} failed rounds", ours.errors, ours.failed_rounds);
        return lost(says, ours.why.as_deref());
    };
    if let Some(failed) = column.runoff.as_ref().and_then(|runoff| runoff.failed.as_deref()) {
        return lost("its run-off failed".to_owned(), Some(failed));
    }
    let scores = column.runoff.iter().flat_map(|runoff| &runoff.scores);
    let errors: f64 = scores.filter(|score| score.subject == ours.subject).map(|score| score.errors).sum();
    if errors > 0.0 {
        return lost(format!("{errors} errors in its run-off"), None);
    }
    let (name, best) = first(results, &others, measure)?;
    let (title, unit) = (format!("{} ({})", column.name, column.title), measure.title);
    let scores = [&ours.subject, name].map(|subject| score(column, measure, subject));
    let (mine, best, sure) = match scores {
        [Some(mine), Some(best)] => {
            let (turns, over_ours) =
                (column.runoff.as_ref().map_or(0, |runoff| runoff.turns), &best.over_ours);
            let parts = format!("{:.2} to {:.2} of ours", over_ours.low, over_ours.high);
            (
                mine.figure.median,
                best.figure.median,
                format!("; run-off of {turns} turns each, parts of it {parts}"),
            )
        }
        _ => (mine, best, apart(measure, ours, others.cell(name))),
    };
    let behind = if measure.more_is_better { best / mine } else { mine / best };
    let (percent, mine, best) = ((behind - 1.0) * 100.0, short(mine), short(best));
    let says = format!("{title}: {mine} {unit}, {name} {best}: {percent:.1} % behind{sure}");
    Some(Standing { is_won: behind <= TIE, says, why: why_lost(&column.name, name).to_owned() })
}

/// How far the rounds of both lie apart.
fn apart(measure: Measure, ours: &Cell, theirs: Option<&Cell>) -> String {
    match (ours.spread_percent(measure.key), theirs.and_then(|cell| cell.spread_percent(measure.key))) {
        (Some(ours), Some(theirs)) => format!("; our rounds lie {ours:.0} % apart, theirs {theirs:.0} %"),
        _ => String::new(),
    }
}

/// Options that say where the results go, and nothing of how they came about.
const OUTPUTS: [&str; 3] = ["--json", "--html", "--markdown"];

/// The command that measured it, to type again: without the outputs, and without the folders of a machine.
pub(super) fn command(results: &Results) -> String {
    let mut shown = "cargo run --release -p weftwork-bench --".to_owned();
    let mut words = results.command.split_ascii_whitespace();
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            (option, path) if OUTPUTS.contains(&option) => {
                if path.is_empty() {
                    words.next();
                }
            }
            _ => {
                let file = if word.starts_with('/') { word.rsplit('/').next() } else { None };
                shown.push(' ');
                shown.push_str(file.unwrap_or(word));
            }
        }
    }
    shown
}

/// What of ours was measured.
fn build(results: &Results) -> String {
    let is_given = |word: &str| word == "--weft" || word.starts_with("--weft=");
    match results.commit.as_str() {
        "" if results.command.split_ascii_whitespace().any(is_given) => "a build given by --weft".to_owned(),
        "" => "an unknown commit".to_owned(),
        commit => format!("commit {commit}"),
    }
}

/// When, on what, and how it was measured.
pub(super) fn how(results: &Results) -> String {
    let machine = &results.machine;
    let server = Span { first: results.server_core, count: results.server_cores };
    let load = Span { first: results.load_core, count: results.load_cores };
    format!(
        "{}, {}. {}, {} cores, {} GiB, Linux {}{}, {}. Server on {server}, load ({}) on {load}. {} of \
         {} s a cell, in turn{}; medians; {} minutes in all.{}",
        results.when,
        build(results),
        machine.cpu,
        machine.cores,
        machine.memory_gib,
        major_minor(&machine.kernel),
        match machine.congestion_control.as_str() {
            "" => String::new(),
            name => format!(" ({} for TCP)", name.to_uppercase()),
        },
        machine.rustc,
        results.load,
        if results.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", results.rounds) },
        results.seconds,
        match results.runoff_s {
            0.0 => String::new(),
            seconds => format!(
                ", and {seconds} s (eight turns at least) in the run-off of each column in which others were close to the first"
            ),
        },
        results.took_s.div_ceil(60),
        results.core_distances.map(|distances| format!(" {distances}")).unwrap_or_default(),
    )
}
