//! How does a person read a run? As one page with charts, and as the text of docs/benchmarks.md.

mod bars;
mod curves;
mod heat;
mod markdown;
mod standing;
mod svg;
#[cfg(test)]
mod tests;
mod trend;

use std::fmt::Write;

use weftwork::escaped;

use crate::results::{Cell, Column, LeftOut, Results};

pub(crate) use markdown::markdown;
pub(crate) use trend::trend;

const STYLE: &str = include_str!("page/style.css");

/// A chart that stands by itself, and the name of its file.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) svg: String,
}

/// Handlers block there: how many requests get through is what counts.
pub(crate) fn is_decided_by_rate(column: &Column) -> bool {
    standing::decides(column) == standing::RATE
}

/// The charts of many columns.
pub(crate) fn overviews(results: &Results) -> Vec<Chart> {
    let mut charts = heat::charts(results);
    charts.extend(curves::charts(results));
    charts
}

/// Every chart that the run has figures for.
fn charts(results: &Results) -> Vec<Chart> {
    let mut charts = overviews(results);
    charts.extend(results.workloads.iter().filter_map(|column| bars::chart(results, column)));
    charts
}

/// One page that needs no other file.
pub(crate) fn html(results: &Results) -> String {
    let mut out = String::with_capacity(256 << 10);
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Weftwork: measured</title>\n\
         <style>\n{STYLE}</style>\n<main>\n<h1>Weftwork: measured</h1>\n<p>{}</p>\n",
        escaped(&standing::how(results)),
    );
    write_standings(&mut out, results);
    for chart in charts(results) {
        let _ = write!(out, "<section><h2>{}</h2>\n{}</section>\n", escaped(&chart.title), chart.svg);
    }
    write_contestants(&mut out, results);
    let _ = writeln!(
        out,
        "<section><h2>Every figure</h2>\n<p>~: the rounds lie more than 10&nbsp;% apart, or others took more than \
         10&nbsp;% of a core meanwhile. A figure tells its lowest and highest when it is pointed at.</p>"
    );
    results.workloads.iter().for_each(|column| write_column(&mut out, column));
    let command = standing::command(results);
    let command = escaped(&command);
    let _ = write!(
        out,
        "</section>\n<section><h2>The command</h2>\n<pre>{command}</pre>\n\
         </section>\n</main>\n</html>\n"
    );
    out
}

fn write_standings(out: &mut String, results: &Results) {
    let standings = standing::standings(results);
    let won = standings.iter().filter(|standing| standing.is_won).count();
    let _ = writeln!(
        out,
        "<section><h2>Where the default engine stands</h2>\n<p>First or within 3&nbsp;% of first, among servers without \
         errors, in {won} of {} columns. The others:</p>\n<ul>",
        standings.len()
    );
    for standing in standings.iter().filter(|standing| !standing.is_won) {
        let _ = writeln!(out, "<li>{}<br>Why: {}", escaped(&standing.says), escaped(&standing.why));
    }
    out.push_str("</ul></section>\n");
}

fn write_contestants(out: &mut String, results: &Results) {
    out.push_str(
        "<section><h2>Who took part, and which rules of HTTP/1.1 they break</h2>\n<table>\n\
         <tr><th>server<th>version<th>set up<th>breaks\n",
    );
    for subject in &results.subjects {
        let broken =
            if subject.broken.is_empty() { "none of those asked".into() } else { subject.broken.join("; ") };
        let [name, version, about, broken] =
            [&subject.name, &subject.version, &subject.about, &broken].map(|text| escaped(text));
        let _ = writeln!(out, "<tr><td>{name}<td>{version}<td>{about}<td>{broken}");
    }
    out.push_str("</table>\n");
    for LeftOut { name, why } in &results.left_out {
        let _ = writeln!(out, "<p>{} was left out: {}</p>", escaped(name), escaped(first_line(why)));
    }
    out.push_str("</section>\n");
}

/// What was said may be a whole log.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Figures of a table: key, heading, decimals.
const FIGURES: &[(&str, &str, usize)] = &[
    ("requests_per_s", "requests/s", 0),
    ("p50_ms", "p50 ms", 3),
    ("p99_ms", "p99 ms", 3),
    ("p999_ms", "p99.9 ms", 3),
    ("cpu_us_per_request", "CPU us a request", 2),
    ("context_switches_per_request", "switches a request", 3),
    ("peak_bytes", "peak bytes", 0),
    ("threads", "threads", 0),
    ("unanswered", "unanswered", 0),
    ("server_cpu_percent", "busy, %", 0),
    ("others_cpu_percent", "CPU of others, %", 1),
    ("p99_over_alone", "p99 over alone", 2),
    ("bytes_per_connection", "bytes a connection", 0),
    ("idle_cpu_ms", "CPU ms in 5 s", 0),
    ("idle_switches_per_s", "switches/s", 1),
];

fn write_column(out: &mut String, column: &Column) {
    let measure = standing::decides(column);
    let has = |key: &str| column.cells.iter().any(|cell| cell.figures.contains_key(key));
    let figures: Vec<_> = FIGURES.iter().filter(|(key, ..)| has(key)).collect();
    let _ = write!(
        out,
        "<details><summary>{}: {}</summary>\n<table>\n<tr><th>server",
        column.name,
        escaped(&column.title)
    );
    for (_, heading, _) in &figures {
        let _ = write!(out, "<th>{heading}");
    }
    out.push_str("<th>errors<th>CPU over floor<th>CPU over nginx<th>note\n");
    for cell in &column.cells {
        let noisy = if cell.is_noisy(measure.key) { " ~" } else { "" };
        let _ = write!(out, "<tr><td>{}{noisy}", escaped(&cell.subject));
        for (key, _, decimals) in &figures {
            let _ = write!(out, "<td class=\"n\">{}", figure(cell, key, *decimals));
        }
        let ratio = |key: &str| cell.ratios.get(key).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let note = cell.why.as_deref().map(first_line).unwrap_or_default();
        let (floor, nginx) = (ratio("cpu_over_floor"), ratio("cpu_over_nginx"));
        let (errors, note) = (cell.errors, escaped(note));
        let _ =
            writeln!(out, "<td class=\"n\">{errors}<td class=\"n\">{floor}<td class=\"n\">{nginx}<td>{note}");
    }
    out.push_str("</table></details>\n");
}

/// A median, and how far the rounds lie apart.
fn figure(cell: &Cell, key: &str, decimals: usize) -> String {
    let Some(figure) = cell.figures.get(key) else { return "-".to_owned() };
    let number = |value| crate::report::table::number(value, decimals);
    match figure.high > figure.low {
        true => format!(
            "<span title=\"{} to {}\">{}</span>",
            number(figure.low),
            number(figure.high),
            number(figure.median)
        ),
        false => number(figure.median),
    }
}
