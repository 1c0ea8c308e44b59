//! Parses the path of a request into the path of a file.

use std::borrow::Cow;

use crate::app::path_form::encodes_unreserved;

/// A path under the root that is safe to join. It has no `..` and no character with a special meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// Decoded segments joined by `/`. Empty for the root. Few paths need decoding.
    pub(super) path: Cow<'a, [u8]>,
    /// Whether the path ended with a slash and thus means a directory.
    pub(super) slash: bool,
    /// Whether the path is not in canonical form. A guard in front compares the path as it was sent and did not
    /// see this one.
    pub(super) is_non_canonical: bool,
}

/// The reason why a path names no file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathError {
    /// A `%` without two hexadecimal digits. The answer is 400.
    Malformed,
    /// No served file can have this name. The answer is 404.
    Unreachable,
}

impl<'a> Target<'a> {
    /// Parses the path of a request. With `hidden`, names that start with a dot are allowed.
    pub(super) fn parse(path: &'a [u8], hidden: bool) -> Result<Target<'a>, PathError> {
        let rest = path.strip_prefix(b"/").ok_or(PathError::Unreachable)?;
        let (rest, slash) = match rest.strip_suffix(b"/") {
            Some(rest) => (rest, true),
            None => (rest, rest.is_empty()),
        };
        if rest.is_empty() && path.len() > 1 {
            return Err(PathError::Unreachable);
        }
        let (path, is_non_canonical) = match rest {
            b"" => (rest.into(), false),
            _ if rest.contains(&b'%') => (decoded(rest, hidden)?.into(), encodes_unreserved(rest)),
            _ => (servable(rest, hidden)?.into(), false),
        };
        Ok(Target { path, slash, is_non_canonical })
    }

    /// Parses a relative path that is not encoded.
    pub(super) fn named(name: &'a str, hidden: bool) -> Result<Target<'a>, PathError> {
        Ok(Target { path: servable(name.as_bytes(), hidden)?.into(), slash: false, is_non_canonical: false })
    }
}

/// Checks a path without encoded characters.
fn servable(path: &[u8], hidden: bool) -> Result<&[u8], PathError> {
    let mut segments = path.split(|byte| *byte == b'/');
    if segments.all(|segment| is_servable(segment, hidden)) { Ok(path) } else { Err(PathError::Unreachable) }
}

fn decoded(path: &[u8], hidden: bool) -> Result<Vec<u8>, PathError> {
    let mut joined = Vec::with_capacity(path.len());
    for (index, segment) in path.split(|byte| *byte == b'/').enumerate() {
        if index > 0 {
            joined.push(b'/');
        }
        let start = joined.len();
        // Split first, then decode, and only once. An encoded slash is not a separator, and `%252e` is not a
        // dot.
        decode(segment, &mut joined)?;
        if !is_servable(&joined[start..], hidden) {
            return Err(PathError::Unreachable);
        }
    }
    Ok(joined)
}

/// Joins `directory` and `name`. An empty `directory` is the root.
pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns whether a name may be served. `.` and `..` never are. Hidden names start with a dot, and
/// `.well-known` is an exception (RFC 8615).
///
/// A backslash is a character of a name like any other. The file system may be that of a system on which the backslash
/// is a separator, so the parts between backslashes must be names that may be served too.
pub(super) fn is_servable(name: &[u8], hidden: bool) -> bool {
    let is_shown = |part: &[u8]| match part {
        b"." | b".." => false,
        b".well-known" => true,
        [first, ..] => hidden || *first != b'.',
        [] => true,
    };
    !name.is_empty()
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
        && name.split(|byte| *byte == b'\\').all(is_shown)
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut bytes = segment.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => digit(bytes.next())? << 4 | digit(bytes.next())?,
            byte => byte,
        };
        out.push(byte);
    }
    Ok(())
}

fn digit(byte: Option<u8>) -> Result<u8, PathError> {
    let value = byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(PathError::Malformed)?;
    u8::try_from(value).map_err(|_| PathError::Malformed)
}
