//! Authentication by bearer tokens (RFC 6750).

use std::fmt;

use http::{HeaderValue, StatusCode, header};

use super::{Middleware, Next, challenge, refusal, run_with};
use crate::error::Result;
use crate::message::{IntoResponse, Request, Response};

/// Accepts only requests with `Authorization: Bearer` and a token that `verify` accepts. The handler finds the value
/// that `verify` returned in the extensions of the request. If the value is a [`User`](super::User), the access log
/// names that user.
///
/// - Without a token: 401, with the realm in `WWW-Authenticate`.
/// - If `verify` returns an error: that error's response. A 401 gets `error="invalid_token"` in `WWW-Authenticate`
///   (RFC 6750 section 3), unless it has that field. Return 403 for a valid token that does not allow the request.
///
/// `verify` runs for each request, and may block. A token alone gives access, so look it up by its hash, or compare it
/// in constant time. Tokens are sent unencrypted, so use TLS.
///
/// ```
/// use weftwork::middleware::BearerAuth;
/// use weftwork::{TestClient, prelude::*};
///
/// #[derive(Clone)]
/// struct Account { name: &'static str }
///
/// fn verify(token: &str) -> Result<Account> {
///     // For example, check the signature and the expiry of a JWT.
///     let known = (token == "t0ken").then_some(Account { name: "Ada" });
///     Ok(known.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED).detail("unknown token"))?)
/// }
///
/// fn me(req: &mut Request) -> Option<&'static str> {
///     req.extensions().get::<Account>().map(|account| account.name)
/// }
///
/// let mut client = TestClient::new(me.with(BearerAuth::new("accounts", verify)?));
/// assert_eq!(client.get("/").header("authorization", "Bearer t0ken").send().text(), "Ada");
/// let rejected = client.get("/").header("authorization", "Bearer guess").send();
/// assert_eq!(rejected.header("www-authenticate"), Some(r#"Bearer realm="accounts", error="invalid_token""#));
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone)]
pub struct BearerAuth<F> {
    no_token: HeaderValue,
    invalid_token: HeaderValue,
    verify: F,
}

impl<F> BearerAuth<F> {
    /// Creates the middleware from a function that verifies a token. Clients see `realm`, the name of what the token
    /// protects.
    ///
    /// # Errors
    /// Fails if `realm` has a quote, a backslash, or a character that is not printable ASCII.
    pub fn new<T, E>(realm: &str, verify: F) -> Result<BearerAuth<F>>
    where
        F: Fn(&str) -> std::result::Result<T, E>,
    {
        Ok(BearerAuth {
            no_token: challenge("Bearer", realm, "")?,
            invalid_token: challenge("Bearer", realm, ", error=\"invalid_token\"")?,
            verify,
        })
    }
}

impl<F, T, E> Middleware for BearerAuth<F>
where
    F: Fn(&str) -> std::result::Result<T, E> + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    E: IntoResponse,
{
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let Some(token) = req.bearer_token() else {
            return refusal(StatusCode::UNAUTHORIZED, "a bearer token is required")
                .with_header(header::WWW_AUTHENTICATE, self.no_token.clone());
        };
        match (self.verify)(token) {
            Ok(value) => run_with(value, req, next),
            Err(error) => {
                let response = error.into_response();
                let is_complete = response.status() != StatusCode::UNAUTHORIZED
                    || response.header(header::WWW_AUTHENTICATE).is_some();
                if is_complete {
                    return response;
                }
                response.with_header(header::WWW_AUTHENTICATE, self.invalid_token.clone())
            }
        }
    }
}

impl<F> fmt::Debug for BearerAuth<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerAuth").field("challenge", &self.no_token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Tests that only verified tokens pass, and that each rejection has its challenge.

    use super::*;
    use crate::app::middleware::{HandlerExt, User};
    use crate::message::testing::Canned;
    use crate::{Error, Problem, Router, TestClient};

    const NO_TOKEN: &str = "Bearer realm=\"here\"";
    const INVALID_TOKEN: &str = "Bearer realm=\"here\", error=\"invalid_token\"";

    fn verify(token: &str) -> Result<User> {
        match token {
            "good" => Ok(User::new("ada")),
            "expired" => Err(Problem::new(StatusCode::UNAUTHORIZED).detail("expired").into()),
            "own" => Err(Error::response((StatusCode::UNAUTHORIZED, [("www-authenticate", "Own")], ""))),
            "scope" => Err(Error::response(StatusCode::FORBIDDEN)),
            _ => Err(Error::response(StatusCode::UNAUTHORIZED)),
        }
    }

    fn name(req: &mut Request<'_>) -> String {
        req.extensions().get::<User>().map_or_else(|| "nobody".to_owned(), User::to_string)
    }

    fn ask(fields: &[(&str, &str)]) -> Response {
        Canned::asking("GET", "/", fields).call(&name.with(BearerAuth::new("here", verify).unwrap()))
    }

    #[test]
    fn a_verified_token_passes_with_its_value() {
        for written in ["Bearer good", "bearer  good"] {
            assert_eq!(ask(&[("Authorization", written)]).body().unwrap(), "ada", "{written}");
        }
    }

    #[test]
    fn all_others_are_rejected_with_a_challenge() {
        let good = ("Authorization", "Bearer good");
        for (fields, status, challenge) in [
            (&[][..], 401, Some(NO_TOKEN)),
            (&[("Authorization", "Basic Z29vZA==")], 401, Some(NO_TOKEN)),
            (&[("Authorization", "Bearer ")], 401, Some(NO_TOKEN)),
            (&[good, good], 401, Some(NO_TOKEN)),
            (&[("Authorization", "Bearer bad")], 401, Some(INVALID_TOKEN)),
            (&[("Authorization", "Bearer Good")], 401, Some(INVALID_TOKEN)),
            (&[("Authorization", "Bearer expired")], 401, Some(INVALID_TOKEN)),
            (&[("Authorization", "Bearer own")], 401, Some("Own")),
            (&[("Authorization", "Bearer scope")], 403, None),
        ] {
            let response = ask(fields);
            let got = response.header(header::WWW_AUTHENTICATE);
            assert_eq!((response.status().as_u16(), got), (status, challenge), "{fields:?}");
        }
        let expired = ask(&[("Authorization", "Bearer expired")]);
        assert_eq!(expired.problem().unwrap().to_string(), "expired", "the reason is that of `verify`");
    }

    #[test]
    fn a_handler_outside_the_mount_sees_no_value() {
        let inner = Router::new().get("/desk", name).with(BearerAuth::new("here", verify).unwrap());
        let mut client = TestClient::new(Router::new().mount("/", inner).fallback(name));
        for (path, known) in [("/desk", "ada"), ("/shop", "nobody")] {
            let answer = client.get(path).header("authorization", "Bearer good").send();
            assert_eq!(answer.text(), known, "{path}");
        }
    }

    #[test]
    fn a_realm_cannot_break_out_of_its_quotes() {
        assert!(BearerAuth::new("a\"b", verify).is_err());
    }
}
