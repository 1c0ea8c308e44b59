//! Passes lines to a writer that may block, through a queue that never blocks requests.

use crate::error::panic_message;
use crate::message::drop_caught::caught;
use crate::transport::log_queue::log_line;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Time to write the queued lines at the end.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Maximum size of one write, so that a busy log needs few system calls.
const BATCH_BYTES: usize = 64 << 10;
/// Maximum size of the queue, five times the size of typical lines. A client can cause a line of more than a
/// hundred KiB.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// The queue of the writer thread.
pub(super) struct Sink {
    lines: Option<SyncSender<String>>,
    stats: Arc<QueueStats>,
    /// Disconnected when the thread ends.
    ended: Mutex<Receiver<()>>,
}

#[derive(Default)]
struct QueueStats {
    /// Size of the queued lines in bytes.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl Sink {
    pub(super) fn start(writer: Box<dyn Write + Send>, lines_max: usize) -> std::io::Result<Sink> {
        let (lines, queue) = sync_channel(lines_max);
        let (alive, ended) = sync_channel(0);
        let stats = Arc::<QueueStats>::default();
        let shared = stats.clone();
        thread::Builder::new().name("weft-access-log".into()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            write_all(&queue, writer, &shared);
        })?;
        Ok(Sink { lines: Some(lines), stats, ended: Mutex::new(ended) })
    }

    /// Queues a line, or counts it as dropped.
    pub(super) fn submit(&self, line: String) {
        let bytes = line.len();
        let has_room = self.stats.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= QUEUE_BYTES_MAX;
        let taken = has_room && self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        if !taken {
            self.stats.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.stats.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.stats.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.lines.take());
        if let Ok(ended) = self.ended.get_mut() {
            // Returns an error in both cases: the thread has ended, or takes too long.
            let _ = ended.recv_timeout(LAST_LINES);
        }
    }
}

fn write_all(queue: &Receiver<String>, mut writer: Box<dyn Write + Send>, stats: &QueueStats) {
    let mut batch = String::new();
    let mut failing = false;
    while let Ok(line) = queue.recv() {
        batch.clear();
        batch.push_str(&line);
        let mut count = 1;
        while batch.len() < BATCH_BYTES
            && let Ok(line) = queue.try_recv()
        {
            batch.push_str(&line);
            count += 1;
        }
        stats.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        let write = || writer.write_all(batch.as_bytes()).and_then(|()| writer.flush());
        let written = caught(write, |panic| {
            Err(io::Error::other(format!("its writer panicked: {}", panic_message(panic))))
        });
        if let Err(error) = &written {
            stats.dropped.fetch_add(count, Ordering::Relaxed);
            if !failing {
                log_line!(Error, "cannot write the access log, dropping lines: {error}");
            }
        }
        failing = written.is_err();
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}
