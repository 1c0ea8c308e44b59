//! What is kept of a run, and what is it compared with?

use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

use super::{Command, help, within};
use crate::failure::{Failure, Result};
use crate::tracker::{CompareOptions, TrackOptions};

/// Commits that are compared with.
const LAST: usize = 20;
/// The share of the best below which it is an alert.
const LEAST: f64 = 0.8;
const HISTORY: &str = "bench-history.jsonl";

pub(super) fn track(parser: &mut Parser) -> Result<Command> {
    let mut run = None;
    let mut history = PathBuf::from(HISTORY);
    let (mut bigger, mut smaller, mut html) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(path) if run.is_none() => run = Some(path.into()),
            Arg::Long("history") => history = parser.value()?.into(),
            Arg::Long("bigger") => bigger = Some(parser.value()?.into()),
            Arg::Long("smaller") => smaller = Some(parser.value()?.into()),
            Arg::Long("html") => html = Some(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::TRACK)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let run = run.ok_or_else(|| Failure::Usage("track needs the JSON of a run".to_owned()))?;
    Ok(Command::Track(TrackOptions { run, history, bigger, smaller, html }))
}

pub(super) fn compare(parser: &mut Parser) -> Result<Command> {
    let mut run = None;
    let mut history = PathBuf::from(HISTORY);
    let (mut last, mut least) = (LAST, LEAST);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(path) if run.is_none() => run = Some(path.into()),
            Arg::Long("history") => history = parser.value()?.into(),
            Arg::Long("last") => last = parser.value()?.parse()?,
            Arg::Long("least") => least = parser.value()?.parse_with(share)?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::TRACK)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    within("--last", last, 1, 10_000)?;
    let run = run.ok_or_else(|| Failure::Usage("compare needs the JSON of a run".to_owned()))?;
    Ok(Command::Compare(CompareOptions { run, history, last, least }))
}

/// Below 0 of the best nothing is worse, nor below what is no number; a percentage makes everything worse.
fn share(text: &str) -> std::result::Result<f64, &'static str> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share of the best: above 0, and 1 at most"),
    }
}
