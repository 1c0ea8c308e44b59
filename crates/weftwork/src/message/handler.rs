//! The trait of handlers, and what a handler tells the engine before it runs.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;

use super::into_response::IntoResponse;
use super::observer::Observer;
use super::request::Request;
use super::required_state::RequiredState;
use super::response::Response;
use crate::error::Result;

/// Answers requests. Every `Fn(&mut Request) -> R` is a handler, if `R` is an [`IntoResponse`].
///
/// A handler is an ordinary function. It may wait for a database, a file, or another server. Each engine handles such
/// waits in its own way, and a handler never needs to know which engine runs it.
///
/// ```
/// use weftwork::{Handler, Request, Response};
///
/// fn hello(req: &mut Request) -> String {
///     format!("hello from {}", req.path())
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(hello);
/// takes(|_: &mut Request| "hello");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler by itself",
    label = "not a handler",
    note = "a handler is a function of `&mut Request`: `|req: &mut Request| ..`; a value is one within it: `|_: &mut Request| value`",
    note = "a function of typed arguments, as `Query<T>`, is made one by `handler(function)`, or by the `Router` that it is given to"
)]
pub trait Handler: Send + Sync + 'static {
    /// Answers a request. A panic closes the connection of this request with a 500, and affects nothing else.
    fn call(&self, req: &mut Request<'_>) -> Response;

    /// Returns whether requests like this one are known to block or to be quick. If a request is known to block, an
    /// event loop is handed off before the call, and not some milliseconds into it. An event loop asks, so the answer
    /// must not wait for anything.
    ///
    /// The default learns for each first segment of the path (`/reports/7` and `/reports/8` are one route).
    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        Blocking::Learn { route: line.route() }
    }

    /// Returns the pattern of the route for this request, such as `/users/{id}`, or None if no route matches. The
    /// default, for handlers without routes, is an empty text, which matches everything. Middleware calls
    /// [`Next::pattern`](crate::Next::pattern).
    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        let _ = line;
        Some(Cow::Borrowed(""))
    }

    /// Returns the normal form of the path, if the request goes to a [`Proxy`](crate::Proxy) that forwards other forms.
    /// The path of the request is then that form, so that routes and middleware see what the server behind may see. A
    /// handler that passes requests on asks the inner handler.
    #[doc(hidden)]
    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        let _ = line;
        None
    }

    /// Checks once before a server starts whether the handler can answer. A router reports conflicting routes. The
    /// server itself checks that each [`State`](crate::State) is provided by a router.
    ///
    /// # Errors
    /// The handler cannot answer, and the server does not start.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the states that the handler extracts and does not provide. Routers around it must provide them. A
    /// handler that passes requests on returns the needs of the inner handlers.
    #[doc(hidden)]
    fn needs(&self) -> Vec<RequiredState> {
        Vec::new()
    }

    /// Returns the observers of the middleware around the whole handler. They see all responses of the server, and not
    /// only those of the handler. A handler that passes requests on to one inner handler returns its observers.
    #[doc(hidden)]
    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        Vec::new()
    }

    /// Returns whether the body of this request is read before the call, up to `body_ahead_bytes_max`. The default is
    /// true, so that a slow client holds no thread. An event loop asks, so the answer must not wait for anything. It must be
    /// false if the handler responds while the body still
    /// arrives and the client waits for that. See [`unbuffered`].
    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        let _ = line;
        true
    }
}

/// Whether this process has had a proxy. Otherwise, no request needs [`Handler::normal_path`].
static HAS_PROXY: AtomicBool = AtomicBool::new(false);

/// Notes that a proxy was created.
pub(crate) fn note_proxy() {
    HAS_PROXY.store(true, Ordering::Relaxed);
}

pub(crate) fn is_proxy_in_use() -> bool {
    HAS_PROXY.load(Ordering::Relaxed)
}

/// Properties of a request before its handler runs.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    method: &'a Method,
    path: &'a [u8],
}

