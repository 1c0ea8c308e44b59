//! Run-offs: a few rounds do not tell apart the servers that are close to the first of a column, as cells of one server lie up to half
//! apart if the host moves the cores. So these servers run at once, and have the load in turn.

mod score;

use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::measure::Metric;
use crate::peers::Peers;
use crate::procs::distance::Distance;
use crate::report::{counts, decides};
use crate::results::{Cell, Column, Results, Row, Runoff, columns};
use crate::subject::Subject;
use crate::turns;
use crate::workloads::Workload;

/// A server this close to the first of a column by the medians may be first in truth.
const REACH: f64 = 1.25;
/// So may a server whose best round is this close to the worst of the first. With the reach of the medians it would be half the columns
/// more, and nine minutes.
const REACH_OF_ROUNDS: f64 = 1.1;
/// The default engine apart: each costs as much time as any other.
const OTHERS_MAX: usize = 4;

/// Turns of each server at least, however long they are.
const TURNS_MIN: usize = 8;

/// Adds the run-offs to the columns. Each server has the load for so long in each.
pub(crate) fn run(
    time: Duration,
    peers: &mut Peers,
    rows: &[Row],
    results: &mut Results,
    distance: &mut Distance,
) -> Result<()> {
    if time.is_zero() {
        return Ok(());
    }
    for (at, rows) in columns(rows).enumerate() {
        let workload = rows[0].workload;
        let names = candidates(results, &results.workloads[at]);
        if names.is_empty() || !workload.has_turns() {
            continue;
        }
        let subject =
            |name: &String| rows.iter().map(|row| &row.subject).find(|one| one.to_string() == *name);
        let subjects: Vec<Subject> = names.iter().filter_map(subject).cloned().collect();
        results.workloads[at].runoff = match of_column(time, peers, &subjects, workload, distance) {
            Err(Failure::Run(message)) => {
                eprintln!("run-off of {}: {message}", workload.name);
                Some(Runoff { failed: Some(message), ..Runoff::default() })
            }
            other => other?,
        };
    }
    Ok(())
}

fn of_column(
    time: Duration,
    peers: &mut Peers,
    subjects: &[Subject],
    workload: &Workload,
    distance: &mut Distance,
) -> Result<Option<Runoff>> {
    let mut servers = turns::start(peers, subjects, workload)?;
    let rounds = (time.div_duration_f64(workload.turn()).ceil() as usize).max(TURNS_MIN);
    turns::measure(&mut servers, rounds, workload.turn(), distance)?;
    let lists: Vec<_> = servers.iter().map(|one| (one.name.as_str(), one.turns.as_slice())).collect();
    let runoff = score::scores(decides(&workload.name), &lists);
    if runoff.is_none() {
        eprintln!("run-off    {:<15} says nothing: the cores were moved in most rounds", workload.name);
    }
    for score in runoff.iter().flat_map(|runoff| &runoff.scores) {
        let (value, ratio) = (score.figure.median, score.over_ours.median);
        eprintln!("run-off    {:<15} {:<17} {value:.2}, {ratio:.3} of ours", workload.name, score.subject);
    }
    Ok(runoff)
}

fn is_ours(cell: &Cell) -> bool {
    ["weft", "weft:adaptive"].contains(&cell.subject.as_str())
}

/// Returns the servers of a column's run-off, the default engine first, however far behind it is. Other engines of ours and the floors
/// do not take part.
fn candidates(results: &Results, column: &Column) -> Vec<String> {
    let metric = decides(&column.name);
    let is_rival = |cell: &&Cell| is_ours(cell) || !cell.subject.starts_with("weft");
    let rivals = column.cells.iter().filter(is_rival);
    let mut figures: Vec<(f64, &Cell)> =
        rivals.filter_map(|cell| Some((counts(results, cell, metric)?, cell))).collect();
    figures.sort_by(|one, other| metric.behind(one.0, other.0).total_cmp(&1.0));
    let Some(&(_, first)) = figures.first() else { return Vec::new() };
    let (ours, others): (Vec<&Cell>, Vec<&Cell>) =
        figures.into_iter().map(|(_, cell)| cell).partition(|cell| is_ours(cell));
    let near: Vec<&Cell> = others.into_iter().filter(|cell| is_near(metric, cell, first)).collect();
    let has_both = !ours.is_empty() && !near.is_empty();
    let all = ours.into_iter().chain(near.into_iter().take(OTHERS_MAX)).filter(|_| has_both);
    all.map(|cell| cell.subject.clone()).collect()
}

/// A median of two rounds may be of a good one and a bad one. So the best round of a server and the worst one of the first count too.
fn is_near(metric: Metric, cell: &Cell, first: &Cell) -> bool {
    let [Some(mine), Some(theirs)] = [cell, first].map(|one| one.figures.get(metric.key)) else {
        return false;
    };
    let (best, worst) = if metric.more_is_better { (mine.high, theirs.low) } else { (mine.low, theirs.high) };
    metric.behind(mine.median, theirs.median) <= REACH || metric.behind(best, worst) <= REACH_OF_ROUNDS
}

#[cfg(test)]
mod tests;
