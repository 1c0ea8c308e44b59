//! Who is measured again, and how do they do? A few rounds do not tell apart those who are close to the first: where the host
//! moves the cores, cells of one server lie up to half apart. So they run at once, and have the load in turn.

mod score;

use std::cmp::Ordering;
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::measure::Metric;
use crate::peers::Peers;
use crate::procs::distance::Distance;
use crate::report::{Row, columns};
use crate::results::{Contestant, Runoff, Score, is_honest};
use crate::subject::Subject;
use crate::turns;
use crate::workloads::{Workload, decides, keeps_up};

/// Who is this close to the first of a column by the medians may be first in truth.
const REACH: f64 = 1.25;
/// And who is this close in the best of its rounds, where the first has its worst: so far apart lie those of one server mostly.
/// As far as the medians it would be half the columns more, and nine minutes.
const REACH_OF_ROUNDS: f64 = 1.1;
/// The default engine apart: each costs as much time as any other.
const OTHERS_MAX: usize = 4;

/// However long they are: eight seconds of each where a turn is one.
const TURNS_MIN: usize = 8;

/// The run-offs of all columns that have one, by their names. Each server has the load for so long in each.
pub(crate) fn run(
    time: Duration,
    peers: &mut Peers,
    rows: &[Row],
    known: &[Contestant],
    distance: &mut Distance,
) -> Result<Vec<(String, Runoff)>> {
    let mut runoffs = Vec::new();
    if time.is_zero() {
        return Ok(runoffs);
    }
    for rows in columns(rows) {
        let workload = rows[0].workload;
        let subjects = contenders(rows, known);
        if subjects.is_empty() || !workload.has_turns() {
            continue;
        }
        match of_column(time, peers, &subjects, workload, distance) {
            Ok(runoff) => runoffs.extend(runoff.map(|runoff| (workload.name.clone(), runoff))),
            Err(Failure::Run(message)) => {
                eprintln!("run-off of {}: {message}", workload.name);
                runoffs.push((workload.name.clone(), Runoff { failed: Some(message), ..Runoff::default() }));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(runoffs)
}

fn of_column(
    time: Duration,
    peers: &mut Peers,
    subjects: &[Subject],
    workload: &Workload,
    distance: &mut Distance,
) -> Result<Option<Runoff>> {
    let mut contestants = turns::start(peers, subjects, workload)?;
    let rounds = (time.div_duration_f64(workload.turn()).ceil() as usize).max(TURNS_MIN);
    turns::measure(&mut contestants, rounds, workload.turn(), distance)?;
    let lists: Vec<_> = contestants.iter().map(|one| (one.name.as_str(), one.turns.as_slice())).collect();
    let runoff = score::scores(decides(&workload.name), &lists);
    if runoff.is_none() {
        eprintln!("run-off    {:<15} says nothing: the cores were moved in most rounds", workload.name);
    }
    for Score { subject, figure, over_ours, .. } in runoff.iter().flat_map(|runoff| &runoff.scores) {
        let (value, ratio) = (figure.median, over_ours.median);
        eprintln!("run-off    {:<15} {subject:<17} {value:.2}, {ratio:.3} of ours", workload.name);
    }
    Ok(runoff)
}

/// Who is in the run-off of a column, the default engine first: it, however far behind, and others within reach of the first.
/// Other engines of ours and the floors are no rivals.
fn contenders(rows: &[Row], known: &[Contestant]) -> Vec<Subject> {
    let metric = decides(&rows[0].workload.name);
    let rivals = rows.iter().filter(|row| is_honest(known, &row.subject.to_string()));
    let mut figures: Vec<(&Row, f64)> = rivals.filter_map(|row| Some((row, figure(row, metric)?))).collect();
    figures.sort_by(|one, other| order(metric, one.1, other.1));
    let Some(&first) = figures.first() else { return Vec::new() };
    let near = figures.into_iter().filter(|one| one.0.subject.is_ours() || is_near(metric, *one, first));
    let (ours, others): (Vec<&Subject>, Vec<&Subject>) =
        near.map(|(row, _)| &row.subject).partition(|subject| subject.is_ours());
    if ours.is_empty() || others.is_empty() {
        return Vec::new();
    }
    ours.into_iter().chain(others.into_iter().take(OTHERS_MAX)).cloned().collect()
}

/// A median of two rounds may be of one good and one bad: whose best round reaches the worst one of the first is near, too.
fn is_near(metric: Metric, (row, median): (&Row, f64), (first, of_first): (&Row, f64)) -> bool {
    let sorted = |row: &Row| {
        let mut values = row.values(metric);
        values.sort_by(|one, other| order(metric, *one, *other));
        values
    };
    let (mine, theirs) = (sorted(row), sorted(first));
    let (best, worst) = (mine.first().unwrap_or(&median), theirs.last().unwrap_or(&of_first));
    behind(metric, median, of_first) <= REACH || behind(metric, *best, *worst) <= REACH_OF_ROUNDS
}

/// 1: as good; more is worse.
fn behind(metric: Metric, value: f64, than: f64) -> f64 {
    if metric.more_is_better() { than / value } else { value / than }
}

/// What decides, of who may be first: no engine of ours but the default one, no floor, nobody who made errors or did not keep up.
fn figure(row: &Row, metric: Metric) -> Option<f64> {
    let subject = &row.subject;
    let is_rival = subject.is_ours() || !(subject.is_weft() || subject.is_floor());
    let answered = row.median(Metric::Rate).unwrap_or(0.0);
    let is_fair = row.failures() == 0
        && row.errors() == Some(0.0)
        && keeps_up(row.median(Metric::Unanswered), answered);
    row.median(metric).filter(|value| is_rival && is_fair && *value > 0.0)
}

fn order(metric: Metric, one: f64, other: f64) -> Ordering {
    if metric.more_is_better() { other.total_cmp(&one) } else { one.total_cmp(&other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::honesty::IGNORES_CLOSE;
    use crate::measure::Sample;
    use crate::workloads::{GRID, named};

    fn row(workload: &str, name: &str, [rate, cpu, errors]: [f64; 3]) -> Row {
        let sample = Sample(vec![(Metric::Rate, rate), (Metric::CpuUs, cpu), (Metric::Errors, errors)]);
        let (workload, subject) = (named(&GRID, workload)[0], name.parse().unwrap());
        Row { workload, subject, samples: vec![Some(sample)], why: None }
    }

    /// Who takes part of these, each with its requests/s and CPU a request; those with a `!` made an error.
    #[track_caller]
    fn check(workload: &str, figures: &[(&str, f64, f64)], takes_part: &[&str]) {
        let row = |&(name, rate, cpu): &(&str, f64, f64)| {
            let errors = f64::from(u8::from(name.ends_with('!')));
            row(workload, name.trim_end_matches('!'), [rate, cpu, errors])
        };
        let rows: Vec<Row> = figures.iter().map(row).collect();
        let cheat = Contestant {
            name: "may_minihttp".to_owned(),
            broken: vec![IGNORES_CLOSE.to_owned()],
            ..Contestant::default()
        };
        let names: Vec<String> = contenders(&rows, &[cheat]).iter().map(Subject::to_string).collect();
        assert_eq!(names, takes_part);
    }

    #[test]
    fn who_is_close_to_the_first_runs_again() {
        let health = |ours, others: [f64; 5]| {
            let names = ["nginx", "hyper", "ntex", "axum", "h2o"];
            let others = names.into_iter().zip(others).map(|(name, cpu)| (name, 1.0, cpu));
            [("weft:adaptive", 1.0, ours)].into_iter().chain(others).collect::<Vec<_>>()
        };
        check("health-64", &health(5.0, [6.0, 7.0, 8.0, 9.0, 9.0]), &["weft:adaptive", "nginx"]);
        check("health-64", &health(6.0, [7.0, 5.0, 8.0, 9.0, 9.0]), &["weft:adaptive", "hyper"]);
        check(
            "health-64",
            &health(5.0, [5.5, 5.1, 5.2, 5.3, 5.4]),
            &["weft:adaptive", "hyper", "ntex", "axum", "h2o"],
        );
        // Clearly first; and clearly not, which is not said after two rounds.
        check("health-64", &health(5.0, [7.0, 7.0, 8.0, 9.0, 9.0]), &[]);
        check("health-64", &health(9.0, [7.0, 5.0, 7.0, 7.0, 7.0]), &["weft:adaptive", "hyper"]);
    }

    #[test]
    fn who_is_close_in_some_rounds_runs_again() {
        let names = |workload, figures: [(&str, [[f64; 2]; 2]); 3]| -> Vec<String> {
            let row = |(name, [rate, cpu]): (&str, [[f64; 2]; 2])| {
                let mut row = row(workload, name, [rate[0], cpu[0], 0.0]);
                let sample = [(Metric::Rate, rate[1]), (Metric::CpuUs, cpu[1]), (Metric::Errors, 0.0)];
                row.samples.push(Some(Sample(sample.into())));
                row
            };
            contenders(&figures.map(row), &[]).iter().map(Subject::to_string).collect()
        };
        // By the medians 1.26 and 1.31 of the first: the best round of the one is 1.098 of the first's worst, of the other 1.118.
        let cpu = [
            ("weft:adaptive", [[1.0; 2], [9.8, 10.2]]),
            ("lighttpd", [[1.0; 2], [11.2, 14.0]]),
            ("nginx", [[1.0; 2], [11.4, 14.8]]),
        ];
        assert_eq!(names("rate-5000", cpu), ["weft:adaptive", "lighttpd"]);
        let rate = [
            ("weft:adaptive", [[9_000.0, 11_000.0], [1.0; 2]]),
            ("lighttpd", [[8_300.0, 6_500.0], [1.0; 2]]),
            ("nginx", [[8_000.0, 6_600.0], [1.0; 2]]),
        ];
        assert_eq!(names("slow-400", rate), ["weft:adaptive", "lighttpd"]);
    }

    #[test]
    fn where_handlers_block_the_rate_decides() {
        let figures = [("weft:adaptive", 1000.0, 9.0), ("hyper", 1100.0, 90.0), ("axum", 700.0, 1.0)];
        check("slow-100", &figures, &["weft:adaptive", "hyper"]);
        check("health-64", &figures, &["weft:adaptive", "axum"]);
    }

    #[test]
    fn who_cannot_be_first_is_no_rival() {
        let mut slow = row("rate-5000", "nginx", [5_000.0, 1.0, 0.0]);
        slow.samples[0].as_mut().unwrap().0.push((Metric::Unanswered, 51.0));
        assert_eq!(figure(&slow, Metric::CpuUs), None, "50 fall due in 10 ms");
        let others = [
            ("floor", 1.0, 1.0),
            ("weft:fibers", 1.0, 1.0),
            ("may_minihttp", 1.0, 1.0),
            ("ntex!", 1.0, 1.0),
            ("h2o", 1.0, 0.0),
            ("nginx", 1.0, 5.0),
        ];
        check(
            "health-64",
            &[others.as_slice(), &[("weft:adaptive", 1.0, 5.0)]].concat(),
            &["weft:adaptive", "nginx"],
        );
        check("health-64", &[others.as_slice(), &[("weft:adaptive!", 1.0, 5.0)]].concat(), &[]);
        check("health-64", &[("weft:adaptive", 1.0, 5.0)], &[]);
    }
}
