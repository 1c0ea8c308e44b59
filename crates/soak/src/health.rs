//! Health checks: a thread that asks again and again, and knows for how much of the time its core or the server's was taken.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use weftwork_bench::{Span, pin};

const EVERY: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The slowest checks are kept one by one.
const SLOWEST_KEPT: usize = 32;

/// One check: how long it took, and for how much of that a core was taken.
#[derive(Clone, Copy, Debug)]
struct Check {
    took: Duration,
    kept_off: Duration,
}

impl Check {
    fn is_late(self, most: Duration) -> bool {
        self.took.saturating_sub(self.kept_off) > most
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Checks {
    micros: Histogram<u64>,
    slowest: Vec<Check>,
    failed: Vec<String>,
    /// Over 100 ms, and how many of these only because of the machine.
    late: usize,
    excused: usize,
}

impl Default for Checks {
    fn default() -> Checks {
        // cannot fail: three digits are among those that a histogram can keep
        let micros = Histogram::new(3).expect("three significant digits");
        Checks { micros, slowest: Vec::new(), failed: Vec::new(), late: 0, excused: 0 }
    }
}

impl Checks {
    fn note(&mut self, check: Check) {
        self.micros.saturating_record(check.took.as_micros() as u64);
        if check.took > super::HEALTH_MAX {
            self.late += 1;
            self.excused += usize::from(!check.is_late(super::HEALTH_MAX));
        }
        self.keep(check);
    }

    fn keep(&mut self, check: Check) {
        let at = self.slowest.partition_point(|kept| kept.took > check.took);
        self.slowest.insert(at, check);
        self.slowest.truncate(SLOWEST_KEPT);
    }

    pub(crate) fn add(&mut self, other: &Checks) {
        self.micros += &other.micros;
        other.slowest.iter().for_each(|check| self.keep(*check));
        self.failed.extend_from_slice(&other.failed);
        self.late += other.late;
        self.excused += other.excused;
    }

    fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.micros.value_at_quantile(quantile))
    }

    /// Returns the checks that took longer than `most`, and not because of the machine.
    pub(crate) fn faults(&self, most: Duration) -> Vec<String> {
        let late = self.slowest.iter().filter(|check| check.is_late(most));
        let mut faults: Vec<String> =
            late.map(|late| format!("a health check took {:.0?} ({most:?} at most)", late.took)).collect();
        faults.extend(self.failed.iter().take(3).map(|why| format!("a health check failed: {why}")));
        if self.micros.is_empty() {
            faults.push("no health check was answered".to_owned());
        }
        faults
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        write!(f, "{} checks, p50 {p50:.2?}, p99 {p99:.2?}", self.micros.len())?;
        if let Some(Check { took, kept_off }) = self.slowest.first() {
            write!(f, ", longest {took:.2?} (a core was taken for {kept_off:.2?})")?;
        }
        write!(f, "; {} late ({} excused), {} failed", self.late, self.excused, self.failed.len())
    }
}

/// The thread that asks. It ends when this is dropped.
pub(crate) struct Prober {
    checks: Arc<Mutex<Checks>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    /// Asks the server on this port, whose cores are `cores`.
    pub(crate) fn start(port: u16, cores: Span) -> Prober {
        let (checks, stop) = (Arc::<Mutex<Checks>>::default(), Arc::<AtomicBool>::default());
        let (into, ends) = (checks.clone(), stop.clone());
        let core = CoreWatch::start(cores, stop.clone());
        let thread = thread::spawn(move || ask_on(port, &core, &into, &ends));
        Prober { checks, stop, thread: Some(thread) }
    }

    /// Returns what was found since the last time.
    pub(crate) fn take(&self) -> Checks {
        std::mem::take(&mut self.checks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// In turn on a connection that is kept, and on a new one.
fn ask_on(port: u16, core: &CoreWatch, checks: &Mutex<Checks>, stop: &AtomicBool) {
    let mut kept = None;
    let mut is_new = false;
    while !stop.load(Ordering::Relaxed) {
        let (kept_off, begun) = (core.kept_off(), Instant::now());
        let answer = if is_new { ask(&mut None, port) } else { ask(&mut kept, port) };
        let took = begun.elapsed();
        let check = Check { took, kept_off: core.kept_off().saturating_sub(kept_off) };
        let mut checks = checks.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(()) => checks.note(check),
            Err(error) => {
                kept = None;
                checks.failed.push(error.to_string());
            }
        }
        drop(checks);
        is_new = !is_new;
        thread::sleep(EVERY);
    }
}

fn ask(kept: &mut Option<TcpStream>, port: u16) -> io::Result<()> {
    let stream = match kept {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            kept.insert(stream)
        }
    };
    stream.write_all(REQUEST)?;
    let mut got = Vec::new();
    let mut part = [0; 1024];
    while !got.ends_with(b"\r\n\r\nOK") {
        match stream.read(&mut part)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer")),
            count => got.extend_from_slice(&part[..count]),
        }
    }
    Ok(())
}

/// A thread on the server's core that only sleeps and wakes. If it wakes late, the core was taken, and the server could not have it either.
struct CoreWatch {
    begun: Instant,
    /// Microseconds since then: how late it has been in all, and when it is to wake next.
    late: AtomicU64,
    due: AtomicU64,
}

impl CoreWatch {
    fn start(cores: Span, stop: Arc<AtomicBool>) -> Arc<CoreWatch> {
        let core = Arc::new(CoreWatch {
            begun: Instant::now(),
            late: AtomicU64::new(0),
            due: AtomicU64::new(u64::MAX),
        });
        let own = core.clone();
        thread::spawn(move || {
            // On another core it knows less, and excuses less.
            let _ = pin(cores);
            while !stop.load(Ordering::Relaxed) {
                let due = own.now() + NAP.as_micros() as u64;
                own.due.store(due, Ordering::Relaxed);
                thread::sleep(NAP);
                own.late.fetch_add(own.now().saturating_sub(due), Ordering::Relaxed);
            }
        });
        core
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Returns how long the server's core and this thread's were taken, in all.
    fn kept_off(&self) -> Duration {
        let overdue = self.now().saturating_sub(self.due.load(Ordering::Relaxed));
        waited_for_core() + Duration::from_micros(self.late.load(Ordering::Relaxed) + overdue)
    }
}

/// Returns how long this thread was ready to run and did not, since it began (the second number of schedstat).
fn waited_for_core() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_lost_to_the_machine_is_excused() {
        let ms = Duration::from_millis;
        let mut checks = Checks::default();
        checks.note(Check { took: ms(1), kept_off: ms(0) });
        checks.note(Check { took: ms(150), kept_off: ms(60) });
        assert_eq!((checks.late, checks.excused), (1, 1));
        assert!(checks.faults(ms(100)).is_empty());
        checks.note(Check { took: ms(150), kept_off: ms(40) });
        assert_eq!((checks.late, checks.excused, checks.faults(ms(100)).len()), (2, 1, 1));
        assert_eq!(Checks::default().faults(ms(100)).len(), 1, "nothing is not well");
    }
}
