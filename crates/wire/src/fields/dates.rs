//! Parses dates.

use std::time::SystemTime;

/// Returns the time of an `HTTP-date`, in any of its three forms (RFC 9110 §5.6.7). Returns None for an invalid date,
/// for a date that does not exist, and for a date before 1970 or after 9999.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use weftwork_wire::fields::date;
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
/// assert_eq!(date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(noon));
/// assert_eq!(date(b"yesterday"), None);
/// ```
pub fn date(value: &[u8]) -> Option<SystemTime> {
    // Only optional white space may surround the date (§5.6.3). The library accepts any white space, line ends
    // included.
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain {
        return None;
    }
    let parsed = httpdate::parse_http_date(text).ok();
    // The system time has no leap seconds, and stands still during them.
    parsed.or_else(|| httpdate::parse_http_date(&text.replacen(":60 ", ":59 ", 1)).ok())
}
