//! Reads and writes the frames of an HTTP/2 connection (RFC 9113).
//!
//! `read.rs` reads frames, and this file decides what is read next and decodes field blocks. `head.rs` reads the fields
//! of requests, `fields.rs` those of trailers, and `client.rs` those of responses. `response.rs` writes the response of
//! one stream, and `write.rs` writes all other frames.

mod body;
mod budget;
mod client;
mod fault;
mod fields;
mod frame;
mod head;
mod priority;
mod read;
mod settings;
#[cfg(test)]
mod tests;
mod whole_block;
mod window;
mod write;

pub use body::ExpectedBody;
pub use budget::Budget;
pub use client::RequestHead;
pub use fault::{ErrorCode, Http2Fault, Violation};
pub use frame::Frame;
pub use priority::Priority;
pub use settings::{Http2Settings, PeerSettings};
pub use window::Window;

use crate::error::Fault;
use crate::head::Head;
use crate::hpack::{Decoded, Decoder, HpackFault};
use crate::limits::Limits;
use fields::TrailerFields;
use head::RequestFields;
use read::{Block, PartialBlock, PartialData, Step, Target};

/// What a client sends first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum bytes of the dynamic table for decoding: the default, which is never announced to be another.
const TABLE_BYTES_MAX: u16 = 4_096;

/// What is read next.
#[derive(Debug)]
enum State {
    Preface,
    /// The first SETTINGS.
    Settings,
    Frame,
    Data(PartialData),
    /// This many bytes of a frame that means nothing.
    Skip(u32),
    Block(Box<PartialBlock>),
    /// Nothing.
    Refused(Violation),
}

/// One connection's frames. It holds no bytes except for the dynamic table, and for a field block that is cut into
/// frames. Streams are the caller's: their states, windows and number.
///
/// A request opens its stream. Its response is written by an [`Http1`](crate::Http1) of its own, as
/// [`Segment`](crate::Segment)s, which [`write_block`](Http2::write_block) and [`write_data`](Http2::write_data) put into
/// frames. [`Budget`] limits what a peer costs, [`Window`] what each side sends, and [`ExpectedBody`] compares a body
/// with its head.
///
/// ```
/// use std::time::SystemTime;
/// use weftwork_wire::{
///     BodyLength, Date, Frame, Head, Http1, Http2, Http2Settings, Limits, ResponseHead, Segment,
/// };
///
/// let (mut http, mut out) = (Http2::server(&Http2Settings::default()), Vec::new());
/// http.write_preface(&mut out);
///
/// // Preface, SETTINGS, and HEADERS of four fields.
/// let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
/// bytes.extend_from_slice(b"\0\0\x10\x01\x05\0\0\0\x01\x82\x86\x84\x01\x0bexample.org");
///
/// let (limits, mut head, mut text, mut at) = (Limits::default(), Head::default(), Vec::new(), 0);
/// loop {
///     let (used, frame) = http.read(&bytes[at..], &limits, &mut head, &mut text)?;
///     at += used;
///     match frame {
///         Frame::NeedMore => break,
///         Frame::Settings { .. } => Http2::write_settings_ack(&mut out),
///         Frame::Head { stream, .. } => {
///             assert_eq!((head.path.of(&text), head.method.as_str()), (&b"/"[..], "GET"));
///             let response = ResponseHead { length: BodyLength::Exact(5), ..ResponseHead::default() };
///             let date = Date::at(SystemTime::now());
///             let (mut request, mut parts) = (Http1::default(), Vec::new());
///             request.begin_stream(&head);
///             request.write_response(&response, b"hello", &date, &mut parts)?;
///             let Some((start, Segment::Head { len, .. })) = Segment::read(&parts) else { unreachable!() };
///             let (block, body) = parts[start..].split_at(len);
///             Http2::write_block(stream, block, true, false, &mut out);
///             let Some((start, Segment::Body { ends, .. })) = Segment::read(body) else { unreachable!() };
///             Http2::write_data(stream, &body[start..], ends, &mut out);
///         }
///         _ => {}
///     }
/// }
/// assert!(out.ends_with(b"hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Http2 {
    state: State,
    decoder: Decoder,
    settings: Http2Settings,
    peer: PeerSettings,
    is_client: bool,
    /// The peer has lowered the size of the table for encoding, which stays empty.
    resets_table: bool,
    /// The last stream that the client has opened.
    last: u32,
    /// Which of the last 64 streams up to this one were opened. The others were skipped.
    opened: u64,
}