impl<'a> RequestLine<'a> {
    pub(crate) fn new(method: &'a Method, path: &'a [u8]) -> RequestLine<'a> {
        RequestLine { method, path }
    }

    /// Returns the method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the path without the query, still percent-encoded.
    pub fn path(&self) -> &'a str {
        std::str::from_utf8(self.path).unwrap_or_default()
    }

    pub(crate) fn path_bytes(&self) -> &'a [u8] {
        self.path
    }

    /// Returns the same request for a handler that is mounted at the first `prefix` bytes of the path.
    pub(crate) fn without_prefix(&self, prefix: usize) -> RequestLine<'a> {
        let path = match self.path.get(prefix..) {
            None | Some(b"") => b"/",
            Some(rest) => rest,
        };
        RequestLine { path, ..*self }
    }

    /// Hashes the method and the first segment of the path (16 bytes of it) to 64 bits.
    ///
    /// Clients choose paths, so they can make routes collide. The only effect is a hand-off.
    fn route(&self) -> u64 {
        let segment = before_slash(first_sixteen(self.path.get(1..).unwrap_or_default()));
        let method = u64::from(self.method.as_str().as_bytes()[0]) << 56;
        let hash = (segment as u64) ^ ((segment >> 64) as u64).rotate_left(29) ^ method;
        (hash ^ hash >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Reads up to sixteen bytes as a number, in registers. Bytes that were written to memory are slow to read back at
/// another width.
fn first_sixteen(bytes: &[u8]) -> u128 {
    if let Some(whole) = bytes.first_chunk() {
        return u128::from_le_bytes(*whole);
    }
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            let beyond = u64::from_le_bytes(*last).checked_shr(8 * (16 - bytes.len()) as u32).unwrap_or(0);
            u128::from(u64::from_le_bytes(*first)) | u128::from(beyond) << 64
        }
        _ => bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)).into(),
    }
}

/// Returns the bytes before the first `/`, searching all sixteen at once. The highest bit of a zero byte is the lowest
/// bit that a borrow can set.
fn before_slash(bytes: u128) -> u128 {
    const ONES: u128 = u128::from_ne_bytes([1; 16]);
    let differs = bytes ^ (ONES * b'/' as u128);
    let zeros = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
    match zeros.trailing_zeros() {
        128 => bytes,
        bit => bytes & ((1 << (bit - 7)) - 1),
    }
}

impl std::fmt::Display for RequestLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path().escape_debug())
    }
}

/// Knowledge of a route before its handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocking {
    /// Unknown. The engine learns it. Requests with the same `route` (any well-spread number) are expected to be alike.
    Learn {
        /// Number of the route.
        route: u64,
    },
    /// Blocks. A thread other than the loop's calls it. See [`blocks`].
    Always,
    /// Never blocks. The loop calls it. See [`quick`].
    Never,
}

impl<F, R> Handler for F
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, req: &mut Request<'_>) -> Response {
        let mut response = self(req).into_response();
        req.blame(&mut response);
        response
    }
}

impl Handler for Arc<dyn Handler> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.as_ref().call(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        self.as_ref().blocking(line)
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        self.as_ref().pattern(line)
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        self.as_ref().normal_path(line)
    }

    fn check(&self) -> Result<()> {
        self.as_ref().check()
    }

    fn needs(&self) -> Vec<RequiredState> {
        self.as_ref().needs()
    }

    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.as_ref().observers()
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.as_ref().reads_ahead(line)
    }
}

/// Marks a handler that blocks, so that not even its first request delays others.
///
/// ```
/// use weftwork::{Request, blocks};
/// let report = blocks(|_: &mut Request| { std::thread::sleep(std::time::Duration::from_millis(1)); "done" });
/// ```
pub fn blocks(handler: impl Handler) -> impl Handler {
    Marked { handler, blocking: Some(Blocking::Always), reads_ahead: true }
}

