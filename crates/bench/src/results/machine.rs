//! On what was it measured?

use std::fs;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    /// Major and minor: what follows may name the host.
    pub(crate) kernel: String,
    /// How it decides when to send: some pace what is sent by timers.
    #[serde(default)]
    pub(crate) congestion_control: String,
    pub(crate) rustc: String,
}

impl Machine {
    /// This one; what cannot be found out is empty.
    pub(crate) fn here() -> Self {
        let cpu = file("/proc/cpuinfo");
        let memory_kib: u64 = after(&file("/proc/meminfo"), "MemTotal:")
            .and_then(|rest| rest.trim_end_matches("kB").trim().parse().ok())
            .unwrap_or(0);
        Machine {
            cpu: after(&cpu, "model name")
                .map(|rest| rest.trim_start_matches([':', ' ']))
                .unwrap_or("")
                .to_owned(),
            // Of the machine, not of this pinned thread.
            cores: cpu
                .matches("processor\t")
                .count()
                .max(thread::available_parallelism().map_or(1, usize::from)),
            memory_gib: memory_kib >> 20,
            kernel: major_minor(&file("/proc/sys/kernel/osrelease")),
            congestion_control: congestion_control(),
            rustc: said("rustc", &["--version"]),
        }
    }
}

/// Of new connections.
pub(crate) fn congestion_control() -> String {
    file("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned()
}

/// `6.18` of `6.18.44-cloud-amd64`.
pub(crate) fn major_minor(release: &str) -> String {
    release.trim().split('.').take(2).collect::<Vec<_>>().join(".")
}

/// The commit that is checked out, with a mark if files differ from it; empty where git cannot tell.
pub(super) fn commit() -> String {
    said("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude", "*"])
}

pub(super) fn now() -> String {
    said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What stands behind a name at the start of a line, the first time.
fn after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
