//! Writes the value of the `Date` field.

use std::io::Write;
use std::time::{Duration, SystemTime};

/// Length of an IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
const DATE_BYTES: usize = 29;

/// What stands around it in a head: the status line of most, and the name of the field that follows in most.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";
const NAME: &[u8] = b"Date: ";
const CRLF: &[u8] = b"\r\n";
const CONTENT_TYPE: &[u8] = b"Content-Type: ";
const LINE_BYTES: usize = NAME.len() + DATE_BYTES + CRLF.len();
const START_BYTES: usize = OK.len() + LINE_BYTES + CONTENT_TYPE.len();

/// 9999-12-31T23:59:59Z: the last second that has a four-digit year.
const LAST_SECOND: u64 = 253_402_300_799;

/// The value of a `Date` field, ready to copy. Make one a second, not one a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date([u8; START_BYTES]);

impl Date {
    /// The date of `time`, in whole seconds. A time before 1970 or after 9999, which has no such date,
    /// becomes the nearest one that has.
    pub fn at(time: SystemTime) -> Date {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
        let mut start = [b' '; START_BYTES];
        let written = write!(
            &mut start[..],
            "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: ",
            httpdate::HttpDate::from(time)
        );
        debug_assert!(written.is_ok(), "an IMF-fixdate has 29 bytes");
        Date(start)
    }

    /// The 29 bytes, ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.line()[NAME.len()..][..DATE_BYTES]
    }

    /// The field line, whole.
    #[inline]
    pub(crate) fn line(&self) -> &[u8] {
        &self.0[OK.len()..][..LINE_BYTES]
    }

    /// How the head of a 200 starts, up to the value of its Content-Type: one copy of a length that the
    /// compiler knows.
    #[inline]
    pub(crate) fn ok_start(&self) -> &[u8; START_BYTES] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, want: &str) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(Date::at(time).as_bytes(), want.as_bytes());
        assert_eq!(Date::at(time).line(), format!("Date: {want}\r\n").as_bytes());
        let start = format!("HTTP/1.1 200 OK\r\nDate: {want}\r\nContent-Type: ");
        assert_eq!(Date::at(time).ok_start(), start.as_bytes());
    }

    #[test]
    fn rfc9110_5_6_7_fixdate() {
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT");
        check(LAST_SECOND + 1, "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_clock_before_1970_says_1970() {
        let time = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Date::at(time).as_bytes(), b"Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
