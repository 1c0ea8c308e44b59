//! The samples of one server at one workload, a sample a round, and what follows from them.

use crate::measure::{Metric, Sample};
use crate::subject::Subject;
use crate::workloads::Workload;

/// One server at one workload. A round that failed has no sample.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) workload: &'static Workload,
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Option<Sample>>,
    /// The reason of the last failure, or of why there are no samples.
    pub(crate) why: Option<String>,
}

impl Row {
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(|sample| sample.get(metric)).collect()
    }

    /// Sums up the errors. They are rare: their sum says more than their median.
    pub(crate) fn errors(&self) -> Option<f64> {
        self.values(Metric::ERRORS).into_iter().reduce(|sum, errors| sum + errors)
    }

    pub(crate) fn failures(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_none()).count()
    }

    /// Returns the ratios to `other`, taken round by round, so that slow drifts of the machine cancel.
    pub(crate) fn ratios(&self, other: &Row, metric: Metric) -> Vec<f64> {
        let pairs = self.samples.iter().zip(&other.samples);
        let ratios = pairs.filter_map(|(mine, theirs)| {
            let (mine, theirs) = (mine.as_ref()?.get(metric)?, theirs.as_ref()?.get(metric)?);
            (theirs > 0.0).then(|| mine / theirs)
        });
        ratios.collect()
    }
}

/// The rows of each workload.
pub(crate) fn columns(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|one, other| one.workload.name == other.workload.name)
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

/// Returns the bounds of the middle half.
pub(crate) fn quartiles(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    Some((*values.get(quarter)?, *values.iter().rev().nth(quarter)?))
}

/// Rounds to five digits, which is more than rounds agree in. Whole numbers are counts, and stay.
pub(crate) fn rounded(value: f64) -> f64 {
    if value.fract() == 0.0 { value } else { format!("{value:.4e}").parse().unwrap_or(value) }
}
