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

    fn allows(&self, req: &Request<'_>) -> bool {
        if matches!(*req.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return true;
        }
        let origin = req.only("origin");
        if let SingleValue::Value(origin) = origin
            && self.trusted.iter().any(|trusted| **trusted == *origin)
        {
            return true;
        }
        match (req.only("sec-fetch-site"), origin) {
            (SingleValue::Value("same-origin" | "none"), _) => true,
            (SingleValue::Absent, SingleValue::Absent) => true,
            (SingleValue::Absent, SingleValue::Value(origin)) => origin::is_own(origin, req),
            _ => false,
        }
    }
}

impl Middleware for Csrf {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        if self.allows(req) {
            return next.run(req);
        }
        refusal(StatusCode::FORBIDDEN, "cross-origin request rejected")
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
