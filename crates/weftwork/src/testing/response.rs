//! What did the server answer?

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use weftwork_wire::{BodyEvent, Limits, ResponseFault, ResponseReader};

/// A response to a [`TestClient`](super::TestClient), whole.
#[derive(Clone)]
#[non_exhaustive]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The fields behind a chunked body.
    pub trailers: HeaderMap,
    /// The 1xx responses that came before it, `100 Continue` among them.
    pub interims: Vec<(StatusCode, HeaderMap)>,
    body: Bytes,
    whole: bool,
}

impl TestResponse {
    /// The first value of the header `name` (case does not matter), when it is text.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name.as_ref())?.as_bytes()).ok()
    }

    /// Every value of the header `name` (case does not matter), as it was sent.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &HeaderValue> {
        self.headers.get_all(name.as_ref()).iter()
    }

    /// The body.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The body as text.
    ///
    /// # Panics
    /// It is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match std::str::from_utf8(&self.body) {
            Ok(text) => text,
            Err(error) => panic!("the body is not text ({error}): {self:?}"),
        }
    }

    /// The body, read as JSON.
    ///
    /// # Panics
    /// It is not JSON, or another one; the message shows the body.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body is not the JSON that was expected ({error}): {self:?}"),
        }
    }

    /// False: the client left in the middle of it, as it was asked to.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// It says that the connection ends behind it.
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

/// There was no whole response.
#[derive(Clone, Debug)]
pub struct NoResponse {
    why: String,
    received: Bytes,
    partial: Option<Box<TestResponse>>,
}

impl NoResponse {
    fn new(why: impl Into<String>, received: &[u8]) -> NoResponse {
        NoResponse { why: why.into(), received: Bytes::copy_from_slice(received), partial: None }
    }

    /// It was the client that left.
    pub(super) fn client_full(self) -> NoResponse {
        let why = "the client of the test has left with 64 MiB of a response, and holds no more".to_owned();
        NoResponse { why, ..self }
    }

    /// All that came instead.
    pub fn received(&self) -> &Bytes {
        &self.received
    }

    /// The response as far as it came, when its head was whole.
    pub fn partial(&self) -> Option<&TestResponse> {
        self.partial.as_deref()
    }

    /// What came is a response as far as it goes.
    #[cfg(test)]
    pub(crate) fn is_cut(&self) -> bool {
        !self.why.starts_with("not a response")
    }

    /// For a client that left when it had seen enough.
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

/// Takes the response to `method` at the start of `bytes`, and leaves what is behind it.
pub(crate) fn take_response(
    bytes: &mut Vec<u8>,
    method: &Method,
    ended: bool,
) -> Result<TestResponse, NoResponse> {
    let mut response = TestResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        trailers: HeaderMap::new(),
        interims: Vec::new(),
        body: Bytes::new(),
        whole: true,
    };
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

/// A handler may answer with whatever it likes to.
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

/// How many of `bytes` it took.
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
