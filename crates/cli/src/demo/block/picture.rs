//! The picture of a run, as SVG.

use std::fmt::{self, Write};

use super::{Outcome, Run};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 370.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 784.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 322.0;
/// Highest latency on the axis, in seconds, and the step of its marks.
const HIGH: u32 = 10;
const STEP: usize = 2;

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#59626d}
.grid{stroke:#8886;stroke-width:.6}
.band{fill:#888;opacity:.12}
polyline{fill:none;stroke-width:2.5;stroke-linejoin:round}
.a{stroke:#1d5fd1}.b{stroke:#b84a06}
text.a{fill:#1d5fd1;stroke:none;font-weight:600}text.b{fill:#b84a06;stroke:none;font-weight:600}
@media(prefers-color-scheme:dark){
text{fill:#9da5b0}.a{stroke:#79b0ff}.b{stroke:#ffa05c}text.a{fill:#79b0ff}text.b{fill:#ffa05c}
}
";

pub(super) fn svg(run: &Run) -> String {
    let mut out = String::with_capacity(8 << 10);
    // Writing to a String does not fail.
    let _ = draw(&mut out, run);
    out
}

fn draw(out: &mut String, run: &Run) -> fmt::Result {
    let x = |seconds: f64| LEFT + seconds / run.seconds * (RIGHT - LEFT);
    let [blocking, quick] = run.clients;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\">\n<title>Latency of quick clients while {blocking} handlers block</title>\n\
         <style>\n{STYLE}</style>"
    )?;
    let [from, to] = run.blocking.map(x);
    writeln!(
        out,
        "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\n\
         <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{blocking} clients block for 1 s a request</text>",
        to - from,
        BOTTOM - TOP,
        f64::midpoint(from, to),
        TOP + 20.0
    )?;
    for second in (0..=HIGH).step_by(STEP) {
        let y = y(f64::from(second));
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{second} s</text>",
            LEFT - 8.0,
            y + 4.0
        )?;
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    for second in (0..=run.seconds as u32).step_by(2) {
        let x = x(second.into());
        writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{second}</text>", BOTTOM + 18.0)?;
    }
    writeln!(
        out,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">seconds</text>\n\
         <text x=\"{LEFT}\" y=\"18\">Longest wait of {quick} quick clients in each 250 ms. Each server has one event loop</text>",
        HEIGHT - 10.0
    )?;
    let rows = run.engines.iter().zip([("a", 38), ("b", 57)]);
    for (index, (engine, (class, row))) in rows.enumerate() {
        let points = run.samples.iter().map(|sample| (x(sample.at), y(sample.slowest[index] as f64 / 1e6)));
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "))?;
        let Outcome { answered, slowest } = run.results.map(|results| results[index]).unwrap_or_default();
        let slowest = match slowest {
            ..1_000_000 => format!("{:.0} ms", slowest as f64 / 1e3),
            _ => format!("{:.1} s", slowest as f64 / 1e6),
        };
        let requests = if answered == 1 { "request" } else { "requests" };
        writeln!(
            out,
            "<text class=\"{class}\" x=\"{LEFT}\" y=\"{row}\">{engine}: {answered} quick {requests} answered while \
             others block, longest wait {slowest}</text>"
        )?;
    }
    out.push_str("</svg>\n");
    Ok(())
}

/// Returns the height of a latency.
fn y(seconds: f64) -> f64 {
    BOTTOM - (seconds / f64::from(HIGH)).min(1.0) * (BOTTOM - TOP)
}
