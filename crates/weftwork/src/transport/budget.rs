//! How many lines a second may the log have of what strangers do? They can do it as fast as they like.

use std::sync::{Mutex, PoisonError};

use super::clock::Tick;

/// Enough to see who does what, and little for a disk.
const LINES_A_SECOND: u32 = 10;

/// The lines of this second, and how many were left out since the last one that was written.
#[derive(Debug, Default)]
pub(crate) struct LineBudget(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    second: u64,
    written: u32,
    left_out: u64,
}

impl LineBudget {
    /// Whether there may be one more line: then how many were left out before it.
    pub(crate) fn take(&self, now: Tick) -> Option<u64> {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.second != now.0 / 1000 {
            (spent.second, spent.written) = (now.0 / 1000, 0);
        }
        if spent.written == LINES_A_SECOND {
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
    fn what_is_left_out_is_counted_and_told_with_the_next_line() {
        let budget = LineBudget::default();
        let takes = |tick: u64, count: usize| (0..count).map(|_| budget.take(Tick(tick))).collect::<Vec<_>>();
        assert_eq!(takes(0, 5), [Some(0); 5]);
        assert_eq!(takes(999, 5), [Some(0); 5]);
        assert_eq!(takes(999, 7), [None; 7]);
        assert_eq!(takes(1000, 2), [Some(7), Some(0)]);
        assert_eq!(takes(1500, 9)[7..], [Some(0), None]);
        assert_eq!(takes(9000, 1), [Some(1)]);
    }
}
