//! How the writer of a streamed body lets time pass without missing that its client has gone.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::Live;
use crate::message::exchange::Exchange;
use crate::transport::context::Stage;
use crate::transport::stream::{is_timed_out, is_would_block};

/// What a client may send behind the request whose answer it is reading. Who sends more does not read.
const AHEAD_BYTES_MAX: usize = 64 << 10;

impl Live<'_> {
    /// Waits this long. False: the server has begun to stop. That ends the wait at first, and none after it: a writer that goes on
    /// all the same would spin.
    pub(super) fn pause_for(&mut self, patience: Duration) -> io::Result<bool> {
        self.flush()?;
        let until = self.wait.now().after(patience);
        let knows = self.streamed.as_ref().is_some_and(|streamed| streamed.knows_of_stop);
        let stage = if knows { Stage::Draining } else { Stage::Running };
        loop {
            if self.cx.stage() > stage {
                return self.say_stop(knows);
            }
            let waited =
                self.wait_unseen(until, |live| live.wait.readable_in(live.conn.stream.as_fd(), until, stage));
            match waited {
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

    /// Something is there to read: the next request, which is kept, or the end.
    fn look_for_end(&mut self) -> io::Result<()> {
        let buffers = self.conn.held();
        if buffers.input.len() - buffers.raw > AHEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client sends and does not read"));
        }
        buffers.make_room(1);
        match self.conn.stream.recv(&mut self.conn.buffers.get_or_insert_default().input) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")),
            Ok(_) => Ok(()),
            Err(error) if is_would_block(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
