//! Counts the instructions of the parts without I/O. callgrind counts them in this very binary: the same figure on every run, while a
//! clock would show the mood of the machine. A figure that grows fails the gate.

mod cases;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fmt, fs};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::report::table::table;
use cases::{CASES, Case, TARGETS};

/// A figure may grow by so much before the check fails.
const GROWTH_MAX: f64 = 0.03;
/// What a case of few instructions may grow by: fewer are the compiler's choice.
const GROWTH_MAX_ABSOLUTE: f64 = 3.0;
/// Instructions of one repetition are those of many less those of few: the start of the program, the first use of a buffer and the end are
/// in both.
const FEW: u32 = 100;
const MANY: u32 = 1_100;

#[derive(Args, Debug, Default)]
pub(crate) struct InstructionArgs {
    /// Cases whose names begin so [default: all]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Fail if a figure has grown by more than 3 %, or a target is missed
    #[arg(long)]
    check: bool,
    /// With --check: fail if the kept figures are another toolchain's, and nothing could be checked
    #[arg(long)]
    same_toolchain: bool,
    /// Keep the new figures in instructions.json
    #[arg(long)]
    update: bool,
    /// What runs inside callgrind: a case, and how often
    #[arg(long, hide = true, num_args = 2, value_names = ["CASE", "N"])]
    inside: Vec<String>,
}

/// What instruction counts depend on, besides the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Toolchain {
    rustc: String,
    /// Its copies and its allocator are part of the counts.
    libc: String,
    /// memchr and the C library choose by it.
    cpu: String,
}

/// The figures of instructions.json.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    toolchain: Toolchain,
    cases: BTreeMap<String, f64>,
}

pub(crate) fn run(args: &InstructionArgs) -> Result<()> {
    if let [name, repeats] = &args.inside[..] {
        let case = find(name).ok_or_else(|| Failure::Usage(format!("no case is called '{name}'")))?;
        let repeats = repeats.parse().map_err(|_| Failure::Usage(format!("'{repeats}' is no number")))?;
        (case.repeat)(repeats);
        return Ok(());
    }
    let is_wanted = |case: &&Case| {
        args.only.is_empty() || args.only.iter().any(|name| case.name.starts_with(name.as_str()))
    };
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    if cases.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(Failure::Usage(format!("no such case: {}", names.join(", "))));
    }
    let now = Kept { toolchain: Toolchain::here(), cases: count(&cases)? };
    let kept = Kept::read()?;
    write!(io::stdout(), "{}", tables(&now, &kept))?;
    if args.update {
        return now.write(kept);
    }
    let mut faults = faults(&now, &kept);
    faults.extend(unchecked(&kept.toolchain, &now.toolchain).filter(|_| args.same_toolchain));
    if !args.check || faults.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "{}\nIf that is the price of something worth it, say so in the commit, and keep the new figures with:\n  \
         cargo run --release -p weftwork-bench -- instructions --update",
        faults.join("\n")
    )))
}

fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// Counts one repetition of each case, less that of the case that it is measured beside.
fn count(cases: &[&Case]) -> Result<BTreeMap<String, f64>> {
    let mut whole: BTreeMap<&str, f64> = BTreeMap::new();
    for case in cases.iter().copied().chain(cases.iter().filter_map(|case| find(case.less?))) {
        if !whole.contains_key(case.name) {
            let (few, many) = (callgrind(case.name, FEW)?, callgrind(case.name, MANY)?);
            whole.insert(case.name, (many as f64 - few as f64) / f64::from(MANY - FEW));
        }
    }
    let net = |case: &Case| {
        let less = case.less.and_then(|name| whole.get(name)).copied().unwrap_or(0.0);
        let all = whole.get(case.name).copied().unwrap_or(0.0);
        ((all - less) / f64::from(case.sum_of) * 10.0).round() / 10.0
    };
    Ok(cases.iter().map(|case| (case.name.to_owned(), net(case))).collect())
}

