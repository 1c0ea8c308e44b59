//! How is Hunchentoot started? By SBCL, from a core that has it loaded: to compile it takes longer than a server
//! may take to start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::table::Peer;
use super::{Setup, rust, version_of};
use crate::failure::{Failure, Result};

const OPTIONS: [&str; 4] = ["--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"];

pub(super) fn prepare(_: &Peer, scratch: &Path) -> Result<(PathBuf, String)> {
    let version = version_of("sbcl", &["--version"])?;
    let program = scratch.join("hunchentoot.core");
    let save = format!("(sb-ext:save-lisp-and-die {:?})", program.display().to_string());
    let made = Command::new("sbcl")
        .args(OPTIONS)
        .arg("--load")
        .arg(rust::folder().join("hunchentoot.lisp"))
        .args(["--eval", &save])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::step("sbcl", error))?;
    if !made.status.success() || !program.exists() {
        return Err(Failure::Run("cl-hunchentoot is not installed for SBCL".to_owned()));
    }
    Ok((program, format!("{}, {version}", hunchentoot()?)))
}

fn hunchentoot() -> Result<String> {
    // Two forms: the second one cannot be read before the first has run.
    let ask = "(progn (princ (asdf:component-version (asdf:find-system :hunchentoot))) (sb-ext:exit))";
    version_of("sbcl", &[&OPTIONS[..], &["--eval", "(require :asdf)", "--eval", ask]].concat())
}

pub(super) fn command(_: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let mut command = Command::new("sbcl");
    command.arg("--core").arg(setup.program).args(["--dynamic-space-size", "2048"]).args(OPTIONS);
    command.args(["--eval", &format!("(weftwork-bench:serve {})", setup.port)]);
    Ok(command)
}
