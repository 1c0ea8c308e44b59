//! Writes the value of the `Date` field.

use std::io::Write;
use std::time::{Duration, SystemTime};

use crate::fields::date;

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

    /// Whether `value` is an HTTP-date after this one. What is no date is not.
    pub(crate) fn is_before(&self, value: &[u8]) -> bool {
        // Most are of the same form and earlier, which is found out without parsing.
        let is_earlier = value.len() == DATE_BYTES && sort_key(value) <= sort_key(self.as_bytes());
        !is_earlier && date(value) > date(self.as_bytes())
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

/// The parts of an IMF-fixdate, the longest span of time first. Equal lengths compare as numbers.
fn sort_key(date: &[u8]) -> (&[u8], usize, &[u8], &[u8]) {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|name| name == &date[8..11]).unwrap_or(MONTHS.len());
    (&date[12..16], month, &date[5..7], &date[17..25])
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
    #[test]
    fn rfc9110_8_8_2_1_dates_after_this_one() {
        let now = Date::at(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        for later in [
            "Sun, 06 Nov 1994 08:49:38 GMT",
            "Sun, 06 Nov 1994 08:50:00 GMT",
            "Sun, 06 Nov 1994 09:00:00 GMT",
            "Mon, 07 Nov 1994 00:00:00 GMT",
            "Thu, 01 Dec 1994 00:00:00 GMT",
            "Sun, 01 Jan 1995 00:00:00 GMT",
            "Sunday, 06-Nov-94 08:49:38 GMT",
            "Sun Nov  6 08:49:38 1994",
            "  Sun, 06 Nov 1994 08:49:38 GMT ",
        ] {
            assert!(now.is_before(later.as_bytes()), "{later}");
        }
        for other in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:48:59 GMT",
            "Mon, 31 Oct 1994 23:59:59 GMT",
            "Fri, 31 Dec 1993 23:59:59 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "",
            "tomorrow",
            "Sun, 06 Nov 2994 08:49:xx GMT",
            "Xxx, xx Xxx xxxx xx:xx:xx GMT",
        ] {
            assert!(!now.is_before(other.as_bytes()), "{other}");
        }
    }
}
