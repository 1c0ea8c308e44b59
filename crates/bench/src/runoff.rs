//! Who is measured again? A few rounds do not tell apart those who are close to the first.

use std::cmp::Ordering;

use crate::measure::Metric;
use crate::report::{Row, columns};
use crate::results::{Contestant, is_honest};
use crate::workloads::decides;

/// Who takes part.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Who is this close to the first of a column may be first in truth.
    reach: f64,
    /// The default engine apart: each costs as much time as in any other round.
    others_max: usize,
}

/// The first half of the rounds: those of one server lie up to half apart where the host moves its cores.
pub(crate) const WIDE: Entry = Entry { reach: 1.25, others_max: 4 };
/// The second. In 14 rounds of 0.5 s two of three columns were won that six rounds of 0.3 s had lost, by 4 and 5 %.
pub(crate) const NARROW: Entry = Entry { reach: 1.1, others_max: 2 };

/// For each row, whether it is in the run-off of its column. There is one where the default engine and others are within
/// reach of the first; other engines of ours and the floors are no rivals.
pub(crate) fn contenders(rows: &[Row], known: &[Contestant], entry: Entry) -> Vec<bool> {
    columns(rows).flat_map(|rows| contenders_of_column(rows, known, entry)).collect()
}

fn contenders_of_column(rows: &[Row], known: &[Contestant], entry: Entry) -> Vec<bool> {
    let metric = decides(&rows[0].workload.name);
    let rivals = rows.iter().enumerate().filter(|(_, row)| is_honest(known, &row.subject.to_string()));
    let mut figures: Vec<(usize, f64)> =
        rivals.filter_map(|(at, row)| Some((at, figure(row, metric)?))).collect();
    figures.sort_by(|one, other| order(metric, one.1, other.1));
    let Some(&(_, first)) = figures.first() else { return vec![false; rows.len()] };
    let is_near = |value: f64| (value / first).max(first / value) <= entry.reach;
    let near = figures.into_iter().filter(|(_, value)| is_near(*value)).map(|(at, _)| at);
    let (ours, mut others): (Vec<usize>, Vec<usize>) = near.partition(|at| rows[*at].subject.is_ours());
    others.truncate(entry.others_max);
    let is_close = !ours.is_empty() && !others.is_empty();
    (0..rows.len()).map(|at| is_close && (ours.contains(&at) || others.contains(&at))).collect()
}

/// What decides, of who may be first: no engine of ours but the default one, no floor, nobody who made errors.
fn figure(row: &Row, metric: Metric) -> Option<f64> {
    let subject = &row.subject;
    let is_rival = subject.is_ours() || !(subject.is_weft() || subject.is_floor());
    let is_fair = row.failures() == 0 && row.errors() == Some(0.0);
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
        let contenders = contenders(&rows, &[cheat], WIDE);
        let names: Vec<String> = (rows.iter().zip(contenders).filter(|(_, takes_part)| *takes_part))
            .map(|(row, _)| row.subject.to_string())
            .collect();
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
        // Clearly first, and clearly not.
        check("health-64", &health(5.0, [7.0, 7.0, 8.0, 9.0, 9.0]), &[]);
        check("health-64", &health(9.0, [7.0, 7.0, 7.0, 7.0, 7.0]), &[]);
    }

    #[test]
    fn where_handlers_block_the_rate_decides() {
        let figures = [("weft:adaptive", 1000.0, 9.0), ("hyper", 1100.0, 90.0), ("axum", 700.0, 1.0)];
        check("slow-100", &figures, &["weft:adaptive", "hyper"]);
        check("health-64", &figures, &[]);
    }

    #[test]
    fn who_cannot_be_first_is_no_rival() {
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
            &["nginx", "weft:adaptive"],
        );
        check("health-64", &[others.as_slice(), &[("weft:adaptive!", 1.0, 5.0)]].concat(), &[]);
        check("health-64", &[("weft:adaptive", 1.0, 5.0)], &[]);
    }

    #[test]
    fn each_column_has_its_own() {
        let rows = [
            row("health-10", "weft:adaptive", [1.0, 5.0, 0.0]),
            row("health-10", "nginx", [1.0, 9.0, 0.0]),
            row("health-64", "weft:adaptive", [1.0, 5.0, 0.0]),
            row("health-64", "nginx", [1.0, 5.0, 0.0]),
        ];
        assert_eq!(contenders(&rows, &[], WIDE), [false, false, true, true]);
    }

    #[test]
    fn the_second_half_is_for_the_closest() {
        let rows = [
            row("health-10", "weft:adaptive", [1.0, 5.2, 0.0]),
            row("health-10", "nginx", [1.0, 5.9, 0.0]),
            row("health-10", "hyper", [1.0, 5.4, 0.0]),
            row("health-10", "axum", [1.0, 5.3, 0.0]),
            row("health-10", "ntex", [1.0, 5.0, 0.0]),
        ];
        assert_eq!(contenders(&rows, &[], WIDE), [true; 5]);
        assert_eq!(contenders(&rows, &[], NARROW), [true, false, false, true, true]);
    }
}
