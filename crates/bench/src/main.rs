//! How near does weft come to a server that does nothing but answer, and how do others? This binary measures
//! it: `quick` and `full` run every comparison in turn on this machine, `floor` is the hand-written servers.

mod args;
mod browser;
mod crowd;
mod events;
mod failure;
mod floors;
mod full;
mod grid;
mod held;
mod honesty;
mod instructions;
mod interrupt;
mod load;
mod measure;
mod page;
mod peers;
mod procs;
mod report;
mod results;
mod runoff;
mod site;
mod soak;
mod subject;
mod tracker;
mod turns;
mod workloads;

use std::process::ExitCode;

use args::Command;
use failure::{Failure, Result};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("weftwork-bench: {message}\nTry 'weftwork-bench --help'.");
            ExitCode::from(2)
        }
        Err(Failure::Run(message)) => {
            eprintln!("weftwork-bench: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Interrupted) => {
            eprintln!("weftwork-bench: interrupted, every server it started is stopped");
            ExitCode::from(130)
        }
    }
}

fn run() -> Result<()> {
    match args::parse(lexopt::Parser::from_env())? {
        Command::Help(text) => {
            print!("{text}");
            Ok(())
        }
        Command::Quick(options) | Command::Router(options) => grid::quick(&options),
        Command::Full(options) => full::run(&options),
        Command::Track(options) => tracker::track(&options),
        Command::Compare(options) => tracker::compare(&options),
        Command::Report { results, html, markdown } => {
            full::pages(&results::Results::read(&results)?, html.as_deref(), markdown.as_deref())
        }
        Command::Floor(options) => floors::run(&options),
        Command::Site(options) => site::run(&options),
        Command::Events(options) => events::run(&options),
        Command::Held(options) => held::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::SlowHeads(options) => soak::slow_heads(&options),
        Command::Instructions(options) => instructions::run(&options),
        Command::Turns(options) => turns::run(&options),
    }
}
