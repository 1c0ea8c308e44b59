//! What is measured, on whom, and what must weft reach? One table; everything else reads it.

use std::time::Duration;

use crate::floors::Floor;
use crate::load::Group;

#[derive(Debug, PartialEq)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: Kind,
    /// The floor that suits it.
    pub(crate) floor: Floor,
    /// How long the floor sleeps before the answer to `/slow`.
    pub(crate) sleep: Duration,
    /// nginx has nothing that blocks: it takes part only where no handler does.
    pub(crate) nginx: bool,
    pub(crate) targets: &'static [Target],
}

#[derive(Debug, PartialEq)]
pub(crate) enum Kind {
    /// One group asks as fast as it is answered.
    Requests(Group),
    /// Quick requests alone, and again while others block.
    Mixed { quick: Group, blockers: Group },
    /// Connections that wait.
    Idle,
}

/// What weft must reach; medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    NoErrors,
    CpuOverFloorMax(f64),
    CpuBelowNginx,
    RateOverFloorMin(f64),
    P99OverAloneMax(f64),
    BytesEachMax(f64),
}

use Target::*;

const MS: Duration = Duration::from_millis(1);

pub(crate) const HEALTH: Group = Group { path: "/health", connections: 64, depth: 1, close: false };
const SLOW: Group = Group { path: "/slow?ms=1", connections: 100, depth: 1, close: false };
const BLOCKERS: Group = Group { path: "/slow?ms=100", connections: 8, depth: 1, close: false };

const fn quick(
    name: &'static str,
    title: &'static str,
    group: Group,
    targets: &'static [Target],
) -> Workload {
    let kind = Kind::Requests(group);
    Workload { name, title, kind, floor: Floor::Epoll, sleep: Duration::ZERO, nginx: true, targets }
}

const fn slow(name: &'static str, title: &'static str, connections: usize, close: bool) -> Workload {
    let kind = Kind::Requests(Group { connections, close, ..SLOW });
    let targets = &[RateOverFloorMin(0.95), NoErrors];
    Workload { name, title, kind, floor: Floor::Threads, sleep: MS, nginx: false, targets }
}

pub(crate) const ALL: &[Workload] = &[
    quick(
        "keepalive",
        "/health, keep-alive, 64 connections",
        HEALTH,
        &[CpuOverFloorMax(1.10), CpuBelowNginx, NoErrors],
    ),
    quick(
        "close",
        "/health, Connection: close, 64 at a time",
        Group { close: true, ..HEALTH },
        &[CpuOverFloorMax(1.15), NoErrors],
    ),
    quick(
        "pipelined",
        "/health, keep-alive, 16 pipelined, 64 connections",
        Group { depth: 16, ..HEALTH },
        &[RateOverFloorMin(0.80), NoErrors],
    ),
    slow("slow-100", "1 ms blocking handler, keep-alive, 100 connections", 100, false),
    slow("slow-400", "1 ms blocking handler, keep-alive, 400 connections", 400, false),
    slow("slow-close-100", "1 ms blocking handler, Connection: close, 100 at a time", 100, true),
    slow("slow-close-400", "1 ms blocking handler, Connection: close, 400 at a time", 400, true),
    Workload {
        name: "mixed",
        title: "64 quick keep-alive connections, alone and while 8 others block 100 ms a request",
        kind: Kind::Mixed { quick: HEALTH, blockers: BLOCKERS },
        floor: Floor::Threads,
        sleep: Duration::from_millis(100),
        nginx: false,
        targets: &[P99OverAloneMax(1.5), NoErrors],
    },
    Workload {
        name: "idle",
        title: "idle keep-alive connections, each after one request",
        kind: Kind::Idle,
        floor: Floor::Epoll,
        sleep: Duration::ZERO,
        nginx: true,
        targets: &[BytesEachMax(400.0), NoErrors],
    },
];

/// The workloads of a name; `slow` means all that begin with `slow-`.
pub(crate) fn named(name: &str) -> Vec<&'static Workload> {
    let of_family =
        |workload: &&Workload| workload.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    match ALL.iter().find(|workload| workload.name == name) {
        Some(workload) => vec![workload],
        None => ALL.iter().filter(of_family).collect(),
    }
}