/// Returns all instructions of this program with so many repetitions of a case.
fn callgrind(case: &str, repeats: u32) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["instructions", "--inside", case, &repeats.to_string()])
        // The C library's allocator is the same every time, if no variable tunes it.
        .env_clear()
        .output()
        .map_err(|error| Failure::step("valgrind (Debian: apt-get install valgrind)", error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = collected(&said).filter(|_| output.status.success());
    count.ok_or_else(|| Failure::Run(format!("{case} in callgrind: {}\n{said}", output.status)))
}

/// Finds the number in `==123== Collected : 456`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.trim().parse().ok()
}

fn tables(now: &Kept, kept: &Kept) -> String {
    let cases = CASES.iter().filter_map(|case| Some((case, *now.cases.get(case.name)?)));
    let rows = cases.map(|(case, now)| {
        let (was, change) = match kept.cases.get(case.name) {
            Some(was) => (format!("{was:.1}"), format!("{:+.1} %", (now / was - 1.0) * 100.0)),
            None => ("-".to_owned(), "new".to_owned()),
        };
        [format!("{}: {}", case.name, case.title), format!("{now:.1}"), was, change]
    });
    let mut text = table(["instructions", "now", "kept", "change"].map(str::to_owned).to_vec(), rows) + "\n";
    for target in TARGETS {
        let Some((value, met)) = target.reached(&now.cases) else { continue };
        text += &format!("{} {}: {value:.2}\n", if met { "met " } else { "LOST" }, target.title);
    }
    text + &unchecked(&kept.toolchain, &now.toolchain).map_or(String::new(), |why| format!("note: {why}\n"))
}

/// Says why no figure decides anything.
fn unchecked(kept: &Toolchain, here: &Toolchain) -> Option<String> {
    let why = "they are compared, but decide nothing";
    (kept != here).then(|| format!("the kept figures come from {kept}, these from {here}: {why}"))
}

/// Returns what has grown too much, or misses a target. Growth counts only if the same compiler made the code.
fn faults(now: &Kept, kept: &Kept) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now_is) in &now.cases {
        let Some(was) = kept.cases.get(name) else {
            faults.push(format!("{name}: no figure is kept"));
            continue;
        };
        let most = (was * (1.0 + GROWTH_MAX)).max(was + GROWTH_MAX_ABSOLUTE);
        let is_ours = find(name).is_none_or(|case| !case.is_yardstick);
        if is_ours && kept.toolchain == now.toolchain && *now_is > most {
            faults.push(format!("{name}: {now_is:.1} instructions, were {was:.1}, at most {most:.1}"));
        }
    }
    for target in TARGETS {
        if let Some((value, false)) = target.reached(&now.cases) {
            faults.push(format!("target missed: {}: {value:.2}", target.title));
        }
    }
    faults
}

impl Toolchain {
    fn here() -> Self {
        let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let avx2 = if flags.contains(" avx2") { " with avx2" } else { "" };
        Toolchain {
            rustc: first_line(Command::new(rustc).arg("--version")),
            libc: first_line(Command::new("getconf").arg("GNU_LIBC_VERSION")),
            cpu: format!("{}{avx2}", env::consts::ARCH),
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

impl Kept {
    fn path() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
    }

    fn read() -> Result<Kept> {
        let failed = |error: &dyn fmt::Display| Failure::step("instructions.json", error);
        let text = fs::read_to_string(Kept::path()).map_err(|error| failed(&error))?;
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }

    /// Keeps these figures. Figures of other cases stay only if they are of the same compiler.
    fn write(mut self, before: Kept) -> Result<()> {
        let others = before.cases.into_iter().filter(|_| before.toolchain == self.toolchain);
        for (name, count) in others.filter(|(name, _)| find(name).is_some()) {
            self.cases.entry(name).or_insert(count);
        }
        let text =
            serde_json::to_string_pretty(&self).map_err(|error| Failure::step("instructions.json", error))?;
        fs::write(Kept::path(), text + "\n").map_err(|error| Failure::step("instructions.json", error))
    }
}

#[cfg(test)]
mod tests;
