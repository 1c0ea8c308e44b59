//! Which numbers does a measurement give?

/// One number of a sample; the name is also its key in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Good answers a second.
    Rate,
    /// The same, of those who block beside the others.
    BlockingRate,
    P50Ms,
    P99Ms,
    P999Ms,
    Errors,
    /// Requests of a paced load that had no answer when the time was over.
    Unanswered,
    /// CPU of the server's process tree, microseconds a request.
    CpuUs,
    /// Context switches a request, of the threads that live.
    Switches,
    /// CPU of the server's process tree, percent of one core.
    Busy,
    /// CPU of all processes but these on the cores used here, percent of one core: high means that rates and
    /// latencies say little.
    Others,
    /// p99 of the quick requests while nothing blocks.
    AloneP99Ms,
    /// p99 of the quick requests beside the blockers, over that alone.
    P99OverAlone,
    Connections,
    /// Resident bytes a connection.
    BytesEach,
    /// CPU used in [`super::IDLE_TIME`].
    IdleCpuMs,
    /// Context switches a second while nothing happens.
    IdleSwitches,
    /// Resident bytes at their highest.
    PeakBytes,
    /// Threads at the end of the measured time.
    Threads,
}

impl Metric {
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Metric::Rate | Metric::BlockingRate)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Rate => "requests_per_s",
            Metric::BlockingRate => "blocking_requests_per_s",
            Metric::P50Ms => "p50_ms",
            Metric::P99Ms => "p99_ms",
            Metric::P999Ms => "p999_ms",
            Metric::Errors => "errors",
            Metric::Unanswered => "unanswered",
            Metric::CpuUs => "cpu_us_per_request",
            Metric::Switches => "context_switches_per_request",
            Metric::Busy => "server_cpu_percent",
            Metric::Others => "others_cpu_percent",
            Metric::AloneP99Ms => "p99_alone_ms",
            Metric::P99OverAlone => "p99_over_alone",
            Metric::Connections => "connections",
            Metric::BytesEach => "bytes_per_connection",
            Metric::IdleCpuMs => "idle_cpu_ms",
            Metric::IdleSwitches => "idle_switches_per_s",
            Metric::PeakBytes => "peak_bytes",
            Metric::Threads => "threads",
        }
    }
}

/// What one measurement gave; not every workload has every metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample(pub(crate) Vec<(Metric, f64)>);

impl Sample {
    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(of, _)| *of == metric).map(|(_, value)| *value)
    }

    /// Of an earlier try: a server made them, though its figures do not count.
    pub(crate) fn add_errors(&mut self, errors: f64) {
        match self.0.iter_mut().find(|(of, _)| *of == Metric::Errors) {
            Some((_, all)) => *all += errors,
            None => self.0.push((Metric::Errors, errors)),
        }
    }
}
