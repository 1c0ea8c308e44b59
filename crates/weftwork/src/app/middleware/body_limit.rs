//! How large may the bodies of these routes be?

use super::{Middleware, Next};
#[cfg(doc)]
use crate::message::BodyError;
use crate::message::{Request, Response};

/// Lowers or raises how much of a request's body may be read by the handlers behind it.
///
/// A body whose declared length is past the limit is refused at its first read ([`BodyError::TooLarge`], which
/// `?` makes a 413); one without a length when it passes the limit. Of several the innermost counts, so a route can allow more than the site around it.
/// The default without this is the setting `body_bytes_max`, 2 MiB.
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
    /// At most `bytes_max`; `u64::MAX` lifts the limit.
    pub fn new(bytes_max: u64) -> BodyLimit {
        BodyLimit { bytes_max }
    }
}

impl Middleware for BodyLimit {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let before = req.body_bytes_max();
        req.set_body_bytes_max(self.bytes_max);
        let response = next.run(req);
        req.set_body_bytes_max(before);
        response
    }
}

#[cfg(test)]
mod tests {
    //! The innermost limit counts, and it ends with its handler.

    use http::StatusCode;

    use super::*;
    use crate::Result;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;

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

    #[test]
    fn it_ends_with_its_handler() {
        let seen_after = |req: &mut Request<'_>, next: Next<'_>| {
            let before = req.body_bytes_max();
            next.run(req);
            assert_eq!(req.body_bytes_max(), before);
        };
        Canned::with_body(&[]).call(&length.with(BodyLimit::new(5)).with(seen_after));
    }
}
