//! Pins servers and load to cores. Affinity is inherited over fork, so a server is pinned by pinning this thread while
//! it is started.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{Failure, Result};

/// Neighbouring cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first core.
    pub first: usize,
    /// 1 at least.
    pub count: usize,
}

/// The cores of the servers and those of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The cores of the servers.
    pub server: Span,
    /// The cores of the load.
    pub load: Span,
}

impl Default for Cores {
    fn default() -> Self {
        Cores { server: Span::one(0), load: Span::one(1) }
    }
}

impl Span {
    /// One core.
    pub const fn one(core: usize) -> Self {
        Span { first: core, count: 1 }
    }

    fn cores(self) -> Range<usize> {
        self.first..self.first.saturating_add(self.count)
    }
}

impl Cores {
    /// Every core that is used, once.
    pub(crate) fn all(self) -> impl Iterator<Item = usize> {
        let load = self.load.cores().filter(move |core| !self.server.cores().contains(core));
        self.server.cores().chain(load)
    }

    /// Checks that all cores exist. Prints a note if server and load share cores.
    pub fn check(self) -> Result<()> {
        let allowed = sched_getaffinity(None)?;
        for core in self.all() {
            if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
                let hint = "see --cores; with one core use --cores 0,0";
                return Err(Failure::Usage(format!("core {core} is not there for this process ({hint})")));
            }
        }
        if self.all().count() < self.server.count + self.load.count {
            eprintln!("note: server and load share cores: rates say little, CPU still does");
        }
        Ok(())
    }
}

/// `0,1`, or `0-3,4-7`.
impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let cores = text
            .split_once(',')
            .and_then(|(server, load)| Some(Cores { server: span(server)?, load: span(load)? }));
        cores.ok_or_else(|| {
            format!("'{text}' is not SERVER,LOAD: two cores, like 0,1, or spans, like 0-3,4-7")
        })
    }
}

fn span(text: &str) -> Option<Span> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let [first, last]: [usize; 2] = [first.trim().parse().ok()?, last.trim().parse().ok()?];
    Some(Span { first, count: last.checked_sub(first)?.checked_add(1)? })
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { first, count } = *self;
        match count {
            0 | 1 => write!(out, "core {first}"),
            _ => write!(out, "cores {first} to {}", first + count - 1),
        }
    }
}

/// Pins this thread, and what it starts from now on.
pub fn pin(span: Span) -> Result<()> {
    let mut set = CpuSet::new();
    span.cores().for_each(|core| set.set(core));
    sched_setaffinity(None, &set).map_err(|error| Failure::step(format!("pinning to {span}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<(Span, Span)>, all: &[usize]) {
        let cores = text.parse::<Cores>().ok();
        assert_eq!(cores.map(|cores| (cores.server, cores.load)), want, "{text}");
        assert_eq!(cores.into_iter().flat_map(Cores::all).collect::<Vec<_>>(), all, "{text}");
    }

    #[test]
    fn cores_and_spans() {
        let span = |first, count| Span { first, count };
        check("0,1", Some((span(0, 1), span(1, 1))), &[0, 1]);
        check(" 2 , 3", Some((span(2, 1), span(3, 1))), &[2, 3]);
        check("0,0", Some((span(0, 1), span(0, 1))), &[0]);
        check("0-3,4-7", Some((span(0, 4), span(4, 4))), &[0, 1, 2, 3, 4, 5, 6, 7]);
        check("0-2,2-3", Some((span(0, 3), span(2, 2))), &[0, 1, 2, 3]);
        for wrong in ["", "1", "0-3", "3-0,1", "a,b", "0,1,2", "0-,1", "0--1,2", "0-18446744073709551615,1"] {
            check(wrong, None, &[]);
        }
    }

    #[test]
    fn pinned_cores_are_named() {
        assert_eq!(Span::one(2).to_string(), "core 2");
        assert_eq!(Span { first: 4, count: 4 }.to_string(), "cores 4 to 7");
    }
}
