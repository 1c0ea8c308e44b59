//! Ends the run at Ctrl-C. Signals only set a flag, so that every guard still drops and no server outlives the bench.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Result};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
const LOOK: Duration = Duration::from_millis(50);

/// From here on SIGINT, SIGTERM and SIGHUP end the run at the next [`check`].
pub fn install() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&REQUESTED))?;
    }
    Ok(())
}

/// Fails if the run is to end.
pub fn check() -> Result<()> {
    if REQUESTED.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Sleeps, but not past an interrupt.
pub fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}
