//! Which figures were there before, and of which compiler? Both are in `instructions.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fmt, fs};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// What instruction counts depend on, besides the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Toolchain {
    pub(super) rustc: String,
    /// Its copies and its allocator are part of the counts.
    pub(super) libc: String,
    /// memchr and the C library choose by it.
    pub(super) cpu: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) toolchain: Toolchain,
    pub(super) cases: BTreeMap<String, f64>,
}

impl Toolchain {
    pub(super) fn here() -> Self {
        let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        Toolchain {
            rustc: first_line(Command::new(rustc).arg("--version")),
            libc: first_line(Command::new("getconf").arg("GNU_LIBC_VERSION")),
            cpu: cpu().to_owned(),
        }
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, {}, {}", self.rustc, self.libc, self.cpu)
    }
}

fn first_line(command: &mut Command) -> String {
    let said = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> &'static str {
    if std::is_x86_feature_detected!("avx2") { "x86_64 with avx2" } else { "x86_64" }
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> &'static str {
    env::consts::ARCH
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// The kept figures; none before the first were kept.
pub(super) fn read() -> Result<Kept> {
    let path = path();
    if !path.exists() {
        return Ok(Kept::default());
    }
    let text = fs::read_to_string(&path).map_err(|error| Failure::step(path.display(), error))?;
    serde_json::from_str(&text).map_err(|error| Failure::step(path.display(), error))
}

/// Keeps these figures. Those of other cases stay only if they are of the same compiler.
pub(super) fn write(toolchain: Toolchain, counts: BTreeMap<String, f64>) -> Result<()> {
    let before = read()?;
    let mut cases = if before.toolchain == toolchain { before.cases } else { BTreeMap::new() };
    cases.retain(|name, _| super::find(name).is_some());
    cases.extend(counts);
    let text = serde_json::to_string_pretty(&Kept { toolchain, cases })
        .map_err(|error| Failure::step("instructions.json", error))?;
    fs::write(path(), text + "\n").map_err(|error| Failure::step(path().display(), error))
}
