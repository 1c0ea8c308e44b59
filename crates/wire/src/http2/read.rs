//! Reads frames.

use super::fault::Violation::{self, *};
use super::fault::{ErrorCode, Http2Fault};
use super::frame::{Frame, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, STREAM_MAX, flag, kind, word};
use super::priority::Priority;
use super::{Http2, PREFACE, State};
use crate::head::Head;
use crate::limits::Limits;

/// Maximum number of frames that continue a field block. 9 frames of 16 KiB hold more than any sensible limit of heads.
const CONTINUATIONS_MAX: u8 = 8;

/// A field block may have this many times the limit before the connection ends. Below, the stream alone does.
pub(super) const BLOCK_FACTOR: usize = 4;

/// What a field block is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    /// It ends the stream.
    pub(super) ends: bool,
    /// It opens the stream.
    pub(super) is_new: bool,
}

/// A field block that is cut into frames.
#[derive(Debug)]
pub(super) struct PartialBlock {
    block: Block,
    bytes: Vec<u8>,
    continuations: u8,
}

/// A DATA frame of which a part was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialData {
    stream: u32,
    left: u32,
    padding: u32,
    ends: bool,
}

pub(super) type Step = Result<(usize, Frame), Violation>;

/// Where a head is decoded to.
pub(super) struct Target<'a> {
    pub(super) limits: &'a Limits,
    pub(super) head: &'a mut Head,
    pub(super) text: &'a mut Vec<u8>,
}

impl Http2 {
    /// Reads the preface of a client, and refuses another at its first wrong byte.
    pub(super) fn read_preface(&mut self, bytes: &[u8]) -> Step {
        match Http2::is_preface(bytes) {
            None => Ok((0, Frame::NeedMore)),
            Some(false) => Err(PrefaceInvalid),
            Some(true) => {
                self.state = State::Settings;
                Ok((PREFACE.len(), Frame::Part))
            }
        }
    }

    /// RFC 9113 §3.4: each side starts with SETTINGS.
    pub(super) fn read_first(&mut self, bytes: &[u8], target: Target<'_>) -> Step {
        let Some(header) = Header::read(bytes) else { return Ok((0, Frame::NeedMore)) };
        if header.kind != kind::SETTINGS || header.has(flag::ACK) {
            return Err(SettingsExpected);
        }
        let step = self.read_frame(bytes, target)?;
        if step.0 > 0 {
            self.state = State::Frame;
        }
        Ok(step)
    }

    /// Returns whether these bytes, of which whole frames were read before, begin with DATA of the stream.
    pub fn is_data(bytes: &[u8], stream: u32) -> bool {
        Header::read(bytes).is_some_and(|header| header.kind == kind::DATA && header.stream == stream)
    }

