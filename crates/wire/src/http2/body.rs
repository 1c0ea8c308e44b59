//! Compares the length of a body with the length that its head declares.

use super::fault::Violation;
use crate::framing::Framing;

/// The body that a request still has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedBody {
    left: Option<u64>,
}

impl ExpectedBody {
    /// Returns what the framing of a head declares.
    pub fn new(framing: Framing) -> ExpectedBody {
        let left = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        ExpectedBody { left }
    }

    /// Returns how many bytes are to come. None: until the stream ends.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// Counts content, and the end of the stream.
    ///
    /// # Errors
    /// [`Violation::ContentLengthDiffers`]: it is more or less than declared (RFC 9113 §8.1.1).
    #[inline]
    pub fn count(&mut self, bytes: u64, ends: bool) -> Result<(), Violation> {
        let Some(left) = &mut self.left else { return Ok(()) };
        *left = left.checked_sub(bytes).ok_or(Violation::ContentLengthDiffers)?;
        if ends && *left > 0 { Err(Violation::ContentLengthDiffers) } else { Ok(()) }
    }
}
