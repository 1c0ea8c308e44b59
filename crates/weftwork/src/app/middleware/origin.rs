//! Serialized origins: parsing and comparison.

use std::net::Ipv6Addr;

use crate::error::{Error, Result};
use crate::message::Request;

/// Returns the origin if it is written as browsers send it: scheme, host, and a port if it is not the default.
/// `None` for everything else: a path, a final slash, upper case, `null`, `*`.
pub(super) fn serialized(text: &str) -> Option<&str> {
    let (scheme, authority) = text.split_once("://")?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(|byte| named(byte) || byte == b'+');
    let is_address = host.starts_with('[') && host.ends_with(']');
    let is_host = match host.get(1..host.len().saturating_sub(1)).filter(|_| is_address) {
        Some(address) => is_serialized(address),
        None => !host.is_empty() && host.bytes().all(named),
    };
    let is_port = match port {
        Some(_) if port == default_port(scheme) => false,
        Some(port) => !port.starts_with('0') && !port.starts_with('+') && port.parse::<u16>().is_ok(),
        None => true,
    };
    (is_scheme && is_host && is_port).then_some(text)
}

/// Returns whether an IPv6 address is written as in the URL standard.
fn is_serialized(text: &str) -> bool {
    let Ok(address) = text.parse::<Ipv6Addr>() else { return false };
    // Rust writes an embedded IPv4 address with dots.
    match (address.to_ipv4_mapped(), address.segments()) {
        (Some(_), [.., high, low]) => text == format!("::ffff:{high:x}:{low:x}"),
        (None, _) => text == address.to_string(),
    }
}

fn default_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "http" => Some("80"),
        "https" => Some("443"),
        _ => None,
    }
}

/// Checks a configured origin. If it is not written as browsers do, it would never match.
pub(in crate::app) fn checked(given: &str) -> Result<Box<str>> {
    let wanted = "https://host or http://host:port, as browsers write an origin";
    serialized(given).map(Box::from).ok_or_else(|| Error::setting("origin", given, wanted))
}

/// Returns whether an origin, as a browser sends it, is the host of this request.
pub(in crate::app) fn is_own(origin: &str, req: &Request<'_>) -> bool {
    let Some(((scheme, theirs), ours)) = split(origin).zip(req.authority()) else { return false };
    theirs.eq_ignore_ascii_case(without_default_port(&ours, scheme))
}

/// Returns the scheme of a serialized origin, and its host and port.
fn split(origin: &str) -> Option<(&str, &str)> {
    serialized(origin)?.split_once("://")
}

/// Removes the default port. Proxies and clients may state it, and browsers leave it out of an origin. Both
/// forms are equal (RFC 9110 section 4.2.3).
fn without_default_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    match authority.rsplit_once(':') {
        Some((host, port)) if Some(port) == default_port(scheme) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    //! Tests that only the form that browsers write passes.

    use super::*;

    #[test]
    fn what_browsers_write() {
        for origin in [
            "https://a.example",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://[2001:db8::1]",
            "http://[2001:db8:0:1:1:1:1:1]",
            "http://[::ffff:7f00:1]:8080",
            "http://[::ffff:0:0]",
            "moz-extension://0d4f0c2e-1234",
            "http://my_host",
        ] {
            assert_eq!(serialized(origin), Some(origin));
        }
        assert_eq!(split("http://[::1]:8080"), Some(("http", "[::1]:8080")));
        assert_eq!(split("https://a.example"), Some(("https", "a.example")));
    }

    #[test]
    fn the_default_port_is_that_of_the_scheme() {
        for (authority, scheme, wanted) in [
            ("a.example:443", "https", "a.example"),
            ("a.example:80", "http", "a.example"),
            ("[::1]:80", "http", "[::1]"),
            ("a.example:443", "http", "a.example:443"),
            ("a.example:80", "https", "a.example:80"),
            ("a.example:8080", "http", "a.example:8080"),
            ("a.example:80", "moz-extension", "a.example:80"),
            ("[2001:db8::80]", "http", "[2001:db8::80]"),
            ("a.example", "http", "a.example"),
        ] {
            assert_eq!(without_default_port(authority, scheme), wanted, "{scheme}");
        }
    }

    #[test]
    fn nothing_else() {
        for text in [
            "",
            "null",
            "*",
            "a.example",
            "https://",
            "://a",
            "https://a.example/",
            "https://a.example/path",
            "https://A.example",
            "HTTPS://a.example",
            "https://a.example:443",
            "http://a.example:80",
            "http://a.example:",
            "http://a.example:x",
            "http://a.example:+1",
            "http://a.example:01",
            "http://a.example:65536",
            "http://*.example",
            "http://u@a.example",
            "http://a.example?x",
            "http://a b",
            "http://[::1",
            "http://[]",
            "http://[x]:1",
            "http://[2001:DB8::1]:3000",
            "http://[0:0:0:0:0:0:0:1]:3000",
            "http://[2001:db8::0001]",
            "http://[2001:db8::1:1:1:1:1]",
            "http://[::ffff:127.0.0.1]:8080",
            "http://[::FFFF:7f00:1]",
            "http://[0:0:0:0:0:ffff:7f00:1]",
            "http://a,http://b",
            " http://a",
        ] {
            assert_eq!(serialized(text), None, "{text:?}");
        }
    }
}
