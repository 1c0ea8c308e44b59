//! Responses with a file: the whole file, a part, or no body, and the fields that describe it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::fields::{ByteRange, Conditions, Precondition, Ranges, Validators};

use super::NOSNIFF;
use super::byteranges;
use super::content_hash::ContentHashes;
use super::error::problem;
use super::metadata::FileMetadata;
use super::root::{Content, ContentSource};
use crate::message::{BodyPart, Payload, Request, Response};

/// Constants, because values that are made for each response have their bytes checked each time.
const VARY: (HeaderName, HeaderValue) = (header::VARY, HeaderValue::from_static("Accept-Encoding"));
const ACCEPT_RANGES: (HeaderName, HeaderValue) = (header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
/// Maximum number of fields, including `Content-Range`. The content type is not among them.
const FIELDS_MAX: usize = 8;

/// A file as it is sent to one client.
pub(super) struct Representation<'a> {
    pub(super) content: Content,
    pub(super) content_type: &'a HeaderValue,
    pub(super) coding: Option<&'static str>,
    /// Whether other clients may get another coding.
    pub(super) varies: bool,
    pub(super) cache_control: Option<&'a HeaderValue>,
    pub(super) hashes: &'a ContentHashes,
}

impl Representation<'_> {
    pub(super) fn respond(self, req: &Request<'_>) -> Response {
        let metadata = self.content.metadata(self.coding, self.hashes);
        let state = metadata.validators(&self.content);
        let conditions = Conditions::of(req.fields());
        let mut response = match conditions.precondition(true, &state) {
            Precondition::Failed => {
                return problem(
                    StatusCode::PRECONDITION_FAILED,
                    "the file does not match the conditions of the request",
                );
            }
            Precondition::NotModified => Response::new(StatusCode::NOT_MODIFIED),
            // RFC 9110 section 14.2: a range has no meaning with other methods.
            Precondition::Holds if *req.method() != Method::GET => self.whole(false),
            Precondition::Holds => match conditions.ranges(&self.validates_parts(state), self.content.length)
            {
                Ranges::Whole => self.whole(true),
                // RFC 9110 section 8.4: `Content-Encoding` would apply to the multipart body, but each part is
                // encoded separately.
                Ranges::Parts(parts) if parts.len() > 1 && self.coding.is_some() => self.whole(true),
                Ranges::Parts(parts) => self.parts(&parts),
                Ranges::Unsatisfiable => return self.unsatisfiable(),
            },
        };
        self.describe(&mut response, metadata);
        response
    }

    /// RFC 9110 section 8.8.1: the date is a weak validator if several representations share it.
    fn validates_parts<'a>(&self, state: Validators<'a>) -> Validators<'a> {
        if self.varies { Validators { modified: None, ..state } } else { state }
    }

    /// RFC 9110 section 15.4.5: a 304 has these fields too.
    fn describe(&self, response: &mut Response, metadata: FileMetadata) {
        let fields = &mut response.fields;
        fields.extend(metadata.tag.map(|tag| (header::ETAG, tag)));
        fields.extend(metadata.modified.map(|date| (header::LAST_MODIFIED, date)));
        if self.varies {
            fields.push(VARY);
        }
        fields.extend(self.cache_control.map(|value| (header::CACHE_CONTROL, value.clone())));
        if response.status == StatusCode::NOT_MODIFIED {
            return;
        }
        fields.push(ACCEPT_RANGES);
        let coding = self.coding.map(HeaderValue::from_static);
        fields.extend(coding.map(|coding| (header::CONTENT_ENCODING, coding)));
        fields.push(NOSNIFF);
    }

    fn whole(&self, is_sent: bool) -> Response {
        let payload = self.payload(0, self.content.length, is_sent);
        self.with(StatusCode::OK, self.content_type.clone(), payload)
    }

    /// RFC 9110 section 15.3.7: a single part is sent as it is, several as `multipart/byteranges`.
    fn parts(&self, ranges: &[ByteRange]) -> Response {
        let length = self.content.length;
        if let [range] = ranges {
            let payload = self.payload(range.first, range.count(), true);
            let mut response = self.with(StatusCode::PARTIAL_CONTENT, self.content_type.clone(), payload);
            let place = format!("bytes {}-{}/{length}", range.first, range.last);
            let place = HeaderValue::try_from(place).ok();
            response.fields.extend(place.map(|place| (header::CONTENT_RANGE, place)));
            return response;
        }
        let (content_type, body) =
            byteranges::multipart(ranges, length, self.content_type, |range| self.part(range));
        self.with(StatusCode::PARTIAL_CONTENT, content_type, Payload::Parts(body))
    }

    fn part(&self, range: ByteRange) -> BodyPart {
        match &self.content.source {
            ContentSource::Bytes(bytes) => BodyPart::Bytes(slice(bytes, range.first, range.count())),
            ContentSource::File(opened) => {
                BodyPart::File { file: opened.file.clone(), offset: range.first, count: range.count() }
            }
        }
    }

    fn payload(&self, offset: u64, count: u64, is_sent: bool) -> Payload {
        match &self.content.source {
            ContentSource::Bytes(bytes) => Payload::Bytes(slice(bytes, offset, count)),
            ContentSource::File(opened) => Payload::File {
                file: opened.file.clone(),
                offset,
                count,
                read: if is_sent { opened.cached(&self.content, offset, count) } else { None },
            },
        }
    }

    fn with(&self, status: StatusCode, content_type: HeaderValue, payload: Payload) -> Response {
        let fields = Vec::with_capacity(FIELDS_MAX);
        Response { content_type: Some(content_type), payload, fields, ..Response::new(status) }
    }

    /// RFC 9110 section 15.5.17: the response states the length.
    fn unsatisfiable(&self) -> Response {
        let response = problem(StatusCode::RANGE_NOT_SATISFIABLE, "the file ends before the requested range");
        match HeaderValue::try_from(format!("bytes */{}", self.content.length)) {
            Ok(length) => response.with_header(header::CONTENT_RANGE, length),
            Err(_) => response,
        }
    }
}

/// Returns a slice. The range must be within the bytes.
pub(super) fn slice(bytes: &Bytes, offset: u64, count: u64) -> Bytes {
    bytes.slice(offset as usize..(offset + count) as usize)
}

#[cfg(test)]
mod tests {
    use crate::{TestClient, embedded};

    /// RFC 9110 section 8.4: the coding would be that of the multipart.
    #[test]
    fn several_parts_are_never_parts_of_what_is_coded() {
        static SITE: &[(&str, &[u8])] = &[("app.js", &[b'a'; 9999]), ("app.js.br", &[b'b'; 999])];
        let mut client = TestClient::new(embedded(SITE));
        for (coding, ranges, status, length) in [
            ("br", "0-0,900-901", 200, Some(999)),
            ("br", "0-0,1-1", 206, Some(2)),
            ("identity", "0-0,900-901", 206, None),
        ] {
            let request = client.get("/app.js").header("accept-encoding", coding);
            let answer = request.header("range", format!("bytes={ranges}")).send();
            assert_eq!(answer.status.as_u16(), status, "{coding} {ranges}");
            assert_eq!(answer.header("content-encoding"), Some(coding).filter(|coding| *coding == "br"));
            let is_multipart =
                answer.header("content-type").is_some_and(|kind| kind.starts_with("multipart/"));
            assert_eq!(is_multipart, length.is_none(), "{coding} {ranges}");
            assert!(length.is_none_or(|length| answer.text().len() == length), "{coding} {ranges}");
        }
    }
}