impl Http2 {
    /// Maximum number of bytes that [`read`](Http2::read) may need at once: a frame with its header.
    pub const BYTES_AT_ONCE_MAX: usize = frame::HEADER_BYTES + frame::PAYLOAD_BYTES_MAX;

    /// Returns the server's end of a connection. It expects the preface of the client.
    pub fn server(settings: &Http2Settings) -> Http2 {
        Http2::new(settings, State::Preface, false)
    }

    fn new(settings: &Http2Settings, state: State, is_client: bool) -> Http2 {
        Http2 {
            state,
            decoder: Decoder::new(TABLE_BYTES_MAX),
            settings: *settings,
            peer: PeerSettings::default(),
            is_client,
            resets_table: false,
            last: 0,
            opened: 0,
        }
    }

    /// Whether `bytes`, the first of a connection, are the preface of HTTP/2. None if there are too few to tell.
    pub fn is_preface(bytes: &[u8]) -> Option<bool> {
        let len = bytes.len().min(PREFACE.len());
        match bytes[..len] == PREFACE[..len] {
            true if len < PREFACE.len() => None,
            is_preface => Some(is_preface),
        }
    }

    /// Looks at the front of `bytes`, the unused bytes of the connection: at most one frame, or the next part of a DATA
    /// frame. Returns how many bytes were used. What was read does not depend on how the bytes arrive, except that the
    /// content of a DATA frame comes in other parts.
    ///
    /// A field block is decoded once it is whole. `head` and `text` are overwritten then. The spans of `head` point into
    /// `text`.
    ///
    /// # Errors
    /// The rule that ends the connection. The fault is permanent: every later call returns it. Faults that end a stream
    /// are [`Frame::StreamError`].
    #[inline]
    pub fn read(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        head: &mut Head,
        text: &mut Vec<u8>,
    ) -> Result<(usize, Frame), Http2Fault> {
        let target = Target { limits, head, text };
        let step = match self.state {
            State::Frame => self.read_frame(bytes, target),
            _ => self.read_in_state(bytes, target),
        };
        step.map_err(|violation| self.refuse(violation))
    }

    #[inline(never)]
    fn read_in_state(&mut self, bytes: &[u8], target: Target<'_>) -> Step {
        match self.state {
            State::Preface => self.read_preface(bytes),
            State::Settings => self.read_first(bytes, target),
            State::Frame => self.read_frame(bytes, target),
            State::Data(data) => self.read_more_data(data, bytes),
            State::Skip(_) if bytes.is_empty() => Ok((0, Frame::NeedMore)),
            State::Skip(left) => Ok(self.skip(left, bytes, 0, Frame::Part)),
            State::Block(_) => self.read_continuation(bytes, target),
            State::Refused(violation) => Err(violation),
        }
    }

    #[cold]
    fn refuse(&mut self, violation: Violation) -> Http2Fault {
        self.state = State::Refused(violation);
        Http2Fault::connection(violation)
    }

    /// Decodes a whole field block.
    #[inline]
    fn decode(&mut self, block: Block, bytes: &[u8], target: Target<'_>) -> Result<Frame, Violation> {
        if block.is_new {
            self.open(block.stream);
            return self.decode_request(block, bytes, target);
        }
        self.decode_other(block, bytes, target)
    }

    #[inline]
    fn decode_request(&mut self, block: Block, bytes: &[u8], target: Target<'_>) -> Result<Frame, Violation> {
        let Target { limits, head, text } = target;
        let Block { stream, ends, .. } = block;
        text.clear();
        let mut fields = RequestFields::new(head, limits);
        let decoded = self
            .decoder
            .decode(bytes, limits.head_bytes_max as usize, text, |text, field| fields.note(text, field))?;
        let read = match decoded {
            Decoded::TooLarge => Err(Fault::HeadTooLong.into()),
            Decoded::Whole => fields.conclude(text, ends, self.settings.connect_protocol),
        };
        Ok(match read {
            Ok(priority) => Frame::Head { stream, ends, priority },
            Err(violation) => {
                let fault = Http2Fault::stream_error(stream, violation);
                Frame::StreamError { fault, ends, is_request: true }
            }
        })
    }

