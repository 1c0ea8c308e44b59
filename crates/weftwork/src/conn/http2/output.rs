//! Sends the responses of the streams in the order of their priorities (RFC 9218), and opens windows for their requests.

mod frames;

use weftwork_wire::{Budget, ErrorCode, Http2, Window};

use self::frames::{DATA_BYTES_MAX, Sink};
use super::Http2Conn;
use super::stop::write_reset;
use super::streams::{ResponsePart, StreamEntry};
use crate::conn::observed::Observed;
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::events::GoawayReason;

impl Http2Conn {
    /// Appends frames of all responses that have something, as windows allow, up to the limit of the output.
    pub(super) fn collect(
        &mut self,
        now: Tick,
        cx: &Context,
        output: &mut Vec<u8>,
        observed: &mut Option<Box<Observed>>,
    ) {
        let mut changed = std::mem::take(&mut self.changed);
        self.hub.take_changed(&mut changed);
        for id in changed.drain(..) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.is_ready = true;
            }
        }
        self.changed = changed;
        let before = self.data_sent;
        let mut sink = Sink {
            output,
            window: &mut self.send_window,
            data_sent: &mut self.data_sent,
            budget: &mut self.budget,
            frame_bytes_max: self.http.peer().frame_bytes_max.min(DATA_BYTES_MAX),
            has_written_block: &mut self.has_written_block,
            observed,
            closes: false,
            now,
            cx,
        };
        // A head and its first bytes leave at once, before the rest of long responses. So a short response does not wait
        // behind them, if the client gives no priorities.
        for stream in self.streams.iter_mut().filter(|stream| stream.is_ready) {
            if stream.response == ResponsePart::Head && !sink.is_full() {
                stream.send(1, &mut sink);
            }
        }
        for (urgency, last_turn) in self.last_turns.iter_mut().enumerate() {
            let of_urgency =
                |stream: &StreamEntry| stream.is_ready && usize::from(stream.priority.urgency) == urgency;
            for stream in self.streams.iter_mut().filter(|stream| of_urgency(stream)) {
                if !stream.is_incremental() && !sink.is_full() {
                    stream.send(usize::MAX, &mut sink);
                }
            }
            let mut goes_on = true;
            while goes_on && !sink.is_full() {
                goes_on = false;
                // The output has space for two frames, so the turn goes on where the last one has ended.
                for stream in self.streams.iter_mut_after(*last_turn).filter(|stream| of_urgency(stream)) {
                    if stream.is_incremental() && !sink.is_full() {
                        stream.send(1, &mut sink);
                        goes_on |= stream.is_ready;
                        *last_turn = stream.id;
                    }
                }
            }
        }
        if sink.closes {
            self.goaway.begin(GoawayReason::Close);
        }
        if self.data_sent > before {
            self.data_at = now;
        }
        self.settle(cx, output);
    }

    /// Ends the streams that are over, and grants what their requests have read.
    fn settle(&mut self, cx: &Context, output: &mut Vec<u8>) {
        let Http2Conn { streams, late, held, budget, .. } = self;
        *held = 0;
        streams.retain(|stream| {
            if stream.is_closed && !stream.is_done() {
                // The response has broken off.
                stream.break_off(ErrorCode::INTERNAL_ERROR, output, cx);
            }
            let is_wanted = stream.client_ended && stream.end_code == ErrorCode::NO_ERROR;
            // A request that is still there reads on: another protocol, or an upload that goes on after an early response.
            if stream.is_closed && stream.response == ResponsePart::Ended && !stream.is_reset && !is_wanted {
                // The rest of the body is not wanted (RFC 9113 section 8.1), or the request was malformed (section 8.1.1).
                stream.is_reset = true;
                write_reset(stream.id, stream.end_code, output, cx);
            }
            let is_over = stream.is_closed && stream.is_done();
            if is_over {
                if !stream.is_reset {
                    budget.earn(Budget::RESPONSE);
                } else if !stream.is_closed_by_client() {
                    late.push(stream.id, stream.recv_window);
                }
                return false;
            }
            *held += stream.given - stream.taken;
            if !stream.client_ended && !stream.is_reset && stream.left.is_none() {
                stream.grant(cx, output);
            }
            true
        });
        self.grant_connection(cx, output);
    }

    /// Lets the client send more, as far as there is space for what requests have not read.
    pub(super) fn grant_connection(&mut self, cx: &Context, output: &mut Vec<u8>) {
        let wanted =
            cx.settings.http2_held_bytes_max.saturating_sub(self.held).min(u64::from(Window::MAX)) as u32;
        grant(&mut self.recv_window, 0, wanted, output);
    }
}

/// Raises a window to what is `wanted`, if it is at most half of that.
fn grant(window: &mut Window, stream: u32, wanted: u32, output: &mut Vec<u8>) {
    let has = window.available();
    if wanted > has && has <= wanted / 2 {
        let by = wanted - has;
        if window.add(by, stream).is_ok() {
            Http2::write_window_update(stream, by, output);
        }
    }
}

impl StreamEntry {
    /// Resets a stream whose response is not whole. If its handler has not run and never will, the client may send the request
    /// again (RFC 9113 section 8.7).
    #[cold]
    pub(super) fn break_off(&mut self, code: ErrorCode, output: &mut Vec<u8>, cx: &Context) {
        let is_unbegun = self.response == ResponsePart::Head && self.pipe.claim();
        self.is_reset = true;
        self.pipe.reset();
        write_reset(self.id, if is_unbegun { ErrorCode::REFUSED_STREAM } else { code }, output, cx);
    }

    /// Lets the client send more of the body. A request that reads as fast as the client sends gets a larger window.
    fn grant(&mut self, cx: &Context, output: &mut Vec<u8>) {
        let window = match self.taken >= u64::from(Window::DEFAULT) {
            true => cx.settings.http2_window_bytes_max.min(u64::from(Window::MAX)),
            false => u64::from(Window::DEFAULT),
        };
        let wanted = window.saturating_sub(self.given - self.taken) as u32;
        // No more than the body is long.
        let left = self.body.left().filter(|_| !self.is_padded).unwrap_or(u64::MAX);
        let wanted = u64::from(wanted).min(left) as u32;
        grant(&mut self.recv_window, self.id, wanted, output);
    }
}
