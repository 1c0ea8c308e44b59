//! Who takes connections in: the loops, which wait at the doors, or threads that come back from calls?
//!
//! Where calls block and connections end with them, so many threads come back that one of them looks at the doors sooner than a
//! loop could be woken for who comes, and a thread by its leader. And whoever is woken from within a client's `connect` is so at
//! that client's cost: between virtual cores, an interrupt through the host. 1 ms blocking with `Connection: close`, 100 at a
//! time, on one core: 35.3 us a request, and 39.4 where a loop waits there (hyper 38.1; cores far apart).

use std::time::Instant;

/// So many looks of the watcher in a row are to find that: one alone says little.
const LOOKS: u32 = 4;

/// What the watcher finds out.
#[derive(Debug)]
pub(super) struct AcceptMode {
    /// So many looks of threads at the doors in each millisecond are often.
    looks_often: u64,
    /// Those, and connections accepted, ever, at the look before, and when that was.
    looks: u32,
    accepted: u64,
    at: Instant,
    /// Looks in a row that have found it.
    often: u32,
}

impl AcceptMode {
    pub(super) fn new(looks_often: u64, at: Instant) -> AcceptMode {
        AcceptMode { looks_often, looks: 0, accepted: 0, at, often: 0 }
    }

    /// One look: threads have looked at the doors so often, ever, and so many connections were accepted. True: the doors may be
    /// left to these threads.
    ///
    /// They are for as long as half as many look. Where most of those who come are none of theirs, each look would find several,
    /// and the loops have them sooner.
    pub(super) fn look(&mut self, looks: u32, accepted: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.at, now));
        let looked = looks.wrapping_sub(std::mem::replace(&mut self.looks, looks));
        let came = accepted.wrapping_sub(std::mem::replace(&mut self.accepted, accepted));
        let enough = if self.often >= LOOKS { self.looks_often / 2 } else { self.looks_often };
        let is_often = u128::from(looked) * 1_000_000 >= passed.as_nanos() * u128::from(enough);
        let is_theirs = came <= 2 * u64::from(looked);
        self.often = if is_often && is_theirs { (self.often + 1).min(LOOKS) } else { 0 };
        self.often >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    //! The doors are left to threads that look there often enough, and for as long as they do.

    use std::time::Duration;

    use super::*;

    /// What comes of a look every so many microseconds, of so many looks at the doors and connections each.
    fn looks<const N: usize>(every_micros: u64, seen: [(u32, u64); N]) -> [bool; N] {
        let (mut now, mut looks, mut accepted) = (Instant::now(), 0_u32, 0);
        let mut visits = AcceptMode::new(10, now);
        seen.map(|(looked, came)| {
            now += Duration::from_micros(every_micros);
            (looks, accepted) = (looks.wrapping_add(looked), accepted + came);
            visits.look(looks, accepted, now)
        })
    }

    #[test]
    fn the_doors_are_left_to_who_looks_often_and_not_by_chance() {
        assert_eq!(looks(1000, [(10, 10); 6]), [false, false, false, true, true, true]);
        assert_eq!(looks(1000, [(9, 9); 6]), [false; 6]);
        assert_eq!(
            looks(1000, [(10, 10), (10, 10), (10, 10), (9, 9), (10, 10), (10, 10)]),
            [false; 6],
            "one has found less"
        );
    }

    #[test]
    fn they_are_for_as_long_as_half_as_many_look() {
        let seen = [(10, 10), (10, 10), (10, 10), (10, 10), (5, 5), (4, 4), (10, 10)];
        assert_eq!(looks(1000, seen), [false, false, false, true, true, false, false]);
    }

    /// The watcher may be late, most of all where the cores are full.
    #[test]
    fn how_often_is_a_matter_of_time() {
        assert_eq!(looks(5000, [(49, 49); 4]), [false; 4]);
        assert_eq!(looks(5000, [(50, 50); 4]), [false, false, false, true]);
    }

    /// Most of those who come are answered at once, by the loops that take them in.
    #[test]
    fn they_are_not_where_most_come_for_others() {
        assert_eq!(looks(1000, [(20, 41); 5]), [false; 5]);
        assert_eq!(
            looks(1000, [(20, 40), (20, 40), (20, 40), (20, 40), (20, 41)]),
            [false, false, false, true, false]
        );
    }
}
