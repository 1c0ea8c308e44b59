//! How does a program read it? One document: every sample, and what follows from them.

use serde_json::{Map, Value, json};

use crate::args::{LoadKind, QuickOptions};
use crate::measure::{Metric, Sample};
use crate::subject::Subject;

use super::verdict::verdicts;
use super::{Row, Run, of_subject};

pub(crate) fn document(run: &Run, options: &QuickOptions) -> String {
    let workloads: Vec<Value> = run.workloads().filter_map(workload).collect();
    let load = match options.load {
        LoadKind::Own => "own",
        LoadKind::Wrk => "wrk",
    };
    let document = json!({
        "rounds": run.rounds,
        "seconds": run.time.as_secs_f64(),
        "cores": { "server": options.cores.server, "load": options.cores.load },
        "load": load,
        "workloads": workloads,
    });
    format!("{document:#}\n")
}

fn workload(rows: &[Row]) -> Option<Value> {
    let workload = rows.first()?.workload;
    let subjects: Vec<Value> = rows.iter().map(|row| subject(row, rows)).collect();
    Some(json!({
        "name": workload.name,
        "title": workload.title,
        "floor": workload.floor.name(),
        "subjects": subjects,
    }))
}

fn subject(row: &Row, rows: &[Row]) -> Value {
    let floor = of_subject(rows, &Subject::Floor);
    let over_floor = |metric| floor.and_then(|floor| row.over(floor, metric));
    let verdicts: Vec<Value> = verdicts(row, rows)
        .into_iter()
        .map(|verdict| json!({ "met": verdict.met, "says": verdict.says }))
        .collect();
    json!({
        "name": row.subject.to_string(),
        "median": medians(row),
        "errors": row.errors(),
        "failed_rounds": row.failures(),
        "requests_per_s_over_floor": over_floor(Metric::Rate),
        "cpu_over_floor": over_floor(Metric::CpuUs),
        "cpu_spread": row.spread(Metric::CpuUs),
        "verdicts": verdicts,
        "samples": row.samples.iter().map(|sample| sample.as_ref().map(values)).collect::<Vec<_>>(),
    })
}

fn medians(row: &Row) -> Value {
    let Some(sample) = row.samples.iter().flatten().next() else { return Value::Null };
    let medians = sample.0.iter().map(|(metric, _)| (metric.name().to_owned(), json!(row.median(*metric))));
    Value::Object(medians.collect::<Map<_, _>>())
}

fn values(sample: &Sample) -> Value {
    let values = sample.0.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value)));
    Value::Object(values.collect::<Map<_, _>>())
}
