//! Resolves a Range field to bytes of a representation.

use crate::grammar::{decimal, elements};

/// Maximum number of ranges. A request for more gets the whole. Players and document readers use two or three ranges.
/// Thousands of ranges were an attack (CVE-2011-3192).
pub const RANGES_MAX: usize = 16;

/// Ranges with at most this gap are sent as one, because the lines around a part take about as many bytes.
const GAP_BYTES_MAX: u64 = 128;

/// Bytes from `first` to `last`, both included, as `Content-Range` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte, counted from 0.
    pub first: u64,
    /// The last byte. It is never before the first.
    pub last: u64,
}

/// Part of the representation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The whole, with 200. The field could not be read, or requests too many ranges.
    Whole,
    /// Nothing, with 416. All requested ranges are after the end.
    Unsatisfiable,
    /// These parts, with 206, in the requested order. There is at least one part, and no two parts touch.
    Parts(Vec<ByteRange>),
}

impl ByteRange {
    /// Returns the number of bytes, which is at least one.
    pub fn count(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    fn is_near(self, other: ByteRange) -> bool {
        let reach = |range: ByteRange| range.last.saturating_add(GAP_BYTES_MAX + 1);
        self.first <= reach(other) && other.first <= reach(self)
    }

    fn joined(self, other: ByteRange) -> ByteRange {
        ByteRange { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// Reads the value of a Range field (RFC 9110 §14.2) for a representation of `length` bytes.
///
/// Ranges that overlap or nearly touch become one, at the position of the first. So the parts never add up to more
/// than the whole. An empty representation has no parts, and a range of it is not an error. Some clients send a range
/// with every request, to bound the response.
///
/// ```
/// use weftwork_wire::fields::{ByteRange, Ranges, ranges};
/// assert_eq!(ranges(b"bytes=0-499", 1000), Ranges::Parts(vec![ByteRange { first: 0, last: 499 }]));
/// assert_eq!(ranges(b"bytes=-1", 1000), Ranges::Parts(vec![ByteRange { first: 999, last: 999 }]));
/// assert_eq!(ranges(b"bytes=1000-", 1000), Ranges::Unsatisfiable);
/// assert_eq!(ranges(b"lines=1-2", 1000), Ranges::Whole);
/// ```
pub fn ranges(value: &[u8], length: u64) -> Ranges {
    let Some(set) = byte_set(value).filter(|_| length > 0) else { return Ranges::Whole };
    let mut parts: Vec<ByteRange> = Vec::new();
    let mut specs = 0;
    for spec in elements(set).filter(|spec| !spec.is_empty()) {
        specs += 1;
        match one(spec, length) {
            _ if specs > RANGES_MAX => return Ranges::Whole,
            None => return Ranges::Whole,
            Some(None) => {}
            Some(Some(range)) => add(&mut parts, range),
        }
    }
    match (specs, parts.is_empty()) {
        (0, _) => Ranges::Whole,
        (_, true) => Ranges::Unsatisfiable,
        (_, false) => Ranges::Parts(parts),
    }
}

/// Returns the text after `bytes=`. Names of units are case-insensitive (RFC 9110 §14.1).
fn byte_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// RFC 9110 §14.1.2: `first-`, `first-last` or `-suffix`. Returns None for any other form, and Some(None) for a range
/// after the end.
fn one(spec: &[u8], length: u64) -> Option<Option<ByteRange>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?.min(length);
        return Some((suffix > 0).then(|| ByteRange { first: length - suffix, last: length - 1 }));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < length).then(|| ByteRange { first, last: last.min(length - 1) }))
}

/// Reads a position. A number that does not fit is after every end.
fn number(digits: &[u8]) -> Option<u64> {
    match decimal(digits) {
        Ok(value) => Some(value),
        Err(true) => Some(u64::MAX),
        Err(false) => None,
    }
}

/// Joins `range` with its neighbours, which may bring it near to other ranges.
fn add(parts: &mut Vec<ByteRange>, mut range: ByteRange) {
    let mut index = parts.len();
    while let Some(at) = parts.iter().position(|part| part.is_near(range)) {
        range = range.joined(parts.remove(at));
        index = index.min(at);
    }
    parts.insert(index, range);
}
