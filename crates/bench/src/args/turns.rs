//! Who is to have turns, how long and how often?

use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use super::{Command, GridOptions, grid, help};
use crate::failure::{Failure, Result};
use crate::turns::{TURNS_MIN, TurnOptions};
use crate::workloads::TURNS;

/// With three contestants and turns of 30 ms: half a minute.
const ROUNDS: usize = 300;
const ROUNDS_MAX: usize = 10_000;

pub(super) fn turns(parser: &mut Parser) -> Result<Command> {
    let mut options = TurnOptions {
        grid: GridOptions {
            rounds: ROUNDS,
            workloads: TURNS.iter().take(1).collect(),
            ..GridOptions::default()
        },
        beside: None,
        turn: None,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("beside") => options.beside = Some(parser.value()?.into()),
            Arg::Long("turn-ms") => options.turn = Some(parser.value()?.parse_with(milliseconds)?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::TURNS)),
            Arg::Long(name @ ("rounds" | "only" | "subjects" | "engine" | "weft" | "cores")) => {
                let name = name.to_owned();
                grid(&name, parser, &TURNS, &mut options.grid)?;
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    super::within("--rounds", options.grid.rounds, TURNS_MIN, ROUNDS_MAX)?;
    if let Some(other) = options.grid.workloads.iter().find(|one| !one.has_turns()) {
        return Err(Failure::Usage(format!("{}: only loads of one group of clients have turns", other.name)));
    }
    Ok(Command::Turns(options))
}

fn milliseconds(text: &str) -> std::result::Result<Duration, &'static str> {
    match text.parse() {
        Ok(count @ 5..=10_000) => Ok(Duration::from_millis(count)),
        _ => Err("from 5 to 10000 milliseconds"),
    }
}
