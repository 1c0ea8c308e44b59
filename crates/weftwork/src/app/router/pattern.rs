//! The pattern of a route's path, and how literal it is.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::error::PatternFault;

/// Characters that clients send percent-encoded.
const SENT_ENCODED: AsciiSet =
    CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'|');

/// One segment of a path. The variants are in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// Text before and after the capture.
    Capture(String, String),
    Rest,
}

impl Segment {
    fn rank(&self) -> u8 {
        match self {
            Segment::Literal(_) => 0,
            Segment::Capture(before, behind) if !before.is_empty() || !behind.is_empty() => 1,
            Segment::Capture(..) => 2,
            Segment::Rest => 3,
        }
    }
}

/// The path of a route.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// The pattern as `matchit` takes it. Literal parts are encoded as clients send them.
    pub(super) text: String,
    pub(super) names: Vec<Arc<str>>,
    segments: Vec<Segment>,
    /// Rank of the pattern. Of two patterns that match a path, the lower rank is tried first.
    pub(super) rank: Vec<u8>,
}

impl Pattern {
    pub(super) fn parse(path: &str) -> Result<Pattern, PatternFault> {
        let text = encoded(path);
        let Some(relative) = text.strip_prefix('/') else { return Err(PatternFault::NoSlash) };
        if text.contains(['?', '#']) {
            return Err(PatternFault::Query);
        }
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut segments = Vec::new();
        let parts: Vec<&str> = relative.split('/').collect();
        for (at, part) in parts.iter().enumerate() {
            if has_bare_percent(part) {
                return Err(PatternFault::Percent((*part).to_owned()));
            }
            let segment = match part.split_once('{') {
                None if part.contains('}') => return Err(PatternFault::Braces),
                None if is_other_syntax(part) => return Err(PatternFault::OtherSyntax((*part).to_owned())),
                None => Segment::Literal((*part).to_owned()),
                Some((before, rest)) => {
                    let Some((name, behind)) = rest.split_once('}') else { return Err(PatternFault::Braces) };
                    let (name, whole) = match name.strip_prefix('*') {
                        Some(name) => (name, true),
                        None => (name, false),
                    };
                    if name.is_empty()
                        || [before, name, behind].iter().any(|part| part.contains(['{', '}', '*']))
                    {
                        return Err(PatternFault::Braces);
                    }
                    if !is_name(name) {
                        return Err(PatternFault::Name(name.to_owned()));
                    }
                    if whole && !(before.is_empty() && behind.is_empty() && at + 1 == parts.len()) {
                        return Err(PatternFault::RestNotLast);
                    }
                    if names.iter().any(|known| &**known == name) {
                        return Err(PatternFault::Twice(name.to_owned()));
                    }
                    names.push(name.into());
                    if whole { Segment::Rest } else { Segment::Capture(before.to_owned(), behind.to_owned()) }
                }
            };
            segments.push(segment);
        }
        let rank = segments.iter().map(Segment::rank).collect();
        Ok(Pattern { names, segments, text, rank })
    }

    /// Returns the literal segments before the first capture, without a final slash.
    pub(super) fn literal_prefix(&self) -> &str {
        let literal = self.text.split('{').next().unwrap_or_default();
        if literal.len() == self.text.len() {
            literal
        } else {
            literal.rsplit_once('/').map_or("", |(prefix, _)| prefix)
        }
    }

    /// Returns whether both patterns match exactly the same paths.
    pub(super) fn is_like(&self, other: &Pattern) -> bool {
        self.segments == other.segments
    }

    /// Returns whether a capture is followed by text in its segment.
    pub(super) fn has_suffix(&self) -> bool {
        let is_suffixed =
            |segment: &Segment| matches!(segment, Segment::Capture(_, behind) if !behind.is_empty());
        self.segments.iter().any(is_suffixed)
    }

    /// Returns the ranges of the captures if the pattern matches `path`. Follows the rules of `matchit`, for
    /// one pattern at a time.
    pub(super) fn captures(&self, path: &str) -> Option<Vec<Range<usize>>> {
        let mut at = 1;
        let mut ranges = Vec::new();
        let mut left = Some(path.strip_prefix('/')?);
        for segment in &self.segments {
            let tail = left?;
            let (part, rest) = match tail.split_once('/') {
                Some((part, rest)) => (part, Some(rest)),
                None => (tail, None),
            };
            match segment {
                Segment::Literal(text) if text == part => {}
                Segment::Capture(before, behind) => {
                    let value = part.strip_prefix(before.as_str())?.strip_suffix(behind.as_str())?;
                    let start = at + before.len();
                    ranges.push(start..start + value.len());
                    (!value.is_empty()).then_some(())?;
                }
                Segment::Rest => {
                    ranges.push(at..at + tail.len());
                    return (!tail.is_empty()).then_some(ranges);
                }
                Segment::Literal(_) => return None,
            }
            at += part.len() + 1;
            left = rest;
        }
        left.is_none().then_some(ranges)
    }
}

/// Joins `prefix` and `path`. The path `/` is the prefix itself. A path without a leading slash is returned
/// unchanged, so that it stays an error.
pub(super) fn join(prefix: &str, path: &str) -> String {
    match (prefix.trim_end_matches('/'), path) {
        ("", path) => path.to_owned(),
        (_, path) if !path.starts_with('/') => path.to_owned(),
        (prefix, "/") => prefix.to_owned(),
        (prefix, path) => format!("{prefix}{path}"),
    }
}

/// Returns whether `path` is `prefix` or is under it. `prefix` has no final slash. `*`, which stands for the
/// whole server, is under the root only.
pub(super) fn is_under(path: &str, prefix: &str) -> bool {
    if path == "*" {
        return prefix.is_empty();
    }
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a segment looks like a capture of another library. `segment` is encoded.
fn is_other_syntax(segment: &str) -> bool {
    segment.starts_with([':', '*']) || (segment.starts_with("%3C") && segment.ends_with("%3E"))
}

fn is_name(name: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_more = |byte: u8| is_start(byte) || byte.is_ascii_digit() || byte == b'-';
    name.bytes().next().is_some_and(is_start) && name.bytes().all(is_more)
}

/// Returns whether a `%` is not followed by two hexadecimal digits.
fn has_bare_percent(part: &str) -> bool {
    let is_code = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    part.split('%').skip(1).any(|rest| !is_code(rest))
}

/// Returns `path` encoded as clients send it.
pub(in crate::app) fn encoded(path: &str) -> String {
    Cow::from(utf8_percent_encode(path, &SENT_ENCODED)).into_owned()
}
