//! Measures weft beside hand-written floors and the servers of others, on one machine, in one run.

mod args;
mod blocking;
mod clients;
mod events;
mod failure;
mod floors;
mod grid;
mod held;
mod http2;
mod instructions;
pub mod interrupt;
mod load;
mod measure;
mod peers;
mod procs;
mod report;
mod results;
mod runoff;
mod site;
mod subject;
mod tracker;
mod turns;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use args::GridArgs;
use results::Results;

pub use args::{CoreArgs, count};
pub use failure::{Failure, Result};
pub use load::response::{Answer, Malformed, ResponseParser};
pub use peers::{build::build_weft, file_bytes, weft_command};
pub use procs::pin::{Cores, Span, pin};
pub use procs::server::{Ports, Server};
pub use procs::{limits::raise_files, usage::resident_bytes};
pub use report::table::table;

/// Measures weft beside hand-written floors and the servers of others, in one run on this machine
#[derive(Debug, Parser)]
#[command(name = "weftwork-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// weft beside the floors and nginx, in four minutes
    ///
    /// Every comparison in turn: server on one core, load on another, a fresh server for each cell. Ratios are taken within
    /// each round, so that slow drifts of the machine cancel. 'busy' is the server's share of its core, 'others' is what other
    /// processes took of both. If 'others' is high, only CPU a request and ratios mean something. 'spread' is how far the rounds
    /// lie apart. Exit code: 0 measured (won or lost), 1 nothing of weft was measured, 2 wrong arguments, 130 interrupted.
    Quick(GridArgs),
    /// The whole grid: every engine, every server of others that is installed, every workload
    ///
    /// A server that is not installed is named and left out. scripts/install-peers installs what Debian has. The Rust servers are
    /// built from crates/bench/peers the first time. WEFTWORK_BENCH_PEERS=PATH takes a binary that you have. A server that
    /// ignores Connection: close is never first. All of it takes some 45 minutes.
    Full(GridArgs),
    /// A hundred typed routes beside a handler without any
    ///
    /// The target is CPU a request: the median of its ratios to bare, taken round by round, is at most 1.03. If the quartiles of
    /// these ratios lie far apart, the machine was not quiet enough to tell.
    Router(GridArgs),
    /// TLS: keep-alive, files, full and resumed handshakes, a storm of them, and idle connections
    ///
    /// All servers have the same ECDSA certificate, and are offered X25519 and AES-128-GCM alone. A handshake is a connection with one
    /// request, closed after it. The storm sends a first flight, always the same bytes, so that the load has no work with it. A session
    /// that is not resumed counts as an error if it should be.
    Tls(GridArgs),
    /// HTTP/2 over TLS: small responses, files, uploads, and handlers that block, under h2load
    ///
    /// All servers run at once, with the certificate of tls, and have the load in turn. CPU of all their threads for a request that
    /// succeeded, as a median of the turns.
    Http2(http2::Http2Args),
    /// What a request costs servers that run at once and have the load in turn, to a per cent
    ///
    /// For differences of a few per cent, between two builds for example: what the machine does meanwhile happens to all servers.
    /// 'us/request' is the time of a turn for each answer. At a fixed rate CPU is compared, which the kernel counts in ticks of
    /// 10 ms: at a low rate that takes many rounds. With 8 MiB and more under way each turn has new connections. There is a table
    /// for each distance of the two cores, with the rounds in which the host left them there.
    Turns(turns::TurnArgs),
    /// Latency of quick clients while others block, here and on a plain event loop, as a chart
    Blocking(blocking::BlockingArgs),
    /// Makes the page of a run again, from its JSON
    Report {
        /// What --json has written
        #[arg(value_name = "RUN.json")]
        results: PathBuf,
        /// The page. Its charts go to a folder beside it
        #[arg(long, value_name = "PATH")]
        markdown: PathBuf,
    },
    /// Adds a run to the history of commits, and warns if it is worse than the best of the last ones
    Track(tracker::TrackArgs),
    /// What the parts without I/O cost, counted by callgrind
    ///
    /// Figures of another compiler, C library or processor are shown, but fail nothing without --same-toolchain.
    Instructions(instructions::InstructionArgs),
    /// How late a tick reaches ten thousand event streams, and what a client costs
    Events(clients::ClientsArgs),
    /// Whether ten thousand clients are answered whose handlers all wait, and what a client costs
    Held(clients::ClientsArgs),
    /// One of the floors alone, until killed: a server that answers with canned bytes, on 127.0.0.1
    Floor(floors::FloorArgs),
    /// One of the two servers of 'router' alone, on 127.0.0.1, until stopped
    Site(site::SiteArgs),
}

/// Runs the command of the arguments.
pub fn main() -> ExitCode {
    exit(run(Cli::parse().command))
}

/// Says why a program ended early, and returns its exit code.
pub fn exit(outcome: Result<()>) -> ExitCode {
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => (message + "\nFor more information, try '--help'.", 2),
        Err(Failure::Run(message)) => (message, 1),
        Err(Failure::Interrupted) => ("interrupted, all started servers are stopped".to_owned(), 130),
    };
    eprintln!("error: {message}");
    ExitCode::from(code)
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Quick(args) => grid::run(&grid::quick(args)?),
        Command::Full(args) => grid::run(&grid::full(args)?),
        Command::Router(args) => grid::run(&grid::router(args)?),
        Command::Tls(args) => grid::run(&grid::tls(args)?),
        Command::Http2(args) => http2::run(&args),
        Command::Turns(args) => turns::run(&args),
        Command::Blocking(args) => blocking::run(&args),
        Command::Report { results, markdown } => report::pages(&Results::read(&results)?, &markdown),
        Command::Track(args) => tracker::track(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Held(args) => held::run(&args),
        Command::Floor(args) => floors::run(&args),
        Command::Site(args) => site::run(&args),
    }
}
