//! Measures one server at one workload, once.

mod answer;
mod meter;
mod metric;

use std::slice::from_ref;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::args::GridOptions;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::load::{Group, idle};
use crate::peers::Peers;
use crate::procs::server::Server;
use crate::procs::usage::resident_bytes;
use crate::subject::Subject;
use crate::workloads::{Kind, Workload};
pub(crate) use answer::expected;
use meter::Meter;
pub(crate) use metric::{Metric, Sample};

/// Before each measured time: caches fill, threads start.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long idle connections are watched.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Starts a fresh server, checks that it answers right, measures it, and stops it.
pub(crate) fn measure(
    peers: &mut Peers,
    options: &GridOptions,
    subject: &Subject,
    workload: &Workload,
) -> Result<Sample> {
    let workload = &*workload.of(subject);
    let mut server = peers.start(subject, workload)?;
    let body = expected(&server, subject, workload, workload.group())?;
    let bench = Bench { server: &server, options, time: options.time.max(workload.time_min) };
    let sample = match &workload.kind {
        Kind::Requests(group) => {
            let (tallies, errors, mut sample) = bench.ask(from_ref(group), &[&body])?;
            sample.0.extend(tallies.first().map(latencies).into_iter().flatten());
            sample.0.push((Metric::ERRORS, errors));
            sample
        }
        Kind::Paced { group, per_s } => bench.paced(group, *per_s, &body)?,
        Kind::Mixed { quick, blockers } => {
            let blocked = expected(&server, subject, workload, blockers)?;
            bench.mixed([quick, blockers], [&body, &blocked])?
        }
        Kind::Idle(group) => bench.idle_connections(group)?,
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
}

impl Bench<'_> {
    fn meter(&self) -> Meter {
        Meter::start(self.server.pid(), self.options.args.server.cores.cores)
    }

    fn paced(&self, group: &Group, per_s: u32, body: &[u8]) -> Result<Sample> {
        let mut generator = Generator::expecting(self.server.port, from_ref(group), &[body], true)?;
        let before = generator.drive_at(f64::from(per_s), WARM_UP)?;
        let meter = self.meter();
        let tally = generator.drive_at(f64::from(per_s), self.time)?;
        let mut sample = meter.stop().costs(tally.answers() as f64);
        sample.0.extend(latencies(&tally));
        let unanswered = tally.unanswered as f64;
        sample.0.extend([(Metric::UNANSWERED, unanswered), (Metric::ERRORS, errors(&[before, tally]))]);
        Ok(sample)
    }

    fn mixed(&self, [quick, blockers]: [&Group; 2], bodies: [&[u8]; 2]) -> Result<Sample> {
        let (alone, early, _) = self.ask(from_ref(quick), &bodies)?;
        let (beside, late, mut sample) = self.ask(&[quick.clone(), blockers.clone()], &bodies)?;
        let ([alone], [beside, blocking]) = (&alone[..], &beside[..]) else { return Ok(Sample::default()) };
        must_be_answered("the quick requests alone", quick, alone)?;
        must_be_answered("the quick requests beside the others", quick, beside)?;
        must_be_answered("the blocking requests", blockers, blocking)?;
        let (p99, p99_alone) = (beside.latency_ms(0.99), alone.latency_ms(0.99));
        sample.0.extend(latencies(beside));
        sample.0.extend([
            (Metric::BLOCKING_RATE, blocking.rate()),
            (Metric::ALONE_P99_MS, p99_alone),
            (Metric::P99_OVER_ALONE, p99 / p99_alone),
            (Metric::ERRORS, early + late),
        ]);
        Ok(sample)
    }

    /// Drives all groups, with a thread for each core of the load. Returns the tally of each group, the errors of all, and the cost of the
    /// answers.
    fn ask(&self, groups: &[Group], bodies: &[&[u8]]) -> Result<(Vec<Tally>, f64, Sample)> {
        let threads = self.options.args.server.cores.cores.load.count;
        let [begin, end] = [(); 2].map(|()| Barrier::new(threads + 1));
        let drive = |at: usize| -> Result<[Vec<Tally>; 3]> {
            let share = |group: &Group| {
                let connections = (group.connections + at) / threads;
                Group { connections, ..group.clone() }
            };
            let groups: Vec<Group> = groups.iter().map(share).collect();
            let warmed = Generator::expecting(self.server.port, &groups, bodies, false)
                .and_then(|mut generator| Ok((generator.drive(WARM_UP)?, generator)));
            begin.wait();
            let driven = warmed.and_then(|(early, mut one)| Ok((early, one.drive(self.time)?, one)));
            end.wait();
            let (early, tallies, mut generator) = driven?;
            Ok([early, tallies, generator.wait_for_late()?])
        };
        thread::scope(|scope| {
            let drive = &drive;
            let loads: Vec<_> = (0..threads).map(|at| scope.spawn(move || drive(at))).collect();
            begin.wait();
            let meter = self.meter();
            end.wait();
            let used = meter.stop();
            let (mut all, mut sum) = (0.0, Vec::<Tally>::new());
            for load in loads {
                let failed = |_| Failure::Run("a thread of the load panicked".to_owned());
                let [early, tallies, late] = load.join().map_err(failed)??;
                all += errors(&early) + errors(&tallies) + errors(&late);
                match sum.is_empty() {
                    true => sum = tallies,
                    false => sum.iter_mut().zip(&tallies).for_each(|(sum, tally)| sum.add(tally)),
                }
            }
            let costs = used.costs(sum.iter().map(Tally::answers).sum::<u64>() as f64);
            Ok((sum, all, costs))
        })
    }

    fn idle_connections(&self, group: &Group) -> Result<Sample> {
        let (pid, port) = (self.server.pid(), self.server.port);
        // What the server touches for the first time anyway is not a cost of the connections.
        let early = warm_up(port, group, WARM_UP * 2)?;
        let before = settled_bytes(pid)?;
        let held = idle::open(port, self.options.args.idle, group)?;
        let bytes = settled_bytes(pid)?.saturating_sub(before) as f64;
        let meter = self.meter();
        interrupt::sleep(IDLE_TIME)?;
        let used = meter.stop();
        let connections = held.connections.len() as f64;
        Ok(Sample(vec![
            (Metric::CONNECTIONS, connections),
            (Metric::BYTES_EACH, bytes / connections.max(1.0)),
            (Metric::IDLE_CPU_MS, used.cpu_us / 1e3),
            (Metric::IDLE_SWITCHES, used.switches / IDLE_TIME.as_secs_f64()),
            (Metric::ERRORS, early + held.failed as f64),
        ]))
    }
}

