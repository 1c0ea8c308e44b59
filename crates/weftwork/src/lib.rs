//! Weftwork: an HTTP/1.1 and HTTP/2 server for plain blocking handlers.
//!
//! A handler is an ordinary function from a request to a response. It may wait for a database, a file, or another
//! server. The default engine is an event loop while handlers are quick. If a handler blocks, the loop moves to another
//! thread, so that other clients wait for a few milliseconds at most.
//!
//! ```no_run
//! use weftwork::prelude::*;
//!
//! fn hello(req: &mut Request) -> String {
//!     format!("hello, {}\n", req.query_value("name").unwrap_or_else(|| "world".into()))
//! }
//!
//! fn main() -> weftwork::Result<()> {
//!     Server::bind("127.0.0.1:8080")?.run(hello)
//! }
//! ```
//!
#![doc = include_str!("guide.md")]
// Without a feature, links to its items lead to the list of features. The comment in HTML ends the paragraph above.
#![cfg_attr(not(feature = "json"), doc = include_str!("links_without_json.txt"))]
#![cfg_attr(not(feature = "macros"), doc = "<!-- -->\n[derive@Routes]: crate#start")]
//!
//! # Names
//!
//! A *header* is what RFC 9110 calls a field, because the types of the [`http`] crate use that name. On [`Request`],
//! [`Response`] and [`TestResponse`], `header` reads the first value and `header_values` reads all values.
//! `with_something` returns the [`Response`] with a value added or replaced. `set_something` and `append_header` change
//! it in place. Builders ([`Settings`], [`TestRequest`], middleware) have methods with plain names. The name of a limit
//! says what it counts: `body_bytes_max`. A number of bytes is a `u64`.
//!
//! # Layers
//!
//! | layer | module | what it contains |
//! |---|---|---|
//! | 4 | [`Server`], [`Running`], [`TestClient`] | binding, starting and stopping, and the same without a port |
//! | 3 | [`Engine`] | the assignment of connections to threads |
//! | 3 | [`routes`], [`Router`], [`middleware`], [`files`], [`EventHub`], [`Proxy`], ... | handlers built from handlers |
//! | 2 | (private) `conn` | a connection: a socket joined with the protocol |
//! | 1 | [`Request`], [`Response`], [`Handler`] | what a handler sees |
//! | 0 | the crate `weftwork-wire` | HTTP/1.1 and HTTP/2 without I/O |
//!
//! Every limit and deadline is in [`Settings`], with its default and its reason.

mod app;
mod conn;
mod engine;
mod error;
mod message;
mod server;
mod settings;
mod shutdown;
mod testing;
#[cfg(feature = "_tls")]
pub mod tls;
mod transport;

pub use bytes::Bytes;
pub use http;
#[cfg(feature = "metrics")]
pub use prometheus_client;

#[cfg(feature = "_tls")]
pub use rustls;
#[cfg(feature = "_tls")]
pub use tls::Tls;

#[cfg(feature = "cookies")]
pub use app::cookies;
#[cfg(feature = "multipart")]
pub use app::multipart;
pub use app::{
    Event, EventHub, EventWriter, Files, HandlerExt, Layered, Middleware, Next, Proxy, embedded, file, files,
    middleware, sse,
};
#[cfg(feature = "websocket")]
pub use app::{
    HubSocket, Message, SocketEvent, SocketId, WebSocket, WebSocketHub, WebSocketReader, WebSocketWriter,
    WebSockets, websocket,
};
pub use engine::{ENGINES, Engine, EngineInfo, UnknownEngine, blocking, sleep, wait};
pub use error::{Context, Error, ErrorClass, Result};
#[cfg(feature = "json")]
pub use message::json;
pub use message::{
    Blocking, Body, BodyError, BodyWriter, Feed, FeedClosed, FeedLimits, FeedSender, Handler, IntoResponse,
    LaterReason, OverflowStrategy, OwnedBody, Problem, Request, RequestLine, RequiredState, Response,
    ResponseClosed, ResponseSender, StreamFilter, UpgradeHandler, Upgraded, UpgradedReader, UpgradedWriter,
    WaitError, blocks, escaped, html, quick, text, unbuffered,
};
#[cfg(feature = "metrics")]
pub use server::Dashboard;
pub use server::{AcceptedSocket, Address, AdoptError, Adopter, Running, Server, ServerStatus, Signals};
pub use settings::{ForwardedHeader, Networks, Setting, Settings, Source, TlsVersion};
pub use shutdown::{LeakReport, ShutdownReport};
#[cfg(feature = "websocket")]
pub use testing::TestWebSocket;
pub use testing::{
    NoResponse, PendingResponse, TestClient, TestConnection, TestEvent, TestEvents, TestRequest, TestResponse,
};
pub use transport::events::ServerStats;
pub use transport::log_file::LogFile;
pub use transport::panic_log::log_panics;
#[cfg(feature = "_tls")]
pub use transport::tls::TlsInfo;
pub use weftwork_wire::Fault;

