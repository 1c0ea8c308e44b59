//! The log of the server. All tests of a process share the log, so a test must look for text that no other test
//! logs.

use std::sync::{Mutex, Once, PoisonError};

use super::eventually;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A line with one of these texts panics, once.
static TRAPS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Makes the thread of the next line that contains `part` panic.
pub(crate) fn panic_at(part: &str) {
    keep_log();
    TRAPS.lock().unwrap_or_else(PoisonError::into_inner).push(part.to_owned());
}

struct TestLogger;

impl log::Log for TestLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        let is_trap = |trap: &String| line.contains(trap.as_str());
        let trapped =
            TRAPS.lock().unwrap_or_else(PoisonError::into_inner).extract_if(.., |trap| is_trap(trap)).count()
                > 0;
        assert!(!trapped, "as asked, within the server: {line}");
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

/// Keeps all lines from now on. Call this before the server starts.
pub(crate) fn keep_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&TestLogger).expect("no other logger");
        log::set_max_level(log::LevelFilter::Info);
    });
}

/// Returns the lines that contain all of `parts`.
pub(crate) fn logged(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
}

/// Waits for a line that contains all of `parts`, and returns the first.
#[track_caller]
pub(crate) fn is_logged(parts: &[&str]) -> String {
    eventually(&format!("{parts:?} are logged"), || !logged(parts).is_empty());
    logged(parts).swap_remove(0)
}
