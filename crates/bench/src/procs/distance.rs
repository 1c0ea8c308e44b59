//! How far is the load's core from the server's? On hardware that does not change. The host of a virtual machine may
//! move its cores about, every few seconds: a cache line then takes 50 ns there and back, or 500, and as a request
//! goes from one core to the other in dozens of them, one and the same server uses 2.6 or 6.5 us for it, with the same
//! number of instructions.
//!
//! So where both distances occur, a cell counts if the cores were as far apart as they mostly are while both are busy, in
//! each look before it, at every tenth of a second of it and after it; otherwise it is measured again. A host that moves
//! them too often for that gets a sixth of the run's time, and the cells that were taken wherever the cores were are
//! counted.

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
use crate::report::median;

/// Trips of one throw: 50 us where they are long.
const TRIPS: u32 = 100;
/// Of so many throws the shortest is believed: an interrupt makes one longer, nothing makes one shorter.
const THROWS: u32 = 3;
/// How long the cores are looked at before the run: half of it with both busy, and half of it at rest, which a host
/// moves closer together.
const SURVEY: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(50);
/// So many times the shortest trip is far. In between lies noise, and the look in which the cores were moved; two cores
/// that are one in truth are half as far from each other as two beside each other.
const FAR_OVER_NEAR: f64 = 4.0;
/// So many far looks make a distance; one alone may be an interrupted one.
const FAR_LOOKS_MIN: usize = 3;
/// How long one cell waits for the cores to be where they should, its tries included.
const CELL_MAX: Duration = Duration::from_secs(20);
/// All cells together: this part of the run's time.
const RUN_PART: u32 = 6;

/// Where the cores should be while a cell is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Apart {
    Far,
    Near,
}

/// What was met where the host moves the cores: nanoseconds of a trip and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distances {
    near_ns: f64,
    far_ns: f64,
    counted: Apart,
    cells: usize,
    /// Of these the ones that were taken wherever the cores were, after all tries.
    cells_elsewhere: usize,
}

impl fmt::Display for Distances {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distances { near_ns, far_ns, counted, cells, cells_elsewhere } = self;
        let counted = if *counted == Apart::Far { "far apart" } else { "near" };
        write!(
            out,
            "The host moves the cores: a cache line takes {near_ns:.0} or {far_ns:.0} ns from one to the other and back; \
             cells count where they are {counted}, but for {cells_elsewhere} of {cells}, which found them there in no try."
        )
    }
}

#[derive(Debug)]
pub(crate) struct Distance {
    cores: Cores,
    asked: Option<Apart>,
    /// Trips of the survey while both cores were busy.
    busy: Vec<f64>,
    /// The shortest trip there was.
    near_ns: f64,
    near_looks: usize,
    /// All that were far.
    far: Vec<f64>,
    since: Instant,
    cell_since: Instant,
    try_since: Instant,
    /// On waits, and on cells that were measured again.
    spent: Duration,
    /// Each look of this try found the cores where they should be.
    stayed: bool,
    cells: usize,
    cells_elsewhere: usize,
}

impl Distance {
    /// Looks for some seconds.
    pub(crate) fn survey(cores: Cores, asked: Option<Apart>) -> Result<Self> {
        let mut distance = Distance::unknown(cores, asked);
        let start = Instant::now();
        while !distance.is_shared() && start.elapsed() < SURVEY / 2 {
            interrupt::check()?;
            let trip = trip_ns(cores)?;
            distance.busy.push(trip);
            distance.note(trip);
        }
        while !distance.is_shared() && !distance.is_moved() && start.elapsed() < SURVEY {
            interrupt::sleep(PAUSE)?;
            distance.note(trip_ns(cores)?);
        }
        Ok(distance)
    }

    fn unknown(cores: Cores, asked: Option<Apart>) -> Self {
        let now = Instant::now();
        Distance {
            cores,
            asked,
            busy: Vec::new(),
            near_ns: f64::INFINITY,
            near_looks: 0,
            far: Vec::new(),
            since: now,
            cell_since: now,
            try_since: now,
            spent: Duration::ZERO,
            stayed: true,
            cells: 0,
            cells_elsewhere: 0,
        }
    }

    /// One core for both sides.
    fn is_shared(&self) -> bool {
        self.cores.server.first == self.cores.load.first
    }

    /// Both distances were met.
    fn is_moved(&self) -> bool {
        self.far.len() >= FAR_LOOKS_MIN
    }

    fn is_far(&self, trip_ns: f64) -> bool {
        trip_ns > self.near_ns * FAR_OVER_NEAR
    }

    /// What was asked for, or else where busy cores mostly are.
    fn counted(&self) -> Apart {
        let far = self.busy.iter().filter(|trip| self.is_far(**trip)).count();
        let mostly = if far * 2 > self.busy.len() { Apart::Far } else { Apart::Near };
        self.asked.unwrap_or(mostly)
    }

    /// None: there was one distance only.
    pub(crate) fn met(&self) -> Option<Distances> {
        let far_ns = median(self.far.clone()).filter(|_| self.is_moved())?;
        Some(Distances {
            near_ns: self.near_ns,
            far_ns,
            counted: self.counted(),
            cells: self.cells,
            cells_elsewhere: self.cells_elsewhere,
        })
    }

