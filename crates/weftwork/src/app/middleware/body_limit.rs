//! Limits the size of request bodies for some handlers.

use super::{Middleware, Next};
#[cfg(doc)]
use crate::message::BodyError;
use crate::message::{Request, Response};

/// Sets how much of a request body inner handlers may read, including handlers that [stream](Response::stream)
/// their response while they read.
///
/// A body with a longer declared length is rejected at its first read ([`BodyError::TooLarge`], which `?` turns
/// into a 413). A body without a length is rejected when it exceeds the limit. If there are several limits, the
/// innermost one counts, so a route can allow more than the rest of the site. Without this middleware, the
/// setting `body_bytes_max` applies (2 MiB).
///
/// ```
/// use weftwork::middleware::BodyLimit;
/// use weftwork::prelude::*;
///
/// fn keep(req: &mut Request) -> Result<StatusCode> {
///     std::io::copy(&mut req.body(), &mut std::io::sink())?;
///     Ok(StatusCode::NO_CONTENT)
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(keep.with(BodyLimit::new(1 << 30)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes_max: u64,
}

impl BodyLimit {
    /// Limits bodies to `bytes_max`. `u64::MAX` removes the limit.
    pub fn new(bytes_max: u64) -> BodyLimit {
        BodyLimit { bytes_max }
    }
}

impl Middleware for BodyLimit {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let before = req.body_bytes_max();
        req.set_body_bytes_max(self.bytes_max);
        let response = next.run(req);
        // A streamed response reads after the old limit is restored. The handler may have set its own limit.
        let within = req.body_bytes_max();
        req.set_body_bytes_max(before);
        response.reading_within(within)
    }
}

#[cfg(test)]
mod tests {
    //! Tests that the innermost limit applies, and ends with its handler.

    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::Result;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;
    use crate::{TestClient, unbuffered};

    fn length(req: &mut Request<'_>) -> Result<String> {
        Ok(req.body().bytes()?.len().to_string())
    }

    #[test]
    fn the_limit_is_exact() {
        let limited = length.with(BodyLimit::new(5));
        assert_eq!(Canned::with_body(&["123", "45"]).call(&limited).body().unwrap(), "5");
        let refused = Canned::with_body(&["123", "456"]).call(&limited);
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let refused = Canned::with_body(&[]).promising(6).call(&limited);
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn the_innermost_counts() {
        let raised = length.with(BodyLimit::new(10)).with(BodyLimit::new(5));
        assert_eq!(Canned::with_body(&["1234567890"]).call(&raised).body().unwrap(), "10");
        let lowered = length.with(BodyLimit::new(5)).with(BodyLimit::new(10));
        assert_eq!(Canned::with_body(&["123456"]).call(&lowered).status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    fn copied(_: &mut Request<'_>) -> Response {
        Response::stream(|out| {
            let mut part = [0; 4];
            loop {
                match out.read_request(&mut part)? {
                    0 => return Ok(()),
                    count => std::io::Write::write_all(out, &part[..count])?,
                }
            }
        })
    }

    /// Returns 413 for more than five bytes, and echoes shorter bodies.
    fn holds_to_five(what: &str, client: &mut TestClient) {
        let chunks = |client: &mut TestClient, parts: &[&'static str]| {
            client.post("/").chunks(parts.to_vec(), Duration::ZERO).send()
        };
        assert_eq!(client.post("/").body("12345").send().text(), "12345", "{what}");
        assert_eq!(chunks(client, &["123", "45"]).text(), "12345", "{what}");
        for refused in [client.post("/").body("123456").send(), chunks(client, &["123456"])] {
            assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE, "{what}");
            assert!(refused.text().contains("the 5 bytes that are allowed here"), "{}", refused.text());
        }
    }

    #[test]
    fn the_limit_applies_while_a_response_is_streamed() {
        holds_to_five("limited", &mut TestClient::new(copied.with(BodyLimit::new(5))));
        let inner = copied.with(BodyLimit::new(5)).with(BodyLimit::new(2));
        holds_to_five("the innermost", &mut TestClient::new(inner.with(BodyLimit::new(100))));
        let setting = TestClient::new(copied).settings(|s| s.body_bytes_max(5));
        holds_to_five("the setting", &mut { setting });
        let raised = |req: &mut Request<'_>| {
            req.set_body_bytes_max(5);
            copied(req)
        };
        holds_to_five("by the handler", &mut TestClient::new(raised.with(BodyLimit::new(2))));
        let read_before = |req: &mut Request<'_>| -> Result<Response> {
            std::io::Read::read_exact(&mut req.body(), &mut [0; 2])?;
            Ok(copied(req))
        };
        let mut client = TestClient::new(read_before.with(BodyLimit::new(7)));
        assert_eq!(client.post("/").body("1234567").send().text(), "34567");
        assert_eq!(client.post("/").body("12345678").send().status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    /// A response that has begun cannot become a 413, so the connection ends.
    #[test]
    fn a_body_over_the_limit_after_the_head_ends_the_connection() {
        let mut client = TestClient::new(unbuffered(copied.with(BodyLimit::new(5))));
        let none = client.post("/").chunks(["123", "456"], Duration::from_secs(1)).try_send().unwrap_err();
        let begun = none.partial().unwrap();
        assert_eq!((begun.status, begun.text(), begun.is_whole()), (StatusCode::OK, "123", false));
    }

    #[test]
    fn the_limit_ends_with_its_handler() {
        let seen_after = |req: &mut Request<'_>, next: Next<'_>| {
            let before = req.body_bytes_max();
            next.run(req);
            assert_eq!(req.body_bytes_max(), before);
        };
        Canned::with_body(&[]).call(&length.with(BodyLimit::new(5)).with(seen_after));
    }
}
