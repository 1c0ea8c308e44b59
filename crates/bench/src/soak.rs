//! Does a server stay itself while it is abused for minutes? Starts `weft demo`, sets hostile clients on it, and
//! watches what they must not be able to change: memory, descriptors, threads, and the answer to a health check.

mod clients;
mod guests;
mod health;
mod kinds;
mod vitals;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::peers::weft;
use crate::procs::limits;
use crate::procs::pin::Cores;
use crate::procs::server::{Ports, Server};
use clients::Crowd;
use health::{Checks, Prober};
pub(crate) use kinds::Kind;
use vitals::Vitals;

/// A health check under attack never takes longer than this.
const HEALTH_MAX: Duration = Duration::from_millis(100);
/// Beside ten thousand slow heads it is quicker still.
const HEALTH_BESIDE_HEADS_MAX: Duration = Duration::from_millis(50);
/// How long a server may take to come to rest when everybody has left.
const REST: Duration = Duration::from_secs(15);
/// Threads that may be left standing by then: `standby_kept`, and the demo's clock.
const STANDBY: usize = 9;

#[derive(Clone, Debug)]
pub(crate) struct SoakOptions {
    pub(crate) time: Duration,
    /// One after the other; none: the server's own default.
    pub(crate) engines: Vec<Option<String>>,
    /// A binary to use instead of the one that would be built.
    pub(crate) weft: Option<PathBuf>,
    /// Who attacks, and how many of each.
    pub(crate) kinds: Vec<(Kind, usize)>,
    /// How many clients of the slow heads.
    pub(crate) heads: usize,
    pub(crate) cores: Cores,
}

impl Default for SoakOptions {
    fn default() -> Self {
        SoakOptions {
            time: Duration::from_secs(600),
            engines: vec![None],
            weft: None,
            kinds: Kind::STORM.to_vec(),
            heads: 10_000,
            cores: Cores::default(),
        }
    }
}

/// A server, and who watches it.
struct Watched {
    server: Server,
    idle: Vitals,
    prober: Prober,
}

impl Watched {
    fn start(options: &SoakOptions, engine: Option<&String>) -> Result<Watched> {
        let binary = options.weft.clone().map_or_else(weft::build, Ok)?;
        let port = Ports::new().next()?;
        let mut command: Command = weft::command(&binary, port, engine, None);
        // glibc keeps what was freed in an arena for each thread. With one for all, what grows is ours.
        command.env("MALLOC_ARENA_MAX", "1");
        // Its log would wait for a disk that others use.
        let log = PathBuf::from("/dev/null");
        let server = Server::start(command, port, "weft demo", options.cores, log)?;
        let prober = Prober::start(port, options.cores.server);
        // The first checks bring every page in that a check needs.
        interrupt::sleep(Duration::from_secs(2))?;
        prober.take();
        let idle = Vitals::of(server.pid());
        Ok(Watched { server, idle, prober })
    }
}

/// Everything at once, for minutes on each engine.
pub(crate) fn run(options: &SoakOptions) -> Result<()> {
    on_each(options, storm)
}

/// Many clients that send a head one byte a second, and never all of it.
pub(crate) fn slow_heads(options: &SoakOptions) -> Result<()> {
    on_each(options, heads)
}

/// What one engine does wrong does not spare the next.
fn on_each(
    options: &SoakOptions,
    run: fn(&SoakOptions, Option<&String>) -> Result<Vec<String>>,
) -> Result<()> {
    interrupt::install()?;
    // Once: whoever has started a server is pinned to the load's cores.
    options.cores.check()?;
    limits::raise_files()?;
    let mut faults = Vec::new();
    for engine in &options.engines {
        let name = engine.as_deref().unwrap_or("of the server's choice");
        println!("engine {name}");
        let found = match run(options, engine.as_ref()) {
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

fn storm(options: &SoakOptions, engine: Option<&String>) -> Result<Vec<String>> {
    let mut watched = Watched::start(options, engine)?;
    println!("idle: {}", watched.idle);
    println!("{}", vitals::HEADINGS);
    let mut crowd = Crowd::new(watched.server.port, &options.kinds);
    let (begun, mut samples, mut all) = (Instant::now(), Vec::new(), Checks::default());
    let every = (options.time / 20).clamp(Duration::from_secs(2), Duration::from_secs(30));
    let mut row = begun + every;
    while begun.elapsed() < options.time {
        interrupt::check()?;
        crowd.act(Duration::from_millis(100));
        if samples.len() < begun.elapsed().as_secs() as usize {
            samples.push(Vitals::of(watched.server.pid()));
            watched.server.check()?;
        }
        if Instant::now() >= row {
            let checks = watched.prober.take();
            let now = samples.last().copied().unwrap_or(watched.idle);
            println!("{}", vitals::row(begun.elapsed(), &now, &checks, crowd.answers()));
            all.add(&checks);
            row += every;
        }
    }
    all.add(&watched.prober.take());
    println!("\n{}", crowd.table());
    let mut faults = crowd.faults();
    drop(crowd);
    faults.extend(all.faults(HEALTH_MAX));
    faults.extend(vitals::not_flat(&samples));
    faults.extend(comes_to_rest(&watched)?);
    println!("health: {all}");
    Ok(faults)
}

fn heads(options: &SoakOptions, engine: Option<&String>) -> Result<Vec<String>> {
    let mut watched = Watched::start(options, engine)?;
    println!("idle: {}", watched.idle);
    let mut crowd = Crowd::once(watched.server.port, Kind::SlowHead, options.heads);
    let (begun, mut most) = (Instant::now(), watched.idle);
    while !crowd.is_over() && begun.elapsed() < options.time {
        interrupt::check()?;
        crowd.act(Duration::from_millis(100));
        most = most.max(&Vitals::of(watched.server.pid()));
    }
    let checks = watched.prober.take();
    println!("most: {most}\nhealth: {checks}\n\n{}", crowd.table());
    let mut faults = crowd.faults();
    if !crowd.is_over() {
        faults.push(format!("some are still connected after {:?}", options.time));
    }
    watched.server.check()?;
    if most.threads > watched.idle.threads {
        faults.push(format!("{} threads, {} at idle", most.threads, watched.idle.threads));
    }
    faults.extend(checks.faults(HEALTH_BESIDE_HEADS_MAX));
    Ok(faults)
}

/// What is still held when everybody has left.
fn comes_to_rest(watched: &Watched) -> Result<Option<String>> {
    let begun = Instant::now();
    let mut now = Vitals::of(watched.server.pid());
    let held = |now: &Vitals| {
        now.descriptors > watched.idle.descriptors + 2 || now.threads > watched.idle.threads + STANDBY
    };
    while held(&now) && begun.elapsed() < REST {
        interrupt::sleep(Duration::from_millis(200))?;
        now = Vitals::of(watched.server.pid());
    }
    println!("afterwards: {now}");
    Ok(held(&now).then(|| format!("not at rest {REST:?} after the last client: {now}")))
}
