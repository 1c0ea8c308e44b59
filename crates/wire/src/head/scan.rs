//! Finds the end of a block of field lines.

use memchr::memchr2;

use crate::error::Fault;

/// Searches for the empty line that ends a head or trailers. No byte is read twice, even if the bytes arrive one by
/// one, except a last CR whose LF has not arrived. Lines that do not end in CRLF are refused, and blocks that are too
/// long.
///
/// The result does not depend on how the bytes were split. Of two faults, the one of the earlier byte counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Number of bytes that need not be read again.
    scanned: u32,
    /// Start of the line that is being read.
    line: u32,
}

impl Scan {
    /// Nothing of the block has been seen.
    pub(crate) fn is_untouched(&self) -> bool {
        self.scanned == 0
    }

    /// Returns the block's length with its final CRLF CRLF, or None if it is not complete. The first line starts at
    /// `start`, and has at most `line_max` bytes. The block has at most `total_max`.
    pub(crate) fn find_end(
        &mut self,
        bytes: &[u8],
        start: usize,
        line_max: usize,
        total_max: usize,
    ) -> Result<Option<usize>, Fault> {
        let mut line = (self.line as usize).max(start);
        let mut at = (self.scanned as usize).max(start);
        // If the block reaches its limit first, the line never reaches its own.
        let first_end_max = start.saturating_add(line_max);
        let too_long =
            |at: usize, line: usize| line == start && at > first_end_max && first_end_max < total_max;
        while let Some(found) = memchr2(b'\r', b'\n', &bytes[at..]) {
            at += found;
            if too_long(at, line) {
                return Err(Fault::TargetTooLong);
            }
            if bytes[at] == b'\n' {
                return Err(if at < total_max { Fault::BareLineFeed } else { Fault::HeadTooLong });
            }
            if at + 2 > total_max {
                return Err(Fault::HeadTooLong);
            }
            match bytes.get(at + 1) {
                None => break,
                Some(b'\n') if at == line => return Ok(Some(at + 2)),
                Some(b'\n') => at += 2,
                Some(_) => return Err(Fault::BareCarriageReturn),
            }
            line = at;
        }
        if bytes.last() != Some(&b'\r') {
            at = bytes.len();
        }
        if too_long(at, line) {
            return Err(Fault::TargetTooLong);
        }
        if bytes.len() >= total_max {
            return Err(Fault::HeadTooLong);
        }
        (self.scanned, self.line) = (at as u32, line as u32);
        Ok(None)
    }
}
