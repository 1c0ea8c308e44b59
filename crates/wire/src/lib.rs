//! HTTP/1.1 and HTTP/2 as values: bytes become events, and parts become bytes.
//!
//! This crate knows RFC 9110, RFC 9112, RFC 9113 and the header of the PROXY protocol ([`read_proxy_header`]), and
//! nothing else. It holds no socket, reads no clock, and starts no thread. [`Http1`] is the server's end of a connection.
//! [`ResponseReader`] is the client's end, for proxies and tests. [`Http2`] is either end of a connection of HTTP/2.
//! [`fields`] reads the fields of conditions and ranges.
//!
//! ```text
//!             read_head            read_body            write_head   write_body   finish
//!  bytes ───► Head(used) ───► Data ... Data, End ───►  (handler)  ───► ... ───► After ─┐
//!    ▲                                                                                │
//!    └───────────────────────────── next_request ◄── Next, or Drain and then End ─────┘
//! ```
//!
//! "Need more" is a value, never an error. There are two kinds of errors. A [`Fault`] is an error of the peer, and
//! names the status of the response. An [`Http2Fault`] names the error code as well. A [`Misuse`] is an error of the caller. If the RFCs leave a choice, the codec
//! refuses the message. No switch makes it lenient, because request smuggling starts with two readings of one
//! message.
//!
//! ```
//! use std::time::SystemTime;
//! use weftwork_wire::{After, BodyLength, Date, Head, HeadEvent, Http1, Limits, ResponseHead};
//!
//! let (mut http, mut head, limits) = (Http1::new(), Head::default(), Limits::default());
//! let bytes = b"GET /greeting HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! assert_eq!(http.read_head(&bytes[..20], &limits, &mut head)?, HeadEvent::NeedMore);
//! assert_eq!(http.read_head(bytes, &limits, &mut head)?, HeadEvent::Head(bytes.len()));
//! assert_eq!(head.path.of(bytes), b"/greeting");
//!
//! let mut out = Vec::new();
//! let response = ResponseHead { length: BodyLength::Exact(5), ..ResponseHead::default() };
//! http.write_head(&response, &Date::at(SystemTime::now()), &mut out)?;
//! http.write_body(b"hello", &mut out)?;
//! assert_eq!(http.finish(&[], &mut out)?, After::Next);
//! http.next_request();
//! assert!(out.starts_with(b"HTTP/1.1 200 OK\r\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod body;
mod date;
mod encode;
mod error;
pub mod fields;
mod framing;
mod grammar;
mod head;
pub mod hpack;
mod http1;
mod http2;
mod limits;
mod proxy;
mod response;
mod segment;
mod state;
#[cfg(test)]
mod testing;

pub use body::{BodyEvent, may_be_trailer};
pub use date::Date;
pub use encode::{BodyLength, ResponseHead};
pub use error::{Fault, Misuse};
pub use framing::Framing;
pub use head::{Field, Head, HeadEvent, Span, Version};
pub use http1::Http1;
pub use http2::{
    Budget, ErrorCode, ExpectedBody, Frame, Http2, Http2Fault, Http2Settings, PeerSettings, Priority,
    RequestHead, Violation, Window,
};
pub use limits::Limits;
pub use proxy::{Proxied, ProxyEvent, ProxyFault, read_proxy_header};
pub use response::{Received, ResponseFault, ResponseReader};
pub use segment::Segment;
pub use state::{After, WriteEvent, Writing};
