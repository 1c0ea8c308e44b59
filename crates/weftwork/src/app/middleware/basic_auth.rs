//! HTTP Basic authentication (RFC 7617).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderValue, StatusCode, header};
use subtle::{Choice, ConstantTimeEq};

use super::{Middleware, Next, User, challenge, refusal, run_with};
use crate::error::Result;
use crate::message::{Request, Response};

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Accepts only requests with the name and password of a known user. Others get 401. The handler finds the
/// [`User`] in the extensions of the request.
///
/// Names and passwords are compared with every user, in a time that depends only on what the client sent.
/// Timing thus does not reveal how much of a guess was right. The number of guesses is not limited, so put a
/// [`RateLimit`](super::RateLimit) around this middleware. Passwords are sent unencrypted, so use TLS.
///
/// ```
/// use weftwork::middleware::{BasicAuth, User};
/// use weftwork::prelude::*;
///
/// fn whoami(req: &mut Request) -> String {
///     req.extensions().get::<User>().map(User::to_string).unwrap_or_default()
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(whoami.with(BasicAuth::new("the back room")?.user("alice", "correct horse battery staple")));
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone)]
pub struct BasicAuth {
    challenge: HeaderValue,
    users: Vec<(String, String)>,
    check: Option<Arc<Check>>,
}

type Check = dyn Fn(&str, &str) -> bool + Send + Sync;

impl BasicAuth {
    /// Creates a middleware without users. Browsers show `realm` when they ask for the password.
    ///
    /// # Errors
    /// Fails if `realm` has a quote, a backslash, or a character that is not printable ASCII.
    pub fn new(realm: &str) -> Result<BasicAuth> {
        let challenge = challenge("Basic", realm, ", charset=\"UTF-8\"")?;
        Ok(BasicAuth { challenge, users: Vec::new(), check: None })
    }

    /// Adds a user. A name with a colon can never be sent.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> BasicAuth {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// Also accepts users for whom `check(name, password)` returns true, for example with password hashes. The
    /// time that `check` takes is not hidden.
    #[must_use]
    pub fn check(self, check: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> BasicAuth {
        BasicAuth { check: Some(Arc::new(check)), ..self }
    }

    fn knows(&self, name: &str, password: &str) -> bool {
        let mut known = Choice::from(0);
        for (user, secret) in &self.users {
            known |= same(name.as_bytes(), user.as_bytes()) & same(password.as_bytes(), secret.as_bytes());
        }
        bool::from(known) || self.check.as_ref().is_some_and(|check| check(name, password))
    }

    fn user_of(&self, req: &Request<'_>) -> Option<User> {
        let encoded = req.credentials("basic")?;
        let decoded = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
        let (name, password) = decoded.split_once(':')?;
        self.knows(name, password).then(|| User::new(name))
    }
}

impl Middleware for BasicAuth {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        match self.user_of(req) {
            Some(user) => run_with(user, req, next),
            None => refusal(StatusCode::UNAUTHORIZED, "a user name and a password are required")
                .with_header(header::WWW_AUTHENTICATE, self.challenge.clone()),
        }
    }
}

/// Compares in a time that depends only on the length of `given`.
fn same(given: &[u8], secret: &[u8]) -> Choice {
    let mut equal = given.len().ct_eq(&secret.len());
    for (at, byte) in given.iter().enumerate() {
        let other = secret.get(at % secret.len().max(1)).unwrap_or(&0);
        equal &= byte.ct_eq(other);
    }
    equal
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Tests that only the right name with its own password passes, in every spelling of the field.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;

    fn site() -> impl crate::Handler {
        let auth = BasicAuth::new("here").unwrap().user("alice", "s:cret").user("b\u{f6}b", "").user("", "x");
        let auth = auth.check(|name, password| name == "carol" && password == "hash me");
        (|req: &mut Request<'_>| req.extensions().get::<User>().unwrap().to_string()).with(auth)
    }

    fn ask(fields: &[(&str, &str)]) -> Response {
        Canned::asking("GET", "/", fields).call(&site())
    }

    fn encoded(text: impl AsRef<[u8]>) -> String {
        format!("Basic {}", BASE64.encode(text))
    }

    #[track_caller]
    fn refused(fields: &[(&str, &str)]) {
        let response = ask(fields);
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{fields:?}");
        let challenge = response.header(header::WWW_AUTHENTICATE).unwrap();
        assert_eq!(challenge, "Basic realm=\"here\", charset=\"UTF-8\"");
    }

    #[test]
    fn the_right_ones_pass() {
        for (credentials, name) in
            [("alice:s:cret", "alice"), ("b\u{f6}b:", "b\u{f6}b"), (":x", ""), ("carol:hash me", "carol")]
        {
            let response = ask(&[("Authorization", &encoded(credentials))]);
            assert_eq!(response.body().unwrap(), name);
        }
        for written in ["basic YWxpY2U6czpjcmV0", "BASIC  YWxpY2U6czpjcmV0"] {
            assert_eq!(ask(&[("Authorization", written)]).status(), StatusCode::OK, "{written}");
        }
        assert_eq!(ask(&[("Authorization", "Basic Ong")]).status(), StatusCode::OK, "no padding");
    }

    #[test]
    fn all_others_do_not() {
        refused(&[]);
        for credentials in [
            "",
            ":",
            "alice",
            "alice:",
            "alice:s:cre",
            "alice:s:crets",
            "alice:s:creT",
            "alice:s:crets:cret",
            "Alice:s:cret",
            "b\u{f6}b:s:cret",
            "alice:x",
            "dave:s:cret",
            "carol:hash",
            "alic:es:cret",
        ] {
            refused(&[("Authorization", &encoded(credentials))]);
        }
        refused(&[("Authorization", &encoded(b"alice:\xff"))]);
        for written in ["", "Basic", "Basic ", "Basic !", "Bearer YWxpY2U6czpjcmV0", "YWxpY2U6czpjcmV0"] {
            refused(&[("Authorization", written)]);
        }
        let right = encoded("alice:s:cret");
        refused(&[("Authorization", &right), ("Authorization", &right)]);
    }

    #[test]
    fn a_handler_outside_the_mount_sees_no_user() {
        let name = |req: &mut Request<'_>| match req.extensions().get::<User>() {
            Some(user) => user.name().to_owned(),
            None => "nobody".to_owned(),
        };
        let staff = BasicAuth::new("staff").unwrap().user("root", "x");
        let site = crate::Router::new();
        let mounted = crate::Router::new().get("/desk", name).with(staff);
        let mut client = crate::TestClient::new(site.mount("/", mounted).fallback(name));
        for (path, known) in [("/desk", "root"), ("/shop", "nobody")] {
            let answer = client.get(path).header("authorization", encoded("root:x")).send();
            assert_eq!(answer.text(), known, "{path}");
        }
    }

    #[test]
    fn comparing_is_exact() {
        for (given, secret, equal) in [
            ("", "", true),
            ("a", "", false),
            ("", "a", false),
            ("ab", "ab", true),
            ("abab", "ab", false),
            ("a", "ab", false),
        ] {
            assert_eq!(bool::from(same(given.as_bytes(), secret.as_bytes())), equal, "{given:?} {secret:?}");
        }
    }

    #[test]
    fn a_realm_cannot_break_out_of_its_quotes() {
        for realm in ["a\"b", "a\\b", "a\r\nb", "\u{fc}"] {
            assert!(BasicAuth::new(realm).is_err(), "{realm:?}");
        }
        assert!(!format!("{:?}", BasicAuth::new("x").unwrap().user("alice", "s:cret")).contains("s:cret"));
    }
}
