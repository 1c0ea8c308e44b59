//! How do the samples of a run become the document?

use std::collections::BTreeMap;
use std::env;

use super::machine::{self, Machine};
use super::{Cell, Column, Contestant, Figure, LeftOut, Reached, Results};
use crate::args::{GridOptions, LoadKind};
use crate::measure::Metric;
use crate::report::verdict::verdicts;
use crate::report::{Row, Run, of_subject, rounded};
use crate::site::Site;
use crate::subject::Subject;

pub(crate) fn collect(
    run: &Run,
    options: &GridOptions,
    subjects: Vec<Contestant>,
    left_out: Vec<LeftOut>,
) -> Results {
    let load = match options.load {
        LoadKind::Own => "own",
        LoadKind::Wrk => "wrk",
    };
    Results {
        when: machine::now(),
        // What is checked out here says nothing of a build that somebody has brought.
        commit: if options.weft.is_some() { String::new() } else { machine::commit() },
        command: env::args().skip(1).collect::<Vec<_>>().join(" "),
        machine: Machine::here(),
        rounds: run.rounds,
        runoff_s: options.runoff.as_secs_f64(),
        seconds: run.time.as_secs_f64(),
        took_s: run.took.as_secs(),
        server_core: options.cores.server.first,
        load_core: options.cores.load.first,
        server_cores: options.cores.server.count,
        load_cores: options.cores.load.count,
        load: load.to_owned(),
        core_distances: run.distances,
        subjects,
        left_out,
        workloads: run.workloads().filter_map(|rows| column(run, rows)).collect(),
    }
}

fn column(run: &Run, rows: &[Row]) -> Option<Column> {
    let workload = rows.first()?.workload;
    let runoff = run.runoffs.iter().find(|(name, _)| *name == workload.name);
    Some(Column {
        name: workload.name.clone(),
        title: workload.title.clone(),
        floor: workload.floor_name().unwrap_or_default().to_owned(),
        cells: rows.iter().map(|row| cell(row, rows)).collect(),
        runoff: runoff.map(|(_, runoff)| runoff.clone()),
    })
}

fn cell(row: &Row, rows: &[Row]) -> Cell {
    let reached = verdicts(row, rows).into_iter();
    Cell {
        subject: row.subject.to_string(),
        figures: figures(row),
        ratios: ratios(row, rows),
        errors: row.errors().unwrap_or(0.0),
        failed_rounds: row.failures(),
        why: row.why.clone(),
        targets: reached.map(|verdict| Reached { met: verdict.met, says: verdict.says }).collect(),
    }
}

fn figures(row: &Row) -> BTreeMap<String, Figure> {
    let Some(sample) = row.samples.iter().flatten().next() else { return BTreeMap::new() };
    let figures = sample
        .0
        .iter()
        .filter_map(|(metric, _)| Some((metric.name().to_owned(), Figure::of(row.values(*metric))?)));
    figures.collect()
}

fn ratios(row: &Row, rows: &[Row]) -> BTreeMap<String, f64> {
    let nginx: Option<Subject> = "nginx".parse().ok();
    let bare = Some(Subject::Site(Site::Bare));
    let others = [("floor", Some(Subject::Floor)), ("nginx", nginx), ("bare", bare)];
    let mut ratios = BTreeMap::new();
    for (name, other) in others {
        let Some(other) = other.and_then(|other| of_subject(rows, &other)) else { continue };
        for (what, metric) in [("requests_per_s", Metric::Rate), ("cpu", Metric::CpuUs)] {
            if let Some(ratio) = row.over(other, metric) {
                ratios.insert(format!("{what}_over_{name}"), rounded(ratio));
            }
        }
    }
    ratios
}
