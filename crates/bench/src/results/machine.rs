//! The machine, the time and the commit of a run.

use std::fs;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// The machine. What cannot be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    /// Major and minor version. The rest of the release may name the host.
    pub(crate) kernel: String,
    /// TCP's congestion control. Some pace what is sent by timers.
    pub(crate) congestion_control: String,
    pub(crate) rustc: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let (cpu, memory) = (file("/proc/cpuinfo"), file("/proc/meminfo"));
        let model = after(&cpu, "model name").unwrap_or_default();
        let memory_kib =
            after(&memory, "MemTotal:").unwrap_or_default().trim_end_matches("kB").trim().parse();
        // The cores of the machine, not those of this pinned thread.
        let cores = cpu.matches("processor\t").count();
        Machine {
            cpu: model.trim_start_matches([':', ' ']).to_owned(),
            cores: cores.max(thread::available_parallelism().map_or(1, usize::from)),
            memory_gib: memory_kib.unwrap_or(0u64) >> 20,
            kernel: major_minor(&file("/proc/sys/kernel/osrelease")),
            congestion_control: congestion_control(),
            rustc: output("rustc", &["--version"]),
        }
    }
}

/// Returns the congestion control of new connections.
pub(crate) fn congestion_control() -> String {
    file("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned()
}

/// Shortens `6.18.44-cloud-amd64` to `6.18`.
pub(crate) fn major_minor(release: &str) -> String {
    release.trim().split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Returns the commit that is checked out, with a mark if files differ from it. Empty: git cannot tell.
pub(crate) fn commit() -> String {
    output("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude", "*"])
}

pub(crate) fn now() -> String {
    output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the rest of the first line that starts with `name`.
fn after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().map(|output| output.stdout);
    String::from_utf8_lossy(&output.unwrap_or_default()).trim().to_owned()
}
