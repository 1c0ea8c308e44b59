//! How are h2o and lighttpd set up to be at their best? A worker for each core, no logs, answers from small files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::table::Peer;
use super::{Setup, version_of};
use crate::failure::{Failure, Result};

/// lighttpd has a table of them, and asks for no more than it is told.
const FILES_MAX: u64 = 200_000;
const JSON: &str = r#"{"message":"Hello, World!"}"#;

pub(super) fn prepare_h2o(_: &Peer, scratch: &Path) -> Result<(PathBuf, String)> {
    Ok((answers(scratch)?, version_of("h2o", &["--version"])?))
}

pub(super) fn prepare_lighttpd(_: &Peer, scratch: &Path) -> Result<(PathBuf, String)> {
    Ok((answers(scratch)?, version_of("lighttpd", &["-v"])?))
}

/// A directory with the canned answers.
fn answers(scratch: &Path) -> Result<PathBuf> {
    let directory = scratch.join("answers");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("health"), "OK")?;
    fs::write(directory.join("json"), JSON)?;
    Ok(directory)
}

pub(super) fn h2o(_: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let (port, answers, files) = (setup.port, setup.program.display(), setup.files.display());
    let files = if setup.files.exists() { files.to_string() } else { answers.to_string() };
    let configuration = format!(
        "num-threads: {}
max-connections: {}
http1-request-timeout: 3600
tcp-fastopen: 0
user: {user}
file.mime.setdefaulttype: text/plain
listen:
  host: 127.0.0.1
  port: {port}
hosts:
  default:
    paths:
      /health:
        file.file: {answers}/health
      /json:
        file.file: {answers}/json
      /:
        file.dir: {files}
",
        setup.workers,
        setup.files_max.min(65_536),
        // Else it gives up root, and with it the way to its files.
        user = version_of("id", &["-un"])?,
    );
    let path = write(setup, "h2o.conf", &configuration)?;
    let mut command = Command::new("h2o");
    command.args(["-m", "worker", "-c"]).arg(path);
    Ok(command)
}

pub(super) fn lighttpd(_: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let configuration = format!(
        "server.port = {port}
server.bind = \"127.0.0.1\"
server.document-root = \"{files}\"
server.modules = ( \"mod_alias\" )
alias.url = ( \"/health\" => \"{answers}/health\", \"/json\" => \"{answers}/json\" )
mimetype.assign = ( \"\" => \"text/plain\" )
server.max-worker = {workers}
server.max-fds = {files_max}
server.max-connections = {connections}
server.listen-backlog = 4096
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.stat-cache-engine = \"simple\"
etag.use-inode = \"disable\"
",
        port = setup.port,
        // 0: no process beside the one that serves.
        workers = if setup.workers > 1 { setup.workers } else { 0 },
        files = if setup.files.exists() { setup.files } else { setup.program }.display(),
        answers = setup.program.display(),
        files_max = setup.files_max.min(FILES_MAX),
        // It takes no more of them than half of its descriptors.
        connections = setup.files_max.min(FILES_MAX) / 2,
    );
    let path = write(setup, "lighttpd.conf", &configuration)?;
    let mut command = Command::new("lighttpd");
    command.args(["-D", "-f"]).arg(path);
    Ok(command)
}

fn write(setup: &Setup<'_>, name: &str, text: &str) -> Result<PathBuf> {
    let path = setup.scratch.join(name);
    fs::write(&path, text).map_err(|error| Failure::step(path.display(), error))?;
    Ok(path)
}
