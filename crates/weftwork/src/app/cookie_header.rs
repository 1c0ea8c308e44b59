//! Parses the `Cookie` field of a request and drops ambiguous cookies.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::HeaderName;

use crate::message::Request;

/// Maximum number of cookies that are read from a request. Browsers keep up to 180 cookies for a site. Typical
/// sites use ten.
pub(super) const COOKIES_MAX: usize = 100;

/// Returns names and values. Values have no quotes and no percent-encoding. A name with two different values is
/// left out, because one of them may come from a neighbouring site.
pub(super) fn parse_cookies<'r>(req: &'r Request<'_>) -> Vec<(&'r str, Cow<'r, str>)> {
    let pairs = req.header_values("cookie").flat_map(|line| line.split(|&byte| byte == b';'));
    let found: Vec<_> = pairs.filter_map(pair).collect();
    // Checks all pairs before the limit applies. Otherwise a neighbouring site could send so many cookies that
    // ours are cut off.
    let mut values: BTreeMap<&str, Option<&Value<'_>>> = BTreeMap::new();
    for (name, value) in &found {
        let known = values.entry(name).or_insert(Some(value));
        *known = known.filter(|known| *known == value);
    }
    let unambiguous = found.iter().filter_map(|(name, _)| Some((*name, values.remove(name)??.clone()?)));
    unambiguous.take(COOKIES_MAX).collect()
}

/// `None` if the value is not UTF-8. Such a value still makes a second value of its name.
type Value<'r> = Option<Cow<'r, str>>;

/// Follows RFC 6265 section 5.4, but is stricter: it accepts ASCII white space only, and no name that looks
/// like another name.
fn pair(text: &[u8]) -> Option<(&str, Value<'_>)> {
    let trimmed = text.trim_ascii();
    let at = trimmed.iter().position(|&byte| byte == b'=')?;
    let name = std::str::from_utf8(&trimmed[..at]).ok()?;
    let value = percent_encoding::percent_decode(unquoted(&trimmed[at + 1..])).decode_utf8().ok();
    is_name(name).then_some((name, value))
}

/// Removes the quotes that RFC 6265 section 4.1.1 allows. Encoded quotes are part of the value.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// Returns whether `name` is a token without `%`. A `%` is a token character, but could hide another name.
pub(super) fn is_name(name: &str) -> bool {
    !name.contains('%') && HeaderName::try_from(name).is_ok()
}
