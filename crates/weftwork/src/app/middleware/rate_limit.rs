//! Rate limits per client.

mod table;

use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, header};

use super::{Middleware, Next, refusal};
use crate::error::{Error, Result};
use crate::message::{Request, Response};
use table::Table;

/// Limits the requests of each client in a time span. When exceeded: 429 with `Retry-After`.
///
/// Each key has a token bucket, stored as one number (the generic cell rate algorithm of ITU-T I.371).
///
/// - **Key:** the address of the client ([`Request::client_addr`]). For IPv6 it is the /64 network, which
///   usually belongs to one customer. [`key`](RateLimit::key) sets another key, such as a user, an API key or
///   the route. A request without a key, for example on a Unix socket, is not limited.
/// - **Memory:** fixed, 16 bytes for each of 65,536 keys. [`keys_max`](RateLimit::keys_max) changes the number.
///   If more keys are active, those closest to a full bucket are forgotten first. A flood of addresses can
///   loosen the limit, but cannot fill the memory or affect other clients.
/// - Keys are hashed with secret numbers, so that clients cannot choose two keys that collide.
///
/// ```
/// use std::time::Duration;
/// use weftwork::middleware::RateLimit;
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// let ten_a_minute = RateLimit::new(10, Duration::from_secs(60))?.burst(3);
/// takes((|_: &mut Request| "signed in").with(ten_a_minute));
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone)]
pub struct RateLimit {
    /// Nanoseconds per request.
    interval: u64,
    burst: u32,
    key: Arc<Key>,
    table: Arc<Table>,
    start: Instant,
}

