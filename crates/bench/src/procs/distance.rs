//! How far is the load's core from the server's? On hardware that does not change. The host of a virtual machine may
//! move its cores about, every few seconds: a cache line then takes 50 ns there and back, or 500, and as a request
//! goes from one core to the other in dozens of them, one and the same server uses 2.6 or 6.5 us for it, with the same
//! number of instructions.
//!
//! So where both distances occur, a cell counts if the cores were as far apart as they mostly are while both are busy, in
//! each look before it, within it (every tenth of a second, where the load is our own) and after it; otherwise it is
//! measured again. That gets a sixth of the run's time at most, and the cells that were taken all the same are counted.

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
use crate::report::{median, rounded};

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
/// Waits and tries that do not count may take so long in one cell.
const CELL_SPENT_MAX: Duration = Duration::from_secs(20);
/// And this part of the run's time in all.
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
    /// All that were looked at; the idle and those at a fixed rate leave cores at rest, and are not.
    #[serde(default)]
    cells: usize,
    /// Of these the ones that were taken before it was known where the cores go.
    #[serde(default)]
    cells_before: usize,
    /// And later ones that were taken though a look found the cores elsewhere.
    #[serde(default)]
    cells_elsewhere: usize,
}

impl fmt::Display for Distances {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distances { near_ns, far_ns, counted, cells, cells_before, cells_elsewhere } = self;
        let counted = if *counted == Apart::Far { "far apart" } else { "near" };
        write!(
            out,
            "The host moves the cores: a cache line takes {near_ns:.0} ns from one to the other and back at best, and \
             {far_ns:.0} where they are far apart; cells count where they are {counted}."
        )?;
        match (cells_before, cells_elsewhere) {
            (0, 0) => Ok(()),
            (0, elsewhere) => {
                write!(out, " Of {cells} cells {elsewhere} found them elsewhere for part of the time.")
            }
            (before, elsewhere) => write!(
                out,
                " Of {cells} cells {before} were taken before both distances were met, and {elsewhere} of the later ones found \
                 the cores elsewhere for part of the time."
            ),
        }
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
    /// Fixed when both distances are known.
    counted: Option<Apart>,
    since: Instant,
    try_since: Instant,
    /// On waits, and on tries that do not count; in this cell, and in all.
    cell_spent: Duration,
    spent: Duration,
    /// Each look of this try found the cores where they should be.
    stayed: bool,
    cells: usize,
    cells_before: usize,
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
        if distance.is_moved() {
            distance.counted();
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
            counted: None,
            since: now,
            try_since: now,
            cell_spent: Duration::ZERO,
            spent: Duration::ZERO,
            stayed: true,
            cells: 0,
            cells_before: 0,
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
    fn counted(&mut self) -> Apart {
        if let Some(counted) = self.counted.or(self.asked) {
            self.counted = Some(counted);
            return counted;
        }
        let far = self.busy.iter().filter(|trip| self.is_far(**trip)).count();
        let mostly = if far * 2 > self.busy.len() { Apart::Far } else { Apart::Near };
        *self.counted.insert(mostly)
    }

    /// None: there was one distance only.
    pub(crate) fn met(&self) -> Option<Distances> {
        let far_ns = median(self.far.clone()).filter(|_| self.is_moved())?;
        Some(Distances {
            near_ns: rounded(self.near_ns),
            far_ns: rounded(far_ns),
            counted: self.counted?,
            cells: self.cells,
            cells_before: self.cells_before,
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

    /// Where the cores are now.
    pub(crate) fn apart(&mut self) -> Result<Apart> {
        if self.is_shared() { Ok(Apart::Near) } else { Ok(self.note(trip_ns(self.cores)?)) }
    }

    pub(crate) fn begin_cell(&mut self) {
        self.cell_spent = Duration::ZERO;
    }

    /// Waits until the cores are where they should be, while there is time for that. Busy ones are soon moved apart,
    /// those that rest come close (76 to 98 % of the time far, and 28 to 43 %, on one host).
    pub(crate) fn begin_try(&mut self) -> Result<()> {
        let start = Instant::now();
        self.stayed = self.is_wanted()?;
        while !self.stayed && self.has_time_for(start.elapsed()) {
            interrupt::sleep(if self.counted() == Apart::Far { Duration::ZERO } else { PAUSE })?;
            self.stayed = self.is_wanted()?;
        }
        self.spend(start.elapsed());
        self.try_since = Instant::now();
        Ok(())
    }

    /// Whether this try is the one that counts: the cores have stayed, or there is no time for another.
    pub(crate) fn ends_cell(&mut self) -> Result<bool> {
        self.look()?;
        Ok(self.takes(self.try_since.elapsed()))
    }

    fn takes(&mut self, tried: Duration) -> bool {
        if !self.stayed && self.has_time_for(tried) {
            self.spend(tried);
            return false;
        }
        self.cells += 1;
        match self.is_moved() {
            false => self.cells_before += 1,
            true => self.cells_elsewhere += usize::from(!self.stayed),
        }
        true
    }

    fn has_time_for(&self, more: Duration) -> bool {
        let run = self.since.elapsed();
        self.cell_spent + more < CELL_SPENT_MAX && (self.spent + more) * RUN_PART < run
    }

    fn spend(&mut self, time: Duration) {
        self.cell_spent += time;
        self.spent += time;
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
        distance.counted();
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

    /// Both distances are known, and the run has lasted a minute: ten seconds of it may be spent.
    fn after_a_minute() -> Distance {
        let mut distance = distance(None);
        [50.0, 500.0, 500.0, 500.0].iter().for_each(|trip| {
            distance.note(*trip);
        });
        distance.counted();
        distance.since = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        distance
    }

    #[track_caller]
    fn cells(distance: &Distance, all: usize, elsewhere: usize) {
        let met = distance.met().unwrap();
        assert_eq!((met.cells, met.cells_elsewhere), (all, elsewhere));
    }

    #[test]
    fn a_try_that_found_the_cores_elsewhere_is_repeated_for_a_sixth_of_the_run() {
        let (mut distance, try_of) = (after_a_minute(), Duration::from_secs(4));
        assert!(distance.takes(try_of));
        cells(&distance, 1, 0);
        distance.stayed = false;
        assert!(!distance.takes(try_of) && !distance.takes(try_of));
        cells(&distance, 1, 0);
        assert!(distance.takes(try_of));
        cells(&distance, 2, 1);
        distance.begin_cell();
        assert!(distance.takes(try_of), "what one cell has spent the others do not have");
    }

    #[test]
    fn one_cell_does_not_spend_all_that_a_long_run_has() {
        let mut distance = after_a_minute();
        distance.since = Instant::now().checked_sub(Duration::from_secs(600)).unwrap();
        distance.stayed = false;
        assert!(!distance.takes(Duration::from_secs(15)));
        assert!(distance.takes(Duration::from_secs(15)));
        distance.begin_cell();
        assert!(!distance.takes(Duration::from_secs(15)));
    }

    #[test]
    fn a_cell_from_before_both_were_known_is_not_said_to_be_where_it_should() {
        let mut distance = distance(None);
        assert!(distance.takes(Duration::ZERO));
        [50.0, 500.0, 500.0, 500.0].iter().for_each(|trip| {
            distance.note(*trip);
        });
        distance.counted();
        let met = distance.met().unwrap();
        assert_eq!((met.cells, met.cells_before, met.cells_elsewhere), (1, 1, 0));
    }

    #[test]
    fn which_of_them_counts_does_not_change_later() {
        let mut distance = distance(None);
        distance.busy = vec![50.0, 55.0];
        [50.0, 500.0, 500.0, 500.0].iter().for_each(|trip| {
            distance.note(*trip);
        });
        assert_eq!(distance.counted(), Apart::Near);
        distance.note(5.0);
        assert_eq!(distance.counted(), Apart::Near);
    }

    #[test]
    fn a_page_says_which_counted_and_of_how_many_cells_that_is_not_true() {
        let says = |counted, cells_before, cells_elsewhere| {
            let met =
                Distances { near_ns: 50.0, far_ns: 500.0, counted, cells: 20, cells_before, cells_elsewhere };
            met.to_string()
        };
        let far = says(Apart::Far, 0, 3);
        assert!(far.contains("50 ns") && far.contains("500 where"), "{far}");
        assert!(far.contains("count where they are far apart. Of 20 cells 3 found"), "{far}");
        let near = says(Apart::Near, 0, 0);
        assert!(near.ends_with("count where they are near."), "{near}");
        let late = says(Apart::Near, 19, 0);
        assert!(
            late.contains("Of 20 cells 19 were taken before both distances were met, and 0 of"),
            "{late}"
        );
    }

    #[test]
    fn a_document_from_before_cells_were_counted_still_reads() {
        let met: Distances =
            serde_json::from_str(r#"{"near_ns":40.0,"far_ns":500.0,"counted":"far"}"#).unwrap();
        assert_eq!((met.cells, met.cells_elsewhere), (0, 0));
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
