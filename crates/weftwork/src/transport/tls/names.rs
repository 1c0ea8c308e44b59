//! Finds the certificate for a name: the exact name, then a wildcard of one label, then the first certificate.

use std::borrow::Cow;
use std::collections::HashMap;

/// Names of the certificates of a listener. A certificate is a number here, in the order in which the program gave it.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    exact: HashMap<Box<str>, Vec<usize>>,
    /// Keys are what follows `*.`.
    wildcards: HashMap<Box<str>, Vec<usize>>,
    certificates: usize,
    /// Whether a name that no certificate has is refused.
    is_strict: bool,
    /// Whether the listener asks clients for certificates.
    asks_clients: bool,
}

impl NameTable {
    pub(crate) fn new(is_strict: bool, asks_clients: bool) -> NameTable {
        NameTable { is_strict, asks_clients, ..NameTable::default() }
    }

    /// Adds the next certificate with its DNS names. Several certificates may have the same name, with other kinds of
    /// keys.
    pub(crate) fn push<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            let (map, key) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcards, parent),
                None => (&mut self.exact, name),
            };
            let numbers = map.entry(normal(key).into()).or_default();
            if !numbers.contains(&self.certificates) {
                numbers.push(self.certificates);
            }
        }
        self.certificates += 1;
    }

    /// Returns the certificates for the name that a client asks for, the best first. Without a certificate for it, the
    /// list has the first certificate, or is empty if names are strict.
    pub(crate) fn choose(&self, name: Option<&str>) -> &[usize] {
        let fallback: &[usize] = if self.is_strict || self.certificates == 0 { &[] } else { &[0] };
        name.and_then(|name| self.find(&normal(name))).unwrap_or(fallback)
    }

    fn find(&self, name: &str) -> Option<&[usize]> {
        let of_wildcard = || self.wildcards.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(of_wildcard).map(Vec::as_slice)
    }

    /// Returns whether a request is on the wrong connection, so that its response is 421 (RFC 9110 section 15.5.20):
    /// another certificate serves its authority, or clients show certificates and the authority is not the name that the
    /// client has asked for. A client without a name cannot be told from one that knows only an address.
    pub(crate) fn is_misdirected(&self, asked: Option<&str>, authority: &str) -> bool {
        if self.certificates < 2 && !self.asks_clients {
            return false;
        }
        let host = normal(host_of(authority));
        if self.asks_clients && asked.is_some_and(|asked| normal(asked) != host) {
            return true;
        }
        let (found, chosen) = (self.find(&host), self.choose(asked));
        found.is_some_and(|found| !found.iter().any(|number| chosen.contains(number)))
    }
}

/// Returns the name in lower case, without the dot of the root.
fn normal(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => name.to_ascii_lowercase().into(),
        false => name.into(),
    }
}

/// Returns an authority without its port.
fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority;
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(certificates: &[&[&str]]) -> NameTable {
        let mut table = NameTable::default();
        certificates.iter().for_each(|names| table.push(names.iter().copied()));
        table
    }

    #[test]
    fn the_exact_name_comes_before_a_wildcard_and_before_the_first() {
        let mut table = table(&[&["first.test"], &["*.example.org"], &["WWW.example.org"]]);
        let cases: [(Option<&str>, &[usize]); 9] = [
            (Some("www.example.org"), &[2]),
            (Some("WWW.Example.Org"), &[2]),
            (Some("www.example.org."), &[2]),
            (Some("api.example.org"), &[1]),
            // A wildcard stands for one label, and the parent is not among its names.
            (Some("a.b.example.org"), &[0]),
            (Some("example.org"), &[0]),
            (Some("first.test"), &[0]),
            (Some("unknown.test"), &[0]),
            (None, &[0]),
        ];
        for (name, numbers) in cases {
            assert_eq!(table.choose(name), numbers, "{name:?}");
        }
        table.is_strict = true;
        let strict: [(Option<&str>, &[usize]); 4] = [
            (Some("api.example.org"), &[1]),
            (Some("unknown.test"), &[]),
            (Some("a.b.example.org"), &[]),
            (None, &[]),
        ];
        for (name, numbers) in strict {
            assert_eq!(table.choose(name), numbers, "{name:?}");
        }
    }

    #[test]
    fn two_kinds_of_keys_share_a_name() {
        let table = table(&[&["a.test", "a.test"], &["a.test", "b.test"]]);
        assert_eq!(table.choose(Some("a.test")), [0, 1]);
        assert_eq!(table.choose(Some("b.test")), [1]);
    }

    #[test]
    fn a_request_for_the_name_of_another_certificate_is_misdirected() {
        let table = table(&[&["a.test", "also.test"], &["*.b.test"], &["www.b.test"]]);
        let cases = [
            (Some("a.test"), "a.test", false),
            (Some("a.test"), "A.TEST.:443", false),
            (Some("a.test"), "also.test", false),
            (Some("a.test"), "www.b.test:8443", true),
            (Some("x.b.test"), "www.b.test", true),
            (Some("x.b.test"), "y.b.test", false),
            // No certificate has these names, so no connection would be a better one.
            (Some("a.test"), "unknown.test", false),
            (Some("a.test"), "127.0.0.1:8443", false),
            (Some("a.test"), "[::1]:8443", false),
            (None, "a.test", false),
            (None, "www.b.test", true),
        ];
        for (asked, authority, is_misdirected) in cases {
            assert_eq!(table.is_misdirected(asked, authority), is_misdirected, "{asked:?} {authority}");
        }
    }

    #[test]
    fn with_client_certificates_the_authority_is_the_name_that_was_asked_for() {
        let mut table = NameTable::new(false, true);
        table.push(["a.test", "b.test"]);
        assert!(!table.is_misdirected(Some("a.test"), "A.test:443"));
        assert!(table.is_misdirected(Some("a.test"), "b.test"));
        assert!(table.is_misdirected(Some("a.test"), "unknown.test"));
        assert!(!table.is_misdirected(None, "10.0.0.1"));
        let mut table = NameTable::new(false, false);
        table.push(["a.test", "b.test"]);
        assert!(!table.is_misdirected(Some("a.test"), "b.test"));
    }
}
