//! A server with very many clients at once, and what each of them costs it.

use std::net::TcpStream;

use clap::Args;
use tempfile::TempDir;

use crate::args::ServerArgs;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::idle::source;
use crate::load::probe::connect;
use crate::peers::build::build_weft;
use crate::peers::weft_command;
use crate::procs::limits;
use crate::procs::server::{Ports, Server};
use crate::procs::usage::{Peak, resident_bytes};

/// Descriptors beside those of the clients.
const OTHER_FILES: u64 = 200;

/// What `events` and `held` start.
#[derive(Args, Debug)]
pub(crate) struct ClientsArgs {
    /// Clients
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) clients: usize,
    /// Measured time of events, or time for which each handler of held waits by weftwork::sleep [default: 20 in events, 10 in held]
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl ClientsArgs {
    /// Opens all connections, each with its request.
    pub(crate) fn connect(
        &self,
        port: u16,
        mut open: impl FnMut(usize, TcpStream) -> Result<()>,
    ) -> Result<()> {
        for at in 0..self.clients {
            interrupt::check()?;
            let stream = connect(port, source(at))
                .map_err(|error| Failure::step(format!("client {at} of {}", self.clients), error))?;
            open(at, stream)?;
        }
        Ok(())
    }
}

/// The demo, and its size before the first client.
pub(crate) struct LoadedServer {
    pub(crate) server: Server,
    bytes_before: u64,
    threads_before: u64,
    /// Holds its log while it runs.
    _scratch: TempDir,
}

impl LoadedServer {
    /// Starts the demo, on this engine unless the arguments name another.
    pub(crate) fn start(args: &ClientsArgs, engine: Option<&str>) -> Result<LoadedServer> {
        interrupt::install()?;
        let ServerArgs { weft, cores, .. } = &args.server;
        let engine = args.server.engine.clone().or(engine.map(str::to_owned));
        cores.cores.check()?;
        let (wanted, files_max) = (args.clients as u64 + OTHER_FILES, limits::raise_files()?);
        if wanted > files_max {
            let message = format!("{wanted} open files are needed, the hard limit is {files_max}");
            return Err(Failure::Usage(message));
        }
        let binary = weft.clone().map_or_else(build_weft, Ok)?;
        let scratch = tempfile::tempdir()?;
        let port = Ports::begin().free()?;
        let command = weft_command(&binary, port, engine.as_ref(), None);
        println!("{} clients, engine {}", args.clients, engine.as_deref().unwrap_or("default"));
        let server = Server::start(command, port, "weft", cores.cores, scratch.path().join("weft.log"))?;
        let (bytes_before, threads_before) = (resident_bytes(server.pid()), Peak::of(server.pid()).threads);
        Ok(LoadedServer { server, bytes_before, threads_before, _scratch: scratch })
    }

    /// Returns, in words, what the clients that it has now cost it. Fails if it does not run any longer.
    pub(crate) fn cost(&mut self, clients: usize) -> Result<String> {
        self.server.check()?;
        let (bytes, threads) = (resident_bytes(self.server.pid()), Peak::of(self.server.pid()).threads);
        let bytes_each = bytes.saturating_sub(self.bytes_before) / clients.max(1) as u64;
        let before = self.threads_before;
        Ok(format!(
            "threads          {before} before, {threads} with all of them\nmemory a client  {bytes_each} bytes"
        ))
    }
}
