//! The servers of a run-off are those that may be first.

use super::*;
use crate::measure::Sample;
use crate::peers::IGNORES_CLOSE;
use crate::results::{SubjectInfo, collect};
use crate::workloads::{GRID, named};

fn names_of(rows: &[Row], subjects: Vec<SubjectInfo>) -> Vec<String> {
    let results = Results { workloads: collect(rows), subjects, ..Results::default() };
    candidates(&results, &results.workloads[0])
}

fn row(workload: &str, name: &str, [rate, cpu, errors]: [f64; 3]) -> Row {
    let sample = Sample(vec![(Metric::RATE, rate), (Metric::CPU_US, cpu), (Metric::ERRORS, errors)]);
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
    let cheat = SubjectInfo {
        name: "may_minihttp".to_owned(),
        broken: vec![IGNORES_CLOSE.to_owned()],
        ..SubjectInfo::default()
    };
    let names: Vec<String> = names_of(&rows, vec![cheat]);
    assert_eq!(names, takes_part);
}

#[test]
fn a_server_close_to_the_first_runs_again() {
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
fn a_server_close_in_some_rounds_runs_again() {
    let names = |workload, figures: [(&str, [[f64; 2]; 2]); 3]| -> Vec<String> {
        let row = |(name, [rate, cpu]): (&str, [[f64; 2]; 2])| {
            let mut row = row(workload, name, [rate[0], cpu[0], 0.0]);
            let sample = [(Metric::RATE, rate[1]), (Metric::CPU_US, cpu[1]), (Metric::ERRORS, 0.0)];
            row.samples.push(Some(Sample(sample.into())));
            row
        };
        names_of(&figures.map(row), Vec::new())
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
fn a_server_that_cannot_be_first_is_no_rival() {
    let mut slow = row("rate-5000", "nginx", [5_000.0, 1.0, 0.0]);
    slow.samples[0].as_mut().unwrap().0.push((Metric::UNANSWERED, 51.0));
    let results = Results { workloads: collect(&[slow]), ..Results::default() };
    let cell = &results.workloads[0].cells[0];
    assert_eq!(counts(&results, cell, Metric::CPU_US), None, "50 fall due in 10 ms");
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