#[cfg(feature = "json")]
pub use app::extract::{Cookies, Form, Header, Json, Path, Query};
pub use app::extract::{Extract, IntoHandler, State, handler};
pub use app::router::{Nest, PatternFault, RouteError, Router, routing};
#[doc(hidden)]
pub use app::routes::derived;
pub use app::routes::{
    InvalidParam, MatchError, MethodFilter, Route, RouteList, Routes, RoutesHandler, routes,
};
#[cfg(feature = "macros")]
pub use weftwork_macros::Routes;

/// Names that most programs use.
pub mod prelude {
    pub use crate::{
        Context, Engine, Error, Handler, HandlerExt, IntoResponse, Middleware, Next, Problem, Request,
        Response, Result, Router, Routes, Running, Server, Settings, State, blocks, escaped, html, quick,
        routes, text,
    };
    #[cfg(feature = "json")]
    pub use crate::{Form, Json, Path, Query, json};
    pub use http::{HeaderName, HeaderValue, Method, StatusCode, header};
}

/// Runs the examples of the pages for users of other frameworks.
#[cfg(all(doctest, feature = "json", feature = "macros"))]
mod coming_from {
    #[doc = include_str!("../../../docs/coming-from/actix.md")]
    struct Actix;
    #[doc = include_str!("../../../docs/coming-from/axum.md")]
    struct Axum;
    #[doc = include_str!("../../../docs/coming-from/flask.md")]
    struct Flask;
    #[doc = include_str!("../../../docs/coming-from/go-net-http.md")]
    struct Go;
    #[doc = include_str!("../../../docs/coming-from/hunchentoot.md")]
    struct Hunchentoot;
    #[doc = include_str!("../../../docs/coming-from/tiny_http.md")]
    struct TinyHttp;
}

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the code of the page on middleware.
#[cfg(all(doctest, feature = "cookies", feature = "metrics"))]
#[doc = include_str!("../../../docs/middleware.md")]
struct MiddlewarePage;

/// Compiles the code of the page on async code.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/async.md")]
struct Async;

/// Compiles the code of the page on deploying.
#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../../docs/deploying.md")]
struct Deploying;

/// Compiles the code of the page on HTTP/2.
#[cfg(all(doctest, feature = "_tls"))]
#[doc = include_str!("../../../docs/http2.md")]
struct Http2Page;

/// Compiles the code of the page on HTTPS.
#[cfg(all(doctest, feature = "_acme"))]
#[doc = include_str!("../../../docs/https.md")]
struct Https;

/// Compiles the code of the page on testing.
#[cfg(all(doctest, feature = "websocket"))]
#[doc = include_str!("../../../docs/testing.md")]
struct Testing;

/// For the fuzz target `tls`.
#[cfg(all(fuzzing, feature = "tls-self-signed"))]
#[doc(hidden)]
pub fn fuzz_tls_session(input: &[u8]) {
    transport::tls::fuzzing::every_way(input);
}
