//! Starts a server pinned on a free port, and waits until it accepts. If it does not, the error holds what it said.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

use super::child::ChildGuard;
use super::pin::{self, Cores};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// How long a server may take until it accepts.
const START: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);
/// Ports below the range that clients are given theirs from, so that no client ever holds the server's.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A running server, stopped when dropped.
#[derive(Debug)]
pub struct Server {
    child: ChildGuard,
    /// The port on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts `command` on the servers' cores. The caller goes on on the load's. Stderr goes to `log`.
    pub fn start(mut command: Command, port: u16, what: &str, cores: Cores, log: PathBuf) -> Result<Self> {
        let stderr = File::create(&log).map_err(|error| Failure::step(log.display(), error))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        pin::pin(cores.server)?;
        let child = ChildGuard::spawn(command, what);
        pin::pin(cores.load)?;
        let mut server = Server { child: child?, port };
        server.wait_until_it_accepts().map_err(|failure| match failure {
            Failure::Run(message) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Failure::Run(format!("{message}\n{}", said.trim_end()))
            }
            other => other,
        })?;
        Ok(server)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the server has ended: a server that died in the middle must not look merely slow.
    pub fn check(&mut self) -> Result<()> {
        match self.child.ended()? {
            None => Ok(()),
            Some(status) => Err(Failure::Run(format!("the server ended by itself ({status})"))),
        }
    }

    fn wait_until_it_accepts(&mut self) -> Result<()> {
        let end = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            self.check()?;
            if Instant::now() > end {
                return Err(Failure::Run(format!("does not accept on port {} within {START:?}", self.port)));
            }
            interrupt::sleep(LOOK)?;
        }
        self.check()
    }
}

/// Hands out ports of `PORTS` that are free, each once until all were used.
#[derive(Debug)]
pub struct Ports(u16);

impl Ports {
    /// Starts at a port that depends on the process.
    pub fn begin() -> Self {
        // Another run at the same time starts elsewhere.
        let span = u32::from(PORTS.end - PORTS.start);
        Ports(PORTS.start + (process::id() * 64 % span) as u16)
    }

    /// Returns a port that is free now.
    pub fn free(&mut self) -> Result<u16> {
        for _ in PORTS {
            self.0 = if self.0 + 1 < PORTS.end { self.0 + 1 } else { PORTS.start };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, self.0)).is_ok() {
                return Ok(self.0);
            }
        }
        Err(Failure::Run(format!("no free port in {PORTS:?}")))
    }
}
