//! Turns the samples of a run into the columns of the document, and judges the targets of weft.

use std::collections::BTreeMap;

use super::row::{Row, columns, median, quartiles, rounded};
use super::{Cell, Column, Figure, Reached};
use crate::measure::Metric;
use crate::site::Site;
use crate::subject::Subject;
use crate::workloads::Target;

pub(crate) fn collect(rows: &[Row]) -> Vec<Column> {
    columns(rows).map(column).collect()
}

fn column(rows: &[Row]) -> Column {
    let workload = rows[0].workload;
    Column {
        name: workload.name.clone(),
        title: workload.title.clone(),
        floor: workload.floor_name().unwrap_or_default().to_owned(),
        cells: rows.iter().map(|row| cell(row, rows)).collect(),
        runoff: None,
    }
}

fn cell(row: &Row, rows: &[Row]) -> Cell {
    let figures = Metric::ALL
        .iter()
        .filter_map(|metric| Some((metric.key.to_owned(), Figure::of(row.values(*metric))?)));
    let mut cell = Cell {
        subject: row.subject.to_string(),
        figures: figures.collect(),
        ratios: ratios(row, rows),
        errors: row.errors().unwrap_or(0.0),
        failed_rounds: row.failures(),
        why: row.why.clone(),
        targets: Vec::new(),
    };
    if matches!(row.subject, Subject::Weft { .. } | Subject::Site(Site::Typed)) {
        cell.targets = match row.failures() {
            0 => row.workload.targets.iter().filter_map(|target| judge(*target, &cell, row, rows)).collect(),
            failures => {
                let says = format!("failed in {failures} of {} rounds", row.samples.len());
                vec![Reached { met: false, says }]
            }
        };
    }
    cell
}

fn ratios(row: &Row, rows: &[Row]) -> BTreeMap<String, f64> {
    let mut ratios = BTreeMap::new();
    for other in rows.iter().filter(|other| other.subject.is_compared_with()) {
        for (what, metric) in [("requests_per_s", Metric::RATE), ("cpu", Metric::CPU_US)] {
            if let Some(ratio) = median(row.ratios(other, metric)) {
                ratios.insert(format!("{what}_over_{}", other.subject), rounded(ratio));
            }
        }
    }
    ratios
}

/// Compares a target with what was reached. None: the figure, or the row to compare with, is missing.
fn judge(target: Target, cell: &Cell, row: &Row, rows: &[Row]) -> Option<Reached> {
    let ratio = |name: &str| cell.ratios.get(name).copied();
    let at_most = |what: &str, value: f64, max: f64| Reached {
        met: value <= max,
        says: format!("{what} {value:.2}, at most {max:.2}"),
    };
    Some(match target {
        Target::NoErrors => {
            let errors = row.errors()?;
            Reached { met: errors == 0.0, says: format!("{errors} errors") }
        }
        Target::CpuOverFloorMax(max) => at_most("CPU over floor", ratio("cpu_over_floor")?, max),
        Target::CpuBelowNginx => {
            let ratio = ratio("cpu_over_nginx")?;
            Reached { met: ratio < 1.0, says: format!("CPU over nginx {ratio:.2}, must be below 1") }
        }
        Target::RateOverFloorMin(min) => {
            let ratio = ratio("requests_per_s_over_floor")?;
            Reached { met: ratio >= min, says: format!("rate over floor {ratio:.2}, at least {min:.2}") }
        }
        Target::P99OverAloneMax(max) => {
            at_most("p99 over p99 alone", cell.median(Metric::P99_OVER_ALONE)?, max)
        }
        Target::BytesEachMax(max) => at_most("bytes each", cell.median(Metric::BYTES_EACH)?, max),
        Target::CpuOverBareMax(max) => {
            let bare = rows.iter().find(|row| row.subject == Subject::Site(Site::Bare))?;
            let ratios = row.ratios(bare, Metric::CPU_US);
            let ((low, high), ratio) = (quartiles(ratios.clone())?, median(ratios)?);
            let says = format!(
                "CPU over bare {ratio:.4} (half of the rounds {low:.4} to {high:.4}), at most {max:.2}"
            );
            Reached { met: ratio <= max, says }
        }
    })
}
