//! Pauses of a streamed body's writer, during which it notices that the client has gone.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::ConnExchange;
use crate::conn::Readiness;
use crate::message::exchange::Exchange;
use crate::transport::context::Stage;
use crate::transport::stream::{is_timed_out, is_would_block};

/// Bytes from the client that are kept while its response is written: the rest of its request, and the next requests.
const AHEAD_BYTES_MAX: usize = 64 << 10;

impl ConnExchange<'_> {
    /// Waits for this time. Returns false if the server has begun to stop. The stop ends only the first wait, because
    /// otherwise a writer that continues would spin.
    pub(super) fn pause_for(&mut self, timeout: Duration) -> io::Result<bool> {
        self.flush()?;
        let until = self.wait.now().after(timeout);
        let knows = self.streamed.as_ref().is_some_and(|streamed| streamed.knows_of_stop);
        let stage = if knows { Stage::Draining } else { Stage::Running };
        loop {
            if self.cx.stage() > stage {
                return self.say_stop(knows);
            }
            let is_full = self.bytes_kept() > AHEAD_BYTES_MAX;
            let waited = self.wait_unseen(until, |live| {
                // A client that sends without end is not read any further. The next write notices if it has gone.
                let fd = if is_full { live.cx.stage_fd(stage) } else { live.conn.stream.as_fd() };
                live.wait.wait_ready(fd, Readiness::Read, until, stage)
            });
            match waited {
                Ok(()) if is_full => {}
                Ok(()) => self.look_for_end()?,
                Err(error) if is_timed_out(&error) => return Ok(!knows),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    return self.say_stop(knows);
                }
                Err(error) => return Err(error),
            }
        }
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
