//! A request of the test client.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

#[cfg(feature = "websocket")]
use http::StatusCode;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};

use super::TestClient;
use super::events::TestEvents;
use super::http2::{BodyStep, Outgoing, PendingResponse};
use super::pipe::ClientStep;
use super::response::{NoResponse, TestResponse};
#[cfg(feature = "websocket")]
use super::websocket::TestWebSocket;

/// A request of a [`TestClient`]. [`send`](TestRequest::send) sends it.
///
/// `Host: localhost` is added if there is no `Host`, and the body is framed.
#[must_use = "a request does nothing before it is sent"]
pub struct TestRequest<'c> {
    client: &'c mut TestClient,
    method: Method,
    target: String,
    version: Version,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Body,
    expects_continue: bool,
    leave_after: Option<u64>,
}

impl fmt::Debug for TestRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestRequest { method, target, .. } = self;
        f.debug_struct("TestRequest").field("method", method).field("target", target).finish_non_exhaustive()
    }
}

/// Long and unusual, so that no file of a test contains it.
const BOUNDARY: &str = "----weftwork-form-5b1f0c93e7a2";

enum Body {
    None,
    Whole(Vec<u8>),
    Chunks(Vec<Vec<u8>>, Duration),
}

impl<'c> TestRequest<'c> {
    pub(super) fn new(client: &'c mut TestClient, method: Method, target: String) -> TestRequest<'c> {
        TestRequest {
            client,
            method,
            target,
            version: Version::HTTP_11,
            fields: Vec::new(),
            body: Body::None,
            expects_continue: false,
            leave_after: None,
        }
    }

    /// Adds a header and keeps existing headers of that name.
    ///
    /// # Panics
    /// Panics if the name is not a token, or if the value has a control character. To send invalid headers, use
    /// [`TestConnection::send`](super::TestConnection::send).
    #[track_caller]
    pub fn header<N, V>(mut self, name: N, value: V) -> TestRequest<'c>
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let name = match name.try_into().map_err(Into::into) {
            Ok(name) => name,
            Err(error) => panic!("invalid header name: {error}"),
        };
        let value = match value.try_into().map_err(Into::into) {
            Ok(value) => value,
            Err(error) => panic!("invalid value of {name}: {error}"),
        };
        self.fields.push((name, value));
        self
    }

