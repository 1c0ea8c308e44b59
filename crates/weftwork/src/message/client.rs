//! Finds the client behind trusted proxies, and the scheme and host that it requested.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Request, split_unquoted};
use crate::settings::{ForwardedHeader, Settings};

/// Source of the requests on a connection, before any field is considered.
pub(crate) struct Source<'s> {
    /// The client that a PROXY header names, or else the peer of the connection.
    pub(crate) ip: Option<IpAddr>,
    /// A PROXY header without an address. Such a proxy does not read or add fields, so the client wrote all of them.
    pub(crate) is_unnamed: bool,
    /// Whether the connection itself is secured.
    pub(crate) is_secured: bool,
    pub(crate) settings: &'s Settings,
}

impl Source<'_> {
    /// Returns whether the forwarding fields are trusted.
    pub(crate) fn is_trusted(&self) -> bool {
        !self.is_unnamed && self.settings.trusted_proxies.contains(self.ip)
    }
}

/// Walks the forwarding field from right to left, starting at the source, while the sender of each element is trusted.
/// An IPv4 address in IPv6 notation, from a listener for both families or from a proxy, counts as IPv4.
pub(crate) fn address<'f, I>(source: &Source<'_>, fields: I) -> Option<IpAddr>
where
    I: DoubleEndedIterator<Item = (&'f [u8], &'f [u8])>,
{
    let mut found = source.ip.map(|ip| ip.to_canonical());
    if !source.is_trusted() {
        return found;
    }
    let trusted = &source.settings.trusted_proxies;
    let field = source.settings.forwarded_header;
    let lines = fields.rev().filter(|(name, _)| name.eq_ignore_ascii_case(field.name().as_bytes()));
    for (_, line) in lines {
        // Bytes that are not text belong to no address. The elements to their right still count.
        let line = String::from_utf8_lossy(line);
        for element in elements(&line, field).into_iter().rev() {
            let Some(named) = node(element, field) else { return found };
            found = Some(named.to_canonical());
            if !trusted.contains(found) {
                return found;
            }
        }
    }
    found
}

/// Returns what trusted proxies say about the request: its `proto` or its `host`, as the client chose it.
pub(crate) fn from_proxy<'f, I>(source: &Source<'_>, fields: I, what: &str) -> Option<String>
where
    I: DoubleEndedIterator<Item = (&'f [u8], &'f [u8])>,
{
    if !source.is_trusted() {
        return None;
    }
    let settings = source.settings;
    let trusted = &settings.trusted_proxies;
    let name = match settings.forwarded_header {
        ForwardedHeader::XForwardedFor => format!("x-forwarded-{what}"),
        ForwardedHeader::Forwarded => "forwarded".to_owned(),
    };
    let mut found = None;
    for (_, line) in fields.rev().filter(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())) {
        let line = String::from_utf8_lossy(line);
        for element in elements(&line, settings.forwarded_header).into_iter().rev() {
            if settings.forwarded_header == ForwardedHeader::XForwardedFor {
                // The elements do not stand for hops. Only the last one is certainly from the nearest proxy.
                return plain(element.trim_matches([' ', '\t']));
            }
            found = parameter(element, what).and_then(|value| plain(&value)).or(found);
            if !node(element, ForwardedHeader::Forwarded).is_some_and(|named| trusted.contains(Some(named))) {
                return found;
            }
        }
    }
    found
}

/// Returns the scheme of the client's request. See [`Request::scheme`](super::Request::scheme).
pub(crate) fn scheme<'f, I>(source: &Source<'_>, fields: I) -> &'static str
where
    I: DoubleEndedIterator<Item = (&'f [u8], &'f [u8])>,
{
    match from_proxy(source, fields, "proto") {
        // Some proxies send `wss` for a WebSocket.
        Some(scheme) if ["https", "wss"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls)) => "https",
        None if source.is_secured => "https",
        _ => "http",
    }
}

