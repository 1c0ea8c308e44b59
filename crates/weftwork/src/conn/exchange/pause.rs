//! Pauses of a streamed body's writer, during which it notices that the client has gone.

use std::io;
use std::time::Duration;

use super::ConnExchange;
use crate::conn::Readiness;
use crate::message::exchange::Exchange;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::events::ConnState;
use crate::transport::stream::{is_timed_out, is_would_block};

/// Bytes from the client that are kept while its response is written: the rest of its request, and the next requests.
const AHEAD_BYTES_MAX: usize = 64 << 10;

impl ConnExchange<'_> {
    /// Waits for this time. Returns false if the server has begun to stop. The stop ends only one wait, because otherwise
    /// a writer that continues would spin.
    pub(super) fn pause_for(&mut self, timeout: Duration) -> io::Result<bool> {
        self.flush()?;
        self.conn.count.enter(ConnState::Waiting);
        let paused = self.pause_until(self.wait.now().after(timeout));
        self.conn.count.enter(ConnState::Idle);
        paused
    }

    fn pause_until(&mut self, end: Tick) -> io::Result<bool> {
        let knows = self.streamed.as_ref().is_some_and(|streamed| streamed.knows_of_stop);
        loop {
            let stage = self.cx.stage();
            let stops_at = match stage {
                Stage::Running => None,
                Stage::Draining if knows => None,
                Stage::Draining => Some(self.stops_at()),
                Stage::Closing => return self.say_stop(knows),
            };
            if stops_at.is_some_and(|stops_at| self.wait.now() >= stops_at) {
                return self.say_stop(false);
            }
            let until = stops_at.map_or(end, |stops_at| stops_at.min(end));
            let is_full = self.bytes_kept() > AHEAD_BYTES_MAX;
            let waited = self.wait_unseen(until, |live| {
                // A client that sends without end is not read any further. The next write notices if it has gone.
                let (fd, ready) = match is_full {
                    true => (live.cx.stage_fd(stage), Readiness::Read),
                    false => Readiness::Read.of(&live.conn.stream)?,
                };
                live.wait.wait_ready(fd, ready, until, stage)
            });
            match waited {
                Ok(()) if is_full => {}
                Ok(()) => self.look_for_end()?,
                Err(error) if is_timed_out(&error) && until < end => {}
                Err(error) if is_timed_out(&error) => return Ok(!knows),
                // The server has moved on to another stage.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionAborted && stage != self.cx.stage() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns when the writer is told that the server stops.
    fn stops_at(&mut self) -> Tick {
        let (now, cx) = (self.wait.now(), self.cx);
        let delayed = || now.after(cx.stop_delay());
        self.streamed.as_mut().map_or(now, |streamed| *streamed.stops_at.get_or_insert_with(delayed))
    }

    fn say_stop(&mut self, again: bool) -> io::Result<bool> {
        if again {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server cuts its connections"));
        }
        if let Some(streamed) = &mut self.streamed {
            streamed.knows_of_stop = true;
        }
        Ok(false)
    }

    fn bytes_kept(&mut self) -> usize {
        let buffers = self.conn.buffers_mut();
        buffers.input.len() - buffers.raw
    }

    /// Reads what is available: bytes of the client, which are kept, or the end.
    fn look_for_end(&mut self) -> io::Result<()> {
        self.conn.buffers_mut().reserve(1);
        match self.conn.stream.recv(&mut self.conn.buffers.get_or_insert_default().input) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")),
            Ok(_) => Ok(()),
            Err(error) if is_would_block(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
