//! What does the browser remember for us, and how is it told to?
//!
//! [`Request::cookies`] reads cookies, [`Response::with_cookie`] and [`Response::with_cookies`] set them. The types
//! are those of the crate [`cookie`].

#[cfg(test)]
mod tests;

use http::{HeaderValue, header};

pub use cookie::{Cookie, CookieJar, Key, PrivateJar, SameSite};

use super::cookie_header::{is_name, parse_cookies};
use crate::error::{Error, Result};
use crate::message::{Request, Response};

/// Name and value, without what is between; browsers drop a longer cookie without a word (RFC 6265bis, section 5.7).
const PAIR_BYTES_MAX: usize = 4096;
/// Each other attribute (the same section).
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// What `cookie` derives keys from has at least as many bytes.
const SECRET_BYTES_MIN: usize = 32;

/// A key from a secret that is kept elsewhere, in a setting say: the same one for the same secret, so that cookies stay
/// good over a restart, and on every machine that has it.
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
/// It has less than 32 bytes, so that it could be guessed; [`Key::derive_from`] panics there.
pub fn key(secret: impl AsRef<[u8]>) -> Result<Key> {
    let secret = secret.as_ref();
    if secret.len() < SECRET_BYTES_MIN {
        return Err(Error::usage(format!(
            "the secret of a key has {} bytes, but has to have at least {SECRET_BYTES_MIN}: \
             `openssl rand -base64 48` makes one",
            secret.len()
        )));
    }
    Ok(Key::derive_from(secret))
}

/// Cookies (feature `cookies`), with the types of the crate `cookie`.
impl Request<'_> {
    /// The cookies that came with the request, without quotes around a value and without its percent-encoding. The first 100 count.
    ///
    /// - A name that comes **twice with different values is left out**: a page of a neighbouring subdomain can set
    ///   a cookie beside ours, and nobody can tell which is which ("cookie tossing"). A name that begins with
    ///   `__Host-` cannot be set by neighbours, and is the best choice for a session.
    /// - Names are compared byte by byte. What is not a token, or has white space of Unicode or an encoded letter
    ///   in it, is no cookie: such names were used to slip a `__Host-` past browsers.
    ///
    /// A value may be forged by whoever holds the browser. [`CookieJar::private`] gives only what was made with the same
    /// [`Key`], for the same name, and whoever holds it cannot read it. The key is of one program that runs,
    /// [`Key::generate`], or of all that have the same secret, [`key`]. Signed cookies, as the crate `cookie` makes them, are
    /// left out: a signature over the value alone lets a client give the value to another name.
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
    /// The same, and the browser is to keep `cookie`. Its value is percent-encoded where it has to be.
    ///
    /// # Errors
    /// It would not do what it says: the name is empty or no token, the path or domain could break out of the
    /// line, the path does not begin with a slash, name and value together are longer than 4,096 bytes, `SameSite=None`
    /// or `__Secure-` is not `Secure`, or `__Host-` is not `Secure` with `Path=/` and no domain.
    pub fn with_cookie<'c>(mut self, cookie: impl Into<Cookie<'c>>) -> Result<Response> {
        self.append_header(header::SET_COOKIE, line(&cookie.into())?);
        Ok(self)
    }

    /// The same, and the browser is to forget a cookie, by its name: a logout.
    ///
    /// Browsers forget only what has the path and the domain that it was set with. The path is `/` where nothing else is
    /// said, and `Secure` is added where the name's prefix asks for it. One that was set with another path, or with a
    /// domain, is named with both: `.without_cookie(Cookie::build("cart").path("/shop"))`.
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
    /// As [`with_cookie`](Response::with_cookie).
    pub fn without_cookie<'c>(mut self, cookie: impl Into<Cookie<'c>>) -> Result<Response> {
        let mut cookie = cookie.into();
        cookie.make_removal();
        if cookie.path().is_none() {
            cookie.set_path("/");
        }
        self.append_header(header::SET_COOKIE, line(&removal(cookie))?);
        Ok(self)
    }

    /// The same, with all that was added to `jar`, or removed from it, since [`Request::cookies`] made it. A
    /// removal goes out with the path that `jar.remove` was given; without one, the browser takes that of the request,
    /// which is seldom meant: [`without_cookie`](Response::without_cookie) takes `/`. What the jar never had cannot be removed from
    /// it, and that may be a cookie that the browser has: a name that was sent twice, perhaps by another site, is left out of it. A
    /// logout is better done by `without_cookie`, which asks nobody.
    ///
    /// # Errors
    /// As [`with_cookie`](Response::with_cookie).
    pub fn with_cookies(mut self, jar: &CookieJar) -> Result<Response> {
        for cookie in jar.delta() {
            let is_removed = cookie.max_age().is_some_and(|age| age.is_zero());
            let set = if is_removed { line(&removal(cookie.clone())) } else { line(cookie) };
            self.append_header(header::SET_COOKIE, set?);
        }
        Ok(self)
    }
}

/// With what the prefix of its name asks for: else browsers ignore the removal, too.
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
        return refuse("its name is not a plain word");
    }
    let pair = encoded.split(';').next().unwrap_or_default();
    if pair.len() - "=".len() > PAIR_BYTES_MAX {
        return refuse("name and value have more than 4096 bytes, which browsers drop");
    }
    for attribute in [cookie.path(), cookie.domain()].into_iter().flatten() {
        if attribute.len() > ATTRIBUTE_BYTES_MAX
            || !attribute.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
        {
            return refuse("its path or domain has a semicolon, a space or more than 1024 bytes");
        }
    }
    if cookie.path().is_some_and(|path| !path.starts_with('/')) {
        return refuse("its path does not begin with a slash, so that browsers ignore it");
    }
    let secure = cookie.secure() == Some(true);
    if cookie.same_site() == Some(SameSite::None) && !secure {
        return refuse("SameSite=None has to be Secure");
    }
    if has_prefix(name, "__Secure-") && !secure {
        return refuse("__Secure- has to be Secure");
    }
    if has_prefix(name, "__Host-") && !(secure && cookie.path() == Some("/") && cookie.domain().is_none()) {
        return refuse("__Host- has to be Secure, with Path=/ and no Domain");
    }
    HeaderValue::try_from(encoded).or_else(|_| refuse("it has a control character"))
}

/// Browsers compare the prefixes without regard to case.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
