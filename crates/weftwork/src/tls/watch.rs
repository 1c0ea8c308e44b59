//! Runs a thread that reads changed certificate files, warns of certificates that expire, and rotates ticket keys.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use super::live::Live;
use crate::transport::log_queue::log_line;

/// Longest time between two looks at dates and ticket keys.
const INTERVAL_MAX: Duration = Duration::from_secs(60 * 60);

/// Ends its thread when it is dropped. It does not wait for the thread, which may read from a slow disk.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    /// Checks the files each `interval`, or never if it is zero.
    pub(crate) fn start(live: Vec<Arc<Live>>, interval: Duration) -> io::Result<Watch> {
        let signal = Arc::new(Signal::default());
        let theirs = signal.clone();
        Builder::new().name("weft-tls".into()).spawn(move || watch(&live, interval, &theirs))?;
        Ok(Watch(signal))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

fn watch(live: &[Arc<Live>], interval: Duration, signal: &Signal) {
    let pause = if interval.is_zero() { INTERVAL_MAX } else { interval.min(INTERVAL_MAX) };
    let mut until_check = interval;
    loop {
        let guard = signal.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = signal.changed.wait_timeout_while(guard, pause, |is_over| !*is_over);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
        until_check = until_check.saturating_sub(pause);
        let is_due = !interval.is_zero() && until_check.is_zero();
        if is_due {
            until_check = interval;
        }
        let work = || {
            for live in live {
                if is_due {
                    live.check(SystemTime::now());
                }
                live.tick(SystemTime::now());
            }
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            log_line!(Error, "TLS: the check of certificate files panicked, the server goes on");
        }
    }
}
