//! How did the ratios go, commit by commit? One small drawing a workload and engine.

use std::fmt::Write;

use weftwork::escaped;

use super::STYLE;
use super::svg::{Anchor, INK, Svg, colour};
use crate::tracker::{Entry, Share};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 40.0;
const LEGEND: f64 = 60.0;
/// Commits that are drawn.
const ENTRIES_MAX: usize = 200;

/// A ratio, and whose colour it is drawn in.
const SHARES: [(&str, &str, Share); 2] =
    [("floor", "weft:adaptive", |track| track.of_floor), ("nginx", "nginx", |track| track.of_nginx)];

pub(crate) fn trend(history: &[Entry]) -> String {
    let entries = &history[history.len().saturating_sub(ENTRIES_MAX)..];
    let mut names: Vec<&String> = entries.iter().flat_map(|entry| entry.figures.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Weftwork: the trend</title>\n\
         <style>\n{STYLE}</style>\n<main>\n<h1>The trend</h1>\n<p>How near each commit came to the floor and to nginx of \
         the same run: by CPU a request, or by requests/s where handlers block. 1 is as good, more is better.</p>\n"
    );
    for name in names {
        let _ = write!(out, "<section><h2>{}</h2>\n{}</section>\n", escaped(name), draw(entries, name));
    }
    if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
        let [first, last] = [first, last].map(|entry| format!("{} ({})", entry.commit, entry.when));
        let (first, last) = (escaped(&first), escaped(&last));
        let _ = writeln!(out, "<p>{} commits, from {first} to {last}.</p>", entries.len());
    }
    out.push_str("</main>\n</html>\n");
    out
}

fn draw(entries: &[Entry], name: &str) -> String {
    let mut svg = Svg::new(LEFT + WIDTH + LEGEND, HEIGHT + 20.0);
    let values = |of: Share| -> Vec<(usize, f64)> {
        let value = |(at, entry): (usize, &Entry)| Some((at, of(entry.figures.get(name)?)?));
        entries.iter().enumerate().filter_map(value).collect()
    };
    let all = SHARES.iter().flat_map(|(_, _, of)| values(*of)).map(|(_, value)| value);
    let most = all.fold(1.0, f64::max) * 1.1;
    let y = |value: f64| 8.0 + HEIGHT * (1.0 - value / most);
    for tick in [0.0, 0.5, 1.0, 1.5].into_iter().filter(|tick| *tick < most) {
        svg.line([LEFT, y(tick), LEFT + WIDTH, y(tick)], "#d8dce0", 0.7);
        svg.text((LEFT - 6.0, y(tick) + 4.0), Anchor::End, INK, &tick.to_string());
    }
    let steps = entries.len().saturating_sub(1).max(1) as f64;
    for (other, like, of) in SHARES {
        let points: Vec<(f64, f64)> =
            values(of).into_iter().map(|(at, value)| (LEFT + WIDTH * at as f64 / steps, y(value))).collect();
        let Some(&(_, end)) = points.last() else { continue };
        svg.path(&points, colour(like), 2.0);
        points.iter().for_each(|(x, y)| svg.rect([x - 1.5, y - 1.5, 3.0, 3.0], colour(like)));
        svg.text((LEFT + WIDTH + 6.0, end + 4.0), Anchor::Start, colour(like), other);
    }
    svg.finish()
}
