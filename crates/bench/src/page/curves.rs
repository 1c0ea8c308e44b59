//! From which rate on does a server let its clients wait? Latency over the rate that is asked for.

use super::Chart;
use super::svg::{Anchor, INK, Svg, colour};
use crate::results::Results;

const LEFT: f64 = 60.0;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const TOP: f64 = 20.0;
const LEGEND: f64 = 130.0;
/// Milliseconds at the bottom and at the top; what lies beyond is drawn at the edge.
const RANGE: (f64, f64) = (0.02, 500.0);
/// Axis labels, milliseconds.
const TICKS: &[f64] = &[0.1, 1.0, 10.0, 100.0];

pub(super) fn charts(results: &Results) -> Vec<Chart> {
    let quantiles = [("p50_ms", "median"), ("p99_ms", "99th percentile"), ("p999_ms", "99.9th percentile")];
    let chart = |(key, name): (&str, &str)| {
        let title =
            format!("Latency at a fixed rate: {name}, milliseconds, over requests asked for a second");
        Some(Chart {
            file: format!("latency-{}.svg", key.trim_end_matches("_ms")),
            title,
            svg: draw(results, key)?,
        })
    };
    quantiles.into_iter().filter_map(chart).collect()
}

fn draw(results: &Results, key: &str) -> Option<String> {
    let rates: Vec<(f64, &str)> = results
        .workloads
        .iter()
        .filter_map(|column| Some((column.name.strip_prefix("rate-")?.parse().ok()?, column.name.as_str())))
        .collect();
    let most = rates.iter().map(|(rate, _)| *rate).reduce(f64::max)?;
    let x = |rate: f64| LEFT + WIDTH * rate / most;
    let mut svg = Svg::new(LEFT + WIDTH + LEGEND, TOP + HEIGHT + 30.0);
    for tick in TICKS {
        svg.line([LEFT, y(*tick), LEFT + WIDTH, y(*tick)], "#d8dce0", 0.7);
        svg.text((LEFT - 6.0, y(*tick) + 4.0), Anchor::End, INK, &format!("{tick} ms"));
    }
    for (rate, _) in &rates {
        svg.text((x(*rate), TOP + HEIGHT + 18.0), Anchor::Middle, INK, &format!("{:.0}k", rate / 1000.0));
    }
    let mut ends = Vec::new();
    for subject in &results.subjects {
        let point = |(rate, name): &(f64, &str)| {
            Some((x(*rate), y(results.column(name)?.cell(&subject.name)?.median(key)?)))
        };
        let points: Vec<(f64, f64)> = rates.iter().filter_map(point).collect();
        let Some(last) = points.last() else { continue };
        let width = if subject.name.starts_with("weft") { 2.5 } else { 1.2 };
        svg.path(&points, colour(&subject.name), width);
        ends.push((last.1, subject.name.as_str()));
    }
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut below = TOP;
    for (end, name) in ends {
        // Names that would lie on each other are set apart.
        below = f64::max(end + 4.0, below + 12.0);
        svg.text((LEFT + WIDTH + 8.0, below), Anchor::Start, colour(name), name);
    }
    Some(svg.finish())
}

/// Logarithmic.
fn y(ms: f64) -> f64 {
    let (low, high) = RANGE;
    TOP + HEIGHT * (1.0 - (ms.clamp(low, high) / low).ln() / (high / low).ln())
}
