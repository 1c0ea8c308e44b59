//! The page docs/benchmarks.md: standings, grids, every column, errors, the method, and the servers.

use std::fmt::Write;

use super::charts;
use super::standing::{command, counts, decides, first, how, ours, score, standings};
use super::table::{first_line, short};
use crate::measure::Metric;
use crate::results::{Cell, Column, LeftOut, Results, Score};

const METHOD: &str = include_str!("method.md");

pub(crate) fn markdown(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "# Benchmarks\n\nMeasured by `{}`. This page is made from [its JSON](benchmarks/run.json) by\n`weftwork-bench report \
         docs/benchmarks/run.json --markdown docs/benchmarks.md`: do not edit it.\n\n{}\n\n",
        command(results),
        how(results)
    );
    write_lost(&mut out, results);
    for chart in charts::charts(results) {
        let _ = write!(out, "\n{}:\n\n![{}](benchmarks/{})\n", chart.title, chart.title, chart.file);
    }
    write_columns(&mut out, results);
    write_errors(&mut out, results);
    out.push('\n');
    out.push_str(METHOD);
    write_servers(&mut out, results);
    out
}

fn write_lost(out: &mut String, results: &Results) {
    let standings = standings(results);
    let won = standings.iter().filter(|standing| standing.is_won).count();
    let _ = writeln!(
        out,
        "## Won and lost\n\nThe default engine is first, or within 3 % of first, among servers without errors in {won} of {} \
         columns: by CPU a request where handlers do not block, by requests/s where they do, by memory where connections are idle.{}\n",
        standings.len(),
        if won < standings.len() { " It is behind in:" } else { "" }
    );
    for standing in standings.iter().filter(|standing| !standing.is_won) {
        let _ = writeln!(out, "- {}.", standing.says);
    }
}

fn cell(results: &Results, column: &Column, subject: &str, metric: Metric) -> String {
    let Some(cell) = column.cell(subject) else { return String::new() };
    let Some(value) = cell.median(metric).filter(|value| *value > 0.0) else { return "-".to_owned() };
    let noisy = if cell.is_noisy(metric) { " ~" } else { "" };
    let text = short(value);
    match counts(results, cell, metric) {
        Some(_) if first(results, column, metric).is_some_and(|(name, _)| name == subject) => {
            format!("**{text}**{noisy}")
        }
        Some(_) => format!("{text}{noisy}"),
        None if subject.starts_with("floor") => format!("{text}{noisy}"),
        None => format!("{text} !"),
    }
}

/// All columns: what decides, us, the first, the floor, and how sure that is.
fn write_columns(out: &mut String, results: &Results) {
    out.push_str(
        "\n## All columns\n\nIn the run-off: what the first of the others has of our figure, and between which two the parts of it lie. The \
         last two columns are of the rounds of adaptive and of the first of the others; where there was one, none lie apart.\n\n\
         | column | decided by | adaptive | first of the others | floor | in the run-off | rounds lie apart | CPU of others |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for column in &results.workloads {
        let metric = decides(&column.name);
        let shown = |name: &str| cell(results, column, name, metric);
        let mut others = column.clone();
        others.cells.retain(|cell| !cell.subject.starts_with("weft"));
        let best = first(results, &others, metric).map(|(name, _)| name);
        let ours = ours(column).map_or("weft", |cell| &cell.subject);
        let _ = writeln!(
            out,
            "| {}: {} | {} | {} | {} | {} | {} | {} | {} |",
            column.name,
            column.title,
            metric.title,
            shown(ours),
            best.map_or("-".to_owned(), |name| format!("{name} {}", shown(name).replace('*', ""))),
            shown("floor"),
            ran_off(column, metric, best),
            both(column, [Some(ours), best], |cell| cell.spread_percent(metric)),
            both(column, [Some(ours), best], |cell| cell.median(Metric::OTHERS))
        );
    }
}

/// Names the servers that made errors, and those whose rounds failed: in which columns, and why.
fn write_errors(out: &mut String, results: &Results) {
    out.push_str("\n## Errors and failures\n\n");
    let before = out.len();
    let runoffs = || results.workloads.iter().filter_map(|one| Some((&one.name, one.runoff.as_ref()?)));
    for subject in &results.subjects {
        let cells = || results.workloads.iter().filter_map(|one| Some((&one.name, one.cell(&subject.name)?)));
        let scores =
            runoffs().flat_map(|(name, runoff)| runoff.scores.iter().map(move |score| (name, score)));
        let scores = scores.filter(|(_, score)| score.subject == subject.name);
        for (what, errors) in [
            ("errors", cells().map(|(name, cell)| (name, cell.errors)).collect::<Vec<_>>()),
            ("errors in run-offs", scores.map(|(name, score)| (name, score.errors)).collect()),
        ] {
            let errors = errors.into_iter().filter(|(_, errors)| *errors > 0.0);
            let errors: Vec<String> = errors.map(|(name, errors)| format!("{name} {errors}")).collect();
            if !errors.is_empty() {
                let _ = writeln!(out, "- {}, {what}: {}.", subject.name, errors.join(", "));
            }
        }
        for (name, cell) in cells().filter(|(_, cell)| cell.failed_rounds > 0) {
            let why = cell.why.as_deref().map_or("of unknown cause", first_line);
            let _ = writeln!(out, "- {}, {name}: {} failed rounds: {why}.", subject.name, cell.failed_rounds);
        }
    }
    for (name, failed) in runoffs().filter_map(|(name, runoff)| Some((name, runoff.failed.as_deref()?))) {
        let _ = writeln!(out, "- {name}: its run-off failed: {}.", first_line(failed));
    }
    if out.len() == before {
        out.push_str("None.\n");
    }
}

fn ran_off(column: &Column, metric: Metric, best: Option<&str>) -> String {
    if let Some(Score { over_ours, .. }) = best.and_then(|name| score(column, metric, name)) {
        return format!("{:.2} ({:.2} to {:.2})", over_ours.median, over_ours.low, over_ours.high);
    }
    let erred = |score: &&Score| best == Some(score.subject.as_str()) && score.errors > 0.0;
    let scores = column.runoff.iter().flat_map(|runoff| &runoff.scores);
    scores.into_iter().find(erred).map_or("-".to_owned(), |score| format!("{} errors !", score.errors))
}

/// Shows a percentage of us, and of the first of the others.
fn both(column: &Column, names: [Option<&str>; 2], value: impl Fn(&Cell) -> Option<f64>) -> String {
    let one = |name: Option<&str>| Some(format!("{:.0} %", value(column.cell(name?)?)?));
    names.map(|name| one(name).unwrap_or("-".to_owned())).join(", ")
}

fn write_servers(out: &mut String, results: &Results) {
    out.push_str("\n## The servers\n\n| server | version | set up | rules of HTTP/1.1 that it breaks |\n|---|---|---|---|\n");
    for subject in &results.subjects {
        let broken = match &subject.broken[..] {
            [] => "none of those asked".to_owned(),
            broken => broken.join("; "),
        };
        let _ = writeln!(out, "| {} | {} | {} | {broken} |", subject.name, subject.version, subject.about);
    }
    if !results.left_out.is_empty() {
        out.push_str("\nLeft out:\n\n");
    }
    for LeftOut { name, why } in &results.left_out {
        let _ = writeln!(out, "- {name}: {}", first_line(why));
    }
}
