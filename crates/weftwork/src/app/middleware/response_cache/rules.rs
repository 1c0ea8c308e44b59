//! Rules of RFC 9111: which responses may be stored, for which clients, and for how long.

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::fields::date;

use crate::app::middleware::User;
use crate::message::{Request, Response};

/// Conditions under which a response is stored.
pub(super) struct CachePolicy {
    /// Whether requests with credentials may get the response.
    pub(super) is_public: bool,
    /// Age of the response when it arrived.
    pub(super) age: Duration,
    /// Age at which the response becomes stale.
    pub(super) lifetime: Duration,
    /// Fields in `Vary` with the values of the request.
    pub(super) vary_values: Vec<(HeaderName, Vec<Vec<u8>>)>,
}

/// Maximum number of seconds. Larger numbers count as this one (RFC 9111 section 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// A cookie is for one visitor. `Connection` and the fields that it names are for one connection.
const FORBIDS: [HeaderName; 2] = [header::SET_COOKIE, header::CONNECTION];

/// Returns whether a stored response may answer this request, and whether its response may be stored.
pub(super) fn is_cacheable_request(req: &Request<'_>) -> bool {
    let is_special = |(name, value): (&str, &[u8])| {
        let is = |wanted: HeaderName| name.eq_ignore_ascii_case(wanted.as_str());
        // The body is not part of the key.
        let has_body = is(header::TRANSFER_ENCODING) || (is(header::CONTENT_LENGTH) && value != b"0");
        // These fields refer to the state of the handler, not to the stored response (RFC 9111 section 4.3.2).
        let is_for_handler = is(header::IF_MATCH) || is(header::IF_UNMODIFIED_SINCE);
        has_body || is_for_handler || is(header::RANGE) || is(header::UPGRADE)
    };
    matches!(*req.method(), Method::GET | Method::HEAD)
        // With a whole URI, `Host` has no meaning (RFC 9112 section 3.2.2), but a handler can read it.
        && req.target().starts_with('/')
        // Fields alone are not enough, because decompression removes them.
        && req.body_left() == Some(0)
        && !req.header_lines().any(is_special)
        // An inner `Compression` respects it, so its responses differ for such requests.
        && !req.has_token(header::CACHE_CONTROL, "no-transform")
}

/// Returns whether the request identifies a user, so that the response may be for that user alone.
pub(super) fn has_credentials(req: &Request<'_>) -> bool {
    let has = |name| req.header_values(name).next().is_some();
    has(header::AUTHORIZATION) || has(header::COOKIE) || req.extension::<User>().is_some()
}

/// Returns the conditions for storing the response. `None` if it must not be stored, or if its lifetime is
/// unknown. `wall` is the time of day.
pub(super) fn policy(
    req: &Request<'_>,
    response: &Response,
    fresh_for: Option<Duration>,
    wall: SystemTime,
) -> Option<CachePolicy> {
    let has = |name: &HeaderName| response.header_values(name).next().is_some();
    let is_whole =
        response.status() == StatusCode::OK && response.error().is_none() && !response.is_declined();
    if !is_whole || FORBIDS.iter().any(has) || req.has_token(header::CACHE_CONTROL, "no-store") {
        return None;
    }
    let directives = CacheControl::by(response)?;
    let lifetime = match directives.s_maxage.or(directives.max_age) {
        Some(seconds) => Duration::from_secs(seconds),
        None => fresh_for.filter(|_| !has(&header::EXPIRES))?,
    };
    let age = age(response, wall)?;
    let is_for_all = directives.is_public || !has_credentials(req);
    (is_for_all && age < lifetime).then_some(())?;
    Some(CachePolicy {
        is_public: directives.is_public,
        age,
        lifetime,
        vary_values: vary_values(req, response)?,
    })
}

/// Directives of a `Cache-Control` that allows storing.
#[derive(Default)]
struct CacheControl {
    is_public: bool,
    max_age: Option<u64>,
    s_maxage: Option<u64>,
}

impl CacheControl {
    /// Parses `Cache-Control`. `None` if it forbids storing or is ambiguous. A quoted text may have a comma.
    /// Only `private`, `no-cache` and unknown directives have quoted text.
    fn by(response: &Response) -> Option<CacheControl> {
        let mut directives = CacheControl::default();
        for value in response.header_values(header::CACHE_CONTROL) {
            let text = value.to_str().ok().filter(|text| !text.contains('"'))?;
            for directive in text.split(',') {
                let (name, argument) = match directive.split_once('=') {
                    Some((name, argument)) => (name, Some(argument)),
                    None => (directive, None),
                };
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" | "no-cache" | "private" => return None,
                    "public" => directives.is_public = true,
                    "max-age" => once(&mut directives.max_age, argument)?,
                    "s-maxage" => once(&mut directives.s_maxage, argument)?,
                    _ => {}
                }
            }
        }
        Some(directives)
    }
}

fn once(place: &mut Option<u64>, argument: Option<&str>) -> Option<()> {
    match place.replace(seconds(argument?)?) {
        None => Some(()),
        Some(_) => None,
    }
}

fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX).min(SECONDS_MAX))
}

/// Returns the age of a response that the handler got from elsewhere (RFC 9111 section 4.2.3). `None` if its
/// fields are invalid.
fn age(response: &Response, wall: SystemTime) -> Option<Duration> {
    let mut age = Duration::ZERO;
    for value in response.header_values(header::AGE) {
        age = age.max(Duration::from_secs(seconds(value.to_str().ok()?)?));
    }
    for value in response.header_values(header::DATE) {
        age = age.max(wall.duration_since(date(value.as_bytes())?).unwrap_or_default());
    }
    Some(age)
}

/// Returns the fields in `Vary` with their values. `None` for `*`, or for an invalid name.
fn vary_values(req: &Request<'_>, response: &Response) -> Option<Vec<(HeaderName, Vec<Vec<u8>>)>> {
    let names = response.header_values(header::VARY).map(HeaderValue::as_bytes);
    let names = names.flat_map(|value| value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let named = names.filter(|name| !name.is_empty()).map(|name| {
        let name = HeaderName::from_bytes(name).ok().filter(|name| name != "*")?;
        let values = req.header_values(&name).map(<[u8]>::to_vec).collect();
        Some((name, values))
    });
    named.collect()
}
