//! How are the headers and the body of a response looked at and changed, when it is made already?

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::into_response::IntoResponse;
use super::problem::{PROBLEM_JSON, Problem};
use super::response::{Part, Payload, Response};

/// What describes content, and says nothing where that is not sent.
pub(crate) const OF_CONTENT: [HeaderName; 12] = [
    header::ACCEPT_RANGES,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::TRAILER,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// By what the state of a body is known again.
pub(super) const OF_STATE: [HeaderName; 2] = [header::ETAG, header::LAST_MODIFIED];

/// What may be said by several, each for itself.
const OF_SEVERAL: [HeaderName; 5] =
    [header::LINK, HeaderName::from_static("server-timing"), header::SET_COOKIE, header::VARY, header::VIA];

/// What is for one connection alone, whether or not it is named in `Connection` (RFC 9110 section 7.6.1).
pub(crate) const CONNECTION_FIELDS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

/// Where a success is found, how it is known again, and for how long.
const OF_SUCCESS: [HeaderName; 7] = [
    header::AGE,
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::LOCATION,
];

/// For middleware, which gets a response that somebody else made.
impl Response {
    /// Replaces the status. A response that tells of an error of ours ([`Response::error`]) does not become a success.
    pub fn set_status(&mut self, status: StatusCode) {
        if status.is_success() && self.error().is_some() {
            return;
        }
        self.status = status;
        // Whoever chooses a status has an answer. The problem that was there speaks of 404.
        let is_error = status.is_client_error() || status.is_server_error();
        if std::mem::take(&mut self.declined) && is_error && self.content_type == Some(PROBLEM_JSON) {
            self.payload = Problem::new(status).into_response().payload;
        }
    }

    /// The first value of the header `name` (case does not matter), when it is text; `Content-Type` counts too.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        let value = self.header_values(name).next()?;
        std::str::from_utf8(value.as_bytes()).ok()
    }

    /// Every value of the header `name` (case does not matter), in order.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &HeaderValue> {
        let is_type = name.as_ref().eq_ignore_ascii_case(header::CONTENT_TYPE.as_str());
        let content_type = self.content_type.as_ref().filter(|_| is_type);
        let named =
            self.fields.iter().filter(move |(field, _)| field.as_str().eq_ignore_ascii_case(name.as_ref()));
        content_type.into_iter().chain(named.map(|(_, value)| value))
    }

    /// Replaces every header `name` by this one.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_header(&name);
        self.append_header(name, value);
    }

    /// Adds a header; those of that name which are there already stay (but for `Content-Type`, of which there
    /// is one).
    pub fn append_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_TYPE {
            self.set_content_type(value);
        } else {
            self.fields.push((name, value));
        }
    }

    pub(super) fn set_content_type(&mut self, value: HeaderValue) {
        self.content_type = Some(value);
        self.declined = false;
    }

    /// Removes every header `name` (case does not matter), and gives the first value of them.
    pub fn remove_header(&mut self, name: impl AsRef<str>) -> Option<HeaderValue> {
        let is_named = |field: &HeaderName| field.as_str().eq_ignore_ascii_case(name.as_ref());
        if is_named(&header::CONTENT_TYPE) {
            return self.content_type.take();
        }
        let first = self.fields.iter().position(|(field, _)| is_named(field))?;
        let (_, value) = self.fields.remove(first);
        self.fields.retain(|(field, _)| !is_named(field));
        Some(value)
    }

    /// How many bytes the body has, when that is known before it is sent: of a stream it is not, even where a
    /// `Content-Length` field promises some number.
    pub fn body_bytes(&self) -> Option<u64> {
        match &self.payload {
            Payload::Empty => Some(0),
            Payload::Bytes(bytes) => Some(bytes.len() as u64),
            Payload::File { count, .. } => Some(*count),
            Payload::Parts(parts) => Some(parts.iter().map(Part::count).sum()),
            Payload::Failed(failed) => Some(failed.said.len() as u64),
            Payload::Stream(_) | Payload::Lasting(_) => None,
        }
    }

    /// The body, when all of it is in memory.
    pub fn body(&self) -> Option<&Bytes> {
        match &self.payload {
            Payload::Bytes(bytes) => Some(bytes),
            Payload::Failed(failed) => Some(&failed.said),
            _ => None,
        }
    }

    /// Whether the body is produced later, while it is sent.
    pub fn is_streaming(&self) -> bool {
        self.body_bytes().is_none()
    }

    /// The same with another body, whatever the first one was. Its headers stay, but a `Content-Length`; so does its
    /// [`error`](Response::error).
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.remove_header(header::CONTENT_LENGTH);
        self.declined = false;
        match &mut self.payload {
            Payload::Failed(failed) => failed.said = body.into(),
            payload => *payload = Payload::Bytes(body.into()),
        }
        self
    }

    /// The same, an error in place of a response that was `meant`, with the headers of that but for those of its content:
    /// middleware has said there who may read it, and which request it is. Its own count more.
    pub(crate) fn in_place_of(mut self, meant: Response) -> Response {
        let is_own = |name: &HeaderName| self.fields.iter().any(|(own, _)| own == name);
        let goes = |name: &HeaderName| {
            CONNECTION_FIELDS.contains(&name.as_str())
                || *name == header::DATE
                || OF_CONTENT.contains(name)
                || OF_SUCCESS.contains(name)
                || is_own(name)
        };
        let kept: Vec<_> = meant.fields.into_iter().filter(|(name, _)| !goes(name)).collect();
        self.fields.extend(kept);
        self
    }

    /// The same, in place of one that stood in for it, with the headers of that: they are what middleware has to say. Of those that
    /// there can be only one of, its own count more.
    pub(crate) fn joined_with(mut self, stand_in: Response) -> Response {
        let own = self.fields.len();
        for (name, value) in stand_in.fields {
            let is_own = self.fields[..own].iter().any(|(field, _)| *field == name);
            if !is_own || OF_SEVERAL.contains(&name) {
                self.fields.push((name, value));
            }
        }
        self.close |= stand_in.close;
        self
    }

    /// The same without a body. Its headers stay, but a `Content-Length`; so does its [`error`](Response::error).
    #[must_use]
    pub fn without_body(mut self) -> Response {
        self.remove_header(header::CONTENT_LENGTH);
        match &mut self.payload {
            Payload::Failed(failed) => failed.said = Bytes::new(),
            payload => *payload = Payload::Empty,
        }
        self
    }
}
