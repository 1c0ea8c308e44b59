//! Starts each server for a workload.

pub(crate) mod build;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;

use crate::args::ServerArgs;
use crate::failure::{Failure, Result};
use crate::load::{probe, wire::CERTIFICATE};
use crate::procs::server::{Ports, Server};
use crate::results::LeftOut;
use crate::subject::Subject;
use crate::workloads::{Ask, FILES, HEALTH, Kind, QUICK, Workload};

pub(crate) use table::{IGNORES_CLOSE, PEERS, Peer};

/// Room beside the connections for the log, the listener and the like.
const OTHER_FILES: u64 = 100;
const CONNECTIONS_MAX: u64 = 65_536;
/// lighttpd has a table of them, and asks for no more than this.
const DESCRIPTORS_MAX: u64 = 200_000;

/// What all servers of one run share.
#[derive(Debug)]
pub(crate) struct Peers {
    args: ServerArgs,
    weft: PathBuf,
    bench: PathBuf,
    files_max: u64,
    /// Length of the floors' answers: that of weft's, once it is known.
    answer_bytes: usize,
    ports: Ports,
    programs: BTreeMap<&'static str, PathBuf>,
    pub(crate) scratch: TempDir,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The version of each server that has one.
    pub(crate) versions: BTreeMap<String, String>,
}

/// The answer of weft to /health is about as long. Used while weft does not take part.
const ANSWER_BYTES: usize = 130;

impl Peers {
    /// Builds weft and the servers that take part. Names those that are not there, and leaves them out.
    pub(crate) fn new(
        args: &ServerArgs,
        subjects: &[Subject],
        workloads: &[&Workload],
        files_max: u64,
    ) -> Result<Self> {
        let has_tls = workloads.iter().any(|workload| workload.group().tls.is_some());
        let weft = match &args.weft {
            Some(path) => path.clone(),
            None if !subjects.iter().any(Subject::is_weft) => PathBuf::new(),
            None if has_tls => build::build_weft_for_tls()?,
            None => build::build_weft()?,
        };
        let (bench, ports, scratch) = (env::current_exe()?, Ports::begin(), tempfile::tempdir()?);
        let (args, answer_bytes, programs) = (args.clone(), ANSWER_BYTES, BTreeMap::new());
        let (wanted, subjects, left_out, versions) = (subjects, Vec::new(), Vec::new(), BTreeMap::new());
        let mut peers = Peers {
            args,
            weft,
            bench,
            files_max,
            answer_bytes,
            ports,
            programs,
            scratch,
            subjects,
            left_out,
            versions,
        };
        for subject in wanted {
            peers.admit(subject)?;
        }
        peers.write_files(workloads.iter().any(|workload| workload.ask == Ask::File))?;
        peers.match_answers()?;
        Ok(peers)
    }

    fn admit(&mut self, subject: &Subject) -> Result<()> {
        if let Subject::Peer(peer) = subject {
            match peer.prepare(self.scratch.path()) {
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

    /// Writes the answers of servers that only have files, and the files of the file workloads.
    fn write_files(&self, has_files: bool) -> Result<()> {
        let write = |folder: &str, name: &str, bytes: &[u8]| {
            let folder = self.scratch.path().join(folder);
            fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), bytes))
        };
        write("answers", "health", b"OK")?;
        write("answers", "json", br#"{"message":"Hello, World!"}"#)?;
        write("tls", "cert.pem", CERTIFICATE.as_bytes())?;
        write("tls", "key.pem", include_bytes!("../peers/tls/key.pem"))?;
        if has_files {
            write("files", "health", b"OK")?;
        }
        for (name, length) in FILES.iter().filter(|_| has_files) {
            write("files", name, &file_bytes(*length))?;
        }
        Ok(())
    }

    /// Starts a fresh server, pinned. It is stopped when dropped.
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
        let port = self.ports.free()?;
        let (has_tls, tls) = (workload.group().tls.is_some(), self.scratch.path().join("tls"));
        let command = match subject {
            Subject::Floor => self.floor(workload, port),
            Subject::Weft { engine } => {
                let files = (workload.ask == Ask::File).then(|| self.scratch.path().join("files"));
                let engine = engine.as_ref().or(self.args.engine.as_ref());
                let mut command = weft_command(weft, port, engine, files.as_deref());
                if has_tls {
                    command
                        .env("WEFT_TLS_CERT", tls.join("cert.pem"))
                        .env("WEFT_TLS_KEY", tls.join("key.pem"));
                }
                command
            }
            Subject::Peer(peer) => {
                let program = self.programs.get(peer.name).map(PathBuf::as_path).unwrap_or(Path::new(""));
                let workers = self.args.cores.cores.server.count;
                command(peer, program, port, workers, self.files_max, self.scratch.path(), has_tls)?
            }
            Subject::Site(site) => {
                let mut command = Command::new(&self.bench);
                command.args(["site", site.name(), "--port", &port.to_string()]);
                command.args(self.args.engine.iter().flat_map(|engine| ["--engine", engine]));
                command
            }
        };
        let log = self.scratch.path().join("server.log");
        Server::start(command, port, &subject.to_string(), self.args.cores.cores, log)
    }