/// Fails if there was no answer: without blocking requests the rest would be easy, and latencies of nothing have no ratio.
fn must_be_answered(which: &str, group: &Group, tally: &Tally) -> Result<()> {
    if tally.ok > 0 {
        return Ok(());
    }
    Err(Failure::Run(format!("{}: none of {which} was answered", group.path)))
}

fn latencies(tally: &Tally) -> [(Metric, f64); 4] {
    [
        (Metric::RATE, tally.rate()),
        (Metric::P50_MS, tally.latency_ms(0.50)),
        (Metric::P99_MS, tally.latency_ms(0.99)),
        (Metric::P999_MS, tally.latency_ms(0.999)),
    ]
}

fn errors(tallies: &[Tally]) -> f64 {
    tallies.iter().map(Tally::errors).sum::<u64>() as f64
}

/// Returns the errors of the warm-up.
fn warm_up(port: u16, group: &Group, time: Duration) -> Result<f64> {
    Ok(errors(&Generator::open(port, from_ref(group))?.drive(time)?))
}

/// Returns the resident bytes once they stay the same, or after a few seconds in which they did not.
fn settled_bytes(pid: u32) -> Result<u64> {
    const LOOKS_MAX: usize = 15;
    let (mut last, mut same) = (resident_bytes(pid), 0);
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
    fn a_warm_up_counts_broken_connections() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || drop((listener.accept().unwrap(), listener)));
        let errors = warm_up(port, &Group::get("/health", 1), Duration::from_millis(100)).unwrap();
        server.join().unwrap();
        assert!(errors > 0.0);
    }

    /// A ratio to nothing is no number, and its JSON could not be read again.
    #[test]
    fn a_group_without_answers_has_failed() {
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
