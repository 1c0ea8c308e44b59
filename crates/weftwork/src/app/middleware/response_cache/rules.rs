//! May this response be kept, for whom, and for how long?

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::fields::date;

use crate::app::middleware::User;
use crate::message::{Request, Response};

/// On what terms a response is kept.
pub(super) struct CachePolicy {
    /// Who shows credentials may get it, too.
    pub(super) is_public: bool,
    /// How old it was when it came.
    pub(super) age: Duration,
    /// It is fresh while it is not as old as this.
    pub(super) lifetime: Duration,
    /// What `Vary` names, with the values that it was made for.
    pub(super) vary_values: Vec<(HeaderName, Vec<Vec<u8>>)>,
}

/// Larger numbers of seconds mean this one (RFC 9111 section 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// A cookie is for one visitor; what `Connection` names is for one connection, and so is what it says.
const FORBIDS: [HeaderName; 2] = [header::SET_COOKIE, header::CONNECTION];

/// Whether a kept response may answer this request, and be made of the answer to it.
pub(super) fn is_cacheable_request(req: &Request<'_>) -> bool {
    let is_special = |(name, value): (&str, &[u8])| {
        let is = |wanted: HeaderName| name.eq_ignore_ascii_case(wanted.as_str());
        // What is in a body is in no key.
        let has_body = is(header::TRANSFER_ENCODING) || (is(header::CONTENT_LENGTH) && value != b"0");
        // These two are about what the handler has, not about what is kept (RFC 9111 section 4.3.2).
        let is_for_handler = is(header::IF_MATCH) || is(header::IF_UNMODIFIED_SINCE);
        has_body || is_for_handler || is(header::RANGE) || is(header::UPGRADE)
    };
    matches!(*req.method(), Method::GET | Method::HEAD)
        // A `Host` beside a whole URI says nothing (RFC 9112 section 3.2.2), but a handler can read it.
        && req.target().starts_with('/')
        // Not by its fields alone: what decodes a body takes them away.
        && req.body_left() == Some(0)
        && !req.header_lines().any(is_special)
        // `Compression` inside heeds it, so its answers are others for who says it.
        && !req.has_token(header::CACHE_CONTROL, "no-transform")
}

/// Whether it says whose request it is: then the answer may be for that one alone.
pub(super) fn has_credentials(req: &Request<'_>) -> bool {
    let has = |name| req.header_values(name).next().is_some();
    has(header::AUTHORIZATION) || has(header::COOKIE) || req.extension::<User>().is_some()
}

/// None: it must not be kept, or nobody says for how long. `wall` is the time of day.
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

/// What `Cache-Control` of a response says, where it does not forbid.
#[derive(Default)]
struct CacheControl {
    is_public: bool,
    max_age: Option<u64>,
    s_maxage: Option<u64>,
}

impl CacheControl {
    /// None: it forbids to keep the response, or cannot be read for sure. A comma may stand in a quoted text, which only
    /// `private` and `no-cache` have, or what is not known.
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

/// How old it is, where the handler got it from somewhere else (RFC 9111 section 4.2.3). None: it says so in a way that
/// cannot be read.
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

/// None: `Vary` has `*`, or something that names no field.
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
