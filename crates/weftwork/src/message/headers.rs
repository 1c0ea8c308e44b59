//! Reading and changing the headers and body of a finished response.

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::drop_caught::GuardedExtensions;
use super::into_response::IntoResponse;
use super::problem::{PROBLEM_JSON, Problem};
use super::response::{BodyPart, Payload, Response};
use crate::error::{Error, Result};

/// Fields that describe content, and are meaningless without it.
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

/// Validators of a representation.
pub(super) const OF_STATE: [HeaderName; 2] = [header::ETAG, header::LAST_MODIFIED];

/// Fields to which several handlers may add.
const OF_SEVERAL: [HeaderName; 5] =
    [header::LINK, HeaderName::from_static("server-timing"), header::SET_COOKIE, header::VARY, header::VIA];

/// Fields for a single connection, whether or not `Connection` names them (RFC 9110 section 7.6.1).
pub(crate) const CONNECTION_FIELDS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

/// Fields about the location, validation and caching of a success.
const OF_SUCCESS: [HeaderName; 7] = [
    header::AGE,
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::LOCATION,
];

/// Converts the name and the value of a header.
#[track_caller]
pub(super) fn converted<N, V>(name: N, value: V) -> Result<(HeaderName, HeaderValue)>
where
    N: TryInto<HeaderName, Error: Into<http::Error>>,
    V: TryInto<HeaderValue, Error: Into<http::Error>>,
{
    let name = match name.try_into() {
        Ok(name) => name,
        Err(error) => return Err(Error::http("the name of a header".into(), error.into())),
    };
    match value.try_into() {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(Error::http(format!("the value of {name}"), error.into())),
    }
}

/// Joins the values of two responses. A problem is that of the first one, which is sent.
fn joined(mut own: GuardedExtensions, mut others: GuardedExtensions) -> GuardedExtensions {
    others.remove::<Problem>();
    if !own.is_empty() {
        others.extend(own.take());
    }
    others
}

/// Methods for middleware, which gets a response from another handler.
impl Response {
    /// Replaces the status. A response with an error of the server ([`Response::error`]) does not become a success.
    pub fn set_status(&mut self, status: StatusCode) {
        if status.is_success() && self.error().is_some() {
            return;
        }
        self.status = status;
        // A new status makes this a response of the handler. The problem that was there describes a 404.
        let is_error = status.is_client_error() || status.is_server_error();
        if std::mem::take(&mut self.declined) && is_error && self.content_type == Some(PROBLEM_JSON) {
            let mut made = Problem::new(status).into_response();
            self.payload = made.payload;
            self.extensions.extend(made.extensions.take());
        }
    }

