//! What does one server reach at one workload, once?

mod answer;
mod meter;
mod metric;

use std::time::Duration;

use crate::args::{GridOptions, LoadKind};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::load::{Group, idle, wrk};
use crate::peers::Peers;
use crate::procs::distance::Distance;
use crate::procs::server::Server;
use crate::procs::usage::resident_bytes;
use crate::subject::Subject;
use crate::workloads::{HEALTH, Kind, Workload};
pub(crate) use answer::expected;
use meter::Meter;
pub(crate) use metric::{Metric, Sample};

/// Before each measured time: caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long idle connections are watched.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Starts a fresh server, sees that it answers right, measures it, and stops it.
pub(crate) fn measure(
    peers: &mut Peers,
    options: &GridOptions,
    subject: &Subject,
    workload: &Workload,
    distance: &mut Distance,
) -> Result<Sample> {
    let workload = &*workload.of(subject);
    let mut server = peers.start(subject, workload)?;
    let expected = expected(&server, subject, workload)?;
    let time = options.time.max(workload.time_min);
    let bench = Bench { server: &server, options, time, expected: &expected };
    let sample = match (&workload.kind, options.load) {
        (Kind::Requests(group), LoadKind::Own) => bench.requests(group, distance)?,
        (Kind::Requests(group), LoadKind::Wrk) => bench.requests_of_wrk(group, peers)?,
        (Kind::Paced { group, per_s }, _) => bench.paced(group, *per_s)?,
        (Kind::Mixed { quick, blockers }, _) => bench.mixed(quick, blockers)?,
        (Kind::Idle, _) => idle_connections(&server, options)?,
    };
    server.check()?;
    Ok(sample)
}

/// One server under one load.
struct Bench<'a> {
    server: &'a Server,
    options: &'a GridOptions,
    /// How long it is measured.
    time: Duration,
    /// The body of the answer.
    expected: &'a [u8],
}

impl Bench<'_> {
    fn requests(&self, group: &Group, distance: &mut Distance) -> Result<Sample> {
        let groups = std::slice::from_ref(group);
        let mut generator = Generator::expecting(self.server.port, groups, Some(self.expected), false)?;
        generator.drive(WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let tallies = generator.drive_and_look(self.time, &mut || distance.look())?;
        Ok(tallies.first().map(|tally| with_costs(tally, &meter)).unwrap_or_default())
    }

    fn paced(&self, group: &Group, per_s: u32) -> Result<Sample> {
        let groups = std::slice::from_ref(group);
        let mut generator = Generator::expecting(self.server.port, groups, Some(self.expected), true)?;
        generator.drive_at(f64::from(per_s), WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let tally = generator.drive_at(f64::from(per_s), self.time)?;
        let mut sample = with_costs(&tally, &meter);
        sample.0.push((Metric::Unanswered, tally.unanswered as f64));
        Ok(sample)
    }

    fn requests_of_wrk(&self, group: &Group, peers: &Peers) -> Result<Sample> {
        let port = self.server.port;
        Generator::open(port, std::slice::from_ref(group))?.drive(WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let report = wrk::run(group, port, self.time, self.options.cores.load.count, peers.scratch.path())?;
        interrupt::check()?;
        let used = [
            (Metric::Rate, report.rate),
            (Metric::P50Ms, report.p50_ms),
            (Metric::P99Ms, report.p99_ms),
            (Metric::Errors, report.errors),
        ];
        Ok(Sample([used.as_slice(), &meter.costs(report.requests)].concat()))
    }

    fn mixed(&self, quick: &Group, blockers: &Group) -> Result<Sample> {
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let alone = drive(self.server, std::slice::from_ref(quick), self.time)?;
        let beside = drive(self.server, &[quick.clone(), blockers.clone()], self.time)?;
        let others = meter.others();
        let [alone, beside, blocking] =
            [alone.first(), beside.first(), beside.get(1)].map(Option::<&Tally>::cloned);
        let (Some(alone), Some(beside), Some(blocking)) = (alone, beside, blocking) else {
            return Ok(Sample::default());
        };
        must_be_answered("the quick requests alone", quick, &alone)?;
        must_be_answered("the quick requests beside the others", quick, &beside)?;
        must_be_answered("the blocking requests", blockers, &blocking)?;
        let (p99, p99_alone) = (beside.latency_ms(0.99), alone.latency_ms(0.99));
        Ok(Sample(vec![
            (Metric::Rate, beside.rate()),
            (Metric::P50Ms, beside.latency_ms(0.50)),
            (Metric::P99Ms, p99),
            (Metric::P999Ms, beside.latency_ms(0.999)),
            (Metric::AloneP99Ms, p99_alone),
            (Metric::P99OverAlone, p99 / p99_alone),
            (Metric::Others, others),
            (Metric::Errors, (alone.errors() + beside.errors() + blocking.errors()) as f64),
        ]))
    }
}

/// Blockers that are not answered would make it easy, and latencies of nothing have no ratio.
fn must_be_answered(who: &str, group: &Group, tally: &Tally) -> Result<()> {
    if tally.ok > 0 {
        return Ok(());
    }
    Err(Failure::Run(format!("{}: none of {who} was answered", group.path)))
}

fn with_costs(tally: &Tally, meter: &Meter) -> Sample {
    let used = [
        (Metric::Rate, tally.rate()),
        (Metric::P50Ms, tally.latency_ms(0.50)),
        (Metric::P99Ms, tally.latency_ms(0.99)),
        (Metric::P999Ms, tally.latency_ms(0.999)),
        (Metric::Errors, tally.errors() as f64),
    ];
    Sample([used.as_slice(), &meter.costs(tally.answers() as f64)].concat())
}

fn drive(server: &Server, groups: &[Group], time: Duration) -> Result<Vec<Tally>> {
    let mut generator = Generator::open(server.port, groups)?;
    generator.drive(WARM_UP)?;
    generator.drive(time)
}

fn idle_connections(server: &Server, options: &GridOptions) -> Result<Sample> {
    // What the server touches for the first time anyway is not a cost of the connections.
    drive(server, &[HEALTH], WARM_UP)?;
    let before = settled_bytes(server.pid())?;
    let held = idle::open(server.port, options.idle, &HEALTH)?;
    let after = settled_bytes(server.pid())?;
    let meter = Meter::start(server.pid(), options.cores);
    interrupt::sleep(IDLE_TIME)?;
    let (cpu_us, switches) = meter.server_used();
    let (cpu_ms, per_s) = (cpu_us / 1e3, switches / IDLE_TIME.as_secs_f64());
    let connections = held.connections.len() as f64;
    Ok(Sample(vec![
        (Metric::Connections, connections),
        (Metric::BytesEach, after.saturating_sub(before) as f64 / connections.max(1.0)),
        (Metric::IdleCpuMs, cpu_ms),
        (Metric::IdleSwitches, per_s),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratio of a latency to none is no number: its JSON could not be read again.
    #[test]
    fn who_answers_nothing_has_failed() {
        let (group, Ok(mut tally)) = (Group::get("/slow?ms=100", 8), Tally::new()) else {
            panic!("no tally")
        };
        let failed = must_be_answered("the blocking requests", &group, &tally);
        assert!(
            matches!(failed, Err(Failure::Run(why)) if why.contains("none of the blocking requests was answered"))
        );
        tally.ok = 1;
        assert!(must_be_answered("the blocking requests", &group, &tally).is_ok());
    }
}
