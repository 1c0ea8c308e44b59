//! Streams that this side has reset or refused before their client had ended them. What was on its way is dropped, and is no
//! error (RFC 9113 section 5.1).

use std::collections::VecDeque;

use weftwork_wire::Window;

use super::Http2Conn;

/// Minimum number of streams that are remembered. A client learns of a reset within a round trip.
const LATE_MIN: usize = 128;

#[derive(Debug)]
struct LateStream {
    id: u32,
    /// Bytes of DATA that the client was allowed to send.
    window: Window,
}

#[derive(Debug)]
pub(super) struct LateStreams {
    streams: VecDeque<LateStream>,
    streams_max: usize,
}

impl LateStreams {
    /// Remembers as many as may be open at once.
    pub(super) fn new(streams_max: u32) -> LateStreams {
        LateStreams { streams: VecDeque::new(), streams_max: LATE_MIN.max(streams_max as usize) }
    }

    pub(super) fn push(&mut self, id: u32, window: Window) {
        if self.streams.len() >= self.streams_max {
            self.streams.pop_front();
        }
        self.streams.push_back(LateStream { id, window });
    }

    /// Takes a frame. Returns false for a stream that is not remembered, and for more DATA than the client was allowed to send.
    fn take(&mut self, id: u32, flow: u32, ends: bool) -> bool {
        let Some(at) = self.streams.iter().rposition(|stream| stream.id == id) else { return false };
        let is_allowed = self.streams[at].window.take(flow, id).is_ok();
        if ends {
            self.streams.remove(at);
        }
        is_allowed
    }
}

impl Http2Conn {
    /// Drops a frame of a stream that this side has reset. Returns false if the client was not allowed to send it.
    pub(super) fn drops_late(&mut self, stream: u32, flow: u32, ends: bool) -> bool {
        match self.streams.get_mut(stream) {
            Some(entry) if entry.is_reset && !entry.is_closed_by_client() => {
                entry.client_ended = ends;
                entry.recv_window.take(flow, stream).is_ok()
            }
            Some(_) => false,
            None => self.late.take(stream, flow, ends),
        }
    }
}
