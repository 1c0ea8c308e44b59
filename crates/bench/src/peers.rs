//! How is each subject started for a workload?

mod configured;
mod go;
mod lisp;
mod nginx;
mod rust;
mod table;
pub(crate) mod weft;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::args::GridOptions;
use crate::failure::{Failure, Result};
use crate::load::probe;
use crate::procs::pin::Cores;
use crate::procs::scratch::Scratch;
use crate::procs::server::{Ports, Server};
use crate::results::LeftOut;
use crate::subject::Subject;
use crate::workloads::{Ask, FILES, HEALTH, Kind, Workload};

pub(crate) use table::{PEERS, Peer};

/// What a peer is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) port: u16,
    /// How many workers, loops or threads it may keep busy: one for each of its cores.
    pub(crate) workers: usize,
    /// Descriptors that it may have.
    pub(crate) files_max: u64,
    /// For its configuration and its own files.
    pub(crate) scratch: &'a Path,
    /// What it serves where files are asked for.
    pub(crate) files: &'a Path,
    /// What [`Peer::prepare`] built, for this peer and others of its kind.
    pub(crate) program: &'a Path,
}

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
    programs: BTreeMap<&'static str, PathBuf>,
    pub(crate) scratch: Scratch,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Version of each subject that has one.
    pub(crate) versions: BTreeMap<String, String>,
}

/// weft's answer to /health is about as long; used while weft is not among the subjects.
const ANSWER_BYTES: usize = 130;

impl Peers {
    /// Builds weft and the peers that take part; says who is not there, and leaves them out.
    pub(crate) fn new(options: &GridOptions, files_max: u64) -> Result<Self> {
        let weft = match &options.weft {
            Some(path) => path.clone(),
            None if options.subjects.iter().any(Subject::is_weft) => weft::build()?,
            None => PathBuf::new(),
        };
        let mut peers = Peers {
            cores: options.cores,
            engine: options.engine.clone(),
            weft,
            bench: env::current_exe()?,
            files_max,
            answer_bytes: ANSWER_BYTES,
            ports: Ports::new(),
            programs: BTreeMap::new(),
            scratch: Scratch::new()?,
            subjects: Vec::new(),
            left_out: Vec::new(),
            versions: BTreeMap::new(),
        };
        for subject in &options.subjects {
            peers.admit(subject)?;
        }
        if options.workloads.iter().any(|workload| workload.ask == Ask::File) {
            write_files(&peers.files())?;
        }
        peers.match_answers()?;
        Ok(peers)
    }

    fn admit(&mut self, subject: &Subject) -> Result<()> {
        if let Subject::Peer(peer) = subject {
            match (peer.prepare)(peer, self.scratch.path()) {
                Ok((program, version)) => {
                    self.programs.insert(peer.name, program);
                    self.versions.insert(peer.name.to_owned(), version);
                }
                Err(Failure::Run(why)) => {
                    eprintln!("note: {} is left out: {why}", peer.name);
                    self.left_out.push(LeftOut { name: peer.name.to_owned(), why });
                    return Ok(());
                }
                Err(other) => return Err(other),
            }
        }
        self.subjects.push(subject.clone());
        Ok(())
    }

    fn files(&self) -> PathBuf {
        self.scratch.path().join("files")
    }

    /// Starts a fresh server, pinned; it is stopped when dropped.
    pub(crate) fn start(&mut self, subject: &Subject, workload: &Workload) -> Result<Server> {
        let weft = self.weft.clone();
        self.start_build(&weft, subject, workload)
    }

    /// As [`Peers::start`], with this build of weft.
    pub(crate) fn start_build(
        &mut self,
        weft: &Path,
        subject: &Subject,
        workload: &Workload,
    ) -> Result<Server> {
        let port = self.ports.next()?;
        let files = self.files();
        let command = match subject {
            Subject::Floor => self.floor(workload, port),
            Subject::FloorSpawn => {
                let mut command = self.floor(workload, port);
                command.arg("--spawn");
                command
            }
            Subject::Weft { engine } => {
                let files = (workload.ask == Ask::File).then_some(files.as_path());
                weft::command(weft, port, engine.as_ref().or(self.engine.as_ref()), files)
            }
            Subject::Peer(peer) => {
                let program = self.programs.get(peer.name).map(PathBuf::as_path).unwrap_or(Path::new(""));
                let (scratch, files_max) = (self.scratch.path(), self.files_max);
                let workers = self.cores.server.count;
                (peer.command)(peer, &Setup { port, workers, files_max, scratch, files: &files, program })?
            }
            Subject::Site(site) => {
                let mut command = Command::new(&self.bench);
                command.args(["site", site.name(), "--port", &port.to_string()]);
                command.args(self.engine.iter().flat_map(|engine| ["--engine", engine]));
                command
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
        command.args(["--loops", &self.cores.server.count.to_string()]);
        if let Kind::Requests(group) = &workload.kind {
            command.args(group.close.then_some("--close"));
            command.args((group.depth > 1).then_some("--pipelined"));
        }
        command
    }

    /// The floors send as many bytes as weft does, so that neither gains by a shorter answer.
    fn match_answers(&mut self) -> Result<()> {
        let weft = self.subjects.iter().find(|subject| subject.is_weft()).cloned();
        if let Some(weft) = weft {
            let server = self.start(&weft, &crate::workloads::QUICK[0]).map_err(|failure| match failure {
                Failure::Run(message) => Failure::Run(format!("{weft}: {message}")),
                other => other,
            })?;
            let probed = probe::probe(server.port, &HEALTH)?;
            if probed.status != 200 {
                return Err(Failure::Run(format!("{weft}: {} answers {}", HEALTH.path, probed.status)));
            }
            self.answer_bytes = probed.wire_bytes;
        }
        Ok(())
    }
}

/// The first line of what a command says, on either output; the reason if it is not there, or fails.
fn version_of(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|_| Failure::Run(format!("{program} is not installed")))?;
    let said = [&output.stdout[..], b"\n", &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned();
    if line.is_empty() || !output.status.success() {
        return Err(Failure::Run(format!("{program} does not say its version")));
    }
    Ok(line)
}

/// What every file holds: bytes that no compression makes nothing of.
pub(crate) fn file_bytes(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn write_files(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    for (name, length) in FILES {
        let path = directory.join(name);
        fs::write(&path, file_bytes(*length)).map_err(|error| Failure::step(path.display(), error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
