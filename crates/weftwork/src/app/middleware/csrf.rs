//! Protection against cross-site request forgery.

use http::{Method, StatusCode};

use super::{Middleware, Next, origin, refusal};
use crate::error::Result;
use crate::message::{Request, Response, SingleValue};

/// Rejects requests with 403 if a page of another origin made the browser send them (cross-site request
/// forgery).
///
/// There are no tokens, because browsers state where a request comes from. The rules are those of Go's
/// `http.CrossOriginProtection`:
///
/// 1. GET, HEAD and OPTIONS are accepted. They must not change anything (RFC 9110 §9.2.1).
/// 2. With `Sec-Fetch-Site` (browsers since 2023, over TLS and on localhost): `same-origin` is accepted, and so
///    is `none`, which means that the user typed the address. Everything else is rejected, including
///    `same-site`.
/// 3. With `Origin` alone: the request is accepted if its host and port equal those of the origin. A default
///    port, stated or not, makes no difference. One of the
///    [`trusted_proxies`](crate::Settings::trusted_proxies) may state the host in `X-Forwarded-Host`. If
///    [`forwarded_header`](crate::Settings::forwarded_header) is `Forwarded`, it states the host there.
/// 4. With neither field: the request is accepted. It does not come from a recent browser, so no user is being
///    tricked.
///
/// The response says what was compared, and the log what to change. A browser sends `Origin: null` for a form of your
/// own page if the page has `Referrer-Policy: no-referrer`. Rule 3 rejects it, because pages of other sites can cause
/// the same. Give such pages `same-origin`, as [`SecurityHeaders`](super::SecurityHeaders) gives them
/// `strict-origin-when-cross-origin`, or use TLS, so that rule 2 applies.
///
/// A [trusted](Csrf::trust) origin is accepted in rules 2 and 3. There is no list of exempt paths. Put the
/// middleware around the handlers that need it.
///
/// ```
/// use weftwork::middleware::Csrf;
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "transferred").with(Csrf::new().trust("https://sso.example")?));
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Csrf {
    trusted: Vec<Box<str>>,
}

impl Csrf {
    /// Creates a middleware that trusts only the site itself.
    pub fn new() -> Csrf {
        Csrf::default()
    }

    /// Also accepts requests from pages of `origin`.
    ///
    /// # Errors
    /// Fails if the origin is not written as browsers do (`https://host`, `http://host:port`).
    pub fn trust(mut self, origin: &str) -> Result<Csrf> {
        self.trusted.push(origin::checked(origin)?);
        Ok(self)
    }

    /// Returns why the request is rejected.
    fn check(&self, req: &Request<'_>) -> std::result::Result<(), Rejection> {
        if matches!(*req.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        let origin = req.only("origin");
        if let SingleValue::Value(origin) = origin
            && self.trusted.iter().any(|trusted| **trusted == *origin)
        {
            return Ok(());
        }
        match (req.only("sec-fetch-site"), origin) {
            (SingleValue::Value("same-origin" | "none"), _) => Ok(()),
            (SingleValue::Absent, SingleValue::Absent) => Ok(()),
            (SingleValue::Absent, SingleValue::Value(origin)) if origin::is_own(origin, req) => Ok(()),
            (SingleValue::Absent, SingleValue::Value("null")) => Err(Rejection::Null),
            (SingleValue::Absent, SingleValue::Value(_)) => Err(Rejection::OtherHost),
            (SingleValue::Value(_), _) => Err(Rejection::OtherSite),
            (SingleValue::Unclear, _) | (SingleValue::Absent, SingleValue::Unclear) => {
                Err(Rejection::Unclear)
            }
        }
    }
}

/// The reason why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejection {
    /// The browser says in `Sec-Fetch-Site` that the page is not of this origin.
    OtherSite,
    /// The host in `Origin` is another one.
    OtherHost,
    /// The browser does not say which page it was. Its own pages are not told apart from others.
    Null,
    /// `Origin` or `Sec-Fetch-Site` occurs several times, or is not text.
    Unclear,
}

