//! Which file the path of a request means, if it can mean one at all.

/// A path beneath the root, safe to join: no way up, nothing hidden, nothing that means something to a system.
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
    pub(super) fn parse(path: &str) -> Result<Target, Refused> {
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
            if !rest.is_empty() && !is_servable(&joined[start..]) {
                return Err(Refused::Unreachable);
            }
        }
        Ok(Target { path: joined, slash })
    }
}

/// Whether a name is one that is served: `.`, `..` and hidden names begin with a dot, and a backslash
/// separates on other systems.
pub(super) fn is_servable(name: &[u8]) -> bool {
    !name.is_empty() && name[0] != b'.' && !name.iter().any(|byte| matches!(byte, 0 | b'/' | b'\\'))
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
