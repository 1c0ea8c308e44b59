//! `Strict-Transport-Security` on each response that travels over TLS (RFC 6797).

use std::time::Duration;

use http::{HeaderValue, header};

use crate::app::middleware::{Middleware, Next};
use crate::message::{Request, Response};

/// Adds the header, unless the handler has set it.
pub(super) struct Hsts(HeaderValue);

impl Hsts {
    pub(super) fn new(max_age: Duration) -> Hsts {
        let text = format!("max-age={}", max_age.as_secs());
        Hsts(HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("max-age=0")))
    }
}

impl Middleware for Hsts {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        // Browsers ignore the header in clear (section 8.1), and a server must not send it there (section 7.2).
        let is_secure = req.scheme() == "https";
        let mut response = next.run(req);
        if is_secure && response.header_values(&header::STRICT_TRANSPORT_SECURITY).next().is_none() {
            response.append_header(header::STRICT_TRANSPORT_SECURITY, self.0.clone());
        }
        response
    }
}
