//! Tokens and passwords.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use jwt::{SignWithKey, VerifyWithKey};
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use weftwork::Extract;
use weftwork::prelude::*;

use crate::App;

/// How long a token is valid.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
const SECRET_BYTES_MIN: usize = 32;
/// Iterations of PBKDF2 with HMAC-SHA256 for a password, as OWASP recommends.
pub const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).unwrap();
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Signs tokens, and verifies them.
pub(crate) struct Tokens(Hmac<Sha256>);

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: i64,
    exp: u64,
}

impl Tokens {
    pub(crate) fn new(secret: &str) -> Result<Tokens> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(Error::internal(format!("JWT_SECRET must have {SECRET_BYTES_MIN} bytes or more")));
        }
        Ok(Tokens(Hmac::new_from_slice(secret.as_bytes())?))
    }

    pub(crate) fn sign(&self, user: i64) -> Result<String> {
        Ok(Claims { sub: user, exp: now()? + TOKEN_AGE_MAX.as_secs() }.sign_with_key(&self.0)?)
    }

    fn verify(&self, token: &str) -> Option<i64> {
        let claims: Claims = token.verify_with_key(&self.0).ok()?;
        (now().ok()? < claims.exp).then_some(claims.sub)
    }
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// The user whose token the request has, or 401. Routes for which a token is optional take a `Result` of it.
pub(crate) struct CurrentUser(pub(crate) i64);

impl Extract for CurrentUser {
    fn extract(req: &mut Request) -> Result<Self> {
        let State(app) = State::<App>::extract(req)?;
        // The specification has a scheme of its own, `Token`. Some clients send `Bearer`.
        let scheme_and_token = req.header("authorization").and_then(|field| field.split_once(' '));
        let token = scheme_and_token
            .filter(|(scheme, _)| ["token", "bearer"].iter().any(|known| scheme.eq_ignore_ascii_case(known)));
        let user = token.and_then(|(_, token)| app.tokens.verify(token.trim()));
        user.map(CurrentUser).ok_or_else(|| no_user("is missing or invalid"))
    }
}

/// Returns the 401 for a token, with the scheme that it requires (RFC 9110 section 11.6.1).
pub(crate) fn no_user(why: &str) -> Error {
    let problem = Problem::new(StatusCode::UNAUTHORIZED).detail(why).with("field", "token");
    problem.with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Token")).into()
}

/// The id of the user, or 0, which no user has.
pub(crate) fn viewer(user: Result<CurrentUser>) -> i64 {
    user.map_or(0, |CurrentUser(id)| id)
}

/// Returns a new salt, and the hash of the password with it.
pub(crate) fn hash_password(password: &str, iterations: NonZeroU32) -> Result<Vec<u8>> {
    let mut stored = vec![0; SALT_BYTES + HASH_BYTES];
    let (salt, hash) = stored.split_at_mut(SALT_BYTES);
    SystemRandom::new().fill(salt)?;
    pbkdf2::derive(PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), hash);
    Ok(stored)
}

/// Compares in constant time. Without a stored hash it takes as long, so that nobody can find out who has an account.
pub(crate) fn is_password(password: &str, stored: Option<&[u8]>, iterations: NonZeroU32) -> bool {
    let stored = stored.unwrap_or(&[0; SALT_BYTES + HASH_BYTES]);
    let (salt, hash) = stored.split_at(SALT_BYTES.min(stored.len()));
    pbkdf2::verify(PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), hash).is_ok()
}
