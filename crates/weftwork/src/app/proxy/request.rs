//! Writes the head of an upstream request, and forwards the body as the client sends it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::upstream::{Upstream, UpstreamConn, from_now};
use super::{DEADLINE, Failure, HeaderSource, Options, Proxy, time_left};
use crate::app::middleware::{RequestId, TraceContext};
use crate::app::path_form::{NonCanonical, non_canonical, normal_form};
use crate::error::Error;
use crate::message::{CONNECTION_FIELDS, Request, plain_field_name};

/// Fields that the proxy sets itself, so that values from clients are dropped. Trailers are not forwarded.
const PROXY_FIELDS: [&str; 9] = [
    "host",
    "content-length",
    "trailer",
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "via",
];

/// Field that some proxies set beside `X-Forwarded-For`, or instead of it.
const REAL_IP: &str = "x-real-ip";

/// `Proxy` is not a valid field. It becomes `HTTP_PROXY` if variables are made of fields (httpoxy,
/// CVE-2016-5385).
const HTTPOXY: &str = "proxy";

/// Returns the head of the upstream request. `forwards` is the value of [`forwards_left`], which is
/// decremented.
pub(super) fn head(req: &Request<'_>, forwards: Option<u64>, proxy: &Proxy) -> Result<Vec<u8>, Failure> {
    let Proxy { upstream, options, set_headers } = proxy;
    if *req.method() == Method::CONNECT {
        return Err(Failure::Request(StatusCode::NOT_IMPLEMENTED, "this server does not tunnel connections"));
    }
    let path = path(req, upstream, options)?;
    let mut head = Vec::with_capacity(512);
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let host = req.host().filter(|_| !options.sends_own_host).unwrap_or(upstream.authority());
    line("Host", host.as_bytes());
    let (is_believed, overrides) = (req.is_source_trusted(), overrides(req, set_headers));
    let is_ours = |plain: &str| {
        PROXY_FIELDS.contains(&plain) || overrides.iter().any(|(name, _)| is_plainly(name, plain))
    };
    let told = req.forwarded_client();
    for (name, value) in req.end_to_end_headers() {
        let plain = plain_field_name(name.as_bytes());
        if plain == MAX_FORWARDS && (forwards.is_some() || is_variant_spelling(name)) {
            continue;
        }
        // A variant spelling may come from the client, even if its proxy set the plain name.
        let is_said = is_believed && !is_variant_spelling(name);
        if plain == HTTPOXY || (plain == REAL_IP && told.is_some()) {
            continue;
        }
        if !is_ours(&plain) && (is_said || !describes_client(&plain)) {
            line(name, value);
        }
    }
    if let Some(more) = forwards {
        line("Max-Forwards", more.saturating_sub(1).to_string().as_bytes());
    }
    for (name, value) in &overrides {
        if let Some(value) = value {
            line(name.as_str(), value.as_bytes());
        }
    }
    // A trusted proxy may only have forwarded what its client put there.
    let real_ip = told.filter(|_| !is_ours(REAL_IP) && req.header_values(REAL_IP).next().is_some());
    for (name, value) in forwarded_fields(req, real_ip) {
        line(name, value.as_bytes());
    }
    for value in req.header_values("via") {
        line("Via", value);
    }
    line("Via", if req.version() == http::Version::HTTP_10 { b"1.0 weftwork" } else { b"1.1 weftwork" });
    for (name, value) in connection_fields(req, options) {
        line(name, value.as_bytes());
    }
    if lacks_websocket_key(req, options) {
        line("Sec-WebSocket-Key", random_key().as_bytes());
    }
    match req.body_left() {
        Some(0) if req.header(header::CONTENT_LENGTH).is_none() => {}
        Some(length) => line("Content-Length", length.to_string().as_bytes()),
        None => line("Transfer-Encoding", b"chunked"),
    }
    if expects_continue(req) {
        line("Expect", b"100-continue");
    }
    head.extend_from_slice(b"\r\n");
    let mut request = format!("{} {path} HTTP/1.1\r\n", req.method()).into_bytes();
    request.append(&mut head);
    Ok(request)
}

/// Returns the fields that state the client and what it requested.
fn forwarded_fields(req: &Request<'_>, real_ip: Option<IpAddr>) -> Vec<(&'static str, String)> {
    let client = req.client_addr().map(|client| ("X-Forwarded-For", client.to_string()));
    let real_ip = real_ip.map(|client| ("X-Real-IP", client.to_string()));
    let host = req.authority().map(|authority| ("X-Forwarded-Host", authority.into_owned()));
    let scheme = ("X-Forwarded-Proto", req.scheme().to_owned());
    client.into_iter().chain(real_ip).chain(host).chain([scheme]).collect()
}

const MAX_FORWARDS: &str = "max-forwards";

