//! What does `quick` measure? What weft has targets for, in under four minutes.

use std::time::Duration;

use super::Target::*;
use super::{Ask, HEALTH, Kind, Target, Workload};
use crate::floors::Floor;
use crate::load::Group;

const MS: Duration = Duration::from_millis(1);

pub(super) fn quick(name: &str, title: &str, group: Group, targets: &'static [Target]) -> Workload {
    Workload {
        name: name.to_owned(),
        title: title.to_owned(),
        kind: Kind::Requests(group),
        ask: Ask::Health,
        floor: Floor::Epoll,
        sleep: Duration::ZERO,
        rounds_max: usize::MAX,
        time_min: Duration::ZERO,
        targets,
    }
}

fn slow(name: &str, title: &str, connections: usize, close: bool) -> Workload {
    let group = Group { close, ..Group::get("/slow?ms=1", connections) };
    let targets = &[RateOverFloorMin(0.95), NoErrors];
    Workload { ask: Ask::Slow, floor: Floor::Threads, sleep: MS, ..quick(name, title, group, targets) }
}

pub(super) fn table() -> Vec<Workload> {
    vec![
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
        mixed(&[P99OverAloneMax(1.5), NoErrors]),
        idle(&[BytesEachMax(400.0), NoErrors]),
    ]
}

pub(super) fn mixed(targets: &'static [Target]) -> Workload {
    Workload {
        name: "mixed".to_owned(),
        title: "64 quick keep-alive connections, alone and while 8 others block 100 ms a request, 1.2 s of each at least".to_owned(),
        kind: Kind::Mixed { quick: HEALTH, blockers: Group::get("/slow?ms=100", 8) },
        ask: Ask::Slow,
        floor: Floor::Threads,
        sleep: Duration::from_millis(100),
        rounds_max: usize::MAX,
        // Eight blockers of 100 ms, one after the other, are answered once in that time at least.
        time_min: Duration::from_millis(1200),
        targets,
    }
}

pub(super) fn idle(targets: &'static [Target]) -> Workload {
    Workload {
        kind: Kind::Idle,
        // What it takes is the same each time, and each time takes seven seconds.
        rounds_max: 1,
        ..quick("idle", "idle keep-alive connections, each after one request", HEALTH, targets)
    }
}
