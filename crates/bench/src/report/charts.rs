//! Charts as SVG, in colours that stand on white and on black.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::standing::{counts, first};
use super::table::short;
use crate::failure::{Failure, Result};
use crate::measure::Metric;
use crate::results::{Column, Results};

/// Where a chart is drawn.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A chart of many columns.
pub(super) struct Chart {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    metric: Metric,
    is_grid: bool,
}

#[rustfmt::skip]
static CHARTS: [Chart; 5] = [
    Chart { file: "grid-rate.svg", title: "The grid by requests/s (framed: first of its column)", metric: Metric::RATE, is_grid: true },
    Chart { file: "grid-cpu.svg", title: "The grid by CPU us a request (framed: first of its column)", metric: Metric::CPU_US, is_grid: true },
    Chart { file: "latency-p50.svg", title: "Latency at a fixed rate: median, milliseconds, over requests asked for a second", metric: Metric::P50_MS, is_grid: false },
    Chart { file: "latency-p99.svg", title: "Latency at a fixed rate: 99th percentile, milliseconds, over requests asked for a second", metric: Metric::P99_MS, is_grid: false },
    Chart { file: "latency-p999.svg", title: "Latency at a fixed rate: 99.9th percentile, milliseconds, over requests asked for a second", metric: Metric::P999_MS, is_grid: false },
];

/// The families of the grid: name, handler and connections.
pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("health", "none, kept"),
    ("close", "none, closed"),
    ("zero", "0 ms, kept"),
    ("zero-close", "0 ms, closed"),
    ("slow", "1 ms, kept"),
    ("slow-close", "1 ms, closed"),
];
const CONNECTIONS: [&str; 3] = ["10", "100", "400"];

/// Colour of text and axes.
const INK: RGBColor = RGBColor(107, 113, 119);
const FIRST: RGBColor = RGBColor(209, 73, 91);
const FONT: &str = "system-ui, sans-serif";
const FONT_SIZE: i32 = 14;

/// Returns every chart that the run has figures for.
pub(super) fn charts(results: &Results) -> Vec<&'static Chart> {
    let [has_rates, has_grid] = [!rates(results).is_empty(), !grid_columns(results).is_empty()];
    CHARTS.iter().filter(|chart| if chart.is_grid { has_grid } else { has_rates }).collect()
}

impl Chart {
    pub(super) fn draw(&self, results: &Results) -> Result<String> {
        if self.is_grid { grid(results, self.metric) } else { latency(results, self.metric) }
    }
}

/// Makes an SVG of this size in pixels.
pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl Display) -> Failure {
    Failure::step("a chart", error)
}

fn text<'a>(colour: &RGBColor, at: HPos) -> TextStyle<'a> {
    (FONT, FONT_SIZE).with_color(colour).into_text_style(&(1, 1)).pos(Pos::new(at, VPos::Center))
}

fn write(area: &Area<'_>, at: (i32, i32), style: TextStyle<'_>, words: &str) -> Result<()> {
    area.draw(&Text::new(words.to_owned(), at, style)).map_err(failed)
}

fn grid_columns(results: &Results) -> Vec<(&'static str, &'static str, &Column)> {
    let names = FAMILIES.iter().flat_map(|(family, title)| CONNECTIONS.map(|count| (*family, *title, count)));
    names
        .filter_map(|(family, title, count)| {
            Some((title, count, results.column(&format!("{family}-{count}"))?))
        })
        .collect()
}

/// Draws the heat map of the grid: a row a server, a column a workload.
fn grid(results: &Results, metric: Metric) -> Result<String> {
    const NAME: i32 = 110;
    const CELL: (i32, i32) = (58, 22);
    const HEAD: i32 = 44;
    let columns = grid_columns(results);
    let (width, height) = (columns.len() as i32 * CELL.0, results.subjects.len() as i32 * CELL.1);
    svg(((NAME + width + 2) as u32, (HEAD + height + 2) as u32), |area| {
        let mut family = "";
        for (at, (title, count, column)) in columns.iter().enumerate() {
            let x = NAME + at as i32 * CELL.0;
            if *title != family {
                family = title;
                write(area, (x + 2, 12), text(&INK, HPos::Left), title)?;
            }
            write(area, (x + CELL.0 / 2, 32), text(&INK, HPos::Center), &format!("c={count}"))?;
            let best = first(results, column, metric);
            for (row, subject) in results.subjects.iter().enumerate() {
                let y = HEAD + row as i32 * CELL.1;
                if at == 0 {
                    write(area, (NAME - 8, y + CELL.1 / 2), text(&INK, HPos::Right), &subject.name)?;
                }
                let Some(cell) = column.cell(&subject.name) else { continue };
                let mut words =
                    cell.median(metric).filter(|value| *value > 0.0).map_or("-".to_owned(), short);
                let mut ink = INK;
                if let (Some(value), Some((name, best))) = (counts(results, cell, metric), best) {
                    let share = metric.behind(value, best).recip();
                    let frame = [(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)];
                    area.draw(&Rectangle::new(frame, shade(share).filled())).map_err(failed)?;
                    if name == cell.subject {
                        area.draw(&Rectangle::new(frame, FIRST.stroke_width(2))).map_err(failed)?;
                    }
                    ink = if share > 0.7 { WHITE } else { BLACK };
                } else if words != "-" && !cell.subject.starts_with("floor") {
                    words.push_str(" !");
                }
                write(area, (x + CELL.0 / 2, y + CELL.1 / 2), text(&ink, HPos::Center), &words)?;
            }
        }
        Ok(())
    })
}

