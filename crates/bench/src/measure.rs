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
use meter::{Costs, Meter};
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
    let body = expected(&server, subject, workload, workload.group())?;
    let time = options.time.max(workload.time_min);
    let bench = Bench { server: &server, options, time, expected: &body };
    let sample = match (&workload.kind, options.load) {
        (Kind::Requests(group), LoadKind::Own) => bench.requests(group, distance)?,
        (Kind::Requests(group), LoadKind::Wrk) => bench.requests_of_wrk(group, peers)?,
        (Kind::Paced { group, per_s }, _) => bench.paced(group, *per_s)?,
        (Kind::Mixed { quick, blockers }, _) => {
            let blocking = expected(&server, subject, workload, blockers)?;
            bench.mixed([quick, blockers], &blocking)?
        }
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
    /// The body of the answer, that to quick requests where there are others.
    expected: &'a [u8],
}

impl Bench<'_> {
    fn requests(&self, group: &Group, distance: &mut Distance) -> Result<Sample> {
        let groups = std::slice::from_ref(group);
        let (tallies, errors, costs) = self.ask(groups, &[self.expected], &mut || distance.look())?;
        Ok(tallies.first().map(|tally| sample(tally, errors, costs)).unwrap_or_default())
    }

    fn paced(&self, group: &Group, per_s: u32) -> Result<Sample> {
        let groups = std::slice::from_ref(group);
        let mut generator = Generator::expecting(self.server.port, groups, &[self.expected], true)?;
        let before = generator.drive_at(f64::from(per_s), WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let tally = generator.drive_at(f64::from(per_s), self.time)?;
        let costs = meter.costs(tally.answers() as f64);
        let mut sample = sample(&tally, errors(&[before, tally.clone()]), costs);
        sample.0.push((Metric::Unanswered, tally.unanswered as f64));
        Ok(sample)
    }

    fn requests_of_wrk(&self, group: &Group, peers: &Peers) -> Result<Sample> {
        let port = self.server.port;
        let early = warm_up(port, group, WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let report = wrk::run(group, port, self.time, self.options.cores.load.count, peers.scratch.path())?;
        interrupt::check()?;
        let used = [
            (Metric::Rate, report.rate),
            (Metric::P50Ms, report.p50_ms),
            (Metric::P99Ms, report.p99_ms),
            (Metric::Errors, early + report.errors),
        ];
        Ok(Sample([used.as_slice(), &meter.costs(report.requests)].concat()))
    }

    fn mixed(&self, [quick, blockers]: [&Group; 2], blocked: &[u8]) -> Result<Sample> {
        let bodies = [self.expected, blocked];
        let (alone, early, _) = self.ask(std::slice::from_ref(quick), &bodies, &mut || Ok(()))?;
        let (beside, late, costs) = self.ask(&[quick.clone(), blockers.clone()], &bodies, &mut || Ok(()))?;
        let [alone, beside, blocking] =
            [alone.first(), beside.first(), beside.get(1)].map(Option::<&Tally>::cloned);
        let (Some(alone), Some(beside), Some(blocking)) = (alone, beside, blocking) else {
            return Ok(Sample::default());
        };
        must_be_answered("the quick requests alone", quick, &alone)?;
        must_be_answered("the quick requests beside the others", quick, &beside)?;
        must_be_answered("the blocking requests", blockers, &blocking)?;
        let (p99, p99_alone) = (beside.latency_ms(0.99), alone.latency_ms(0.99));
        let figures = [
            (Metric::Rate, beside.rate()),
            (Metric::BlockingRate, blocking.rate()),
            (Metric::P50Ms, beside.latency_ms(0.50)),
            (Metric::P99Ms, p99),
            (Metric::P999Ms, beside.latency_ms(0.999)),
            (Metric::AloneP99Ms, p99_alone),
            (Metric::P99OverAlone, p99 / p99_alone),
            (Metric::Errors, early + late),
        ];
        Ok(Sample([figures.as_slice(), &costs].concat()))
    }

    /// What all groups got, how many errors there were, and what their answers cost.
    fn ask(
        &self,
        groups: &[Group],
        bodies: &[&[u8]],
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Vec<Tally>, f64, Costs)> {
        let mut generator = Generator::expecting(self.server.port, groups, bodies, false)?;
        let before = generator.drive(WARM_UP)?;
        let meter = Meter::start(self.server.pid(), self.options.cores);
        let tallies = generator.drive_and_look(self.time, look)?;
        let costs = meter.costs(answers(&tallies));
        let errors = errors(&before) + errors(&tallies) + errors(&generator.wait_for_late()?);
        Ok((tallies, errors, costs))
    }
}

/// Blockers that are not answered would make it easy, and latencies of nothing have no ratio.
fn must_be_answered(who: &str, group: &Group, tally: &Tally) -> Result<()> {
    if tally.ok > 0 {
        return Ok(());
    }
    Err(Failure::Run(format!("{}: none of {who} was answered", group.path)))
}

fn sample(tally: &Tally, errors: f64, costs: Costs) -> Sample {
    let used = [
        (Metric::Rate, tally.rate()),
        (Metric::P50Ms, tally.latency_ms(0.50)),
        (Metric::P99Ms, tally.latency_ms(0.99)),
        (Metric::P999Ms, tally.latency_ms(0.999)),
        (Metric::Errors, errors),
    ];
    Sample([used.as_slice(), &costs].concat())
}

fn answers(tallies: &[Tally]) -> f64 {
    tallies.iter().map(Tally::answers).sum::<u64>() as f64
}

fn errors(tallies: &[Tally]) -> f64 {
    tallies.iter().map(Tally::errors).sum::<u64>() as f64
}

/// The errors of it.
fn warm_up(port: u16, group: &Group, time: Duration) -> Result<f64> {
    Ok(errors(&Generator::open(port, std::slice::from_ref(group))?.drive(time)?))
}

fn idle_connections(server: &Server, options: &GridOptions) -> Result<Sample> {
    // What the server touches for the first time anyway is not a cost of the connections.
    let early = warm_up(server.port, &HEALTH, WARM_UP * 2)?;
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
        (Metric::Errors, early + held.failed as f64),
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

    #[test]
    fn a_warm_up_counts_who_breaks_off() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || drop((listener.accept().unwrap(), listener)));
        let errors = warm_up(port, &Group::get("/health", 1), Duration::from_millis(100)).unwrap();
        server.join().unwrap();
        assert!(errors > 0.0);
    }

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
