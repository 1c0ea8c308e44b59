//! Writes log lines to stderr, one line each.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

/// Installs the logger for `level` and more severe levels.
pub(crate) fn install(level: LevelFilter) {
    // Only a second call fails, and its level still applies.
    let _ = log::set_logger(&Stderr);
    log::set_max_level(level);
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            // One write per line keeps the lines of different threads apart. eprintln would panic if stderr is closed.
            let line = format!("weft: {level}: {}\n", record.args());
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}
