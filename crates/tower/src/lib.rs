//! Tower services as handlers of [`weftwork`]: an axum or tonic app, unchanged, on the engines of Weftwork.
//!
//! [`serve_tower`] makes a handler of every [`Service`](tower_service::Service) from an [`http::Request`] to an
//! [`http::Response`]. The connection that waits for the response polls the future of the service. No thread and no task
//! is held meanwhile. A poll that blocks is a handler that blocks: the engine `adaptive` hands its loop to another thread,
//! and other clients are served.
//!
//! ```
//! use std::convert::Infallible;
//! use std::future::{Ready, ready};
//! use std::task::{Context, Poll};
//! use weftwork::{Bytes, Router, TestClient, http};
//! use weftwork_tower::{RequestBody, serve_tower};
//!
//! #[derive(Clone)]
//! struct Greeter;
//!
//! impl tower_service::Service<http::Request<RequestBody>> for Greeter {
//!     type Response = http::Response<FullBody>;
//!     type Error = Infallible;
//!     type Future = Ready<Result<Self::Response, Infallible>>;
//!
//!     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
//!         Poll::Ready(Ok(()))
//!     }
//!
//!     fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
//!         let body = format!("hello from {}\n", request.uri().path());
//!         ready(Ok(http::Response::new(FullBody(Some(body.into())))))
//!     }
//! }
//! # struct FullBody(Option<Bytes>);
//! # impl http_body::Body for FullBody {
//! #     type Data = Bytes;
//! #     type Error = Infallible;
//! #     fn poll_frame(
//! #         mut self: std::pin::Pin<&mut Self>,
//! #         _: &mut Context<'_>,
//! #     ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
//! #         Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
//! #     }
//! # }
//!
//! let site = Router::new().get("/plain", |_: &mut weftwork::Request| "plain\n").fallback(serve_tower(Greeter));
//! let mut client = TestClient::new(site);
//! assert_eq!(client.get("/plain").send().text(), "plain\n");
//! assert_eq!(client.get("/tower").send().text(), "hello from /tower\n");
//! ```
//!
//! An axum app is `serve_tower(app)` too. So a team can move one route after the other from axum to plain handlers: the
//! page "Coming from axum" has the steps.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `axum` | `ConnectInfo<SocketAddr>` in each request. The layers of a `Router` are made once, as by `axum::serve` |
//! | `tokio` | the context of a runtime: timers, sockets, `tokio::spawn`. `TowerHandler::tokio`, `TowerHandler::spawned` |
//! | `upgrade` | `hyper::upgrade::on`, for WebSockets of axum, and for proxies that answer CONNECT |
//! | `into-service` | the other way: `into_service` makes a service of a running server, to mount handlers in axum |
//!
//! No feature is a default.
//!
//! # What differs from hyper
//!
//! - A service that panics costs its request a 500. Over hyper, the client reads nothing.
//! - The head of the response must be there within the setting `request_timeout`, or within 60 s if that is 0. See
//!   [`TowerHandler::timeout`]. A body may take any time.
//! - The size of a request body is limited by the setting `body_bytes_max` (2 MiB). An app with a limit of its own, such as
//!   axum's `DefaultBodyLimit`, needs a larger one here: [`TowerHandler::body_bytes_max`].
//! - Trailers go to a client that asks for them by `TE: trailers` (RFC 9110 section 6.5.1), over HTTP/2 too.
//! - A client that still sends when its response is complete is not reset before it can read the response.
//! - A body that is there as a whole is sent with its `Content-Length`, and parts that are ready together are sent together.
//! - A client that closes its side of an upgraded connection or tunnel counts as gone.
//! - A fiber has 256 KiB of stack. `CompressionLayer` without optimization needs a `fiber_stack_bytes` of 1 MiB.
//! - CONNECT is 501 if the service accepts it (2xx) without the feature `upgrade`, or has dropped the `OnUpgrade`.
//! - An event stream (`text/event-stream`) ends when the server stops. Other bodies have the setting `drain_timeout`.
//! - tokio's budget for tasks does not apply to a future that is polled in place. A future that is always ready keeps its
//!   thread, like a handler that computes. `tokio::task::id`, `spawn_local` and `block_in_place` need a task:
//!   `TowerHandler::spawned`.

#![forbid(unsafe_code)]

mod body;
mod executor;
mod feed;
mod handler;
mod place;
mod request;
mod response;
#[cfg(feature = "into-service")]
mod service;
#[cfg(feature = "tokio")]
mod task;
#[cfg(feature = "upgrade")]
mod upgrade;

pub use body::RequestBody;
pub use handler::{TowerHandler, serve_tower};
#[cfg(feature = "into-service")]
pub use service::{ResponseBody, WeftService, into_service};
