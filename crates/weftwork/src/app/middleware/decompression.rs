//! How do handlers read bodies that clients have compressed?

mod decoders;
#[cfg(test)]
mod tests;

use http::{HeaderValue, StatusCode, header};

use super::compression::Coding;
use super::{Middleware, Next, refusal};
use crate::error::Error;
use crate::message::decoding::{Decoder, Decoding};
use crate::message::room::with_room;
use crate::message::{IntoResponse, Request, Response};

/// Lets handlers read a request body with `Content-Encoding: gzip`, `br` or `zstd` as if it had none (feature
/// `compression`).
///
/// The handler sees neither that field nor a `Content-Length`; all ways to read work as ever, and what is a fault
/// in the coding is an error of the body. Another coding, or more than one, is 415 with the three that would
/// do in `Accept-Encoding` (RFC 9110 §15.5.16).
///
/// A few bytes can stand for a disk full of zeros, so there are four bounds:
///
/// - the limit on bodies (`body_bytes_max`, [`BodyLimit`](super::BodyLimit)) holds for the **decoded** bytes;
/// - past 64 KiB, each compressed byte may become [`ratio_max`](Decompression::ratio_max) bytes, 100 by default:
///   text compresses 3 to 20-fold, a log with few patterns 50-fold; gzip alone could do 1,032;
/// - a body that is twice as large compressed as decoded, plus 128 KiB, is refused: it is made to waste time;
/// - decoding takes 32 KiB of memory for gzip, up to 8 MiB for zstd (RFC 9659) and up to 16 MiB for Brotli.
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
    /// With a ratio of 100.
    pub fn new() -> Decompression {
        Decompression { ratio_max: 100 }
    }

    /// Bytes that each compressed byte may become, past the first 64 KiB of them; at least one.
    #[must_use]
    pub fn ratio_max(self, ratio: u64) -> Decompression {
        Decompression { ratio_max: ratio.max(1) }
    }
}

impl Middleware for Decompression {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let decoder = match request_coding(req) {
            RequestCoding::Identity => return next.run(req),
            RequestCoding::Coding(coding) => with_room(|| decoders::new(coding)),
            RequestCoding::Unknown => return unsupported(),
        };
        match decoder {
            Ok(decoder) => Decoding::new(decoder, self.ratio_max).run(req, |req| next.run(req)),
            Err(error) => Error::io("a request body cannot be decoded", error).into_response(),
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
    refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "this Content-Encoding is not understood here")
        .with_header(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd, br, gzip"))
}
