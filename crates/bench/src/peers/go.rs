//! How are the Go servers built? Each is a module of its own: net/http needs nothing but Go, fasthttp the
//! module proxy once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::table::Peer;
use super::{Setup, rust, version_of};
use crate::failure::{Failure, Result};

/// Where the installer of golang.org puts it; used where `go` is not on the path.
const USUAL: &str = "/usr/local/go/bin/go";

pub(super) fn prepare(peer: &Peer, scratch: &Path) -> Result<(PathBuf, String)> {
    let go = if version_of("go", &["version"]).is_ok() { "go" } else { USUAL };
    let version = version_of(go, &["version"]).map_err(|_| Failure::Run("Go is not installed".to_owned()))?;
    let program = scratch.join(peer.name);
    let output = Command::new(go)
        .current_dir(rust::folder().join(peer.name))
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .env("HOME", env::var_os("HOME").unwrap_or_else(|| scratch.into()))
        .output()
        .map_err(|error| Failure::step("go build", error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Run(format!("it does not build: {}", said.trim())));
    }
    let version = version.trim_start_matches("go version ");
    Ok((program, required(peer).map_or(version.to_owned(), |library| format!("{library}, {version}"))))
}

/// The library that the module is about, and its version: none for what comes with Go.
fn required(peer: &Peer) -> Option<String> {
    let module = std::fs::read_to_string(rust::folder().join(peer.name).join("go.mod")).ok()?;
    let (_, version) = module.lines().find_map(|line| line.strip_prefix("require ")?.rsplit_once(' '))?;
    Some(version.to_owned())
}

pub(super) fn command(_: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let mut command = Command::new(setup.program);
    command.arg(setup.port.to_string()).env("GOMAXPROCS", setup.workers.to_string());
    Ok(command)
}
