//! Response compression.

mod coding;
mod eligible;
mod encoder;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::fields::{EntityTag, tags};

use super::{Middleware, Next, vary};
use crate::error::{Error, Result};
use crate::message::without_fields::without_fields;
use crate::message::{BodyWriter, Payload, Request, Response, StreamFilter};
use crate::transport::log_queue::log_line;
pub(super) use coding::Coding;
use eligible::MediaTypes;
use encoder::{Encoder, Levels};

/// Compresses responses with Zstandard, Brotli or gzip (feature `compression`). The client's preference
/// decides. Equal preferences are resolved in this order.
///
/// These responses are **not** compressed, because it would gain nothing or break them:
///
/// - Event streams, whose events must arrive one by one, and types that are compressed already (images, video,
///   archives). Compressed types are text, JSON, XML, scripts, SVG, WebAssembly and uncompressed fonts.
/// - Bodies shorter than [`bytes_min`](Compression::bytes_min), 256 by default.
/// - Parts of a representation (206, or a `Content-Range`), and responses without a body.
/// - Responses with a `Content-Encoding`, a digest of their content, or `Cache-Control: no-transform`. A digest
///   may also be announced by `Trailer`. A digest trailer that was not announced is not sent.
///
/// A client may hold a part of a compressed response and ask for the rest with its date (`If-Range`,
/// `If-Unmodified-Since`). It gets the whole response. The handler is then called twice.
///
/// A streamed body stays a stream. When its writer flushes, or waits for the client, everything written so far
/// is sent. A file is compressed while it is sent, by the thread of its handler. If a file is requested often,
/// compress it once and store it beside the original. The response gets `Vary: Accept-Encoding`. A strong
/// `ETag` becomes weak, because it no longer stands for the same bytes (RFC 9110 §8.8.3.3).
///
/// Do not compress pages that show a secret next to text that an attacker can choose. The compressed length
/// reveals the secret (BREACH).
///
/// ```
/// use weftwork::middleware::Compression;
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "words, words, words\n".repeat(100)).with(Compression::new()));
/// ```
#[derive(Clone, Debug)]
pub struct Compression {
    bytes_min: u64,
    media_types: MediaTypes,
    levels: Levels,
}

/// About the size of a response head. For shorter bodies, the extra fields outweigh the gain.
const BYTES_MIN: u64 = 256;

/// Approximate size of the parts of a compressed stream. Each part becomes a chunk, and encoders return only a
/// few bytes at a time.
const CHUNK_BYTES: usize = 8 << 10;

impl Default for Compression {
    fn default() -> Compression {
        Compression::new()
    }
}

impl Compression {
    /// Enables all three codings, at levels that cost a few milliseconds per megabyte: zstd 3, Brotli 4, gzip
    /// 6.
    pub fn new() -> Compression {
        Compression { bytes_min: BYTES_MIN, media_types: MediaTypes::TextLike, levels: Levels::default() }
    }

    /// Sets the minimum size of a compressed body, in bytes. Default: 256. A stream without a declared length
    /// counts as long.
    #[must_use]
    pub fn bytes_min(self, bytes: u64) -> Compression {
        Compression { bytes_min: bytes, ..self }
    }

    /// Sets the media types that are compressed, in place of the default ones. `text/*` stands for every subtype, except
    /// event streams, which are never compressed. Parameters of a `Content-Type` do not count.
    ///
    /// ```
    /// use weftwork::middleware::Compression;
    ///
    /// let compression = Compression::new().media_types(["text/*", "application/cbor"])?.brotli_level(6)?;
    /// assert!(Compression::new().media_types(["json"]).is_err());
    /// # let _ = compression;
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a name is no media type, has parameters, or is `text/event-stream`.
    pub fn media_types<'t>(self, types: impl IntoIterator<Item = &'t str>) -> Result<Compression> {
        Ok(Compression { media_types: MediaTypes::listed(types)?, ..self })
    }

    /// Sets the level of Zstandard, from 1 (fast) to 19 (small). Default: 3. High levels also need tens of megabytes for
    /// each response in progress.
    ///
    /// # Errors
    /// Fails if the level is out of range. From 20 on, browsers would reject the window (RFC 9659).
    pub fn zstd_level(mut self, level: u8) -> Result<Compression> {
        self.levels.zstd = checked("zstd_level", level, 1, 19)?.into();
        Ok(self)
    }

    /// Sets the level of Brotli, from 0 (fast) to 11 (small). Default: 4. Level 11 is for bodies that are compressed
    /// once.
    ///
    /// # Errors
    /// Fails if the level is out of range.
    pub fn brotli_level(mut self, level: u8) -> Result<Compression> {
        self.levels.brotli = checked("brotli_level", level, 0, 11)?.into();
        Ok(self)
    }

    /// Sets the level of gzip, from 1 (fast) to 9 (small). Default: 6.
    ///
    /// # Errors
    /// Fails if the level is out of range.
    pub fn gzip_level(mut self, level: u8) -> Result<Compression> {
        self.levels.gzip = checked("gzip_level", level, 1, 9)?.into();
        Ok(self)
    }
}

fn checked(name: &str, level: u8, least: u8, most: u8) -> Result<u8> {
    if (least..=most).contains(&level) {
        return Ok(level);
    }
    Err(Error::usage(format!("invalid {name} {level}: must be from {least} to {most}")))
}

