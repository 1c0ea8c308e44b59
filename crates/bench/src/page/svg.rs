//! How is a drawing written down? Only what the charts need, and colours that stand on white and on black.

use std::fmt::{Display, Write};

use weftwork::escaped;

/// A drawing that grows.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text stands at its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Colour of text and axes.
pub(super) const INK: &str = "#6b7177";

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Svg { width, height, body: String::new() }
    }

    pub(super) fn rect(&mut self, [x, y, width, height]: [f64; 4], fill: impl Display) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    pub(super) fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], stroke: &str, width: f64) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>"
        );
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], stroke: &str, width: f64) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>",
            points.join(" ")
        );
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, fill: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>"
        );
    }

    pub(super) fn finish(self) -> String {
        let Svg { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n{body}</svg>\n"
        )
    }
}

/// A subject's colour: ours are one hue, the floor is grey, the others are spread over the rest.
pub(super) fn colour(subject: &str) -> &'static str {
    const OTHERS: &[&str] = &[
        "#d1495b", "#edae49", "#66557d", "#8d6a4f", "#c06c84", "#5c7aea", "#b5651d", "#9a8c98", "#e07a5f",
        "#7a5195",
    ];
    match subject {
        "weft" | "weft:adaptive" => "#0b8a77",
        "weft:reactor" => "#3fb39d",
        "weft:workers" => "#79c9b8",
        "weft:pool" => "#2e6f63",
        "weft:fibers" => "#8fd14f",
        "floor" | "floor:spawn" => "#9aa0a6",
        other => {
            let sum: usize = other.bytes().map(usize::from).sum();
            OTHERS[sum % OTHERS.len()]
        }
    }
}

/// 151.2k, 4.46, 873: three digits and a unit.
pub(super) fn short(value: f64) -> String {
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
