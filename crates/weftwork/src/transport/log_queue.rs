//! Passes the log lines of the library to a thread that calls the logger, because a logger may block.
//!
//! If nothing reads the output of a log, the logger waits. Lines of loops, of the monitor and of pool threads therefore
//! go through a bounded queue. A line that does not fit is dropped and counted, at every level. While no server runs,
//! nothing can be held up, and a line is written by the thread that has it.
//!
//! If the program has no logger, the lines for the operator go to stderr while a server runs: errors, warnings, and the
//! addresses.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use log::{Level, LevelFilter, Record};

use crate::message::drop_caught::caught;

/// Lines in the queue. Clients cause at most ten lines a second, and handlers any number.
const LINES_MAX: usize = 4096;
/// Bytes in the queue. An error of a handler can be long.
const BYTES_MAX: usize = 1 << 20;
/// Time to write the lines that are left when the last server ends. A slow log writes them within that time.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Logs a line at a level of [`log::Level`], without a wait for the logger. `Start` is `Info` for the operator.
macro_rules! log_line {
    (Start, $($line:tt)+) => { log_line!(@ Info, true, $($line)+) };
    ($level:ident, $($line:tt)+) => {
        log_line!(@ $level, matches!(log::Level::$level, log::Level::Error | log::Level::Warn), $($line)+)
    };
    (@ $level:ident, $is_for_operator:expr, $($line:tt)+) => {
        $crate::transport::log_queue::submit(
            $crate::transport::log_queue::Origin {
                level: log::Level::$level,
                is_for_operator: $is_for_operator,
                module: module_path!(),
                file: file!(),
                line: line!(),
            },
            format_args!($($line)+),
        )
    };
}
pub(crate) use log_line;

/// Level of a line, and its place in the source.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) level: Level,
    /// Whether the line goes to stderr if the program has no logger.
    pub(crate) is_for_operator: bool,
    pub(crate) module: &'static str,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
}

struct Line {
    origin: Origin,
    text: String,
    /// Lines that were dropped just before this one.
    dropped: u64,
}

struct State {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Lines that were dropped since the last one in the queue.
    dropped: u64,
    /// Servers that need the thread.
    servers: usize,
    /// Servers whose setting `stderr_log` is off.
    silent_servers: usize,
    has_thread: bool,
}

/// The logger belongs to the process, and so does the queue.
struct LogQueue {
    state: Mutex<State>,
    /// Notified when the thread has a line to write, or has to end.
    submitted: Condvar,
    /// Notified when the thread ends.
    ended: Condvar,
    dropped: AtomicU64,
}

static QUEUE: LogQueue = LogQueue::new();

/// Keeps the logging thread while a server runs. The last one to be dropped waits half a second for the queued lines.
#[derive(Debug)]
pub(crate) struct LogThread {
    is_silent: bool,
}

impl LogThread {
    /// Starts the thread, unless it runs. `stderr_log` is the setting.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(stderr_log: bool) -> io::Result<LogThread> {
        let mut state = QUEUE.lock();
        if !state.has_thread {
            Builder::new().name("weft-log".into()).spawn(|| QUEUE.write_lines(write))?;
            state.has_thread = true;
        }
        Ok(state.counted(!stderr_log))
    }
}

impl Clone for LogThread {
    fn clone(&self) -> LogThread {
        QUEUE.lock().counted(self.is_silent)
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let mut state = QUEUE.lock();
        state.servers -= 1;
        state.silent_servers -= usize::from(self.is_silent);
        if state.servers == 0 {
            QUEUE.submitted.notify_one();
            // If the log is stuck, its thread is left behind.
            let is_wanted = |state: &mut State| state.has_thread && state.servers == 0;
            drop(QUEUE.ended.wait_timeout_while(state, LAST_LINES, is_wanted));
        }
    }
}

/// Returns how many lines were dropped since the process has started.
pub(crate) fn dropped() -> u64 {
    QUEUE.dropped.load(Ordering::Relaxed)
}

/// Returns whether lines of this level are logged. The logger's own check may wait, so the thread makes that check.
pub(crate) fn is_enabled(level: Level) -> bool {
    level <= log::STATIC_MAX_LEVEL && level <= log::max_level()
}

/// Returns whether the program has installed a logger. `log` does not tell, but its own logger, which does nothing, has no
/// size, and nothing has set a level for it.
fn has_logger() -> bool {
    log::max_level() != LevelFilter::Off || size_of_val(log::logger()) > 0
}

#[cold]
fn writes_to_stderr(level: Level) -> bool {
    level <= log::STATIC_MAX_LEVEL && !has_logger() && QUEUE.lock().writes_to_stderr()
}

/// Logs a line: see [`log_line`].
pub(crate) fn submit(origin: Origin, text: fmt::Arguments<'_>) {
    if is_enabled(origin.level) || (origin.is_for_operator && writes_to_stderr(origin.level)) {
        QUEUE.submit(Line { origin, text: formatted(text), dropped: 0 });
    }
}

/// Formats a line. A panic of a value in the line, which may be the user's, costs only the rest of the line.
fn formatted(text: fmt::Arguments<'_>) -> String {
    let mut line = String::new();
    if !caught(|| line.write_fmt(text).is_ok(), |_| false) {
        line.push_str(" (the rest of this line failed while it was formatted)");
    }
    line
}