/// The value is passed on and compared, so characters that are invalid in a scheme or host make it invalid.
fn plain(text: &str) -> Option<String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_plain.then(|| text.to_owned())
}

/// Splits a list into its elements. In `Forwarded`, a comma may be quoted.
fn elements(line: &str, field: ForwardedHeader) -> Vec<&str> {
    let mut all = match field {
        ForwardedHeader::XForwardedFor => line.split(',').collect(),
        ForwardedHeader::Forwarded => split_unquoted(line, b','),
    };
    // Empty elements do not count (RFC 9110 §5.6.1.2).
    all.retain(|element| !element.trim_matches([' ', '\t']).is_empty());
    all
}

/// Returns the address in an element.
fn node(element: &str, field: ForwardedHeader) -> Option<IpAddr> {
    match field {
        ForwardedHeader::XForwardedFor => host(element.trim_matches([' ', '\t'])),
        ForwardedHeader::Forwarded => host(&parameter(element, "for")?),
    }
}

/// Returns a parameter of an element of `Forwarded`, without quotes. If a quote is unbalanced, the element is not
/// trusted, because a client may have left it open for what its proxy adds.
fn parameter<'e>(element: &'e str, wanted: &str) -> Option<Cow<'e, str>> {
    let mut found = None;
    for pair in split_unquoted(element, b';') {
        let (name, value) = pair.trim_matches([' ', '\t']).split_once('=').unwrap_or((pair, ""));
        let value = unquoted(value).filter(|_| !name.contains('"'))?;
        // Each parameter may occur once (RFC 7239 §4).
        if name.eq_ignore_ascii_case(wanted) && found.replace(value).is_some() {
            return None;
        }
    }
    found
}

/// Returns a token, or the content of a quoted string. Returns None if quotes are elsewhere, or one is missing.
fn unquoted(value: &str) -> Option<Cow<'_, str>> {
    let Some(opened) = value.strip_prefix('"') else { return (!value.contains('"')).then_some(value.into()) };
    let inner = opened.strip_suffix('"')?;
    if !inner.contains(['"', '\\']) {
        return Some(inner.into());
    }
    let (mut text, mut chars) = (String::new(), inner.chars());
    while let Some(char) = chars.next() {
        text.push(match char {
            '"' => return None,
            // A backslash stands for the next character (RFC 9110 section 5.6.4).
            '\\' => chars.next()?,
            char => char,
        });
    }
    Some(text.into())
}

/// Parses an address with or without a port, as both fields contain it (RFC 7239 section 6).
fn host(text: &str) -> Option<IpAddr> {
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    bare.or_else(with_port).or_else(bracketed)
}

