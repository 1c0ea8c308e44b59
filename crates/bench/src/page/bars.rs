//! How far apart are the contestants at one workload? Two panels of bars, with the rounds' spread on each.

use super::Chart;
use super::standing::{CPU, Measure, RATE, decides};
use super::svg::{Anchor, INK, Svg, colour, short};
use crate::results::{Cell, Column, Results};

const NAME: f64 = 96.0;
const PANEL: f64 = 400.0;
/// Room for the number behind the longest bar.
const NUMBER: f64 = 60.0;
const GAP: f64 = 40.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 24.0;

pub(super) fn chart(results: &Results, column: &Column) -> Option<Chart> {
    let decisive = decides(column);
    let panels: Vec<Measure> = [decisive, RATE, CPU]
        .into_iter()
        .enumerate()
        .filter(|(at, measure)| *at == 0 || *measure != decisive)
        .map(|(_, measure)| measure)
        .filter(|measure| column.cells.iter().any(|cell| cell.figures.contains_key(measure.key)))
        .take(2)
        .collect();
    // Paced loads are curves, and say little one by one.
    if panels.is_empty() || column.name.starts_with("rate-") {
        return None;
    }
    let mut cells: Vec<&Cell> = column.cells.iter().filter(|cell| !cell.figures.is_empty()).collect();
    let by = panels[0];
    cells.sort_by(|one, other| {
        // What used less than a tick of CPU was not measured: it goes last.
        let worst = if by.more_is_better { 0.0 } else { f64::MAX };
        let value = |cell: &Cell| cell.median(by.key).filter(|value| *value > 0.0).unwrap_or(worst);
        let [one, other] = [value(one), value(other)];
        if by.more_is_better { other.total_cmp(&one) } else { one.total_cmp(&other) }
    });
    let width = NAME + panels.len() as f64 * (PANEL + GAP);
    let mut svg = Svg::new(width, HEAD + cells.len() as f64 * ROW + 6.0);
    for (row, cell) in cells.iter().enumerate() {
        let y = HEAD + row as f64 * ROW + 13.0;
        let is_floor = cell.subject.starts_with("floor");
        let fair = is_floor || cell.errors == 0.0 && results.is_honest(&cell.subject);
        let name = if fair { cell.subject.clone() } else { format!("{} !", cell.subject) };
        svg.text((NAME - 6.0, y), Anchor::End, INK, &name);
    }
    for (at, measure) in panels.iter().enumerate() {
        panel(&mut svg, NAME + at as f64 * (PANEL + GAP), &cells, *measure);
    }
    let title = format!("{}: {}", column.name, column.title);
    Some(Chart { file: format!("{}.svg", column.name), title, svg: svg.finish() })
}

fn panel(svg: &mut Svg, x: f64, cells: &[&Cell], measure: Measure) {
    let better = if measure.more_is_better { "more is better" } else { "less is better" };
    svg.text((x, 14.0), Anchor::Start, INK, &format!("{} ({better})", measure.title));
    let highest = cells.iter().filter_map(|cell| cell.figures.get(measure.key)).map(|figure| figure.high);
    // One that is ten times the others would make them all look alike.
    let most = highest.fold(0.0, f64::max).min(limit(cells, measure));
    let scale = if most > 0.0 { (PANEL - NUMBER) / most } else { 0.0 };
    let clip = |value: f64| value.min(most) * scale;
    for (row, cell) in cells.iter().enumerate() {
        let Some(figure) = cell.figures.get(measure.key) else { continue };
        let y = HEAD + row as f64 * ROW;
        svg.rect([x, y + 3.0, clip(figure.median), ROW - 6.0], colour(&cell.subject));
        let middle = y + ROW / 2.0;
        svg.line([x + clip(figure.low), middle, x + clip(figure.high), middle], INK, 1.5);
        let cut = if figure.median > most { " >" } else { "" };
        let errors =
            if cell.errors > 0.0 { format!(", {} errors", short(cell.errors)) } else { String::new() };
        let text = format!("{}{cut}{errors}", short(figure.median));
        svg.text((x + clip(figure.high) + 5.0, y + 13.0), Anchor::Start, INK, &text);
    }
}

/// Four times the median of a panel.
fn limit(cells: &[&Cell], measure: Measure) -> f64 {
    let mut values: Vec<f64> = cells.iter().filter_map(|cell| cell.median(measure.key)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().filter(|value| *value > 0.0).unwrap_or(f64::MAX) * 4.0
}
