//! What does a server say of its end, where its log may be stuck?
//!
//! A log whose reader has stopped reading blocks whoever writes a line. That must neither keep a server from stopping nor
//! its process from ending, so the lines are written by a thread of their own, which is left behind if it has to be.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// How long the end waits for its lines: a log that is only slow takes them within that.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct LastWords {
    /// None: the system gives no thread for them.
    writer: Option<Writer>,
    /// Written when all else is done.
    kept: Vec<String>,
}

struct Writer {
    lines: Sender<String>,
    /// Hung up when all is written.
    written: Receiver<Infallible>,
}

impl LastWords {
    pub(super) fn begin() -> LastWords {
        let (lines, said) = channel::<String>();
        let (writes, written) = channel();
        let write = move || {
            let _writes = writes;
            said.into_iter().for_each(|line| log::info!("{line}"));
        };
        let started = Builder::new().name("weft-last-words".into()).spawn(write);
        LastWords { writer: started.is_ok().then_some(Writer { lines, written }), kept: Vec::new() }
    }

    pub(super) fn say(&mut self, line: impl Into<String>) {
        match &self.writer {
            // It has gone only if the logger panicked.
            Some(writer) => drop(writer.lines.send(line.into())),
            None => self.kept.push(line.into()),
        }
    }

    /// Waits until all is written, for a moment at most.
    pub(super) fn end(self) {
        if let Some(Writer { lines, written }) = self.writer {
            drop(lines);
            // Hung up or too late: it is over.
            let _ = written.recv_timeout(PATIENCE);
        }
        // The signals end the process again by now, should this block.
        self.kept.into_iter().for_each(|line| log::info!("{line}"));
    }
}
