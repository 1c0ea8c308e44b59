//! The document holds what the samples say, and comes back as it was written.

use super::*;
use crate::measure::Sample;
use crate::site::Site;
use crate::subject::Subject;
use crate::workloads::{self, QUICK, ROUTER};

fn row(subject: &str, samples: &[Option<(f64, f64)>]) -> Row {
    let sample =
        |(rate, cpu)| Sample(vec![(Metric::RATE, rate), (Metric::CPU_US, cpu), (Metric::ERRORS, 1.0)]);
    Row {
        workload: workloads::named(&QUICK, "close")[0],
        subject: subject.parse().unwrap(),
        samples: samples.iter().map(|one| one.map(sample)).collect(),
        why: None,
    }
}

#[test]
fn medians_spreads_and_ratios() {
    let rows = vec![
        row("floor", &[Some((1000.0, 4.0)), None]),
        row("weft", &[Some((900.0, 8.0)), Some((800.0, 9.0))]),
    ];
    let results = Results { workloads: collect(&rows), ..Results::default() };
    let back: Results = serde_json::from_str(&results.json().unwrap()).unwrap();
    assert_eq!(back, results);
    let column = back.column("close").unwrap();
    let weft = column.cell("weft").unwrap();
    assert_eq!(weft.figures["requests_per_s"], Figure { median: 850.0, low: 800.0, high: 900.0 });
    assert_eq!((weft.ratios["cpu_over_floor"], weft.ratios["requests_per_s_over_floor"]), (2.0, 0.9));
    assert_eq!((weft.errors, weft.ratios.get("cpu_over_nginx")), (2.0, None));
    assert!(!weft.targets[0].met);
    assert_eq!(column.cell("floor").unwrap().failed_rounds, 1);
}

/// As is kept in docs/benchmarks.
#[test]
fn the_document_is_small() {
    let rows = [row("weft", &[Some((151_234.567, 5.123_456_7)), Some((151_234.567, 5.123_456_7))])];
    let mut results = Results { workloads: collect(&rows), ..Results::default() };
    let column = results.workloads[0].clone();
    assert_eq!(column.cells[0].figures["requests_per_s"].high, 151_230.0);
    results.workloads.push(Column { name: "another".to_owned(), ..column });
    let json = results.json().unwrap();
    assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), results);
    let lines: Vec<&str> = json.lines().collect();
    assert!(lines[0].ends_with("\"workloads\":[") && lines[3] == "]}", "{json}");
    assert!(lines[1].contains("{\"median\":5.1235,\"low\":5.1235,\"high\":5.1235}"), "{json}");
    assert!(lines.len() == 4 && lines[2].starts_with("{\"name\":\"another\","), "{json}");
    let empty = Results::default();
    assert_eq!(serde_json::from_str::<Results>(&empty.json().unwrap()).unwrap(), empty);
}

#[test]
fn a_kernel_does_not_name_its_host() {
    for (release, want) in [("6.18.44-host-v595\n", "6.18"), ("6.1.0-39-amd64", "6.1"), ("6", "6"), ("", "")]
    {
        assert_eq!(major_minor(release), want);
    }
}

fn of_quick(workload: &str, subject: &str, samples: Vec<Option<Sample>>) -> Row {
    let workload = workloads::named(&QUICK, workload)[0];
    Row { workload, subject: subject.parse().unwrap(), samples, why: None }
}

fn sample(rate: f64, cpu: f64, errors: f64) -> Option<Sample> {
    Some(Sample(vec![(Metric::RATE, rate), (Metric::CPU_US, cpu), (Metric::ERRORS, errors)]))
}

/// Checks which targets are met by a weft of these samples beside a fixed floor and nginx.
#[track_caller]
fn check_targets(workload: &str, weft: Option<Sample>, met: &[bool]) {
    let rows = [
        of_quick(workload, "floor", vec![sample(1000.0, 4.0, 0.0)]),
        of_quick(workload, "nginx", vec![sample(900.0, 5.0, 0.0)]),
        of_quick(workload, "weft", vec![weft]),
    ];
    let column = collect(&rows).remove(0);
    let reached: Vec<bool> = column.cells[2].targets.iter().map(|target| target.met).collect();
    assert_eq!(reached, met);
    assert_eq!(column.cells[0].targets, []);
}

#[test]
fn medians() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
}

