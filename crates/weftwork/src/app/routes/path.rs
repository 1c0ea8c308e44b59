//! Writes values into paths and queries, and reads them back.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::ops::Range;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use super::match_error::MatchError;

/// The unreserved characters of RFC 3986 section 2.3, and three characters that are common in paths and have no
/// meaning there.
const PLAIN_IN_SEGMENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b',');
const PLAIN_IN_REST: AsciiSet = PLAIN_IN_SEGMENT.remove(b'/');

/// A type for paths and queries. It is read with `FromStr` and written with `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used in a path or a query",
    label = "this type is read with `FromStr` and written with `Display`",
    note = "implement both, as numbers and `String` do; each must reverse the other"
)]
pub trait Captured: FromStr<Err: Display> + Display + 'static {}

impl<T: FromStr<Err: Display> + Display + 'static> Captured for T {}

/// Splits off the first segment. The second value is the text after its slash.
#[inline]
pub fn split_segment(tail: &[u8]) -> (&[u8], Option<&[u8]>) {
    match tail.iter().position(|&byte| byte == b'/') {
        Some(at) => (&tail[..at], Some(&tail[at + 1..])),
        None => (tail, None),
    }
}

/// Returns the path that the routes nested under `segment` see. `segment` is the first segment of `tail`.
#[inline]
pub fn nested_path<'p>(tail: &'p [u8], segment: &[u8]) -> &'p [u8] {
    match &tail[segment.len()..] {
        b"" => b"/",
        rest => rest,
    }
}

/// Parses the value of a capture.
#[inline]
pub fn capture<T: Captured>(name: &'static str, part: &[u8]) -> Result<T, MatchError> {
    const WHAT: &str = "path parameter";
    let text = if part.contains(&b'%') {
        percent_decode(part).decode_utf8().ok()
    } else {
        str::from_utf8(part).map(Cow::Borrowed).ok()
    };
    decoded(name, WHAT, text)
}

#[inline]
fn parse<T: Captured>(name: &'static str, what: &str, text: &str) -> Result<T, MatchError> {
    text.parse()
        .map_err(|why| MatchError::invalid_param(name, what, format_args!("is {:?}: {why}", Shortened(text))))
}

/// Parses a value after percent-decoding. `None` means that decoding failed.
pub(super) fn decoded<T: Captured>(
    name: &'static str,
    what: &str,
    text: Option<Cow<'_, str>>,
) -> Result<T, MatchError> {
    match text {
        Some(text) => parse(name, what, &text),
        None => Err(MatchError::invalid_param(name, what, "is not UTF-8")),
    }
}

/// Client text, shortened for an error message.
struct Shortened<'t>(&'t str);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 40;
        match self.0.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
            None => fmt::Debug::fmt(self.0, f),
        }
    }
}

/// Collects the path and the query of a route.
#[derive(Debug, Default)]
pub struct PathWriter {
    path: String,
    query: String,
}

impl PathWriter {
    /// Writes a literal part of the route, which is encoded already.
    pub fn literal(&mut self, text: &str) {
        self.path.push_str(text);
    }

    /// Writes one segment. `sibling_literals` are literal segments of other routes at this position. A value
    /// that equals one of them is encoded differently.
    pub fn capture(&mut self, value: &impl Captured, sibling_literals: &[&str]) {
        let start = self.path.len();
        encode(&mut self.path, value, &PLAIN_IN_SEGMENT);
        self.escape_ambiguous(start..self.path.len(), sibling_literals);
    }

    /// Writes the rest of a path and keeps its slashes.
    pub fn rest(&mut self, value: &impl Captured, sibling_literals: &[&str]) {
        let mut text = String::new();
        encode(&mut text, value, &PLAIN_IN_REST);
        // A leading slash after the first slash of the path would result in `//host`.
        if let Some(rest) = text.strip_prefix('/') {
            text = format!("%2F{rest}");
        }
        let mut between = "";
        for segment in text.split('/') {
            self.path.push_str(between);
            let start = self.path.len();
            self.path.push_str(segment);
            self.escape_ambiguous(start..self.path.len(), sibling_literals);
            between = "/";
        }
    }

    /// Writes nested routes under the current path. The nested path `/` is the current path itself.
    pub fn nest(&mut self, write: impl FnOnce(&mut PathWriter)) {
        let start = self.path.len();
        write(self);
        if &self.path[start..] == "/" {
            self.path.truncate(start);
        }
    }

    /// Writes a query parameter once for each value.
    pub fn parameter<'v, T: Captured + 'v>(&mut self, name: &str, values: impl IntoIterator<Item = &'v T>) {
        for value in values {
            if !self.query.is_empty() {
                self.query.push('&');
            }
            encode(&mut self.query, &name, &PLAIN_IN_SEGMENT);
            self.query.push('=');
            encode(&mut self.query, value, &PLAIN_IN_SEGMENT);
        }
    }

    pub(super) fn finish(self) -> String {
        let PathWriter { mut path, query } = self;
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        path
    }

    /// Encodes a segment that would change the path. `.` and `..` alone name another place (RFC 3986 section
    /// 5.2.4). A sibling literal names another route. Browsers read `%2E` as a dot too, and no other encoding
    /// of a dot exists.
    fn escape_ambiguous(&mut self, segment: Range<usize>, sibling_literals: &[&str]) {
        match &self.path[segment.clone()] {
            dots @ ("." | "..") => {
                let escaped = "%2E".repeat(dots.len());
                self.path.replace_range(segment, &escaped);
            }
            text if !text.is_empty() && sibling_literals.contains(&text) => {
                let escaped = reencoded(text);
                self.path.replace_range(segment, &escaped);
            }
            _ => {}
        }
    }
}

/// Returns another encoding of the segment, if one exists. It decodes to the same text and differs byte by
/// byte.
fn reencoded(segment: &str) -> String {
    let mut at = 0;
    while let Some(byte) = segment.as_bytes().get(at) {
        if *byte != b'%' {
            return format!("{}%{byte:02X}{}", &segment[..at], &segment[at + 1..]);
        }
        // Cannot fail: `encode` wrote the escapes, which have three bytes each.
        let (before, escape, rest) = (&segment[..at], &segment[at..at + 3], &segment[at + 3..]);
        let lower = escape.to_ascii_lowercase();
        if lower != escape {
            return format!("{before}{lower}{rest}");
        }
        // An escape with digits only has a single form.
        at += 3;
    }
    segment.to_owned()
}

fn encode(out: &mut String, value: &dyn Display, set: &'static AsciiSet) {
    struct Encoded<'o>(&'o mut String, &'static AsciiSet);
    impl Write for Encoded<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend(utf8_percent_encode(text, self.1));
            Ok(())
        }
    }
    // A failing `Display` keeps what it wrote so far. A `String` accepts every write.
    let _ = write!(Encoded(out, set), "{value}");
}
