//! A shared response cache in memory.

mod rules;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Method, header};
use weftwork_wire::{Date, fields};

use super::{Middleware, Next, etags};
use crate::message::{BodyWriter, Request, Response, StreamFilter};
use store::{Key, Store, Stored};

/// Stores responses in memory and answers with them while they are fresh. It is a shared cache as defined by
/// RFC 9111. For a stored response, neither the handler nor inner middleware runs.
///
/// **The handler decides** what is stored and for how long, with `Cache-Control: max-age=60` (or `s-maxage`,
/// which has precedence). A response without such a directive is stored only if
/// [`fresh_for`](ResponseCache::fresh_for) is set. The rules are:
///
/// - Stored are responses to GET with status 200 whose whole body is in memory. They also answer HEAD. Streams
///   (including everything from a [`Proxy`](crate::Proxy)), files and parts (206) are never stored.
/// - Never stored are responses with `no-store`, `no-cache`, `private`, `Vary: *`, `Set-Cookie` or
///   `Connection`. The same holds for an ambiguous `Cache-Control`: with quoted text, a repeated directive, or
///   an invalid number. `Expires` is not read, and with `Expires` alone nothing is stored.
/// - If the request has `Authorization`, `Cookie` or a [`User`](super::User), only responses with `public` are
///   stored. If visitors have cookies, a page that is the same for all of them needs `public, max-age=60`. If
///   the request has `no-store`, nothing is stored.
///
/// **Key:** scheme, host, path and query as they were sent, and the request fields that `Vary` names, compared
/// byte by byte. Nothing else is in the key: no other field, not the client's address, not the HTTP version.
/// Extensions from outer middleware are not in the key either, except that a [`User`](super::User) has the
/// effect above. If a response depends on another field, name it in `Vary`. If it depends on anything else, set
/// `private`. Otherwise a response made for one visitor is shown to the next (cache poisoning).
///
/// **Not cached.** The handler always runs for requests with a body, `Range`, `Upgrade`, `If-Match`,
/// `If-Unmodified-Since` or `Cache-Control: no-transform`, for requests with a whole URI, and for all methods
/// except GET and HEAD. `no-cache` and `max-age=0` of a request have no effect. A client can always reach the
/// handler, for example with a new query. The cache saves work and does not protect the handler.
/// [`RateLimit`](super::RateLimit) and [`ConcurrencyLimit`](super::ConcurrencyLimit) do. Inside the cache, they
/// count only requests that reach the handler.
///
/// **Conditions:** a stored response has a tag, from the handler or computed from its bytes. A client that has
/// it gets 304, as from [`ETags`](super::ETags). A response that is not stored gets no tag here. Use `ETags`
/// outside for that. A stored response also has `Age` and the first `Date`.
///
/// **Invalidation:** a stale response is never sent, and the handler runs again. An unsafe request (POST, PUT,
/// DELETE ...) removes all stored responses of its target (RFC 9111 section 4.4), unless it is rejected (4xx).
/// If its response is streamed, they are removed again at the end. A response that was being made meanwhile is
/// not stored. This requires the same cache around both handlers. Put it around the router, or put one `Arc` of
/// it around each handler. Another spelling of a path (`/%62` for `/b`) is another target.
/// [`clear`](ResponseCache::clear) removes everything.
///
/// **Memory:** [`bytes_max`](ResponseCache::bytes_max) limits it to 64 MiB by default, including heads and
/// keys. When exceeded: the least recently used responses are removed. A target has at most 16 responses, for
/// different values of the fields in `Vary`.
///
/// **Order:** several requests for a missing response all run the handler. If a request waited for another one,
/// it would hold its thread, or the loop on engines whose loop runs handlers. A
/// [`ConcurrencyLimit`](super::ConcurrencyLimit) inside the cache limits that. Put middleware that admits,
/// counts or logs requests outside the cache. The same holds for middleware that adds unique values to each
/// response: the fields of [`RequestIds`](super::RequestIds) would be stored. `Compression` inside runs once
/// for each stored response, outside once for each sent response.
///
/// ```
/// use std::time::Duration;
/// use weftwork::middleware::ResponseCache;
/// use weftwork::{TestClient, http::header, prelude::*};
///
/// fn news(_: &mut Request) -> Response {
///     // The same for everybody, whatever cookies come: `public`.
///     text("the news").with_header(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"))
/// }
///
/// let mut client = TestClient::new(news.with(ResponseCache::new()));
/// assert_eq!(client.get("/").send().header("age"), None); // the handler has run
/// client.advance(Duration::from_secs(7));
/// let again = client.get("/").header("cookie", "theme=dark").send();
/// assert_eq!((again.text(), again.header("age")), ("the news", Some("7")));
/// let tag = again.header("etag").unwrap();
/// assert_eq!(client.get("/").header("if-none-match", tag).send().status, StatusCode::NOT_MODIFIED);
/// ```
#[derive(Clone)]
pub struct ResponseCache {
    response_bytes_max: u64,
    fresh_for: Option<Duration>,
    store: Arc<Mutex<Store>>,
}

/// A quarter of the memory of the smallest machines for rent.
const BYTES_MAX: u64 = 64 << 20;

