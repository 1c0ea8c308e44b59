//! Finds paths that are not in canonical form (RFC 3986 section 6.2.2).
//!
//! Two paths that differ byte by byte may mean the same path to the server that answers. A guard that compares
//! bytes would then be bypassed by another spelling.

use percent_encoding::percent_decode;

/// The reason why another spelling of the path means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonCanonical {
    /// `/%61` is `/a`.
    EncodedUnreserved,
    /// `/a/../b` and `/./b` are `/b`, even if the dots are encoded.
    DotSegment,
    /// `//a` is `/a` for servers that merge slashes.
    EmptySegment,
}

impl NonCanonical {
    /// Returns the violated rule, and how to follow it, as a text for the client.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            NonCanonical::EncodedUnreserved => {
                "letters, digits and -._~ must not be encoded in a path (RFC 3986 section 6.2.2.2)"
            }
            NonCanonical::DotSegment => {
                "a path must not have a segment . or .., encoded or not (RFC 3986 section 6.2.2.3)"
            }
            NonCanonical::EmptySegment => "a path must not have an empty segment: send / instead of //",
        }
    }
}

/// Returns what is not canonical in `path`. The path is encoded as it was sent and has no query.
pub(crate) fn non_canonical(path: &[u8]) -> Option<NonCanonical> {
    if has_dot_segment(path) {
        return Some(NonCanonical::DotSegment);
    }
    if has_empty_segment(path) {
        return Some(NonCanonical::EmptySegment);
    }
    encodes_unreserved(path).then_some(NonCanonical::EncodedUnreserved)
}

/// Returns the path in normal form (RFC 3986 section 6.2.2): without dot segments and empty segments, and with
/// letters, digits and `-._~` decoded. Returns `None` if the path leads above its start, or if servers read it
/// in different ways: dots beside an encoded slash, a backslash or `;`, and `..` after an empty segment, which
/// some servers merge first.
pub(crate) fn normal_form(path: &str) -> Option<String> {
    let plain = canonical(path);
    let mut segments: Vec<&str> = Vec::new();
    let (mut goes_up, mut has_empty) = (false, false);
    let mut parts = plain.strip_prefix('/')?.split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "" if !is_last => {
                has_empty = true;
                // The slashes of a URL within a path.
                if segments.last().is_some_and(|before| before.ends_with(':')) {
                    segments.push("");
                }
            }
            "." | ".." => {
                if part == ".." {
                    goes_up = true;
                    segments.pop()?;
                }
                if is_last {
                    segments.push("");
                }
            }
            part if has_dot_segment(part.as_bytes()) => return None,
            part => segments.push(part),
        }
    }
    (!goes_up || !has_empty).then(|| format!("/{}", segments.join("/")))
}

/// Checks all spellings. Some servers read `%2F` or `\` as `/`, and drop the text after a `;`.
fn has_dot_segment(path: &[u8]) -> bool {
    let plain: Vec<u8> = percent_decode(path).collect();
    let mut segments = plain.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.any(|segment| {
        matches!(segment, b"." | b"..") || segment.starts_with(b".;") || segment.starts_with(b"..;")
    })
}

/// Ignores the slashes of a URL within a path, as in `/web/https://a.example`. Merged or not, they do not
/// remove a segment that a guard could check.
fn has_empty_segment(path: &[u8]) -> bool {
    let is_url = |at: usize| path.get(at.wrapping_sub(1)) == Some(&b':');
    path.windows(2).enumerate().any(|(at, pair)| pair == b"//" && !is_url(at))
}

/// Returns whether a letter, a digit or one of `-._~` is encoded.
pub(crate) fn encodes_unreserved(path: &[u8]) -> bool {
    path.windows(3).any(|part| encoded_unreserved(part).is_some())
}

/// Returns the path with letters, digits and `-._~` decoded.
pub(crate) fn canonical(path: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(path.len()), path);
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let (shown, length) = encoded_unreserved(rest.as_bytes()).map_or(('%', 1), |byte| (byte, 3));
        plain.push(shown);
        rest = &rest[length..];
    }
    plain + rest
}

/// Returns the character that the first three bytes encode, if it needs no encoding.
fn encoded_unreserved(bytes: &[u8]) -> Option<char> {
    let encoded = bytes.get(..3).filter(|start| start[0] == b'%')?;
    let byte = percent_decode(encoded).next()?;
    (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)).then_some(char::from(byte))
}