/// Marks a handler that never blocks, such as a health check. In `adaptive` and `pool`, an event loop calls it from its
/// first request on, even if all threads are busy and the queue is full. So a probe never waits behind the site.
///
/// A marked handler that blocks all the same holds its loop for 1 to 5 ms at each request. Then the loop moves to another
/// thread. If all threads are busy, there is one spare thread for each loop, and after that the loop waits. For a variant of
/// an enum of routes, use the attribute `#[quick]`.
///
/// ```
/// use weftwork::{Router, quick};
/// let site = Router::new().get("/health", quick(|_: &mut weftwork::Request| "OK"));
/// ```
pub fn quick(handler: impl Handler) -> impl Handler {
    Marked { handler, blocking: Some(Blocking::Never), reads_ahead: true }
}

/// A handler about which something is known.
struct Marked<H> {
    handler: H,
    blocking: Option<Blocking>,
    reads_ahead: bool,
}

impl<H: Handler> Handler for Marked<H> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.handler.call(req)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        self.blocking.unwrap_or_else(|| self.handler.blocking(line))
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        self.handler.pattern(line)
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        self.handler.normal_path(line)
    }

    fn check(&self) -> Result<()> {
        self.handler.check()
    }

    fn needs(&self) -> Vec<RequiredState> {
        self.handler.needs()
    }

    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.handler.observers()
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.reads_ahead && self.handler.reads_ahead(line)
    }
}

/// Calls the handler when the head has arrived, before any of the body. Use it for uploads with a dialog between client
/// and server. The cost is a thread that waits for the client, unless the engine uses a fiber. For a variant of an enum
/// of routes, use the attribute `#[unbuffered]`.
///
/// ```
/// use std::io::Write;
/// use weftwork::{Request, Response, unbuffered};
///
/// let echo = unbuffered(|_: &mut Request| {
///     Response::stream(|out| {
///         let mut part = [0; 1024];
///         loop {
///             let count = out.read_request(&mut part)?;
///             if count == 0 {
///                 return Ok(());
///             }
///             out.write_all(&part[..count])?;
///             out.flush()?;
///         }
///     })
/// });
/// ```
pub fn unbuffered(handler: impl Handler) -> impl Handler {
    Marked { handler, blocking: None, reads_ahead: false }
}

#[cfg(test)]
mod tests {
    //! Tests that requests of one route count as alike, and others do not.

    use super::*;

    fn route(method: Method, path: &str) -> u64 {
        RequestLine::new(&method, path.as_bytes()).route()
    }

    #[test]
    fn the_first_segment_and_the_method_make_a_route() {
        let users = route(Method::GET, "/users");
        for alike in ["/users/", "/users/7", "/users/a-name-that-is-longer/than-sixteen-bytes"] {
            assert_eq!(route(Method::GET, alike), users, "{alike}");
        }
        for other in ["", "/", "*", "//", "/user", "/userss", "/u", "/users%2F7"] {
            assert_ne!(route(Method::GET, other), users, "{other}");
        }
        assert_ne!(route(Method::POST, "/users"), users);
    }

    #[test]
    fn a_slash_is_found_wherever_it_is() {
        for end in 0..16 {
            let mut path = "x".repeat(end);
            let alone = before_slash(padded(&path));
            path.push_str("/rest");
            assert_eq!(before_slash(padded(&path)), alone, "{path}");
        }
    }

    #[test]
    fn up_to_sixteen_bytes_are_a_number() {
        let text = "0123456789abcdefg";
        for len in 0..=16 {
            assert_eq!(first_sixteen(&text.as_bytes()[..len]), padded(&text[..len]), "{len}");
        }
        assert_eq!(first_sixteen(text.as_bytes()), padded(text));
    }

    fn padded(text: &str) -> u128 {
        let mut bytes = [0; 16];
        let end = text.len().min(16);
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        u128::from_le_bytes(bytes)
    }
}
