//! Which server do very many clients come to at once, and what does each of them cost it?

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::peers::weft;
use crate::procs::limits;
use crate::procs::pin::Cores;
use crate::procs::scratch::Scratch;
use crate::procs::server::{Ports, Server};
use crate::procs::usage::{Peak, resident_bytes};

/// Descriptors beside those of the clients.
const OTHER_FILES: u64 = 200;

#[derive(Debug)]
pub(crate) struct CrowdOptions {
    pub(crate) clients: usize,
    pub(crate) time: Duration,
    /// None: the server's own default.
    pub(crate) engine: Option<String>,
    /// A binary to measure instead of the one that would be built.
    pub(crate) weft: Option<PathBuf>,
    pub(crate) cores: Cores,
}

impl Default for CrowdOptions {
    fn default() -> Self {
        CrowdOptions {
            clients: 10_000,
            time: Duration::from_secs(20),
            engine: None,
            weft: None,
            cores: Cores::default(),
        }
    }
}

impl CrowdOptions {
    /// These where nothing else was asked for, or none where help was.
    pub(crate) fn parse(mut self, parser: &mut Parser) -> Result<Option<CrowdOptions>> {
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("clients") => self.clients = parser.value()?.parse()?,
                Arg::Long("seconds") => self.time = Duration::from_secs(parser.value()?.parse()?),
                Arg::Long("engine") => self.engine = Some(parser.value()?.string()?),
                Arg::Long("weft") => self.weft = Some(parser.value()?.into()),
                Arg::Long("cores") => self.cores = parser.value()?.parse()?,
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(Some(self))
    }
}

impl fmt::Display for CrowdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.as_deref().unwrap_or("default");
        write!(f, "{} clients, {} s, engine {engine}", self.clients, self.time.as_secs())
    }
}

/// The demo, and what it was like before anybody came.
pub(crate) struct Crowded {
    pub(crate) server: Server,
    bytes_before: u64,
    threads_before: u64,
    /// Of its log, for as long as it runs.
    _scratch: Scratch,
}

/// What so many clients cost a server.
pub(crate) struct Cost {
    threads: [u64; 2],
    bytes_each: u64,
}

impl Crowded {
    pub(crate) fn start(options: &CrowdOptions) -> Result<Crowded> {
        interrupt::install()?;
        options.cores.check()?;
        let (wanted, files_max) = (options.clients as u64 + OTHER_FILES, limits::raise_files()?);
        if wanted > files_max {
            let message = format!("{wanted} open files are needed, the hard limit is {files_max}");
            return Err(Failure::Usage(message));
        }
        let binary = options.weft.clone().map_or_else(weft::build, Ok)?;
        let scratch = Scratch::new()?;
        let port = Ports::new().next()?;
        let command = weft::command(&binary, port, options.engine.as_ref(), None);
        let server = Server::start(command, port, "weft", options.cores, scratch.path().join("weft.log"))?;
        let (bytes_before, threads_before) = (resident_bytes(server.pid()), Peak::of(server.pid()).threads);
        Ok(Crowded { server, bytes_before, threads_before, _scratch: scratch })
    }

    /// What the clients that it has just now cost it, or that it runs no longer.
    pub(crate) fn cost(&mut self, clients: usize) -> Result<Cost> {
        self.server.check()?;
        let (bytes, threads) = (resident_bytes(self.server.pid()), Peak::of(self.server.pid()).threads);
        let bytes_each = bytes.saturating_sub(self.bytes_before) / clients.max(1) as u64;
        Ok(Cost { threads: [self.threads_before, threads], bytes_each })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, with_all] = self.threads;
        writeln!(f, "threads          {before} before, {with_all} with all of them")?;
        write!(f, "memory a client  {} bytes", self.bytes_each)
    }
}
