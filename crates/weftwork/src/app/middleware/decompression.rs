//! Decompression of request bodies.

mod decoders;
#[cfg(test)]
mod tests;

use http::{HeaderValue, StatusCode, header};

use super::compression::Coding;
use super::{Middleware, Next, refusal};
use crate::error::Error;
use crate::message::decoding::{Decoder, Decoding};
use crate::message::large_stack::with_large_stack;
use crate::message::{IntoResponse, Request, Response};

/// Decodes request bodies with `Content-Encoding: gzip`, `br` or `zstd` (feature `compression`). The handler
/// reads the decoded body.
///
/// The handler sees neither that field nor a `Content-Length`. All ways of reading work as usual, and an
/// invalid coding is an error of the body. Another coding, or more than one, gets 415 with the supported
/// codings in `Accept-Encoding` (RFC 9110 §15.5.16).
///
/// A few bytes can expand to a disk full of zeros, so there are four limits:
///
/// - The limit on bodies (`body_bytes_max`, [`BodyLimit`](super::BodyLimit)) applies to the **decoded** bytes.
/// - After 64 KiB, each compressed byte may expand to [`ratio_max`](Decompression::ratio_max) bytes, 100 by
///   default. Text expands 3 to 20-fold, a repetitive log 50-fold. gzip can reach 1,032.
/// - A body whose compressed size exceeds twice its decoded size plus 128 KiB is rejected, because it is made
///   to waste time.
/// - Decoding uses 32 KiB of memory for gzip, up to 8 MiB for zstd (RFC 9659) and up to 16 MiB for Brotli.
///
/// ```
/// use weftwork::middleware::Decompression;
/// use weftwork::prelude::*;
///
/// fn length(req: &mut Request) -> Result<String> {
///     Ok(req.body().bytes()?.len().to_string())
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(length.with(Decompression::new()));
/// ```
#[derive(Clone, Debug)]
pub struct Decompression {
    ratio_max: u64,
}

impl Default for Decompression {
    fn default() -> Decompression {
        Decompression::new()
    }
}

impl Decompression {
    /// Creates a middleware with a ratio of 100.
    pub fn new() -> Decompression {
        Decompression { ratio_max: 100 }
    }

    /// Sets how many bytes each compressed byte may expand to, after the first 64 KiB. Default: 100. 0 counts
    /// as 1.
    #[must_use]
    pub fn ratio_max(self, ratio: u64) -> Decompression {
        Decompression { ratio_max: ratio.max(1) }
    }
}

impl Middleware for Decompression {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let decoder = match request_coding(req) {
            RequestCoding::Identity => return next.run(req),
            RequestCoding::Coding(coding) => with_large_stack(|| decoders::new(coding)),
            RequestCoding::Unknown => return unsupported(),
        };
        match decoder {
            Ok(decoder) => Decoding::new(decoder, self.ratio_max).run(req, |req| next.run(req)),
            Err(error) => Error::io("cannot decode a request body", error).into_response(),
        }
    }
}

enum RequestCoding {
    Identity,
    Coding(Coding),
    Unknown,
}

fn request_coding(req: &Request<'_>) -> RequestCoding {
    let mut codings = req
        .elements("content-encoding")
        .map(|name| std::str::from_utf8(name).unwrap_or("?"))
        .filter(|name| !name.eq_ignore_ascii_case("identity"));
    match (codings.next(), codings.next()) {
        (None, _) => RequestCoding::Identity,
        (Some(name), None) => Coding::named(name).map_or(RequestCoding::Unknown, RequestCoding::Coding),
        (Some(_), Some(_)) => RequestCoding::Unknown,
    }
}

fn unsupported() -> Response {
    refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported Content-Encoding")
        .with_header(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd, br, gzip"))
}
