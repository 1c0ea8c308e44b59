//! The tables for the terminal: one a workload, with the targets below.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::decides;
use crate::measure::Metric;
use crate::results::{Cell, Column, Reached, Results};

/// Makes all tables, and a last line that says how many targets were met.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = String::new();
    let mut met = [0, 0];
    for column in &results.workloads {
        let floor = if column.floor.is_empty() { "" } else { &format!("  (floor: {})", column.floor) };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}: {}{floor}\n{}", column.name, column.title, cells(column));
        for cell in &column.cells {
            if let Some(why) = &cell.why {
                let _ = writeln!(text, "  note  {}: {}", cell.subject, first_line(why));
            }
            for Reached { met: is_met, says } in &cell.targets {
                met[usize::from(*is_met)] += 1;
                let _ =
                    writeln!(text, "  {}  {}: {says}", if *is_met { "met " } else { "LOST" }, cell.subject);
            }
        }
        text.push('\n');
    }
    let runoffs = results.workloads.iter().filter(|column| column.runoff.is_some()).count();
    let Results { rounds, seconds, took_s, .. } = results;
    let _ = writeln!(
        text,
        "{rounds} rounds of {seconds} s a cell, {runoffs} run-offs, {took_s} s in all; targets: {} met, {} lost",
        met[1], met[0]
    );
    if let Some(distances) = &results.core_distances {
        let _ = writeln!(text, "{distances}");
    }
    text
}

/// Makes the table of a workload: medians, ratios taken round by round, and the spread of what decides.
fn cells(column: &Column) -> String {
    let has = |metric: &&Metric| column.cells.iter().any(|cell| cell.figures.contains_key(metric.key));
    let metrics: Vec<&Metric> = Metric::ALL.iter().filter(has).collect();
    let mut ratios: Vec<&String> = column.cells.iter().flat_map(|cell| cell.ratios.keys()).collect();
    ratios.sort_unstable();
    ratios.dedup();
    let mut head = vec!["subject".to_owned()];
    head.extend(metrics.iter().map(|metric| metric.title.to_owned()));
    head.extend(ratios.iter().map(|name| name.replace("requests_per_s", "rate").replace("_over_", "/")));
    head.extend(["spread", "errors"].map(str::to_owned));
    let row = |cell: &Cell| {
        let figure = |metric: &Metric| cell.median(*metric).map(|value| number(value, metric.decimals));
        let mut row = vec![Some(cell.subject.clone())];
        row.extend(metrics.iter().map(|metric| figure(metric)));
        row.extend(ratios.iter().map(|name| cell.ratios.get(*name).map(|ratio| format!("{ratio:.3}"))));
        row.push(cell.spread_percent(decides(&column.name)).map(|spread| format!("{spread:.0}%")));
        row.push((!cell.figures.is_empty()).then(|| number(cell.errors, 0)));
        row.into_iter().map(|text| text.unwrap_or("-".to_owned()))
    };
    table(head, column.cells.iter().map(row))
}

/// Aligns rows: the first column to the left, numbers to the right.
pub fn table<R: IntoIterator<Item = String>>(head: Vec<String>, rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    rows.into_iter().for_each(|row| {
        table.add_row(row.into_iter());
    });
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.trim_fmt()
}

/// Writes thousands apart: 150,210.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let groups = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok());
    format!("{sign}{}{rest}", groups.collect::<Vec<_>>().join(","))
}

/// Writes three digits and a unit: 151k, 4.46, 873.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.2}M", value / 1e6),
        1e5.. => format!("{:.0}k", value / 1e3),
        1e4.. => format!("{:.1}k", value / 1e3),
        1e3.. => format!("{:.2}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns the first line of a reason, which may be a whole log.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
