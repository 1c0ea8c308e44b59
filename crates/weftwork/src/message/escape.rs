//! Decoding of form values and field names, and escaping for HTML.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

use percent_encoding::percent_decode_str;

/// Formats `text` so that it is harmless in HTML, between tags and in a quoted attribute. Use it for all text that is
/// not your own. [`html`](crate::html) sends its input unchanged.
///
/// ```
/// use weftwork::{escaped, html};
/// let name = "<script>";
/// let page = html(format!("<p>hello, {}", escaped(name)));
/// # assert_eq!(escaped("<a title='\"&\"'>").to_string(), "&lt;a title=&#39;&quot;&amp;&quot;&#39;&gt;");
/// ```
pub fn escaped(text: &str) -> impl Display {
    struct Escaped<'t>(&'t str);
    impl Display for Escaped<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for c in self.0.chars() {
                match c {
                    '&' => f.write_str("&amp;")?,
                    '<' => f.write_str("&lt;")?,
                    '>' => f.write_str("&gt;")?,
                    '"' => f.write_str("&quot;")?,
                    '\'' => f.write_str("&#39;")?,
                    c => f.write_char(c)?,
                }
            }
            Ok(())
        }
    }
    Escaped(text)
}

/// Normalizes a field name like servers that make variables of fields (RFC 3875 section 4.1.18). For them,
/// `X_Forwarded_For` is the same name, and for some also `X.Forwarded.For`.
pub(crate) fn plain_field_name(name: &[u8]) -> String {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    name.iter().map(|byte| char::from(plain(byte))).collect()
}

/// Decodes a name or a value of a query or form: `+` becomes a space, then percent-encoding is decoded. Malformed
/// encoding stays unchanged. Returns None if the result is not UTF-8.
pub(crate) fn form_decoded(text: &str) -> Option<Cow<'_, str>> {
    if is_plain(text) {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()))
}

/// Returns whether nothing must be decoded. It compares bytes, because a search for characters took 30 more
/// instructions for the shortest text.
fn is_plain(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'%' | b'+'))
}

/// Returns the text of a `bool`. A checkbox sends `on`.
#[inline]
pub(crate) fn checkbox(text: &str) -> &str {
    if text == "on" { "true" } else { text }
}

/// Decodes like [`form_decoded`], with U+FFFD for bytes that are not UTF-8.
pub(super) fn form_decoded_lossy(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Splits at these separators, except inside a quoted string (RFC 9110 section 5.6.4). The quote in the last part may
/// be unclosed.
pub(crate) fn split_unquoted(text: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
