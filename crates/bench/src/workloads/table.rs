//! The list of workloads: those of `quick`, with targets, those of `full`, and those of `router`.

use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use super::Target::{self, *};
use super::{Ask, FILE_RANGES, FILES, HEALTH, Kind, RATES, Workload};
use crate::floors::Floor;
use crate::load::Group;
use crate::load::wire::Tls;

const MS: Duration = Duration::from_millis(1);
/// A search among routes takes a few dozen nanoseconds of a request's microseconds. Beyond that, something else is wrong.
const ROUTE_TARGETS: &[Target] = &[CpuOverBareMax(1.03), NoErrors];
const TLS_TARGETS: &[Target] = &[CpuBelowNginx, NoErrors];
const BLOCKING_TARGETS: &[Target] = &[RateOverFloorMin(0.95), NoErrors];
/// Handlers that block shorter than a hand-off takes.
const SHORT_TARGETS: &[Target] = &[RateOverFloorMin(0.90), NoErrors];

/// The workloads that weft has targets for, in under four minutes.
pub(super) fn quick() -> Vec<Workload> {
    let mut table = vec![
        of(Ask::Health, "keepalive", HEALTH).with(&[CpuOverFloorMax(1.10), CpuBelowNginx, NoErrors]),
        of(Ask::Health, "close", closing(HEALTH)).with(&[CpuOverFloorMax(1.15), NoErrors]),
        of(Ask::Health, "pipelined", Group { depth: 16, ..HEALTH }).with(&[RateOverFloorMin(0.80), NoErrors]),
    ];
    table.extend(short_blocking());
    for (kind, close) in [("", false), ("-close", true)] {
        for connections in [100, 400] {
            let group = Group { close, ..Group::get("/slow?ms=1", connections) };
            table.push(slow(&format!("slow{kind}-{connections}"), group, MS).with(BLOCKING_TARGETS));
        }
    }
    table.extend([
        mixed().with(&[P99OverAloneMax(1.5), NoErrors]),
        idle(HEALTH).with(&[BytesEachMax(400.0), NoErrors]),
    ]);
    table
}

/// The columns of the servers that Weftwork replaces, and the columns that they left out. A column has no handler or
/// one of 0 or 1 ms, kept or closed connections, and 10, 100 or 400 of them.
pub(super) fn grid() -> Vec<Workload> {
    let mut table = Vec::new();
    for connections in [10, 64, 100, 400, 512, 2000] {
        table.push(of(Ask::Health, &format!("health-{connections}"), Group::get("/health", connections)));
    }
    for connections in [10, 64, 100, 400] {
        let group = closing(Group::get("/health", connections));
        table.push(of(Ask::Health, &format!("close-{connections}"), group));
    }
    for (name, path, sleep) in [("zero", "/slow?ms=0", Duration::ZERO), ("slow", "/slow?ms=1", MS)] {
        for (kind, close) in [("", false), ("-close", true)] {
            for connections in [10, 100, 400] {
                let group = Group { close, ..Group::get(path, connections) };
                table.push(slow(&format!("{name}{kind}-{connections}"), group, sleep));
            }
        }
    }
    table.extend(short_blocking());
    for connections in [100, 400] {
        let wait = of(Ask::Wait, &format!("wait-{connections}"), Group::get("/wait?ms=1", connections));
        table.push(Workload { floor: Floor::Threads, sleep: MS, ..wait });
    }
    table.extend([
        of(Ask::Health, "pipelined-64", Group { depth: 16, ..HEALTH }),
        of(Ask::Health, "browser-64", Group { browser: true, ..HEALTH }),
        of(Ask::Health, "churn-64", Group { lots_max: 10, ..HEALTH }),
        of(Ask::Json, "json-64", Group::get("/json", 64)),
        of(Ask::Echo, "echo-64", Group { body_bytes: 64, ..Group::get("/echo", 64) }),
        of(Ask::Echo, "echo-64k", Group { body_bytes: 64 << 10, ..Group::get("/echo", 16) }),
        of(Ask::Echo, "echo-1m", Group { body_bytes: 1 << 20, ..Group::get("/echo", 8) }),
        Workload { rounds_max: 1, ..mixed() },
        idle(HEALTH),
    ]);
    table.extend(FILES.iter().map(|(name, _)| file(name)));
    for &(name, range) in FILE_RANGES {
        let group = Group { range: Some(range), ..Group::get(["/", name].concat().leak(), 64) };
        table.push(of(Ask::File, &format!("file-range-{}", name.trim_end_matches(".bin")), group));
    }
    table.extend(RATES.iter().map(|per_s| paced(*per_s)));
    table
}

/// What a hundred typed routes add to a request, at a path of letters and at one with captures.
pub(super) fn router() -> Vec<Workload> {
    let captures = Group::get("/users/4711/notes/12", 64);
    [("static", HEALTH), ("captures", captures)]
        .map(|(name, group)| of(Ask::Route, name, group).with(ROUTE_TARGETS))
        .into()
}

