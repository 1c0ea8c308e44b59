//! In what order is everything measured? Round by round, workload by workload, subject by subject, so that
//! what is compared lies close together in time.

use std::io::{self, Write};
use std::time::Instant;

use crate::args::{GridOptions, LoadKind};
use crate::failure::{Failure, Result};
use crate::full;
use crate::honesty::IGNORES_CLOSE;
use crate::interrupt;
use crate::load::wrk;
use crate::measure::{Metric, Sample, measure};
use crate::peers::Peers;
use crate::procs::distance::Distance;
use crate::procs::{limits, pin};
use crate::report::{Row, Run, columns, table};
use crate::results::{Contestant, congestion_control};
use crate::runoff;
use crate::subject::Subject;
use crate::workloads::{Kind, Workload};

/// Descriptors that the generator needs beside the idle connections, and the server beside its own.
const OTHER_FILES: u64 = 200;

pub(crate) fn quick(options: &GridOptions) -> Result<()> {
    let mut peers = prepare(options)?;
    let run = measure_all(options, &mut peers, &[])?;
    let text = if options.json { full::quick_json(&run, options, &peers)? } else { table::tables(&run) };
    io::stdout().write_all(text.as_bytes())?;
    check_measured(&run)
}

/// Fails where nothing was measured of weft's, or of anybody where weft took no part: a part that failed is named in the tables.
pub(crate) fn check_measured(run: &Run) -> Result<()> {
    let is_ours = |row: &&Row| row.subject.is_weft() || matches!(row.subject, Subject::Site(_));
    let (ours, others): (Vec<&Row>, Vec<&Row>) = run.rows.iter().partition(is_ours);
    let (whose, rows) = if ours.is_empty() { ("anybody's", others) } else { ("weft's", ours) };
    if rows.iter().any(|row| row.samples.iter().any(Option::is_some)) {
        return Ok(());
    }
    let why = rows.iter().find_map(|row| row.why.as_deref());
    let why = why.unwrap_or("nobody who takes part can do, with this --load, what --only asks for");
    Err(Failure::Run(format!("nothing of {whose} was measured: {why}")))
}

/// Builds what takes part; from here on this thread is the load's.
pub(crate) fn prepare(options: &GridOptions) -> Result<Peers> {
    interrupt::install()?;
    options.cores.check()?;
    if options.load == LoadKind::Own && options.cores.load.count > 1 {
        eprintln!("note: the own load is one thread; --load wrk uses every core of the load");
    }
    if congestion_control() == "bbr" {
        eprintln!(
            "note: this kernel paces TCP (BBR), and long bodies are measured by its timers: \
             sysctl -w net.ipv4.tcp_congestion_control=cubic"
        );
    }
    let files_max = limits::raise_files()?;
    check_idle(options, files_max)?;
    if options.load == LoadKind::Wrk {
        wrk::check_installed(wrk::PROGRAM)?;
    }
    // Before pinning: a build may use all cores.
    let peers = Peers::new(options, files_max)?;
    pin::pin(options.cores.load)?;
    Ok(peers)
}

/// Every round of every workload, and the run-offs. Who is known to break a rule that a workload is about is left out of it.
pub(crate) fn measure_all(options: &GridOptions, peers: &mut Peers, known: &[Contestant]) -> Result<Run> {
    let start = Instant::now();
    let mut distance = Distance::survey(options.cores, options.apart)?;
    let mut rows = empty_rows(options, &peers.subjects, known);
    for round in 0..options.rounds {
        for at in order(&rows, round) {
            run_row(options, peers, &mut distance, round, &mut rows[at])?;
        }
    }
    let runoffs = runoff::run(options.runoff, peers, &rows, known, &mut distance)?;
    let (rounds, time, took) = (options.rounds, options.time, start.elapsed());
    Ok(Run { rows, rounds, runoffs, time, took, distances: distance.met() })
}

fn check_idle(options: &GridOptions, files_max: u64) -> Result<()> {
    // lighttpd keeps half of its descriptors for what its connections may ask for.
    let each = if options.subjects.iter().any(|subject| subject.to_string() == "lighttpd") { 2 } else { 1 };
    let wanted = options.idle as u64 * each + OTHER_FILES;
    let takes_part = options.workloads.iter().any(|workload| workload.kind == Kind::Idle);
    if takes_part && wanted > files_max {
        return Err(Failure::Usage(format!(
            "--idle {} needs {wanted} open files, the hard limit is {files_max}: lower the one or raise the other",
            options.idle
        )));
    }
    Ok(())
}

fn takes_part(options: &GridOptions, subject: &Subject, workload: &Workload) -> bool {
    let is_for_wrk = matches!(&workload.kind, Kind::Requests(group) if wrk::can(group));
    (options.load == LoadKind::Own || is_for_wrk) && subject.can(workload.ask)
}

fn empty_rows(options: &GridOptions, subjects: &[Subject], known: &[Contestant]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &workload in &options.workloads {
        for subject in subjects.iter().filter(|subject| takes_part(options, subject, workload)) {
            let why = left_out(subject, workload, known);
            rows.push(Row { workload, subject: subject.clone(), samples: Vec::new(), why });
        }
    }
    rows
}

