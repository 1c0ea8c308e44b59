//! In what order is everything measured? Round by round, workload by workload, subject by subject, so that
//! what is compared lies close together in time.

use std::io::{self, Write};
use std::time::Instant;

use crate::args::{LoadKind, QuickOptions};
use crate::failure::{Failure, Result};
use crate::floors::Floor;
use crate::interrupt;
use crate::measure::{Metric, Sample, measure};
use crate::peers::Peers;
use crate::procs::{limits, pin};
use crate::report::{self, Row, Run};
use crate::subject::Subject;
use crate::workloads::{Kind, Workload};

/// Descriptors that the generator needs beside the idle connections, and the server beside its own.
const OTHER_FILES: u64 = 200;

pub(crate) fn run(options: &QuickOptions) -> Result<()> {
    interrupt::install()?;
    options.cores.check()?;
    let files_max = limits::raise_files()?;
    check_idle(options, files_max)?;
    // Before pinning: a build may use all cores.
    let mut peers = Peers::new(options, files_max)?;
    pin::pin(options.cores.load)?;
    let start = Instant::now();
    let mut rows = empty_rows(options, &peers.subjects);
    for round in 0..options.rounds {
        run_round(options, &mut peers, round, &mut rows)?;
    }
    let run = Run { rows, rounds: options.rounds, time: options.time, took: start.elapsed() };
    let text = if options.json { report::json::document(&run, options) } else { report::table::tables(&run) };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn check_idle(options: &QuickOptions, files_max: u64) -> Result<()> {
    let wanted = options.idle as u64 + OTHER_FILES;
    let takes_part = options.workloads.iter().any(|workload| workload.kind == Kind::Idle);
    if takes_part && wanted > files_max {
        return Err(Failure::Usage(format!(
            "--idle {} needs {wanted} open files, the hard limit is {files_max}: lower the one or raise the other",
            options.idle
        )));
    }
    Ok(())
}

fn takes_part(options: &QuickOptions, subject: &Subject, workload: &Workload) -> bool {
    let own_load_only = !matches!(workload.kind, Kind::Requests(_));
    if options.load == LoadKind::Wrk && own_load_only {
        return false;
    }
    match subject {
        Subject::Nginx => workload.nginx,
        Subject::FloorSpawn => workload.floor == Floor::Threads,
        Subject::Floor | Subject::Weft { .. } => true,
    }
}

fn empty_rows(options: &QuickOptions, subjects: &[Subject]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &workload in &options.workloads {
        for subject in subjects.iter().filter(|subject| takes_part(options, subject, workload)) {
            rows.push(Row { workload, subject: subject.clone(), samples: Vec::new() });
        }
    }
    rows
}

/// Measures every row once more. A subject that fails is marked, and the others go on.
fn run_round(options: &QuickOptions, peers: &mut Peers, round: usize, rows: &mut [Row]) -> Result<()> {
    for same in rows.chunk_by_mut(|one, other| one.workload.name == other.workload.name) {
        // Each round begins with another subject, so that none always follows the same one.
        let count = same.len();
        for at in (round..round + count).map(|at| at % count) {
            let row = &mut same[at];
            let sample = match measure(peers, options, &row.subject, row.workload) {
                Ok(sample) => Some(sample),
                Err(Failure::Run(message)) => {
                    eprintln!("{} {}: {message}", row.workload.name, row.subject);
                    None
                }
                Err(other) => return Err(other),
            };
            progress(options, round, row, sample.as_ref());
            row.samples.push(sample);
        }
    }
    Ok(())
}

fn progress(options: &QuickOptions, round: usize, row: &Row, sample: Option<&Sample>) {
    let says = match sample {
        None => "failed".to_owned(),
        Some(sample) => {
            let part = |metric, unit| sample.get(metric).map(|value| format!("{value:.1} {unit}"));
            let parts = [
                part(Metric::Rate, "requests/s"),
                part(Metric::CpuUs, "us CPU"),
                part(Metric::BytesEach, "bytes each"),
                part(Metric::Errors, "errors").filter(|_| sample.get(Metric::Errors) != Some(0.0)),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    };
    eprintln!(
        "round {}/{}  {:<15} {:<16} {says}",
        round + 1,
        options.rounds,
        row.workload.name,
        row.subject.to_string()
    );
}
