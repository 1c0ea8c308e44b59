//! The figures of a cell: their keys in the document, and their headings in tables.

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Its key in JSON.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) decimals: usize,
    pub(crate) more_is_better: bool,
}

const fn less(key: &'static str, title: &'static str, decimals: usize) -> Metric {
    Metric { key, title, decimals, more_is_better: false }
}

const fn more(key: &'static str, title: &'static str, decimals: usize) -> Metric {
    Metric { key, title, decimals, more_is_better: true }
}

impl Metric {
    /// Good answers a second.
    pub(crate) const RATE: Metric = more("requests_per_s", "requests/s", 0);
    /// Good answers a second to the requests that block, beside the quick ones.
    pub(crate) const BLOCKING_RATE: Metric = more("blocking_requests_per_s", "blocking/s", 0);
    pub(crate) const P50_MS: Metric = less("p50_ms", "p50 ms", 3);
    pub(crate) const P99_MS: Metric = less("p99_ms", "p99 ms", 3);
    pub(crate) const P999_MS: Metric = less("p999_ms", "p99.9 ms", 3);
    /// p99 of the quick requests while nothing blocks.
    pub(crate) const ALONE_P99_MS: Metric = less("p99_alone_ms", "p99 ms alone", 3);
    /// p99 of the quick requests beside the blocking ones, over p99 alone.
    pub(crate) const P99_OVER_ALONE: Metric = less("p99_over_alone", "p99 over alone", 2);
    /// Requests of a paced load that had no answer when the time was over.
    pub(crate) const UNANSWERED: Metric = less("unanswered", "unanswered", 0);
    /// CPU of the server's process tree.
    pub(crate) const CPU_US: Metric = less("cpu_us_per_request", "CPU us a request", 2);
    /// Context switches of the threads that live.
    pub(crate) const SWITCHES: Metric = less("context_switches_per_request", "switches a request", 3);
    /// CPU of the server's process tree, percent of one core.
    pub(crate) const BUSY: Metric = less("server_cpu_percent", "busy %", 0);
    /// CPU of all other processes on the cores used here, percent of one core. If it is high, rates and latencies
    /// say little.
    pub(crate) const OTHERS: Metric = less("others_cpu_percent", "others %", 0);
    /// Resident bytes at their highest.
    pub(crate) const PEAK_BYTES: Metric = less("peak_bytes", "peak bytes", 0);
    /// Threads at the end of the measured time.
    pub(crate) const THREADS: Metric = less("threads", "threads", 0);
    pub(crate) const CONNECTIONS: Metric = more("connections", "connections", 0);
    /// Resident bytes a connection.
    pub(crate) const BYTES_EACH: Metric = less("bytes_per_connection", "bytes a connection", 0);
    /// CPU used in five seconds.
    pub(crate) const IDLE_CPU_MS: Metric = less("idle_cpu_ms", "CPU ms in 5 s", 0);
    /// Context switches a second while nothing happens.
    pub(crate) const IDLE_SWITCHES: Metric = less("idle_switches_per_s", "switches/s", 1);
    pub(crate) const ERRORS: Metric = less("errors", "errors", 0);

    /// All figures, in the order in which tables show them.
    #[rustfmt::skip]
    pub(crate) const ALL: [Metric; 18] = [
        Self::RATE, Self::BLOCKING_RATE, Self::P50_MS, Self::P99_MS, Self::P999_MS, Self::ALONE_P99_MS,
        Self::P99_OVER_ALONE, Self::UNANSWERED, Self::CPU_US, Self::SWITCHES, Self::BUSY, Self::OTHERS,
        Self::PEAK_BYTES, Self::THREADS, Self::CONNECTIONS, Self::BYTES_EACH, Self::IDLE_CPU_MS,
        Self::IDLE_SWITCHES,
    ];

    /// How many times `value` is worse than `best`: 1 is equal.
    pub(crate) fn behind(self, value: f64, best: f64) -> f64 {
        if self.more_is_better { best / value } else { value / best }
    }
}

/// The figures of one measurement. Not every workload has every figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample(pub(crate) Vec<(Metric, f64)>);

impl Sample {
    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(of, _)| *of == metric).map(|(_, value)| *value)
    }
}