    /// Adds a query parameter and encodes it.
    pub fn query(mut self, name: &str, value: impl AsRef<str>) -> TestRequest<'c> {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        encode_pair(&mut self.target, name, value.as_ref());
        self
    }

    /// Sends these bytes with their `Content-Length`.
    pub fn body(self, bytes: impl Into<Vec<u8>>) -> TestRequest<'c> {
        TestRequest { body: Body::Whole(bytes.into()), ..self }
    }

    /// Sends the body in chunks. Each chunk is sent when the server waits for it, `pause` after the previous
    /// one.
    pub fn chunks<B: Into<Vec<u8>>>(
        self,
        chunks: impl IntoIterator<Item = B>,
        pause: Duration,
    ) -> TestRequest<'c> {
        let chunks = chunks.into_iter().map(Into::into).filter(|chunk: &Vec<u8>| !chunk.is_empty());
        TestRequest { body: Body::Chunks(chunks.collect(), pause), ..self }
    }

    /// Sends `value` as `application/json`.
    ///
    /// # Panics
    /// Panics if `value` cannot be written as JSON.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> TestRequest<'c> {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.header(header::CONTENT_TYPE, "application/json").body(bytes),
            Err(error) => panic!("the body cannot be written as JSON: {error}"),
        }
    }

    /// Sends these pairs as `application/x-www-form-urlencoded`.
    pub fn form<K: AsRef<str>, V: AsRef<str>>(
        self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> TestRequest<'c> {
        let mut text = String::new();
        for (name, value) in pairs {
            if !text.is_empty() {
                text.push('&');
            }
            encode_pair(&mut text, name.as_ref(), value.as_ref());
        }
        self.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(text)
    }

    /// Sends a form with files as `multipart/form-data`. A field has a name and a value. A file has the name of
    /// its field, a file name and content.
    ///
    /// ```
    /// # #[cfg(feature = "multipart")]
    /// # {
    /// use weftwork::{Request, Result, TestClient};
    ///
    /// let upload = |req: &mut Request| -> Result<String> {
    ///     let form = req.multipart()?.form()?;
    ///     let bytes = form.upload("file").map_or(0, |file| file.bytes());
    ///     Ok(format!("{}: {bytes} bytes", form.value("title").unwrap_or_default()))
    /// };
    /// let mut client = TestClient::new(upload);
    /// let sent = client.post("/").multipart(&[("title", "tea")], &[("file", "tea.txt", b"green")]);
    /// assert_eq!(sent.send().text(), "tea: 5 bytes");
    /// # }
    /// ```
    pub fn multipart(self, fields: &[(&str, &str)], files: &[(&str, &str, &[u8])]) -> TestRequest<'c> {
        let mut body = Vec::new();
        let mut part = |name: &str, file: &str, data: &[u8]| {
            let head =
                format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"{file}", quoted(name));
            body.extend_from_slice(&[head.as_bytes(), b"\r\n\r\n", data, b"\r\n"].concat());
        };
        for (name, value) in fields {
            part(name, "", value.as_bytes());
        }
        for (name, file_name, data) in files {
            let kind = "\r\nContent-Type: application/octet-stream";
            part(name, &format!("; filename=\"{}\"{kind}", quoted(file_name)), data);
        }
        body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}")).body(body)
    }

    /// Sends `Expect: 100-continue`, and the body only after the server asks for it.
    pub fn expect_continue(self) -> TestRequest<'c> {
        TestRequest { expects_continue: true, ..self }.header(header::EXPECT, "100-continue")
    }

    /// Uses HTTP/1.0, so the connection closes after the response.
    pub fn http10(self) -> TestRequest<'c> {
        TestRequest { version: Version::HTTP_10, ..self }
    }

    /// Disconnects after this many bytes of the response, including its head. The returned response may be
    /// incomplete. Use it for responses without an end.
    pub fn leave_after(self, bytes: u64) -> TestRequest<'c> {
        TestRequest { leave_after: Some(bytes), ..self }
    }

    /// Sends the request and returns the response.
    ///
    /// # Panics
    /// Panics if there is no response. See [`try_send`](TestRequest::try_send).
    #[track_caller]
    pub fn send(self) -> TestResponse {
        self.try_send().unwrap_or_else(|none| panic!("{none}"))
    }

    /// Sends the request and returns the response.
    ///
    /// # Errors
    /// Fails if the server closed the connection before the response was complete, for example because a stream
    /// failed or a deadline passed. Also fails if the server waits for its client or the clock. The client then
    /// disconnects.
    pub fn try_send(mut self) -> Result<TestResponse, NoResponse> {
        let answered = match self.client.is_http2 {
            true => {
                let outgoing = self.outgoing();
                self.client.over_http2(|connection| connection.exchange(outgoing))?
            }
            false => {
                let steps = self.steps();
                self.client.exchange(steps, self.leave_after)?
            }
        };
        self.keep_cookies(&answered.headers);
        Ok(answered)
    }

    /// Sends the request over HTTP/2, and does not wait for its response. Other requests can be sent meanwhile, on the same
    /// connection. [`TestClient::finish`] waits for the response. Its cookies are not stored.
    ///
    /// Handlers run one after the other, on the thread of the test. A response that is sent later delays no other.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    /// use weftwork::TestClient;
    ///
    /// let site = Router::new()
    ///     .get("/late", |_: &mut Request| Response::text("late").with_delay(Duration::from_secs(60)))
    ///     .get("/quick", |_: &mut Request| "quick");
    /// let mut client = TestClient::new(site).http2();
    /// let late = client.get("/late").begin();
    /// assert_eq!(client.get("/quick").send().text(), "quick");
    /// assert_eq!(client.elapsed(), Duration::ZERO);
    /// assert_eq!(client.finish(late).text(), "late");
    /// assert_eq!(client.elapsed(), Duration::from_secs(60));
    /// ```
    ///
    /// # Panics
    /// Panics if the client does not use [`http2`](TestClient::http2), or if the body has pauses: [`chunks`](TestRequest::chunks).
    #[track_caller]
    pub fn begin(mut self) -> PendingResponse {
        assert!(
            self.client.is_http2,
            "only a client of HTTP/2 sends several requests at once: TestClient::http2"
        );
        assert!(
            !matches!(self.body, Body::Chunks(..)),
            "a request whose body has pauses cannot be begun: use TestRequest::body"
        );
        let outgoing = self.outgoing();
        self.client.over_http2(|connection| connection.begin(outgoing))
    }

    fn keep_cookies(&mut self, answered: &HeaderMap) {
        let now = self.client.elapsed();
        if let Some(cookies) = &mut self.client.cookies {
            cookies.keep(answered, &self.target, now);
        }
    }

    /// Requests server-sent events, as the `EventSource` of a page does, on a separate connection.
    ///
    /// The handler may be an [`EventHub`](crate::EventHub), or write events itself ([`sse`](crate::sse())). A
    /// handler that waits between events runs only as far as [`TestEvents::advance`] allows.
    ///
    /// ```
    /// use weftwork::{Event, EventHub, Request, TestClient};
    ///
    /// let hub = EventHub::default().with_history(10);
    /// let news = hub.clone();
    /// let mut client = TestClient::new(move |req: &mut Request| news.join(req));
    /// let mut page = client.events("/");
    /// hub.send(&Event::new("tea").id("1"));
    /// hub.send(&Event::new("cake").id("2").name("sweet"));
    /// assert_eq!(page.read().unwrap().data, "tea");
    /// assert_eq!(page.read(), Some(Event::new("cake").id("2").name("sweet").into()));
    /// assert_eq!(page.read(), None, "there is none now");
    ///
    /// let mut again = client.get("/").header("last-event-id", "1").events();
    /// assert_eq!(again.read().unwrap().data, "cake");
    /// ```
    ///
    /// # Panics
    /// Panics if the response is not an event stream. The message shows the response. Also panics if the
    /// handler waits for 10 seconds for something other than its client, for example a channel. The value must
    /// be there already, or come from another thread.
    #[track_caller]
    pub fn events(self) -> TestEvents {
        let mut request = self;
        if !request.fields.iter().any(|(name, _)| name == header::ACCEPT) {
            request = request.header(header::ACCEPT, "text/event-stream");
        }
        let steps = request.steps();
        let connection = request.client.connect();
        steps.into_iter().for_each(|step| connection.pipe.push_step(step));
        let events = TestEvents::over(connection, &request.client.server, &request.method);
        request.keep_cookies(events.headers());
        events
    }

    /// Opens a WebSocket with this request, on a separate connection.
    ///
    /// The server side must be a [`WebSocketHub`](crate::WebSocketHub). A socket with a thread
    /// ([`websocket`](crate::websocket())) needs a real [`Server`](crate::Server) at port 0.
    ///
    /// ```
    /// use weftwork::{Message, Request, SocketEvent, TestClient, WebSocketHub, WebSockets};
    ///
    /// let echo = WebSocketHub::new(WebSockets::new(), |hub, from, event| {
    ///     if let SocketEvent::Message(message) = event {
    ///         hub.send_to(from.id, &message);
    ///     }
    /// });
    /// let mut client = TestClient::new(move |req: &mut Request| echo.join(req));
    /// let mut socket = client.get("/chat").header("origin", "http://localhost").websocket();
    /// socket.send("hello");
    /// assert_eq!(socket.read(), Some(Message::from("hello")));
    /// ```
    ///
    /// # Panics
    /// Panics if the handler does not accept. The message shows the response.
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub fn websocket(self) -> TestWebSocket {
        let (key, version) = (header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION);
        let mut request = self.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
        request = request.header(version, "13").header(key, "dGhlIHNhbXBsZSBub25jZQ==");
        let steps = request.steps();
        let mut connection = request.client.connect();
        steps.into_iter().for_each(|step| connection.act(step));
        let answer = connection.response();
        assert!(
            answer.status == StatusCode::SWITCHING_PROTOCOLS,
            "the handler did not accept the WebSocket: {answer:?}"
        );
        assert!(
            !connection.is_upgraded,
            "this WebSocket has a thread and needs a real server: use Server at port 0"
        );
        request.keep_cookies(&answer.headers);
        TestWebSocket::over(connection, answer)
    }

    /// Returns the request for HTTP/2.
    fn outgoing(&mut self) -> Outgoing {
        assert!(self.version != Version::HTTP_10, "a client of HTTP/2 sends no HTTP/1.0");
        self.complete();
        let host = self.fields.iter().find(|(name, _)| name == header::HOST).map(|(_, host)| host.as_bytes());
        let authority = String::from_utf8_lossy(host.unwrap_or_default()).into_owned();
        let is_sent = |name: &HeaderName| *name != header::HOST && *name != header::TRANSFER_ENCODING;
        let fields = self.fields.iter().filter(|(name, _)| is_sent(name)).cloned().collect();
        let mut steps = VecDeque::new();
        if self.expects_continue {
            steps.push_back(BodyStep::Continue);
        }
        match std::mem::replace(&mut self.body, Body::None) {
            Body::None => {}
            Body::Whole(bytes) => steps.push_back(BodyStep::Data(bytes)),
            Body::Chunks(chunks, pause) => {
                let chunks = chunks.into_iter().map(BodyStep::Data);
                steps.extend(chunks.flat_map(|chunk| [BodyStep::Pause(pause), chunk]));
                steps.extend([BodyStep::Pause(pause), BodyStep::Data(Vec::new())]);
            }
        }
        let (method, target, leave_after) = (self.method.clone(), self.target.clone(), self.leave_after);
        Outgoing { method, target, authority, fields, steps, leave_after }
    }

    /// Adds the fields that every request has.
    fn complete(&mut self) {
        let has = |fields: &[(HeaderName, HeaderValue)], name| fields.iter().any(|(field, _)| field == name);
        if !has(&self.fields, header::HOST) {
            self.fields.insert(0, (header::HOST, HeaderValue::from_static("localhost")));
        }
        if !has(&self.fields, header::COOKIE)
            && let Some(cookies) = &self.client.cookies
            && let Some(field) = cookies.field(&self.target, self.client.elapsed())
        {
            self.fields.push((header::COOKIE, field));
        }
        match &self.body {
            Body::Chunks(..) => {
                self.fields.push((header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")));
            }
            Body::Whole(bytes) if !has(&self.fields, header::CONTENT_LENGTH) => {
                self.fields.push((header::CONTENT_LENGTH, HeaderValue::from(bytes.len())));
            }
            Body::Whole(_) | Body::None => {}
        }
    }

    fn steps(&mut self) -> Vec<ClientStep> {
        self.complete();
        let mut steps = vec![ClientStep::Bytes(self.head())];
        if self.expects_continue {
            steps.push(ClientStep::Continue);
        }
        match std::mem::replace(&mut self.body, Body::None) {
            Body::None => {}
            Body::Whole(bytes) => steps.push(ClientStep::Bytes(bytes)),
            Body::Chunks(chunks, pause) => {
                for chunk in chunks {
                    let size = format!("{:x}\r\n", chunk.len());
                    steps.push(ClientStep::Pause(pause));
                    steps.push(ClientStep::Bytes([size.as_bytes(), &chunk, b"\r\n"].concat()));
                }
                steps.push(ClientStep::Pause(pause));
                steps.push(ClientStep::Bytes(b"0\r\n\r\n".to_vec()));
            }
        }
        steps
    }

    fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} {:?}\r\n", self.method, self.target, self.version).into_bytes();
        for (name, value) in &self.fields {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Encodes a pair as browsers do in forms. A space is `%20`, which every parser understands.
fn encode_pair(out: &mut String, name: &str, value: &str) {
    encode(out, name);
    out.push('=');
    encode(out, value);
}

fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Encodes a name as browsers do in multipart forms (HTML, "multipart/form-data encoding algorithm").
fn quoted(name: &str) -> String {
    name.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22")
}