    /// Returns the first value of the header `name` (in any case) if it is text. `Content-Type` is included.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        let value = self.header_values(name).next()?;
        std::str::from_utf8(value.as_bytes()).ok()
    }

    /// Returns every value of the header `name` (in any case), in order.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &HeaderValue> {
        let is_type = name.as_ref().eq_ignore_ascii_case(header::CONTENT_TYPE.as_str());
        let content_type = self.content_type.as_ref().filter(|_| is_type);
        let named =
            self.fields.iter().filter(move |(field, _)| field.as_str().eq_ignore_ascii_case(name.as_ref()));
        content_type.into_iter().chain(named.map(|(_, value)| value))
    }

    /// Returns all headers as a map, `Content-Type` included. The map is a copy. To read one header, use
    /// [`header`](Response::header). To go through them without a copy, use [`header_lines`](Response::header_lines).
    pub fn headers(&self) -> HeaderMap {
        let content_type = self.content_type.clone().map(|value| (header::CONTENT_TYPE, value));
        let mut map = HeaderMap::with_capacity(self.fields.len() + 1);
        for (name, value) in content_type.into_iter().chain(self.fields.iter().cloned()) {
            map.append(name, value);
        }
        map
    }

    /// Replaces all headers `name` with this one. Types and faults are those of [`with_header`](Response::with_header).
    #[track_caller]
    pub fn set_header<N, V>(&mut self, name: N, value: V)
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match converted(name, value) {
            Ok((name, value)) => {
                self.remove_header(&name);
                self.push_header(name, value);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Adds a header. Existing headers of that name stay (except `Content-Type`, which is replaced). Types and faults are
    /// those of [`with_header`](Response::with_header).
    #[track_caller]
    pub fn append_header<N, V>(&mut self, name: N, value: V)
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match converted(name, value) {
            Ok((name, value)) => self.push_header(name, value),
            Err(error) => self.fail(error),
        }
    }

    fn push_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_TYPE {
            self.set_content_type(value);
        } else {
            self.fields.push((name, value));
        }
    }

    /// Replaces all headers that `fields` names.
    pub(super) fn replace_headers(&mut self, fields: Vec<(HeaderName, HeaderValue)>) {
        for (name, _) in &fields {
            self.remove_header(name);
        }
        fields.into_iter().for_each(|(name, value)| self.push_header(name, value));
    }

    /// Becomes the response to an error of the server, and keeps the headers that middleware has set.
    pub(super) fn fail(&mut self, error: Error) {
        *self = Response::failed(error).in_place_of(std::mem::take(self));
    }

    pub(super) fn set_content_type(&mut self, value: HeaderValue) {
        self.content_type = Some(value);
        self.declined = false;
    }

    /// Removes all headers `name` (in any case), and returns the first value.
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

    /// Returns the length of the body, if it is known. The length of a stream is unknown, even if a `Content-Length`
    /// field declares one.
    pub fn body_bytes(&self) -> Option<u64> {
        match &self.payload {
            Payload::Empty => Some(0),
            Payload::Bytes(bytes) => Some(bytes.len() as u64),
            Payload::File { count, .. } => Some(*count),
            Payload::Parts(parts) => Some(parts.iter().map(BodyPart::count).sum()),
            Payload::HandlerError(failed) => Some(failed.body.len() as u64),
            Payload::Stream(_) | Payload::LongLived(_) => None,
        }
    }

    /// Returns a response of the types of other libraries. Fields that the connection writes itself are left out:
    /// `Content-Length`, `Transfer-Encoding`, `Connection` and the other ones of a connection (RFC 9110 section 7.6.1).
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn from_other(answer: http::Response<String>) -> Response {
    ///     let (head, body) = answer.into_parts();
    ///     Response::from_parts(head.status, head.headers, body)
    /// }
    /// # use weftwork::http;
    /// let answer = http::Response::builder().status(201).header("x-key", "value").body("made".to_owned());
    /// let response = from_other(answer?);
    /// assert_eq!(response.header("x-key"), Some("value"));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn from_parts(status: StatusCode, headers: HeaderMap, body: impl Into<Bytes>) -> Response {
        let mut response = Response { payload: Payload::Bytes(body.into()), ..Response::new(status) };
        let mut last = None;
        // A name comes with its first value only.
        for (name, value) in headers {
            last = name.or(last);
            let Some(name) = &last else { continue };
            if *name != header::CONTENT_LENGTH && !CONNECTION_FIELDS.contains(&name.as_str()) {
                response.append_header(name.clone(), value);
            }
        }
        response
    }

    /// Returns the body if all of it is in memory.
    pub fn body(&self) -> Option<&Bytes> {
        match &self.payload {
            Payload::Bytes(bytes) => Some(bytes),
            Payload::HandlerError(failed) => Some(&failed.body),
            _ => None,
        }
    }

    /// Returns whether the body is produced while it is sent.
    pub fn is_streaming(&self) -> bool {
        self.body_bytes().is_none()
    }

    /// Returns the values that handlers and middleware pass to outer middleware. They are not sent. A
    /// [`problem`](Response::problem) is among them.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// #[derive(Clone)]
    /// struct Rows(usize);
    ///
    /// fn list(_: &mut Request) -> Response {
    ///     let mut response = text("tea\n");
    ///     response.extensions_mut().insert(Rows(1));
    ///     response
    /// }
    /// fn counted(req: &mut Request, next: Next) -> Response {
    ///     let response = next.run(req);
    ///     let rows = response.extensions().get().map_or(0, |Rows(rows)| *rows);
    ///     response.with_header("x-rows", rows)
    /// }
    /// let answer = weftwork::TestClient::new(list.with(counted)).get("/").send();
    /// assert_eq!(answer.header("x-rows"), Some("1"));
    /// ```
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the [`extensions`](Response::extensions) to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Replaces the body. The headers stay, except `Content-Length`, and so does its [`error`](Response::error). Its
    /// [`problem`](Response::problem) goes, because the body no longer reports it.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.declined = false;
        self.extensions.remove::<Problem>();
        self.with_coded_body(body.into())
    }

    /// Replaces the body by the same one in another coding.
    pub(crate) fn with_coded_body(mut self, body: Bytes) -> Response {
        self.remove_header(header::CONTENT_LENGTH);
        match &mut self.payload {
            Payload::HandlerError(failed) => failed.body = body,
            payload => *payload = Payload::Bytes(body),
        }
        self
    }

    /// Replaces a response that was `meant` with an error, and keeps its headers except those of its content.
    /// Middleware has set there who may read the response, and to which request it belongs. The headers of the error
    /// take precedence.
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
        self.extensions = joined(self.extensions, meant.extensions);
        self
    }

    /// Replaces a placeholder, and keeps its headers, because middleware has set them. If a header may occur only once,
    /// the replacement's own value takes precedence.
    pub(crate) fn joined_with(mut self, placeholder: Response) -> Response {
        let own = self.fields.len();
        for (name, value) in placeholder.fields {
            let is_own = self.fields[..own].iter().any(|(field, _)| *field == name);
            if !is_own || OF_SEVERAL.contains(&name) {
                self.fields.push((name, value));
            }
        }
        self.close |= placeholder.close;
        self.extensions = joined(self.extensions, placeholder.extensions);
        self
    }

    /// Removes the body. The headers stay, except `Content-Length`, and so does its [`error`](Response::error), but not its
    /// [`problem`](Response::problem).
    #[must_use]
    pub fn without_body(mut self) -> Response {
        self.remove_header(header::CONTENT_LENGTH);
        self.extensions.remove::<Problem>();
        match &mut self.payload {
            Payload::HandlerError(failed) => failed.body = Bytes::new(),
            payload => *payload = Payload::Empty,
        }
        self
    }
}
