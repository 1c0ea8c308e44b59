//! Which file the path of a request means, if it can mean one at all.

use std::borrow::Cow;

use crate::app::path_form::encodes_unreserved;

/// A path beneath the root, safe to join: no way up, and nothing that means something to a system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// Decoded segments joined by `/`; empty for the root. Few paths have anything to decode.
    pub(super) path: Cow<'a, [u8]>,
    /// It ended with a slash, and so means a directory.
    pub(super) slash: bool,
    /// It is not spelt plainly. A guard in front compares the path as it was sent, and has not seen this one.
    pub(super) is_non_canonical: bool,
}

/// Why a path means no file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathError {
    /// A `%` without two hexadecimal digits: 400.
    Malformed,
    /// No file that is served can have this name: 404.
    Unreachable,
}

impl<'a> Target<'a> {
    /// Reads the path of a request. `hidden`: names that begin with a dot may be reached.
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

    /// A relative path as it is, not encoded.
    pub(super) fn named(name: &'a str, hidden: bool) -> Result<Target<'a>, PathError> {
        Ok(Target { path: servable(name.as_bytes(), hidden)?.into(), slash: false, is_non_canonical: false })
    }
}

/// A path of which nothing is encoded.
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
        // Split first, decode then, and once: an encoded slash separates nothing, `%252e` is no dot.
        decode(segment, &mut joined)?;
        if !is_servable(&joined[start..], hidden) {
            return Err(PathError::Unreachable);
        }
    }
    Ok(joined)
}

/// `name` in `directory`, which is empty for the root.
pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Whether a name is one that is served. `.` and `..` never are; hidden names begin with a dot, and one of them is
/// there to be found (RFC 8615). A backslash separates on other systems.
pub(super) fn is_servable(name: &[u8], hidden: bool) -> bool {
    let shown = match name {
        [] | b"." | b".." => false,
        b".well-known" => true,
        [first, ..] => hidden || *first != b'.',
    };
    shown && !name.iter().any(|byte| matches!(byte, 0 | b'/' | b'\\'))
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
