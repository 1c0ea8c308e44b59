//! Sessions: values that the server keeps for one browser.

mod memory;
mod session;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header;

pub use self::memory::MemoryStore;
pub use self::session::Session;
pub use self::store::{SessionRecord, SessionStore};
use super::{Middleware, Next, run_with, vary};
use crate::app::cookies::{Cookie, Key, SameSite};
use crate::error::Result;
use crate::message::{IntoResponse, Request, Response};

const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Gives each request its [`Session`]: values that stay on the server, in a [`SessionStore`]. The browser has only a random
/// id of 128 bits, in a [private cookie](Response::with_private_cookie).
///
/// - **The store is asked only by requests that use their session.** A session without values is not stored.
/// - **Saving.** Changes are saved when the handler returns, also before a response that comes
///   [later](Response::later). Changes of a handler that panics are lost. If the store fails, the response is a 500.
///   Of two concurrent requests of one browser, the later one overwrites the values of the other. A login beside a logout
///   may be the last to finish.
/// - **Expiry.** A session ends 24 hours after its last use ([`idle_timeout`](Sessions::idle_timeout)). To write less, a
///   request that changes nothing extends a session only if a tenth of that time has passed.
/// - **Session fixation.** Call [`Session::regenerate_id`] at each login. Ids that the store does not know are never adopted.
/// - **The cookie** is `__Host-session` with `Secure`, `HttpOnly` and `SameSite=Lax`. Browsers keep it only over TLS or from
///   `localhost`. Add [`Csrf`](super::Csrf), which also protects from other sites of the same domain.
///
/// ```
/// use weftwork::cookies::Key;
/// use weftwork::middleware::{MemoryStore, Session, Sessions};
/// use weftwork::{TestClient, prelude::*};
///
/// fn login(session: Session) -> Result<&'static str> {
///     session.regenerate_id()?;
///     session.insert("user", "ada")?;
///     Ok("welcome")
/// }
///
/// fn me(session: Session) -> Result<Option<String>> {
///     session.get("user")
/// }
///
/// fn logout(session: Session) -> Result<&'static str> {
///     session.destroy()?;
///     Ok("bye")
/// }
///
/// let site = Router::new().post("/login", login).get("/me", me).post("/logout", logout);
/// let site = site.with(Sessions::new(MemoryStore::new(), Key::generate()));
/// let mut client = TestClient::new(site).keep_cookies();
/// client.post("/login").send();
/// assert_eq!(client.get("/me").send().text(), "ada");
/// client.post("/logout").send();
/// assert_eq!(client.get("/me").send().status, 404);
/// ```
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    key: Key,
    cookie: Cookie<'static>,
    idle_timeout: Duration,
}

impl Sessions {
    /// Creates the middleware. All servers that share the store need the same key (see
    /// [`cookies::key`](crate::cookies::key)).
    pub fn new(store: impl SessionStore, key: Key) -> Sessions {
        let cookie = Cookie::build("__Host-session").path("/").secure(true);
        let cookie = cookie.http_only(true).same_site(SameSite::Lax).build();
        let idle_timeout = Duration::from_secs(24 * 60 * 60);
        Sessions { store: Arc::new(store), key, cookie, idle_timeout }
    }

    /// Sets name, path, domain and flags of the cookie. Without a path, it is `/`. Value and `Max-Age` are replaced.
    ///
    /// # Errors
    /// Fails if browsers would not accept the cookie: see [`Response::with_cookie`].
    pub fn cookie(self, cookie: impl Into<Cookie<'static>>) -> Result<Sessions> {
        let mut cookie = cookie.into();
        if cookie.path().is_none() {
            cookie.set_path("/");
        }
        Response::default().with_cookie(cookie.clone())?;
        Ok(Sessions { cookie, ..self })
    }

    /// Sets the time without a request after which a session ends. Default: 24 hours. At most 400 days, as browsers keep no
    /// cookie longer.
    #[must_use]
    pub fn idle_timeout(self, idle_timeout: Duration) -> Sessions {
        Sessions { idle_timeout: idle_timeout.min(IDLE_TIMEOUT_MAX), ..self }
    }

    /// Saves what the request has changed, and sets or removes the cookie.
    fn finish(&self, session: &Session, mut response: Response) -> Result<Response> {
        let Some(used) = session.take(self.idle_timeout) else { return Ok(response) };
        vary(&mut response, header::COOKIE);
        let id = match (&used.to_save, used.id) {
            // If another request has ended the session meanwhile, the browser may have a newer cookie.
            (Some(record), Some(id)) => self.store.save(&id, record)?.then_some(id),
            (Some(record), None) => {
                let id = session::random_id()?;
                self.store.create(&id, record)?;
                Some(id)
            }
            (None, _) => None,
        };
        if let Some(old_id) = &used.old_id {
            self.store.delete(old_id)?;
        }
        let Some(id) = id else {
            return match used.is_destroyed && used.to_save.is_none() {
                true => response.without_cookie(self.cookie.clone()),
                false => Ok(response),
            };
        };
        let mut cookie = self.cookie.clone();
        cookie.set_value(id);
        response.with_private_cookie_at(used.now, &self.key, cookie, self.idle_timeout)
    }
}

impl Middleware for Sessions {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let id = req.private_cookie(&self.key, self.cookie.name());
        let session = Session::new(self.store.clone(), id, req.system_time());
        let response = run_with(session.clone(), req, next);
        if response.is_declined() {
            return response;
        }
        self.finish(&session, response).unwrap_or_else(IntoResponse::into_response)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("idle_timeout", &self.idle_timeout).finish_non_exhaustive()
    }
}
