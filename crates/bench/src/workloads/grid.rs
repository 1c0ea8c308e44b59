//! What does `full` measure? The columns of the servers that Weftwork replaces (handler none, 0 ms, 1 ms; kept
//! or closed; 10, 100, 400 connections), and what they left out.

use std::time::Duration;

use super::{Ask, FILE_RANGES, FILES, HEALTH, Kind, RATES, Workload, quick};
use crate::floors::Floor;
use crate::load::Group;

pub(super) fn table() -> Vec<Workload> {
    let mut table = Vec::new();
    for connections in [10, 64, 100, 400, 512, 2000] {
        table.push(health(&format!("health-{connections}"), Group::get("/health", connections)));
    }
    for connections in [10, 64, 100, 400] {
        let group = Group { close: true, ..Group::get("/health", connections) };
        table.push(health(&format!("close-{connections}"), group));
    }
    for (name, path, ms) in [("zero", "/slow?ms=0", 0), ("slow", "/slow?ms=1", 1)] {
        for (kind, close) in [("", false), ("-close", true)] {
            for connections in [10, 100, 400] {
                let group = Group { close, ..Group::get(path, connections) };
                table.push(slow(&format!("{name}{kind}-{connections}"), group, ms));
            }
        }
    }
    table.extend([100, 400].map(|connections| wait(&format!("wait-{connections}"), connections)));
    table.push(health("pipelined-64", Group { depth: 16, ..HEALTH }));
    table.push(health("browser-64", Group { browser: true, ..HEALTH }));
    table.push(health("churn-64", Group { lots_max: 10, ..HEALTH }));
    table.push(of(Ask::Json, "json-64", Group::get("/json", 64)));
    table.push(echo("echo-64", 64, 64));
    table.push(echo("echo-64k", 16, 64 << 10));
    table.push(echo("echo-1m", 8, 1 << 20));
    table.push(quick::mixed(&[]));
    table.push(quick::idle(&[]));
    for &(name, _) in FILES {
        let connections = if name.starts_with("10m") { 8 } else { 64 };
        // A page is what a browser asks for, and takes compressed: there is nothing compressed beside it.
        let (stem, browser) =
            (name.trim_end_matches(".bin").trim_end_matches(".html"), name.ends_with(".html"));
        let group = Group { browser, ..Group::get(["/", name].concat().leak(), connections) };
        let mut workload = of(Ask::File, &format!("file-{stem}"), group);
        if name.starts_with("10m") {
            // Eight clients get some 60 answers in 0.3 s, and one of them may get none, which is an error.
            workload.time_min = Duration::from_secs(1);
            workload.title.push_str(", for 1 s at least");
        }
        table.push(workload);
    }
    for &(name, range) in FILE_RANGES {
        let group = Group { range: Some(range), ..Group::get(["/", name].concat().leak(), 64) };
        table.push(of(Ask::File, &format!("file-range-{}", name.trim_end_matches(".bin")), group));
    }
    table.extend(RATES.iter().map(|per_s| paced(*per_s)));
    for workload in &mut table {
        if matches!(workload.kind, Kind::Mixed { .. }) {
            workload.rounds_max = 1;
        }
    }
    table
}

fn of(ask: Ask, name: &str, group: Group) -> Workload {
    let title = title(&group);
    let (kind, floor) = (Kind::Requests(group), Floor::Epoll);
    let (sleep, rounds_max, time_min) = (Duration::ZERO, usize::MAX, Duration::ZERO);
    Workload { name: name.to_owned(), title, kind, ask, floor, sleep, rounds_max, time_min, targets: &[] }
}

fn health(name: &str, group: Group) -> Workload {
    of(Ask::Health, name, group)
}

fn slow(name: &str, group: Group, ms: u64) -> Workload {
    let sleep = Duration::from_millis(ms);
    let floor = if sleep.is_zero() { Floor::Epoll } else { Floor::Threads };
    Workload { floor, sleep, ..of(Ask::Slow, name, group) }
}

fn wait(name: &str, connections: usize) -> Workload {
    let sleep = Duration::from_millis(1);
    Workload { floor: Floor::Threads, sleep, ..of(Ask::Wait, name, Group::get("/wait?ms=1", connections)) }
}

fn echo(name: &str, connections: usize, body_bytes: usize) -> Workload {
    of(Ask::Echo, name, Group { body_bytes, ..Group::get("/echo", connections) })
}

fn paced(per_s: u32) -> Workload {
    let title = format!(
        "/health, {per_s} requests a second, whatever comes back, for 2 s at least, over 64 connections"
    );
    let kind = Kind::Paced { group: HEALTH, per_s };
    // At 5,000 requests a second the latency of one in a thousand rests on 20 of them then, in two rounds.
    let (time_min, rounds_max) = (Duration::from_secs(2), 2);
    Workload { kind, title, time_min, rounds_max, ..health(&format!("rate-{per_s}"), HEALTH) }
}

/// A group in words.
fn title(group: &Group) -> String {
    let what = match group.path {
        "/slow?ms=0" => "handler sleeps 0 ms",
        "/slow?ms=1" => "handler blocks 1 ms",
        "/wait?ms=1" => "answered after 1 ms without blocking",
        path => path,
    };
    let kept = match group {
        Group { close: true, .. } => ", Connection: close".to_owned(),
        Group { lots_max: lots_max @ 1.., .. } => format!(", a new connection after {lots_max} requests"),
        Group { .. } => ", keep-alive".to_owned(),
    };
    let depth = if group.depth > 1 { format!(", {} pipelined", group.depth) } else { String::new() };
    let fields = if group.browser { ", 20 fields as a browser sends" } else { "" };
    let body = if group.body_bytes > 0 { format!(", {} bytes", group.body_bytes) } else { String::new() };
    let part = group.range.map(|(first, last)| format!(", bytes {first} to {last}")).unwrap_or_default();
    format!("{what}{part}{body}{kept}{depth}{fields}, {} connections", group.connections)
}
