//! Decides which bytes after the head are the request's body.

mod chunked;
mod trailers;

use http::{HeaderName, HeaderValue};

use crate::error::Fault;
use crate::framing::Framing;
use crate::limits::Limits;

use chunked::Chunked;
pub(crate) use trailers::is_forbidden;
pub use trailers::may_be_trailer;

/// Result of [`Http1::read_body`](crate::Http1::read_body).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// All given bytes were used, or there were none: come again with those that follow.
    NeedMore,
    /// Payload: this range of the bytes given to the call (inside the used ones).
    Data {
        /// Its first byte.
        start: usize,
        /// Its length in bytes, never 0.
        len: usize,
    },
    /// The body is over (again and again, if asked again).
    End,
}

/// Reads one body. It copies no payload, and no byte is given to it twice.
#[derive(Debug, Default)]
pub(crate) enum BodyReader {
    #[default]
    Over,
    Length(u64),
    Chunked(Chunked),
}

impl BodyReader {
    pub(crate) fn new(framing: Framing) -> BodyReader {
        match framing {
            Framing::None | Framing::Length(0) => BodyReader::Over,
            Framing::Length(length) => BodyReader::Length(length),
            Framing::Chunked => BodyReader::Chunked(Chunked::default()),
        }
    }

    /// The body of a stream of HTTP/2. One with a length has an end too, where trailers may be.
    pub(crate) fn of_stream(framing: Framing) -> BodyReader {
        match framing {
            Framing::Length(length) => BodyReader::Chunked(Chunked::of_length(length)),
            framing => BodyReader::new(framing),
        }
    }

    pub(crate) fn of_response(framing: Framing) -> BodyReader {
        match framing {
            Framing::Chunked => BodyReader::Chunked(Chunked::of_response()),
            framing => BodyReader::new(framing),
        }
    }

    /// How many of `bytes` were used, and what they were.
    pub(crate) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<(usize, BodyEvent), Fault> {
        match self {
            BodyReader::Over | BodyReader::Length(0) => Ok((0, BodyEvent::End)),
            BodyReader::Length(left) => Ok(take(bytes, 0, left)),
            BodyReader::Chunked(chunked) => chunked.read(bytes, limits),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            BodyReader::Over => true,
            BodyReader::Length(left) => *left == 0,
            BodyReader::Chunked(chunked) => chunked.is_over(),
        }
    }

    /// Payload that is still to come, if the framing says it.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            BodyReader::Over => Some(0),
            BodyReader::Length(left) => Some(*left),
            BodyReader::Chunked(chunked) => chunked.payload_left(),
        }
    }

    pub(crate) fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        match self {
            BodyReader::Chunked(chunked) => chunked.trailers(),
            BodyReader::Over | BodyReader::Length(_) => &[],
        }
    }
}

/// Takes payload from `bytes`, of which the first `start` are used, and counts it off `left`.
fn take(bytes: &[u8], start: usize, left: &mut u64) -> (usize, BodyEvent) {
    let available = bytes.len() - start;
    let len = usize::try_from(*left).map_or(available, |left| left.min(available));
    if len == 0 {
        return (start, BodyEvent::NeedMore);
    }
    *left -= len as u64;
    (start + len, BodyEvent::Data { start, len })
}

#[cfg(test)]
mod tests;
