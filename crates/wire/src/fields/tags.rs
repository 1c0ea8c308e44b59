//! Parses and compares entity tags.

use crate::grammar::{is_text_byte, trim};

/// An entity tag: a name for one state of a representation (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// It stays the same when what it names changes in a way that nobody minds.
    pub weak: bool,
    /// Text between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Reads the whole of `value` as one entity tag.
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        match split(trim(value)) {
            Some((tag, b"")) => Some(tag),
            _ => None,
        }
    }

    /// Whether both name the same bytes: neither is weak (RFC 9110 §8.8.3.2).
    pub fn is_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Whether one may stand for the other (RFC 9110 §8.8.3.2).
    pub fn is_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// The tags of a comma-separated list, up to the first invalid tag.
pub fn tags(list: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    let mut rest = list;
    std::iter::from_fn(move || next(&mut rest))
}

/// Whether the first thing in a list that is no tag is a `*`.
pub(super) fn has_star(list: &[u8]) -> bool {
    let mut rest = list;
    while next(&mut rest).is_some() {}
    rest.starts_with(b"*")
}

/// The next tag of a list. None: the rest begins with something else.
fn next<'a>(rest: &mut &'a [u8]) -> Option<EntityTag<'a>> {
    while let [b' ' | b'\t' | b',', after @ ..] = *rest {
        *rest = after;
    }
    let (tag, after) = split(rest)?;
    let after = trim(after);
    if !matches!(after.first(), None | Some(b',')) {
        return None;
    }
    *rest = after;
    Some(tag)
}

/// The tag at the start, and what follows it.
fn split(bytes: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, quoted) = match bytes.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, bytes),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    let end = inner.iter().position(|&byte| byte == b'"')?;
    let (opaque, rest) = (&inner[..end], &inner[end + 1..]);
    // etagc: no white space, which is where a text byte may have it.
    let valid = opaque.iter().all(|&byte| is_text_byte(byte) && !matches!(byte, b' ' | b'\t'));
    valid.then_some((EntityTag { weak, opaque }, rest))
}
