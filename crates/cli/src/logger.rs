//! Writes log lines to stderr, one line each, with the time.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::OnceLock;
use std::time::SystemTime;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::Serialize;

/// Form of the lines of both logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogStyle {
    Text,
    Json,
}

struct Stderr(LogStyle);

/// Installs the logger for `level` and more severe levels.
pub(crate) fn install(level: LevelFilter, style: LogStyle) {
    static LOGGER: OnceLock<Stderr> = OnceLock::new();
    // Only a second call fails, and its level still applies.
    let _ = log::set_logger(LOGGER.get_or_init(|| Stderr(style)));
    log::set_max_level(level);
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // One write per line keeps the lines of different threads apart. eprintln would panic if stderr is closed.
            let line = line(self.0, SystemTime::now(), record.level(), record.args());
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

#[derive(Serialize)]
struct JsonLine {
    time: String,
    level: String,
    message: String,
}

fn line(style: LogStyle, at: SystemTime, level: Level, message: &Arguments<'_>) -> String {
    let (time, level) =
        (humantime::format_rfc3339_millis(at).to_string(), level.as_str().to_ascii_lowercase());
    match style {
        LogStyle::Text => format!("{time} weft: {level}: {message}\n"),
        LogStyle::Json => {
            let json = serde_json::to_string(&JsonLine { time, level, message: message.to_string() });
            // Cannot fail: text becomes JSON.
            json.unwrap_or_default() + "\n"
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests both forms of a line.

    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_its_time() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_042);
        let said = |style| line(style, at, Level::Warn, &format_args!("a \"b\""));
        assert_eq!(said(LogStyle::Text), "1994-11-06T08:49:37.042Z weft: warn: a \"b\"\n");
        assert_eq!(
            said(LogStyle::Json),
            "{\"time\":\"1994-11-06T08:49:37.042Z\",\"level\":\"warn\",\"message\":\"a \\\"b\\\"\"}\n"
        );
    }
}
