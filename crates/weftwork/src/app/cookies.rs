//! What does the browser remember for us, and how is it told to?
//!
//! [`Request::cookies`] reads cookies, [`Response::with_cookie`] and [`Response::with_cookies`] set them. The types
//! are those of the crate [`cookie`].

#[cfg(test)]
mod tests;

use http::{HeaderValue, header};

pub use cookie::{Cookie, CookieJar, Key, PrivateJar, SameSite, SignedJar};

use super::crumbs::{is_name, sent};
use crate::error::{Error, Result};
use crate::message::{Request, Response};

/// Name and value; browsers drop a longer cookie without a word (RFC 6265bis, section 5.7).
const PAIR_BYTES_MAX: usize = 4096;
/// Each other attribute (the same section).
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Cookies (feature `cookies`), with the types of the crate `cookie`.
impl Request<'_> {
    /// The cookies that came with the request, without their percent-encoding. The first 100 count.
    ///
    /// - A name that comes **twice with different values is left out**: a page of a neighbouring subdomain can set
    ///   a cookie beside ours, and nobody can tell which is which ("cookie tossing"). A name that begins with
    ///   `__Host-` cannot be set by neighbours, and is the best choice for a session.
    /// - Names are compared byte by byte. What is not a token, or has white space of Unicode or an encoded letter
    ///   in it, is no cookie: such names were used to slip a `__Host-` past browsers.
    ///
    /// A value may be forged by whoever holds the browser. [`CookieJar::signed`] and [`CookieJar::private`] give
    /// only what was made with the same [`Key`]: of one program that runs, [`Key::generate`]; of all that have the same
    /// secret, [`Key::derive_from`], which panics where that has less than 32 bytes.
    ///
    /// ```
    /// use weftwork::cookies::{Cookie, Key, SameSite};
    /// use weftwork::prelude::*;
    ///
    /// fn visit(req: &mut Request, key: &Key) -> Result<Response> {
    ///     let mut jar = req.cookies();
    ///     let visits = jar.signed(key).get("__Host-visits").and_then(|cookie| cookie.value().parse().ok());
    ///     let visits: u32 = visits.unwrap_or(0) + 1;
    ///     let cookie = Cookie::build(("__Host-visits", visits.to_string()))
    ///         .path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    ///     jar.signed_mut(key).add(cookie);
    ///     Response::text(format!("visit {visits}\n")).with_cookies(&jar)
    /// }
    /// ```
    pub fn cookies(&self) -> CookieJar {
        let mut jar = CookieJar::new();
        for (name, value) in sent(self, |value| value) {
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
    /// line, name and value are longer than 4,096 bytes, `SameSite=None` or `__Secure-` is not `Secure`, or
    /// `__Host-` is not `Secure` with `Path=/` and no domain.
    pub fn with_cookie<'c>(mut self, cookie: impl Into<Cookie<'c>>) -> Result<Response> {
        self.append_header(header::SET_COOKIE, line(&cookie.into())?);
        Ok(self)
    }

    /// The same, with all that was added to `jar`, or removed from it, since [`Request::cookies`] made it.
    ///
    /// # Errors
    /// As [`with_cookie`](Response::with_cookie).
    pub fn with_cookies(mut self, jar: &CookieJar) -> Result<Response> {
        for cookie in jar.delta() {
            self.append_header(header::SET_COOKIE, line(cookie)?);
        }
        Ok(self)
    }
}

fn line(cookie: &Cookie<'_>) -> Result<HeaderValue> {
    let name = cookie.name();
    let refuse = |why: &str| Err(Error::usage(format!("the cookie {name:?} cannot be set: {why}")));
    let encoded = cookie.encoded().to_string();
    if !is_name(name) || !encoded.starts_with(&format!("{name}=")) {
        return refuse("its name is not a plain word");
    }
    let pair_bytes = encoded.find(';').unwrap_or(encoded.len());
    if pair_bytes > PAIR_BYTES_MAX {
        return refuse("name and value have more than 4096 bytes, which browsers drop");
    }
    for attribute in [cookie.path(), cookie.domain()].into_iter().flatten() {
        if attribute.len() > ATTRIBUTE_BYTES_MAX
            || !attribute.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
        {
            return refuse("its path or domain has a semicolon, a space or more than 1024 bytes");
        }
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
