//! Cookies: reading them from requests and setting them in responses.
//!
//! [`Request::cookies`] reads cookies. [`Response::with_cookie`] and [`Response::with_cookies`] set them. The
//! types are from the crate [`cookie`].

mod expiring;
#[cfg(test)]
mod tests;

use http::{HeaderValue, header};

pub use cookie::{Cookie, CookieJar, Key, PrivateJar, SameSite};

use super::cookie_header::{is_name, parse_cookies};
use crate::error::{Error, Result};
use crate::message::{Request, Response};

/// Maximum length of name and value together, without the `=`. Browsers silently drop a longer cookie (RFC
/// 6265bis, section 5.7).
const PAIR_BYTES_MAX: usize = 4096;
/// Maximum length of each other attribute (same section).
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Minimum length of a secret that the crate `cookie` derives keys from.
const SECRET_BYTES_MIN: usize = 32;

/// Creates a key from a secret that is stored elsewhere, for example in a setting. The same secret gives the
/// same key. Cookies therefore stay valid after a restart, and on every machine with the secret.
///
/// ```
/// use weftwork::cookies::key;
///
/// # let setting = "of a setting: 0123456789abcdef0123456789abcdef";
/// # #[cfg(any())]
/// let setting = std::env::var("COOKIE_SECRET")?;
/// let key = key(setting)?;
/// # weftwork::Result::<()>::Ok(())
/// ```
///
/// # Errors
/// Fails if the secret has less than 32 bytes and could be guessed. [`Key::derive_from`] panics in that case.
pub fn key(secret: impl AsRef<[u8]>) -> Result<Key> {
    let secret = secret.as_ref();
    if secret.len() < SECRET_BYTES_MIN {
        return Err(Error::usage(format!(
            "invalid secret of {} bytes: must be at least {SECRET_BYTES_MIN}, `openssl rand -base64 48` makes one",
            secret.len()
        )));
    }
    Ok(Key::derive_from(secret))
}

/// Cookies (feature `cookies`), with the types of the crate `cookie`.
impl Request<'_> {
    /// Returns the cookies of the request, at most 100. Values have no quotes around them and no
    /// percent-encoding.
    ///
    /// - A name that occurs **twice with different values is left out**. A page of a neighbouring subdomain can
    ///   set a cookie with the same name, and the server cannot tell them apart ("cookie tossing"). Neighbours
    ///   cannot set a name that starts with `__Host-`, so such a name is the best choice for a session.
    /// - Names are compared byte by byte. A name that is not a token, or that contains Unicode white space or
    ///   an encoded letter, is ignored. Attackers used such names to get a `__Host-` cookie past browsers.
    ///
    /// The user of the browser can forge any value. [`private_cookie`](Request::private_cookie) and
    /// [`signed_cookie`](Request::signed_cookie) return only values that were protected with the same [`Key`] for the same
    /// name, and that have not expired. [`Key::generate`] creates a key for one run of the program. [`key`] creates a key
    /// that all programs with the same secret share.
    ///
    /// [`CookieJar::private`] is the same without an expiry. Do not use `CookieJar::signed`: its signature covers the value
    /// alone, and a client could send the value under another name.
    ///
    /// ```
    /// use weftwork::cookies::{Cookie, Key, SameSite};
    /// use weftwork::prelude::*;
    ///
    /// fn visit(req: &mut Request, key: &Key) -> Result<Response> {
    ///     let mut jar = req.cookies();
    ///     let visits = jar.private(key).get("__Host-visits").and_then(|cookie| cookie.value().parse().ok());
    ///     let visits: u32 = visits.unwrap_or(0) + 1;
    ///     let cookie = Cookie::build(("__Host-visits", visits.to_string()))
    ///         .path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    ///     jar.private_mut(key).add(cookie);
    ///     Response::text(format!("visit {visits}\n")).with_cookies(&jar)
    /// }
    /// ```
    pub fn cookies(&self) -> CookieJar {
        let mut jar = CookieJar::new();
        for (name, value) in parse_cookies(self) {
            jar.add_original(Cookie::new(name.to_owned(), value.into_owned()));
        }
        jar
    }
}

