//! Measures how far the load's core is from the server's. On hardware the distance does not change. The host of a virtual machine may
//! move its cores, every few seconds: a cache line then takes 50 ns there and back, or 500. As a request goes from one core to the other
//! in dozens of cache lines, the same server uses 2.6 or 6.5 us for it, with the same number of instructions.
//!
//! So the cores are looked at before and after each cell, and the run says where they were. `turns` compares only rounds in which they
//! stayed.

use std::fmt;
use std::hint;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::pin::{Cores, Span, pin};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::results::{median, rounded};

/// Trips of one throw: 50 us if they are long.
const TRIPS: u32 = 100;
/// Of so many throws the shortest counts: an interrupt makes a throw longer, nothing makes it shorter.
const THROWS: u32 = 3;
/// How long the cores are looked at before the run: half of it with both busy, and half of it at rest, which a host moves closer together.
const SURVEY: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(50);
/// So many times the shortest trip is far. In between lies noise, and the look in which the cores were moved. Two cores that are one in
/// truth are half as far from each other as two beside each other.
const FAR_OVER_NEAR: f64 = 4.0;
/// So many far looks make a distance. A single one may be an interrupted one.
const FAR_LOOKS_MIN: usize = 3;

/// Where the cores are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    Far,
    Near,
}

/// Both distances of a host that moves the cores: nanoseconds of a trip and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distances {
    near_ns: f64,
    far_ns: f64,
    /// Cells by where the cores were before and after them. Idle connections and fixed rates leave cores at rest, and are not looked at.
    cells_near: usize,
    cells_far: usize,
    /// The cores were moved, or were not known to be near or far yet.
    cells_moved: usize,
}

impl fmt::Display for Distances {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distances { near_ns, far_ns, cells_near, cells_far, cells_moved } = self;
        write!(
            out,
            "The host moves the cores: a cache line takes {near_ns:.0} ns from one to the other and back at best, and {far_ns:.0} if they \
             are far apart. They were near in {cells_near} cells, far apart in {cells_far}, and moved or not known yet in {cells_moved}."
        )
    }
}

#[derive(Debug)]
pub(crate) struct Distance {
    cores: Cores,
    /// The shortest trip so far.
    near_ns: f64,
    near_looks: usize,
    /// All trips that were far.
    far: Vec<f64>,
    /// Near, far, moved.
    cells: [usize; 3],
}

impl Distance {
    /// Looks for some seconds, and warns if the cores are moved.
    pub(crate) fn survey(cores: Cores) -> Result<Self> {
        let mut distance = Distance::unknown(cores);
        let start = Instant::now();
        while !distance.is_shared() && !distance.is_moved() && start.elapsed() < SURVEY {
            interrupt::sleep(if start.elapsed() < SURVEY / 2 { Duration::ZERO } else { PAUSE })?;
            distance.apart()?;
        }
        if distance.is_moved() {
            eprintln!(
                "note: the host moves the cores closer together and apart; 'turns' compares rounds of one distance"
            );
        }
        Ok(distance)
    }

    fn unknown(cores: Cores) -> Self {
        Distance { cores, near_ns: f64::INFINITY, near_looks: 0, far: Vec::new(), cells: [0; 3] }
    }

    /// One core for both sides.
    fn is_shared(&self) -> bool {
        self.cores.server.first == self.cores.load.first
    }

    /// Both distances were met.
    fn is_moved(&self) -> bool {
        self.far.len() >= FAR_LOOKS_MIN
    }

    /// Returns both distances. None: there was one only.
    pub(crate) fn met(&self) -> Option<Distances> {
        let far_ns = median(self.far.clone()).filter(|_| self.is_moved())?;
        let [cells_near, cells_far, cells_moved] = self.cells;
        let (near_ns, far_ns) = (rounded(self.near_ns), rounded(far_ns));
        Some(Distances { near_ns, far_ns, cells_near, cells_far, cells_moved })
    }

    /// Looks where the cores are now.
    pub(crate) fn apart(&mut self) -> Result<Apart> {
        if self.is_shared() { Ok(Apart::Near) } else { Ok(self.note(trip_ns(self.cores)?)) }
    }

    /// Measures a cell between two looks.
    pub(crate) fn watch<T>(&mut self, cell: impl FnOnce() -> Result<T>) -> Result<T> {
        let (was_known, before) = (self.is_moved(), self.apart()?);
        let measured = cell();
        let place = match (before, self.apart()?) {
            (Apart::Near, Apart::Near) if was_known => 0,
            (Apart::Far, Apart::Far) if was_known => 1,
            _ => 2,
        };
        self.cells[place] += 1;
        measured
    }

