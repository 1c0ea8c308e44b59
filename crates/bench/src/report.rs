//! What do the samples say? Medians over rounds, ratios within rounds, and verdicts against the targets.

pub(crate) mod table;
pub(crate) mod verdict;

use std::time::Duration;

use crate::measure::{Metric, Sample};
use crate::procs::distance::Distances;
use crate::results::Runoff;
use crate::subject::Subject;
use crate::workloads::Workload;

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) rows: Vec<Row>,
    pub(crate) rounds: usize,
    /// By the names of the columns in which others were close to the default engine.
    pub(crate) runoffs: Vec<(String, Runoff)>,
    pub(crate) time: Duration,
    pub(crate) took: Duration,
    /// None: the cores stayed where they were.
    pub(crate) distances: Option<Distances>,
}

/// One subject at one workload: a sample a round, none where it failed.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) workload: &'static Workload,
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Option<Sample>>,
    /// Why a round failed last, or why there are none.
    pub(crate) why: Option<String>,
}

impl Run {
    /// The rows of each workload.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &[Row]> {
        columns(&self.rows)
    }

    /// What tests need of one.
    #[cfg(test)]
    pub(crate) fn of(rows: Vec<Row>) -> Run {
        let (time, took) = (Duration::from_secs(2), Duration::from_secs(9));
        Run { rows, rounds: 2, runoffs: Vec::new(), time, took, distances: None }
    }
}

impl Row {
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(|sample| sample.get(metric)).collect()
    }

    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        median(self.values(metric))
    }

    /// Errors are rare: their sum says more than their median.
    pub(crate) fn errors(&self) -> Option<f64> {
        self.values(Metric::Errors).into_iter().reduce(|sum, errors| sum + errors)
    }

    pub(crate) fn failures(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_none()).count()
    }

    /// The median of the ratios to `other`, taken round by round.
    pub(crate) fn over(&self, other: &Row, metric: Metric) -> Option<f64> {
        median(self.ratios(other, metric))
    }

    /// Between which two the middle half of these ratios lies.
    pub(crate) fn quartiles_over(&self, other: &Row, metric: Metric) -> Option<(f64, f64)> {
        quartiles(self.ratios(other, metric))
    }

    fn ratios(&self, other: &Row, metric: Metric) -> Vec<f64> {
        let pairs = self.samples.iter().zip(&other.samples);
        let ratios = pairs.filter_map(|(mine, theirs)| {
            let (mine, theirs) = (mine.as_ref()?.get(metric)?, theirs.as_ref()?.get(metric)?);
            (theirs > 0.0).then(|| mine / theirs)
        });
        ratios.collect()
    }

    /// How far the rounds lie apart: highest less lowest, over the median.
    fn spread(&self, metric: Metric) -> Option<f64> {
        let values = self.values(metric);
        let median = median(values.clone()).filter(|median| *median > 0.0)?;
        let highest = values.iter().copied().reduce(f64::max)?;
        let lowest = values.iter().copied().reduce(f64::min)?;
        Some((highest - lowest) / median)
    }
}

/// The rows of each workload.
pub(crate) fn columns(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|one, other| one.workload.name == other.workload.name)
}

pub(crate) fn of_subject<'a>(rows: &'a [Row], subject: &Subject) -> Option<&'a Row> {
    rows.iter().find(|row| row.subject == *subject)
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Five digits are more than rounds agree in. Whole numbers are counts, and stay.
pub(crate) fn rounded(value: f64) -> f64 {
    if value.fract() == 0.0 { value } else { format!("{value:.4e}").parse().unwrap_or(value) }
}

/// Between which two the middle half lies.
pub(crate) fn quartiles(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    Some((*values.get(quarter)?, *values.iter().rev().nth(quarter)?))
}

#[cfg(test)]
mod tests;