impl Request<'_> {
    /// Returns the address of the client, as far as it can be trusted. Use it for logs, rate limits and access rules.
    ///
    /// The search starts at [`peer_addr`](Request::peer_addr), or at the client that a PROXY header names. While that
    /// address is one of the [`trusted_proxies`](crate::Settings::trusted_proxies), it is replaced by the address that
    /// this proxy has added to the [`forwarded_header`](crate::Settings::forwarded_header). The field is read from
    /// right to left. Everything to the left of the first untrusted address may come from any client. If a proxy names
    /// no client (`unknown`), the result is the proxy.
    ///
    /// Without trusted proxies (the default), the result is the peer of the connection. A client on a Unix socket has
    /// no address, so the result is `None`. An IPv4 address always has the form `192.0.2.7`, and not
    /// `::ffff:192.0.2.7`, which [`peer_addr`](Request::peer_addr) has at a listener for both families, such as
    /// `:8080`.
    pub fn client_addr(&self) -> Option<IpAddr> {
        address(&self.exchange.source(), self.fields())
    }

    /// Returns the scheme of the client's request, as far as it can be trusted. If the peer (or the client that a PROXY
    /// header names) is one of the [`trusted_proxies`](crate::Settings::trusted_proxies) and names the scheme, it is that
    /// one. Otherwise it is `https` on a TLS connection, and `http` on others.
    ///
    /// A proxy sends the scheme in `X-Forwarded-Proto`, of which the last element counts. If `Forwarded` is the
    /// [`forwarded_header`](crate::Settings::forwarded_header), it is its `proto`, read as in
    /// [`client_addr`](Request::client_addr). A trusted proxy must set the header, and must not forward one from its
    /// client.
    pub fn scheme(&self) -> &'static str {
        scheme(&self.exchange.source(), self.fields())
    }

    /// Returns the facts about the TLS session of the connection: version, cipher suite, the name that the client asked
    /// for. None in clear. Behind a proxy, it is the session of the proxy.
    #[cfg(feature = "_tls")]
    pub fn tls(&self) -> Option<&crate::TlsInfo> {
        self.exchange.tls()
    }

    /// Returns the certificate that the client has shown, if the server asks for one
    /// ([`ClientCertificates`](crate::tls::ClientCertificates)). It was verified.
    #[cfg(feature = "_tls")]
    pub fn client_certificate(&self) -> Option<&crate::tls::ClientCertificate> {
        self.tls()?.client_certificate()
    }

    /// Returns the host that a trusted proxy names. See [`scheme`](Request::scheme).
    pub(crate) fn forwarded_host(&self) -> Option<String> {
        from_proxy(&self.exchange.source(), self.fields(), "host")
    }

    /// Returns the host (and port) that the client requested, as far as it can be trusted. If a trusted proxy names
    /// one, it is that host, because a proxy may send another `Host`. Otherwise it is [`host`](Request::host).
    pub(crate) fn authority(&self) -> Option<Cow<'_, str>> {
        self.forwarded_host().map(Cow::Owned).or_else(|| self.host().map(Cow::Borrowed))
    }

    /// Returns the client that a trusted proxy names in the `forwarded_header`, if any.
    pub(crate) fn forwarded_client(&self) -> Option<IpAddr> {
        let source = self.exchange.source();
        let name = source.settings.forwarded_header.name();
        let has_named = self.fields().any(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes()));
        self.client_addr().filter(|_| source.is_trusted() && has_named)
    }

    /// Returns whether the sender of the request is a trusted proxy.
    pub(crate) fn is_source_trusted(&self) -> bool {
        self.exchange.source().is_trusted()
    }

    /// Returns the peer of the connection, or None on a Unix socket. Behind a proxy, it is the proxy, even with the
    /// PROXY protocol. See [`client_addr`](Request::client_addr).
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.exchange.peer_addr()
    }

    /// Returns the local address, or None on a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.exchange.local_addr()
    }
}

#[cfg(test)]
mod tests {
    //! Tests that only trusted proxies are believed, however the field is written.

    use super::*;

    /// In these tests, 10.0.0.0/8 and fd00::/8 are trusted, and the peer is 10.0.0.1.
    #[track_caller]
    fn check(field: ForwardedHeader, lines: &[&str], want: &str) {
        check_from("10.0.0.1", field, lines, want);
    }

