//! Which cookies has a client sent, and which of them can be believed?

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::HeaderName;

use crate::message::Request;

/// Cookies of one request that are kept; browsers keep up to 180 a site, sites use ten.
pub(super) const COOKIES_MAX: usize = 100;

/// Names and values, the latter without their quotes and their percent-encoding. A name that comes
/// twice with different values is left out: one of them may be a neighbour's, and nobody can tell which.
pub(super) fn parse_cookies<'r>(req: &'r Request<'_>) -> Vec<(&'r str, Cow<'r, str>)> {
    let pairs = req.header_values("cookie").flat_map(|line| line.split(|&byte| byte == b';'));
    let found: Vec<_> = pairs.filter_map(pair).collect();
    // Of all of them: a neighbour may send so many that ours would be past the limit.
    let mut values: BTreeMap<&str, Option<&Value<'_>>> = BTreeMap::new();
    for (name, value) in &found {
        let known = values.entry(name).or_insert(Some(value));
        *known = known.filter(|known| *known == value);
    }
    let unambiguous = found.iter().filter_map(|(name, _)| Some((*name, values.remove(name)??.clone()?)));
    unambiguous.take(COOKIES_MAX).collect()
}

/// None: it is no text in UTF-8, by which a name that comes twice has two values all the same.
type Value<'r> = Option<Cow<'r, str>>;

/// RFC 6265 section 5.4, more strictly: ASCII white space only, and no name that only looks like another.
fn pair(text: &[u8]) -> Option<(&str, Value<'_>)> {
    let trimmed = text.trim_ascii();
    let at = trimmed.iter().position(|&byte| byte == b'=')?;
    let name = std::str::from_utf8(&trimmed[..at]).ok()?;
    let value = percent_encoding::percent_decode(unquoted(&trimmed[at + 1..])).decode_utf8().ok();
    is_name(name).then_some((name, value))
}

/// RFC 6265 section 4.1.1: a value may stand in quotes. Those that are encoded are of the value itself.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// A token. `%` is one of its characters, and could hide another name.
pub(super) fn is_name(name: &str) -> bool {
    !name.contains('%') && HeaderName::try_from(name).is_ok()
}
