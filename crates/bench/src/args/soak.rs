//! What did the person ask of the hostile clients?

use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use super::{Command, help, list, within};
use crate::failure::Result;
use crate::soak::{Kind, SoakOptions};

/// Slow heads are over by themselves; this is for a server that does not end them.
const SLOW_HEADS_MAX: Duration = Duration::from_secs(60);

pub(super) fn soak(parser: &mut Parser) -> Result<Command> {
    let mut options = SoakOptions::default();
    let mut minutes = 10;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("minutes") => minutes = parser.value()?.parse()?,
            Arg::Long("only") => options.kinds = list(&parser.value()?.string()?, kinds_named)?,
            Arg::Long("engine") => options.engines = list(&parser.value()?.string()?, engine)?,
            Arg::Long("weft") => options.weft = Some(parser.value()?.into()),
            Arg::Long("cores") => options.cores = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::SOAK)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    within("--minutes", minutes, 1, 24 * 60)?;
    Ok(Command::Soak(SoakOptions { time: Duration::from_secs(minutes as u64 * 60), ..options }))
}

pub(super) fn slow_heads(parser: &mut Parser) -> Result<Command> {
    let mut options = SoakOptions { time: SLOW_HEADS_MAX, ..SoakOptions::default() };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("clients") => options.heads = parser.value()?.parse()?,
            Arg::Long("engine") => options.engines = list(&parser.value()?.string()?, engine)?,
            Arg::Long("weft") => options.weft = Some(parser.value()?.into()),
            Arg::Long("cores") => options.cores = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::SLOW_HEADS)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    within("--clients", options.heads, 1, 1_000_000)?;
    Ok(Command::SlowHeads(options))
}

fn engine(name: &str) -> std::result::Result<Vec<Option<String>>, String> {
    Ok(vec![Some(name.to_owned())])
}

fn kinds_named(name: &str) -> std::result::Result<Vec<(Kind, usize)>, String> {
    let found: Vec<_> = Kind::STORM.into_iter().filter(|(kind, _)| kind.name() == name).collect();
    if found.is_empty() {
        return Err(format!(
            "unknown clients '{name}': {}",
            Kind::STORM.map(|(kind, _)| kind.name()).join(", ")
        ));
    }
    Ok(found)
}
