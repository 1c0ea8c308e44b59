//! The way there: which head the server gets, and the body as the client sends it.

use std::io::{BufRead, Write};

use http::{Method, StatusCode, header};

use super::upstream::{Link, Upstream};
use super::{Failure, Options};
use crate::error::Error;
use crate::message::Request;

/// Fields that are ours to say, and what a client has no say in.
const OURS: [&str; 8] = [
    "host",
    "content-length",
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "via",
];

/// The head of the request, as the server gets it.
pub(super) fn head(req: &Request<'_>, upstream: &Upstream, options: &Options) -> Result<Vec<u8>, Failure> {
    if *req.method() == Method::CONNECT {
        return Err(Failure::Request(StatusCode::METHOD_NOT_ALLOWED, "this server is no way to others"));
    }
    let path = path(req, upstream, options)?;
    let mut head = Vec::with_capacity(512);
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let host = req.host().filter(|_| options.keep_host).unwrap_or(upstream.authority());
    line("Host", host.as_bytes());
    for (name, value) in req.end_to_end_headers() {
        if !OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            line(name, value);
        }
    }
    if let Some(client) = req.client_addr() {
        line("X-Forwarded-For", client.to_string().as_bytes());
    }
    if let Some(host) = req.host() {
        line("X-Forwarded-Host", host.as_bytes());
    }
    line("X-Forwarded-Proto", b"http");
    for value in req.header_values("via") {
        line("Via", value);
    }
    line("Via", if req.version() == http::Version::HTTP_10 { b"1.0 weftwork" } else { b"1.1 weftwork" });
    if let Some(protocol) = asks_for(req) {
        line("Connection", b"upgrade");
        line("Upgrade", protocol.as_bytes());
    }
    match req.body_left() {
        Some(0) if req.header(header::CONTENT_LENGTH).is_none() => {}
        Some(length) => line("Content-Length", length.to_string().as_bytes()),
        None => line("Transfer-Encoding", b"chunked"),
    }
    head.extend_from_slice(b"\r\n");
    let mut request = format!("{} {path} HTTP/1.1\r\n", req.method()).into_bytes();
    request.append(&mut head);
    Ok(request)
}

/// The protocol that the client asks for, if it does.
pub(super) fn asks_for<'r>(req: &'r Request<'_>) -> Option<&'r str> {
    let asks = req.has_token(header::CONNECTION, "upgrade");
    req.header(header::UPGRADE).filter(|_| asks && req.version() == http::Version::HTTP_11)
}

fn path(req: &Request<'_>, upstream: &Upstream, options: &Options) -> Result<String, Failure> {
    let given = req.path();
    let rest = given.strip_prefix(options.strip.as_str());
    // `/apis` is not below `/api`.
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/') || options.strip.is_empty())
    else {
        return Err(Failure::Request(StatusCode::NOT_FOUND, "there is nothing here"));
    };
    if !(upstream.base().is_empty() && options.strip.is_empty()) && rest.split('/').any(is_upwards) {
        return Err(Failure::Request(StatusCode::BAD_REQUEST, "the path leads out of what is served here"));
    }
    let slash = if rest.is_empty() { "/" } else { "" };
    let (mark, query) = req.query().map_or(("", ""), |query| ("?", query));
    Ok(format!("{}{rest}{slash}{mark}{query}", upstream.base()))
}

/// `..`, however it is written.
fn is_upwards(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    plain == ".."
        || plain.contains("%2f..")
        || plain.contains("..%2f")
        || plain.contains("..%2F")
        || plain.contains("%2F..")
}

/// Sends the head, and the body as it comes, until all is sent (true) or the server has begun to answer.
pub(super) fn send(
    req: &mut Request<'_>,
    head: &[u8],
    in_chunks: bool,
    link: &mut Link,
    options: &Options,
) -> Result<bool, Failure> {
    link.put(head);
    loop {
        if !link.push(options.idle_timeout).map_err(Failure::of)? {
            return Ok(false);
        }
        if req.body_left() == Some(0) && !in_chunks {
            return Ok(true);
        }
        if link.has_more().map_err(Failure::of)? {
            return Ok(false);
        }
        let mut body = req.body();
        let part = body.fill_buf().map_err(|error| Failure::Client(Error::from(error)))?;
        let count = part.len();
        put(link, part, in_chunks);
        body.consume(count);
        if count == 0 {
            return link.push(options.idle_timeout).map_err(Failure::of);
        }
    }
}

/// A part of the body, or, when it is empty, its end.
pub(super) fn put(link: &mut Link, part: &[u8], in_chunks: bool) {
    if !in_chunks {
        return link.put(part);
    }
    let mut chunk = Vec::with_capacity(part.len() + 16);
    // Writing to a vector does not fail.
    let _ = write!(chunk, "{:x}\r\n", part.len());
    chunk.extend_from_slice(part);
    chunk.extend_from_slice(b"\r\n");
    link.put(&chunk);
}
