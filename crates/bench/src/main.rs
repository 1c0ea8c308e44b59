//! How near does weft come to a server that does nothing but answer? This binary measures it: `quick`
//! runs every comparison in turn on this machine, `floor` is the hand-written servers it compares with.

mod args;
mod browser;
mod failure;
mod floors;
mod instructions;
mod interrupt;
mod load;
mod measure;
mod peers;
mod procs;
mod quick;
mod report;
mod subject;
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
        Command::Quick(options) => quick::run(&options),
        Command::Floor(options) => floors::run(&options),
        Command::Instructions(options) => instructions::run(&options),
    }
}
