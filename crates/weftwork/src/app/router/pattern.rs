//! What does the path of a route say, and how literal is it?

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::error::PatternFault;

/// What clients do not send as it is.
const SENT_ENCODED: AsciiSet =
    CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'|');

/// One part of a path. The order is that of trying them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// What stands before and behind the capture.
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
    /// As matchit takes it, and as clients send its literal parts.
    pub(super) text: String,
    pub(super) names: Vec<Arc<str>>,
    segments: Vec<Segment>,
    /// Which of two patterns that take a path is tried first: the lower.
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

    /// Both take exactly the same paths.
    pub(super) fn is_like(&self, other: &Pattern) -> bool {
        self.segments == other.segments
    }

    /// A capture is only a part of its segment, with something behind it.
    pub(super) fn has_suffix(&self) -> bool {
        let is_suffixed =
            |segment: &Segment| matches!(segment, Segment::Capture(_, behind) if !behind.is_empty());
        self.segments.iter().any(is_suffixed)
    }

    /// The places of the captures, if it takes `path`; by the rules of matchit, one pattern at a time.
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

/// `prefix` in front of `path`, whose `/` is the prefix's own place. One without a slash stays as it is, and wrong.
pub(super) fn join(prefix: &str, path: &str) -> String {
    match (prefix.trim_end_matches('/'), path) {
        ("", path) => path.to_owned(),
        (_, path) if !path.starts_with('/') => path.to_owned(),
        (prefix, "/") => prefix.to_owned(),
        (prefix, path) => format!("{prefix}{path}"),
    }
}

/// Whether `path` is `prefix` or beneath it; `prefix` does not end in a slash. `*`, the whole server, is beneath its root.
pub(super) fn is_under(path: &str, prefix: &str) -> bool {
    if path == "*" {
        return prefix.is_empty();
    }
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How others write captures. `segment` is encoded.
fn is_other_syntax(segment: &str) -> bool {
    segment.starts_with([':', '*']) || (segment.starts_with("%3C") && segment.ends_with("%3E"))
}

fn is_name(name: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_more = |byte: u8| is_start(byte) || byte.is_ascii_digit() || byte == b'-';
    name.bytes().next().is_some_and(is_start) && name.bytes().all(is_more)
}

/// Whether there is a `%` that begins no encoded byte.
fn has_bare_percent(part: &str) -> bool {
    let is_code = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    part.split('%').skip(1).any(|rest| !is_code(rest))
}

/// `path` as clients send it.
pub(in crate::app) fn encoded(path: &str) -> String {
    Cow::from(utf8_percent_encode(path, &SENT_ENCODED)).into_owned()
}