/// Where every connection is to be closed, who does not close them is only waited for.
fn left_out(subject: &Subject, workload: &Workload, known: &[Contestant]) -> Option<String> {
    let group = workload.group();
    let closes = group.close || group.lots_max > 0;
    let name = subject.to_string();
    let ignores = |one: &Contestant| one.name == name && one.broken.iter().any(|rule| rule == IGNORES_CLOSE);
    // The floors read nothing: whether they close is said on their command line, once for all.
    let is_out = match subject.is_floor() {
        true => group.lots_max > 0,
        false => closes && known.iter().any(ignores),
    };
    is_out.then(|| IGNORES_CLOSE.to_owned())
}

/// Which rows are measured in a round, in what order. In each column somebody else begins than in the round before, so that
/// none always follows the same one.
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

/// Measures a row once more. A subject that fails is marked, and the others go on.
fn run_row(
    options: &GridOptions,
    peers: &mut Peers,
    distance: &mut Distance,
    round: usize,
    row: &mut Row,
) -> Result<()> {
    let sample = match cell(peers, options, distance, row) {
        Ok(sample) => Some(sample),
        Err(Failure::Run(message)) => {
            eprintln!("{} {}: {message}", row.workload.name, row.subject);
            row.why = Some(message);
            None
        }
        Err(other) => return Err(other),
    };
    progress(options, round, row, sample.as_ref());
    row.samples.push(sample);
    Ok(())
}

/// Measures again where the host has moved the cores meanwhile; but not what leaves them at rest, which moves them.
fn cell(peers: &mut Peers, options: &GridOptions, distance: &mut Distance, row: &Row) -> Result<Sample> {
    if matches!(row.workload.kind, Kind::Paced { .. } | Kind::Idle) {
        return measure(peers, options, &row.subject, row.workload, distance);
    }
    distance.begin_cell();
    first_that_counts(|| {
        distance.begin_try()?;
        let sample = measure(peers, options, &row.subject, row.workload, distance)?;
        Ok((sample, distance.ends_cell()?))
    })
}

/// Tries until one counts; its sample has the errors of all.
fn first_that_counts(mut attempt: impl FnMut() -> Result<(Sample, bool)>) -> Result<Sample> {
    let mut errors = 0.0;
    loop {
        let (mut sample, counts) = attempt()?;
        sample.add_errors(errors);
        if counts {
            return Ok(sample);
        }
        errors = sample.get(Metric::Errors).unwrap_or(0.0);
    }
}

fn progress(options: &GridOptions, round: usize, row: &Row, sample: Option<&Sample>) {
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
        "round {}/{}  {:<15} {:<17} {says}",
        round + 1,
        options.rounds,
        row.workload.name,
        row.subject.to_string()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{GRID, named};

    #[test]
    fn errors_of_tries_that_do_not_count_are_errors() {
        let mut tries = [(3.0, 700.0, false), (2.0, 800.0, false), (1.0, 900.0, true)].into_iter();
        let sample = first_that_counts(|| {
            let (errors, rate, counts) = tries.next().unwrap();
            Ok((Sample(vec![(Metric::Rate, rate), (Metric::Errors, errors)]), counts))
        });
        assert_eq!(sample.unwrap(), Sample(vec![(Metric::Rate, 900.0), (Metric::Errors, 6.0)]));
    }

    #[test]
    fn a_run_without_a_figure_of_ours_has_failed() {
        let row = |subject: &str, sample: Option<Sample>| Row {
            workload: named(&GRID, "mixed")[0],
            subject: subject.parse().unwrap(),
            why: sample.is_none().then(|| format!("{subject} ended by itself")),
            samples: vec![None, sample],
        };
        let says = |rows| match check_measured(&Run::of(rows)) {
            Ok(()) => String::new(),
            Err(Failure::Run(why)) => why,
            Err(other) => panic!("{other:?}"),
        };
        let nginx = || row("nginx", Some(Sample::default()));
        let failed = "nothing of weft's was measured: weft ended by itself";
        assert_eq!(says(vec![nginx(), row("weft", None)]), failed);
        assert_eq!(says(vec![row("weft", None), row("weft:pool", Some(Sample::default()))]), "");
        assert_eq!(says(vec![row("floor", None), nginx()]), "");
        assert!(says(vec![row("nginx", None)]).contains("nginx ended by itself"));
        assert!(says(Vec::new()).contains("with this --load"));
    }

    #[test]
    fn who_takes_part_begins_in_turn() {
        let row = |workload, subject: &str| Row {
            workload: named(&GRID, workload)[0],
            subject: subject.parse().unwrap(),
            samples: Vec::new(),
            why: None,
        };
        let names = ["floor", "weft:adaptive", "nginx", "hyper"];
        let mut rows: Vec<Row> =
            ["health-64", "mixed"].iter().flat_map(|of| names.map(|name| row(of, name))).collect();
        assert_eq!(order(&rows, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        // What takes long by itself has one round.
        assert_eq!(order(&rows, 1), [1, 2, 3, 0]);
        // One is left out; another has failed, and may do better.
        rows[1].why = Some("left out".to_owned());
        (rows[3].why, rows[3].samples) = (Some("it broke off".to_owned()), vec![None]);
        assert_eq!(order(&rows, 2), [3, 0, 2]);
    }
}
