//! Timers of delayed responses, to the millisecond. Peer deadlines are on the coarser wheel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use mio::Token;

use super::ConnTable;
use crate::engine::conn_table::index;

/// Stale timers are removed if there are this many more timers than connections need.
const STALE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct TimerHeap {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl TimerHeap {
    /// Adds a timer. `table` has the other connections. There are never more than two timers for each connection:
    /// otherwise a client that asks again and again, and is answered sooner, would make the heap grow.
    pub(super) fn set(&mut self, due: Instant, token: Token, table: &ConnTable) {
        if self.heap.len() >= 2 * table.len() + STALE_MAX {
            self.heap.retain(|Reverse((due, other))| {
                // A connection that is out will not set its timer again, except for this one: its other timers are
                // stale.
                let conn = table.peek(index(Token(*other))).map(|(_, conn)| conn);
                let is_kept = table.owns(Token(*other)) && conn.is_none_or(|conn| conn.has_alarm(*due));
                is_kept && *other != token.0
            });
        }
        self.heap.push(Reverse((due, token.0)));
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Returns a timer that is due.
    pub(super) fn next_by(&mut self, moment: Instant) -> Option<(Instant, Token)> {
        if self.first()? > moment {
            return None;
        }
        self.heap.pop().map(|Reverse((due, token))| (due, Token(token)))
    }
}

#[cfg(test)]
mod tests {
    //! Timers fire in order, and the heap stays within its bound.

    use std::time::Duration;

    use super::*;

    fn later(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn in_order_and_not_before() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let [one, two] = [0; 2].map(|_| table.reserve());
        timers.set(start + later(9), one, &table);
        timers.set(start + later(5), two, &table);
        assert_eq!((timers.first(), timers.next_by(start + later(4))), (Some(start + later(5)), None));
        let fired = [(); 3].map(|()| timers.next_by(start + later(9)));
        assert_eq!(fired, [Some((start + later(5), two)), Some((start + later(9), one)), None]);
    }

    #[test]
    fn timers_of_closed_connections_are_removed() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let out = table.reserve();
        timers.set(start, out, &table);
        for due in 1..1000 {
            let gone = table.reserve();
            timers.set(start + later(due), gone, &table);
            table.free(gone);
            assert!(timers.heap.len() <= 2 * 2 + STALE_MAX);
        }
        assert_eq!(timers.next_by(start), Some((start, out)));
    }

    /// The connection is out while its timer is set. Only the last timer counts.
    #[test]
    fn a_connection_that_sets_many_timers_keeps_one() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let token = table.reserve();
        for due in 1..1000 {
            timers.set(start + later(due), token, &table);
            assert!(timers.heap.len() <= 2 + STALE_MAX, "{}", timers.heap.len());
        }
        let fired: Vec<_> = std::iter::from_fn(|| timers.next_by(start + later(1000))).collect();
        assert_eq!(fired.last(), Some(&(start + later(999), token)));
    }
}
