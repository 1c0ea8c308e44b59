//! What was used while a load ran: by the server, and by strangers on the same cores?

use std::process;
use std::time::{Duration, Instant};

use super::Metric;
use crate::procs::pin::Cores;
use crate::procs::usage::{Peak, Usage, core_busy_ticks, ticks_us};

pub(super) type Costs = [(Metric, f64); 6];

/// The state of all counters when the measured time began.
#[derive(Debug)]
pub(super) struct Meter {
    pid: u32,
    cores: Cores,
    start: Instant,
    server: Usage,
    strangers: u64,
}

impl Meter {
    pub(super) fn start(pid: u32, cores: Cores) -> Self {
        let strangers = strangers_ticks(cores);
        Meter { pid, cores, start: Instant::now(), server: Usage::of(pid), strangers }
    }

    /// CPU of the server since the start, in microseconds, and its context switches.
    pub(super) fn server_used(&self) -> (f64, f64) {
        let now = Usage::of(self.pid);
        (now.cpu_us_since(&self.server), now.switches.saturating_sub(self.server.switches) as f64)
    }

    /// What the server used for `requests`, and what strangers did meanwhile.
    pub(super) fn costs(&self, requests: f64) -> Costs {
        let elapsed = self.start.elapsed();
        let now = Usage::of(self.pid);
        let cpu_us = now.cpu_us_since(&self.server);
        let switches = now.switches.saturating_sub(self.server.switches) as f64;
        let peak = Peak::of(self.pid);
        // A server that answers nothing has no cost a request, rather than an endless one.
        let requests = requests.max(1.0);
        [
            (Metric::CpuUs, cpu_us / requests),
            (Metric::Switches, switches / requests),
            (Metric::Busy, percent(cpu_us, elapsed)),
            (Metric::Others, self.others_over(elapsed)),
            (Metric::PeakBytes, peak.bytes as f64),
            (Metric::Threads, peak.threads as f64),
        ]
    }

    fn others_over(&self, elapsed: Duration) -> f64 {
        percent(ticks_us(strangers_ticks(self.cores).saturating_sub(self.strangers)), elapsed)
    }
}

/// What all cores did, less what this process and its children did: it is approximate, since the kernel
/// samples the one and measures the other.
fn strangers_ticks(cores: Cores) -> u64 {
    let busy: u64 = cores.all().map(core_busy_ticks).sum();
    busy.saturating_sub(Usage::of(process::id()).ticks)
}

fn percent(cpu_us: f64, elapsed: Duration) -> f64 {
    cpu_us / 1e4 / elapsed.as_secs_f64()
}