/// Returns how many proxies may still forward the request (RFC 9110 section 7.6.2). `None` means no limit.
pub(super) fn forwards_left(req: &Request<'_>) -> Result<Option<u64>, Failure> {
    if !matches!(*req.method(), Method::OPTIONS | Method::TRACE) {
        return Ok(None);
    }
    let lines: Vec<&[u8]> = req.header_values(MAX_FORWARDS).collect();
    match lines[..] {
        [] => Ok(None),
        [number] if !number.is_empty() && number.iter().all(u8::is_ascii_digit) => {
            // Saturates: a number that is too large for `u64` becomes the maximum.
            let more = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            Ok(Some(number.iter().fold(0, more)))
        }
        // Two servers that read the field differently could forward the request in a loop.
        _ => Err(Failure::Request(
            StatusCode::BAD_REQUEST,
            "Max-Forwards must be a single number (RFC 9110 section 7.6.2)",
        )),
    }
}

/// Returns whether [`Proxy::set_header`] may set a field. The proxy itself sets the fields for framing, for the
/// connection, and about the client.
pub(super) fn may_be_set(plain: &str) -> bool {
    plain != MAX_FORWARDS && !PROXY_FIELDS.contains(&plain) && !CONNECTION_FIELDS.contains(&plain)
}

/// Returns the fields that replace the client's: from [`RequestIds`](crate::middleware::RequestIds) if it runs,
/// and from [`Proxy::set_header`], which has precedence. A value of `None` removes the field.
fn overrides(
    req: &Request<'_>,
    set_headers: &[(HeaderName, Box<HeaderSource>)],
) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let header = |name, value: String| (HeaderName::from_static(name), HeaderValue::try_from(value).ok());
    let id = req.extension::<RequestId>().map(|id| header("x-request-id", id.to_string()));
    let trace = req.extension::<TraceContext>().map(|trace| {
        let state = trace.tracestate().and_then(|state| HeaderValue::from_str(state).ok());
        [header("traceparent", trace.traceparent()), (HeaderName::from_static("tracestate"), state)]
    });
    let found = id.into_iter().chain(trace.into_iter().flatten());
    let is_said = |name: &HeaderName| set_headers.iter().any(|(said, _)| said == name);
    let found = found.filter(|(name, _)| !is_said(name));
    found.chain(set_headers.iter().map(|(name, value)| (name.clone(), value(req)))).collect()
}

/// Returns whether `plain` is the plain form of the name.
fn is_plainly(name: &HeaderName, plain: &str) -> bool {
    let bytes = name.as_str().bytes();
    bytes.map(|byte| if byte.is_ascii_alphanumeric() { byte } else { b'-' }).eq(plain.bytes())
}

/// Returns whether a name has characters other than letters, digits and `-`.
fn is_variant_spelling(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns whether proxies use this field to describe the client.
fn describes_client(name: &str) -> bool {
    name == REAL_IP || name.starts_with("x-forwarded-")
}

/// Returns the fields for the new connection: the requested upgrade, and whether trailers are accepted (RFC
/// 9110 section 10.1.4).
fn connection_fields<'o>(req: &Request<'_>, options: &'o Options) -> Vec<(&'static str, &'o str)> {
    let protocol = requested_upgrade(req, options);
    let takes_trailers = req.version() == http::Version::HTTP_11 && req.has_token(header::TE, "trailers");
    let named = match (protocol.is_some(), takes_trailers) {
        (false, false) => return Vec::new(),
        (false, true) => "TE",
        (true, false) => "upgrade",
        (true, true) => "upgrade, TE",
    };
    let mut lines = vec![("Connection", named)];
    lines.extend(protocol.map(|protocol| ("Upgrade", protocol)));
    lines.extend(takes_trailers.then_some(("TE", "trailers")));
    lines
}

/// Returns the protocol that the client requests, if it is allowed.
pub(super) fn requested_upgrade<'o>(req: &Request<'_>, options: &'o Options) -> Option<&'o str> {
    let asks = req.version() != http::Version::HTTP_10 && req.has_token(header::CONNECTION, "upgrade");
    let mut requested = options.upgrades.iter().filter(|protocol| req.has_token(header::UPGRADE, protocol));
    requested.next().filter(|_| asks).map(String::as_str)
}

/// Returns whether the server needs a key that the client did not send, because HTTP/2 has none (RFC 8441 section 5).
fn lacks_websocket_key(req: &Request<'_>, options: &Options) -> bool {
    req.version() == http::Version::HTTP_2
        && requested_upgrade(req, options) == Some("websocket")
        && req.header(header::SEC_WEBSOCKET_KEY).is_none()
}

/// Returns 16 random bytes in Base64 (RFC 6455 section 4.1).
fn random_key() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let random = || u128::from(RandomState::new().build_hasher().finish());
    let bits = random() << 64 | random();
    // The last digit has two bits.
    let digits = (0..22).map(|at| if at < 21 { bits >> (122 - 6 * at) } else { bits << 4 });
    let digits = digits.map(|bits| char::from(DIGITS[(bits & 63) as usize]));
    digits.chain(['=', '=']).collect()
}

/// Returns whether the client waits for `100 (Continue)` before it sends its body (RFC 9110 section 10.1.1).
pub(super) fn expects_continue(req: &Request<'_>) -> bool {
    let has_body = req.body_left() != Some(0);
    has_body && req.version() == http::Version::HTTP_11 && req.has_token(header::EXPECT, "100-continue")
}

