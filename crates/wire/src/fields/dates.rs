//! Parses dates.

use std::time::SystemTime;

/// The time that an `HTTP-date` names, in any of its three forms (RFC 9110 §5.6.7). None for what is no date,
/// for one that does not exist, and for one before 1970 or after 9999.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use weftwork_wire::fields::date;
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
/// assert_eq!(date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(noon));
/// assert_eq!(date(b"yesterday"), None);
/// ```
pub fn date(value: &[u8]) -> Option<SystemTime> {
    // What is around it may be optional white space (§5.6.3); the library takes any, line ends among it.
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain {
        return None;
    }
    let parsed = httpdate::parse_http_date(text).ok();
    // A leap second, which the time of the system does not have: it stands still for it.
    parsed.or_else(|| httpdate::parse_http_date(&text.replacen(":60 ", ":59 ", 1)).ok())
}
