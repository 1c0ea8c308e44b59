//! Who leads which column of the grid? Handler none, 0 ms, 1 ms; kept or closed; 10, 100, 400 connections.

use super::Chart;
use super::standing::{CPU, Measure, RATE, counts, first};
use super::svg::{Anchor, INK, Svg, short};
use crate::results::{Cell, Column, Results};

const FAMILIES: &[(&str, &str)] = &[
    ("health", "no handler, kept"),
    ("close", "no handler, closed"),
    ("zero", "0 ms, kept"),
    ("zero-close", "0 ms, closed"),
    ("slow", "1 ms, kept"),
    ("slow-close", "1 ms, closed"),
];
const CONNECTIONS: [&str; 3] = ["10", "100", "400"];
const NAME: f64 = 96.0;
const WIDTH: f64 = 52.0;
const HEIGHT: f64 = 20.0;
const HEAD: f64 = 40.0;

pub(super) fn charts(results: &Results) -> Vec<Chart> {
    let chart = |file: &str, title: &str, measure| {
        Some(Chart { file: file.to_owned(), title: title.to_owned(), svg: grid(results, measure)? })
    };
    [
        chart("grid-rate.svg", "The grid by requests/s (framed: first of its column)", RATE),
        chart("grid-cpu.svg", "The grid by CPU us a request (framed: first of its column)", CPU),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn grid(results: &Results, measure: Measure) -> Option<String> {
    let columns: Vec<(&str, &str, &Column)> = FAMILIES
        .iter()
        .flat_map(|(family, title)| CONNECTIONS.iter().map(move |count| (*family, *title, *count)))
        .filter_map(|(family, title, count)| {
            Some((title, count, results.column(&format!("{family}-{count}"))?))
        })
        .collect();
    if columns.is_empty() {
        return None;
    }
    let subjects: Vec<&str> = results.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let (width, height) = (NAME + columns.len() as f64 * WIDTH, HEAD + subjects.len() as f64 * HEIGHT + 4.0);
    let mut svg = Svg::new(width, height);
    for (row, subject) in subjects.iter().enumerate() {
        let y = HEAD + row as f64 * HEIGHT + 14.0;
        svg.text((NAME - 6.0, y), Anchor::End, INK, subject);
    }
    let mut last = "";
    for (at, (title, count, column)) in columns.iter().enumerate() {
        let x = NAME + at as f64 * WIDTH;
        if *title != last {
            svg.text((x + 2.0, 14.0), Anchor::Start, INK, title);
            last = title;
        }
        svg.text((x + WIDTH / 2.0, 32.0), Anchor::Middle, INK, &format!("c={count}"));
        for (row, subject) in subjects.iter().enumerate() {
            if let Some(cell) = column.cell(subject) {
                draw(&mut svg, (x, HEAD + row as f64 * HEIGHT), results, column, cell, measure);
            }
        }
    }
    Some(svg.finish())
}

fn draw(
    svg: &mut Svg,
    (x, y): (f64, f64),
    results: &Results,
    column: &Column,
    cell: &Cell,
    measure: Measure,
) {
    let frame = [x + 1.0, y + 1.0, WIDTH - 2.0, HEIGHT - 2.0];
    let best = first(results, column, measure);
    let Some(value) = cell.median(measure.key).filter(|value| *value > 0.0) else {
        return svg.text((x + WIDTH / 2.0, y + 14.0), Anchor::Middle, INK, "-");
    };
    let (Some(counted), Some((name, best))) = (counts(results, cell, measure), best) else {
        let mark = if cell.subject.starts_with("floor") { "" } else { " !" };
        return svg.text(
            (x + WIDTH / 2.0, y + 14.0),
            Anchor::Middle,
            INK,
            &format!("{}{mark}", short(value)),
        );
    };
    let share = if measure.more_is_better { counted / best } else { best / counted };
    svg.rect(frame, shade(share));
    if name == cell.subject {
        let [x, y, width, height] = frame;
        for line in [[x, y, x + width, y], [x, y + height, x + width, y + height]] {
            svg.line(line, "#d1495b", 2.0);
        }
        for line in [[x, y, x, y + height], [x + width, y, x + width, y + height]] {
            svg.line(line, "#d1495b", 2.0);
        }
    }
    let ink = if share > 0.7 { "#ffffff" } else { "#1c2024" };
    svg.text((x + WIDTH / 2.0, y + 14.0), Anchor::Middle, ink, &short(value));
}

/// From pale to deep, 1 is the best.
fn shade(share: f64) -> String {
    let share = share.clamp(0.0, 1.0).powf(1.5);
    let mix = |pale: f64, deep: f64| (pale + (deep - pale) * share).round();
    format!("rgb({},{},{})", mix(236.0, 11.0), mix(242.0, 122.0), mix(240.0, 104.0))
}
