//! How far is the load's core from the server's? On hardware that does not change. The host of a virtual machine may
//! move its cores about, every few seconds: a cache line then takes 50 ns there and back, or 500, and as a request
//! goes from one core to the other in dozens of them, one and the same server uses 2.6 or 6.5 us for it, with the same
//! number of instructions. Cells of all rounds lay up to 108 % apart by that, and by 2 to 9 % without it.
//!
//! So where both distances occur, a cell counts only if the cores were far apart in each look before it, at every tenth
//! of a second of it and after it, or near where that is asked for. Far is where they are most of the time while both are busy; and a server whose clients are on
//! other machines shares no cache with them.

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
/// How long both distances are looked for: half of it with both cores busy, which a host moves apart, and half of it at
/// rest. Whichever is met later is known from then on.
const SURVEY: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(50);
/// So many times the shortest trip is far. In between lies noise, and the look in which the cores were moved.
const FAR_OVER_NEAR: f64 = 5.0;
/// So many far looks make a distance; one alone may be an interrupted one.
const FAR_LOOKS_MIN: usize = 3;
/// How long a cell waits for the cores to be where they should.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// After so many waits in vain, one after the other, nobody waits any more: it was noise that looked far.
const VAIN_WAITS_MAX: u32 = 3;

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
}

impl fmt::Display for Distances {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distances { near_ns, far_ns, counted } = self;
        let counted = if *counted == Apart::Far { "far apart" } else { "near" };
        write!(
            out,
            "The host moves the cores: a cache line takes {near_ns:.0} or {far_ns:.0} ns from one to the other and back; \
             cells count where they are {counted}."
        )
    }
}

#[derive(Debug)]
pub(crate) struct Distance {
    cores: Cores,
    counted: Apart,
    /// The shortest trip there was.
    near_ns: f64,
    near_looks: usize,
    /// All that were far.
    far: Vec<f64>,
    vain_waits: u32,
    /// Since the last wait each look found the cores where they should be.
    stayed: bool,
}

impl Distance {
    /// Looks for some seconds, or until both distances have been met.
    pub(crate) fn survey(cores: Cores, counted: Apart) -> Result<Self> {
        let mut distance = Distance::unknown(cores, counted);
        let start = Instant::now();
        while !distance.is_shared() && !distance.is_moved() && start.elapsed() < SURVEY {
            distance.is_wanted()?;
            let is_busy = start.elapsed() < SURVEY / 2;
            interrupt::sleep(if is_busy { Duration::ZERO } else { PAUSE })?;
        }
        Ok(distance)
    }

    fn unknown(cores: Cores, counted: Apart) -> Self {
        Distance {
            cores,
            counted,
            near_ns: f64::INFINITY,
            near_looks: 0,
            far: Vec::new(),
            vain_waits: 0,
            stayed: true,
        }
    }

    /// One core for both sides.
    fn is_shared(&self) -> bool {
        self.cores.server.first == self.cores.load.first
    }

    /// Both distances were met.
    fn is_moved(&self) -> bool {
        self.far.len() >= FAR_LOOKS_MIN && self.vain_waits < VAIN_WAITS_MAX
    }

    /// None: there was one distance only.
    pub(crate) fn met(&self) -> Option<Distances> {
        let far_ns = median(self.far.clone()).filter(|_| self.is_moved())?;
        Some(Distances { near_ns: self.near_ns, far_ns, counted: self.counted })
    }

    /// Looks whether the cores still are where they should be.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.stayed &= self.is_wanted()?;
        Ok(())
    }

    /// Whether they were in each look since the last wait.
    pub(crate) fn stayed(&self) -> bool {
        self.stayed
    }

    /// Whether the cores are where they should be.
    fn is_wanted(&mut self) -> Result<bool> {
        if self.is_shared() {
            return Ok(true);
        }
        let apart = self.note(trip_ns(self.cores)?);
        Ok(!self.is_moved() || apart == self.counted)
    }

    fn note(&mut self, trip_ns: f64) -> Apart {
        if trip_ns * FAR_OVER_NEAR < self.near_ns {
            // What there was so far was far.
            self.far = vec![self.near_ns; mem::take(&mut self.near_looks)];
        }
        self.near_ns = self.near_ns.min(trip_ns);
        if trip_ns <= self.near_ns * FAR_OVER_NEAR {
            self.near_looks += 1;
            return Apart::Near;
        }
        self.far.push(trip_ns);
        Apart::Far
    }

    /// Waits until they are, for some seconds at most. Cores that are both busy are soon moved apart (76 to 98 % of the
    /// time far, by four stretches of 48 s), those that rest come close (28 to 43 %).
    pub(crate) fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        self.stayed = true;
        while !self.is_wanted()? {
            if start.elapsed() > WAIT_MAX {
                self.vain_waits += 1;
                return Ok(());
            }
            interrupt::sleep(if self.counted == Apart::Far { Duration::ZERO } else { PAUSE })?;
        }
        if self.is_moved() {
            self.vain_waits = 0;
        }
        Ok(())
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

    fn distance(counted: Apart) -> Distance {
        let cores = Cores { server: Span::one(0), load: Span::one(0) };
        Distance::unknown(cores, counted)
    }

    #[track_caller]
    fn check(trips: &[f64], aparts: &[Apart], met: Option<(f64, f64)>) {
        let mut distance = distance(Apart::Far);
        let noted: Vec<Apart> = trips.iter().map(|trip| distance.note(*trip)).collect();
        assert_eq!(noted, aparts);
        assert_eq!(distance.met().map(|met| (met.near_ns, met.far_ns)), met);
    }

    #[test]
    fn two_distances_are_told_from_noise() {
        use Apart::{Far, Near};
        check(&[], &[], None);
        check(&[100.0, 120.0, 450.0, 95.0], &[Near; 4], None);
        check(&[50.0, 500.0, 52.0, 480.0, 500.0], &[Near, Far, Near, Far, Far], Some((50.0, 500.0)));
        // Whichever comes first.
        check(&[500.0, 510.0, 490.0, 50.0, 505.0], &[Near, Near, Near, Near, Far], Some((50.0, 490.0)));
        // An interrupted look makes no distance, and moves none.
        check(&[50.0, 12_000.0, 51.0], &[Near, Far, Near], None);
        check(&[50.0, 12_000.0, 500.0, 510.0], &[Near, Far, Far, Far], Some((50.0, 510.0)));
    }

    #[test]
    fn what_is_waited_for_in_vain_was_noise() {
        let mut distance = distance(Apart::Far);
        [50.0, 500.0, 500.0, 500.0].iter().for_each(|trip| {
            distance.note(*trip);
        });
        assert!(distance.is_moved());
        distance.vain_waits = VAIN_WAITS_MAX;
        assert!(!distance.is_moved());
        assert_eq!(distance.met(), None);
    }

    #[test]
    fn a_page_says_which_counted() {
        let says = |counted| Distances { near_ns: 50.0, far_ns: 500.0, counted }.to_string();
        let far = says(Apart::Far);
        assert!(far.contains("50 or 500 ns") && far.ends_with("are far apart."), "{far}");
        assert!(says(Apart::Near).ends_with("are near."), "{}", says(Apart::Near));
    }

    #[test]
    fn a_core_has_no_distance_from_itself() {
        let mut distance = distance(Apart::Near);
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
