//! How does a person read it? One aligned table a workload, verdicts beneath it.

use std::fmt::Write;

use crate::measure::Metric;
use crate::site::Site;
use crate::subject::Subject;
use crate::workloads::{Ask, Kind};

use super::verdict::verdicts;
use super::{Row, Run, of_subject};

/// What stands in one column.
#[derive(Clone, Copy)]
enum Column {
    Name,
    /// A median, with so many decimals.
    Median(&'static str, Metric, usize),
    /// The ratio to the floor of the column before.
    OverFloor(Metric),
    /// The same, to the server without routes.
    OverBare(Metric),
    Errors,
    /// How far the rounds lie apart.
    Spread(Metric),
}

use Column::*;

const REQUESTS: &[Column] = &[
    Name,
    Median("req/s", Metric::Rate, 0),
    OverFloor(Metric::Rate),
    Median("p50 ms", Metric::P50Ms, 3),
    Median("p99 ms", Metric::P99Ms, 3),
    Median("p99.9 ms", Metric::P999Ms, 3),
    Errors,
    Median("CPU us/req", Metric::CpuUs, 2),
    OverFloor(Metric::CpuUs),
    Spread(Metric::CpuUs),
    Median("switches/req", Metric::Switches, 3),
    Median("busy %", Metric::Busy, 0),
    Median("others %", Metric::Others, 0),
    Median("peak KiB", Metric::PeakBytes, 0),
    Median("threads", Metric::Threads, 0),
];

const ROUTES: &[Column] = &[
    Name,
    Median("req/s", Metric::Rate, 0),
    Median("p50 ms", Metric::P50Ms, 3),
    Median("p99 ms", Metric::P99Ms, 3),
    Errors,
    Median("CPU us/req", Metric::CpuUs, 3),
    OverBare(Metric::CpuUs),
    Spread(Metric::CpuUs),
    Median("switches/req", Metric::Switches, 3),
    Median("busy %", Metric::Busy, 0),
    Median("others %", Metric::Others, 0),
];

const PACED: &[Column] = &[
    Name,
    Median("req/s", Metric::Rate, 0),
    Median("p50 ms", Metric::P50Ms, 3),
    Median("p99 ms", Metric::P99Ms, 3),
    Median("p99.9 ms", Metric::P999Ms, 3),
    Median("unanswered", Metric::Unanswered, 0),
    Errors,
    Median("CPU us/req", Metric::CpuUs, 2),
    Median("others %", Metric::Others, 0),
];

const MIXED: &[Column] = &[
    Name,
    Median("req/s", Metric::Rate, 0),
    Median("blocking/s", Metric::BlockingRate, 0),
    Median("p50 ms", Metric::P50Ms, 3),
    Median("p99 ms", Metric::P99Ms, 3),
    Median("alone p99 ms", Metric::AloneP99Ms, 3),
    Median("ratio", Metric::P99OverAlone, 2),
    Spread(Metric::P99OverAlone),
    Errors,
    Median("CPU us/req", Metric::CpuUs, 2),
    Median("others %", Metric::Others, 0),
    Median("peak KiB", Metric::PeakBytes, 0),
    Median("threads", Metric::Threads, 0),
];

const IDLE: &[Column] = &[
    Name,
    Median("connections", Metric::Connections, 0),
    Median("bytes each", Metric::BytesEach, 0),
    Spread(Metric::BytesEach),
    Median("CPU ms in 5 s", Metric::IdleCpuMs, 0),
    Median("switches/s", Metric::IdleSwitches, 1),
    Errors,
];

/// All tables, and how the verdicts came out.
pub(crate) fn tables(run: &Run) -> String {
    let mut text = String::new();
    let (mut met, mut lost) = (0, 0);
    for rows in run.workloads() {
        let Some(first) = rows.first() else { continue };
        let columns = match first.workload.kind {
            Kind::Requests(_) if first.workload.ask == Ask::Route => ROUTES,
            Kind::Requests(_) => REQUESTS,
            Kind::Paced { .. } => PACED,
            Kind::Mixed { .. } => MIXED,
            Kind::Idle => IDLE,
        };
        let floor =
            first.workload.floor_name().map(|floor| format!("  (floor: {floor})")).unwrap_or_default();
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}: {}{floor}", first.workload.name, first.workload.title);
        text.push_str(&aligned(&cells(columns, rows)));
        for row in rows {
            if let Some(why) = &row.why {
                let _ = writeln!(text, "  note  {}: {}", row.subject, why.lines().next().unwrap_or_default());
            }
            for verdict in verdicts(row, rows) {
                let word = if verdict.met { "met " } else { "LOST" };
                let _ = writeln!(text, "  {word}  {}: {}", row.subject, verdict.says);
                if verdict.met { met += 1 } else { lost += 1 }
            }
        }
        text.push('\n');
    }
    let (rounds, time, took) = (run.rounds, run.time, run.took.as_secs());
    let runoffs = match run.runoffs.len() {
        0 => String::new(),
        count => format!(", {count} run-offs"),
    };
    let _ = writeln!(
        text,
        "{rounds} rounds of {time:?} a cell{runoffs}, {took} s in all; targets: {met} met, {lost} lost"
    );
    if let Some(distances) = &run.distances {
        let _ = writeln!(text, "{distances}");
    }
    text
}

fn cells(columns: &[Column], rows: &[Row]) -> Vec<Vec<String>> {
    let head = columns.iter().map(|column| column.head().to_owned()).collect();
    let body = rows.iter().map(|row| columns.iter().map(|column| column.cell(row, rows)).collect());
    [head].into_iter().chain(body).collect()
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Name => "subject",
            Median(head, ..) => head,
            OverFloor(_) => "x floor",
            OverBare(_) => "x bare",
            Errors => "errors",
            Spread(_) => "spread",
        }
    }

    fn cell(self, row: &Row, rows: &[Row]) -> String {
        let over = |other, metric| row.over(of_subject(rows, &other)?, metric);
        let cell = match self {
            Median(_, Metric::PeakBytes, decimals) => {
                row.median(Metric::PeakBytes).map(|bytes| number(bytes / 1024.0, decimals))
            }
            Name => Some(row.subject.to_string()),
            Median(_, metric, decimals) => row.median(metric).map(|value| number(value, decimals)),
            OverFloor(metric) => over(Subject::Floor, metric).map(|ratio| number(ratio, 2)),
            OverBare(metric) => over(Subject::Site(Site::Bare), metric).map(|ratio| number(ratio, 3)),
            Errors => row.errors().map(|errors| number(errors, 0)),
            Spread(metric) => row.spread(metric).map(|spread| format!("{:.0}%", spread * 100.0)),
        };
        cell.unwrap_or_else(|| "-".to_owned())
    }
}

/// Thousands are set apart: 150,210.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let digits = plain.find('.').unwrap_or(plain.len());
    let mut text = String::new();
    for (at, letter) in plain.char_indices() {
        let behind = digits.saturating_sub(at);
        if at > 0 && at < digits && behind % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(letter);
    }
    text
}

/// The first column to the left, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}