/// From pale to deep. 1 is the best.
fn shade(share: f64) -> RGBColor {
    let share = share.clamp(0.0, 1.0).powf(1.5);
    let mix = |pale: f64, deep: f64| (pale + (deep - pale) * share).round() as u8;
    RGBColor(mix(236.0, 11.0), mix(242.0, 122.0), mix(240.0, 104.0))
}

fn rates(results: &Results) -> Vec<(f64, &Column)> {
    let rate = |column: &Column| column.name.strip_prefix("rate-")?.parse().ok();
    results.workloads.iter().filter_map(|column| Some((rate(column)?, column))).collect()
}

fn latency(results: &Results, metric: Metric) -> Result<String> {
    let rates = rates(results);
    let most = rates.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
    let series = results.subjects.iter().map(|subject| {
        let point =
            |(rate, column): &(f64, &Column)| Some((*rate, column.cell(&subject.name)?.median(metric)?));
        Series { name: &subject.name, points: rates.iter().filter_map(point).collect() }
    });
    let series: Vec<Series<'_>> = series.collect();
    svg((860, 400), |area| {
        let y = (0.02..500.0).log_scale();
        lines(
            area,
            ["requests/s", "ms"],
            0.0..most,
            y,
            &|rate| format!("{:.0}k", rate / 1e3),
            &|ms| ms.to_string(),
            &series,
        )
    })
}

/// One line of a chart.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws lines over two axes, each with its name at its end.
pub(crate) fn lines<Y>(
    area: &Area<'_>,
    names: [&str; 2],
    x: std::ops::Range<f64>,
    y: Y,
    x_label: &dyn Fn(f64) -> String,
    y_label: &dyn Fn(f64) -> String,
    series: &[Series<'_>],
) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(120).x_label_area_size(36).y_label_area_size(56);
    let mut chart = builder.build_cartesian_2d(x, y).map_err(failed)?;
    let style = text(&INK, HPos::Left);
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(INK.mix(0.3)).axis_style(INK);
    mesh.label_style(style).x_desc(names[0]).y_desc(names[1]);
    mesh.x_label_formatter(&|x| x_label(*x)).y_label_formatter(&|y| y_label(*y)).draw().map_err(failed)?;
    let mut ends = Vec::new();
    for Series { name, points } in series.iter().filter(|series| !series.points.is_empty()) {
        let width = if name.starts_with("weft") { 3 } else { 1 + u32::from(series.len() < 5) };
        let line = LineSeries::new(points.clone(), colour(name).stroke_width(width));
        chart.draw_series(line).map_err(failed)?;
        ends.push((chart.backend_coord(&points[points.len() - 1]), *name));
    }
    ends.sort_unstable_by_key(|((_, y), _)| *y);
    let (origin, mut below) = (area.get_base_pixel(), 0);
    for ((x, y), name) in ends {
        // Names that would lie on each other are set apart.
        below = (y - origin.1).max(below + FONT_SIZE - 1);
        write(area, (x - origin.0 + 8, below), text(&colour(name), HPos::Left), name)?;
    }
    Ok(())
}

/// Returns a server's colour: ours are one hue, the floor is grey, the others are spread over the rest.
fn colour(subject: &str) -> RGBColor {
    const OTHERS: [u32; 10] =
        [0xd1495b, 0xedae49, 0x66557d, 0x8d6a4f, 0xc06c84, 0x5c7aea, 0xb5651d, 0x9a8c98, 0xe07a5f, 0x7a5195];
    let rgb = match subject {
        "weft" | "weft:adaptive" | "weft:adaptive:1" => 0x0b8a77,
        "weft:reactor" => 0x3fb39d,
        "weft:workers" => 0x79c9b8,
        "weft:pool" => 0x2e6f63,
        "weft:fibers" => 0x8fd14f,
        "floor" => 0x9aa0a6,
        other => OTHERS[other.bytes().map(usize::from).sum::<usize>() % OTHERS.len()],
    };
    RGBColor((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)
}
