//! How does a value become a part of a path or a query, and how is it read back?

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::ops::Range;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use super::miss::Miss;

/// RFC 3986 section 2.3, and three that are common in paths and mean nothing there.
const PLAIN_IN_SEGMENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b',');
const PLAIN_IN_REST: AsciiSet = PLAIN_IN_SEGMENT.remove(b'/');

/// A type that can stand in a path or a query: read with `FromStr`, written with `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in a path or a query",
    label = "this type is read with `FromStr` and written with `Display`",
    note = "give it both, as numbers and `String` have them; one has to undo the other"
)]
pub trait Captured: FromStr<Err: Display> + Display + 'static {}

impl<T: FromStr<Err: Display> + Display + 'static> Captured for T {}

/// The first segment, and what is behind its slash.
#[inline]
pub fn split_segment(tail: &[u8]) -> (&[u8], Option<&[u8]>) {
    match tail.iter().position(|&byte| byte == b'/') {
        Some(at) => (&tail[..at], Some(&tail[at + 1..])),
        None => (tail, None),
    }
}

/// What the routes nested behind `segment`, the first one of `tail`, see as their path.
#[inline]
pub fn nested_path<'p>(tail: &'p [u8], segment: &[u8]) -> &'p [u8] {
    match &tail[segment.len()..] {
        b"" => b"/",
        rest => rest,
    }
}

/// The value of a capture.
#[inline]
pub fn capture<T: Captured>(name: &'static str, part: &[u8]) -> Result<T, Miss> {
    const WHAT: &str = "path parameter";
    let text = if part.contains(&b'%') {
        percent_decode(part).decode_utf8().ok()
    } else {
        str::from_utf8(part).map(Cow::Borrowed).ok()
    };
    decoded(name, WHAT, text)
}

#[inline]
fn parse<T: Captured>(name: &'static str, what: &str, text: &str) -> Result<T, Miss> {
    text.parse().map_err(|why| Miss::malformed(name, what, format_args!("is {:?}: {why}", Shortened(text))))
}

/// The value of a part whose encoding was undone, if it could be.
pub(super) fn decoded<T: Captured>(
    name: &'static str,
    what: &str,
    text: Option<Cow<'_, str>>,
) -> Result<T, Miss> {
    match text {
        Some(text) => parse(name, what, &text),
        None => Err(Miss::malformed(name, what, "is not UTF-8")),
    }
}

/// What of a client's text is told back to it.
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

/// Gathers the path and the query of a route.
#[derive(Debug, Default)]
pub struct PathWriter {
    path: String,
    query: String,
}

impl PathWriter {
    /// A part of the route as it was written; it is encoded already.
    pub fn literal(&mut self, text: &str) {
        self.path.push_str(text);
    }

    /// One segment. `sibling_literals` are literal segments of other routes at this place: a value that equals one is
    /// written so that it is not taken for it.
    pub fn capture(&mut self, value: &impl Captured, sibling_literals: &[&str]) {
        let start = self.path.len();
        encode(&mut self.path, value, &PLAIN_IN_SEGMENT);
        self.escape_ambiguous(start..self.path.len(), sibling_literals);
    }

    /// The rest of a path: its slashes stay.
    pub fn rest(&mut self, value: &impl Captured, sibling_literals: &[&str]) {
        let mut text = String::new();
        encode(&mut text, value, &PLAIN_IN_REST);
        // A leading one would make `//host` of a rest that follows the first slash.
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

    /// What `write` adds are routes beneath what is here: their `/` is this place itself.
    pub fn nest(&mut self, write: impl FnOnce(&mut PathWriter)) {
        let start = self.path.len();
        write(self);
        if &self.path[start..] == "/" {
            self.path.truncate(start);
        }
    }

    /// A query parameter, as often as it has values.
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

    /// Dots alone would name another place (RFC 3986 section 5.2.4), a rival another route. To browsers `%2E` is a dot,
    /// too, and nothing else stands for one.
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

/// The same segment to whoever decodes it, and another one byte by byte, if there is another way to write it.
fn reencoded(segment: &str) -> String {
    let mut at = 0;
    while let Some(byte) = segment.as_bytes().get(at) {
        if *byte != b'%' {
            return format!("{}%{byte:02X}{}", &segment[..at], &segment[at + 1..]);
        }
        // cannot fail: `encode` has written the escapes, of three bytes each
        let (before, escape, rest) = (&segment[..at], &segment[at..at + 3], &segment[at + 3..]);
        let lower = escape.to_ascii_lowercase();
        if lower != escape {
            return format!("{before}{lower}{rest}");
        }
        // An escape of digits alone is written in one way only.
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
    // A `Display` that fails wrote what it wrote; a String takes everything.
    let _ = write!(Encoded(out, set), "{value}");
}