impl Rejection {
    fn respond(self, req: &Request<'_>) -> Response {
        let origin = req.header("origin").unwrap_or_default();
        let host = req.authority().unwrap_or_default();
        let (what, cure) = match self {
            Rejection::OtherSite => {
                let site = req.header("sec-fetch-site").unwrap_or_default();
                (format!("Sec-Fetch-Site is {site:?}"), format!("If pages of {origin} may send it: Csrf::trust"))
            }
            Rejection::OtherHost => (
                format!("Origin is {origin:?}, and the host of the request is {host:?}"),
                "If such pages may send it: Csrf::trust. If a proxy changes the host: X-Forwarded-Host of the proxy, \
                 and trusted_proxies"
                    .to_owned(),
            ),
            Rejection::Null => (
                "Origin is \"null\", as for a form of a page with Referrer-Policy: no-referrer, or of a sandboxed frame"
                    .to_owned(),
                "If the page is of this site: its Referrer-Policy must be same-origin or \
                 strict-origin-when-cross-origin, or the site must use TLS"
                    .to_owned(),
            ),
            Rejection::Unclear => ("Origin or Sec-Fetch-Site is given several times".to_owned(), String::new()),
        };
        let (method, path) = (req.method(), req.whole_path());
        let dot = if cure.is_empty() { "" } else { ". " };
        req.log_client(format_args!("Csrf: {method} {path} gets 403: {what}{dot}{cure}"));
        refusal(StatusCode::FORBIDDEN, &format!("cross-origin request rejected: {what}"))
    }
}

impl Middleware for Csrf {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        match self.check(req) {
            Ok(()) => next.run(req),
            Err(rejection) => rejection.respond(req),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests that requests of the site's own pages and of programs pass, and that requests of other pages do not.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;
    use crate::{ForwardedHeader, Settings};

