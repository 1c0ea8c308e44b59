//! Answers `http-01` challenges before the handler sees the request.

use std::sync::Arc;

use http::{HeaderValue, header};

use super::AcmeCertificates;
use super::challenges::{CHALLENGE_PATH, Http01Challenges};
use crate::app::HandlerExt;
use crate::app::middleware::{Middleware, Next};
use crate::message::{Handler, Request, Response};

/// Middleware around the site and around the redirect listener. The authority follows redirects, so an answer over TLS is
/// as good as one in clear.
struct ChallengeAnswers(Vec<Http01Challenges>);

/// Lets the handler of a server answer the challenges of its certificates.
pub(crate) fn answer_challenges(
    certificates: &[Arc<AcmeCertificates>],
    handler: Arc<dyn Handler>,
) -> Arc<dyn Handler> {
    if certificates.is_empty() {
        return handler;
    }
    let challenges = certificates.iter().map(|certificates| certificates.http01()).collect();
    Arc::new(handler.with(ChallengeAnswers(challenges)))
}

impl Middleware for ChallengeAnswers {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let token = req.path().strip_prefix(CHALLENGE_PATH);
        let answer = token.and_then(|token| self.0.iter().find_map(|challenges| challenges.response(token)));
        match answer {
            Some(text) => {
                let kind = HeaderValue::from_static("application/octet-stream");
                Response::text(text).with_header(header::CONTENT_TYPE, kind)
            }
            None => next.run(req),
        }
    }
}
