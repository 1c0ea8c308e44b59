//! How is each subject started for a workload?

mod nginx;
mod weft;

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::args::QuickOptions;
use crate::failure::{Failure, Result};
use crate::load::idle;
use crate::procs::pin::Cores;
use crate::procs::scratch::Scratch;
use crate::procs::server::{Ports, Server};
use crate::subject::Subject;
use crate::workloads::{self, HEALTH, Kind, Workload};

/// What all servers of one run share.
#[derive(Debug)]
pub(crate) struct Peers {
    cores: Cores,
    engine: Option<String>,
    weft: PathBuf,
    bench: PathBuf,
    files_max: u64,
    /// Length of the floors' answers: that of weft's, once it is known.
    answer_bytes: usize,
    ports: Ports,
    pub(crate) scratch: Scratch,
    pub(crate) subjects: Vec<Subject>,
}

/// weft's answer to /health is about as long; used while weft is not among the subjects.
const ANSWER_BYTES: usize = 130;

impl Peers {
    /// Builds weft where it takes part, and leaves out nginx where there is none.
    pub(crate) fn new(options: &QuickOptions, files_max: u64) -> Result<Self> {
        let is_weft = |subject: &Subject| matches!(subject, Subject::Weft { .. });
        let weft = match &options.weft {
            Some(path) => path.clone(),
            None if options.subjects.iter().any(is_weft) => weft::build()?,
            None => PathBuf::new(),
        };
        let mut subjects = options.subjects.clone();
        if subjects.contains(&Subject::Nginx) && !nginx::is_installed() {
            eprintln!("note: nginx is not installed, and left out");
            subjects.retain(|subject| *subject != Subject::Nginx);
        }
        let mut peers = Peers {
            cores: options.cores,
            engine: options.engine.clone(),
            weft,
            bench: env::current_exe()?,
            files_max,
            answer_bytes: ANSWER_BYTES,
            ports: Ports::new(),
            scratch: Scratch::new()?,
            subjects,
        };
        peers.match_answers()?;
        Ok(peers)
    }

    /// Starts a fresh server, pinned; it is stopped when dropped.
    pub(crate) fn start(&mut self, subject: &Subject, workload: &Workload) -> Result<Server> {
        let port = self.ports.next()?;
        let command = match subject {
            Subject::Floor => self.floor(workload, port),
            Subject::FloorSpawn => {
                let mut command = self.floor(workload, port);
                command.arg("--spawn");
                command
            }
            Subject::Nginx => nginx::command(port, self.scratch.path(), self.files_max)?,
            Subject::Weft { engine } => {
                weft::command(&self.weft, port, engine.as_ref().or(self.engine.as_ref()))
            }
        };
        let log = self.scratch.path().join("server.log");
        Server::start(command, port, &subject.to_string(), self.cores, log)
    }

    fn floor(&self, workload: &Workload, port: u16) -> Command {
        let mut command = Command::new(&self.bench);
        command.args(["floor", workload.floor.name(), "--port", &port.to_string()]);
        command.args(["--sleep-ms", &workload.sleep.as_millis().to_string()]);
        command.args(["--answer-bytes", &self.answer_bytes.to_string()]);
        if let Kind::Requests(group) = &workload.kind {
            command.args(group.close.then_some("--close"));
            command.args((group.depth > 1).then_some("--pipelined"));
        }
        command
    }

    /// The floors send as many bytes as weft does, so that neither gains by a shorter answer.
    fn match_answers(&mut self) -> Result<()> {
        let weft = self.subjects.iter().find(|subject| matches!(subject, Subject::Weft { .. })).cloned();
        if let Some(weft) = weft {
            let server = self.start(&weft, &workloads::ALL[0]).map_err(|failure| match failure {
                Failure::Run(message) => Failure::Run(format!("{weft}: {message}")),
                other => other,
            })?;
            let (status, answer_bytes) = idle::probe(server.port, &HEALTH)?;
            if status != 200 {
                return Err(Failure::Run(format!("{weft}: {} answers {status}", HEALTH.path)));
            }
            self.answer_bytes = answer_bytes;
        }
        Ok(())
    }
}
