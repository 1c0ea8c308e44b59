//! What stands in docs/benchmarks.md? The same figures, with what each means, and what was lost.

use std::fmt::Write;

use super::standing::{CPU, Measure, RATE, counts, decides, first, how, standings};
use super::svg::short;
use crate::results::{Column, Results};

const INTRODUCTION: &str = "\
# Benchmarks

This page is made by `cargo run --release -p weftwork-bench -- full --markdown docs/benchmarks.md`. Do not edit it.

";

const METHOD: &str = "
## How it is measured, and what each figure means

- Server and load each have a core of their own. A fresh server is started for every cell, asked once whether its answer is
  right, warmed up, measured, and stopped. Contestants run in turn, round by round, so that a slow minute of the machine hits
  all of them.
- **CPU us a request** is what the kernel charged the server's whole process tree, divided by the answers. It decides where handlers
  do not block: it hardly depends on how fast the load is. Ticks are 10 ms, so two per cent is its grain.
- **requests/s** decides where handlers block. Elsewhere it says as much about the load: with `Connection: close` the generator
  opens every connection and is often the slower side.
- **Errors** are answers that are not 2xx, bodies that differ from the first checked one, connections that broke, and answers
  that did not come. Who makes any is marked `!` and is never first.
- **Latency at a fixed rate** counts from when a request was due, not from when it could be sent, so that a stall cannot hide
  itself (coordinated omission).
- The **floors** are hand-written and do nothing but answer: no parser, no limits. They are what there is to reach, not contestants.
- `!` also marks who ignores `Connection: close`. The other rules that a server breaks are in the list of contestants.
- One core for each side says nothing about many cores.
";

pub(crate) fn markdown(results: &Results) -> String {
    let mut out = String::from(INTRODUCTION);
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}\n", how(results));
    write_lost(&mut out, results);
    for chart in super::overviews(results) {
        let _ = write!(out, "\n{}:\n\n![{}](benchmarks/{})\n", chart.title, chart.title, chart.file);
    }
    write_grid(&mut out, results, "The grid by CPU us a request", CPU);
    write_grid(&mut out, results, "The grid by requests/s", RATE);
    write_columns(&mut out, results);
    out.push_str(METHOD);
    write_contestants(&mut out, results);
    out
}

fn write_lost(out: &mut String, results: &Results) {
    let standings = standings(results);
    let won = standings.iter().filter(|standing| standing.is_won).count();
    let _ = writeln!(
        out,
        "## Won and lost\n\nThe default engine is first, or within 3 % of first, among servers without errors in {won} of {} \
         columns: by CPU a request where handlers do not block, by requests/s where they do. It is behind in:\n",
        standings.len()
    );
    for standing in standings.iter().filter(|standing| !standing.is_won) {
        let _ = writeln!(out, "- {}", standing.says);
    }
}

const FAMILIES: &[(&str, &str)] = &[
    ("health", "none, kept"),
    ("close", "none, closed"),
    ("zero", "0 ms, kept"),
    ("zero-close", "0 ms, closed"),
    ("slow", "1 ms, kept"),
    ("slow-close", "1 ms, closed"),
];

/// The grid at 100 connections; the charts have all of it.
fn write_grid(out: &mut String, results: &Results, title: &str, measure: Measure) {
    let columns: Vec<(&str, &Column)> = FAMILIES
        .iter()
        .filter_map(|(family, title)| Some((*title, results.column(&format!("{family}-100"))?)))
        .collect();
    if columns.is_empty() {
        return;
    }
    let _ = write!(out, "\n## {title}, 100 connections\n\n| handler |");
    columns.iter().for_each(|(title, _)| out.push_str(&format!(" {title} |")));
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(columns.len()));
    for subject in &results.subjects {
        let _ = write!(out, "| {} |", subject.name);
        for (_, column) in &columns {
            let _ = write!(out, " {} |", cell(results, column, &subject.name, measure));
        }
        out.push('\n');
    }
}

fn cell(results: &Results, column: &Column, subject: &str, measure: Measure) -> String {
    let Some(cell) = column.cell(subject) else { return String::new() };
    let Some(value) = cell.median(measure.key).filter(|value| *value > 0.0) else { return "-".to_owned() };
    let text = short(value);
    match counts(results, cell, measure) {
        Some(_) if first(results, column, measure).is_some_and(|(name, _)| name == subject) => {
            format!("**{text}**")
        }
        Some(_) => text,
        None if subject.starts_with("floor") => text,
        None => format!("{text} !"),
    }
}

/// All other columns: what decides, us, the first, and the floor.
fn write_columns(out: &mut String, results: &Results) {
    out.push_str("\n## All columns\n\n| column | decided by | adaptive | first of the others | floor |\n|---|---|---|---|---|\n");
    for column in &results.workloads {
        let measure = decides(column);
        let shown = |name: &str| cell(results, column, name, measure);
        let mut others = column.clone();
        others.cells.retain(|cell| !cell.subject.starts_with("weft"));
        let best = first(results, &others, measure);
        let best = best.map_or("-".to_owned(), |(name, value)| format!("{name} {}", short(value)));
        let ours = if column.cell("weft:adaptive").is_some() { "weft:adaptive" } else { "weft" };
        let _ = writeln!(
            out,
            "| {}: {} | {} | {} | {best} | {} |",
            column.name,
            column.title,
            measure.title,
            shown(ours),
            shown("floor")
        );
    }
}

fn write_contestants(out: &mut String, results: &Results) {
    out.push_str("\n## The contestants\n\n| server | version | set up | rules of HTTP/1.1 that it breaks |\n|---|---|---|---|\n");
    for subject in &results.subjects {
        let broken = if subject.broken.is_empty() {
            "none of those asked".to_owned()
        } else {
            subject.broken.join("; ")
        };
        let _ = writeln!(out, "| {} | {} | {} | {broken} |", subject.name, subject.version, subject.about);
    }
}
