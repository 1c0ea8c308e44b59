//! The cost of a load: CPU and switches of the server, and CPU of other processes on the same cores.

use std::process;
use std::time::{Duration, Instant};

use super::{Metric, Sample};
use crate::procs::pin::Cores;
use crate::procs::usage::{Peak, Usage, core_busy_ticks, ticks_us};

/// The counters when the measured time began.
#[derive(Debug)]
pub(super) struct Meter {
    pid: u32,
    cores: Cores,
    start: Instant,
    server: Usage,
    others: u64,
}

impl Meter {
    pub(super) fn start(pid: u32, cores: Cores) -> Self {
        let others = others_ticks(cores);
        Meter { pid, cores, start: Instant::now(), server: Usage::of(pid), others }
    }

    /// Reads all counters again.
    pub(super) fn stop(self) -> Used {
        let elapsed = self.start.elapsed();
        let now = Usage::of(self.pid);
        let others_us = ticks_us(others_ticks(self.cores).saturating_sub(self.others));
        let cpu_us = now.cpu_us_since(&self.server);
        let switches = now.switches.saturating_sub(self.server.switches) as f64;
        Used { elapsed, cpu_us, switches, others_us, peak: Peak::of(self.pid) }
    }
}

/// What was used in the measured time.
pub(super) struct Used {
    elapsed: Duration,
    pub(super) cpu_us: f64,
    pub(super) switches: f64,
    others_us: f64,
    peak: Peak,
}

impl Used {
    /// Returns the cost of `requests`, and what other processes used meanwhile.
    pub(super) fn costs(&self, requests: f64) -> Sample {
        // A server that answers nothing has no cost a request, rather than an endless one.
        let requests = requests.max(1.0);
        Sample(vec![
            (Metric::CPU_US, self.cpu_us / requests),
            (Metric::SWITCHES, self.switches / requests),
            (Metric::BUSY, percent(self.cpu_us, self.elapsed)),
            (Metric::OTHERS, percent(self.others_us, self.elapsed)),
            (Metric::PEAK_BYTES, self.peak.bytes as f64),
            (Metric::THREADS, self.peak.threads as f64),
        ])
    }
}

/// Busy ticks of all cores, less those of this process and its children. Approximate: the kernel samples the one and measures the
/// other.
fn others_ticks(cores: Cores) -> u64 {
    let busy: u64 = cores.all().map(core_busy_ticks).sum();
    busy.saturating_sub(Usage::of(process::id()).ticks)
}

fn percent(cpu_us: f64, elapsed: Duration) -> f64 {
    cpu_us / 1e4 / elapsed.as_secs_f64()
}
