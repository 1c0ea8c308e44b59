//! What stands in docs/benchmarks.md? The same figures, with what each means, and what was lost.

use std::fmt::Write;

use super::standing::{CPU, Measure, RATE, command, counts, decides, first, how, ours, score, standings};
use super::svg::short;
use crate::results::{Cell, Column, LeftOut, Results, Runoff, Score};
use crate::workloads::UNKNOWN;

const METHOD: &str = "
## How it is measured, and what each figure means

- Server and load each have a core of their own. A fresh server is started for every cell, asked once whether its answer is
  right, warmed up, measured, and stopped. Contestants run in turn, round by round, so that a slow minute of the machine hits
  all of them. Tables and charts show the medians over the rounds, all of which have to be without errors.
- A few short rounds do not tell apart who is close. Where others were within a quarter of a column's first by the medians, or within a
  tenth by their best round and its worst, the default engine and the best four of them have a **run-off**, and that decides who is first: all of them run at once, and each has the load for
  30 ms at a time (400 where handlers block, 300 with 8 MiB and more under way, a second for files of 10 MiB and at a fixed rate), beginning in turn. What the host does to the
  machine befalls all alike then: of the ratios of single turns the middle half lies within 2 to 5 %, and those of the eight parts within what
  the tables say. CPU is counted from one's turn to one's next, so what is put off
  counts, but at a fixed rate, where servers rest in between anyway. The figures are medians over eight parts of it, fewer where ticks of 10 ms would
  be much of one. With 8 MiB and more under way each turn has new connections: how large the
  kernel's buffers of one become is chance, of its first moments, and stays so.
- **CPU us a request** is what the kernel charged the server's whole process tree, divided by the answers. It decides where handlers
  do not block: it hardly depends on how fast the load is. A tick is 10 ms: of 0.3 s
  of a full core that is 3 per cent, and of a run-off of 4 s a quarter of one.
- **requests/s** decides where handlers block; in `mixed` those of the quick clients, while others block (CPU a request is that of both). Elsewhere it says as much about the load: with `Connection: close` the generator
  opens every connection and is often the slower side; how much of its core a server had is in the HTML page.
- **Errors** are answers that are not 2xx, bodies that differ from the first checked one, connections that broke, and answers
  that did not come within 2 s; while connections are opened and in the warm-up, too. Who makes any is marked `!` and is never first; nor is
  who owes more answers at the end of a fixed rate than fall due in 10 ms.
- At a **fixed rate** servers rest in between, and what that costs them is in their CPU a request. **Latency** counts there from when a request was due, not from when it could be sent, so that a stall cannot hide
  itself (coordinated omission).
- The **floors** are hand-written and do nothing but answer: no parser, no limits. They are what there is to reach, not contestants:
  one thread and epoll where handlers do not wait; a thread for each connection that sleeps where they block, and so in `wait`, where
  whoever waits without a thread has less to do.
- The host of a virtual machine may move its cores closer together and apart again, every few seconds: a cache line then takes 50
  or 500 ns from the one to the other and back, and a request, which needs dozens, 2.6 or 6.5 us of CPU in the same server. Where
  that is so, the first lines say so, and a cell is measured again until the cores were where they should be in each of the looks before, in and after
  it. What leaves them at rest (fixed rates, idle connections) is taken as it comes; in a run-off only rounds count in which they stayed, and where these are fewer than three the grid's own decide.
- What TCP's congestion control does decides what long bodies cost. Linux has CUBIC unless told otherwise. BBR paces what is sent by
  timers, also over loopback, and in a virtual machine these were 55 % of what the CPU did for a file of 1 MiB: 146 us, and 53 with CUBIC (nginx
  103 and 49; another host than this page's, docs/performance.md), and rounds that lie far apart.
  `sysctl net.ipv4.tcp_congestion_control` says which it is, and so do the first lines.
- `!` also marks who ignores `Connection: close`, or did not answer when it was asked which rules it keeps. The other rules that a server breaks are in the list of contestants.
- `~` marks a figure whose rounds lie more than 10 % apart, or during which others took more than 10 % of a core. How far they lie
  apart is highest less lowest, of the median; CPU of others is what all other processes took of the cores used here, in percent
  of one.
- One core for each side says nothing about many cores; `--cores 0-3,4-7 --load wrk` gives each side four, where there are eight.
";

pub(crate) fn markdown(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "# Benchmarks\n\nMeasured by `{}`. This page is made from [its JSON](benchmarks/run.json) by\n`weftwork-bench report \
         docs/benchmarks/run.json --markdown docs/benchmarks.md`: do not edit it. `--html run.html` makes\none page of it that has a \
         chart of each column with its spread, all latencies, memory and threads.\n\n{}\n\n",
        command(results),
        how(results)
    );
    write_lost(&mut out, results);
    for chart in super::overviews(results) {
        let _ = write!(out, "\n{}:\n\n![{}](benchmarks/{})\n", chart.title, chart.title, chart.file);
    }
    write_grid(&mut out, results, "The grid by CPU us a request", CPU);
    write_grid(&mut out, results, "The grid by requests/s", RATE);
    write_columns(&mut out, results);
    write_errors(&mut out, results);
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
         columns: by CPU a request where handlers do not block, by requests/s where they do, by memory where connections are idle.{}\n",
        standings.len(),
        if won < standings.len() { " It is behind in:" } else { "" }
    );
    for standing in standings.iter().filter(|standing| !standing.is_won) {
        let _ = writeln!(out, "- {}.\n  Why: {}.", standing.says, standing.why);
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
    let noisy = if cell.is_noisy(measure.key) { " ~" } else { "" };
    let text = short(value);
    match counts(results, cell, measure) {
        Some(_) if first(results, column, measure).is_some_and(|(name, _)| name == subject) => {
            format!("**{text}**{noisy}")
        }
        Some(_) => format!("{text}{noisy}"),
        None if subject.starts_with("floor") => format!("{text}{noisy}"),
        None => format!("{text} !"),
    }
}

