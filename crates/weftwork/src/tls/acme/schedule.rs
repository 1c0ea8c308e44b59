//! When a certificate is renewed, and when a failed attempt is repeated.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use super::facts::Facts;
use super::store::Attempts;

/// Waits after failures. Let's Encrypt allows five failed validations of a name in an hour.
const BACKOFF: [Duration; 6] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(3600),
    Duration::from_secs(3 * 3600),
    Duration::from_secs(6 * 3600),
];
/// At a start, a failure of an earlier process delays the first attempt by at most this. An administrator who
/// corrects a fault and starts the server again need not wait for hours, and a server that is started again and again
/// stays within the rate limits.
const BACKOFF_AT_START_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest wait that a `Retry-After` of the authority can cause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Interval for asking for renewal information (RFC 9773 section 4.3.2), whatever the authority says.
const RENEWAL_INFO_INTERVAL: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
/// Interval at which the files are compared with those in use.
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The window that the authority suggests for a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
}

/// Returns the time of the renewal: a point in the window of the authority, else two thirds of the life, less up to a
/// twentieth. The point is the same in all processes and after a start, and differs between certificates.
pub(super) fn renewal_time(facts: &Facts, window: Option<Window>) -> SystemTime {
    let fraction = fraction(&facts.serial);
    let at = match window {
        Some(Window { start, end }) => {
            start + end.duration_since(start).unwrap_or_default().mul_f64(fraction)
        }
        None => facts.not_before + facts.life().mul_f64(2.0 / 3.0 - fraction / 20.0),
    };
    // An authority that always says "now" gets no order after order, and one whose window ends with the certificate
    // leaves time for a second attempt.
    at.clamp(facts.not_before + facts.life() / 20, facts.not_before + facts.life() / 10 * 9)
}

fn fraction(serial: &[u8]) -> f64 {
    let mut hasher = DefaultHasher::new();
    serial.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the earliest time of the next attempt. `started_at` is the start of this process.
pub(super) fn next_attempt(attempts: &Attempts, started_at: SystemTime) -> SystemTime {
    if attempts.failures == 0 {
        return SystemTime::UNIX_EPOCH;
    }
    let failed_at = from_unix(attempts.failed_at);
    let step = usize::try_from(attempts.failures - 1).unwrap_or(usize::MAX).min(BACKOFF.len() - 1);
    let mut wait = BACKOFF[step];
    if failed_at < started_at {
        wait = wait.min(BACKOFF_AT_START_MAX);
    }
    let demanded = from_unix(attempts.not_before).min(failed_at + RETRY_AFTER_MAX);
    (failed_at + wait).max(demanded)
}

/// Returns when the authority is asked for renewal information again.
pub(super) fn next_renewal_info(now: SystemTime, retry_after: Duration) -> SystemTime {
    let (min, max) = RENEWAL_INFO_INTERVAL;
    now + retry_after.clamp(min, max)
}

/// Returns how long the thread may sleep: a minute, or less if a certificate lives for less than ten minutes or is
/// missing.
pub(super) fn look_interval<'a>(certificates: impl Iterator<Item = Option<&'a Facts>>) -> Duration {
    let (min, max) = LOOK_INTERVAL;
    certificates
        .map(|facts| facts.map_or(min, |facts| (facts.life() / 10).clamp(min, max)))
        .min()
        .unwrap_or(max)
}

pub(super) fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn from_unix(seconds: u64) -> SystemTime {
    // 2^40 seconds are 35,000 years, and within the range of every clock.
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(1 << 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86400);

    fn facts(serial: u8) -> Facts {
        let not_before = from_unix(1_800_000_000);
        Facts { not_before, not_after: not_before + 90 * DAY, serial: vec![serial], authority_key: None }
    }

    #[test]
    fn without_renewal_information_a_renewal_is_at_two_thirds_of_the_life_and_spread() {
        let times: Vec<f64> = (0..=255)
            .map(|serial| {
                let facts = facts(serial);
                let at = renewal_time(&facts, None);
                assert_eq!(at, renewal_time(&facts, None));
                at.duration_since(facts.not_before).unwrap().as_secs_f64() / DAY.as_secs_f64()
            })
            .collect();
        let (min, max) = times.iter().fold((f64::MAX, 0.0_f64), |(min, max), &at| (min.min(at), max.max(at)));
        assert!((55.5..56.5).contains(&min) && (59.0..=60.0).contains(&max), "{min} {max}");
    }

    #[test]
    fn the_window_of_the_authority_comes_first() {
        let facts = facts(1);
        let start = facts.not_before + 10 * DAY;
        let at = renewal_time(&facts, Some(Window { start, end: start + DAY }));
        assert!(at >= start && at <= start + DAY);
        // "Now", because the certificate is going to be revoked.
        let past = Window { start: facts.not_before - 2 * DAY, end: facts.not_before - DAY };
        assert_eq!(renewal_time(&facts, Some(past)), facts.not_before + 90 * DAY / 20);
        // Invalid, and still no panic.
        renewal_time(&facts, Some(Window { start, end: start - DAY }));
    }

    #[test]
    fn waits_grow_and_respect_the_authority() {
        let failed_at = 1_800_000_000;
        let wait = |failures: u32, not_before: u64| {
            let attempts = Attempts { failures, failed_at, not_before, reason: String::new() };
            unix(next_attempt(&attempts, SystemTime::UNIX_EPOCH)) - failed_at
        };
        assert_eq!(next_attempt(&Attempts::default(), SystemTime::UNIX_EPOCH), SystemTime::UNIX_EPOCH);
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 1000].map(|failures| wait(failures, 0)),
            [60, 300, 900, 3600, 10800, 21600, 21600, 21600]
        );
        assert_eq!(wait(1, failed_at + 4000), 4000);
        assert_eq!(wait(6, failed_at + 4000), 21600);
        assert_eq!(wait(1, u64::MAX), RETRY_AFTER_MAX.as_secs());
    }

    #[test]
    fn a_start_shortens_the_wait_except_one_that_the_authority_demands() {
        let attempts =
            Attempts { failures: 6, failed_at: 1_800_000_000, not_before: 0, reason: String::new() };
        let started_at = from_unix(1_800_000_100);
        assert_eq!(unix(next_attempt(&attempts, started_at)), 1_800_000_900);
        let limited = Attempts { not_before: 1_800_009_000, ..attempts };
        assert_eq!(unix(next_attempt(&limited, started_at)), 1_800_009_000);
    }

    #[test]
    fn short_lives_are_looked_at_more_often() {
        let mut short = facts(1);
        short.not_after = short.not_before + Duration::from_secs(30);
        let seconds = |facts: &[Option<&Facts>]| look_interval(facts.iter().copied()).as_secs();
        assert_eq!(seconds(&[Some(&facts(1))]), 60);
        assert_eq!(seconds(&[Some(&facts(1)), Some(&short)]), 3);
        assert_eq!(seconds(&[Some(&facts(1)), None]), 1);
    }
}