    fn floor(&self, workload: &Workload, port: u16) -> Command {
        let mut command = Command::new(&self.bench);
        command.args(["floor", workload.floor.name(), "--port", &port.to_string()]);
        command.args(["--sleep-us", &workload.sleep.as_micros().to_string()]);
        command.args(["--answer-bytes", &self.answer_bytes.to_string()]);
        command.args(["--loops", &self.args.cores.cores.server.count.to_string()]);
        if let Kind::Requests(group) = &workload.kind {
            command.args(group.close.then_some("--close"));
            command.args((group.depth > 1).then_some("--pipelined"));
        }
        command
    }

    /// Has the floors send as many bytes as weft does, so that neither gains by a shorter answer.
    fn match_answers(&mut self) -> Result<()> {
        let Some(weft) = self.subjects.iter().find(|subject| subject.is_weft()).cloned() else {
            return Ok(());
        };
        let server = self.start(&weft, &QUICK[0])?;
        let probed = probe::probe(server.port, &HEALTH)?;
        if probed.status != 200 {
            return Err(Failure::Run(format!("{weft}: {} answers {}", HEALTH.path, probed.status)));
        }
        self.answer_bytes = probed.wire_bytes;
        Ok(())
    }
}

/// Fills in the arguments and the configuration of a server, and writes the latter.
fn command(
    peer: &Peer,
    program: &Path,
    port: u16,
    workers: usize,
    files_max: u64,
    scratch: &Path,
    has_tls: bool,
) -> Result<Command> {
    let (config, answers, files) =
        (scratch.join(peer.name).with_extension("conf"), scratch.join("answers"), scratch.join("files"));
    let connections = files_max.saturating_sub(OTHER_FILES).min(CONNECTIONS_MAX);
    let descriptors = files_max.min(DESCRIPTORS_MAX);
    let has_user = peer.configuration.contains("@user@");
    let user = has_user.then(|| build::version_of("id", &["-un"])).transpose()?.unwrap_or_default();
    let is_one = workers == 1;
    let values = [
        ("@name@", peer.name.to_owned()),
        ("@port@", port.to_string()),
        ("@program@", program.display().to_string()),
        ("@scratch@", scratch.display().to_string()),
        ("@config@", config.display().to_string()),
        ("@answers@", answers.display().to_string()),
        ("@files@", if files.exists() { &files } else { &answers }.display().to_string()),
        ("@workers@", workers.to_string()),
        ("@workers_or_0@", if is_one { "0".to_owned() } else { workers.to_string() }),
        ("@reuseport@", if is_one { "" } else { " reuseport" }.to_owned()),
        ("@tls@", String::new()),
        ("@ssl@", if has_tls { " ssl http2" } else { "" }.to_owned()),
        ("@tls_folder@", scratch.join("tls").display().to_string()),
        ("@files_max@", files_max.to_string()),
        ("@connections@", connections.to_string()),
        ("@descriptors@", descriptors.to_string()),
        ("@half_descriptors@", (descriptors / 2).to_string()),
        ("@user@", user),
    ];
    let fill =
        |text: &str| values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    if !peer.configuration.is_empty() {
        // What only TLS needs is marked.
        let lines = peer.configuration.lines().filter(|line| has_tls || !line.starts_with("@tls@"));
        let written = fs::write(&config, fill(&lines.collect::<Vec<_>>().join("\n")));
        written.map_err(|error| Failure::step(config.display(), error))?;
    }
    let mut command = Command::new(peer.executable(program));
    let for_tls: &[&str] =
        if has_tls && peer.configuration.is_empty() { &["@tls_folder@", "@files@"] } else { &[] };
    command
        .args(peer.arguments.iter().chain(for_tls).map(|argument| fill(argument)))
        .env("GOMAXPROCS", workers.to_string());
    Ok(command)
}

/// Starts the demo, or the files of a directory.
pub fn weft_command(weft: &Path, port: u16, engine: Option<&String>, files: Option<&Path>) -> Command {
    let mut command = Command::new(weft);
    match files {
        Some(files) => command.arg("serve").arg(files),
        None => command.arg("demo"),
    };
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    // No other server counts and times requests by route. It is a variable, so that older builds can be measured.
    command.env("WEFT_METRICS", "off");
    if let Some(engine) = engine {
        command.args(["--engine", engine]);
    }
    command
}

/// Returns the content of a file: bytes that no compression makes smaller.
pub fn file_bytes(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[cfg(test)]
mod tests;
