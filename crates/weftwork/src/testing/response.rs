//! A response to the test client.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use weftwork_wire::{BodyEvent, Limits, ResponseFault, ResponseReader};

/// A complete response to a [`TestClient`](super::TestClient).
#[derive(Clone)]
#[non_exhaustive]
pub struct TestResponse {
    /// Status of the response.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Fields after a chunked body.
    pub trailers: HeaderMap,
    /// Earlier 1xx responses, including `100 Continue`.
    pub interims: Vec<(StatusCode, HeaderMap)>,
    body: Bytes,
    whole: bool,
}

impl TestResponse {
    pub(super) fn empty() -> TestResponse {
        TestResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            trailers: HeaderMap::new(),
            interims: Vec::new(),
            body: Bytes::new(),
            whole: true,
        }
    }

    pub(super) fn with_body(self, body: Vec<u8>, whole: bool) -> TestResponse {
        TestResponse { body: body.into(), whole, ..self }
    }

    /// Returns the first value of the header `name`, in any case, if it is text.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name.as_ref())?.as_bytes()).ok()
    }

    /// Returns every value of the header `name`, in any case, as it was sent.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &HeaderValue> {
        self.headers.get_all(name.as_ref()).iter()
    }

    /// Returns the body.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// Returns the body as text.
    ///
    /// # Panics
    /// Panics if the body is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match std::str::from_utf8(&self.body) {
            Ok(text) => text,
            Err(error) => panic!("the body is not text ({error}): {self:?}"),
        }
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    /// Panics if the body is not the expected JSON. The message shows the body.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body is not the expected JSON ({error}): {self:?}"),
        }
    }

    /// Returns false if the client was told to disconnect and did so before the end.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether the response closes the connection.
    pub fn closes(&self) -> bool {
        self.header(header::CONNECTION).is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(500)]);
        write!(f, "{} {:?}, {} bytes: {shown:?}", self.status, self.headers, self.body.len())
    }
}

/// The error for a missing or incomplete response.
#[derive(Clone, Debug)]
pub struct NoResponse {
    why: String,
    received: Bytes,
    partial: Option<Box<TestResponse>>,
}

impl NoResponse {
    pub(super) fn new(why: impl Into<String>, received: &[u8]) -> NoResponse {
        NoResponse { why: why.into(), received: Bytes::copy_from_slice(received), partial: None }
    }

    pub(super) fn with_partial(self, partial: Option<TestResponse>) -> NoResponse {
        NoResponse { partial: partial.map(Box::new), ..self }
    }

    /// Explains that the client disconnected.
    pub(super) fn client_full(self) -> NoResponse {
        let why = "the test client disconnected because it holds 64 MiB of a response".to_owned();
        NoResponse { why, ..self }
    }

    /// Returns all bytes that arrived instead.
    pub fn received(&self) -> &Bytes {
        &self.received
    }

    /// Returns the incomplete response, if its head was complete.
    pub fn partial(&self) -> Option<&TestResponse> {
        self.partial.as_deref()
    }

    /// Returns whether the bytes are a valid beginning of a response.
    #[cfg(test)]
    pub(crate) fn is_cut(&self) -> bool {
        !self.why.starts_with("not a response")
    }

    /// Returns the incomplete response for a client that was told to disconnect.
    pub(super) fn or_partial(mut self) -> Result<TestResponse, NoResponse> {
        self.partial.take().map(|response| *response).ok_or(self)
    }
}

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.received[..self.received.len().min(500)]);
        write!(f, "{} ({} bytes came: {shown:?})", self.why, self.received.len())
    }
}

impl std::error::Error for NoResponse {}

/// Takes the response to `method` from the start of `bytes` and leaves the rest.
pub(crate) fn take_response(
    bytes: &mut Vec<u8>,
    method: &Method,
    ended: bool,
) -> Result<TestResponse, NoResponse> {
    let mut response = TestResponse::empty();
    let mut body = Vec::new();
    let read = read(bytes, method, ended, &mut response, &mut body);
    response.body = body.into();
    match read {
        Ok(used) => {
            bytes.drain(..used);
            Ok(response)
        }
        Err(ReadError::Malformed(fault)) => Err(NoResponse::new(format!("not a response: {fault}"), bytes)),
        Err(ReadError::Short { within }) => {
            let why = match ended {
                true => "the server ended the connection",
                false => "the server waits for more from the client, or for its clock",
            };
            let partial = (within == BODY).then(|| Box::new(TestResponse { whole: false, ..response }));
            Err(NoResponse { partial, ..NoResponse::new(format!("{why} before the end of {within}"), bytes) })
        }
    }
}

const BODY: &str = "the body";

/// A handler may send any response.
pub(super) const NO_LIMITS: Limits = Limits {
    request_line_bytes_max: u32::MAX,
    head_bytes_max: u32::MAX,
    fields_max: u32::MAX,
    chunk_extension_bytes_max: u32::MAX,
};

enum ReadError {
    Short { within: &'static str },
    Malformed(ResponseFault),
}

impl From<ResponseFault> for ReadError {
    fn from(fault: ResponseFault) -> ReadError {
        ReadError::Malformed(fault)
    }
}

/// Reads a response and returns its size in `bytes`.
fn read(
    bytes: &[u8],
    method: &Method,
    ended: bool,
    response: &mut TestResponse,
    body: &mut Vec<u8>,
) -> Result<usize, ReadError> {
    let (mut reader, mut at) = (ResponseReader::new(), 0);
    loop {
        let head = reader.read_head(&bytes[at..], method, &NO_LIMITS)?;
        let (used, head) = head.ok_or(ReadError::Short { within: "the head" })?;
        at += used;
        let headers = HeaderMap::from_iter(head.fields);
        if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
            (response.status, response.headers) = (head.status, headers);
            break;
        }
        response.interims.push((head.status, headers));
    }
    loop {
        let (used, event) = reader.read_body(&bytes[at..], &NO_LIMITS)?;
        if let BodyEvent::Data { start, len } = event {
            body.extend_from_slice(&bytes[at + start..][..len]);
        }
        at += used;
        match event {
            BodyEvent::Data { .. } => {}
            BodyEvent::End => break,
            BodyEvent::NeedMore if ended && reader.end().is_ok() => break,
            BodyEvent::NeedMore => return Err(ReadError::Short { within: BODY }),
        }
    }
    response.trailers = reader.trailers().iter().cloned().collect();
    Ok(at)
}
