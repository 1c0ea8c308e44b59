//! What did the server answer? Reads responses as RFC 9112 section 6.3 delimits them.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// A response to a [`TestClient`](super::TestClient), whole.
#[derive(Clone)]
#[non_exhaustive]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The fields of its head.
    pub headers: HeaderMap,
    /// The fields behind a chunked body.
    pub trailers: HeaderMap,
    /// The 1xx responses that came before it, `100 Continue` among them.
    pub interims: Vec<(StatusCode, HeaderMap)>,
    body: Bytes,
    whole: bool,
}

impl TestResponse {
    /// The first value of the field `name`, when it is ASCII.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        self.headers.get(name.as_ref())?.to_str().ok()
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
        write!(f, "{}; {} bytes came: {shown:?}", self.why, self.received.len())
    }
}

impl std::error::Error for NoResponse {}

/// Takes the response at the start of `bytes`, and leaves what is behind it.
pub(crate) fn take_response(
    bytes: &mut Vec<u8>,
    is_head: bool,
    ended: bool,
) -> Result<TestResponse, NoResponse> {
    let mut cursor = Cursor { bytes, at: 0 };
    let mut response = TestResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        trailers: HeaderMap::new(),
        interims: Vec::new(),
        body: Bytes::new(),
        whole: true,
    };
    let read = cursor.response(&mut response, is_head, ended);
    let used = cursor.at;
    match read {
        Ok(()) => {
            bytes.drain(..used);
            Ok(response)
        }
        Err(Stop::Malformed(why)) => Err(NoResponse::new(format!("not a response: {why}"), bytes)),
        Err(Stop::Short { within }) => {
            let why = match ended {
                true => "the server ended the connection",
                false => "the server waits for more from the client, or for its clock",
            };
            let partial = (within == "the body").then(|| Box::new(TestResponse { whole: false, ..response }));
            Err(NoResponse { partial, ..NoResponse::new(format!("{why} before the end of {within}"), bytes) })
        }
    }
}

enum Stop {
    Short { within: &'static str },
    Malformed(String),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn response(&mut self, into: &mut TestResponse, is_head: bool, ended: bool) -> Result<(), Stop> {
        loop {
            (into.status, into.headers) = self.head()?;
            if !into.status.is_informational() || into.status == StatusCode::SWITCHING_PROTOCOLS {
                break;
            }
            into.interims.push((into.status, std::mem::take(&mut into.headers)));
        }
        let mut body = Vec::new();
        let read = self.body(into, is_head, ended, &mut body);
        into.body = body.into();
        read
    }

    fn body(
        &mut self,
        response: &mut TestResponse,
        is_head: bool,
        ended: bool,
        body: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        const NONE: [StatusCode; 3] =
            [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
        if is_head || NONE.contains(&response.status) {
            return Ok(());
        }
        if response.headers.contains_key(header::TRANSFER_ENCODING) {
            return self.chunks(response, body);
        }
        let Some(length) = response.headers.get(header::CONTENT_LENGTH) else {
            body.extend_from_slice(self.take(self.bytes.len() - self.at, "the body")?);
            return if ended { Ok(()) } else { Err(Stop::Short { within: "the body" }) };
        };
        let length = length.to_str().ok().and_then(|length| length.parse().ok());
        let length = length.ok_or_else(|| Stop::Malformed("its Content-Length is no number".to_owned()))?;
        self.take_into(length, body)
    }

    fn chunks(&mut self, response: &mut TestResponse, body: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            let line = self.line("the body")?;
            let size = std::str::from_utf8(line).ok().and_then(|line| usize::from_str_radix(line, 16).ok());
            match size.ok_or_else(|| Stop::Malformed("a chunk has no size".to_owned()))? {
                0 => break,
                size => self.take_into(size, body)?,
            }
            if !self.line("the body")?.is_empty() {
                return Err(Stop::Malformed("a chunk is longer than its size".to_owned()));
            }
        }
        response.trailers = self.fields("the trailers")?;
        Ok(())
    }

    fn head(&mut self) -> Result<(StatusCode, HeaderMap), Stop> {
        let line = self.line("the head")?;
        let malformed = || Stop::Malformed(format!("the status line {:?}", String::from_utf8_lossy(line)));
        let rest = line.strip_prefix(b"HTTP/1.1 ").ok_or_else(malformed)?;
        let (status, reason) = rest.split_at_checked(3).ok_or_else(malformed)?;
        if !reason.starts_with(b" ") {
            return Err(malformed());
        }
        Ok((StatusCode::from_bytes(status).map_err(|_| malformed())?, self.fields("the head")?))
    }

    fn fields(&mut self, within: &'static str) -> Result<HeaderMap, Stop> {
        let mut fields = HeaderMap::new();
        loop {
            let line = self.line(within)?;
            if line.is_empty() {
                return Ok(fields);
            }
            let field = line.iter().position(|byte| *byte == b':').and_then(|colon| {
                let name = HeaderName::from_bytes(&line[..colon]).ok()?;
                Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
            });
            let malformed = || Stop::Malformed(format!("the field {:?}", String::from_utf8_lossy(line)));
            let (name, value) = field.ok_or_else(malformed)?;
            fields.append(name, value);
        }
    }

    fn line(&mut self, within: &'static str) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n").ok_or(Stop::Short { within })?;
        self.at += end + 2;
        Ok(&rest[..end])
    }

    /// Takes what is there of `count` bytes, and says when that is not all.
    fn take_into(&mut self, count: usize, into: &mut Vec<u8>) -> Result<(), Stop> {
        let there = count.min(self.bytes.len() - self.at);
        into.extend_from_slice(self.take(there, "the body")?);
        if there < count { Err(Stop::Short { within: "the body" }) } else { Ok(()) }
    }

    fn take(&mut self, count: usize, within: &'static str) -> Result<&'a [u8], Stop> {
        let taken = self.bytes[self.at..].get(..count).ok_or(Stop::Short { within })?;
        self.at += count;
        Ok(taken)
    }
}
