//! The document of a run: what was measured, and on what. Every table, page and chart is made from it.

mod collect;
mod machine;
mod row;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::measure::Metric;
use crate::peers::IGNORES_CLOSE;
use crate::procs::distance::Distances;

pub(crate) use collect::collect;
pub(crate) use machine::{Machine, commit, congestion_control, major_minor, now};
pub(crate) use row::{Row, columns, median, quartiles, rounded};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// End of the run, UTC.
    pub(crate) when: String,
    /// Commit of weft. Empty if it is not known, as with `--weft`.
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// Seconds that each server close to the first of a column had the load once more.
    pub(crate) runoff_s: f64,
    /// Measured time of each cell.
    pub(crate) seconds: f64,
    pub(crate) took_s: u64,
    /// First core of each side, and number of its cores.
    pub(crate) server_core: usize,
    pub(crate) load_core: usize,
    pub(crate) server_cores: usize,
    pub(crate) load_cores: usize,
    pub(crate) load: String,
    /// None: the cores stayed at one distance.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) core_distances: Option<Distances>,
    pub(crate) subjects: Vec<SubjectInfo>,
    /// Servers that could not take part.
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) workloads: Vec<Column>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubjectInfo {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its configuration, in words.
    pub(crate) about: String,
    /// The rules of HTTP/1.1 that it breaks.
    pub(crate) broken: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// One workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) floor: String,
    pub(crate) cells: Vec<Cell>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) runoff: Option<Runoff>,
}

/// The servers close to the first of a column, the default engine among them: all run at once, with the load in turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Runoff {
    /// Turns of each server that count.
    pub(crate) turns: usize,
    /// The default engine first.
    pub(crate) scores: Vec<Score>,
    /// Why it did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<String>,
}

/// One server in a run-off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Score {
    pub(crate) subject: String,
    /// The figure that decides the column, over parts of the run-off.
    pub(crate) figure: Figure,
    /// Its ratio to that of the default engine.
    pub(crate) over_ours: Figure,
    pub(crate) errors: f64,
}

/// One server at one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) subject: String,
    pub(crate) figures: BTreeMap<String, Figure>,
    /// Ratios, taken round by round: `requests_per_s_over_floor`, `cpu_over_nginx` and the like.
    pub(crate) ratios: BTreeMap<String, f64>,
    /// Errors of all rounds.
    pub(crate) errors: f64,
    pub(crate) failed_rounds: usize,
    /// Why a round failed, or the cell was left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) targets: Vec<Reached>,
}

/// One figure over the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A target of weft, and what was reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub(crate) met: bool,
    pub(crate) says: String,
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| Failure::step(path.display(), error))?;
        serde_json::from_str(&text).map_err(|error| Failure::step(path.display(), error))
    }

    /// Writes a line a column: small enough to keep in a repository, with changes that can be read there.
    pub(crate) fn json(&self) -> Result<String> {
        let failed = |error| Failure::step("JSON", error);
        let head = Results { workloads: Vec::new(), ..self.clone() };
        let head = serde_json::to_string(&head).map_err(failed)?;
        let columns: serde_json::Result<Vec<String>> =
            self.workloads.iter().map(serde_json::to_string).collect();
        let columns = columns.map_err(failed)?.join(",\n");
        // The columns are the last field.
        Ok(format!("{}\n{columns}\n]}}\n", head.trim_end_matches("]}")))
    }

    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.workloads.iter().find(|column| column.name == name)
    }

    /// Whether a server may be first: it does not ignore a rule that makes its figures mean nothing.
    pub(crate) fn is_honest(&self, subject: &str) -> bool {
        let known = self.subjects.iter().find(|known| known.name == subject);
        !known.is_some_and(|known| known.broken.iter().any(|rule| rule == IGNORES_CLOSE))
    }
}

impl Figure {
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Figure { median: rounded(median(values)?), low: rounded(low), high: rounded(high) })
    }
}

impl Column {
    pub(crate) fn cell(&self, subject: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.subject == subject)
    }
}

/// More than this is marked.
const NOISE_PERCENT_MAX: f64 = 10.0;

impl Cell {
    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        self.figures.get(metric.key).map(|figure| figure.median)
    }

    /// Returns how far the rounds lie apart, in percent of the median. None: there was one round.
    pub(crate) fn spread_percent(&self, metric: Metric) -> Option<f64> {
        let Figure { median, low, high } = self.figures.get(metric.key)?;
        (high > low && *median > 0.0).then(|| (high - low) / median * 100.0)
    }

    /// Whether the figure may be another one next time: its rounds lie far apart, or other processes were at work.
    pub(crate) fn is_noisy(&self, metric: Metric) -> bool {
        let all = [self.spread_percent(metric), self.median(Metric::OTHERS)];
        all.into_iter().flatten().any(|percent| percent > NOISE_PERCENT_MAX)
    }
}

#[cfg(test)]
mod tests;
