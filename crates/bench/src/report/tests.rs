//! Do medians, ratios, verdicts and both outputs say what the samples say?

use super::*;
use crate::site::Site;
use crate::workloads::{self, QUICK, ROUTER};

fn sample(rate: f64, cpu: f64, errors: f64) -> Option<Sample> {
    Some(Sample(vec![(Metric::Rate, rate), (Metric::CpuUs, cpu), (Metric::Errors, errors)]))
}

fn row(workload: &str, subject: &str, samples: Vec<Option<Sample>>) -> Row {
    let workload = workloads::named(&QUICK, workload)[0];
    Row { workload, subject: subject.parse().unwrap(), samples, why: None }
}

/// Whether each target of the workload was met by a weft of these samples beside a fixed floor and nginx.
fn check_verdicts(workload: &str, weft: Option<Sample>, met: &[bool]) {
    let rows = [
        row(workload, "floor", vec![sample(1000.0, 4.0, 0.0)]),
        row(workload, "nginx", vec![sample(900.0, 5.0, 0.0)]),
        row(workload, "weft", vec![weft]),
    ];
    let verdicts: Vec<bool> = verdict::verdicts(&rows[2], &rows).iter().map(|verdict| verdict.met).collect();
    assert_eq!(verdicts, met);
    assert_eq!(verdict::verdicts(&rows[0], &rows), []);
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
    let floor = row("close", "floor", vec![sample(1.0, 1.0, 0.0), sample(1.0, 3.0, 0.0), None]);
    let weft =
        row("close", "weft", vec![sample(1.0, 1.5, 1.0), sample(1.0, 4.5, 2.0), sample(1.0, 2.0, 0.0)]);
    assert_eq!(weft.over(&floor, Metric::CpuUs), Some(1.5));
    assert_eq!(weft.over(&floor, Metric::P50Ms), None);
    assert_eq!(weft.spread(Metric::CpuUs), Some(1.5));
    assert_eq!((weft.errors(), weft.failures(), floor.failures()), (Some(3.0), 0, 1));
}

#[test]
fn verdicts_on_rates_and_cpu() {
    check_verdicts("keepalive", sample(1000.0, 4.2, 0.0), &[true, true, true]);
    check_verdicts("keepalive", sample(1000.0, 4.6, 0.0), &[false, true, true]);
    check_verdicts("keepalive", sample(1000.0, 5.1, 7.0), &[false, false, false]);
    check_verdicts("pipelined", sample(800.0, 9.0, 0.0), &[true, true]);
    check_verdicts("pipelined", sample(790.0, 9.0, 0.0), &[false, true]);
    check_verdicts("close", None, &[false]);
}

#[test]
fn verdicts_on_mixed_and_idle() {
    let one = |metric, value| Some(Sample(vec![(metric, value), (Metric::Errors, 0.0)]));
    check_verdicts("mixed", one(Metric::P99OverAlone, 1.5), &[true, true]);
    check_verdicts("mixed", one(Metric::P99OverAlone, 1.6), &[false, true]);
    check_verdicts("idle", one(Metric::BytesEach, 400.0), &[true, true]);
    check_verdicts("idle", one(Metric::BytesEach, 401.0), &[false, true]);
}

#[test]
fn verdicts_on_routes() {
    let site = |site, cpu: [f64; 5]| {
        let samples = cpu.into_iter().map(|cpu| sample(1000.0, cpu, 0.0)).collect();
        Row { workload: &ROUTER[0], subject: Subject::Site(site), samples, why: None }
    };
    let says = |typed: [f64; 5]| {
        let rows = [site(Site::Bare, [10.0; 5]), site(Site::Typed, typed)];
        assert_eq!(verdict::verdicts(&rows[0], &rows), []);
        let verdicts = verdict::verdicts(&rows[1], &rows);
        assert_eq!(verdicts.len(), 2, "the other one is on errors");
        (verdicts[0].met, verdicts[0].says.clone())
    };
    let text = "CPU over bare 1.0200 (half of the rounds 1.0100 to 1.0400), at most 1.03";
    assert_eq!(says([10.4, 30.0, 10.2, 10.1, 5.0]), (true, text.to_owned()));
    assert!(!says([10.4, 10.4, 10.4, 5.0, 5.0]).0);
    let (met, text) = says([10.304; 5]);
    assert!(!met && text.starts_with("CPU over bare 1.0304 "), "{text}");
}

#[test]
fn without_the_other_row_there_is_no_verdict_on_it() {
    let rows = [row("keepalive", "weft", vec![sample(1000.0, 4.0, 0.0)])];
    assert_eq!(verdict::verdicts(&rows[0], &rows).len(), 1);
}

#[test]
fn the_table_is_aligned_and_names_what_is_lost() {
    let text = table::tables(&Run::of(vec![
        row("slow-100", "floor", vec![sample(51234.4, 12.0, 0.0), sample(51234.4, 12.0, 0.0)]),
        row("slow-100", "weft:fibers", vec![sample(25617.2, 24.0, 3.0), None]),
    ]));
    let want = "\
slow-100: 1 ms blocking handler, keep-alive, 100 connections  (floor: threads)
  subject       req/s  x floor  p50 ms  p99 ms  p99.9 ms  errors  CPU us/req  x floor  spread  switches/req  busy %  others %  peak KiB  threads
  floor        51,234     1.00       -       -         -       0       12.00     1.00      0%             -       -         -         -        -
  weft:fibers  25,617     0.50       -       -         -       3       24.00     2.00      0%             -       -         -         -        -
  LOST  weft:fibers: failed in 1 of 2 rounds

2 rounds of 2s a cell, 9 s in all; targets: 0 met, 1 lost
";
    assert_eq!(text, want);
}

#[test]
fn numbers() {
    for (value, decimals, want) in [
        (0.0, 0, "0"),
        (999.0, 0, "999"),
        (1000.0, 0, "1,000"),
        (1234567.891, 1, "1,234,567.9"),
        (-1234.0, 0, "-1,234"),
        (-123.0, 0, "-123"),
        (0.12345, 3, "0.123"),
    ] {
        assert_eq!(table::number(value, decimals), want);
    }
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
