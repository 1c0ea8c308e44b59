//! Writes the head of an upstream request.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::upstream::authenticates_connection;
use super::{Failure, HeaderSource, Options, Proxy};
use crate::app::middleware::{RequestId, TraceContext};
use crate::app::path_form::{NonCanonical, non_canonical, normal_form};
use crate::app::removed_prefix::warn_if_removed;
use crate::message::{CONNECTION_FIELDS, Request, plain_field_name};

/// Fields that the proxy sets itself, so that values from clients are dropped. `Trailer` announces what HTTP/1.1
/// servers do not get.
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
pub(super) const HTTPOXY: &str = "proxy";

/// What stays the same if a request is sent again.
pub(super) struct Outgoing {
    pub(super) path: String,
    /// See [`forwards_left`]. It is decremented.
    forwards: Option<u64>,
    /// Length of the body, if the client has declared it.
    pub(super) length: Option<u64>,
    /// The body was read ahead, and has trailers.
    has_trailers: bool,
    pub(super) expects_continue: bool,
}

impl Outgoing {
    /// Checks whether the request may be forwarded.
    pub(super) fn of(req: &Request<'_>, forwards: Option<u64>, proxy: &Proxy) -> Result<Outgoing, Failure> {
        if *req.method() == Method::CONNECT {
            let why = "this server does not tunnel connections";
            return Err(Failure::Request(StatusCode::NOT_IMPLEMENTED, why));
        }
        let path = path(req, proxy)?;
        let (length, has_trailers) = (req.body_left(), !req.trailers().is_empty());
        Ok(Outgoing { path, forwards, length, has_trailers, expects_continue: expects_continue(req) })
    }

    pub(super) fn has_body(&self) -> bool {
        self.length != Some(0) || self.has_trailers
    }
}

/// The head of an upstream request in HTTP/2.
pub(super) struct Http2Head {
    pub(super) path: String,
    pub(super) authority: String,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
}

/// Returns the head of the upstream request in HTTP/1.1, and whether it authenticates its connection.
pub(super) fn http1_head(req: &Request<'_>, outgoing: &Outgoing, proxy: &Proxy) -> (Vec<u8>, bool) {
    let mut head = Vec::with_capacity(512);
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    line("Host", host(req, proxy).as_bytes());
    let authenticates = lines(req, outgoing, proxy, &mut line);
    for (name, value) in connection_fields(req, &proxy.options) {
        line(name, value.as_bytes());
    }
    if lacks_websocket_key(req, &proxy.options) {
        line("Sec-WebSocket-Key", random_key().as_bytes());
    }
    if outgoing.length.is_none() {
        line("Transfer-Encoding", b"chunked");
    }
    last_lines(req, outgoing, outgoing.length, line);
    head.extend_from_slice(b"\r\n");
    let mut request = format!("{} {} HTTP/1.1\r\n", req.method(), outgoing.path).into_bytes();
    request.append(&mut head);
    (request, authenticates)
}

/// Returns the same in HTTP/2. It has no fields for a connection except TE.
pub(super) fn http2_head(req: &Request<'_>, outgoing: &Outgoing, proxy: &Proxy) -> (Http2Head, bool) {
    let mut fields = Vec::with_capacity(16);
    let mut line = |name: &str, value: &[u8]| {
        // The rules of the parser are at least as strict as these two.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            fields.push((name, value));
        }
    };
    let authenticates = lines(req, outgoing, proxy, &mut line);
    if takes_trailers(req) {
        line("te", b"trailers");
    }
    // Trailers may follow a body of any length. Servers expect them after a body without a length, as in HTTP/1.1.
    last_lines(req, outgoing, outgoing.length.filter(|_| !outgoing.has_trailers), line);
    // RFC 9113 section 8.3.1: the authority must not be empty. In HTTP/1.1, it may.
    let authority = Some(host(req, proxy)).filter(|host| !host.is_empty());
    let authority = authority.unwrap_or(proxy.upstream.authority()).to_owned();
    (Http2Head { path: outgoing.path.clone(), authority, fields }, authenticates)
}

