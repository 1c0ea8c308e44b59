//! Decodes chunked bodies (RFC 9112 §7.1), one byte of framing at a time.

use http::{HeaderName, HeaderValue};

use super::trailers::{Forbidden, Trailers};
use super::{BodyEvent, take};
use crate::error::Fault;
use crate::grammar::{is_text_byte, is_token_byte};
use crate::limits::Limits;

/// As many as 64 bits have.
const SIZE_DIGITS_MAX: u8 = 16;

/// Part of the chunked body to which the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    SizeStart,
    Size,
    ExtensionName(Fill),
    ExtensionValue(Fill),
    Quoted,
    QuotedPair,
    QuotedEnd,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    /// The last chunk is over: trailers, or the empty line that ends the body.
    TrailerStart,
    LastLineFeed,
    Trailers,
    Over,
}

/// Whether a token, which must not be empty, has its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Empty,
    Begun,
}

/// Reads one chunked body.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    /// The size of the chunk while that is read, then what is left of its data.
    left: u64,
    /// Trailers are rare: an idle connection holds no room for them.
    trailers: Option<Box<Trailers>>,
    extension_bytes: u32,
    digits: u8,
    state: ChunkState,
    origin: Origin,
}

/// The message that a body belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    #[default]
    Request,
    /// A request of HTTP/2 with a declared length. The first chunk has all of its payload.
    Stream,
    Response,
}

impl Chunked {
    pub(super) fn of_response() -> Chunked {
        Chunked { origin: Origin::Response, ..Chunked::default() }
    }

    /// The first chunk has begun, if it is not empty, and nothing but the last chunk follows it.
    pub(super) fn of_length(length: u64) -> Chunked {
        let state = if length > 0 { ChunkState::Data } else { ChunkState::SizeStart };
        Chunked { left: length, state, origin: Origin::Stream, ..Chunked::default() }
    }

    pub(super) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<(usize, BodyEvent), Fault> {
        let mut at = 0;
        loop {
            match self.state {
                ChunkState::Over => return Ok((at, BodyEvent::End)),
                ChunkState::Data => {
                    let (used, event) = take(bytes, at, &mut self.left);
                    if self.left == 0 {
                        self.state = ChunkState::DataCarriageReturn;
                    }
                    return Ok((used, event));
                }
                ChunkState::Trailers => {
                    let trailers = self.trailers.get_or_insert_default();
                    let forbidden = match self.origin {
                        Origin::Request | Origin::Stream => Forbidden::IsFault,
                        Origin::Response => Forbidden::IsDropped,
                    };
                    let (used, is_end) = trailers.read(&bytes[at..], limits, forbidden)?;
                    at += used;
                    if !is_end {
                        return Ok((at, BodyEvent::NeedMore));
                    }
                    self.state = ChunkState::Over;
                }
                state => {
                    let Some(&byte) = bytes.get(at) else { return Ok((at, BodyEvent::NeedMore)) };
                    self.state = self.next(state, byte, limits)?;
                    // The first byte of a trailer is the trailer's.
                    at += usize::from(self.state != ChunkState::Trailers);
                }
            }
        }
    }

    /// The part that comes after `byte`, which belongs to `state`.
    fn next(&mut self, state: ChunkState, byte: u8, limits: &Limits) -> Result<ChunkState, Fault> {
        match state {
            ChunkState::SizeStart | ChunkState::Size => self.size(state, byte, limits),
            ChunkState::ExtensionName(_)
            | ChunkState::ExtensionValue(_)
            | ChunkState::Quoted
            | ChunkState::QuotedPair
            | ChunkState::QuotedEnd => {
                let next = extension(state, byte)?;
                if next != ChunkState::SizeLineFeed {
                    self.count_extension_byte(limits)?;
                }
                Ok(next)
            }
            ChunkState::SizeLineFeed => {
                line_feed(byte)?;
                Ok(if self.left == 0 { ChunkState::TrailerStart } else { ChunkState::Data })
            }
            ChunkState::DataCarriageReturn => match byte {
                b'\r' => Ok(ChunkState::DataLineFeed),
                b'\n' => Err(Fault::BareLineFeed),
                _ => Err(Fault::ChunkEndMissing),
            },
            ChunkState::DataLineFeed => {
                line_feed(byte)?;
                self.digits = 0;
                Ok(ChunkState::SizeStart)
            }
            ChunkState::TrailerStart if byte == b'\r' => Ok(ChunkState::LastLineFeed),
            ChunkState::TrailerStart => Ok(ChunkState::Trailers),
            ChunkState::LastLineFeed => line_feed(byte).map(|()| ChunkState::Over),
            ChunkState::Data | ChunkState::Trailers | ChunkState::Over => Ok(state),
        }
    }