/// All columns: what decides, us, the first, and the floor; and how sure that is.
fn write_columns(out: &mut String, results: &Results) {
    out.push_str(
        "\n## All columns\n\nIn the run-off: what the first of the others has of our figure, and between which two the parts of it lie. The \
         last two columns are of the rounds of adaptive and of the first of the others; where there was one, none lie apart.\n\n\
         | column | decided by | adaptive | first of the others | floor | in the run-off | rounds lie apart | CPU of others |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for column in &results.workloads {
        let measure = decides(column);
        let shown = |name: &str| cell(results, column, name, measure);
        let mut others = column.clone();
        others.cells.retain(|cell| !cell.subject.starts_with("weft"));
        let best = first(results, &others, measure);
        let best = best.map(|(name, _)| name);
        let ours = ours(column).map_or("weft", |cell| &cell.subject);
        let _ = writeln!(
            out,
            "| {}: {} | {} | {} | {} | {} | {} | {} | {} |",
            column.name,
            column.title,
            measure.title,
            shown(ours),
            best.map_or("-".to_owned(), |name| format!("{name} {}", shown(name).replace('*', ""))),
            shown("floor"),
            ran_off(column, measure, best),
            both(column, [Some(ours), best], " %", |cell| cell.spread_percent(measure.key)),
            both(column, [Some(ours), best], " %", Cell::others_percent)
        );
    }
}

/// Who made errors, and whose rounds failed: in which columns, and why.
fn write_errors(out: &mut String, results: &Results) {
    out.push_str("\n## Errors and failures\n\n");
    let before = out.len();
    for subject in &results.subjects {
        let cells = || results.workloads.iter().filter_map(|one| Some((&one.name, one.cell(&subject.name)?)));
        let errors = cells().filter(|(_, cell)| cell.errors > 0.0);
        let errors: Vec<String> = errors.map(|(name, cell)| format!("{name} {}", cell.errors)).collect();
        if !errors.is_empty() {
            let _ = writeln!(out, "- {}, errors: {}.", subject.name, errors.join(", "));
        }
        let scores =
            runoffs(results).flat_map(|(name, runoff)| runoff.scores.iter().map(move |score| (name, score)));
        let errors = scores.filter(|(_, score)| score.subject == subject.name && score.errors > 0.0);
        let errors: Vec<String> = errors.map(|(name, score)| format!("{name} {}", score.errors)).collect();
        if !errors.is_empty() {
            let _ = writeln!(out, "- {}, errors in run-offs: {}.", subject.name, errors.join(", "));
        }
        for (name, cell) in cells().filter(|(_, cell)| cell.failed_rounds > 0) {
            let why = cell.why.as_deref().map_or(UNKNOWN, super::first_line);
            let _ = writeln!(out, "- {}, {name}: {} failed rounds: {why}.", subject.name, cell.failed_rounds);
        }
    }
    for (name, failed) in
        runoffs(results).filter_map(|(name, runoff)| Some((name, runoff.failed.as_deref()?)))
    {
        let _ = writeln!(out, "- {name}: its run-off failed: {}.", super::first_line(failed));
    }
    if out.len() == before {
        out.push_str("None.\n");
    }
}

fn runoffs(results: &Results) -> impl Iterator<Item = (&str, &Runoff)> {
    results.workloads.iter().filter_map(|column| Some((column.name.as_str(), column.runoff.as_ref()?)))
}

fn ran_off(column: &Column, measure: Measure, best: Option<&str>) -> String {
    if let Some(Score { over_ours, .. }) = best.and_then(|name| score(column, measure, name)) {
        return format!("{:.2} ({:.2} to {:.2})", over_ours.median, over_ours.low, over_ours.high);
    }
    let erred = |score: &&Score| best == Some(score.subject.as_str()) && score.errors > 0.0;
    let scores = column.runoff.iter().flat_map(|runoff| &runoff.scores);
    scores.into_iter().find(erred).map_or("-".to_owned(), |score| format!("{} errors !", score.errors))
}

/// A percentage of us, and of the first of the others.
fn both(
    column: &Column,
    names: [Option<&str>; 2],
    unit: &str,
    value: impl Fn(&Cell) -> Option<f64>,
) -> String {
    let one = |name: Option<&str>| Some(format!("{:.0}{unit}", value(column.cell(name?)?)?));
    names.map(|name| one(name).unwrap_or("-".to_owned())).join(", ")
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
    if !results.left_out.is_empty() {
        out.push_str("\nLeft out:\n\n");
    }
    for LeftOut { name, why } in &results.left_out {
        let _ = writeln!(out, "- {name}: {}", super::first_line(why));
    }
}