#[cfg(test)]
mod tests {
    //! Tests that the canonical form passes, and that each other form is refused by its rule.

    use super::*;

    #[track_caller]
    fn check(want: Option<NonCanonical>, paths: &[&str]) {
        for path in paths {
            assert_eq!(non_canonical(path.as_bytes()), want, "{path}");
        }
    }

    #[test]
    fn what_has_one_spelling_passes() {
        check(None, &["*", "/", "/a", "/a/", "/a/b.c/-_~", "/.well-known/x", "/..a/b../...", "/a;b/c;d"]);
        // Reserved, or not a character of a path: `%2F` is not `/` (RFC 3986 section 2.2).
        check(None, &["/a%2Fb", "/a%2fb", "/%C3%A9", "/%20", "/a%5Cb", "/100%25", "/%252e%252e/a", "/%2561"]);
        check(None, &["/web/https://a.example/b", "/http://a", "/a/b:"]);
    }

    #[test]
    fn what_stands_for_itself_is_not_encoded() {
        let encoded =
            ["/%61dmin", "/%41", "/a/%7A", "/%7a", "/%30", "/a%39", "/a%2Db", "/a%5fb", "/%7Ea", "/a%2eb"];
        check(Some(NonCanonical::EncodedUnreserved), &encoded);
        check(Some(NonCanonical::EncodedUnreserved), &["/%25%61", "/a%2F%62"]);
        for byte in 0..=u8::MAX {
            let path = format!("/a%{byte:02X}");
            let stands_for_itself = byte.is_ascii_alphanumeric() || [b'-', b'.', b'_', b'~'].contains(&byte);
            assert_eq!(non_canonical(path.as_bytes()).is_some(), stands_for_itself, "{path}");
        }
    }

    #[test]
    fn a_path_is_spelt_plainly() {
        for (path, plain) in [
            ("/", "/"),
            ("/%61", "/a"),
            ("/%61%2F%7e%c3%A9", "/a%2F~%c3%A9"),
            ("/%2541%", "/%2541%"),
            ("/%4", "/%4"),
        ] {
            assert_eq!(canonical(path), plain, "{path}");
        }
    }

    #[test]
    fn a_path_leads_nowhere_else() {
        let dots =
            ["/.", "/..", "/./a", "/../a", "/a/.", "/a/..", "/a/./b", "/%2e/a", "/%2E%2e/a", "/a/.%2e"];
        check(Some(NonCanonical::DotSegment), &dots);
        let to_some =
            ["/..%2fa", "/x%2F..%2Fa", "/x%5C..%5ca", "/x\\..\\a", "/..;/a", "/..%3Bx/a", "/.;x/a", "/.%2fa"];
        check(Some(NonCanonical::DotSegment), &to_some);
        check(Some(NonCanonical::DotSegment), &["//../a"]);
    }

    #[test]
    fn a_path_has_one_normal_form() {
        for (path, normal) in [
            ("/", "/"),
            ("//", "/"),
            ("/a//b///c", "/a/b/c"),
            ("/a//", "/a/"),
            ("/%7Eann/%61", "/~ann/a"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/..b/...", "/a/..b/..."),
            ("/a%2Fb;c", "/a%2Fb;c"),
            ("/web/https://a.example//b", "/web/https://a.example/b"),
            ("/%252e%252e/a", "/%252e%252e/a"),
        ] {
            assert_eq!(normal_form(path).as_deref(), Some(normal), "{path}");
            assert_eq!(non_canonical(normal.as_bytes()), None, "{normal}");
        }
    }

    #[test]
    fn a_path_that_is_read_in_two_ways_has_no_normal_form() {
        for path in [
            "/..",
            "/../a",
            "/a/../../b",
            "/%2e%2e/a",
            "/./..",
            "*",
            "",
            "/..%2fa",
            "/a%2F..%2fb",
            "/a%5c..",
            "/..;/a",
            "/a/..;x/b",
            "/.;/a",
            "/a//../b",
            "/a/..//b",
            "/web/https://../b",
        ] {
            assert_eq!(normal_form(path), None, "{path}");
        }
    }

    #[test]
    fn no_segment_is_empty() {
        check(Some(NonCanonical::EmptySegment), &["//", "//a", "/a//", "/a//b", "///", "//%61"]);
        check(Some(NonCanonical::EmptySegment), &["/file:///a", "/web/https://a//b"]);
    }
}
