//! Counts an open connection of HTTP/2 until the last of its requests is done, also if its client has left before. So a stop waits
//! for a handler that still runs, as over HTTP/1.1.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::events::{Counters, Event};
use super::log_queue::log_line;
use crate::error::{OneLine, panic_message};

/// One open connection. The requests of the connection share it.
#[derive(Debug)]
pub(crate) struct OpenCount(Arc<Counters>);

impl OpenCount {
    /// Takes over a connection that is counted already.
    pub(crate) fn new(counters: Arc<Counters>) -> OpenCount {
        OpenCount(counters)
    }

    /// Counts and logs a panic of a value that a response has left behind.
    #[cold]
    pub(crate) fn note_panic(&self, panic: &(dyn Any + Send)) {
        self.0.count(&Event::Panicked);
        let said = OneLine(panic_message(panic));
        log_line!(Error, "a value of a response panicked as it was dropped: {said}");
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Release);
    }
}
