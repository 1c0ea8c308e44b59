//! Which file the path of a request means, if it can mean one at all.

/// A path beneath the root, safe to join: no way up, and nothing that means something to a system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Decoded segments joined by `/`; empty for the root.
    pub(super) path: Vec<u8>,
    /// It ended with a slash, and so means a directory.
    pub(super) slash: bool,
}

/// Why a path means no file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A `%` without two hexadecimal digits: 400.
    Malformed,
    /// No file that is served can have this name: 404.
    Unreachable,
}

impl Target {
    /// Reads the path of a request. `hidden`: names that begin with a dot may be reached.
    pub(super) fn parse(path: &str, hidden: bool) -> Result<Target, Refused> {
        let rest = path.strip_prefix('/').ok_or(Refused::Unreachable)?;
        let (rest, slash) = match rest.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (rest, rest.is_empty()),
        };
        if rest.is_empty() && path.len() > 1 {
            return Err(Refused::Unreachable);
        }
        let mut joined = Vec::with_capacity(rest.len());
        for (index, segment) in rest.split('/').enumerate() {
            if index > 0 {
                joined.push(b'/');
            }
            let start = joined.len();
            // Split first, decode then, and once: an encoded slash separates nothing, `%252e` is no dot.
            decode(segment, &mut joined)?;
            if !rest.is_empty() && !is_servable(&joined[start..], hidden) {
                return Err(Refused::Unreachable);
            }
        }
        Ok(Target { path: joined, slash })
    }

    /// A relative path as it is, not encoded.
    pub(super) fn named(name: &str, hidden: bool) -> Result<Target, Refused> {
        let servable = name.split('/').all(|segment| is_servable(segment.as_bytes(), hidden));
        if servable { Ok(Target { path: name.into(), slash: false }) } else { Err(Refused::Unreachable) }
    }
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

fn decode(segment: &str, out: &mut Vec<u8>) -> Result<(), Refused> {
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => digit(bytes.next())? << 4 | digit(bytes.next())?,
            byte => byte,
        };
        out.push(byte);
    }
    Ok(())
}

fn digit(byte: Option<u8>) -> Result<u8, Refused> {
    let value = byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(Refused::Malformed)?;
    u8::try_from(value).map_err(|_| Refused::Malformed)
}