    /// Reads a frame outside of field blocks. Everything that the header alone tells is checked before the payload is
    /// waited for, so the fault does not depend on how the bytes arrive.
    #[inline]
    pub(super) fn read_frame(&mut self, bytes: &[u8], target: Target<'_>) -> Step {
        let Some(header) = Header::read(bytes) else { return Ok((0, Frame::NeedMore)) };
        if header.len as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameTooLarge);
        }
        match header.kind {
            kind::HEADERS => self.read_headers(header, bytes, target),
            kind::DATA => self.read_data(header, bytes),
            _ => self.read_other(header, bytes),
        }
    }

    #[inline]
    fn read_headers(&mut self, header: Header, bytes: &[u8], target: Target<'_>) -> Step {
        let is_new = self.is_new_stream(header.stream)?;
        let prefix = u32::from(header.has(flag::PADDED)) + if header.has(flag::PRIORITY) { 5 } else { 0 };
        if header.len < prefix {
            return Err(FrameSizeInvalid);
        }
        let Some(payload) = payload(header, bytes) else { return Ok((0, Frame::NeedMore)) };
        let padding = if header.has(flag::PADDED) { usize::from(payload[0]) } else { 0 };
        // Priority is read past (RFC 9113 §5.3.2).
        let fragment = &payload[prefix as usize..];
        let len = fragment.len().checked_sub(padding).ok_or(PaddingTooLong)?;
        let block = Block { stream: header.stream, ends: header.has(flag::END_STREAM), is_new };
        let used = HEADER_BYTES + payload.len();
        if header.has(flag::END_HEADERS) {
            return Ok((used, self.decode(block, &fragment[..len], target)?));
        }
        let bytes = fragment[..len].to_vec();
        self.state = State::Block(Box::new(PartialBlock { block, bytes, continuations: 0 }));
        Ok((used, Frame::Part))
    }

    /// Reads a frame within a field block (RFC 9113 §6.10).
    #[cold]
    pub(super) fn read_continuation(&mut self, bytes: &[u8], target: Target<'_>) -> Step {
        let Some(header) = Header::read(bytes) else { return Ok((0, Frame::NeedMore)) };
        let State::Block(partial) = &mut self.state else { return Err(ContinuationUnexpected) };
        if header.kind != kind::CONTINUATION || header.stream != partial.block.stream {
            return Err(BlockInterrupted);
        }
        if header.len as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameTooLarge);
        }
        if header.len == 0 {
            return Err(ContinuationEmpty);
        }
        if partial.continuations == CONTINUATIONS_MAX {
            return Err(ContinuationsTooMany);
        }
        let block_max = (target.limits.head_bytes_max as usize).saturating_mul(BLOCK_FACTOR);
        if partial.bytes.len() + header.len as usize > block_max {
            return Err(BlockTooLarge);
        }
        let Some(payload) = payload(header, bytes) else { return Ok((0, Frame::NeedMore)) };
        partial.bytes.extend_from_slice(payload);
        partial.continuations += 1;
        let used = HEADER_BYTES + payload.len();
        if !header.has(flag::END_HEADERS) {
            return Ok((used, Frame::Part));
        }
        let (block, bytes) = (partial.block, std::mem::take(&mut partial.bytes));
        self.state = State::Frame;
        Ok((used, self.decode(block, &bytes, target)?))
    }

    /// Reads the start of a DATA frame (RFC 9113 §6.1), with what has come of its content.
    #[inline]
    fn read_data(&mut self, header: Header, bytes: &[u8]) -> Step {
        self.check_opened(header.stream)?;
        let mut start = HEADER_BYTES;
        let mut padding = 0;
        if header.has(flag::PADDED) {
            if header.len == 0 {
                return Err(FrameSizeInvalid);
            }
            let Some(&len) = bytes.get(start) else { return Ok((0, Frame::NeedMore)) };
            start += 1;
            padding = u32::from(len) + 1;
        }
        let content = header.len.checked_sub(padding).ok_or(PaddingTooLong)?;
        // Of the padding, the length was read.
        let trailing = padding.saturating_sub(1);
        let given = bytes.len() - start;
        if given < content.min(1) as usize || (content == 0 && given < trailing as usize) {
            return Ok((0, Frame::NeedMore));
        }
        let ends = header.has(flag::END_STREAM);
        let data = PartialData { stream: header.stream, left: content, padding: trailing, ends };
        let (used, len, ends) = self.take_data(data, given);
        let (stream, flow) = (header.stream, header.len);
        Ok((start + used, Frame::Data { stream, start, len, flow, padding, ends }))
    }

    /// Reads the next part of a DATA frame.
    pub(super) fn read_more_data(&mut self, data: PartialData, bytes: &[u8]) -> Step {
        if bytes.is_empty() {
            return Ok((0, Frame::NeedMore));
        }
        let (used, len, ends) = self.take_data(data, bytes.len());
        if len == 0 && !ends {
            return Ok((used, Frame::Part));
        }
        Ok((used, Frame::Data { stream: data.stream, start: 0, len, flow: 0, padding: 0, ends }))
    }

    /// Takes content and padding from `given` bytes. Returns how many bytes were used, the length of the content, and
    /// whether the stream ends.
    #[inline]
    fn take_data(&mut self, mut data: PartialData, given: usize) -> (usize, usize, bool) {
        let len = given.min(data.left as usize);
        let padding = (given - len).min(data.padding as usize);
        data.left -= len as u32;
        data.padding -= padding as u32;
        let is_whole = data.left == 0 && data.padding == 0;
        self.state = if is_whole { State::Frame } else { State::Data(data) };
        (len + padding, len, is_whole && data.ends)
    }

    fn read_other(&mut self, header: Header, bytes: &[u8]) -> Step {
        self.check_header(header)?;
        match header.kind {
            kind::GOAWAY => self.read_goaway(header, bytes),
            kind::RST_STREAM
            | kind::PRIORITY
            | kind::SETTINGS
            | kind::PING
            | kind::WINDOW_UPDATE
            | kind::PRIORITY_UPDATE => match payload(header, bytes) {
                Some(payload) => Ok((HEADER_BYTES + payload.len(), self.short_frame(header, payload)?)),
                None => Ok((0, Frame::NeedMore)),
            },
            // RFC 9113 §4.1: unknown types are ignored.
            _ => Ok(self.skip(header.len, bytes, HEADER_BYTES, Frame::Nothing)),
        }
    }

    /// Checks the stream and the length of a frame, as its type asks for: RFC 9113 §6.
    fn check_header(&self, header: Header) -> Result<(), Violation> {
        let is_on_connection = match header.kind {
            kind::PUSH_PROMISE => return Err(PushNotAllowed),
            kind::CONTINUATION => return Err(ContinuationUnexpected),
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => true,
            kind::RST_STREAM | kind::PRIORITY => false,
            kind::WINDOW_UPDATE => header.stream == 0,
            _ => return Ok(()),
        };
        match (is_on_connection, header.stream) {
            (true, 1..) => return Err(StreamNotAllowed),
            (false, 0) => return Err(StreamMissing),
            _ => {}
        }
        if matches!(header.kind, kind::RST_STREAM | kind::WINDOW_UPDATE) && header.stream > 0 {
            self.check_opened(header.stream)?;
        }
        let fits = match header.kind {
            kind::RST_STREAM | kind::WINDOW_UPDATE => header.len == 4,
            kind::SETTINGS if header.has(flag::ACK) => header.len == 0,
            kind::SETTINGS => header.len.is_multiple_of(6),
            kind::PING => header.len == 8,
            kind::GOAWAY => header.len >= 8,
            kind::PRIORITY_UPDATE => header.len >= 4,
            // A wrong length ends the stream alone (RFC 9113 §6.3).
            _ => true,
        };
        if fits { Ok(()) } else { Err(FrameSizeInvalid) }
    }

    /// Reads a frame that has arrived whole, and whose header was checked.
    fn short_frame(&mut self, header: Header, payload: &[u8]) -> Result<Frame, Violation> {
        let stream = header.stream;
        match header.kind {
            kind::RST_STREAM => Ok(Frame::Reset { stream, code: ErrorCode(word(payload, 0)) }),
            kind::PRIORITY if payload.len() != 5 => Ok(stream_error(stream, FrameSizeInvalid)),
            kind::SETTINGS if header.has(flag::ACK) => Ok(Frame::SettingsAcked),
            kind::SETTINGS => self.read_settings(payload),
            kind::PING => {
                let mut data = [0; 8];
                data.copy_from_slice(payload);
                Ok(if header.has(flag::ACK) { Frame::PingAcked(data) } else { Frame::Ping(data) })
            }
            kind::WINDOW_UPDATE => match word(payload, 0) & STREAM_MAX {
                0 if stream == 0 => Err(WindowIncrementZero),
                0 => Ok(stream_error(stream, WindowIncrementZero)),
                by => Ok(Frame::Window { stream, by }),
            },
            kind::PRIORITY_UPDATE => match word(payload, 0) & STREAM_MAX {
                // RFC 9218 §7.1: only clients send it, for streams that can be there.
                0 => Err(StreamMissing),
                stream if self.is_client || stream % 2 == 0 => Err(StreamIdInvalid),
                stream => Ok(Frame::Priority { stream, priority: Priority::parse(&payload[4..]) }),
            },
            _ => Ok(Frame::Nothing),
        }
    }

    /// RFC 9113 §6.8. What follows the code is for debugging.
    fn read_goaway(&mut self, header: Header, bytes: &[u8]) -> Step {
        let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + 8) else {
            return Ok((0, Frame::NeedMore));
        };
        let frame = Frame::GoAway { last: word(payload, 0) & STREAM_MAX, code: ErrorCode(word(payload, 4)) };
        Ok(self.skip(header.len - 8, bytes, HEADER_BYTES + 8, frame))
    }

    /// Skips `len` bytes from `start` on, or as many as there are.
    pub(super) fn skip(&mut self, len: u32, bytes: &[u8], start: usize, frame: Frame) -> (usize, Frame) {
        let given = (bytes.len() - start).min(len as usize);
        let left = len - given as u32;
        self.state = if left == 0 { State::Frame } else { State::Skip(left) };
        (start + given, frame)
    }
}

/// The payload of a frame, if it has arrived.
#[inline]
fn payload(header: Header, bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(HEADER_BYTES..HEADER_BYTES + header.len as usize)
}

fn stream_error(stream: u32, violation: Violation) -> Frame {
    let fault = Http2Fault::stream_error(stream, violation);
    Frame::StreamError { fault, ends: false, is_request: false }
}
