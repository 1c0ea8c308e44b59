//! The workloads, and what weft must reach.

mod table;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use crate::floors::Floor;
use crate::load::Group;
use crate::measure::Metric;
use crate::subject::Subject;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) kind: Kind,
    /// What a server must be able to do to take part.
    pub(crate) ask: Ask,
    /// The floor that suits it.
    pub(crate) floor: Floor,
    /// How long the floor sleeps before the answer to `/slow`.
    pub(crate) sleep: Duration,
    /// Rounds at most: a workload that takes long is not repeated.
    pub(crate) rounds_max: usize,
    /// Measured time of a cell at least.
    pub(crate) time_min: Duration,
    pub(crate) targets: &'static [Target],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// One group asks as fast as it is answered.
    Requests(Group),
    /// One group asks so many times a second, whatever comes back.
    Paced { group: Group, per_s: u32 },
    /// Quick requests alone, and again while others block.
    Mixed { quick: Group, blockers: Group },
    /// Connections that wait, each after one request.
    Idle(Group),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// `OK`, from memory.
    Health,
    /// A value, serialized for each request where there is code.
    Json,
    /// The body, sent back.
    Echo,
    /// A handler that blocks its thread.
    Slow,
    /// A handler that waits without blocking a thread.
    Wait,
    /// A file from a directory.
    File,
    /// `OK`, from behind a router or none.
    Route,
}

/// The target of weft, as a median over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    NoErrors,
    CpuOverFloorMax(f64),
    CpuBelowNginx,
    RateOverFloorMin(f64),
    P99OverAloneMax(f64),
    BytesEachMax(f64),
    /// Typed routes over a handler without any.
    CpuOverBareMax(f64),
}

pub(crate) const HEALTH: Group = Group::get("/health", 64);
/// Files of the file workloads: name, length.
#[rustfmt::skip]
pub(crate) const FILES: &[(&str, usize)] = &[
    ("1k.bin", 1 << 10), ("16k.bin", 16 << 10), ("64k.bin", 64 << 10), ("100k.bin", 100 << 10),
    ("1m.bin", 1 << 20), ("10m.bin", 10 << 20), ("page.html", 20 << 10),
];
const TURN: Duration = Duration::from_millis(30);
/// Servers take some ten milliseconds to find as many threads as handlers that block take.
const TURN_BLOCKING: Duration = Duration::from_millis(400);
/// A second of the lowest rate is 65 ms of CPU, which the kernel tells in ticks of 10.
const TURN_PACED: Duration = Duration::from_secs(1);
/// With this many bytes under way, which takes some ten milliseconds.
const TURN_BULK: Duration = Duration::from_millis(300);
const BULK_BYTES: usize = 8 << 20;

/// The ranges of some files: first and last byte.
pub(crate) const FILE_RANGES: &[(&str, (usize, usize))] =
    &[("1k.bin", (100, 299)), ("100k.bin", (50_000, 60_239)), ("10m.bin", (5_000_000, 5_099_999))];
/// Requests a second of the paced workloads.
pub(crate) const RATES: &[u32] = &[5_000, 20_000, 40_000, 60_000, 80_000, 110_000];

pub(crate) static QUICK: LazyLock<Vec<Workload>> = LazyLock::new(table::quick);
pub(crate) static GRID: LazyLock<Vec<Workload>> = LazyLock::new(table::grid);
/// The workloads of quick, full and tls. A name that is in both stands once.
pub(crate) static TURNS: LazyLock<Vec<Workload>> = LazyLock::new(|| {
    let is_new = |one: &Workload| QUICK.iter().all(|known| known.name != one.name);
    let others = table::grid().into_iter().chain(table::tls()).filter(is_new);
    table::quick().into_iter().chain(others).collect()
});
pub(crate) static ROUTER: LazyLock<Vec<Workload>> = LazyLock::new(table::router);
pub(crate) static TLS: LazyLock<Vec<Workload>> = LazyLock::new(table::tls);

/// Returns what decides a column: CPU a request if handlers do not block, requests/s if they do.
pub(crate) fn decides(column: &str) -> Metric {
    match column.trim_start_matches("tls-").split('-').next() {
        Some("slow" | "wait" | "mixed") => Metric::RATE,
        Some("storm") => Metric::P99_OVER_ALONE,
        Some("idle") => Metric::BYTES_EACH,
        _ => Metric::CPU_US,
    }
}

/// Whether a server at a fixed rate owes at most the answers of 10 ms at the end. Without a fixed rate nothing is owed.
pub(crate) fn keeps_up(owed: Option<f64>, answers_per_s: f64) -> bool {
    owed.is_none_or(|owed| owed <= answers_per_s * 0.01)
}

