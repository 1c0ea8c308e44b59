//! How many instructions do the pure parts take? callgrind counts them in this very binary: the same figure
//! on every run, where a clock would show the machine's mood. A figure that grows fails the gate.

mod callgrind;
mod cases;
mod kept;

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::failure::{Failure, Result};
use cases::{CASES, Case};
use kept::{Kept, Toolchain};

/// A figure may grow by so much before the check fails.
const GROWTH_MAX: f64 = 0.03;
/// What a case of few instructions may grow by: fewer are the compiler's taste.
const GROWTH_MAX_ABSOLUTE: f64 = 3.0;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InstructionOptions {
    /// Fail where a figure has grown, or a target is missed.
    pub(crate) check: bool,
    /// Fail, too, where no figure could be checked since the kept ones are another toolchain's.
    pub(crate) same_toolchain: bool,
    /// Keep the new figures.
    pub(crate) update: bool,
    /// Names, or their beginnings; empty for all.
    pub(crate) only: Vec<String>,
    /// What runs inside callgrind: a case, and how often.
    pub(crate) inside: Option<(String, u32)>,
}

pub(crate) fn run(options: &InstructionOptions) -> Result<()> {
    if let Some((name, repeats)) = &options.inside {
        return inside(name, *repeats);
    }
    let wanted = |case: &&Case| {
        options.only.is_empty() || options.only.iter().any(|name| case.name.starts_with(name.as_str()))
    };
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    if cases.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(Failure::Usage(format!("no such case: {}", names.join(", "))));
    }
    let counts = count(&cases)?;
    let toolchain = Toolchain::here();
    let kept = kept::read()?;
    write!(io::stdout(), "{}", table(&counts, &kept, &toolchain))?;
    if options.update {
        return kept::write(toolchain, counts);
    }
    let mut faults = faults(&counts, &kept, &toolchain);
    if options.same_toolchain {
        faults.extend(unchecked(&kept, &toolchain));
    }
    if !options.check || faults.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "{}\nIf that is the price of something worth it, say so in the commit, and keep the new figures with:\n  \
         cargo run --release -p weftwork-bench -- instructions --update",
        faults.join("\n")
    )))
}

fn inside(name: &str, repeats: u32) -> Result<()> {
    let case = find(name).ok_or_else(|| Failure::Usage(format!("no case is called '{name}'")))?;
    (case.repeat)(repeats);
    Ok(())
}

fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// Instructions of one repetition of each case, less those of the case that it is measured beside.
fn count(cases: &[&Case]) -> Result<BTreeMap<String, f64>> {
    callgrind::check()?;
    let mut whole: BTreeMap<&str, f64> = BTreeMap::new();
    for case in cases.iter().copied().chain(cases.iter().filter_map(|case| find(case.less?))) {
        if !whole.contains_key(case.name) {
            whole.insert(case.name, callgrind::count(case.name)?);
        }
    }
    let net = |case: &Case| {
        let less = case.less.and_then(|name| whole.get(name)).copied().unwrap_or(0.0);
        let all = whole.get(case.name).copied().unwrap_or(0.0);
        ((all - less) / f64::from(case.sum_of) * 10.0).round() / 10.0
    };
    Ok(cases.iter().map(|case| (case.name.to_owned(), net(case))).collect())
}

fn table(counts: &BTreeMap<String, f64>, kept: &Kept, toolchain: &Toolchain) -> String {
    let mut text = format!("{:<22} {:>12} {:>12} {:>8}\n", "instructions", "now", "kept", "change");
    for case in CASES {
        let Some(now) = counts.get(case.name) else { continue };
        let (was, change) = match kept.cases.get(case.name) {
            Some(was) => (format!("{was:.1}"), format!("{:+.1} %", (now / was - 1.0) * 100.0)),
            None => ("-".to_owned(), "new".to_owned()),
        };
        text += &format!("{:<22} {now:>12.1} {was:>12} {change:>8}  {}\n", case.name, case.title);
    }
    for target in cases::TARGETS {
        let Some((value, met)) = target.reached(counts) else { continue };
        text += &format!("{} {}: {value:.2}\n", if met { "met " } else { "LOST" }, target.title);
    }
    if let Some(why) = unchecked(kept, toolchain) {
        text += &format!("note: {why}\n");
    }
    text
}

/// Why no figure decides anything.
fn unchecked(kept: &Kept, toolchain: &Toolchain) -> Option<String> {
    let kept = &kept.toolchain;
    let why = "they are compared, but decide nothing";
    (kept != toolchain).then(|| format!("the kept figures come from {kept}, these from {toolchain}: {why}"))
}

/// What has grown too much, or misses a target. Growth counts only where the same compiler made the code.
fn faults(counts: &BTreeMap<String, f64>, kept: &Kept, toolchain: &Toolchain) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now) in counts {
        let Some(was) = kept.cases.get(name) else {
            faults.push(format!("{name}: no figure is kept"));
            continue;
        };
        let most = (was * (1.0 + GROWTH_MAX)).max(was + GROWTH_MAX_ABSOLUTE);
        let is_ours = find(name).is_none_or(|case| !case.is_yardstick);
        if is_ours && kept.toolchain == *toolchain && *now > most {
            faults.push(format!("{name}: {now:.1} instructions, were {was:.1}, at most {most:.1}"));
        }
    }
    for target in cases::TARGETS {
        if let Some((value, false)) = target.reached(counts) {
            faults.push(format!("target missed: {}: {value:.2}", target.title));
        }
    }
    faults
}

#[cfg(test)]
mod tests;
