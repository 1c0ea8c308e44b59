//! The streams of a connection that are not over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weftwork_wire::{ErrorCode, ExpectedBody, Framing, Priority, Window};

use crate::transport::deadlines::PeerTimer;
use crate::transport::events::Counters;
use crate::transport::stream::StreamPipe;

/// A stream, as its connection knows it.
#[derive(Debug)]
pub(super) struct StreamEntry {
    pub(super) id: u32,
    pub(super) pipe: Arc<StreamPipe>,
    pub(super) priority: Priority,
    /// Bytes of the response that the client takes.
    pub(super) send_window: Window,
    /// Bytes of the body that the client may still send.
    pub(super) recv_window: Window,
    pub(super) body: ExpectedBody,
    /// A CONNECT, whose DATA are bytes of another protocol.
    pub(super) is_connect: bool,
    /// How the body is passed on.
    pub(super) framing: Framing,
    /// Code of the reset after the response: an error of the request, or `NO_ERROR`.
    pub(super) end_code: ErrorCode,
    /// The request is not valid. Its body is dropped, and its response says why.
    pub(super) is_refused: bool,
    /// The client has sent everything.
    pub(super) client_ended: bool,
    /// The client pads its frames, so the windows must be larger than the body.
    pub(super) is_padded: bool,
    /// Bytes that were passed to the request, and those that it has read.
    pub(super) given: u64,
    pub(super) taken: u64,
    pub(super) response: ResponsePart,
    /// There may be bytes for the client, and its windows allow some.
    pub(super) is_ready: bool,
    /// RST_STREAM was sent or received.
    pub(super) is_reset: bool,
    /// RST_STREAM was received.
    pub(super) client_reset: bool,
    /// The request is gone, and all its bytes were taken.
    pub(super) is_closed: bool,
    /// Progress of the client, if the request is gone and its last bytes wait for a window. Before that, the request has the
    /// deadline.
    pub(super) left: Option<PeerTimer>,
}

/// Where the response is, in the order in which its segments come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsePart {
    /// Before the final head.
    Head,
    /// Between two segments.
    Between,
    /// Within a part of the body.
    Body { left: u64, ends: bool },
    /// Within another protocol, whose bytes have no segments.
    Tunnel,
    /// END_STREAM was sent.
    Ended,
}

impl StreamEntry {
    /// Returns whether the client may send nothing more on it (RFC 9113 section 5.1). After a reset that we sent, what is
    /// on its way is ignored.
    pub(super) fn is_closed_by_client(&self) -> bool {
        self.client_ended || self.client_reset
    }

    /// Returns whether others of the same urgency have their turn between its frames. Another protocol has no end that it would
    /// reach sooner without them.
    pub(super) fn is_incremental(&self) -> bool {
        self.priority.incremental || self.response == ResponsePart::Tunnel
    }

    /// Returns whether nothing more is sent.
    pub(super) fn is_done(&self) -> bool {
        self.is_reset || self.response == ResponsePart::Ended
    }
}

/// By their numbers, which rise.
#[derive(Debug)]
pub(super) struct Streams {
    entries: Vec<StreamEntry>,
    counters: Arc<Counters>,
    /// How many are in the counter of streams.
    counted: usize,
}

impl Streams {
    pub(super) fn new(counters: &Arc<Counters>) -> Streams {
        Streams { entries: Vec::new(), counters: counters.clone(), counted: 0 }
    }

    /// Counts those that are in progress. The connection waits, so quick requests have cost nothing.
    pub(super) fn count(&mut self) {
        let now = self.entries.len();
        if now == self.counted {
            return;
        }
        // Wraps around, as the counter does.
        self.counters.streams.fetch_add(now.wrapping_sub(self.counted), Ordering::Relaxed);
        self.counted = now;
    }

    /// Returns whether there are as many as may be. A client that has read the end of a response may open another stream at
    /// once, before the thread of the request is done with it. So as many more may be about to end.
    pub(super) fn are_full(&self, streams_max: usize) -> bool {
        let has_no_response = |stream: &&StreamEntry| stream.response != ResponsePart::Ended;
        self.entries.len() >= streams_max
            && (self.entries.len() >= streams_max.saturating_mul(2)
                || self.entries.iter().filter(has_no_response).count() >= streams_max)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_any_ready(&self) -> bool {
        self.entries.iter().any(|stream| stream.is_ready)
    }

    /// Adds a stream. Its number is higher than all before.
    pub(super) fn push(&mut self, stream: StreamEntry) {
        self.entries.push(stream);
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut StreamEntry> {
        let at = self.entries.binary_search_by_key(&id, |stream| stream.id).ok()?;
        self.entries.get_mut(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamEntry> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamEntry> {
        self.entries.iter_mut()
    }

    /// Returns all, those after this number first.
    pub(super) fn iter_mut_after(&mut self, id: u32) -> impl Iterator<Item = &mut StreamEntry> {
        let at = self.entries.partition_point(|stream| stream.id <= id);
        let (before, after) = self.entries.split_at_mut(at);
        after.iter_mut().chain(before)
    }

    /// Removes what `is_over`.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&mut StreamEntry) -> bool) {
        self.entries.retain_mut(|stream| is_kept(stream));
    }
}

impl Drop for Streams {
    /// The connection has ended, so no client waits for the responses.
    fn drop(&mut self) {
        self.entries.iter().for_each(|stream| stream.pipe.reset());
        self.counters.streams.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
