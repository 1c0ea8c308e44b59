//! Decides who is first in a column: by CPU a request if handlers do not block, by requests/s if they do. Only a
//! server without errors can be first.

use crate::measure::Metric;
use crate::procs::pin::Span;
use crate::results::{Cell, Column, Results, Score, major_minor};
use crate::workloads::keeps_up;

use super::table::{first_line, short};
pub(crate) use crate::workloads::decides;

/// Within this of the first counts as first: machines are not more exact.
const TIE: f64 = 1.03;

/// Returns the cell's figure, if it may be compared: no round failed, no answer was wrong, and all that was asked for was
/// answered.
pub(crate) fn counts(results: &Results, cell: &Cell, metric: Metric) -> Option<f64> {
    let is_fair = cell.errors == 0.0 && cell.failed_rounds == 0 && results.is_honest(&cell.subject);
    let is_floor = cell.subject.starts_with("floor");
    let keeps_up = keeps_up(cell.median(Metric::UNANSWERED), cell.median(Metric::RATE).unwrap_or(0.0));
    // 0 is a figure that was not measured: less than a tick of CPU.
    cell.median(metric).filter(|value| is_fair && keeps_up && !is_floor && *value > 0.0)
}

/// Returns the best of a column, and its figure of the rounds.
pub(super) fn first<'r>(results: &Results, column: &'r Column, metric: Metric) -> Option<(&'r str, f64)> {
    let counted =
        column.cells.iter().filter_map(|cell| Some((cell.subject.as_str(), counts(results, cell, metric)?)));
    let ran_off = |name: &str| score(column, metric, name).map(|score| score.figure.median);
    let is_better = |one: (&str, f64), other: (&str, f64)| match (ran_off(one.0), ran_off(other.0)) {
        (Some(one), Some(other)) => metric.behind(other, one) > 1.0,
        // A server that was too far behind for the run-off is behind.
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => metric.behind(other.1, one.1) > 1.0,
    };
    counted.reduce(|best, next| if is_better(next, best) { next } else { best })
}

/// Returns how a server did in the run-off, if that decides and it made no errors there.
pub(super) fn score<'r>(column: &'r Column, metric: Metric, subject: &str) -> Option<&'r Score> {
    let runoff = column.runoff.as_ref().filter(|_| metric == decides(&column.name))?;
    runoff.scores.iter().find(|score| score.subject == subject && score.errors == 0.0)
}

/// Returns the default engine, by its own name or by that of the plain subject.
pub(super) fn ours(column: &Column) -> Option<&Cell> {
    column.cell("weft:adaptive").or_else(|| column.cell("weft"))
}

/// How the default engine stands in one column.
#[derive(Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) is_won: bool,
    pub(super) says: String,
}

pub(super) fn standings(results: &Results) -> Vec<Standing> {
    results.workloads.iter().filter_map(|column| standing(results, column)).collect()
}

/// A column with errors of ours is lost. Another engine of ours that is first is no loss: it is the same library.
fn standing(results: &Results, column: &Column) -> Option<Standing> {
    let metric = decides(&column.name);
    let ours = ours(column)?;
    let lost = |says: String| Some(Standing { is_won: false, says: format!("{}: {says}", column.name) });
    let Some(mine) = counts(results, ours, metric) else {
        let why = ours.why.as_deref().map_or(String::new(), |why| format!(": {}", first_line(why)));
        return lost(format!("{} errors, {} failed rounds{why}", ours.errors, ours.failed_rounds));
    };
    if let Some(failed) = column.runoff.as_ref().and_then(|runoff| runoff.failed.as_deref()) {
        return lost(format!("its run-off failed: {}", first_line(failed)));
    }
    let scores = column.runoff.iter().flat_map(|runoff| &runoff.scores);
    let errors: f64 = scores.filter(|score| score.subject == ours.subject).map(|score| score.errors).sum();
    if errors > 0.0 {
        return lost(format!("{errors} errors in its run-off"));
    }
    let mut rivals = column.clone();
    rivals.cells.retain(|cell| !cell.subject.starts_with("weft") || cell.subject == ours.subject);
    let (name, best) = first(results, &rivals, metric)?;
    let (mine, best, sure) = match [&ours.subject, name].map(|subject| score(column, metric, subject)) {
        [Some(mine), Some(best)] => {
            let (turns, over) = (column.runoff.as_ref().map_or(0, |runoff| runoff.turns), &best.over_ours);
            let sure = format!(
                "; run-off of {turns} turns each, parts of it {:.2} to {:.2} of ours",
                over.low, over.high
            );
            (mine.figure.median, best.figure.median, sure)
        }
        _ => (mine, best, apart(metric, ours, rivals.cell(name))),
    };
    let behind = metric.behind(mine, best);
    let (percent, mine, best) = ((behind - 1.0) * 100.0, short(mine), short(best));
    let says = format!(
        "{} ({}): {mine} {}, {name} {best}: {percent:.1} % behind{sure}",
        column.name, column.title, metric.title
    );
    Some(Standing { is_won: behind <= TIE, says })
}

/// Says how far the rounds of both lie apart.
fn apart(metric: Metric, ours: &Cell, theirs: Option<&Cell>) -> String {
    match (ours.spread_percent(metric), theirs.and_then(|cell| cell.spread_percent(metric))) {
        (Some(ours), Some(theirs)) => format!("; our rounds lie {ours:.0} % apart, theirs {theirs:.0} %"),
        _ => String::new(),
    }
}

/// Returns the command to type again: without its outputs, and without the folders of a machine.
pub(super) fn command(results: &Results) -> String {
    let mut shown = "cargo run --release -p weftwork-bench --".to_owned();
    let mut words = results.command.split_ascii_whitespace();
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("--json" | "--html" | "--markdown", "") => drop(words.next()),
            ("--json" | "--html" | "--markdown", _) => {}
            _ => {
                let file = if word.starts_with('/') { word.rsplit('/').next() } else { None };
                shown.push(' ');
                shown.push_str(file.unwrap_or(word));
            }
        }
    }
    shown
}

/// Says when, on what, and how it was measured.
pub(super) fn how(results: &Results) -> String {
    let machine = &results.machine;
    let server = Span { first: results.server_core, count: results.server_cores };
    let load = Span { first: results.load_core, count: results.load_cores };
    let build = match results.commit.as_str() {
        "" if results.command.contains("--weft") => "a build given by --weft".to_owned(),
        "" => "an unknown commit".to_owned(),
        commit => format!("commit {commit}"),
    };
    let congestion = match machine.congestion_control.as_str() {
        "" => String::new(),
        name => format!(" ({} for TCP)", name.to_uppercase()),
    };
    let runoff = match results.runoff_s {
        0.0 => String::new(),
        seconds => format!(
            ", and {seconds} s (eight turns at least) in the run-off of each column in which others were close to the first"
        ),
    };
    format!(
        "{}, {build}. {}, {} cores, {} GiB, Linux {}{congestion}, {}. Server on {server}, load ({}) on {load}. {} rounds of {} s a \
         cell, in turn{runoff}; medians; {} minutes in all.{}",
        results.when,
        machine.cpu,
        machine.cores,
        machine.memory_gib,
        major_minor(&machine.kernel),
        machine.rustc,
        results.load,
        results.rounds,
        results.seconds,
        results.took_s.div_ceil(60),
        results.core_distances.map(|distances| format!(" {distances}")).unwrap_or_default(),
    )
}
