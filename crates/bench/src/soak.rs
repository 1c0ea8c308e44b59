//! Hostile clients against `weft demo` for minutes. They must not change memory, descriptors, threads, and the time of a health check.

mod clients;
mod health;
mod kinds;
mod sessions;
mod vitals;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::args::{CoreArgs, count};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::peers::build::build_weft;
use crate::peers::weft_command;
use crate::procs::limits;
use crate::procs::server::{Ports, Server};
use clients::Clients;
use health::{Checks, Prober};
use kinds::{SCRIPTS, Script};
use vitals::Vitals;

/// A health check under attack never takes longer than this.
const HEALTH_MAX: Duration = Duration::from_millis(100);
/// How long a server may take to come to rest after the last client.
const REST: Duration = Duration::from_secs(15);
/// Threads that may be left by then: `standby_kept`, and the demo's clock.
const STANDBY: u64 = 9;
#[derive(Args, Debug)]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, value_name = "N", default_value = "10", value_parser = count(1, 24 * 60))]
    minutes: usize,
    /// slow-heads, slow-bodies, slow-readers, silent, vanishing, flood, churn, nonsense, duplex, download, socket, feed [default: all]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    only: Vec<Script>,
    /// Clients of each kind, such as 10000 slow heads. The limit of open files has to allow them [default: 4 to 500]
    #[arg(long, value_name = "N", value_parser = count(1, 1_000_000))]
    clients: Option<usize>,
    /// Engines of the server, one after the other [default: its own]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    engine: Vec<String>,
    /// Use this binary instead of building weftwork-cli
    #[arg(long, value_name = "PATH")]
    weft: Option<PathBuf>,
    #[command(flatten)]
    cores: CoreArgs,
}

/// A server that is watched.
struct Watched {
    server: Server,
    idle: Vitals,
    prober: Prober,
}

impl Watched {
    fn start(args: &SoakArgs, engine: Option<&String>) -> Result<Watched> {
        let binary = args.weft.clone().map_or_else(build_weft, Ok)?;
        let port = Ports::new().next()?;
        let mut command = weft_command(&binary, port, engine, None);
        // glibc keeps what was freed in an arena for each thread. With one for all, growth is ours.
        command.env("MALLOC_ARENA_MAX", "1");
        // A log file would wait for a disk that others use.
        let cores = args.cores.cores;
        let server = Server::start(command, port, "weft demo", cores, PathBuf::from("/dev/null"))?;
        let prober = Prober::start(port, cores.server);
        // The first checks bring every page in that a check needs.
        interrupt::sleep(Duration::from_secs(2))?;
        prober.take();
        let idle = Vitals::of(server.pid());
        println!("idle: {idle}");
        Ok(Watched { server, idle, prober })
    }
}

/// Runs on each engine. A fault of one engine does not spare the next.
pub(crate) fn run(args: &SoakArgs) -> Result<()> {
    interrupt::install()?;
    // Once: after the first server this thread is pinned to the load's cores.
    args.cores.cores.check()?;
    limits::raise_files()?;
    let mut scripts = if args.only.is_empty() { SCRIPTS.to_vec() } else { args.only.clone() };
    scripts.iter_mut().for_each(|script| script.count = args.clients.unwrap_or(script.count));
    let time = Duration::from_secs(args.minutes as u64 * 60);
    let mut faults = Vec::new();
    let engines: Vec<Option<&String>> = match &args.engine[..] {
        [] => vec![None],
        engines => engines.iter().map(Some).collect(),
    };
    for engine in engines {
        let name = engine.map_or("of the server's choice", String::as_str);
        println!("engine {name}");
        let found = match Watched::start(args, engine).and_then(|watched| storm(watched, time, &scripts)) {
            Err(Failure::Run(why)) => vec![why],
            found => found?,
        };
        println!("{}\n", if found.is_empty() { "all well" } else { "not well" });
        faults.extend(found.iter().map(|fault| format!("engine {name}: {fault}")));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("not well:\n  {}", faults.join("\n  ")))),
    }
}

fn storm(mut watched: Watched, time: Duration, scripts: &[Script]) -> Result<Vec<String>> {
    let mut clients = Clients::new(watched.server.port, scripts);
    let (begun, mut samples, mut all) = (Instant::now(), Vec::new(), Checks::default());
    let every = (time / 20).clamp(Duration::from_secs(2), Duration::from_secs(30));
    let mut line = begun + every;
    while begun.elapsed() < time {
        interrupt::check()?;
        clients.act(Duration::from_millis(100));
        if samples.len() < begun.elapsed().as_secs() as usize {
            samples.push(Vitals::of(watched.server.pid()));
            watched.server.check()?;
        }
        if Instant::now() >= line {
            let checks = watched.prober.take();
            let now = samples.last().copied().unwrap_or(watched.idle);
            println!("{}", vitals::line(begun.elapsed(), &now, &checks, clients.answers()));
            all.add(&checks);
            line += every;
        }
    }
    all.add(&watched.prober.take());
    println!("\n{}\n", clients.table());
    let mut faults = clients.faults();
    drop(clients);
    faults.extend(all.faults(HEALTH_MAX));
    faults.extend(vitals::not_flat(&samples));
    faults.extend(comes_to_rest(&watched)?);
    println!("health: {all}");
    Ok(faults)
}

/// Returns a fault if the server holds more than before, some time after the last client.
fn comes_to_rest(watched: &Watched) -> Result<Option<String>> {
    let begun = Instant::now();
    let mut now = Vitals::of(watched.server.pid());
    let holds_more = |now: &Vitals| {
        now.descriptors > watched.idle.descriptors + 2 || now.threads > watched.idle.threads + STANDBY
    };
    while holds_more(&now) && begun.elapsed() < REST {
        interrupt::sleep(Duration::from_millis(200))?;
        now = Vitals::of(watched.server.pid());
    }
    println!("afterwards: {now}");
    Ok(holds_more(&now).then(|| format!("not at rest {REST:?} after the last client: {now}")))
}
