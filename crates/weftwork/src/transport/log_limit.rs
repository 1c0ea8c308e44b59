//! Limits the log lines per second about things that clients can cause.

use std::sync::{Mutex, PoisonError};

use super::deadlines::Tick;

/// Counts the lines of the current second, and the lines left out since the last line that was written.
#[derive(Debug)]
pub(crate) struct LogLimit {
    lines_a_second: u32,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    second: u64,
    written: u32,
    left_out: u64,
}

impl LogLimit {
    pub(crate) fn new(lines_a_second: u32) -> LogLimit {
        LogLimit { lines_a_second, spent: Mutex::default() }
    }

    /// Returns whether another line is allowed, and how many lines were left out before it.
    pub(crate) fn take(&self, now: Tick) -> Option<u64> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads read the clock at different times. A late thread must not begin the second again.
        if now.0 / 1000 > spent.second {
            (spent.second, spent.written) = (now.0 / 1000, 0);
        }
        if spent.written == self.lines_a_second {
            spent.left_out += 1;
            return None;
        }
        spent.written += 1;
        Some(std::mem::take(&mut spent.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_in_the_next_line() {
        let budget = LogLimit::new(10);
        let takes = |tick: u64, count: usize| (0..count).map(|_| budget.take(Tick(tick))).collect::<Vec<_>>();
        assert_eq!(takes(0, 5), [Some(0); 5]);
        assert_eq!(takes(999, 5), [Some(0); 5]);
        assert_eq!(takes(999, 7), [None; 7]);
        assert_eq!(takes(1000, 2), [Some(7), Some(0)]);
        assert_eq!(takes(1500, 9)[7..], [Some(0), None]);
        assert_eq!(takes(9000, 1), [Some(1)]);
    }

    #[test]
    fn a_budget_of_one_line_logs_once_a_second() {
        let budget = LogLimit::new(1);
        let looks = [
            (0, true),
            (999, false),
            (1000, true),
            (1001, false),
            (9500, true),
            (9400, false),
            (8999, false),
        ];
        for (now, is_written) in looks {
            assert_eq!(budget.take(Tick(now)).is_some(), is_written, "{now}");
        }
    }
}