    fn note(&mut self, trip_ns: f64) -> Apart {
        if trip_ns * FAR_OVER_NEAR < self.near_ns {
            // All trips so far were far.
            self.far = vec![self.near_ns; mem::take(&mut self.near_looks)];
        }
        self.near_ns = self.near_ns.min(trip_ns);
        if trip_ns > self.near_ns * FAR_OVER_NEAR {
            self.far.push(trip_ns);
            return Apart::Far;
        }
        self.near_looks += 1;
        Apart::Near
    }
}

/// A cache line that holds nothing else.
#[repr(align(128))]
struct Line(AtomicU32);

/// Returns the nanoseconds that a cache line takes from the load's core to the server's and back.
fn trip_ns(cores: Cores) -> Result<f64> {
    let line = &Line(AtomicU32::new(0));
    let pass = |from: u32, to: u32| {
        while line.0.load(Ordering::Acquire) != from {
            hint::spin_loop();
        }
        line.0.store(to, Ordering::Release);
    };
    thread::scope(|scope| {
        let (pinned, is_pinned) = mpsc::channel();
        scope.spawn(move || {
            // A thread that cannot be pinned says nothing, and the line is not waited for.
            if pin(Span::one(cores.server.first)).is_ok() && pinned.send(()).is_ok() {
                (0..THROWS * TRIPS).for_each(|trip| pass(2 * trip + 1, 2 * trip + 2));
            }
        });
        let unpinned = || Failure::Run("a look from core to core could not be pinned".to_owned());
        is_pinned.recv().map_err(|_| unpinned())?;
        let mut shortest = f64::INFINITY;
        for throw in 0..THROWS {
            let start = Instant::now();
            (throw * TRIPS..(throw + 1) * TRIPS).for_each(|trip| pass(2 * trip, 2 * trip + 1));
            shortest = shortest.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS));
        }
        Ok(shortest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(trips: &[f64], aparts: &[Apart], met: Option<(f64, f64)>) {
        let mut distance = Distance::unknown(Cores { server: Span::one(0), load: Span::one(0) });
        let noted: Vec<Apart> = trips.iter().map(|trip| distance.note(*trip)).collect();
        assert_eq!(noted, aparts);
        assert_eq!(distance.met().map(|met| (met.near_ns, met.far_ns)), met);
    }

    #[test]
    fn two_distances_are_distinguished_from_noise() {
        use Apart::{Far, Near};
        check(&[], &[], None);
        check(&[100.0, 120.0, 390.0, 98.0], &[Near; 4], None);
        check(&[50.0, 500.0, 52.0, 480.0, 500.0], &[Near, Far, Near, Far, Far], Some((50.0, 500.0)));
        // Far first.
        check(&[500.0, 510.0, 490.0, 50.0, 505.0], &[Near, Near, Near, Near, Far], Some((50.0, 490.0)));
        // An interrupted look makes no distance, and moves none.
        check(&[50.0, 12_000.0, 51.0], &[Near, Far, Near], None);
        check(&[50.0, 12_000.0, 500.0, 510.0], &[Near, Far, Far, Far], Some((50.0, 510.0)));
    }

    #[test]
    fn cells_count_where_the_cores_were() {
        // One core for both sides, so that every look finds them near.
        let mut distance = Distance::unknown(Cores { server: Span::one(0), load: Span::one(0) });
        distance.watch(|| Ok(())).unwrap();
        for trip in [50.0, 500.0, 500.0, 500.0] {
            distance.note(trip);
        }
        distance.watch(|| Ok(())).unwrap();
        let met = distance.met().unwrap();
        assert_eq!((met.cells_near, met.cells_far, met.cells_moved), (1, 0, 1));
        assert!(met.to_string().contains("They were near in 1 cells, far apart in 0"), "{met}");
    }

    #[test]
    fn a_core_has_no_distance_from_itself() {
        let mut distance = Distance::unknown(Cores { server: Span::one(0), load: Span::one(0) });
        assert_eq!(distance.apart().unwrap(), Apart::Near);
        assert_eq!(distance.met(), None);
    }

    #[test]
    fn a_trip_between_two_cores_takes_time() {
        let cores = Cores::default();
        // A machine of one core has nothing to look at.
        if cores.check().is_ok() {
            thread::spawn(move || {
                pin(cores.load).unwrap();
                assert!(trip_ns(cores).unwrap() > 1.0);
            })
            .join()
            .unwrap();
        }
    }
}