    #[track_caller]
    fn check(method: &str, fields: &[(&str, &str)], passes: bool) {
        let site = (|_: &mut Request<'_>| "x").with(Csrf::new().trust("https://sso.example").unwrap());
        let status = Canned::asking(method, "/", fields).call(&site).status();
        assert_eq!(status.as_u16(), if passes { 200 } else { 403 }, "{method} {fields:?}");
    }

    #[test]
    fn safe_methods_pass() {
        let evil = [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")];
        for method in ["GET", "HEAD", "OPTIONS"] {
            check(method, &evil, true);
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND", "get"] {
            check(method, &evil, false);
        }
    }

    #[test]
    fn sec_fetch_site_decides_where_it_is() {
        check("POST", &[("Sec-Fetch-Site", "same-origin")], true);
        check("POST", &[("Sec-Fetch-Site", "none")], true);
        check("POST", &[("Sec-Fetch-Site", "same-site")], false);
        check("POST", &[("Sec-Fetch-Site", "cross-site")], false);
        check("POST", &[("Sec-Fetch-Site", "")], false);
        check("POST", &[("Sec-Fetch-Site", "Same-Origin")], false);
        check("POST", &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://here.example")], false);
        check("POST", &[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://other.example")], true);
        check("POST", &[("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")], false);
    }

    #[test]
    fn without_it_the_origin_decides() {
        check("POST", &[], true);
        check("POST", &[("Origin", "https://here.example")], true);
        check("POST", &[("Origin", "http://here.example")], true);
        for origin in [
            "null",
            "",
            "https://evil.example",
            "https://here.example.evil.example",
            "https://evilhere.example",
            "https://here.example:8443",
            "here.example",
            "https://user@here.example",
            "https://here.example/",
        ] {
            check("POST", &[("Origin", origin)], false);
        }
        check("POST", &[("Origin", "https://here.example"), ("Origin", "https://here.example")], false);
    }

    /// 10.0.0.0/8 is trusted. The Host is `here.example`.
    #[track_caller]
    fn check_behind(peer: &str, forwarded: (&str, &str), origin: &str, passes: bool) {
        let mut canned = Canned::asking("POST", "/", &[("Origin", origin), forwarded]);
        canned.peer = peer.parse().ok();
        let settings = Settings::default().trusted_proxies("10.0.0.0/8".parse().unwrap());
        canned.settings = match forwarded.0 {
            "Forwarded" => settings.forwarded_header(ForwardedHeader::Forwarded),
            _ => settings,
        };
        let status = canned.call(&(|_: &mut Request<'_>| "x").with(Csrf::new())).status();
        assert_eq!(status.as_u16(), if passes { 200 } else { 403 }, "{peer} {forwarded:?} {origin}");
    }

    /// The proxy requests the server by another name, which no page of the site uses.
    #[test]
    fn the_host_is_the_one_that_a_trusted_proxy_was_asked_for() {
        let (trusted, stranger) = ("10.0.0.1:1", "192.0.2.7:1");
        for forwarded in [
            ("X-Forwarded-Host", "shop.example"),
            ("X-Forwarded-Host", "evil.example, Shop.example"),
            ("Forwarded", "for=192.0.2.7;host=shop.example"),
        ] {
            check_behind(trusted, forwarded, "https://shop.example", true);
            check_behind(trusted, forwarded, "https://here.example", false);
            check_behind(trusted, forwarded, "https://evil.example", false);
            check_behind(stranger, forwarded, "https://shop.example", false);
            check_behind(stranger, forwarded, "https://here.example", true);
        }
        check_behind(trusted, ("X-Forwarded-Host", ""), "https://here.example", true);
    }

    /// RFC 9110 section 4.2.3: it is the same origin, and browsers omit the port.
    #[test]
    fn the_default_port_is_no_other_origin() {
        let trusted = "10.0.0.1:1";
        for forwarded in
            [("X-Forwarded-Host", "shop.example:443"), ("Forwarded", "host=\"shop.example:443\"")]
        {
            check_behind(trusted, forwarded, "https://shop.example", true);
            check_behind(trusted, forwarded, "http://shop.example", false);
            check_behind(trusted, forwarded, "https://shop.example:8443", false);
        }
        check_behind(trusted, ("X-Forwarded-Host", "shop.example:80"), "http://shop.example", true);
        check_behind(trusted, ("X-Forwarded-Host", "shop.example:80"), "https://shop.example", false);
    }

    /// A page's own form is rejected under `no-referrer`, so its author must find out why.
    #[test]
    fn a_rejection_says_what_was_compared() {
        let site = (|_: &mut Request<'_>| "x").with(Csrf::new());
        for (fields, said) in [
            (
                &[("Origin", "null")][..],
                "Origin is \\\"null\\\", as for a form of a page with Referrer-Policy: no-referrer",
            ),
            (
                &[("Origin", "https://a.example")],
                "Origin is \\\"https://a.example\\\", and the host of the request is \\\"here.example\\\"",
            ),
            (&[("Origin", "null"), ("Sec-Fetch-Site", "cross-site")], "Sec-Fetch-Site is \\\"cross-site\\\""),
            (&[("Origin", "null"), ("Origin", "null")], "several times"),
        ] {
            let response = Canned::asking("POST", "/", fields).call(&site);
            let text = String::from_utf8(response.body().unwrap().to_vec()).unwrap();
            assert!(response.status() == StatusCode::FORBIDDEN && text.contains(said), "{text}");
        }
        check("POST", &[("Origin", "null"), ("Sec-Fetch-Site", "same-origin")], true);
    }

    #[test]
    fn a_trusted_origin_passes() {
        check("POST", &[("Origin", "https://sso.example")], true);
        check("POST", &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://sso.example")], true);
        check(
            "POST",
            &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://sso.example.evil.example")],
            false,
        );
        check("POST", &[("Sec-Fetch-Site", "cross-site"), ("Origin", "http://sso.example")], false);
    }

    #[test]
    fn an_invalid_trusted_origin_is_an_error() {
        for origin in ["*", "null", "sso.example", "https://sso.example/", "https://*.example"] {
            assert!(Csrf::new().trust(origin).is_err(), "{origin}");
        }
    }
}
