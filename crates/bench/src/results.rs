//! What was measured, on what, and how does a program read it? One document, from which every page is made.

mod collect;
mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::honesty::{IGNORES_CLOSE, NO_ANSWER};
use crate::procs::distance::Distances;
use crate::report::{median, rounded};

pub(crate) use collect::collect;
pub(crate) use machine::{Machine, congestion_control, major_minor};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// When the run ended, UTC.
    pub(crate) when: String,
    /// That of weft; empty where that is not known, as with `--weft`.
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// How long each of those who were close to the first of a column had the load once more.
    #[serde(default)]
    pub(crate) runoff_s: f64,
    /// Measured time of each cell.
    pub(crate) seconds: f64,
    pub(crate) took_s: u64,
    /// The first core of each side, and how many it has.
    pub(crate) server_core: usize,
    pub(crate) load_core: usize,
    #[serde(default = "one")]
    pub(crate) server_cores: usize,
    #[serde(default = "one")]
    pub(crate) load_cores: usize,
    pub(crate) load: String,
    /// None: the cores stayed where they were.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) core_distances: Option<Distances>,
    pub(crate) subjects: Vec<Contestant>,
    /// Who was to take part, and could not.
    #[serde(default)]
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) workloads: Vec<Column>,
}

/// Earlier documents say nothing of it.
fn one() -> usize {
    1
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) version: String,
    /// How it was set up.
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

/// Who was close to the first of a column, the default engine among them: all at once, with the load in turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Runoff {
    /// That each has had, and that count.
    pub(crate) turns: usize,
    /// The default engine first.
    pub(crate) scores: Vec<Score>,
    /// Why it did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<String>,
}

/// How one subject did in a run-off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Score {
    pub(crate) subject: String,
    /// By what decides the column, over parts of the run-off.
    pub(crate) figure: Figure,
    /// Its ratio to that of the default engine.
    pub(crate) over_ours: Figure,
    pub(crate) errors: f64,
}

/// One subject at one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) subject: String,
    pub(crate) figures: BTreeMap<String, Figure>,
    /// Ratios, taken round by round: `requests_per_s_over_floor`, `cpu_over_nginx` and the like.
    pub(crate) ratios: BTreeMap<String, f64>,
    /// In all rounds.
    pub(crate) errors: f64,
    pub(crate) failed_rounds: usize,
    /// Why a round failed, or the cell was left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) targets: Vec<Reached>,
}

/// One number over the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A target of weft.
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

    /// A line a column: small enough to keep in a repository, and what has changed is to be seen there.
    pub(crate) fn json(&self) -> Result<String> {
        let failed = |error| Failure::step("JSON", error);
        let head = Results { workloads: Vec::new(), ..self.clone() };
        let head = serde_json::to_string(&head).map_err(failed)?;
        let columns: serde_json::Result<Vec<String>> =
            self.workloads.iter().map(serde_json::to_string).collect();
        let columns = columns.map_err(failed)?.join(",\n");
        // They are its last field.
        Ok(format!("{}\n{columns}\n]}}\n", head.trim_end_matches("]}")))
    }

    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.workloads.iter().find(|column| column.name == name)
    }

    /// Otherwise the subject ignores a rule that makes its figure mean nothing, or could not be asked: it is shown, and never wins.
    pub(crate) fn is_honest(&self, subject: &str) -> bool {
        is_honest(&self.subjects, subject)
    }
}

pub(crate) fn is_honest(subjects: &[Contestant], subject: &str) -> bool {
    let broken = subjects.iter().find(|known| known.name == subject).map(|known| &known.broken);
    let is_serious = |rule: &String| rule == IGNORES_CLOSE || rule.starts_with(NO_ANSWER);
    !broken.is_some_and(|broken| broken.iter().any(is_serious))
}

impl Figure {
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Figure { median: rounded(median(values)?), low: rounded(low), high: rounded(high) })
    }
}

/// More than this is marked.
const NOISE_PERCENT_MAX: f64 = 10.0;

impl Column {
    pub(crate) fn cell(&self, subject: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.subject == subject)
    }
}

impl Cell {
    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        self.figures.get(metric).map(|figure| figure.median)
    }

    /// How far the rounds lie apart, percent of the median; none where there was one round.
    pub(crate) fn spread_percent(&self, metric: &str) -> Option<f64> {
        let Figure { median, low, high } = self.figures.get(metric)?;
        (high > low && *median > 0.0).then(|| (high - low) / median * 100.0)
    }

    /// CPU that strangers took of the cores meanwhile, percent of one core.
    pub(crate) fn others_percent(&self) -> Option<f64> {
        self.median("others_cpu_percent")
    }

    /// The figure may be another one next time: its rounds lie far apart, or strangers were at work.
    pub(crate) fn is_noisy(&self, metric: &str) -> bool {
        let all = [self.spread_percent(metric), self.others_percent()];
        all.into_iter().flatten().any(|percent| percent > NOISE_PERCENT_MAX)
    }
}

#[cfg(test)]
mod tests;
