//! What is an origin, and is this one written as browsers write it?

use crate::error::{Error, Result};
use crate::message::Request;

/// An origin as browsers send it: scheme, host, and a port where it is not the default one. `None` for
/// anything else: with a path, a trailing slash, in upper case, `null`, `*`.
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
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(named),
    };
    let is_port = match (scheme, port) {
        ("http", Some("80")) | ("https", Some("443")) => false,
        (_, Some(port)) => !port.starts_with('0') && !port.starts_with('+') && port.parse::<u16>().is_ok(),
        (_, None) => true,
    };
    (is_scheme && is_host && is_port).then_some(text)
}

/// An origin that somebody allows: one that is written otherwise than browsers do would never match.
pub(in crate::app) fn checked(given: &str) -> Result<Box<str>> {
    let wanted = "written as browsers do: https://host or http://host:port";
    serialized(given).map(Box::from).ok_or_else(|| Error::knob("origin", given, wanted))
}

/// Whether pages of this origin, as a browser names it, are pages of the host that this request is for.
pub(in crate::app) fn is_own(origin: &str, req: &Request<'_>) -> bool {
    let theirs_and_ours = authority(origin).zip(req.authority());
    theirs_and_ours.is_some_and(|(theirs, ours)| theirs.eq_ignore_ascii_case(&ours))
}

/// The host and port of a serialized origin.
fn authority(origin: &str) -> Option<&str> {
    serialized(origin)?.split_once("://").map(|(_, authority)| authority)
}

#[cfg(test)]
mod tests {
    //! What browsers write passes, and nothing that is like it.

    use super::*;

    #[test]
    fn what_browsers_write() {
        for origin in [
            "https://a.example",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://[2001:db8::1]",
            "moz-extension://0d4f0c2e-1234",
            "http://my_host",
        ] {
            assert_eq!(serialized(origin), Some(origin));
        }
        assert_eq!(authority("http://[::1]:8080"), Some("[::1]:8080"));
        assert_eq!(authority("https://a.example"), Some("a.example"));
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
            "http://a,http://b",
            " http://a",
        ] {
            assert_eq!(serialized(text), None, "{text:?}");
        }
    }
}
