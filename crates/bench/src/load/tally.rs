//! The counts of a group: answers, errors and latencies.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::response::Answer;
use crate::failure::{Failure, Result};

/// Highest latency that is counted exactly, in nanoseconds. Higher ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    /// Answers whose status is not 2xx.
    pub(crate) non_2xx: u64,
    /// Answers of status 2xx with another body than the right one.
    pub(crate) wrong: u64,
    /// Connections that failed, broke off, or sent what is no answer.
    pub(crate) socket_errors: u64,
    /// Answers, or ends of connections, that did not come in time.
    pub(crate) timeouts: u64,
    /// Requests of a paced load that were due, and had no answer when the time was over.
    pub(crate) unanswered: u64,
    pub(crate) elapsed: Duration,
    latency_ns: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .map_err(|error| Failure::step("latency histogram", error))?;
        let (ok, non_2xx, wrong, socket_errors, timeouts, unanswered) = (0, 0, 0, 0, 0, 0);
        let elapsed = Duration::ZERO;
        Ok(Tally { ok, non_2xx, wrong, socket_errors, timeouts, unanswered, elapsed, latency_ns })
    }

    /// Counts responses from now on. Connections that broke before now count, too, because they were not reported
    /// yet.
    pub(crate) fn begin(&mut self) {
        self.latency_ns.reset();
        (self.ok, self.non_2xx, self.wrong, self.unanswered) = (0, 0, 0, 0);
    }

    /// Returns the counts of that time. From here on, broken connections count for the next time.
    pub(crate) fn take(&mut self, elapsed: Duration) -> Tally {
        let taken = Tally { elapsed, ..self.clone() };
        (self.socket_errors, self.timeouts) = (0, 0);
        taken
    }

    pub(crate) fn answered(&mut self, answer: Answer, latency: Duration) {
        match answer {
            Answer { status: 200..=299, right: true, .. } => self.ok += 1,
            Answer { status: 200..=299, .. } => self.wrong += 1,
            Answer { .. } => self.non_2xx += 1,
        }
        self.waited(latency);
    }

    pub(crate) fn waited(&mut self, latency: Duration) {
        self.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX));
    }

    /// Adds what another thread of the load has counted in the same time.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.ok += other.ok;
        self.non_2xx += other.non_2xx;
        self.wrong += other.wrong;
        self.socket_errors += other.socket_errors;
        self.timeouts += other.timeouts;
        self.latency_ns += &other.latency_ns;
    }

    pub(crate) fn errors(&self) -> u64 {
        self.non_2xx + self.wrong + self.socket_errors + self.timeouts
    }

    /// Answers, good or not.
    pub(crate) fn answers(&self) -> u64 {
        self.ok + self.non_2xx + self.wrong
    }

    /// Good answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.ok as f64 / self.elapsed.as_secs_f64()
    }

    /// Latency in milliseconds at a quantile from 0 to 1.
    pub(crate) fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e6
    }
}