    fn at<'s>(start: &str, settings: &'s Settings) -> Source<'s> {
        Source { ip: start.parse().ok(), is_unnamed: false, is_secured: false, settings }
    }

    #[track_caller]
    fn check_from(start: &str, field: ForwardedHeader, lines: &[&str], want: &str) {
        let settings = Settings::default().trusted_proxies("10.0.0.0/8,fd00::/8".parse().unwrap());
        let settings = settings.forwarded_header(field);
        // The other header is present too, with content that must not be trusted.
        let other = ("X-Forwarded-For", "Forwarded");
        let (name, other) = if field == ForwardedHeader::Forwarded { (other.1, other.0) } else { other };
        let lie = if field == ForwardedHeader::Forwarded { "6.6.6.6" } else { "for=6.6.6.6" };
        let lines = lines.iter().map(|line| (name.as_bytes(), line.as_bytes()));
        let fields: Vec<_> = lines.chain([(other.as_bytes(), lie.as_bytes())]).collect();
        let found = address(&at(start, &settings), fields.into_iter());
        assert_eq!(found, want.parse().ok());
    }

    #[test]
    fn x_forwarded_for_is_walked_from_right_to_left() {
        use ForwardedHeader::XForwardedFor as X;
        check(X, &[], "10.0.0.1");
        check(X, &["192.0.2.7"], "192.0.2.7");
        check(X, &["1.1.1.1, 192.0.2.7"], "192.0.2.7");
        check(X, &["1.1.1.1, 192.0.2.7, 10.9.9.9"], "192.0.2.7");
        check(X, &["1.1.1.1", "192.0.2.7", "10.9.9.9, fd00::1"], "192.0.2.7");
        check(X, &["10.0.0.3,10.0.0.2"], "10.0.0.3");
        check(X, &["\t192.0.2.7 , ,"], "192.0.2.7");
        check(X, &["192.0.2.7, ::ffff:10.0.0.2"], "192.0.2.7");
        for port in ["192.0.2.7:80", "192.0.2.7"] {
            check(X, &[port], "192.0.2.7");
        }
        for six in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80"] {
            check(X, &[six], "2001:db8::1");
        }
    }

    /// The address has one form, however a listener or a proxy writes it, because rules and logs compare it.
    #[test]
    fn an_ipv4_client_has_one_address() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        check_from("::ffff:192.0.2.7", XForwardedFor, &["1.1.1.1"], "192.0.2.7");
        check_from("::ffff:10.0.0.1", XForwardedFor, &[], "10.0.0.1");
        check(XForwardedFor, &["::ffff:192.0.2.7"], "192.0.2.7");
        check(Forwarded, &["for=\"[::ffff:192.0.2.7]:80\""], "192.0.2.7");
    }

    #[test]
    fn an_invalid_forwarded_address_ends_the_search() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        for nobody in ["unknown", "_hidden", "192.0.2", "192.0.2.7/8", "a b", "\"192.0.2.7\"", "\u{fffd}"] {
            check(XForwardedFor, &[&format!("1.1.1.1, {nobody}")], "10.0.0.1");
            check(XForwardedFor, &[&format!("1.1.1.1, {nobody}, 10.0.0.2")], "10.0.0.2");
        }
        for nobody in
            ["for=unknown", "by=192.0.2.7", "for=\"192.0.2.7", "for=1.1.1.1;for=2.2.2.2", "192.0.2.7"]
        {
            check(Forwarded, &["for=1.1.1.1", nobody], "10.0.0.1");
        }
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        use ForwardedHeader::Forwarded as F;
        check(F, &["for=192.0.2.7"], "192.0.2.7");
        check(F, &["For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17");
        check(F, &["for=1.1.1.1, for=192.0.2.7;proto=http;by=203.0.113.43"], "192.0.2.7");
        check(F, &["for=192.0.2.7, FOR=10.0.0.9; host=\"a,b\\\",\""], "192.0.2.7");
        // A quote that a client leaves open must not hide what its proxy adds.
        check(F, &["for=1.1.1.1, for=\"x, for=192.0.2.7"], "10.0.0.1");
        check(F, &["for=1.1.1.1, for=\"x, for=\"[2001:db8::1]\""], "10.0.0.1");
        check(F, &["for=\"192.0.2.7:80\"", "proto=https;for=10.0.0.9"], "192.0.2.7");
    }

    /// RFC 9110 section 5.6.4: a backslash in quotes is not part of the value.
    #[test]
    fn quoted_pairs_are_what_they_quote() {
        use ForwardedHeader::Forwarded as F;
        check(F, &["for=\"192.0.2\\.7\\:80\""], "192.0.2.7");
        check(F, &["for=\"\\[2001:db8::1\\]\""], "2001:db8::1");
        says("10.0.0.1", F, &[("Forwarded", "for=1.1.1.1;proto=\"ht\\tps\"")], Some("https"));
        // A quoted value is quoted once.
        check(F, &["for=\"192.0.2\\\\.7\""], "10.0.0.1");
    }

    /// A client that sends a quote, in a field of its own or in the `Host` that a proxy repeats, must not forge
    /// parameters.
    #[test]
    fn quotes_hide_no_parameter_and_make_none() {
        use ForwardedHeader::Forwarded as F;
        check(F, &["for=1.2.3.4;x=\", for=192.0.2.7"], "10.0.0.1");
        check(F, &["for=1.2.3.4;x=\", for=\"[2001:db8::1]\""], "10.0.0.1");
        check(F, &["for=1.2.3.4;x=\", for=192.0.2.7;host=\"a\"\""], "10.0.0.1");
        check(F, &["for=1.2.3.4;\", for\"=192.0.2.7"], "10.0.0.1");
        check(F, &["for=192.0.2.7;x=\"a\\\""], "10.0.0.1");
        check(F, &["for=192.0.2.7;host=\"a;for=6.6.6.6;b\""], "192.0.2.7");
        check(F, &["for=192.0.2.7;x=\"a\\\";for=6.6.6.6;b\"; ;"], "192.0.2.7");
        let says = |line| says("10.0.0.1", F, &[("Forwarded", line)], None);
        says("proto=https;x=\", for=1.1.1.1;proto=http");
        says("for=1.1.1.1;host=\"x;proto=https;y\"");
    }

    #[track_caller]
    fn says(start: &str, field: ForwardedHeader, lines: &[(&str, &str)], scheme: Option<&str>) {
        let settings = Settings::default().trusted_proxies("10.0.0.0/8".parse().unwrap());
        let settings = settings.forwarded_header(field);
        let fields = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        assert_eq!(from_proxy(&at(start, &settings), fields, "proto").as_deref(), scheme);
    }

    #[test]
    fn the_scheme_is_that_of_the_client() {
        use ForwardedHeader::{Forwarded as F, XForwardedFor as X};
        let x = "X-Forwarded-Proto";
        says("10.0.0.1", X, &[(x, "https")], Some("https"));
        says("10.0.0.1", X, &[(x, "https, http")], Some("http"));
        says("10.0.0.1", X, &[(x, "http"), (x, "https ,")], Some("https"));
        says("10.0.0.1", X, &[], None);
        says("10.0.0.1", X, &[(x, "a b")], None);
        says("10.0.0.1", X, &[("Forwarded", "proto=https")], None);
        says("10.0.0.1", F, &[(x, "https")], None);
        says("10.0.0.1", F, &[("Forwarded", "for=1.1.1.1;proto=\"https\"")], Some("https"));
        // Elements to the left of the client's own address come from the client.
        says("10.0.0.1", F, &[("Forwarded", "proto=https, for=1.1.1.1;proto=http")], Some("http"));
        says("10.0.0.1", F, &[("Forwarded", "proto=https, for=1.1.1.1")], None);
        says(
            "10.0.0.1",
            F,
            &[("Forwarded", "for=1.1.1.1;proto=https, for=10.0.0.2;proto=http")],
            Some("https"),
        );
        says("10.0.0.1", F, &[("Forwarded", "for=1.1.1.1, for=10.0.0.2;proto=http")], Some("http"));
        for field in [X, F] {
            says("192.0.2.9", field, &[(x, "https"), ("Forwarded", "proto=https")], None);
            says("a unix socket", field, &[(x, "https"), ("Forwarded", "proto=https")], None);
        }
    }

    #[test]
    fn an_untrusted_peer_is_the_client() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        for peer in ["192.0.2.9", "::1"] {
            check_from(peer, XForwardedFor, &["1.1.1.1"], peer);
            check_from(peer, Forwarded, &["for=1.1.1.1"], peer);
        }
        check_from("a unix socket", XForwardedFor, &["1.1.1.1"], "none");
        let settings = Settings::default().trusted_proxies("unix".parse().unwrap());
        let field = [(&b"x-forwarded-for"[..], &b"1.1.1.1"[..])];
        assert_eq!(address(&at("a unix socket", &settings), field.into_iter()), "1.1.1.1".parse().ok());
    }
}