/// Returns the workload of a name. If there is no such name, `slow` means all that begin with `slow-`.
pub(crate) fn named(table: &'static [Workload], name: &str) -> Vec<&'static Workload> {
    if let Some(exact) = table.iter().find(|workload| workload.name == name) {
        return vec![exact];
    }
    let of_family =
        |workload: &&Workload| workload.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    table.iter().filter(of_family).collect()
}

impl Workload {
    /// Returns the name of its floor. None: no floor does this.
    pub(crate) fn floor_name(&self) -> Option<&'static str> {
        (self.ask != Ask::Route).then(|| self.floor.name())
    }

    /// Adapts the workload to a server. Except on fibers, a handler of ours that waits holds a thread, and a response that comes later does
    /// not.
    pub(crate) fn of(&self, subject: &Subject) -> Cow<'_, Workload> {
        let on_fibers = |engine: &str| engine.split(':').next() == Some("fibers");
        match (subject, &self.kind) {
            (Subject::Weft { engine }, Kind::Requests(group))
                if self.ask == Ask::Wait && !engine.as_deref().is_some_and(on_fibers) =>
            {
                let group = Group { path: "/later?ms=1", ..group.clone() };
                Cow::Owned(Workload { kind: Kind::Requests(group), ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// Whether servers can have the load in turn: one group asks.
    pub(crate) fn has_turns(&self) -> bool {
        matches!(self.kind, Kind::Requests(_) | Kind::Paced { .. })
    }

    /// Returns the length of a turn: long beside the requests that are under way at its end, and short beside the tenths of a second
    /// after which hosts move cores, if that leaves enough to measure.
    pub(crate) fn turn(&self) -> Duration {
        match self.kind {
            Kind::Paced { .. } => TURN_PACED,
            _ if !self.sleep.is_zero() => TURN_BLOCKING,
            _ if self.is_bulk() => TURN_BULK.max(self.time_min),
            _ => TURN.max(self.time_min),
        }
    }

    /// Whether most of it is bytes on their way.
    pub(crate) fn is_bulk(&self) -> bool {
        let group = self.group();
        let file = || FILES.iter().find(|(name, _)| group.path.strip_prefix('/') == Some(name));
        let bytes = match self.ask {
            Ask::File if group.range.is_none() => file().map_or(0, |(_, bytes)| *bytes),
            _ => group.body_bytes,
        };
        bytes * group.connections >= BULK_BYTES
    }

    /// Returns the group whose answer is checked first.
    pub(crate) fn group(&self) -> &Group {
        match &self.kind {
            Kind::Requests(group) | Kind::Paced { group, .. } => group,
            Kind::Mixed { quick, .. } => quick,
            Kind::Idle(group) => group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for table in [&*QUICK, &*GRID, &*ROUTER] {
            for (at, workload) in table.iter().enumerate() {
                assert!(table[..at].iter().all(|other| other.name != workload.name), "{}", workload.name);
            }
        }
    }

    #[test]
    fn turns_are_longer_where_requests_are() {
        let turn = |name| named(&GRID, name)[0].turn();
        for name in ["health-64", "zero-400", "echo-64k", "file-1k", "file-100k", "file-range-10m"] {
            assert_eq!(turn(name), TURN, "{name}");
        }
        for name in ["echo-1m", "file-1m"] {
            assert_eq!(turn(name), TURN_BULK, "{name}");
        }
        assert_eq!(turn("file-10m"), Duration::from_secs(1));
        assert_eq!(["slow-10", "slow-close-400", "wait-100"].map(turn), [TURN_BLOCKING; 3]);
        assert_eq!(["rate-5000", "rate-110000"].map(turn), [TURN_PACED; 2]);
        let is_bulk = |name| named(&GRID, name)[0].is_bulk();
        assert_eq!(["echo-1m", "file-1m", "file-10m"].map(is_bulk), [true; 3]);
        assert_eq!(["echo-64k", "file-100k", "file-range-10m", "rate-5000"].map(is_bulk), [false; 4]);
        let has_turns = |name| named(&GRID, name)[0].has_turns();
        assert_eq!(["health-64", "rate-5000", "mixed", "idle"].map(has_turns), [true, true, false, false]);
    }

    #[test]
    fn families_are_found() {
        let names = |name| -> Vec<&str> { named(&QUICK, name).iter().map(|one| one.name.as_str()).collect() };
        assert_eq!(
            names("slow"),
            ["slow-64-100us", "slow-64-300us", "slow-100", "slow-400", "slow-close-100", "slow-close-400"]
        );
        assert_eq!(names("slow-100"), ["slow-100"]);
        assert_eq!(names("slo"), [""; 0]);
        assert_eq!(named(&GRID, "rate").len(), RATES.len());
    }
}
