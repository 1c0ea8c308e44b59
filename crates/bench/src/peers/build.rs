//! Finds or builds the servers of others, and weft.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::table::Peer;
use crate::failure::{Failure, Result};

/// How a server is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// It is installed, and says its version with this argument.
    Installed(&'static str),
    /// The package in crates/bench/peers, for all servers of the Rust registry.
    Rust,
    /// A Go module of its own: net/http needs only Go, fasthttp the module proxy once.
    Go,
    /// A core of SBCL that has Hunchentoot loaded: compiling takes longer than a server may take to start.
    Lisp,
}

const RUST_BINARY: &str = "weftwork-bench-peers";
/// Where the installer of golang.org puts it, used if `go` is not on the path.
const GO: &str = "/usr/local/go/bin/go";
const QUIET: [&str; 4] = ["--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"];
#[rustfmt::skip]
pub(super) const LISP: &[&str] = &[
    "--core", "@program@", "--dynamic-space-size", "2048", QUIET[0], QUIET[1], QUIET[2], QUIET[3],
    "--eval", "(weftwork-bench:serve @port@)",
];

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

impl Peer {
    /// Returns its program and its version. An error says why the server is left out.
    pub(super) fn prepare(&self, scratch: &Path) -> Result<(PathBuf, String)> {
        match self.build {
            Build::Installed(flag) => {
                let version = version_of(self.name, &[flag])?;
                Ok((self.name.into(), version.trim_start_matches("nginx version: ").to_owned()))
            }
            Build::Rust => {
                let lock = fs::read_to_string(folder().join("Cargo.lock")).unwrap_or_default();
                let version = locked(&lock, self.name.trim_end_matches("-blocking"));
                let program = match env::var_os("WEFTWORK_BENCH_PEERS") {
                    Some(program) => program.into(),
                    None => cargo_build(&folder(), &["--locked"], RUST_BINARY)?,
                };
                Ok((program, version.unwrap_or_else(|| "unknown".to_owned())))
            }
            Build::Go => self.build_go(scratch.join(self.name)),
            Build::Lisp => build_lisp(scratch.join("hunchentoot.core")),
        }
    }

    /// Returns the file to run, given what [`Peer::prepare`] has returned.
    pub(super) fn executable<'a>(&self, program: &'a Path) -> &'a Path {
        if self.build == Build::Lisp { Path::new("sbcl") } else { program }
    }

    fn build_go(&self, program: PathBuf) -> Result<(PathBuf, String)> {
        let go = if version_of("go", &["version"]).is_ok() { "go" } else { GO };
        let version =
            version_of(go, &["version"]).map_err(|_| Failure::Run("Go is not installed".to_owned()))?;
        let source = folder().join(self.name);
        let home = env::var_os("HOME").unwrap_or_else(|| env::temp_dir().into());
        let mut command = Command::new(go);
        command.current_dir(&source).args(["build", "-o"]).arg(&program).arg(".").env("HOME", home);
        let output = command.output().map_err(|error| Failure::step("go build", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Run(format!("it does not build: {}", said.trim())));
        }
        let version = version.trim_start_matches("go version ");
        // The version of the library that the module is about, if it does not come with Go.
        let module = fs::read_to_string(source.join("go.mod")).unwrap_or_default();
        let required = module.lines().find_map(|line| line.strip_prefix("require ")?.rsplit_once(' '));
        let version = required.map_or(version.to_owned(), |(_, library)| format!("{library}, {version}"));
        Ok((program, version))
    }
}

fn build_lisp(program: PathBuf) -> Result<(PathBuf, String)> {
    let version = version_of("sbcl", &["--version"])?;
    let save = format!("(sb-ext:save-lisp-and-die {:?})", program.display().to_string());
    let mut command = Command::new("sbcl");
    command.args(QUIET).arg("--load").arg(folder().join("hunchentoot.lisp")).args(["--eval", &save]);
    let made = command.stdin(Stdio::null()).output().map_err(|error| Failure::step("sbcl", error))?;
    if !made.status.success() || !program.exists() {
        return Err(Failure::Run("cl-hunchentoot is not installed for SBCL".to_owned()));
    }
    // Two forms: the second one cannot be read before the first has run.
    let ask = "(progn (princ (asdf:component-version (asdf:find-system :hunchentoot))) (sb-ext:exit))";
    let library = version_of("sbcl", &[&QUIET[..], &["--eval", "(require :asdf)", "--eval", ask]].concat())?;
    Ok((program, format!("{library}, {version}")))
}

/// Builds weft as its users do.
pub fn build_weft() -> Result<PathBuf> {
    build_weft_with(&[])
}

/// Builds weft with the cryptography that hyper has here. OpenSSL, which the others have, is as fast.
pub(super) fn build_weft_for_tls() -> Result<PathBuf> {
    build_weft_with(&["--features", "aws-lc-rs"])
}

fn build_weft_with(arguments: &[&str]) -> Result<PathBuf> {
    let arguments = [&["--package", "weftwork-cli"], arguments].concat();
    cargo_build(Path::new(env!("CARGO_MANIFEST_DIR")), &arguments, "weft")
}

fn cargo_build(folder: &Path, arguments: &[&str], binary: &str) -> Result<PathBuf> {
    eprintln!("building {binary}, release");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(folder).args(["build", "--release", "--message-format", "json-render-diagnostics"]);
    let output = command.args(arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::step("cargo build", error))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|line| executable(line, binary));
    program.filter(|_| output.status.success()).ok_or_else(|| {
        Failure::Run(format!("{binary} does not build (--weft PATH measures a build of weft that you have)"))
    })
}

/// Returns the path of a binary of this name, from one of cargo's messages.
fn executable(line: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = Path::new(message["executable"].as_str()?);
    (path.file_stem() == Some(OsStr::new(name))).then(|| path.to_owned())
}

/// Returns the version of a package in a lock file.
fn locked(lock: &str, package: &str) -> Option<String> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(after.split('"').next()?.to_owned())
}

/// Returns the first line of what a command says, on either output. An error says that it is not there, or fails.
pub(super) fn version_of(program: &str, arguments: &[&str]) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_the_messages() {
        let line = r#"{"reason":"compiler-artifact","executable":"/target/release/weft"}"#;
        assert_eq!(executable(line, "weft"), Some(PathBuf::from("/target/release/weft")));
        assert_eq!(
            executable(r#"{"reason":"compiler-artifact","executable":"/target/release/other"}"#, "weft"),
            None
        );
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#, "weft"), None);
        assert_eq!(executable("warning: no JSON", "weft"), None);
    }

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