/// Computes the hash of a request's key.
type Key = dyn Fn(&Request<'_>, &Table) -> Option<u64> + Send + Sync;

/// Default number of keys, which takes 1 MiB.
const KEYS_MAX: usize = 65_536;

impl RateLimit {
    /// Allows `requests` for each client in any span of `per`, plus or minus the burst, which is also
    /// `requests` by default.
    ///
    /// # Errors
    /// Fails if `requests` is zero, or if `per` is shorter than one nanosecond per request.
    pub fn new(requests: u32, per: Duration) -> Result<RateLimit> {
        let interval = per.as_nanos().checked_div(u128::from(requests)).unwrap_or(0);
        let interval = u64::try_from(interval).unwrap_or(u64::MAX);
        if interval == 0 {
            return Err(Error::usage(format!(
                "invalid rate limit of {requests} requests in {per:?}: both must be above zero"
            )));
        }
        let table = Arc::new(Table::new(KEYS_MAX));
        let key = Arc::new(|req: &Request<'_>, table: &Table| Some(table.hash(&network(req.client_addr()?))));
        Ok(RateLimit { interval, burst: requests, key, table, start: Instant::now() })
    }

    /// Sets how many requests may come at once. Default: the number given to `new`. 0 counts as 1.
    #[must_use]
    pub fn burst(self, requests: u32) -> RateLimit {
        RateLimit { burst: requests.max(1), ..self }
    }

    /// Sets the key that requests are counted by. A request for which `key` returns `None` is not limited.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use weftwork::middleware::{RateLimit, User};
    /// let by_user = RateLimit::new(100, Duration::from_secs(60))?
    ///     .key(|req| req.extensions().get::<User>().map(|user| user.name().to_owned()));
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    #[must_use]
    pub fn key<K: Hash>(self, key: impl Fn(&Request<'_>) -> Option<K> + Send + Sync + 'static) -> RateLimit {
        let key = Arc::new(move |req: &Request<'_>, table: &Table| Some(table.hash(&key(req)?)));
        RateLimit { key, ..self }
    }

    /// Sets the number of keys. Each takes 16 bytes. The number is rounded up to a power of two. Default:
    /// 65,536.
    #[must_use]
    pub fn keys_max(self, max: usize) -> RateLimit {
        RateLimit { table: Arc::new(Table::new(max)), ..self }
    }

    /// Takes a request from the bucket of `key`. The error is the time until the next request is allowed.
    fn take(&self, key: u64, now: u64) -> Result<(), Duration> {
        let tolerance = self.interval.saturating_mul(u64::from(self.burst - 1));
        self.table.update(key, now, |full_at| {
            let full_at = full_at.max(now);
            match (full_at - now).checked_sub(tolerance) {
                None | Some(0) => (full_at.saturating_add(self.interval), Ok(())),
                Some(wait) => (full_at, Err(Duration::from_nanos(wait))),
            }
        })
    }
}

impl Middleware for RateLimit {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let Some(key) = (self.key)(req, &self.table) else { return next.run(req) };
        let now =
            u64::try_from(req.now().saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        match self.take(key, now) {
            Ok(()) => next.run(req),
            Err(wait) => refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests; see Retry-After")
                .with_header(header::RETRY_AFTER, HeaderValue::from(seconds_rounded_up(wait))),
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("interval", &Duration::from_nanos(self.interval))
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

/// Returns the address of one customer: an IPv4 address, or an IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

fn seconds_rounded_up(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    //! Tests that the bucket empties, refills with time, and belongs to one key.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;

    const SECOND: u64 = 1_000_000_000;

    fn five_a_minute() -> RateLimit {
        RateLimit::new(5, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let limit = five_a_minute().burst(3);
        for _ in 0..3 {
            assert_eq!(limit.take(1, 0), Ok(()));
        }
        assert_eq!(limit.take(1, 0), Err(Duration::from_secs(12)));
        assert_eq!(limit.take(1, 5 * SECOND), Err(Duration::from_secs(7)), "a refusal costs nothing");
        assert_eq!(limit.take(2, 0), Ok(()), "another key has a bucket of its own");
        assert_eq!(limit.take(1, 12 * SECOND), Ok(()));
        assert_eq!(limit.take(1, 12 * SECOND), Err(Duration::from_secs(12)));
        for _ in 0..3 {
            assert_eq!(limit.take(1, 3600 * SECOND), Ok(()), "no more than the burst is saved up");
        }
        assert_eq!(limit.take(1, 3600 * SECOND), Err(Duration::from_secs(12)));
    }

    #[test]
    fn over_a_long_time_it_is_the_rate() {
        let limit = RateLimit::new(100, Duration::from_secs(1)).unwrap().burst(1);
        let passed = (0..10_000).filter(|tenth_ms| limit.take(1, tenth_ms * SECOND / 10_000).is_ok()).count();
        assert_eq!(passed, 100);
    }

    #[test]
    fn nothing_overflows() {
        let slow = RateLimit::new(1, Duration::MAX).unwrap().burst(u32::MAX);
        for now in [0, u64::MAX] {
            let _ = slow.take(1, now);
        }
        let once = RateLimit::new(1, Duration::MAX).unwrap();
        assert_eq!((once.take(1, 0), once.take(1, 1).is_err()), (Ok(()), true));
        assert!(RateLimit::new(0, Duration::from_secs(1)).is_err());
        assert!(RateLimit::new(1, Duration::ZERO).is_err());
        assert!(RateLimit::new(1, Duration::from_secs(1)).unwrap().burst(0).take(1, 0).is_ok());
    }

    fn from(limit: &impl crate::Handler, peer: &str) -> Response {
        let mut canned = Canned::asking("GET", "/", &[("X-Key", peer)]);
        canned.peer = format!("{peer}:1234").parse().ok();
        canned.call(limit)
    }

    #[test]
    fn clients_are_distinguished_by_address() {
        let site = (|_: &mut Request<'_>| "x").with(five_a_minute().burst(1));
        for (peer, status) in [
            ("192.0.2.1", 200),
            ("192.0.2.2", 200),
            ("192.0.2.1", 429),
            ("[::ffff:192.0.2.1]", 429),
            ("[2001:db8::1]", 200),
            ("[2001:db8::ffff:0:0:1]", 429),
            ("[2001:db8:0:1::1]", 200),
            ("a unix socket", 200),
            ("a unix socket", 200),
        ] {
            assert_eq!(from(&site, peer).status().as_u16(), status, "{peer}");
        }
        let refused = from(&site, "192.0.2.1");
        let wait: u64 = refused.header(header::RETRY_AFTER).unwrap().parse().unwrap();
        assert!((11..=12).contains(&wait), "{wait}");
    }

    #[test]
    fn another_key_may_be_chosen() {
        let by_key = five_a_minute().burst(1).key(|req| req.header("x-key").map(str::to_owned));
        let site = (|_: &mut Request<'_>| "x").with(by_key);
        assert_eq!(from(&site, "one").status(), StatusCode::OK);
        assert_eq!(from(&site, "two").status(), StatusCode::OK);
        assert_eq!(from(&site, "one").status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds_rounded_up(Duration::from_nanos(1)), 1);
        assert_eq!(seconds_rounded_up(Duration::from_secs(2)), 2);
        assert_eq!(seconds_rounded_up(Duration::from_millis(2001)), 3);
    }
}