/// The same cipher suite, key exchange and ECDSA certificate for all servers.
pub(super) fn tls() -> Vec<Workload> {
    let over = |tls, group: Group| Group { tls: Some(tls), ..group };
    let kept = over(Tls::Full(&TLS13), HEALTH);
    let mut table = vec![
        of(Ask::Health, "tls-keepalive", kept.clone()).with(TLS_TARGETS),
        of(Ask::File, "tls-file-1m", Group { path: "/1m.bin", ..kept.clone() }).with(TLS_TARGETS),
    ];
    for (name, tls) in [
        ("tls-full", Tls::Full(&TLS13)),
        ("tls-resumed", Tls::Resumed(&TLS13)),
        ("tls-full-1.2", Tls::Full(&TLS12)),
        ("tls-resumed-1.2", Tls::Resumed(&TLS12)),
    ] {
        table.push(of(Ask::Health, name, closing(over(tls, HEALTH))).with(TLS_TARGETS));
    }
    let hello = closing(over(Tls::Hello, HEALTH));
    table.push(Workload {
        name: "tls-storm".to_owned(),
        title: "64 quick keep-alive connections over TLS, alone and while 64 others send a ClientHello each, take the \
                first bytes of the answer, and leave: 'blocking/s' are these"
            .to_owned(),
        kind: Kind::Mixed { quick: kept.clone(), blockers: hello },
        targets: &[P99OverAloneMax(3.0), NoErrors],
        ..mixed()
    });
    table
        .push(Workload { name: "tls-idle".to_owned(), ..idle(kept) }.with(&[BytesEachMax(3584.0), NoErrors]));
    table
}

fn of(ask: Ask, name: &str, group: Group) -> Workload {
    Workload {
        name: name.to_owned(),
        title: title(&group),
        kind: Kind::Requests(group),
        ask,
        floor: Floor::Epoll,
        sleep: Duration::ZERO,
        rounds_max: usize::MAX,
        time_min: Duration::ZERO,
        targets: &[],
    }
}

impl Workload {
    fn with(self, targets: &'static [Target]) -> Workload {
        Workload { targets, ..self }
    }
}

fn closing(group: Group) -> Group {
    Group { close: true, ..group }
}

fn slow(name: &str, group: Group, sleep: Duration) -> Workload {
    let floor = if sleep.is_zero() { Floor::Epoll } else { Floor::Threads };
    Workload { floor, sleep, ..of(Ask::Slow, name, group) }
}

/// Handlers that block for as long as a query to a database on the same network.
fn short_blocking() -> [Workload; 2] {
    [("slow-64-100us", "/slow?us=100", 100), ("slow-64-300us", "/slow?us=300", 300)].map(
        |(name, path, us)| slow(name, Group::get(path, 64), Duration::from_micros(us)).with(SHORT_TARGETS),
    )
}

fn mixed() -> Workload {
    Workload {
        title: "64 quick keep-alive connections, alone and while 8 others block 100 ms a request, 1.2 s of each at least".to_owned(),
        kind: Kind::Mixed { quick: HEALTH, blockers: Group::get("/slow?ms=100", 8) },
        // Eight blockers of 100 ms, one after the other, are answered once in that time at least.
        time_min: Duration::from_millis(1200),
        ..slow("mixed", HEALTH, Duration::from_millis(100))
    }
}

fn idle(group: Group) -> Workload {
    Workload {
        title: "idle keep-alive connections, each after one request".to_owned(),
        kind: Kind::Idle(group),
        // The figures are the same each time, and each time takes seven seconds.
        rounds_max: 1,
        ..of(Ask::Health, "idle", HEALTH)
    }
}

fn file(name: &'static str) -> Workload {
    let is_long = name.starts_with("10m");
    // A page is what a browser asks for, and takes compressed: there is nothing compressed beside it.
    let (stem, browser) = (name.trim_end_matches(".bin").trim_end_matches(".html"), name.ends_with(".html"));
    let connections = if is_long { 8 } else { 64 };
    let group = Group { browser, ..Group::get(["/", name].concat().leak(), connections) };
    let mut workload = of(Ask::File, &format!("file-{stem}"), group);
    if is_long {
        // Eight clients get some 60 answers in 0.3 s. A client may get none, which is an error.
        workload.time_min = Duration::from_secs(1);
        workload.title.push_str(", for 1 s at least");
    }
    workload
}

fn paced(per_s: u32) -> Workload {
    Workload {
        kind: Kind::Paced { group: HEALTH, per_s },
        title: format!(
            "/health, {per_s} requests a second, whatever comes back, for 2 s at least, over 64 connections"
        ),
        // At 5,000 requests a second the latency of one in a thousand rests on 20 of them then, in two rounds.
        time_min: Duration::from_secs(2),
        rounds_max: 2,
        ..of(Ask::Health, &format!("rate-{per_s}"), HEALTH)
    }
}

/// A group in words.
fn title(group: &Group) -> String {
    let what = match group.path {
        "/slow?ms=0" => "handler sleeps 0 ms",
        "/slow?ms=1" => "handler blocks 1 ms",
        "/slow?us=100" => "handler blocks 0.1 ms",
        "/slow?us=300" => "handler blocks 0.3 ms",
        "/wait?ms=1" => "answered after 1 ms without blocking",
        "/users/4711/notes/12" => "/users/{id}/notes/{note}",
        path => path,
    };
    let kept = match group {
        Group { close: true, .. } => ", Connection: close".to_owned(),
        Group { lots_max: lots_max @ 1.., .. } => format!(", a new connection after {lots_max} requests"),
        Group { .. } => ", keep-alive".to_owned(),
    };
    let depth = if group.depth > 1 { format!(", {} pipelined", group.depth) } else { String::new() };
    let fields = if group.browser { ", 20 fields as a browser sends" } else { "" };
    let tls = match group.tls {
        None => "",
        Some(Tls::Resumed(version)) if *version == TLS12 => " over TLS 1.2, resumed",
        Some(Tls::Resumed(_)) => " over TLS 1.3, resumed",
        Some(Tls::Full(version)) if *version == TLS12 => " over TLS 1.2",
        Some(_) => " over TLS 1.3",
    };
    let body = if group.body_bytes > 0 { format!(", {} bytes", group.body_bytes) } else { String::new() };
    let part = group.range.map(|(first, last)| format!(", bytes {first} to {last}")).unwrap_or_default();
    format!("{what}{tls}{part}{body}{kept}{depth}{fields}, {} connections", group.connections)
}
