//! Reads the memory, descriptors and threads of a process.

use std::fmt;
use std::time::Duration;

use procfs::process::Process;

use crate::health::Checks;
use weftwork_bench::resident_bytes;

/// Growth that does not count, because allocators and pools keep memory.
const BYTES_SLACK: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vitals {
    pub(crate) resident_bytes: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Vitals {
    pub(crate) fn of(pid: u32) -> Vitals {
        let process = Process::new(pid as i32);
        let count =
            |count: fn(&Process) -> Option<usize>| process.as_ref().ok().and_then(count).unwrap_or(0) as u64;
        Vitals {
            resident_bytes: resident_bytes(pid),
            descriptors: count(|process| process.fd_count().ok()),
            threads: count(|process| Some(process.tasks().ok()?.count())),
        }
    }
}

impl fmt::Display for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.resident_bytes as f64 / f64::from(1 << 20);
        write!(f, "{mib:.1} MiB, {} descriptors, {} threads", self.descriptors, self.threads)
    }
}

/// Returns a line of the log.
pub(crate) fn line(at: Duration, now: &Vitals, checks: &Checks, answers: u64) -> String {
    format!("{:5} s  {now}, {answers} answers; health {checks}", at.as_secs())
}

/// Compares the second quarter of a run with its last: the first is for getting warm.
pub(crate) fn not_flat(samples: &[Vitals]) -> Vec<String> {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return vec!["too short to tell whether anything grows".to_owned()];
    }
    let (before, after) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let mut faults = Vec::new();
    let mut check = |what: &str, of: fn(&Vitals) -> u64, slack: u64| {
        let (was, is) = (median(before, of), median(after, of));
        if is > was + was / 20 + slack {
            faults.push(format!("{what} grew from {was} to {is}"));
        }
    };
    check("resident bytes", |v| v.resident_bytes, BYTES_SLACK);
    check("descriptors", |v| v.descriptors, 20);
    check("threads", |v| v.threads, 2);
    faults
}

fn median(samples: &[Vitals], of: fn(&Vitals) -> u64) -> u64 {
    let mut all: Vec<u64> = samples.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(u64) -> u64) -> Vec<Vitals> {
        let vitals = |at| Vitals { resident_bytes: of(at), descriptors: 10, threads: 3 };
        (0..100).map(vitals).collect()
    }

    #[test]
    fn growth_is_distinguished_from_noise() {
        assert!(not_flat(&samples(|at| 10_000_000 + (at % 7) * 1000)).is_empty());
        assert!(not_flat(&samples(|at| if at < 20 { 1 } else { 10_000_000 })).is_empty(), "getting warm");
        assert_eq!(not_flat(&samples(|at| 10_000_000 + at * 100_000)).len(), 1);
        assert_eq!(not_flat(&[]).len(), 1);
    }
}
