//! Passes the frames of a shared connection on to its streams.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::{
    ErrorCode, ExpectedBody, Fault, Field, Frame, Framing, Http2, Http2Fault, Received, Violation,
};

use super::conn::CONN_WINDOW;
use super::state::{Fields, State, Stream, StreamEnd};

/// Maximum number of responses that wait for a request: interim ones, and the final one.
const HEADS_MAX: usize = 8;

impl State {
    /// Takes whole frames, and parts of DATA frames. Returns how many bytes were used.
    ///
    /// # Errors
    /// The fault that ends the connection.
    pub(super) fn take_frames(&mut self, input: &[u8]) -> Result<usize, Http2Fault> {
        let mut used = 0;
        loop {
            let State { http, limits, head, text, .. } = self;
            let bytes = &input[used..];
            let (count, frame) = http.read(bytes, limits, head, text)?;
            if frame == Frame::NeedMore {
                return Ok(used);
            }
            self.take_frame(frame, bytes)?;
            used += count;
        }
    }

    fn take_frame(&mut self, frame: Frame, bytes: &[u8]) -> Result<(), Http2Fault> {
        match frame {
            Frame::Response { stream, status, ends } => {
                let taken = self.take_head(stream, status, ends);
                self.judge(stream, taken)
            }
            Frame::Trailers { stream } => {
                let taken = self.take_trailers(stream);
                self.judge(stream, taken)
            }
            Frame::Data { stream, start, len, flow, padding, ends } => {
                self.take_flow(flow)?;
                let taken = self.take_data(stream, &bytes[start..][..len], flow, padding, ends);
                self.judge(stream, taken)
            }
            Frame::StreamError { fault, .. } => self.judge(fault.stream, Err(fault.violation)),
            Frame::Window { stream: 0, by } => {
                self.send_window.add(by, 0)?;
                self.wake_all();
                Ok(())
            }
            Frame::Window { stream, by } => {
                let Some(open) = self.streams.get_mut(&stream) else { return Ok(()) };
                open.wake();
                let added = open.send_window.add(by, stream).map_err(|fault| fault.violation);
                self.judge(stream, added)
            }
            Frame::Reset { stream, code } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.end(match code {
                        ErrorCode::REFUSED_STREAM => StreamEnd::Unprocessed,
                        code => StreamEnd::Reset(code),
                    });
                    stream.is_reset = true;
                }
                Ok(())
            }
            Frame::GoAway { last, .. } => {
                self.has_goaway = true;
                let unprocessed = self.streams.iter_mut().filter(|(id, _)| **id > last);
                unprocessed.for_each(|(_, stream)| stream.end(StreamEnd::Unprocessed));
                Ok(())
            }
            Frame::Settings { window_shift } => {
                for stream in self.streams.values_mut() {
                    stream.send_window.shift(window_shift)?;
                }
                self.has_settings = true;
                Http2::write_settings_ack(&mut self.out);
                self.wake_all();
                Ok(())
            }
            Frame::Ping(data) => {
                Http2::write_ping_ack(data, &mut self.out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Resets a stream whose response breaks a rule.
    fn judge(&mut self, id: u32, taken: Result<(), Violation>) -> Result<(), Http2Fault> {
        let Err(violation) = taken else { return Ok(()) };
        let fault = Http2Fault::stream_error(id, violation);
        if let Some(stream) = self.streams.get_mut(&id) {
            let was_reset = stream.is_reset;
            stream.end(StreamEnd::Fault(fault));
            stream.is_reset = true;
            if !was_reset {
                let code = fault.code();
                let code = if code == ErrorCode::NO_ERROR { ErrorCode::CANCEL } else { code };
                Http2::write_reset(id, code, &mut self.out);
            }
        }
        Ok(())
    }

    /// Counts DATA of any stream, those that were reset too, and grants it again.
    fn take_flow(&mut self, flow: u32) -> Result<(), Http2Fault> {
        self.window.take(flow, 0)?;
        self.granted_later += flow;
        if self.granted_later >= CONN_WINDOW / 4 {
            let by = std::mem::take(&mut self.granted_later);
            self.window.add(by, 0)?;
            Http2::write_window_update(0, by, &mut self.out);
        }
        Ok(())
    }

    fn take_head(&mut self, id: u32, status: StatusCode, ends: bool) -> Result<(), Violation> {
        let Some(stream) = receiving(&mut self.streams, id)? else { return Ok(()) };
        if stream.has_final_head {
            return Err(Violation::TrailersNotLast);
        }
        if stream.heads.len() == HEADS_MAX {
            return Err(Violation::BudgetSpent);
        }
        let mut fields = Vec::with_capacity(self.head.fields.len());
        read_fields(&self.head.fields, &self.text, &mut fields)?;
        let framing = match self.head.framing {
            _ if stream.is_head => Framing::None,
            _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Framing::None,
            framing => framing,
        };
        let length = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        if !status.is_informational() {
            stream.has_final_head = true;
            stream.expected = ExpectedBody::new(framing);
            stream.expected.count(0, ends)?;
        }
        stream.heads.push_back(Received { status, fields, length, keep_alive: true });
        match ends {
            true => stream.end(StreamEnd::Whole),
            false => stream.wake(),
        }
        Ok(())
    }

    fn take_trailers(&mut self, id: u32) -> Result<(), Violation> {
        let Some(stream) = receiving(&mut self.streams, id)? else { return Ok(()) };
        if !stream.has_final_head {
            return Err(Violation::PseudoFieldMissing);
        }
        stream.expected.count(0, true)?;
        read_fields(&self.head.fields, &self.text, &mut stream.trailers)?;
        stream.end(StreamEnd::Whole);
        Ok(())
    }

    fn take_data(
        &mut self,
        id: u32,
        data: &[u8],
        flow: u32,
        padding: u32,
        ends: bool,
    ) -> Result<(), Violation> {
        let Some(stream) = receiving(&mut self.streams, id)? else { return Ok(()) };
        if !stream.has_final_head {
            return Err(Violation::PseudoFieldMissing);
        }
        stream.window.take(flow, id).map_err(|fault| fault.violation)?;
        stream.expected.count(data.len() as u64, ends)?;
        stream.body.extend_from_slice(data);
        if padding > 0 {
            stream.window.add(padding, id).map_err(|fault| fault.violation)?;
            Http2::write_window_update(id, padding, &mut self.out);
        }
        match ends {
            true => stream.end(StreamEnd::Whole),
            false => stream.wake(),
        }
        Ok(())
    }
}

/// Returns a stream whose response is not whole. Returns `None` for one that was given up, whose frames were on their
/// way.
fn receiving(streams: &mut HashMap<u32, Stream>, id: u32) -> Result<Option<&mut Stream>, Violation> {
    match streams.get_mut(&id) {
        Some(Stream { end: Some(StreamEnd::Whole), .. }) => Err(Violation::StreamClosed),
        stream => Ok(stream.filter(|stream| stream.end.is_none())),
    }
}

fn read_fields(from: &[Field], text: &[u8], into: &mut Fields) -> Result<(), Violation> {
    for Field { name, value } in from {
        let name = HeaderName::from_bytes(name.of(text)).map_err(|_| Fault::FieldNameInvalid)?;
        let value = HeaderValue::from_bytes(value.of(text)).map_err(|_| Fault::FieldValueInvalid)?;
        into.push((name, value));
    }
    Ok(())
}