/// One response can displace at most a 64th of the others.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

impl Default for ResponseCache {
    fn default() -> ResponseCache {
        ResponseCache::new()
    }
}

impl ResponseCache {
    /// Creates a cache that stores responses with an explicit lifetime.
    pub fn new() -> ResponseCache {
        let store = Arc::new(Mutex::new(Store::new(BYTES_MAX)));
        ResponseCache { response_bytes_max: RESPONSE_BYTES_MAX, fresh_for: None, store }
    }

    /// Sets the maximum size of all stored responses: bodies, heads, keys and overhead. Default: 64 MiB.
    #[must_use]
    pub fn bytes_max(self, bytes: u64) -> ResponseCache {
        ResponseCache { store: Arc::new(Mutex::new(Store::new(bytes))), ..self }
    }

    /// Sets the maximum body size of a stored response. Default: 1 MiB, so that one response displaces at most
    /// a 64th of the others.
    #[must_use]
    pub fn response_bytes_max(self, bytes: u64) -> ResponseCache {
        ResponseCache { response_bytes_max: bytes, ..self }
    }

    /// Stores responses without a lifetime (no `max-age`, no `s-maxage`, no `Expires`) for `freshness`.
    /// Default: they are not stored, because only their handler knows.
    ///
    /// Use it for handlers that return the same response to every visitor. Other handlers must set `private`.
    #[must_use]
    pub fn fresh_for(self, freshness: Duration) -> ResponseCache {
        ResponseCache { fresh_for: Some(freshness), ..self }
    }

    /// Removes all stored responses. Responses that handlers are making at this moment are not stored.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weftwork::middleware::ResponseCache;
    /// use weftwork::prelude::*;
    ///
    /// let cache = Arc::new(ResponseCache::new());
    /// let site = (|_: &mut Request| "the news").with(cache.clone());
    /// # fn takes(_: impl Handler) {}
    /// # takes(site);
    /// // Later, when something has changed:
    /// cache.clear();
    /// ```
    pub fn clear(&self) {
        // The lock is released before the responses are dropped.
        let removed = self.store().clear();
        drop(removed);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// Handles a request that may change its target.
    fn invalidate(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        // Also dropped if the handler panics, because it may have changed something before.
        let mut invalidation =
            InvalidateOnDrop { store: self.store.clone(), key: Key::of(req), is_refused: false };
        let response = next.run(req);
        invalidation.answered(&response);
        if invalidation.is_refused {
            return response;
        }
        // Also with 5xx: an inner middleware, such as `Deadline`, may have replaced a success.
        invalidation.invalidate();
        // A stream is not written yet, and the change may happen while it is.
        response.filter_stream(invalidation)
    }
}

/// Invalidates its target again when it is dropped, at the end of the body.
struct InvalidateOnDrop {
    store: Arc<Mutex<Store>>,
    key: Key,
    /// Whether the request was rejected and changed nothing.
    is_refused: bool,
}

impl InvalidateOnDrop {
    fn invalidate(&self) {
        lock(&self.store).invalidate(&self.key);
    }
}

impl StreamFilter for InvalidateOnDrop {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        io::Write::write_all(out, data)
    }

    /// A placeholder of a deferred response does not tell whether the request was rejected.
    fn answered(&mut self, response: &Response) {
        self.is_refused = response.status().is_client_error() && !response.is_to_come();
    }
}

impl Drop for InvalidateOnDrop {
    fn drop(&mut self) {
        if !self.is_refused {
            self.invalidate();
        }
    }
}

/// Never held while a handler runs.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Middleware for ResponseCache {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        if !req.method().is_safe() {
            return self.invalidate(req, next);
        }
        if !rules::is_cacheable_request(req) {
            return next.run(req);
        }
        // The age counts from the request, so the time of the handler is included (RFC 9111 section 4.2.3).
        let (key, now) = (Key::of(req), req.now());
        let found = self.store().find(&key, req, now);
        let changes = match found {
            Ok(stored) => return etags::answer(req, stored.response(now)),
            Err(changes) => changes,
        };
        let mut response = next.run(req);
        let is_small = response.body().is_some_and(|body| body.len() as u64 <= self.response_bytes_max);
        if *req.method() != Method::GET || !is_small {
            return response;
        }
        let wall = req.system_time();
        let Some(policy) = rules::policy(req, &response, self.fresh_for, wall) else { return response };
        etags::name(&mut response);
        if response.header_values(header::DATE).next().is_none()
            && let Ok(date) = HeaderValue::from_bytes(Date::at(wall).as_bytes())
        {
            // The codec limits a date of its own only.
            let modified = response.header(header::LAST_MODIFIED).and_then(|at| fields::date(at.as_bytes()));
            if modified.is_some_and(|at| at > wall) {
                response.set_header(header::LAST_MODIFIED, date.clone());
            }
            response.append_header(header::DATE, date);
        }
        if let Some(stored) = Stored::of(&response, policy, now) {
            self.store().insert(key, changes, stored, req);
        }
        etags::answer(req, response)
    }
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache")
            .field("response_bytes_max", &self.response_bytes_max)
            .field("fresh_for", &self.fresh_for)
            .field("store", &*self.store())
            .finish()
    }
}
