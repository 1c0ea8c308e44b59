//! Security headers for browsers.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header};

use super::{Middleware, Next};
use crate::error::{Error, Result};
use crate::message::{Request, Response};

/// Sets security headers. A header that the handler has set is kept.
///
/// | header | value | reason |
/// |---|---|---|
/// | `X-Content-Type-Options` | `nosniff` | Browsers do not run an upload as a script because it looks like one |
/// | `X-Frame-Options` | `DENY` | Other sites cannot frame a page and put their own buttons over it |
/// | `Referrer-Policy` | `strict-origin-when-cross-origin` | Other sites do not get paths and queries |
/// | `Strict-Transport-Security` | not sent | It cannot be revoked: see [`hsts`](SecurityHeaders::hsts) |
/// | `Content-Security-Policy` | not sent | It depends on the site: see [`csp`](SecurityHeaders::csp) |
///
/// ```
/// use weftwork::middleware::SecurityHeaders;
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| html("<p>hello")).with(SecurityHeaders::new().csp("default-src 'self'")?));
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders::new()
    }
}

impl SecurityHeaders {
    /// Creates the three headers that suit every site.
    pub fn new() -> SecurityHeaders {
        let text = HeaderValue::from_static;
        SecurityHeaders {
            headers: vec![
                (header::X_CONTENT_TYPE_OPTIONS, text("nosniff")),
                (header::X_FRAME_OPTIONS, text("DENY")),
                (header::REFERRER_POLICY, text("strict-origin-when-cross-origin")),
            ],
        }
    }

    /// Allows pages of the same origin to frame pages (`SAMEORIGIN`).
    #[must_use]
    pub fn framed_by_same_origin(self) -> SecurityHeaders {
        self.set(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"))
    }

    /// Sets another `Referrer-Policy`.
    ///
    /// # Errors
    /// Fails if `policy` cannot be the value of a header.
    pub fn referrer_policy(self, policy: &str) -> Result<SecurityHeaders> {
        Ok(self.set(header::REFERRER_POLICY, value("referrer_policy", policy)?))
    }

    /// Tells browsers to use only TLS for this host, for `time` in whole seconds (RFC 6797). A year is
    /// 31,536,000 seconds, which preload lists require. Use it only if every page of this host is available
    /// over TLS and will be for that long. The header is also sent over plain HTTP, because a proxy may
    /// terminate TLS without the server knowing. Browsers ignore it there (section 8.1).
    #[must_use]
    pub fn hsts(self, time: Duration) -> SecurityHeaders {
        self.hsts_with(&format!("max-age={}", time.as_secs()))
    }

    /// Sets the header of [`hsts`](SecurityHeaders::hsts) for all subdomains too.
    #[must_use]
    pub fn hsts_with_subdomains(self, time: Duration) -> SecurityHeaders {
        self.hsts_with(&format!("max-age={}; includeSubDomains", time.as_secs()))
    }

    /// Sets the `Content-Security-Policy` of every response.
    ///
    /// # Errors
    /// Fails if `policy` cannot be the value of a header.
    pub fn csp(self, policy: &str) -> Result<SecurityHeaders> {
        Ok(self.set(header::CONTENT_SECURITY_POLICY, value("csp", policy)?))
    }

    fn hsts_with(self, text: &str) -> SecurityHeaders {
        match HeaderValue::from_str(text) {
            Ok(value) => self.set(header::STRICT_TRANSPORT_SECURITY, value),
            Err(_) => self,
        }
    }

    fn set(mut self, name: HeaderName, value: HeaderValue) -> SecurityHeaders {
        self.headers.retain(|(field, _)| *field != name);
        self.headers.push((name, value));
        self
    }
}

fn with(headers: &[(HeaderName, HeaderValue)], mut response: Response) -> Response {
    for (name, value) in headers {
        if response.header_values(name).next().is_none() {
            response.append_header(name.clone(), value.clone());
        }
    }
    response
}

fn value(what: &str, text: &str) -> Result<HeaderValue> {
    let made = HeaderValue::from_str(text);
    made.map_err(|_| Error::setting(what, text, "the value of a header: printable, on one line"))
}

impl Middleware for SecurityHeaders {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let response = next.run(req);
        if !response.is_to_come() {
            return with(&self.headers, response);
        }
        // A placeholder may have some of the headers that the final response lacks.
        let headers = self.headers.clone();
        response.map_final(move |response| with(&headers, response))
    }
}

#[cfg(test)]
mod tests {
    //! Tests that the headers are set, that those of the handler win, and that nothing else is sent.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::get;

    fn headers(security: SecurityHeaders) -> Vec<String> {
        let response = get("/", &(|_: &mut Request<'_>| "x").with(security));
        response
            .header_lines()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn three_by_default() {
        let three = [
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "referrer-policy: strict-origin-when-cross-origin",
        ];
        assert_eq!(headers(SecurityHeaders::default()), three);
    }

    #[test]
    fn the_others_when_asked_for() {
        let all = SecurityHeaders::new()
            .framed_by_same_origin()
            .hsts(Duration::from_secs(7))
            .hsts_with_subdomains(Duration::from_secs(31_536_000));
        let all = all.csp("default-src 'self'").unwrap().referrer_policy("no-referrer").unwrap();
        let expected = [
            "x-content-type-options: nosniff",
            "x-frame-options: SAMEORIGIN",
            "strict-transport-security: max-age=31536000; includeSubDomains",
            "content-security-policy: default-src 'self'",
            "referrer-policy: no-referrer",
        ];
        assert_eq!(headers(all), expected);
        assert!(
            headers(SecurityHeaders::new().hsts(Duration::from_secs(7)))
                .contains(&"strict-transport-security: max-age=7".into())
        );
    }

    #[test]
    fn no_text_splits_the_response() {
        assert!(SecurityHeaders::new().csp("default-src\r\nSet-Cookie: a=b").is_err());
        assert!(SecurityHeaders::new().referrer_policy("a\nb").is_err());
    }

    #[test]
    fn what_the_handler_says_stays() {
        let framed = |_: &mut Request<'_>| {
            Response::text("x").with_header(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"))
        };
        let response = get("/", &framed.with(SecurityHeaders::new()));
        assert_eq!(response.header_values(header::X_FRAME_OPTIONS).collect::<Vec<_>>(), ["SAMEORIGIN"]);
    }
}
