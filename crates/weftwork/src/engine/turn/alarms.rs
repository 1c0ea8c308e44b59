//! When is a loop to look at connections whose responses are due at a time? To the millisecond, which the wheel of the peers'
//! deadlines is too coarse for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mio::Token;

use super::Table;
use crate::engine::table::index;
use crate::transport::Tick;

/// Alarms of those that have had their responses are swept out when there are this many more than connections.
const STALE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Alarms {
    heap: BinaryHeap<Reverse<(Tick, usize)>>,
}

impl Alarms {
    /// `table` has the other connections. There are never more than two alarms for each, or who asks again and again, and is
    /// answered sooner, would have the heap grow.
    pub(super) fn set(&mut self, due: Tick, token: Token, table: &Table) {
        if self.heap.len() >= 2 * table.len() + STALE_MAX {
            self.heap.retain(|Reverse((due, token))| {
                // One that is out just now will not ask for its alarm again.
                let conn = table.peek(index(Token(*token))).map(|(_, conn)| conn);
                table.owns(Token(*token)) && conn.is_none_or(|conn| conn.response_due() == Some(*due))
            });
        }
        self.heap.push(Reverse((due, token.0)));
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// One that is due.
    pub(super) fn next_by(&mut self, now: Tick) -> Option<Token> {
        let due = self.first()?;
        if due > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token))| Token(token))
    }
}

#[cfg(test)]
mod tests {
    //! Does it ring in order, and does it stay as small as it says?

    use super::*;

    #[test]
    fn in_order_and_not_before() {
        let (mut alarms, mut table) = (Alarms::default(), Table::default());
        let [one, two] = [0; 2].map(|_| table.reserve());
        alarms.set(Tick(9), one, &table);
        alarms.set(Tick(5), two, &table);
        assert_eq!((alarms.first(), alarms.next_by(Tick(4))), (Some(Tick(5)), None));
        assert_eq!([(); 3].map(|()| alarms.next_by(Tick(9))), [Some(two), Some(one), None]);
    }

    #[test]
    fn who_has_gone_is_swept_out_and_who_is_out_is_not() {
        let (mut alarms, mut table) = (Alarms::default(), Table::default());
        let out = table.reserve();
        alarms.set(Tick(1), out, &table);
        for due in 0..1000 {
            let gone = table.reserve();
            alarms.set(Tick(2 + due), gone, &table);
            table.free(gone);
            assert!(alarms.heap.len() <= 2 * 2 + STALE_MAX);
        }
        assert_eq!(alarms.next_by(Tick(1)), Some(out));
    }
}
