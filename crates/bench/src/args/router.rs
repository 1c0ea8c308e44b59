//! What did the person ask of the servers with routes and without?

use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use super::{Command, GridOptions, grid, help};
use crate::failure::{Failure, Result};
use crate::site::{Site, SiteOptions};
use crate::subject::Subject;
use crate::workloads::ROUTER;

/// Many short rounds: a slow stretch of the machine lasts longer than one of them, and so meets both servers.
const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_secs(1);

pub(super) fn router(parser: &mut Parser) -> Result<Command> {
    let mut options = GridOptions {
        rounds: ROUNDS,
        time: TIME,
        workloads: ROUTER.iter().collect(),
        subjects: [Site::Bare, Site::Typed].map(Subject::Site).to_vec(),
        ..GridOptions::default()
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("json") => options.json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::ROUTER)),
            Arg::Long(name @ ("rounds" | "seconds" | "only" | "engine" | "cores" | "load")) => {
                let name = name.to_owned();
                grid(&name, parser, &ROUTER, &mut options)?;
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.check()?;
    Ok(Command::Router(options))
}

pub(super) fn site(parser: &mut Parser) -> Result<Command> {
    let (mut site, mut port, mut engine) = (None, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(name) if site.is_none() => site = Some(name.parse_with(named)?),
            Arg::Long("port") => port = Some(parser.value()?.parse()?),
            Arg::Long("engine") => engine = Some(parser.value()?.string()?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help::SITE)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let site = site.ok_or_else(|| Failure::Usage("which site: bare or typed?".to_owned()))?;
    let port = port.ok_or_else(|| Failure::Usage("site needs --port N".to_owned()))?;
    Ok(Command::Site(SiteOptions { site, port, engine }))
}

fn named(name: &str) -> std::result::Result<Site, &'static str> {
    [Site::Bare, Site::Typed].into_iter().find(|site| site.name() == name).ok_or("bare or typed")
}
