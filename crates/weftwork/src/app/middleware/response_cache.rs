//! Was this asked lately, and may the same be answered without the handler?

mod rules;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Method, header};
use weftwork_wire::Date;

use super::{Middleware, Next, etags};
use crate::message::{BodyWriter, Request, Response, StreamFilter};
use store::{Key, Store, Stored};

/// Keeps responses in memory, and answers from there while they are fresh: a shared cache as of RFC 9111. The handler
/// behind it does not run, nor does any middleware inside of it.
///
/// **A handler decides** what is kept, and for how long, by `Cache-Control: max-age=60` (or `s-maxage`, which counts
/// first). One that says nothing of it is kept only where [`fresh_for`](ResponseCache::fresh_for) is set. What is kept:
///
/// - responses to GET, with 200, of which the whole body is in memory; HEAD is answered from them, too. Streams (so all
///   that a [`Proxy`](crate::Proxy) answers), files and parts (206) are never kept;
/// - never those with `no-store`, `no-cache`, `private`, `Vary: *`, `Set-Cookie`, or `Connection`, nor those whose
///   `Cache-Control` cannot be read for sure: with quoted texts, a directive twice, a number that is none. `Expires`
///   is not read: with that alone, nothing is kept;
/// - for a request with `Authorization` or `Cookie`, or with a [`User`](super::User), only what says `public`: where
///   visitors have cookies, a page that is the same for all of them says `public, max-age=60`. For a request that says
///   `no-store`, nothing.
///
/// **What it is found by:** scheme, host, path and query as they were sent, and the request's fields that `Vary` names,
/// byte by byte. Nothing else is in the key: no other field, not the client's address, not the version of HTTP, nothing
/// that outer middleware put into the extensions (but a [`User`](super::User), as above). A handler that answers by
/// another field names it in `Vary`; one that answers by anything else of these says `private`. Else what is made for one
/// visitor is shown to the next (cache poisoning).
///
/// **What always runs the handler**, and is not kept: requests with a body, `Range`, `Upgrade`, `If-Match`,
/// `If-Unmodified-Since` or `Cache-Control: no-transform`, those for a whole URI, and all but GET and HEAD. `no-cache` and
/// `max-age=0` of a request have no effect. So whoever wants to make the handler run can, by a query that is new if by
/// nothing else: the cache saves work, and does not guard. [`RateLimit`](super::RateLimit) and
/// [`ConcurrencyLimit`](super::ConcurrencyLimit) do; inside of the cache they count only what reaches the handler.
///
/// **Conditions:** what is kept has a tag, the handler's or one made of its bytes, and who has it gets 304, as from
/// [`ETags`](super::ETags). What is not kept gets no tag here: `ETags` outside serves that. What is kept has `Age` and the
/// first `Date` as well.
///
/// **What is not fresh** is asked for anew, and never sent. A request that is not safe (POST, PUT, DELETE ...) has
/// all forgotten that is kept for its target (RFC 9111 section 4.4), unless it is refused (4xx), and once more where a writer
/// of its body ends; an answer that was being made meanwhile is not kept. That takes the same cache around both handlers: put it
/// around the router, or one `Arc` of it around each. Another spelling of a path (`/%62` for `/b`) is another target.
/// [`clear`](ResponseCache::clear) forgets everything.
///
/// **Memory:** [`bytes_max`](ResponseCache::bytes_max), 64 MiB, heads and keys included; past it what was used least
/// recently goes first. A target has at most 16 responses, for different values of what `Vary` names.
///
/// Several requests for what is missing all run the handler: a request that waited for another one would hold its thread,
/// and on engines where a loop runs handlers, the loop. A [`ConcurrencyLimit`](super::ConcurrencyLimit) inside bounds that.
/// Whatever lets requests in, or counts or logs them, belongs outside, and so does what gives each response something of
/// its own: the fields of [`RequestIds`](super::RequestIds) would be kept. `Compression` inside is done once for each
/// response that is kept, outside for each that is sent.
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
pub struct ResponseCache {
    response_bytes_max: u64,
    fresh_for: Option<Duration>,
    store: Arc<Mutex<Store>>,
}

/// A quarter of what the smallest machines have that are for hire.
const BYTES_MAX: u64 = 64 << 20;

/// So that one response displaces no more than a 64th.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

impl Default for ResponseCache {
    fn default() -> ResponseCache {
        ResponseCache::new()
    }
}

impl ResponseCache {
    /// Keeps what says how long it is fresh.
    pub fn new() -> ResponseCache {
        let store = Arc::new(Mutex::new(Store::new(BYTES_MAX)));
        ResponseCache { response_bytes_max: RESPONSE_BYTES_MAX, fresh_for: None, store }
    }

    /// How many bytes may be kept in all: bodies, heads, keys, and what keeping them costs. The default is 64 MiB.
    #[must_use]
    pub fn bytes_max(self, bytes: u64) -> ResponseCache {
        ResponseCache { store: Arc::new(Mutex::new(Store::new(bytes))), ..self }
    }

    /// A response with a longer body is not kept. The default is 1 MiB, so that none displaces more than a 64th of
    /// the others.
    #[must_use]
    pub fn response_bytes_max(self, bytes: u64) -> ResponseCache {
        ResponseCache { response_bytes_max: bytes, ..self }
    }

    /// Takes responses that say nothing of how long they are fresh (no `max-age`, no `s-maxage`, no `Expires`) to be
    /// so for `freshness`. By default they are not kept: only their handler knows.
    ///
    /// It is for handlers that show the same to everybody. Others have to say `private`.
    #[must_use]
    pub fn fresh_for(self, freshness: Duration) -> ResponseCache {
        ResponseCache { fresh_for: Some(freshness), ..self }
    }

    /// Forgets everything, also what handlers make at this moment.
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
        // The lock is given back before what was kept is dropped.
        let removed = self.store().clear();
        drop(removed);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// For a request that may change what its target is.
    fn invalidate(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        // Dropped also where the handler panics: it may have changed something before that.
        let mut invalidation =
            InvalidateOnDrop { store: self.store.clone(), key: Key::of(req), is_refused: false };
        let response = next.run(req);
        invalidation.answered(&response);
        if invalidation.is_refused {
            return response;
        }
        // With 5xx, too: a middleware behind this one may have made that of a success, as `Deadline` does.
        invalidation.invalidate();
        // What is streamed is not made yet, and perhaps the change is not either.
        response.filter_stream(invalidation)
    }
}

/// Has its target forgotten once more when it is dropped: the body is over then.
struct InvalidateOnDrop {
    store: Arc<Mutex<Store>>,
    key: Key,
    /// Nothing was done.
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

    /// What stands in for a response that is to come says nothing of that.
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
        // The response is as old as its request: the time that the handler takes counts (RFC 9111 section 4.2.3).
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