#[test]
fn ratios_are_taken_within_rounds() {
    // The machine slowed down threefold: the ratio of the medians would be 1.0.
    let floor = of_quick("close", "floor", vec![sample(1.0, 1.0, 0.0), sample(1.0, 3.0, 0.0), None]);
    let weft =
        of_quick("close", "weft", vec![sample(1.0, 1.5, 1.0), sample(1.0, 4.5, 2.0), sample(1.0, 2.0, 0.0)]);
    assert_eq!(weft.ratios(&floor, Metric::CPU_US), [1.5, 1.5]);
    assert_eq!(weft.ratios(&floor, Metric::P50_MS), [0.0; 0]);
    assert_eq!((weft.errors(), weft.failures(), floor.failures()), (Some(3.0), 0, 1));
    let column = collect(&[floor, weft]).remove(0);
    let weft = column.cell("weft").unwrap();
    assert_eq!((weft.ratios["cpu_over_floor"], weft.spread_percent(Metric::CPU_US)), (1.5, Some(150.0)));
}

#[test]
fn targets_of_rates_and_cpu() {
    check_targets("keepalive", sample(1000.0, 4.2, 0.0), &[true, true, true]);
    check_targets("keepalive", sample(1000.0, 4.6, 0.0), &[false, true, true]);
    check_targets("keepalive", sample(1000.0, 5.1, 7.0), &[false, false, false]);
    check_targets("pipelined", sample(800.0, 9.0, 0.0), &[true, true]);
    check_targets("pipelined", sample(790.0, 9.0, 0.0), &[false, true]);
    check_targets("slow-64-300us", sample(900.0, 9.0, 0.0), &[true, true]);
    check_targets("slow-64-300us", sample(890.0, 9.0, 0.0), &[false, true]);
    check_targets("close", None, &[false]);
}

#[test]
fn targets_of_mixed_and_idle() {
    let one = |metric, value| Some(Sample(vec![(metric, value), (Metric::ERRORS, 0.0)]));
    check_targets("mixed", one(Metric::P99_OVER_ALONE, 1.5), &[true, true]);
    check_targets("mixed", one(Metric::P99_OVER_ALONE, 1.6), &[false, true]);
    check_targets("idle", one(Metric::BYTES_EACH, 400.0), &[true, true]);
    check_targets("idle", one(Metric::BYTES_EACH, 401.0), &[false, true]);
}

#[test]
fn targets_of_routes() {
    let site = |site, cpu: [f64; 5]| {
        let samples = cpu.into_iter().map(|cpu| sample(1000.0, cpu, 0.0)).collect();
        Row { workload: &ROUTER[0], subject: Subject::Site(site), samples, why: None }
    };
    let says = |typed: [f64; 5]| {
        let column = collect(&[site(Site::Bare, [10.0; 5]), site(Site::Typed, typed)]).remove(0);
        assert_eq!(column.cells[0].targets, []);
        let targets = &column.cells[1].targets;
        assert_eq!(targets.len(), 2, "the other one is on errors");
        (targets[0].met, targets[0].says.clone())
    };
    let text = "CPU over bare 1.0200 (half of the rounds 1.0100 to 1.0400), at most 1.03";
    assert_eq!(says([10.4, 30.0, 10.2, 10.1, 5.0]), (true, text.to_owned()));
    assert!(!says([10.4, 10.4, 10.4, 5.0, 5.0]).0);
    let (met, text) = says([10.304; 5]);
    assert!(!met && text.starts_with("CPU over bare 1.0304 "), "{text}");
}

#[test]
fn without_the_other_row_there_is_no_target_on_it() {
    let rows = [of_quick("keepalive", "weft", vec![sample(1000.0, 4.0, 0.0)])];
    assert_eq!(collect(&rows)[0].cells[0].targets.len(), 1);
}

#[test]
fn fractions_have_five_digits_and_counts_all() {
    for (value, want) in [
        (5.123_456, 5.1235),
        (0.000_123_456_7, 0.000_123_46),
        (151_234.5, 151_230.0),
        (10_268_712.0, 10_268_712.0),
        (0.0, 0.0),
        (-2.000_04, -2.0),
    ] {
        assert_eq!(rounded(value), want);
    }
    assert!(rounded(f64::NAN).is_nan() && rounded(f64::INFINITY).is_infinite());
}
