//! Logs the lines of a shutdown from a thread of its own, because the log may be stuck.
//!
//! If nothing reads the log's output any more, writing a line blocks. That must not keep a server from stopping, or its
//! process from ending. So a thread writes the lines, and it is left behind if it blocks.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// Time that the shutdown waits for its lines. A slow log writes them within that time.
const END_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct ShutdownLog {
    /// Absent if the system refuses a thread.
    writer: Option<Writer>,
    /// Lines to write at the end, if there is no thread.
    kept: Vec<String>,
}

struct Writer {
    lines: Sender<String>,
    /// Closed when all lines are written.
    written: Receiver<Infallible>,
}

impl ShutdownLog {
    pub(super) fn begin() -> ShutdownLog {
        let (lines, said) = channel::<String>();
        let (writes, written) = channel();
        let write = move || {
            let _writes = writes;
            said.into_iter().for_each(|line| log::info!("{line}"));
        };
        let started = Builder::new().name("weft-shutdown".into()).spawn(write);
        ShutdownLog { writer: started.is_ok().then_some(Writer { lines, written }), kept: Vec::new() }
    }

    pub(super) fn say(&mut self, line: impl Into<String>) {
        match &self.writer {
            // The receiver has gone only if the logger panicked.
            Some(writer) => drop(writer.lines.send(line.into())),
            None => self.kept.push(line.into()),
        }
    }

    /// Waits until all lines are written, for at most half a second.
    pub(super) fn end(self) {
        if let Some(Writer { lines, written }) = self.writer {
            drop(lines);
            // The lines are written, or the time is up.
            let _ = written.recv_timeout(END_TIMEOUT);
        }
        // The signals end the process again by now, even if this blocks.
        self.kept.into_iter().for_each(|line| log::info!("{line}"));
    }
}
