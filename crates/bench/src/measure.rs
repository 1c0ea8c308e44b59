//! What does one server reach at one workload, once?

mod meter;

use std::time::Duration;

use crate::args::{LoadKind, QuickOptions};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::load::{Group, idle, wrk};
use crate::peers::Peers;
use crate::procs::server::Server;
use crate::procs::usage::resident_bytes;
use crate::subject::Subject;
use crate::workloads::{HEALTH, Kind, Workload};
use meter::Meter;

/// Before each measured time: caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(400);
/// How long idle connections are watched.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// One number of a sample; the name is also its key in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Good answers a second.
    Rate,
    P50Ms,
    P99Ms,
    Errors,
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
    /// CPU used in [`IDLE_TIME`].
    IdleCpuMs,
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Rate => "requests_per_s",
            Metric::P50Ms => "p50_ms",
            Metric::P99Ms => "p99_ms",
            Metric::Errors => "errors",
            Metric::CpuUs => "cpu_us_per_request",
            Metric::Switches => "context_switches_per_request",
            Metric::Busy => "server_cpu_percent",
            Metric::Others => "others_cpu_percent",
            Metric::AloneP99Ms => "p99_alone_ms",
            Metric::P99OverAlone => "p99_over_alone",
            Metric::Connections => "connections",
            Metric::BytesEach => "bytes_per_connection",
            Metric::IdleCpuMs => "idle_cpu_ms",
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
}

/// Starts a fresh server, measures it, and stops it.
pub(crate) fn measure(
    peers: &mut Peers,
    options: &QuickOptions,
    subject: &Subject,
    workload: &Workload,
) -> Result<Sample> {
    let mut server = peers.start(subject, workload)?;
    let sample = match (&workload.kind, options.load) {
        (Kind::Requests(group), LoadKind::Own) => requests(&server, group, options)?,
        (Kind::Requests(group), LoadKind::Wrk) => requests_of_wrk(&server, group, options, peers)?,
        (Kind::Mixed { quick, blockers }, _) => mixed(&server, quick, blockers, options)?,
        (Kind::Idle, _) => idle_connections(&server, options)?,
    };
    server.check()?;
    Ok(sample)
}

fn requests(server: &Server, group: &Group, options: &QuickOptions) -> Result<Sample> {
    let mut generator = Generator::open(server.port, std::slice::from_ref(group))?;
    generator.drive(WARM_UP)?;
    let meter = Meter::start(server.pid(), options.cores);
    let tallies = generator.drive(options.time)?;
    let Some(tally) = tallies.first() else { return Ok(Sample::default()) };
    let used = [
        (Metric::Rate, tally.rate()),
        (Metric::P50Ms, tally.latency_ms(0.50)),
        (Metric::P99Ms, tally.latency_ms(0.99)),
        (Metric::Errors, tally.errors() as f64),
    ];
    let costs = meter.costs((tally.ok + tally.non_2xx) as f64);
    Ok(Sample([used.as_slice(), &costs].concat()))
}

fn requests_of_wrk(server: &Server, group: &Group, options: &QuickOptions, peers: &Peers) -> Result<Sample> {
    Generator::open(server.port, std::slice::from_ref(group))?.drive(WARM_UP)?;
    let meter = Meter::start(server.pid(), options.cores);
    let report = wrk::run(group, server.port, options.time, peers.scratch.path())?;
    interrupt::check()?;
    let used = [
        (Metric::Rate, report.rate),
        (Metric::P50Ms, report.p50_ms),
        (Metric::P99Ms, report.p99_ms),
        (Metric::Errors, report.errors),
    ];
    Ok(Sample([used.as_slice(), &meter.costs(report.requests)].concat()))
}

fn mixed(server: &Server, quick: &Group, blockers: &Group, options: &QuickOptions) -> Result<Sample> {
    let meter = Meter::start(server.pid(), options.cores);
    let alone = drive(server, std::slice::from_ref(quick), options.time)?;
    let beside = drive(server, &[quick.clone(), blockers.clone()], options.time)?;
    let others = meter.others();
    let [alone, beside, blocking] =
        [alone.first(), beside.first(), beside.get(1)].map(Option::<&Tally>::cloned);
    let (Some(alone), Some(beside), Some(blocking)) = (alone, beside, blocking) else {
        return Ok(Sample::default());
    };
    // Blockers that are not answered would make it easy.
    if blocking.ok == 0 {
        return Err(Failure::Run(format!("{}: none of the blocking requests was answered", blockers.path)));
    }
    let (p99, p99_alone) = (beside.latency_ms(0.99), alone.latency_ms(0.99));
    Ok(Sample(vec![
        (Metric::Rate, beside.rate()),
        (Metric::P50Ms, beside.latency_ms(0.50)),
        (Metric::P99Ms, p99),
        (Metric::AloneP99Ms, p99_alone),
        (Metric::P99OverAlone, p99 / p99_alone),
        (Metric::Others, others),
        (Metric::Errors, (alone.errors() + beside.errors() + blocking.errors()) as f64),
    ]))
}

fn drive(server: &Server, groups: &[Group], time: Duration) -> Result<Vec<Tally>> {
    let mut generator = Generator::open(server.port, groups)?;
    generator.drive(WARM_UP)?;
    generator.drive(time)
}

fn idle_connections(server: &Server, options: &QuickOptions) -> Result<Sample> {
    // What the server touches for the first time anyway is not a cost of the connections.
    drive(server, &[HEALTH], WARM_UP)?;
    let before = settled_bytes(server.pid())?;
    let held = idle::open(server.port, options.idle, &HEALTH)?;
    let after = settled_bytes(server.pid())?;
    let meter = Meter::start(server.pid(), options.cores);
    interrupt::sleep(IDLE_TIME)?;
    let cpu_ms = meter.server_us() / 1e3;
    let connections = held.connections.len() as f64;
    Ok(Sample(vec![
        (Metric::Connections, connections),
        (Metric::BytesEach, after.saturating_sub(before) as f64 / connections.max(1.0)),
        (Metric::IdleCpuMs, cpu_ms),
        (Metric::Errors, held.failed as f64),
    ]))
}

/// Resident bytes once they stay the same, or after a few seconds in which they did not.
fn settled_bytes(pid: u32) -> Result<u64> {
    const LOOKS_MAX: usize = 15;
    let mut last = resident_bytes(pid);
    let mut same = 0;
    for _ in 0..LOOKS_MAX {
        interrupt::sleep(Duration::from_millis(200))?;
        let now = resident_bytes(pid);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same == 3 {
            break;
        }
    }
    Ok(last)
}
