//! Where are the servers of the Rust registry? In a workspace of their own, built when the first is asked for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use super::Setup;
use super::table::Peer;
use super::weft::built;
use crate::failure::{Failure, Result};

const BINARY: &str = "weftwork-bench-peers";

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

pub(super) fn prepare(peer: &Peer, _: &Path) -> Result<(PathBuf, String)> {
    let lock = fs::read_to_string(folder().join("Cargo.lock")).unwrap_or_default();
    let version =
        locked(&lock, peer.name.trim_end_matches("-blocking")).unwrap_or_else(|| "unknown".to_owned());
    if let Some(program) = env::var_os("WEFTWORK_BENCH_PEERS") {
        return Ok((program.into(), version));
    }
    eprintln!("building {BINARY} for {}, release", peer.name);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(folder())
        .args(["build", "--release", "--locked", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::step("cargo build", error))?;
    let program = output.status.success().then(|| built(&output.stdout, BINARY)).flatten();
    let program = program.ok_or_else(|| Failure::Run(format!("{} does not build", folder().display())))?;
    Ok((program, version))
}

pub(super) fn command(peer: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let mut command = Command::new(setup.program);
    command.args([peer.name, &setup.port.to_string()]);
    if setup.workers > 1 {
        command.arg(setup.workers.to_string());
    }
    Ok(command)
}

/// The version of a package in a lock file.
fn locked(lock: &str, package: &str) -> Option<String> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(after.split('"').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock() {
        let lock = "[[package]]\nname = \"hyper-util\"\nversion = \"0.1.2\"\n\n[[package]]\nname = \"hyper\"\nversion = \"1.2.3\"\n";
        assert_eq!(locked(lock, "hyper").as_deref(), Some("1.2.3"));
        assert_eq!(locked(lock, "axum"), None);
    }

    #[test]
    fn every_rust_peer_is_locked() {
        let lock = fs::read_to_string(folder().join("Cargo.lock")).unwrap();
        for name in ["hyper", "axum", "actix-web", "ntex", "may_minihttp", "tiny_http", "astra"] {
            assert!(locked(&lock, name).is_some(), "{name}");
        }
    }
}
