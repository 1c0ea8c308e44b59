//! The application layer: handlers, routing and middleware. It is built on [`Handler`](crate::Handler) alone
//! and does not know the engines.

#[cfg(any(feature = "cookies", feature = "json"))]
mod cookie_header;
#[cfg(feature = "cookies")]
pub mod cookies;
pub(crate) mod extract;
mod files;
pub mod middleware;
#[cfg(feature = "multipart")]
pub mod multipart;
mod path_form;
mod proxy;
mod removed_prefix;
pub(crate) mod router;
pub(crate) mod routes;
mod sse;
#[cfg(feature = "websocket")]
mod websocket;

pub use files::{Files, embedded, file, files};
pub use middleware::{HandlerExt, Layered, Middleware, Next};
pub use proxy::Proxy;
pub use sse::{Event, EventHub, EventWriter, sse};
#[cfg(feature = "websocket")]
pub use websocket::{
    HubSocket, Message, SocketEvent, SocketId, WebSocket, WebSocketHub, WebSocketReader, WebSocketWriter,
    WebSockets, websocket,
};
