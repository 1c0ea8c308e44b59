//! Measures everything: round by round, workload by workload, server by server, so that what is compared lies close
//! together in time.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::args::{GridArgs, GridOptions};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::measure::{Metric, Sample, measure};
use crate::peers::{IGNORES_CLOSE, Peers};
use crate::procs::distance::Distance;
use crate::procs::{limits, pin};
use crate::report::{self, table};
use crate::results::{self, Machine, Results, Row, SubjectInfo, collect, columns, congestion_control};
use crate::runoff;
use crate::site::Site;
use crate::subject::{self, Subject};
use crate::workloads::{GRID, Kind, QUICK, ROUTER, TLS, Workload};

/// Descriptors that the generator needs beside the idle connections, and the server beside its own.
const OTHER_FILES: u64 = 200;

/// Measured time of each cell of `full`: there are many cells, and a host moves the cores seldom in a short one.
const FULL_TIME: Duration = Duration::from_millis(300);
/// With all around it a cell takes 0.6 s, at a fixed rate 4.5 s, with idle connections 10 s.
const FULL_ROUNDS: usize = 2;
/// Two rounds of 0.3 s do not tell apart what is close: columns that were lost by 6 to 29 % in such runs were won in turns.
const RUNOFF: Duration = Duration::from_secs(4);

pub(crate) fn quick(args: GridArgs) -> Result<GridOptions> {
    args.options(5, [Duration::from_secs(1), Duration::ZERO], &QUICK, subject::quick())
}

pub(crate) fn full(args: GridArgs) -> Result<GridOptions> {
    args.options(FULL_ROUNDS, [FULL_TIME, RUNOFF], &GRID, subject::all())
}

pub(crate) fn router(args: GridArgs) -> Result<GridOptions> {
    let sites = [Site::Bare, Site::Typed].map(Subject::Site).to_vec();
    args.options(15, [Duration::from_secs(1), Duration::ZERO], &ROUTER, sites)
}

pub(crate) fn tls(args: GridArgs) -> Result<GridOptions> {
    args.options(3, [Duration::from_secs(1), Duration::ZERO], &TLS, subject::tls())
}

/// Measures, prints the tables, and writes the document and the page if they are wanted.
pub(crate) fn run(options: &GridOptions) -> Result<()> {
    let GridArgs { json, markdown, .. } = &options.args;
    check_outputs(json.as_deref(), markdown.as_deref())?;
    let mut peers = prepare(&options.args, &options.subjects, &options.workloads)?;
    let results = measure_all(options, &mut peers)?;
    io::stdout().write_all(table::tables(&results).as_bytes())?;
    if let Some(path) = json {
        report::write(path, &results.json()?)?;
    }
    if let Some(path) = markdown {
        report::pages(&results, path)?;
    }
    check_measured(&results)
}

/// Fails before the run rather than after it, when all that was measured would be lost. A file stays as it is until there is a new one.
fn check_outputs(json: Option<&Path>, markdown: Option<&Path>) -> Result<()> {
    for (option, path) in [("--json", json), ("--markdown", markdown)] {
        let Some(path) = path else { continue };
        let is_new = path.symlink_metadata().is_err();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) }).map_err(|error| {
            let path = path.display();
            Failure::Usage(format!("{option} {path}: {error}: give the path of a file that can be written"))
        })?;
    }
    match markdown.filter(|path| path.extension().is_none()).map(Path::display) {
        Some(path) => Err(Failure::Usage(format!(
            "--markdown {path}: the charts go to a folder of this name without its extension: use {path}.md"
        ))),
        None => Ok(()),
    }
}

/// Fails if nothing of weft was measured, or nothing at all if weft took no part. A part that failed is named in the tables.
fn check_measured(results: &Results) -> Result<()> {
    let is_ours = |name: &str| name.starts_with("weft") || ["bare", "typed"].contains(&name);
    let cells = || results.workloads.iter().flat_map(|column| &column.cells);
    let has_ours = cells().any(|cell| is_ours(&cell.subject));
    let mut counted = cells().filter(|cell| !has_ours || is_ours(&cell.subject));
    if counted.clone().any(|cell| !cell.figures.is_empty()) {
        return Ok(());
    }
    let why = counted.find_map(|cell| cell.why.as_deref());
    let why = why.unwrap_or("no server that takes part can do what --only asks for");
    Err(Failure::Run(format!("nothing {}was measured: {why}", if has_ours { "of weft " } else { "" })))
}

/// Builds what takes part. From here on this thread is pinned to the load's cores.
pub(crate) fn prepare(args: &GridArgs, subjects: &[Subject], workloads: &[&Workload]) -> Result<Peers> {
    interrupt::install()?;
    let cores = args.server.cores.cores;
    cores.check()?;
    if congestion_control() == "bbr" {
        eprintln!(
            "note: this kernel paces TCP (BBR), and long bodies are measured by its timers: \
             sysctl -w net.ipv4.tcp_congestion_control=cubic"
        );
    }
    let files_max = limits::raise_files()?;
    if workloads.iter().any(|workload| matches!(workload.kind, Kind::Idle(_))) {
        check_idle(args.idle as u64, subjects, files_max)?;
    }
    // Before pinning: a build may use all cores.
    let peers = Peers::new(&args.server, subjects, workloads, files_max)?;
    pin::pin(cores.load)?;
    Ok(peers)
}