    fn size(&mut self, state: ChunkState, byte: u8, limits: &Limits) -> Result<ChunkState, Fault> {
        if let Some(digit) = (byte as char).to_digit(16) {
            if self.digits == SIZE_DIGITS_MAX {
                return Err(Fault::ChunkSizeTooLong);
            }
            self.digits += 1;
            // Not checked for overflow: 16 digits fill 64 bits exactly.
            self.left = self.left << 4 | u64::from(digit);
            return Ok(ChunkState::Size);
        }
        match (state, byte) {
            (_, b'\n') => Err(Fault::BareLineFeed),
            (ChunkState::Size, b'\r') => Ok(ChunkState::SizeLineFeed),
            (ChunkState::Size, b';') => {
                self.count_extension_byte(limits)?;
                Ok(ChunkState::ExtensionName(Fill::Empty))
            }
            // RFC 9112 §7.1.1 wants white space before an extension parsed and removed, as BWS. We refuse it:
            // it is white space after a number, and parsers are known to disagree on that.
            _ => Err(Fault::ChunkSizeInvalid),
        }
    }

    fn count_extension_byte(&mut self, limits: &Limits) -> Result<(), Fault> {
        if self.extension_bytes >= limits.chunk_extension_bytes_max {
            return Err(Fault::ChunkExtensionsTooLong);
        }
        self.extension_bytes += 1;
        Ok(())
    }

    /// Payload that is still to come, if that is known.
    pub(super) fn payload_left(&self) -> Option<u64> {
        match self.origin {
            Origin::Stream => Some(self.left),
            Origin::Request | Origin::Response => self.is_over().then_some(0),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == ChunkState::Over
    }

    pub(super) fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.trailers.as_ref().map_or(&[], |trailers| trailers.fields())
    }
}

/// `*( ";" chunk-ext-name [ "=" chunk-ext-val ] )`: RFC 9112 §7.1.1. Extensions are checked and forgotten.
fn extension(state: ChunkState, byte: u8) -> Result<ChunkState, Fault> {
    use {ChunkState::*, Fill::*};
    Ok(match (state, byte) {
        (Quoted, b'"') => QuotedEnd,
        (Quoted, b'\\') => QuotedPair,
        (Quoted | QuotedPair, byte) if is_text_byte(byte) => Quoted,
        (_, b'\n') => return Err(Fault::BareLineFeed),
        (ExtensionName(Begun) | ExtensionValue(Begun) | QuotedEnd, b'\r') => SizeLineFeed,
        (ExtensionName(Begun) | ExtensionValue(Begun) | QuotedEnd, b';') => ExtensionName(Empty),
        (ExtensionName(Begun), b'=') => ExtensionValue(Empty),
        (ExtensionValue(Empty), b'"') => Quoted,
        (ExtensionName(_), byte) if is_token_byte(byte) => ExtensionName(Begun),
        (ExtensionValue(_), byte) if is_token_byte(byte) => ExtensionValue(Begun),
        _ => return Err(Fault::ChunkExtensionInvalid),
    })
}

fn line_feed(byte: u8) -> Result<(), Fault> {
    if byte == b'\n' { Ok(()) } else { Err(Fault::BareCarriageReturn) }
}