    /// Looks whether the cores still are where they should be.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.stayed &= self.is_wanted()?;
        Ok(())
    }

    fn is_wanted(&mut self) -> Result<bool> {
        if self.is_shared() {
            return Ok(true);
        }
        let apart = self.note(trip_ns(self.cores)?);
        Ok(!self.is_moved() || apart == self.counted())
    }

    fn note(&mut self, trip_ns: f64) -> Apart {
        if trip_ns * FAR_OVER_NEAR < self.near_ns {
            // What there was so far was far.
            self.far = vec![self.near_ns; mem::take(&mut self.near_looks)];
        }
        self.near_ns = self.near_ns.min(trip_ns);
        if self.is_far(trip_ns) {
            self.far.push(trip_ns);
            return Apart::Far;
        }
        self.near_looks += 1;
        Apart::Near
    }

    pub(crate) fn begin_cell(&mut self) {
        self.cell_since = Instant::now();
    }

    /// Waits until the cores are where they should be, while there is time for that. Busy ones are soon moved apart,
    /// those that rest come close (76 to 98 % of the time far, and 28 to 43 %, where that was looked at).
    pub(crate) fn begin_try(&mut self) -> Result<()> {
        self.stayed = true;
        while !self.is_wanted()? {
            if !self.has_time() {
                self.stayed = false;
                break;
            }
            interrupt::sleep(if self.counted() == Apart::Far { Duration::ZERO } else { PAUSE })?;
        }
        self.try_since = Instant::now();
        Ok(())
    }

    /// Whether this try is the one that counts: the cores have stayed, or there is no time for another.
    pub(crate) fn ends_cell(&mut self) -> Result<bool> {
        self.look()?;
        if !self.stayed && self.has_time() {
            return Ok(false);
        }
        self.spent += self.try_since - self.cell_since;
        self.cells += 1;
        self.cells_elsewhere += usize::from(!self.stayed);
        Ok(true)
    }

    fn has_time(&self) -> bool {
        let cell = self.cell_since.elapsed();
        cell < CELL_MAX && (self.spent + cell) * RUN_PART < self.since.elapsed()
    }
}

/// A line of its own: nothing else may be moved with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds that a cache line takes from the load's core to the server's and back.
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
            // Who cannot be pinned says nothing, and nobody waits for the line to come back.
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

    fn distance(asked: Option<Apart>) -> Distance {
        let cores = Cores { server: Span::one(0), load: Span::one(0) };
        Distance::unknown(cores, asked)
    }

    #[track_caller]
    fn check(trips: &[f64], aparts: &[Apart], met: Option<(f64, f64)>) {
        let mut distance = distance(None);
        let noted: Vec<Apart> = trips.iter().map(|trip| distance.note(*trip)).collect();
        assert_eq!(noted, aparts);
        assert_eq!(distance.met().map(|met| (met.near_ns, met.far_ns)), met);
    }

    #[test]
    fn two_distances_are_told_from_noise() {
        use Apart::{Far, Near};
        check(&[], &[], None);
        check(&[100.0, 120.0, 390.0, 98.0], &[Near; 4], None);
        check(&[50.0, 500.0, 52.0, 480.0, 500.0], &[Near, Far, Near, Far, Far], Some((50.0, 500.0)));
        // Whichever comes first.
        check(&[500.0, 510.0, 490.0, 50.0, 505.0], &[Near, Near, Near, Near, Far], Some((50.0, 490.0)));
        // An interrupted look makes no distance, and moves none.
        check(&[50.0, 12_000.0, 51.0], &[Near, Far, Near], None);
        check(&[50.0, 12_000.0, 500.0, 510.0], &[Near, Far, Far, Far], Some((50.0, 510.0)));
    }

    #[test]
    fn it_counts_where_busy_cores_mostly_are_unless_told() {
        let counted = |asked, busy: &[f64]| {
            let mut distance = distance(asked);
            busy.iter().for_each(|trip| {
                distance.note(*trip);
            });
            distance.busy = busy.to_vec();
            distance.counted()
        };
        assert_eq!(counted(None, &[50.0, 500.0, 500.0]), Apart::Far);
        assert_eq!(counted(None, &[50.0, 60.0, 500.0]), Apart::Near);
        assert_eq!(counted(Some(Apart::Near), &[50.0, 500.0, 500.0]), Apart::Near);
        assert_eq!(counted(Some(Apart::Far), &[50.0, 60.0, 500.0]), Apart::Far);
    }

    #[test]
    fn a_cell_is_tried_again_while_there_is_time_and_else_counted() {
        let mut distance = distance(None);
        [50.0, 500.0, 500.0, 500.0].iter().for_each(|trip| {
            distance.note(*trip);
        });
        let counts = |distance: &Distance| distance.met().map(|met| (met.cells, met.cells_elsewhere));
        let mut cell = |stayed: bool, ago: Duration| {
            distance.since = Instant::now().checked_sub(ago).unwrap();
            distance.begin_cell();
            distance.try_since = distance.cell_since;
            distance.stayed = stayed;
            (distance.ends_cell().unwrap(), counts(&distance))
        };
        assert_eq!(cell(true, Duration::ZERO), (true, Some((1, 0))));
        assert_eq!(cell(false, Duration::from_secs(5)), (false, Some((1, 0))));
        assert_eq!(cell(false, Duration::ZERO), (true, Some((2, 1))));
    }

    #[test]
    fn a_page_says_which_counted() {
        let says = |counted| {
            let met = Distances { near_ns: 50.0, far_ns: 500.0, counted, cells: 20, cells_elsewhere: 3 };
            met.to_string()
        };
        let far = says(Apart::Far);
        assert!(far.contains("50 or 500 ns") && far.contains("are far apart, but for 3 of 20, "), "{far}");
        assert!(says(Apart::Near).contains("are near, but"), "{}", says(Apart::Near));
    }

    #[test]
    fn a_core_has_no_distance_from_itself() {
        let mut distance = distance(None);
        assert!(distance.is_wanted().unwrap());
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