fn check_idle(idle: u64, subjects: &[Subject], files_max: u64) -> Result<()> {
    // lighttpd keeps half of its descriptors for what its connections may ask for.
    let each = if subjects.iter().any(|subject| subject.to_string() == "lighttpd") { 2 } else { 1 };
    let wanted = idle * each + OTHER_FILES;
    if wanted <= files_max {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--idle {idle} needs {wanted} open files, the hard limit is {files_max}: lower the one or raise the other"
    )))
}

/// Measures every round of every workload, and the run-offs. A server that is known to break a rule that a workload is about is
/// left out of it.
fn measure_all(options: &GridOptions, peers: &mut Peers) -> Result<Results> {
    let start = Instant::now();
    let GridOptions { rounds, time, runoff, args, .. } = options;
    let cores = args.server.cores.cores;
    let mut distance = Distance::survey(cores)?;
    let mut rows = empty_rows(options, &peers.subjects);
    for round in 0..*rounds {
        for at in order(&rows, round) {
            run_row(options, peers, &mut distance, round, &mut rows[at])?;
        }
    }
    let mut results = Results {
        // The checkout here says nothing of a build that was brought.
        commit: if args.server.weft.is_some() { String::new() } else { results::commit() },
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        machine: Machine::here(),
        rounds: *rounds,
        runoff_s: runoff.as_secs_f64(),
        seconds: time.as_secs_f64(),
        server_core: cores.server.first,
        load_core: cores.load.first,
        server_cores: cores.server.count,
        load_cores: cores.load.count,
        load: "own".to_owned(),
        subjects: peers.subjects.iter().map(|subject| info(subject, peers)).collect(),
        left_out: peers.left_out.clone(),
        workloads: collect(&rows),
        ..Results::default()
    };
    runoff::run(*runoff, peers, &rows, &mut results, &mut distance)?;
    (results.core_distances, results.took_s) = (distance.met(), start.elapsed().as_secs());
    results.when = results::now();
    Ok(results)
}

fn info(subject: &Subject, peers: &Peers) -> SubjectInfo {
    let name = subject.to_string();
    SubjectInfo {
        version: peers.versions.get(&name).cloned().unwrap_or_default(),
        about: subject.about().to_owned(),
        broken: subject.breaks().iter().map(|rule| (*rule).to_owned()).collect(),
        name,
    }
}

fn empty_rows(options: &GridOptions, subjects: &[Subject]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &workload in &options.workloads {
        for subject in subjects.iter().filter(|subject| subject.takes(workload)) {
            let why = left_out(subject, workload);
            rows.push(Row { workload, subject: subject.clone(), samples: Vec::new(), why });
        }
    }
    rows
}

/// A server that does not close is not measured if every connection is to be closed: it would only be waited for.
fn left_out(subject: &Subject, workload: &Workload) -> Option<String> {
    let group = workload.group();
    // The floors read nothing. Whether they close is an argument of theirs.
    let is_out = match subject.is_floor() {
        true => group.lots_max > 0,
        false => (group.close || group.lots_max > 0) && subject.breaks().contains(&IGNORES_CLOSE),
    };
    is_out.then(|| IGNORES_CLOSE.to_owned())
}

/// Returns the rows of a round, in order. In each column another server begins than in the round before, so that none always
/// follows the same one.
fn order(rows: &[Row], round: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut start = 0;
    for column in columns(rows) {
        let all = start..start + column.len();
        start = all.end;
        let is_left_out = |row: &Row| row.why.is_some() && row.samples.is_empty();
        let is_due = |at: &usize| !is_left_out(&rows[*at]) && round < rows[*at].workload.rounds_max;
        let mut turn: Vec<usize> = all.filter(is_due).collect();
        let first = round % turn.len().max(1);
        turn.rotate_left(first);
        order.append(&mut turn);
    }
    order
}

/// Measures a row once more. A server that fails is marked, and the run goes on.
fn run_row(
    options: &GridOptions,
    peers: &mut Peers,
    distance: &mut Distance,
    round: usize,
    row: &mut Row,
) -> Result<()> {
    let measured = match row.workload.kind {
        // Cores that rest may be moved together: their distance says nothing.
        Kind::Paced { .. } | Kind::Idle(_) => measure(peers, options, &row.subject, row.workload),
        _ => distance.watch(|| measure(peers, options, &row.subject, row.workload)),
    };
    let sample = match measured {
        Ok(sample) => Some(sample),
        Err(Failure::Run(message)) => {
            eprintln!("{} {}: {message}", row.workload.name, row.subject);
            row.why = Some(message);
            None
        }
        Err(other) => return Err(other),
    };
    let (round, rounds) = (round + 1, options.rounds);
    let (name, subject) = (&row.workload.name, row.subject.to_string());
    eprintln!(
        "round {round}/{rounds}  {name:<15} {subject:<17} {}",
        sample.as_ref().map_or("failed".into(), short)
    );
    row.samples.push(sample);
    Ok(())
}

fn short(sample: &Sample) -> String {
    let metrics = [Metric::RATE, Metric::CPU_US, Metric::BYTES_EACH, Metric::ERRORS];
    let part = |metric: Metric| {
        let value = sample.get(metric).filter(|value| metric != Metric::ERRORS || *value > 0.0)?;
        Some(format!("{value:.1} {}", metric.title))
    };
    metrics.into_iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