impl State {
    fn counted(&mut self, is_silent: bool) -> LogThread {
        self.servers += 1;
        self.silent_servers += usize::from(is_silent);
        LogThread { is_silent }
    }

    /// One server that is told to be silent is enough, because stderr belongs to the process.
    fn writes_to_stderr(&self) -> bool {
        self.servers > 0 && self.silent_servers == 0
    }
}

impl LogQueue {
    const fn new() -> LogQueue {
        let lines = VecDeque::new();
        let state = State { lines, bytes: 0, dropped: 0, servers: 0, silent_servers: 0, has_thread: false };
        LogQueue {
            state: Mutex::new(state),
            submitted: Condvar::new(),
            ended: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, mut line: Line) {
        let mut state = self.lock();
        if !state.has_thread {
            drop(state);
            return write(line.origin, format_args!("{}", line.text));
        }
        if state.lines.len() >= LINES_MAX || state.bytes + line.text.len() > BYTES_MAX {
            state.dropped += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        line.dropped = std::mem::take(&mut state.dropped);
        state.bytes += line.text.len();
        state.lines.push_back(line);
        self.submitted.notify_one();
    }

    /// The life of the thread: it writes lines until no server is left, and then the rest of the queue.
    fn write_lines(&self, mut write: impl FnMut(Origin, fmt::Arguments<'_>)) {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.text.len();
                drop(state);
                if line.dropped > 0 {
                    report_dropped(line.dropped, &mut write);
                }
                write(line.origin, format_args!("{}", line.text));
                state = self.lock();
            } else if state.dropped > 0 {
                let dropped = std::mem::take(&mut state.dropped);
                drop(state);
                report_dropped(dropped, &mut write);
                state = self.lock();
            } else if state.servers == 0 {
                state.has_thread = false;
                self.ended.notify_all();
                return;
            } else {
                state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

fn report_dropped(lines: u64, write: &mut impl FnMut(Origin, fmt::Arguments<'_>)) {
    let origin = Origin {
        level: Level::Warn,
        is_for_operator: true,
        module: module_path!(),
        file: file!(),
        line: line!(),
    };
    write(origin, format_args!("{lines} log lines were dropped here, because the log took too long"));
}

/// Calls the logger, or writes to stderr without it. A logger that panics loses the line, and nothing can report that.
fn write(origin: Origin, text: fmt::Arguments<'_>) {
    if !has_logger() {
        return write_to_stderr(origin.level, text);
    }
    let Origin { level, module, file, line, .. } = origin;
    let mut record = Record::builder();
    record.level(level).target(module).module_path_static(Some(module));
    let record = record.file_static(Some(file)).line(Some(line)).args(text).build();
    caught(|| log::logger().log(&record), |_| ());
}

/// Writes a line at once, so that lines of other programs do not split it. stderr may be closed.
fn write_to_stderr(level: Level, text: fmt::Arguments<'_>) {
    let level = match level {
        Level::Error => "error: ",
        Level::Warn => "warning: ",
        _ => "",
    };
    let line = format!("weftwork: {level}{text}\n");
    _ = io::stderr().lock().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin =
        Origin { level: Level::Info, is_for_operator: false, module: "here", file: "log_queue.rs", line: 1 };

    fn queue_with(texts: impl IntoIterator<Item = String>) -> LogQueue {
        let queue = LogQueue::new();
        // No thread takes the lines before the test does.
        queue.lock().has_thread = true;
        texts.into_iter().for_each(|text| queue.submit(Line { origin: ORIGIN, text, dropped: 0 }));
        queue
    }

    /// Returns all lines, as they are written at the end of the last server.
    fn written(queue: &LogQueue) -> Vec<String> {
        let mut lines = Vec::new();
        queue.write_lines(|_, text| lines.push(text.to_string()));
        lines
    }

    #[test]
    fn lines_that_do_not_fit_are_counted_where_they_are_missing() {
        let queue = queue_with((0..LINES_MAX + 3).map(|number| number.to_string()));
        assert_eq!((queue.lock().lines.len(), queue.dropped.load(Ordering::Relaxed)), (LINES_MAX, 3));
        queue.lock().lines.pop_front();
        queue.submit(Line { origin: ORIGIN, text: "next".into(), dropped: 0 });
        queue.submit(Line { origin: ORIGIN, text: "too much".into(), dropped: 0 });
        let lines = written(&queue);
        let dropped = |count| format!("{count} log lines were dropped here, because the log took too long");
        assert_eq!(lines.len(), LINES_MAX + 2);
        let end = [(LINES_MAX - 1).to_string(), dropped(3), "next".into(), dropped(1)];
        assert_eq!(lines[LINES_MAX - 2..], end);
    }

    #[test]
    fn long_lines_fill_the_queue_sooner() {
        let queue = queue_with((0..5).map(|_| "x".repeat(BYTES_MAX / 4)));
        assert_eq!((queue.lock().lines.len(), queue.dropped.load(Ordering::Relaxed)), (4, 1));
        assert_eq!(written(&queue).len(), 5);
        let state = queue.lock();
        assert_eq!((state.bytes, state.has_thread), (0, false));
    }

    #[test]
    fn a_value_that_panics_costs_the_rest_of_its_line() {
        struct Mine;
        impl fmt::Display for Mine {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("as asked")
            }
        }
        let line = formatted(format_args!("a handler failed at GET /: {Mine}, request 7"));
        assert_eq!(line, "a handler failed at GET /:  (the rest of this line failed while it was formatted)");
    }
}