impl Middleware for Compression {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let coding = Coding::wanted_by(req);
        let no_transform = req.headers().get_all(header::CACHE_CONTROL).iter().any(eligible::is_no_transform);
        let handler = next.handler;
        let mut response = next.run(req);
        if eligible::is_part_of_compressible(&response, &self.media_types) && may_have_compressed_part(req) {
            // A part of the uncompressed bytes would be joined to compressed ones.
            response = without_fields(req, &[header::RANGE, header::IF_RANGE], |req| handler.call(req));
        }
        if response.is_declined() {
            // With a new body, the response would count as an answer, and no other handler would be tried.
            return response;
        }
        if response.status() == StatusCode::NOT_MODIFIED {
            // The full response may be compressed (RFC 9110 §15.4.5). The client then knows it by a weak tag.
            if response.header_values(header::CACHE_CONTROL).any(eligible::is_no_transform) {
                return response;
            }
            vary(&mut response, header::ACCEPT_ENCODING);
            let would_be_coded = coding.is_some() && !no_transform && !names_tag(req, &response, false);
            if would_be_coded || names_tag(req, &response, true) {
                weaken(&mut response);
                // It is that of the uncompressed bytes.
                response.remove_header(header::CONTENT_LENGTH);
            }
            return response;
        }
        // RFC 9110 section 8.6: a HEAD response may declare a length without a body. For a stream, the declared
        // length counts.
        if *req.method() == Method::HEAD
            && response.body_bytes() == Some(0)
            && response.header(header::CONTENT_LENGTH).is_some()
        {
            response.payload = Payload::Stream(Box::new(|_| Ok(())));
        }
        if !eligible::is_eligible(&response, self.bytes_min, &self.media_types) {
            if eligible::is_part(&response, &self.media_types) {
                vary(&mut response, header::ACCEPT_ENCODING);
            }
            return response;
        }
        vary(&mut response, header::ACCEPT_ENCODING);
        match coding.filter(|_| !no_transform) {
            Some(coding) => compress(response, coding, self.levels),
            None => response,
        }
    }
}

fn compress(mut response: Response, coding: Coding, levels: Levels) -> Response {
    let compressed = match response.body() {
        Some(body) => compress_whole(body, coding, levels),
        None => Encoder::new(coding, levels).map(Compressed::Stream),
    };
    match compressed {
        Ok(Compressed::Whole(bytes)) => response = response.with_coded_body(bytes),
        Ok(Compressed::Stream(encoder)) => {
            response.remove_header(header::CONTENT_LENGTH);
            response = response.into_stream().filter_stream(encoder);
        }
        Ok(Compressed::NotSmaller) => return response,
        Err(error) => {
            log_line!(
                Error,
                "cannot compress a response with {}, sending it uncompressed: {error}",
                coding.name()
            );
            return response;
        }
    }
    response.set_header(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    // Ranges would apply to the compressed bytes, which are not reproducible.
    response.remove_header(header::ACCEPT_RANGES);
    weaken(&mut response);
    response
}

enum Compressed {
    Whole(Bytes),
    Stream(Encoder),
    /// The compressed body is not smaller.
    NotSmaller,
}

fn compress_whole(body: &Bytes, coding: Coding, levels: Levels) -> io::Result<Compressed> {
    let mut encoder = Encoder::new(coding, levels)?;
    encoder.push(body)?;
    let bytes = encoder.end()?;
    Ok(if bytes.len() < body.len() { Compressed::Whole(bytes.into()) } else { Compressed::NotSmaller })
}

/// Returns whether a client that asks for a part may have the other parts from a compressed response. Such a response
/// has a weak tag, and the same date as the uncompressed one. A strong tag is that of uncompressed bytes.
fn may_have_compressed_part(req: &Request<'_>) -> bool {
    let is_strong = |value: &[u8]| EntityTag::parse(value).is_some_and(|tag| !tag.weak);
    let has = |name: HeaderName| req.header_values(name).next().is_some();
    let by_range = has(header::IF_RANGE) && !req.header_values(header::IF_RANGE).all(is_strong);
    let by_date = !has(header::IF_RANGE) && has(header::IF_UNMODIFIED_SINCE) && !has(header::IF_MATCH);
    // The handler is called once more, so there must be no body that it has read.
    *req.method() == Method::GET && req.body_left() == Some(0) && (by_range || by_date)
}

/// Returns whether the client sent the tag of the response, in its weak or strong form.
fn names_tag(req: &Request<'_>, response: &Response, weak: bool) -> bool {
    let Some(own) = strong_tag(response).and_then(|tag| EntityTag::parse(tag.as_bytes())) else {
        return false;
    };
    let named = EntityTag { weak, ..own };
    req.header_values(header::IF_NONE_MATCH).flat_map(tags).any(|tag| tag == named)
}

fn strong_tag(response: &Response) -> Option<&HeaderValue> {
    response.header_values(header::ETAG).next().filter(|tag| tag.as_bytes().starts_with(b"\""))
}

fn weaken(response: &mut Response) {
    let weak = strong_tag(response).map(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()));
    if let Some(Ok(weak)) = weak {
        response.set_header(header::ETAG, weak);
    }
}

impl StreamFilter for Encoder {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        self.push(data)?;
        if self.pending_bytes() < CHUNK_BYTES {
            return Ok(());
        }
        out.write_all(&self.take())
    }

    fn sync(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        self.flush()?;
        out.write_all(&self.take())
    }

    /// A digest would describe the uncompressed bytes.
    fn trailers(
        &mut self,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut BodyWriter<'_>,
    ) -> io::Result<bool> {
        let is_true = |(name, _): &&(HeaderName, HeaderValue)| !eligible::FORBIDS.contains(name);
        let kept: Vec<_> = fields.iter().filter(is_true).cloned().collect();
        Ok(out.trailers(&kept)? && kept.len() == fields.len())
    }

    fn finish(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        let rest = self.end()?;
        out.write_all(&rest)
    }
}
