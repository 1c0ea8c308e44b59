//! What answers requests, and what it lets the engine know beforehand.

use std::sync::Arc;

use http::Method;

use super::into_response::IntoResponse;
use super::request::Request;
use super::response::Response;

/// Answers requests. Every `Fn(&mut Request) -> R` is one, where `R` is an [`IntoResponse`].
///
/// It is an ordinary function: it may wait for a database, a file, another server. Each engine deals with
/// that in its own way; a handler never needs to know which one runs it.
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
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. A panic costs this request a 500 and its connection, nothing else.
    fn call(&self, req: &mut Request<'_>) -> Response;

    /// Whether requests for `path` are known to wait or to be quick. Engines that lead an event loop use it
    /// to give the loop away before the call rather than after a millisecond of it.
    ///
    /// The default learns for each first segment of the path (`/reports/7` and `/reports/8` are one route).
    fn blocking(&self, method: &Method, path: &str) -> Blocking {
        Blocking::Learn { route: route_of(method, path) }
    }
}

/// What is known of a route before its handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Find out by watching. Requests of the same `route` (any well-spread number) are expected to be alike.
    Learn {
        /// Names the route.
        route: u64,
    },
    /// It waits: give the loop away first.
    Always,
    /// It never waits: never give the loop away for it before it has proven otherwise.
    Never,
}

/// The method and the path's first segment, spread over 64 bits.
///
/// Clients choose paths, so they can make routes collide: all that wins them is a hand-off.
fn route_of(method: &Method, path: &str) -> u64 {
    let rest = path.as_bytes().get(1..).unwrap_or_default();
    let segment = &rest[..memchr(rest)];
    let mut hash = method.as_str().len() as u64 ^ u64::from(method.as_str().as_bytes()[0]) << 8;
    for byte in segment {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where the first segment ends; only 32 bytes of it count, which bounds the work.
fn memchr(bytes: &[u8]) -> usize {
    let most = bytes.len().min(32);
    bytes[..most].iter().position(|byte| *byte == b'/').unwrap_or(most)
}

impl<F, R> Handler for F
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, req: &mut Request<'_>) -> Response {
        self(req).into_response()
    }
}

impl Handler for Arc<dyn Handler> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.as_ref().call(req)
    }

    fn blocking(&self, method: &Method, path: &str) -> Blocking {
        self.as_ref().blocking(method, path)
    }
}

/// A handler that says of itself that it waits: its first request does not have to find that out.
///
/// ```
/// use weftwork::{Request, blocks};
/// let report = blocks(|_: &mut Request| { std::thread::sleep(std::time::Duration::from_millis(1)); "done" });
/// ```
pub fn blocks(handler: impl Handler) -> impl Handler {
    struct Blocks<H>(H);
    impl<H: Handler> Handler for Blocks<H> {
        fn call(&self, req: &mut Request<'_>) -> Response {
            self.0.call(req)
        }
        fn blocking(&self, _: &Method, _: &str) -> Blocking {
            Blocking::Always
        }
    }
    Blocks(handler)
}