fn host<'r>(req: &'r Request<'_>, proxy: &'r Proxy) -> &'r str {
    req.host().filter(|_| !proxy.options.sends_own_host).unwrap_or(proxy.upstream.authority())
}

/// Gives the fields of the request that both protocols have to `line`. Returns whether one of them authenticates its
/// connection.
fn lines(req: &Request<'_>, outgoing: &Outgoing, proxy: &Proxy, line: &mut impl FnMut(&str, &[u8])) -> bool {
    let mut authenticates = false;
    let mut line = |name: &str, value: &[u8]| {
        authenticates |= authenticates_connection(name, value);
        line(name, value);
    };
    let (is_believed, overrides) = (req.is_source_trusted(), overrides(req, &proxy.set_headers));
    let is_ours = |plain: &str| {
        PROXY_FIELDS.contains(&plain) || overrides.iter().any(|(name, _)| is_plainly(name, plain))
    };
    let (told, forwards) = (req.forwarded_client(), outgoing.forwards);
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
    line("Via", via(req.version()));
    authenticates
}

/// Gives the length of the body to `line`, and that the client waits to be asked for it.
fn last_lines(
    req: &Request<'_>,
    outgoing: &Outgoing,
    length: Option<u64>,
    mut line: impl FnMut(&str, &[u8]),
) {
    match length {
        Some(0) if req.header(header::CONTENT_LENGTH).is_none() => {}
        Some(length) => line("Content-Length", length.to_string().as_bytes()),
        None => {}
    }
    if outgoing.expects_continue {
        line("Expect", b"100-continue");
    }
}

/// RFC 9110 section 7.6.3
fn via(version: http::Version) -> &'static [u8] {
    match version {
        http::Version::HTTP_10 => b"1.0 weftwork",
        http::Version::HTTP_2 => b"2.0 weftwork",
        _ => b"1.1 weftwork",
    }
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
pub(super) fn is_plainly(name: &HeaderName, plain: &str) -> bool {
    let bytes = name.as_str().bytes();
    bytes.map(|byte| if byte.is_ascii_alphanumeric() { byte } else { b'-' }).eq(plain.bytes())
}

/// Returns whether a name has characters other than letters, digits and `-`.
fn is_variant_spelling(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns whether proxies use this field to describe the client.
pub(super) fn describes_client(name: &str) -> bool {
    name == REAL_IP || name.starts_with("x-forwarded-")
}

/// Returns the fields for the new connection: the requested upgrade, and whether trailers are accepted (RFC
/// 9110 section 10.1.4).
fn connection_fields<'o>(req: &Request<'_>, options: &'o Options) -> Vec<(&'static str, &'o str)> {
    let protocol = requested_upgrade(req, options);
    let takes_trailers = takes_trailers(req);
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

fn takes_trailers(req: &Request<'_>) -> bool {
    req.version() != http::Version::HTTP_10 && req.has_token(header::TE, "trailers")
}

/// Returns whether the client authenticates its connection.
pub(super) fn authenticates(req: &Request<'_>) -> bool {
    req.header_lines().any(|(name, value)| authenticates_connection(name, value))
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
fn expects_continue(req: &Request<'_>) -> bool {
    let has_body = req.body_left() != Some(0);
    has_body && req.version() != http::Version::HTTP_10 && req.has_token(header::EXPECT, "100-continue")
}

fn path(req: &Request<'_>, proxy: &Proxy) -> Result<String, Failure> {
    let Proxy { upstream, options, prefix_warning, .. } = proxy;
    let given = req.path();
    let is_sent = req.whole_path() == req.sent_path();
    let rest = given.strip_prefix(options.strip.as_str());
    // `/apis` is not under `/api`.
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/') || options.strip.is_empty())
    else {
        warn_if_removed(req, "strip_prefix", &options.strip, prefix_warning);
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
