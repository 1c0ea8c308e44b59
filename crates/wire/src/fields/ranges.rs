//! Resolves a Range field to bytes of a representation.

use crate::grammar::{decimal, elements};

/// A request for more ranges than this is answered with the whole: 16, of which players and readers of
/// documents use two or three. Asking for thousands was an attack (CVE-2011-3192).
pub const RANGES_MAX: usize = 16;

/// Ranges as near as this are sent as one: the lines around a part take about as much.
const GAP_BYTES_MAX: u64 = 128;

/// Bytes from `first` to `last`, both included, as `Content-Range` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte, counted from 0.
    pub first: u64,
    /// The last byte; never before the first.
    pub last: u64,
}

/// Part of the representation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All of it, with 200: nothing was asked that can be read, or too much.
    Whole,
    /// Nothing, with 416: all that was asked for lies behind the end.
    Unsatisfiable,
    /// These parts, with 206, in the order they were asked for. There is at least one; no two touch.
    Parts(Vec<ByteRange>),
}

impl ByteRange {
    /// How many bytes these are: one at least.
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
/// Ranges that overlap or nearly touch become one, at the place of the first: so parts never add up to more
/// than the whole. Of an empty representation there are no parts, and asking for some is no error: some
/// clients send a range with every request, to bound the answer.
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

/// What is behind `bytes=`. Names of units have no case (RFC 9110 §14.1).
fn byte_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// RFC 9110 §14.1.2: `first-`, `first-last` or `-suffix`. None: neither of them. Some(None): behind the end.
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

/// A position; one that does not fit is behind every end.
fn number(digits: &[u8]) -> Option<u64> {
    match decimal(digits) {
        Ok(value) => Some(value),
        Err(true) => Some(u64::MAX),
        Err(false) => None,
    }
}

/// Joins what `range` is near to, which may bring it near to others.
fn add(parts: &mut Vec<ByteRange>, mut range: ByteRange) {
    let mut index = parts.len();
    while let Some(at) = parts.iter().position(|part| part.is_near(range)) {
        range = range.joined(parts.remove(at));
        index = index.min(at);
    }
    parts.insert(index, range);
}