fn path(req: &Request<'_>, upstream: &Upstream, options: &Options) -> Result<String, Failure> {
    let given = req.path();
    let is_sent = req.whole_path() == req.sent_path();
    let rest = given.strip_prefix(options.strip.as_str());
    // `/apis` is not under `/api`.
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/') || options.strip.is_empty())
    else {
        return Err(Failure::Request(StatusCode::NOT_FOUND, "there is nothing here"));
    };
    // RFC 9112 section 3.2.4: `*` stands for the server as a whole, and only a part of it is here.
    if given == "*" && !upstream.base().is_empty() {
        return Err(Failure::Request(StatusCode::NOT_FOUND, "there is nothing here"));
    }
    // The server may read another form as another path than the routes in front do.
    let rest = if is_sent { Some(rest) } else { sent_rest(req, rest) };
    let refused = non_canonical(req.sent_path().as_bytes()).filter(|_| is_sent || rest.is_none());
    let (Some(rest), None) = (rest, refused) else {
        let rule = refused.map_or(NonCanonical::DotSegment.rule(), NonCanonical::rule);
        return Err(Failure::Request(StatusCode::BAD_REQUEST, rule));
    };
    let slash = if rest.is_empty() { "/" } else { "" };
    let (mark, query) = req.query().map_or(("", ""), |query| ("?", query));
    Ok(format!("{}{rest}{slash}{mark}{query}", upstream.base()))
}

/// Returns the end of the path as it was sent, whose normal form is `rest`. Returns `None` if the path does not
/// stay under the mount of the proxy.
fn sent_rest<'r>(req: &'r Request<'_>, rest: &str) -> Option<&'r str> {
    let mount = req.whole_path().strip_suffix(rest)?;
    let sent = req.sent_path().strip_prefix(mount)?;
    (normal_form(sent).as_deref() == Some(rest)).then_some(sent)
}

/// Progress of a request body on its way to the server.
pub(super) struct Upload {
    in_chunks: bool,
    /// Whether the whole body was queued, including its end.
    is_whole: bool,
}

impl Upload {
    pub(super) fn of(req: &Request<'_>) -> Upload {
        Upload { in_chunks: req.body_left().is_none(), is_whole: req.body_left() == Some(0) }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Queues a part of the body. An empty part queues the end.
    pub(super) fn put(&mut self, conn: &mut UpstreamConn, part: &[u8]) {
        self.is_whole |= part.is_empty();
        if !self.in_chunks {
            return conn.queue(part);
        }
        let mut chunk = Vec::with_capacity(part.len() + 16);
        // Cannot fail: writing to a vector does not fail.
        let _ = write!(chunk, "{:x}\r\n", part.len());
        chunk.extend_from_slice(part);
        chunk.extend_from_slice(b"\r\n");
        conn.queue(&chunk);
    }
}

/// First wait for the client before the proxy checks for input from the server. The wait is doubled each time,
/// up to [`POLL_MAX`].
pub(super) const POLL_MIN: Duration = Duration::from_millis(1);
/// Maximum wait. Even 10,000 clients that pause on purpose cause little load.
pub(super) const POLL_MAX: Duration = Duration::from_secs(1);

pub(super) fn next_poll_time(wait: Duration) -> Duration {
    (2 * wait).min(POLL_MAX)
}

/// Sends the queued bytes and the body as it arrives, until everything is sent or the server sends something.
pub(super) fn send(
    req: &mut Request<'_>,
    upload: &mut Upload,
    conn: &mut UpstreamConn,
    options: &Options,
) -> Result<(), Failure> {
    let end = from_now(time_left(req));
    let stuck = |error| {
        let bound = if Instant::now() >= end { DEADLINE } else { "idle_timeout" };
        Failure::of(error, bound)
    };
    let client = |error: io::Error| Failure::Client(Error::from(error));
    while conn.send_output(options.idle_timeout, end).map_err(stuck)? && !upload.is_whole {
        // The client may wait for a response to what it has sent, or for the end of the response.
        let mut wait = POLL_MIN;
        loop {
            if conn.has_input().map_err(stuck)? {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            let comes = req.body().comes_within(wait.min(left)).map_err(|error| client(error.into()))?;
            match (comes, left.is_zero()) {
                (true, false) => break,
                // The deadline has passed, but the client was not the cause.
                (true, true) => return Err(Failure::Timeout(DEADLINE)),
                (false, true) => {
                    let why = "the request body did not arrive in time";
                    return Err(Failure::Request(StatusCode::REQUEST_TIMEOUT, why));
                }
                (false, false) => {}
            }
            wait = next_poll_time(wait);
        }
        let mut body = req.body();
        let part = body.fill_buf().map_err(client)?;
        let count = part.len();
        upload.put(conn, part);
        body.consume(count);
        upload.is_whole |= !upload.in_chunks && req.body_left() == Some(0);
    }
    Ok(())
}
