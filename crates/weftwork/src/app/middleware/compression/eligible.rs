//! Decides whether a response can be compressed and whether it pays off.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::error::{Error, Result};
use crate::message::Response;

/// Fields that would be wrong for the compressed bytes, or that forbid a change.
pub(super) const FORBIDS: [HeaderName; 6] = [
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

pub(super) fn is_eligible(response: &Response, bytes_min: u64, media_types: &MediaTypes) -> bool {
    let status = response.status();
    let has_content = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT
        );
    has_content
        && response.is_filterable()
        && bytes(response).is_none_or(|bytes| bytes > 0 && bytes >= bytes_min)
        && response.content_type().is_some_and(|kind| media_types.include(kind))
        && !FORBIDS.iter().any(|name| response.header_values(name).next().is_some())
        && !response.header_values(header::TRAILER).any(names_digest)
        && !response.header_values(header::CACHE_CONTROL).any(is_no_transform)
}

/// Returns whether the response is a part of a representation that may be compressed as a whole. RFC 9110
/// section 15.3.7 requires its `Vary`.
pub(super) fn is_part(response: &Response, media_types: &MediaTypes) -> bool {
    response.status() == StatusCode::PARTIAL_CONTENT
        && response.content_type().is_some_and(|kind| media_types.include(kind) || is_byteranges(kind))
}

/// Returns whether the response is a part of a representation that is compressed if it is sent whole.
pub(super) fn is_part_of_compressible(response: &Response, media_types: &MediaTypes) -> bool {
    is_part(response, media_types)
        && response.header_values(header::CONTENT_ENCODING).next().is_none()
        && !response.header_values(header::CACHE_CONTROL).any(is_no_transform)
}

/// The type of the parts is unknown.
fn is_byteranges(content_type: &HeaderValue) -> bool {
    essence(content_type) == "multipart/byteranges"
}

/// Returns whether `Trailer` announces a digest of a body that is not written yet.
fn names_digest(trailer: &HeaderValue) -> bool {
    FORBIDS.iter().any(|field| lists(trailer, field.as_str()))
}

fn bytes(response: &Response) -> Option<u64> {
    let declared = || response.header(header::CONTENT_LENGTH)?.parse().ok();
    response.body_bytes().or_else(declared)
}

/// RFC 9111 section 5.2.2.6
pub(super) fn is_no_transform(value: &HeaderValue) -> bool {
    lists(value, "no-transform")
}

fn lists(value: &HeaderValue, wanted: &str) -> bool {
    let elements = value.to_str().unwrap_or_default().split(',');
    elements.into_iter().any(|element| element.trim().eq_ignore_ascii_case(wanted))
}

/// Returns a media type without its parameters, in lower case.
fn essence(content_type: &HeaderValue) -> String {
    let text = content_type.to_str().unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Media types that are compressed.
#[derive(Clone, Debug)]
pub(super) enum MediaTypes {
    TextLike,
    /// In lower case. `text/*` is `text/`.
    Listed(Vec<String>),
}

impl MediaTypes {
    pub(super) fn listed<'t>(types: impl IntoIterator<Item = &'t str>) -> Result<MediaTypes> {
        let listed = types.into_iter().map(checked).collect::<Result<_>>()?;
        Ok(MediaTypes::Listed(listed))
    }

    fn include(&self, content_type: &HeaderValue) -> bool {
        let essence = essence(content_type);
        match self {
            _ if essence == EVENT_STREAM => false,
            MediaTypes::TextLike => is_text_like(&essence),
            MediaTypes::Listed(listed) => listed.iter().any(|listed| {
                *listed == essence || listed.ends_with('/') && essence.starts_with(listed.as_str())
            }),
        }
    }
}

const EVENT_STREAM: &str = "text/event-stream";

fn checked(media_type: &str) -> Result<String> {
    let name = media_type.to_ascii_lowercase();
    let is_name = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    match name.split_once('/') {
        Some((kind, "*")) if is_name(kind) => Ok(format!("{kind}/")),
        Some((kind, subtype)) if is_name(kind) && is_name(subtype) && name != EVENT_STREAM => Ok(name),
        _ => Err(Error::setting(
            "media type",
            media_type,
            "text/* or application/json, for example, without parameters, and not text/event-stream",
        )),
    }
}

fn is_text_like(essence: &str) -> bool {
    match essence.split_once('/') {
        Some(("text", _)) => true,
        Some(("application", kind)) => {
            matches!(
                kind,
                "javascript" | "json" | "xml" | "wasm" | "x-ndjson" | "sql" | "rtf" | "x-javascript"
            ) || kind.ends_with("+json")
                || kind.ends_with("+xml")
        }
        Some(("image", kind)) => matches!(kind, "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon"),
        Some(("font", kind)) => matches!(kind, "ttf" | "otf" | "collection"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    //! Tests each kind of response.

    use super::*;

    #[test]
    fn types() {
        for (content_type, yes) in [
            ("text/plain; charset=utf-8", true),
            ("text/html", true),
            ("TEXT/CSS", true),
            ("application/json", true),
            ("application/problem+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("font/ttf", true),
            ("application/x-ndjson", true),
            ("text/event-stream", false),
            ("Text/Event-Stream; charset=utf-8", false),
            ("image/png", false),
            ("video/mp4", false),
            ("application/zip", false),
            ("font/woff2", false),
            ("application/octet-stream", false),
            ("application/grpc", false),
            ("multipart/byteranges", false),
            ("", false),
            ("text", false),
        ] {
            let content_type = HeaderValue::from_static(content_type);
            assert_eq!(MediaTypes::TextLike.include(&content_type), yes, "{content_type:?}");
        }
    }

    #[test]
    fn listed_types() {
        let types = MediaTypes::listed(["Text/*", "application/vnd.Example+cbor"]).unwrap();
        for (content_type, yes) in [
            ("text/css; charset=utf-8", true),
            ("TEXT/plain", true),
            ("Application/vnd.example+CBOR;v=1", true),
            ("text/event-stream", false),
            ("application/json", false),
            ("texts/x", false),
            ("text", false),
        ] {
            assert_eq!(types.include(&HeaderValue::from_static(content_type)), yes, "{content_type}");
        }
        for wrong in ["", "text", "text/", "/css", "*/*", "text/*;q=1", "text/css; a=b", "text/event-stream"]
        {
            assert!(MediaTypes::listed([wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_transform_is_found_among_others() {
        for (value, yes) in [
            ("no-transform", true),
            ("public, No-Transform ,max-age=1", true),
            ("no-transformers", false),
            ("", false),
        ] {
            assert_eq!(is_no_transform(&HeaderValue::from_static(value)), yes, "{value}");
        }
    }
}