    /// Decodes a response at the client's end, or trailers.
    #[inline(never)]
    fn decode_other(&mut self, block: Block, bytes: &[u8], target: Target<'_>) -> Result<Frame, Violation> {
        let Block { stream, ends, .. } = block;
        let read = match self.is_client {
            true => self.decode_response(block, bytes, target)?,
            false => self.decode_trailers(block, bytes, target)?,
        };
        Ok(read.unwrap_or_else(|violation| {
            let fault = Http2Fault::stream_error(stream, violation);
            Frame::StreamError { fault, ends, is_request: false }
        }))
    }

    fn decode_trailers(
        &mut self,
        block: Block,
        bytes: &[u8],
        target: Target<'_>,
    ) -> Result<Result<Frame, Violation>, Violation> {
        let Target { limits, head, text } = target;
        text.clear();
        let mut fields = TrailerFields::new(&mut head.fields, limits);
        let decoded = self
            .decoder
            .decode(bytes, limits.head_bytes_max as usize, text, |text, field| fields.note(text, field))?;
        Ok(match decoded {
            Decoded::TooLarge => Err(Fault::TrailersTooLong.into()),
            Decoded::Whole if !block.ends => Err(Violation::TrailersNotLast),
            Decoded::Whole => fields.conclude().map(|()| Frame::Trailers { stream: block.stream }),
        })
    }

    /// Whether HEADERS on this stream open it: RFC 9113 §5.1.1.
    #[inline]
    fn is_new_stream(&self, stream: u32) -> Result<bool, Violation> {
        if self.is_client {
            return self.check_opened(stream).map(|()| false);
        }
        if stream.is_multiple_of(2) {
            return Err(if stream == 0 { Violation::StreamMissing } else { Violation::StreamIdInvalid });
        }
        if stream > self.last {
            return Ok(true);
        }
        // The number of streams from this one to the last one. Of those long ago nothing is known.
        let ago = (self.last - stream) / 2;
        match self.opened.checked_shr(ago) {
            Some(opened) if opened & 1 == 0 => Err(Violation::StreamIdInvalid),
            _ => Ok(false),
        }
    }

    /// Notes that the client has opened a stream.
    #[inline]
    fn open(&mut self, stream: u32) {
        let by = stream.div_ceil(2) - self.last.div_ceil(2);
        self.opened = self.opened.checked_shl(by).unwrap_or(0) | 1;
        self.last = stream;
    }

    /// Checks that a frame is on a stream that was opened. Servers open none, as pushes are refused.
    #[inline]
    fn check_opened(&self, stream: u32) -> Result<(), Violation> {
        match stream {
            0 => Err(Violation::StreamMissing),
            _ if stream > self.last || stream.is_multiple_of(2) => Err(Violation::StreamIdle),
            _ => Ok(()),
        }
    }

    fn read_settings(&mut self, payload: &[u8]) -> Result<Frame, Violation> {
        let window = self.peer.window;
        self.peer.update(payload, self.is_client)?;
        // RFC 7541 §4.2: the next block would have to say so. A block cannot tell that it is the next one, so each does.
        self.resets_table |= self.peer.table_bytes_max < u32::from(TABLE_BYTES_MAX);
        // Both are at most 2^31-1.
        Ok(Frame::Settings { window_shift: self.peer.window as i32 - window as i32 })
    }

    /// A field block has begun and is not whole: it counts as a head that is being read.
    pub fn is_in_block(&self) -> bool {
        matches!(self.state, State::Block(_))
    }

    /// A DATA frame has begun and is not whole.
    pub fn is_in_data(&self) -> bool {
        matches!(self.state, State::Data(_))
    }

    /// Returns the last stream that the client has opened. GOAWAY needs it.
    pub fn last_stream(&self) -> u32 {
        self.last
    }

    /// Returns the settings of the peer.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// Appends what this end sends first: SETTINGS, after the preface at a client. Its settings are in force when
    /// [`Frame::SettingsAcked`] arrives.
    pub fn write_preface(&self, out: &mut Vec<u8>) {
        if self.is_client {
            out.extend_from_slice(PREFACE);
        }
        self.settings.write(self.is_client, out);
    }
}

impl From<HpackFault> for Violation {
    #[cold]
    fn from(fault: HpackFault) -> Violation {
        match fault {
            HpackFault::FieldsTooLong => Violation::BlockTooLarge,
            _ => Violation::BlockInvalid,
        }
    }
}
