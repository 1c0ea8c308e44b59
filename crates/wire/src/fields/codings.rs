//! Reads which content codings and media types a client accepts, with their weights.

use crate::grammar::{elements, trim};

/// Returns the weight of `coding` in a client's Accept-Encoding lines, in thousandths. 0 means not acceptable (RFC
/// 9110 §12.5.3). Without a line, only `identity` is sure to be understood.
///
/// If `identity` is not named, its weight is 1, so that every named coding is preferred.
///
/// ```
/// use weftwork_wire::fields::quality;
/// let lines: [&[u8]; 1] = [b"gzip;q=0.5, br"];
/// assert_eq!(quality(&lines, "br"), 1000);
/// assert_eq!(quality(&lines, "gzip"), 500);
/// assert_eq!(quality(&lines, "zstd"), 0);
/// assert_eq!(quality(&lines, "identity"), 1);
/// ```
pub fn quality(lines: &[&[u8]], coding: &str) -> u16 {
    let mut any = None;
    for element in lines.iter().flat_map(|line| elements(line)) {
        let mut parts = element.split(|&byte| byte == b';').map(trim);
        let name = parts.next().unwrap_or_default();
        // An invalid weight makes the whole element unreadable, and so unreliable.
        let weight = parts.next().map_or(1000, |weight| permille(weight).unwrap_or(0));
        if is_named(name, coding) {
            return weight;
        }
        if name == b"*" {
            any.get_or_insert(weight);
        }
    }
    match any {
        Some(weight) => weight,
        None => u16::from(coding == "identity"),
    }
}

/// Returns whether a client's Accept lines name `media_type`, with any parameters and a weight above 0 (RFC 9110
/// §12.5.1). A range with `*` does not count: browsers name what they show, and programs often send `*/*`.
///
/// ```
/// use weftwork_wire::fields::names_media_type;
/// let lines: [&[u8]; 1] = [b"text/html;level=1;q=0.5, image/png;q=0, */*"];
/// assert!(names_media_type(&lines, "text/html"));
/// assert!(!names_media_type(&lines, "image/png"));
/// assert!(!names_media_type(&lines, "text/plain"));
/// ```
pub fn names_media_type(lines: &[&[u8]], media_type: &str) -> bool {
    lines.iter().flat_map(|line| elements(line)).any(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media_type.as_bytes()));
        is_named && parts.find_map(permille) != Some(0)
    })
}

/// Returns the weight of `media_type` in a client's Accept lines, in thousandths. 0 means not acceptable. The most
/// precise range that matches counts (RFC 9110 §12.5.1). If no range without parameters matches, a range with
/// parameters counts as one without. Parameters of `media_type` are ignored. Without any range, everything is
/// acceptable. An invalid weight, such as `q=.2`, is the lowest: 1.
///
/// ```
/// use weftwork_wire::fields::media_type_quality;
/// let lines: [&[u8]; 1] = [b"text/html, application/json;q=0.9, image/*;q=0.5, */*;q=0.1"];
/// assert_eq!(media_type_quality(&lines, "text/html"), 1000);
/// assert_eq!(media_type_quality(&lines, "application/json"), 900);
/// assert_eq!(media_type_quality(&lines, "image/png"), 500);
/// assert_eq!(media_type_quality(&lines, "text/plain"), 100);
/// ```
pub fn media_type_quality(lines: &[&[u8]], media_type: &str) -> u16 {
    let media_type = media_type.split_once(';').map_or(media_type, |(essence, _)| essence.trim_ascii());
    let mut ranges =
        lines.iter().flat_map(|line| elements(line)).filter(|range| !range.is_empty()).peekable();
    if ranges.peek().is_none() {
        return 1000;
    }
    let fitting = ranges.filter_map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(trim);
        let precision = precision(parts.next()?, media_type.as_bytes())?;
        let (mut weight, mut is_plain) = (1000, true);
        for parameter in parts {
            match parameter {
                // Older clients send `q=.2`. They accept what they name, and a server may ignore the field (RFC 9110
                // §12.5.1).
                [b'q' | b'Q', b'=', ..] => weight = permille(parameter).unwrap_or(1),
                _ => is_plain = false,
            }
        }
        Some(((precision, is_plain), weight))
    });
    // The first of equals counts, and `max_by_key` returns the last.
    fitting.reduce(|best, next| if next.0 > best.0 { next } else { best }).map_or(0, |(_, weight)| weight)
}

/// Returns how precisely a range names the media type, and None if the range does not contain it.
fn precision(range: &[u8], media_type: &[u8]) -> Option<u8> {
    let kind = media_type.split(|&byte| byte == b'/').next().unwrap_or_default();
    match range {
        b"*/*" => Some(0),
        [wide @ .., b'/', b'*'] => wide.eq_ignore_ascii_case(kind).then_some(1),
        _ => range.eq_ignore_ascii_case(media_type).then_some(2),
    }
}

fn is_named(name: &[u8], coding: &str) -> bool {
    // RFC 9110 §8.4.1.3: x-gzip is the same.
    name.eq_ignore_ascii_case(coding.as_bytes()) || coding == "gzip" && name.eq_ignore_ascii_case(b"x-gzip")
}

/// `q=0.5` is 500 (RFC 9110 §12.4.2).
fn permille(weight: &[u8]) -> Option<u16> {
    let value = weight.strip_prefix(b"q=").or_else(|| weight.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1'), rest @ ..] => (u16::from(whole - b'0'), rest),
        _ => return None,
    };
    let decimals = if decimals.is_empty() { decimals } else { decimals.strip_prefix(b".")? };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| decimals.get(at).map_or(0, |digit| u16::from(digit - b'0'));
    let permille = whole * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (permille <= 1000).then_some(permille)
}
