//! How many instructions does one repetition take? Those of many less those of few, divided: what the start
//! of the program, the first use of a buffer and the end cost is in both.

use std::env;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};

const FEW: u32 = 100;
const MANY: u32 = 1_100;

pub(super) fn check() -> Result<()> {
    let version =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::Run("valgrind is not installed; Debian: apt-get install valgrind".to_owned())),
    }
}

pub(super) fn count(case: &str) -> Result<f64> {
    let (few, many) = (total(case, FEW)?, total(case, MANY)?);
    Ok((many as f64 - few as f64) / f64::from(MANY - FEW))
}

fn total(case: &str, repeats: u32) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["instructions", "--inside", case, &repeats.to_string()])
        // The C library's allocator is the same every time, if nobody tunes it.
        .env_clear()
        .output()
        .map_err(|error| Failure::step("valgrind", error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::Run(format!("{case} in callgrind: {}\n{said}", output.status)));
    }
    collected(&said).ok_or_else(|| Failure::Run(format!("{case}: callgrind gave no count:\n{said}")))
}

/// The number in `==123== Collected : 456`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_count_is_found() {
        let said = "==7== Callgrind, a call-graph generator\n==7== \n==7== Collected : 4711\n";
        assert_eq!(collected(said), Some(4711));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
        assert_eq!(collected("==7== Collected : many\n"), None);
    }
}
