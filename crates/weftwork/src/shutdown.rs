//! Shutdown of a server: the report at its end.

use std::fmt;
use std::time::Duration;

use crate::error::Result;

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Connections that were open when the shutdown began, and closed regularly.
    pub drained: usize,
    /// Connections that were cut at the deadline.
    pub cut: usize,
    /// Threads left in a handler that did not return, or in a call of `weftwork::blocking`. The shutdown waits for them
    /// for at most a second.
    pub stuck: usize,
    /// Duration of the shutdown.
    pub took: Duration,
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShutdownReport { drained, cut, stuck, took } = self;
        write!(f, "stopped in {took:.1?}: {drained} connections drained, {cut} cut")?;
        match *stuck {
            0 => Ok(()),
            1 => f.write_str(", 1 thread still in a handler"),
            _ => write!(f, ", {stuck} threads still in handlers"),
        }
    }
}

/// Counters that were not 0 after a server was abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakReport {
    leaks: Vec<(&'static str, usize)>,
}

impl LeakReport {
    /// Returns an error if any of these counters is not 0.
    pub(crate) fn unless_all_zero(counters: Vec<(&'static str, usize)>) -> Result<(), LeakReport> {
        let wrong: Vec<_> = counters.into_iter().filter(|(_, count)| *count > 0).collect();
        if wrong.is_empty() { Ok(()) } else { Err(LeakReport { leaks: wrong }) }
    }

    /// Returns each counter that is not 0: what it counts, and its value.
    pub fn leaks(&self) -> &[(&'static str, usize)] {
        &self.leaks
    }
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server was abandoned and left behind")?;
        for (index, (what, count)) in self.leaks.iter().enumerate() {
            let joint = if index == 0 { ": " } else { ", " };
            write!(f, "{joint}{count} {what}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LeakReport {}