impl Response {
    /// Sets a cookie. Its value is percent-encoded if necessary.
    ///
    /// # Errors
    /// Fails if browsers would not accept the cookie as it is meant:
    ///
    /// - The name is empty or not a token.
    /// - The path or the domain has a character that could end the attribute, or the path does not start with a
    ///   slash.
    /// - Name and value together are longer than 4,096 bytes.
    /// - `SameSite=None` or `__Secure-` is set without `Secure`.
    /// - `__Host-` is not `Secure` with `Path=/` and no domain.
    pub fn with_cookie<'c>(mut self, cookie: impl Into<Cookie<'c>>) -> Result<Response> {
        self.append_header(header::SET_COOKIE, line(&cookie.into())?);
        Ok(self)
    }

    /// Removes a cookie from the browser by its name, for example at logout.
    ///
    /// Browsers remove only the cookie with the same path and domain. The default path is `/`. `Secure` is
    /// added if the prefix of the name requires it. If the cookie was set with another path or with a domain,
    /// give both: `.without_cookie(Cookie::build("cart").path("/shop"))`.
    ///
    /// ```
    /// use weftwork::cookies::{Cookie, Key, SameSite};
    /// use weftwork::{TestClient, prelude::*};
    ///
    /// const SESSION: &str = "__Host-session";
    ///
    /// fn login(State(key): State<Key>, req: &mut Request) -> Result<Response> {
    ///     let mut jar = req.cookies();
    ///     let session =
    ///         Cookie::build((SESSION, "ada")).path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    ///     jar.private_mut(&key).add(session);
    ///     Response::redirect("/")?.with_cookies(&jar)
    /// }
    ///
    /// fn logout() -> Result<Response> {
    ///     Response::redirect("/")?.without_cookie(SESSION)
    /// }
    ///
    /// let site = Router::new().post("/login", login).post("/account/logout", logout).state(Key::generate());
    /// let mut client = TestClient::new(site);
    /// assert!(client.post("/login").send().header("set-cookie").unwrap().contains("; Secure; Path=/"));
    /// let answer = client.post("/account/logout").send();
    /// assert!(answer.header("set-cookie").unwrap().starts_with("__Host-session=; Secure; Path=/; Max-Age=0"));
    /// ```
    ///
    /// # Errors
    /// Same as [`with_cookie`](Response::with_cookie).
    pub fn without_cookie<'c>(mut self, cookie: impl Into<Cookie<'c>>) -> Result<Response> {
        let mut cookie = cookie.into();
        cookie.make_removal();
        if cookie.path().is_none() {
            cookie.set_path("/");
        }
        self.append_header(header::SET_COOKIE, line(&removal(cookie))?);
        Ok(self)
    }

    /// Sets all cookies that were added to `jar`, and removes all that were removed from it, since
    /// [`Request::cookies`] returned it. A removal is sent with the path that was given to `jar.remove`.
    /// Without a path, the browser uses the path of the request, which is rarely intended.
    /// [`without_cookie`](Response::without_cookie) uses `/`.
    ///
    /// A cookie that is not in the jar cannot be removed from it, even if the browser has it. For example, the
    /// jar leaves out a name that was sent twice. For a logout, use `without_cookie`, which does not depend on
    /// the request.
    ///
    /// # Errors
    /// Same as [`with_cookie`](Response::with_cookie).
    pub fn with_cookies(mut self, jar: &CookieJar) -> Result<Response> {
        for cookie in jar.delta() {
            let is_removed = cookie.max_age().is_some_and(|age| age.is_zero());
            let set = if is_removed { line(&removal(cookie.clone())) } else { line(cookie) };
            self.append_header(header::SET_COOKIE, set?);
        }
        Ok(self)
    }
}

/// Adds the attributes that the prefix of the name requires. Otherwise browsers ignore the removal.
fn removal(mut cookie: Cookie<'_>) -> Cookie<'_> {
    let is_host = has_prefix(cookie.name(), "__Host-");
    if is_host || has_prefix(cookie.name(), "__Secure-") {
        cookie.set_secure(true);
    }
    if is_host && cookie.path().is_none() {
        cookie.set_path("/");
    }
    cookie
}

fn line(cookie: &Cookie<'_>) -> Result<HeaderValue> {
    let name = cookie.name();
    let refuse = |why: &str| Err(Error::usage(format!("the cookie {name:?} cannot be set: {why}")));
    let encoded = cookie.encoded().to_string();
    if !is_name(name) || !encoded.starts_with(&format!("{name}=")) {
        return refuse("its name must be a token");
    }
    let pair = encoded.split(';').next().unwrap_or_default();
    if pair.len() - "=".len() > PAIR_BYTES_MAX {
        return refuse("name and value must have at most 4096 bytes, browsers drop longer cookies");
    }
    for attribute in [cookie.path(), cookie.domain()].into_iter().flatten() {
        if attribute.len() > ATTRIBUTE_BYTES_MAX
            || !attribute.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
        {
            return refuse("its path or domain has a semicolon, a space or more than 1024 bytes");
        }
    }
    if cookie.path().is_some_and(|path| !path.starts_with('/')) {
        return refuse("its path must start with a slash");
    }
    let secure = cookie.secure() == Some(true);
    if cookie.same_site() == Some(SameSite::None) && !secure {
        return refuse("SameSite=None must be Secure");
    }
    if has_prefix(name, "__Secure-") && !secure {
        return refuse("__Secure- must be Secure");
    }
    if has_prefix(name, "__Host-") && !(secure && cookie.path() == Some("/") && cookie.domain().is_none()) {
        return refuse("__Host- must be Secure, with Path=/ and no Domain");
    }
    HeaderValue::try_from(encoded).or_else(|_| refuse("it has a control character"))
}

/// Browsers compare the prefixes without regard to case.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
