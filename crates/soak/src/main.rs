//! Hostile clients against `weft demo` for minutes. They must not change memory, descriptors, threads, and the time of a health check.

mod clients;
mod health;
mod kinds;
mod sessions;
mod vitals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use clients::Clients;
use health::{Checks, Prober};
use kinds::{SCRIPTS, Script};
use vitals::Vitals;
use weftwork_bench::{
    CoreArgs, Failure, Ports, Result, Server, build_weft, count, interrupt, raise_files, weft_command,
};

/// A health check under attack never takes longer than this.
const HEALTH_MAX: Duration = Duration::from_millis(100);
/// How long a server may take to come to rest after the last client.
const REST: Duration = Duration::from_secs(15);
/// Threads that may be left by then: `standby_kept`, and the demo's clock.
const STANDBY: u64 = 9;
/// Hostile clients for minutes, and what they must not change
///
/// Starts weft demo and sets hostile clients on it: slow heads, slow bodies, slow readers, half-open connections, clients that
/// vanish, floods, churn, and nonsense. Beside them are clients that behave: bodies that go both ways at once, downloads,
/// WebSockets and event streams. Health checks go on. The run is well if memory, descriptors and threads are the same in its last
/// quarter as in its second, slow clients are ended by their deadline, no client that behaves is ended, answered wrong or left
/// without an answer for 15 s, no health check fails or takes over 100 ms, and the server holds at the end what it held before. A
/// check is 'excused' if it is late only because the server's core, or that of the check, was taken by something else. The server
/// runs with MALLOC_ARENA_MAX=1, so that memory kept by glibc for each thread does not look like a leak.
#[derive(Debug, Parser)]
#[command(name = "weftwork-soak")]
struct SoakArgs {
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
        let port = Ports::begin().free()?;
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

fn main() -> ExitCode {
    weftwork_bench::exit(run(&SoakArgs::parse()))
}

/// Runs on each engine. A fault of one engine does not spare the next.
fn run(args: &SoakArgs) -> Result<()> {
    interrupt::install()?;
    // Once: after the first server this thread is pinned to the load's cores.
    args.cores.cores.check()?;
    raise_files()?;
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
