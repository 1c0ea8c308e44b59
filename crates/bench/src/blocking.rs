//! The latency of quick clients while others block, on the engine with hand-off and on a plain event loop, as a chart over time.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plotters::prelude::IntoLogRange;

use crate::args::{GridArgs, ServerArgs};
use crate::failure::Result;
use crate::grid;
use crate::load::Group;
use crate::load::generator::Generator;
use crate::load::tally::Tally;
use crate::report::charts::{Series, lines, svg};
use crate::report::write;
use crate::subject::Subject;
use crate::workloads::QUICK;

#[derive(Args, Debug)]
pub(crate) struct BlockingArgs {
    /// The chart
    #[arg(long, value_name = "PATH", default_value = "target/blocking.svg")]
    svg: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

/// The engines, with a loop each, and the names of their lines.
const ENGINES: [(&str, &str); 2] = [("adaptive:1", "weft:adaptive"), ("reactor:1", "event loop")];
const QUICK_CLIENTS: Group = Group::get("/health", 16);
const BLOCKING_CLIENTS: Group = Group::get("/slow?ms=100", 8);
/// Others block in the second of these phases.
const PHASES: [(Duration, bool); 3] =
    [(Duration::from_secs(2), false), (Duration::from_secs(4), true), (Duration::from_secs(2), false)];
/// A point of a line: the 99th percentile of this time.
const SLICE: Duration = Duration::from_millis(100);
const WARM_UP: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &BlockingArgs) -> Result<()> {
    let subject = |engine: &str| Subject::Weft { engine: Some(engine.to_owned()) };
    let subjects = ENGINES.map(|(engine, _)| subject(engine));
    let grid_args = GridArgs { server: args.server.clone(), ..GridArgs::default() };
    let mut peers = grid::prepare(&grid_args, &subjects, &[])?;
    let mut series = Vec::new();
    for (subject, (engine, name)) in subjects.iter().zip(ENGINES) {
        let server = peers.start(subject, &QUICK[0])?;
        Generator::open(server.port, &[QUICK_CLIENTS])?.drive(WARM_UP)?;
        let mut points = Vec::new();
        let mut at = Duration::ZERO;
        for (length, blocks) in PHASES {
            let groups = if blocks { vec![QUICK_CLIENTS, BLOCKING_CLIENTS] } else { vec![QUICK_CLIENTS] };
            let mut generator = Generator::open(server.port, &groups)?;
            let end = at + length;
            let mut worst: f64 = 0.0;
            while at < end {
                let tally: Tally = generator.drive(SLICE)?.remove(0);
                at += SLICE;
                // On an event loop that is blocked, many a slice has no answer.
                if tally.answers() > 0 {
                    points.push((at.as_secs_f64(), tally.latency_ms(0.99)));
                    worst = worst.max(tally.latency_ms(0.99));
                }
            }
            println!("{engine}: p99 of {SLICE:?} at most {worst:.2} ms, others block: {blocks}");
        }
        series.push(Series { name, points });
    }
    let time: f64 = PHASES.iter().map(|(length, _)| length.as_secs_f64()).sum();
    let chart = svg((800, 340), |area| {
        let names = [
            "seconds; from 2 to 6, eight other clients block for 100 ms a request",
            "p99 of 16 quick clients, ms",
        ];
        let y = (0.05..2_000.0).log_scale();
        lines(area, names, 0.0..time, y, &|at| format!("{at:.0}"), &|ms| ms.to_string(), &series)
    })?;
    write(&args.svg, &chart)
}
