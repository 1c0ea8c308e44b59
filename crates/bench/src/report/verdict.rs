//! Did weft reach what it must?

use crate::measure::Metric;
use crate::site::Site;
use crate::subject::Subject;
use crate::workloads::Target;

use super::{Row, of_subject};

/// One target, what was reached, and whether that is enough.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) met: bool,
    pub(crate) says: String,
}

/// The verdicts on a row of weft, or of its routes; none on others, nor where the row to compare with is missing.
pub(crate) fn verdicts(row: &Row, rows: &[Row]) -> Vec<Verdict> {
    if !matches!(row.subject, Subject::Weft { .. } | Subject::Site(Site::Typed)) {
        return Vec::new();
    }
    if row.failures() > 0 {
        let says = format!("failed in {} of {} rounds", row.failures(), row.samples.len());
        return vec![Verdict { met: false, says }];
    }
    row.workload.targets.iter().filter_map(|target| judge(*target, row, rows)).collect()
}

fn judge(target: Target, row: &Row, rows: &[Row]) -> Option<Verdict> {
    let over = |subject, metric| row.over(of_subject(rows, subject)?, metric);
    let verdict = match target {
        Target::NoErrors => {
            let errors = row.errors()?;
            Verdict { met: errors == 0.0, says: format!("{errors} errors") }
        }
        Target::CpuOverFloorMax(max) => at_most("CPU over floor", over(&Subject::Floor, Metric::CpuUs)?, max),
        Target::CpuBelowNginx => {
            let ratio = over(&"nginx".parse().ok()?, Metric::CpuUs)?;
            Verdict { met: ratio < 1.0, says: format!("CPU over nginx {ratio:.2}, must be below 1") }
        }
        Target::RateOverFloorMin(min) => {
            let ratio = over(&Subject::Floor, Metric::Rate)?;
            Verdict { met: ratio >= min, says: format!("rate over floor {ratio:.2}, at least {min:.2}") }
        }
        Target::P99OverAloneMax(max) => at_most("p99 over p99 alone", row.median(Metric::P99OverAlone)?, max),
        Target::BytesEachMax(max) => {
            let bytes = row.median(Metric::BytesEach)?;
            Verdict { met: bytes <= max, says: format!("{bytes:.0} bytes each, at most {max:.0}") }
        }
        Target::CpuOverBareMax(max) => {
            let bare = of_subject(rows, &Subject::Site(Site::Bare))?;
            let ratio = row.over(bare, Metric::CpuUs)?;
            let (low, high) = row.quartiles_over(bare, Metric::CpuUs)?;
            let says = format!(
                "CPU over bare {ratio:.4} (half of the rounds {low:.4} to {high:.4}), at most {max:.2}"
            );
            Verdict { met: ratio <= max, says }
        }
    };
    Some(verdict)
}

fn at_most(what: &str, value: f64, max: f64) -> Verdict {
    Verdict { met: value <= max, says: format!("{what} {value:.2}, at most {max:.2}") }
}
