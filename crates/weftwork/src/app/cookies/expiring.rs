//! Private and signed cookies whose expiry is part of the protected value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Cookie, CookieJar, Key};
use crate::error::Result;
use crate::message::{Request, Response};

/// Cookies that the server itself expires.
impl Request<'_> {
    /// Returns the value of a cookie that [`Response::with_private_cookie`] has set, if the cookie has not expired.
    /// Returns `None` also if the cookie is missing, was sent twice with different values, or was encrypted with
    /// another key or under another name.
    pub fn private_cookie(&self, key: &Key, name: &str) -> Option<String> {
        let cookie = self.cookies().private(key).get(name)?;
        unexpired(name, cookie.value(), self.system_time())
    }

    /// Returns the value of a cookie that [`Response::with_signed_cookie`] has set, if the cookie has not expired.
    /// Returns `None` in the same cases as [`private_cookie`](Request::private_cookie).
    pub fn signed_cookie(&self, key: &Key, name: &str) -> Option<String> {
        let cookie = self.cookies().signed(key).get(name)?;
        unexpired(name, cookie.value(), self.system_time())
    }
}

/// Cookies that the server itself expires.
impl Response {
    /// Sets an encrypted cookie for this time. `Max-Age` tells the browser, and the encrypted value has the expiry too:
    /// [`Request::private_cookie`] ignores the cookie afterwards, even if a client has kept it. So a copy that was stolen
    /// ends, and a logout by [`without_cookie`](Response::without_cookie) does not end that copy. To end each copy at
    /// once, use `middleware::Sessions` (feature `sessions`).
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::cookies::{Cookie, Key, SameSite};
    /// use weftwork::{TestClient, prelude::*};
    ///
    /// const USER: &str = "__Host-user";
    /// const HOUR: Duration = Duration::from_secs(3600);
    ///
    /// fn login(State(key): State<Key>) -> Result<Response> {
    ///     let cookie = Cookie::build((USER, "ada")).path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    ///     text("welcome").with_private_cookie(&key, cookie, HOUR)
    /// }
    ///
    /// fn me(State(key): State<Key>, req: &mut Request) -> Option<String> {
    ///     req.private_cookie(&key, USER)
    /// }
    ///
    /// let site = Router::new().post("/login", login).get("/me", me).state(Key::generate());
    /// let mut client = TestClient::new(site);
    /// let sent = client.post("/login").send().header("set-cookie").unwrap().to_owned();
    /// let cookie = sent.split(';').next().unwrap();
    /// assert_eq!(client.get("/me").header("cookie", cookie).send().text(), "ada");
    /// client.advance(HOUR);
    /// assert_eq!(client.get("/me").header("cookie", cookie).send().status, 404);
    /// ```
    ///
    /// # Errors
    /// Same as [`with_cookie`](Response::with_cookie). Name, encrypted value and expiry count.
    pub fn with_private_cookie<'c>(
        self,
        key: &Key,
        cookie: impl Into<Cookie<'c>>,
        lifetime: Duration,
    ) -> Result<Response> {
        self.with_private_cookie_at(SystemTime::now(), key, cookie, lifetime)
    }

    /// Does the same at another time than now.
    pub(in crate::app) fn with_private_cookie_at<'c>(
        self,
        now: SystemTime,
        key: &Key,
        cookie: impl Into<Cookie<'c>>,
        lifetime: Duration,
    ) -> Result<Response> {
        self.with_protected(cookie.into(), now, lifetime, |jar, cookie| jar.private_mut(key).add(cookie))
    }

    /// Sets a cookie that the client can read and not change, for this time. The signature covers value, name and expiry.
    /// The value on the wire is a signature of 44 characters, the expiry in seconds since 1970, `:`, the name, `:`, and
    /// the value. Otherwise the same as [`with_private_cookie`](Response::with_private_cookie), which is the better choice
    /// unless a script of the page reads the cookie.
    ///
    /// # Errors
    /// Same as [`with_private_cookie`](Response::with_private_cookie).
    pub fn with_signed_cookie<'c>(
        self,
        key: &Key,
        cookie: impl Into<Cookie<'c>>,
        lifetime: Duration,
    ) -> Result<Response> {
        let sign = |jar: &mut CookieJar, cookie| jar.signed_mut(key).add::<Cookie<'static>>(cookie);
        self.with_protected(cookie.into(), SystemTime::now(), lifetime, sign)
    }

    fn with_protected(
        self,
        cookie: Cookie<'_>,
        now: SystemTime,
        lifetime: Duration,
        protect: impl FnOnce(&mut CookieJar, Cookie<'static>),
    ) -> Result<Response> {
        let mut cookie = cookie.into_owned();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expiry = now.saturating_add(lifetime).as_secs();
        // A name has no colon, so the parts cannot be taken for other ones.
        cookie.set_value(format!("{expiry}:{}:{}", cookie.name(), cookie.value()));
        let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        cookie.set_max_age(cookie::time::Duration::seconds(seconds));
        let mut jar = CookieJar::new();
        protect(&mut jar, cookie);
        self.with_cookies(&jar)
    }
}

/// Returns the value in `protected`, if it was set under this name and has not expired.
fn unexpired(name: &str, protected: &str, now: SystemTime) -> Option<String> {
    let (expiry, rest) = protected.split_once(':')?;
    let value = rest.strip_prefix(name)?.strip_prefix(':')?;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() < expiry.parse().ok()?).then(|| value.to_owned())
}
