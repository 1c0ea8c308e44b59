//! A request as a handler sees it: a view of the connection's buffer.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use weftwork_wire::Field;
use weftwork_wire::fields::media_type_quality;

use super::body::Body;
use super::drop_caught::GuardedExtensions;
use super::escape::{form_decoded_lossy, plain_field_name};
use super::exchange::{ConnValue, Exchange};
use super::handler::{Handler, RequestLine};
use super::headers::CONNECTION_FIELDS;
use super::observer::{Arrival, ResponseObserver};
use super::owned_body::OwnedBody;
use super::route_match::RouteMatch;

/// A request. Its head stays in the connection's read buffer, and a part is copied only when it is asked for.
pub struct Request<'c> {
    pub(super) exchange: &'c mut dyn Exchange,
    pub(super) deadline: Option<Instant>,
    pub(super) data: OnceCell<Box<RequestData>>,
}

/// Data that handlers found out about a request or added to it. Most requests have none. Behind one pointer, it takes
/// less of a thread's stack, and dropping a request checks one pointer instead of four.
#[derive(Default)]
pub(super) struct RequestData {
    pub(super) headers: OnceCell<HeaderMap>,
    extensions: GuardedExtensions,
    pub(super) route_match: RouteMatch,
    /// The path in normal form, if routes compare that form.
    normal_path: Option<Box<str>>,
}

impl<'c> Request<'c> {
    pub(crate) fn new(exchange: &'c mut dyn Exchange) -> Request<'c> {
        Request { exchange, deadline: None, data: OnceCell::new() }
    }

    /// Returns the method. Any token is possible. An extended CONNECT of HTTP/2 (RFC 8441) is GET, with an Upgrade field.
    pub fn method(&self) -> &Method {
        &self.exchange.head().0.method
    }

    /// Returns the request target as it was sent: path and query, a whole URI, `*`, or an authority.
    pub fn target(&self) -> &str {
        let (head, bytes) = self.exchange.head();
        ascii(head.target.of(bytes))
    }

    /// Returns the path without the query, still percent-encoded. A handler that is mounted at a prefix sees the part
    /// after the prefix, at least `/`.
    ///
    /// If routes lead to a [`Proxy`](crate::Proxy), the path is in normal form, for all handlers and middleware of that
    /// request. [`target`](Request::target) has the path as it was sent.
    pub fn path(&self) -> &str {
        ascii(self.path_bytes())
    }

    /// Returns the same as bytes, because checking that they are text takes longer than finding the route.
    pub(crate) fn path_bytes(&self) -> &[u8] {
        let (head, bytes) = self.exchange.head();
        self.after_prefix(self.normal_or(head.path_in(bytes)))
    }

    /// Returns what a route is found by, with one access to the head.
    pub(crate) fn method_path_and_query(&self) -> (&Method, &[u8], &str) {
        let (head, bytes) = self.exchange.head();
        let query = head.query.map_or("", |query| ascii(query.of(bytes)));
        (&head.method, self.after_prefix(self.normal_or(head.path_in(bytes))), query)
    }

    fn after_prefix<'r>(&'r self, whole: &'r [u8]) -> &'r [u8] {
        match self.prefix() {
            0 => whole,
            prefix => match whole.get(prefix..) {
                None | Some(b"") => b"/",
                Some(rest) => rest,
            },
        }
    }

    /// Returns the path including the prefixes of mounts.
    pub(crate) fn whole_path(&self) -> &str {
        let (head, bytes) = self.exchange.head();
        ascii(self.normal_or(head.path_in(bytes)))
    }

    /// Returns the path as it was sent, including the prefixes of mounts.
    pub(crate) fn sent_path(&self) -> &str {
        let (head, bytes) = self.exchange.head();
        ascii(head.path_in(bytes))
    }

    fn normal_or<'r>(&'r self, sent: &'r [u8]) -> &'r [u8] {
        let normal = self.data.get().and_then(|data| data.normal_path.as_deref());
        normal.map_or(sent, str::as_bytes)
    }

    /// Sets the path to its normal form, if `handler` gives this request to a proxy that forwards other forms.
    #[cold]
    pub(crate) fn normalize_path(&mut self, handler: &dyn Handler) {
        let (head, bytes) = self.exchange.head();
        let sent = head.path_in(bytes);
        let suspects = sent.windows(2).any(|pair| matches!(pair, b"//" | b"/." | [b'%', _]));
        if suspects && let Some(normal) = handler.normal_path(&RequestLine::new(&head.method, sent)) {
            self.data_mut().normal_path = Some(normal.into());
        }
    }

    /// Returns the part after the `?`, still encoded.
    pub fn query(&self) -> Option<&str> {
        let (head, bytes) = self.exchange.head();
        head.query.map(|query| ascii(query.of(bytes)))
    }

    /// Returns the first value of the query parameter `name`, decoded (`+` is a space). Nothing is copied unless a
    /// character must be decoded.
    pub fn query_value(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query()?.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decoded_lossy(key) == name).then(|| form_decoded_lossy(value))
        })
    }

    /// Returns the host (and port) that the client requested: from an absolute target, or else from the `Host` field.
    pub fn host(&self) -> Option<&str> {
        let (head, bytes) = self.exchange.head();
        head.authority.map(|authority| ascii(authority.of(bytes)))
    }

    /// Returns the version, 1.0 or 1.1.
    pub fn version(&self) -> Version {
        match self.exchange.head().0.version {
            weftwork_wire::Version::Http10 => Version::HTTP_10,
            weftwork_wire::Version::Http11 => Version::HTTP_11,
            weftwork_wire::Version::Http2 => Version::HTTP_2,
        }
    }

    /// Returns the first value of the header `name` (in any case) if it is text.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        let name = name.as_ref().as_bytes();
        let value = self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name))?.1;
        std::str::from_utf8(value).ok()
    }

    /// Returns the media type of this list that the client prefers, by its `Accept` header (RFC 9110 section 12.5.1).
    /// Of equals, the first one wins, so put your preference first. Returns None if the client accepts none of them,
    /// which is a 406. Without the header, the client accepts all. Parameters of a media type (`text/html;
    /// charset=utf-8`) are not compared. A malformed weight counts as the lowest weight.
    ///
    /// The response names this header in `Vary`, for caches.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn weather(req: &mut Request) -> Result<Response> {
    ///     let response = match req.accepts(&["text/html", "text/csv"]) {
    ///         Some("text/csv") => Response::bytes("rain,7\n").try_with_header("content-type", "text/csv")?,
    ///         Some(_) => Response::html("<p>Rain, 7 mm"),
    ///         None => Err(Problem::new(StatusCode::NOT_ACCEPTABLE).detail("there is HTML and CSV"))?,
    ///     };
    ///     response.try_with_header("vary", "accept")
    /// }
    /// # let mut client = weftwork::TestClient::new(weather);
    /// # assert_eq!(client.get("/").send().text(), "<p>Rain, 7 mm");
    /// # assert_eq!(client.get("/").header("accept", "text/csv").send().text(), "rain,7\n");
    /// # assert_eq!(client.get("/").header("accept", "image/png").send().status, 406);
    /// ```
    pub fn accepts<'t>(&self, media_types: &[&'t str]) -> Option<&'t str> {
        let lines: Vec<&[u8]> = self.header_values("accept").collect();
        let wanted = media_types.iter().map(|&offered| (media_type_quality(&lines, offered), offered));
        // The order is reversed, because `max_by_key` returns the last of equals.
        let best = wanted.rev().max_by_key(|(quality, _)| *quality);
        best.filter(|(quality, _)| *quality > 0).map(|(_, offered)| offered)
    }

    /// Returns every value of the header `name` (in any case), in order and unchanged.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &[u8]> {
        let named =
            self.fields().filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_ref().as_bytes()));
        named.map(|(_, value)| value)
    }

    /// Returns every header unchanged: name and value, in order.
    pub fn header_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let (head, bytes) = self.exchange.head();
        head.fields.iter().map(move |Field { name, value }| (ascii(name.of(bytes)), value.of(bytes)))
    }

    /// Returns the headers for the final recipient, which a proxy forwards. It leaves out those for this connection
    /// alone, by their nature or because `Connection` names them (RFC 9110 section 7.6.1). Spellings with another
    /// character (`_`, `.`) for `-` are left out too, because many servers treat them as the same name.
    ///
    /// `Content-Length` is included. A proxy frames its own request.
    pub fn end_to_end_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut options: Vec<String> = self.elements("connection").map(plain_field_name).collect();
        // A head may name so many of them that comparing each field with each name would take too long.
        options.sort_unstable();
        self.header_lines().filter(move |(name, _)| {
            let name = plain_field_name(name.as_bytes());
            !CONNECTION_FIELDS.contains(&name.as_str()) && options.binary_search(&name).is_err()
        })
    }

    /// Returns all headers as a map, which is built at the first call.
    pub fn headers(&self) -> &HeaderMap {
        self.data.get_or_init(Box::default).headers.get_or_init(|| {
            let mut map = HeaderMap::with_capacity(self.exchange.head().0.fields.len());
            for (name, value) in self.header_lines() {
                // The rules of the parser are at least as strict as these two.
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
                    map.append(name, value);
                }
            }
            map
        })
    }

    /// Takes the headers as a map, without a copy if [`headers`](Request::headers) has built it. The request keeps its header
    /// lines, so other methods still find them.
    pub fn take_headers(&mut self) -> HeaderMap {
        self.headers();
        self.data_mut().headers.take().unwrap_or_default()
    }

    /// Returns whether the rest of the body has arrived, so that reading it to its end waits for nothing. Up to 64 KiB are read
    /// ahead of the handler. Without a body, it is true.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn handler(req: &mut Request) -> String {
    ///     format!("{}\n", req.body_is_here())
    /// }
    /// let answer = weftwork::TestClient::new(handler).post("/").body("a few bytes").send();
    /// assert_eq!(answer.text(), "true\n");
    /// ```
    pub fn body_is_here(&self) -> bool {
        self.exchange.body_is_here()
    }

    /// Returns the body. If it is called again, reading goes on after the bytes already read.
    pub fn body(&mut self) -> Body<'_> {
        Body::new(self.exchange)
    }

    /// Takes the body, which may then outlive the handler: return a response that comes [later](crate::Response::later), from a
    /// [future](crate::Response::when), or as a [feed](crate::Response::feed). The connection brings the parts as they arrive,
    /// and a client that sends faster than the [`OwnedBody`] is read has to wait: 64 KiB are kept.
    ///
    /// The limits and deadlines of a body hold: [`body_bytes_max`](Request::body_bytes_max) as it is now, `body_idle_timeout` and
    /// `rate_bytes_min`. `100 Continue` is sent at the first read, or before the head of a feed. While a response of known
    /// length is being sent, or a [`stream`](crate::Response::stream) is written, nothing more of the body is read.
    ///
    /// A body of up to [`body_ahead_bytes_max`](crate::Settings::body_ahead_bytes_max) is read before the handler is called, as
    /// always. [`unbuffered`](crate::unbuffered) calls it at once.
    ///
    /// The body arrives after the call. A handler that waits for it before it returns waits for itself:
    /// [`BodyError::BeforeResponse`](crate::BodyError::BeforeResponse), and [`wait`](crate::wait) does not return. Behind middleware
    /// that decodes bodies, the whole body is read and decoded here.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn count(req: &mut Request) -> Response {
    ///     let mut body = req.take_body();
    ///     Response::when(async move {
    ///         let mut bytes = 0;
    ///         while let Some(part) = body.chunk().await? {
    ///             bytes += part.len();
    ///         }
    ///         Ok::<_, weftwork::Error>(format!("{bytes} bytes"))
    ///     })
    /// }
    /// let answer = weftwork::TestClient::new(count).post("/").body("hello").send();
    /// assert_eq!(answer.text(), "5 bytes");
    /// ```
    pub fn take_body(&mut self) -> OwnedBody {
        let mut body = Body::new(self.exchange);
        match body.check_length() {
            Ok(()) => self.exchange.take_body(),
            Err(error) => OwnedBody::failed(body.fail(error)),
        }
    }

    /// Returns the maximum number of bytes of the body: the setting `body_bytes_max` (2 MiB), unless it was changed for
    /// this request.
    pub fn body_bytes_max(&self) -> u64 {
        self.exchange.quota().limit
    }

    /// Lowers or raises that limit for all later readers of the body. [`Body::limit`] does the same. The limit also
    /// applies to [`BodyWriter::read_request`](crate::BodyWriter::read_request), which reads after all middleware has
    /// returned. So middleware that sets a limit must not reset it afterwards.
    pub fn set_body_bytes_max(&mut self, bytes: u64) {
        self.exchange.quota_mut().limit = bytes;
    }

    /// Returns how many bytes of the body are unread, if the head declares a length.
    pub fn body_left(&self) -> Option<u64> {
        self.exchange.body_left()
    }

    /// Returns the trailer fields of a chunked body, or of any body in HTTP/2. They are available after the body was read to its end. For a small
    /// body, which is read ahead, they are available from the start. They are never merged with the fields of the head
    /// (RFC 9110 section 6.5.1).
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.exchange.trailers()
    }

    /// Sends an interim response at once (for example, 103 with `Link` fields). HTTP/1.0 clients get none.
    ///
    /// # Errors
    /// The status is not 1xx, or is 101, or the client has gone.
    pub fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        self.exchange.interim(status, fields)
    }

    /// Returns when the request had arrived.
    pub(crate) fn arrival(&self) -> Arrival {
        self.exchange.arrival()
    }

    /// Attaches an observer of the response. It is told of the end, whatever becomes of the response.
    pub(crate) fn observe(&mut self, observer: Box<dyn ResponseObserver>) {
        self.exchange.observe(observer);
    }

    /// Returns the value that handlers keep for the client's connection. It is dropped with the connection.
    pub(crate) fn conn_value(&mut self) -> &mut ConnValue {
        self.exchange.conn_value()
    }

    /// Returns every header as bytes, including its name. Checking that names are text takes longer than comparing
    /// them.
    pub(crate) fn fields(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let (head, bytes) = self.exchange.head();
        head.fields.iter().map(move |Field { name, value }| (name.of(bytes), value.of(bytes)))
    }

    /// Returns the deadline of the request: `request_timeout` after its arrival, or the time of
    /// [`set_deadline`](Request::set_deadline), whichever is earlier. Returns None if there is no deadline (the
    /// default).
    ///
    /// A handler is not stopped at the deadline. Pass it on, for example as the timeout of a database call.
    pub fn deadline(&self) -> Option<Instant> {
        [self.deadline, self.exchange.deadline()].into_iter().flatten().min()
    }

    /// Returns the time until the [`deadline`](Request::deadline), or zero if it has passed.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.deadline()?.saturating_duration_since(self.now()))
    }

    /// Returns the time of the clock that deadlines use. In a [`TestClient`](crate::TestClient), the test moves this
    /// clock.
    pub fn now(&self) -> Instant {
        self.exchange.now()
    }

    /// Returns the date and time of the same clock as [`now`](Request::now), so that expiry can be tested.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use weftwork::{TestClient, prelude::*};
    ///
    /// let until = SystemTime::now() + Duration::from_secs(3600);
    /// let offer = move |req: &mut Request| {
    ///     if req.system_time() < until { Ok("half the price") } else { Err(StatusCode::GONE) }
    /// };
    /// let mut client = TestClient::new(offer);
    /// assert_eq!(client.get("/").send().status, 200);
    /// client.advance(Duration::from_secs(3601));
    /// assert_eq!(client.get("/").send().status, 410);
    /// ```
    pub fn system_time(&self) -> SystemTime {
        let (ours, system, time) = (self.now(), Instant::now(), SystemTime::now());
        let moved = match ours.checked_duration_since(system) {
            Some(ahead) => time.checked_add(ahead),
            None => time.checked_sub(system.saturating_duration_since(ours)),
        };
        moved.unwrap_or(time)
    }

    /// Sets a deadline for the inner handlers. A deadline later than the current one has no effect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::Request;
    ///
    /// fn report(req: &mut Request) -> String {
    ///     req.set_deadline(req.now() + Duration::from_secs(2));
    ///     format!("{:?} are left", req.time_left())
    /// }
    /// ```
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(self.deadline.map_or(deadline, |before| before.min(deadline)));
    }

    /// Reverts [`set_deadline`](Request::set_deadline), for handlers that the deadline does not concern.
    pub(crate) fn restore_deadline(&mut self, before: Option<Instant>) {
        self.deadline = before;
    }

    /// Returns whether the client has left: the connection is broken, or the client has closed its side. Also returns
    /// true if the server has waited for `drain_timeout` and cuts its connections. It is one system call without a
    /// wait, for handlers that work for long.
    ///
    /// A client that has closed only its sending side, and waits for the response, looks the same. Few clients do so.
    /// In these cases the library itself treats such a client as gone:
    ///
    /// - while a request waits for a thread (503)
    /// - while a proxy waits for its upstream
    /// - while a [future](crate::Response::when) makes the response, or during an [endless](crate::Response::endless) one
    /// - during a [pause](crate::BodyWriter::pause) of a stream
    ///
    /// In all other cases it gets its response.
    pub fn client_gone(&self) -> bool {
        self.exchange.client_gone()
    }

    /// Returns whether the server was told to stop. It may keep serving for a while
    /// ([`drain_delay`](crate::Settings::drain_delay)), so that a load balancer can notice. For that, let a health
    /// check answer 503 from then on.
    ///
    /// ```
    /// use weftwork::{Request, http::StatusCode};
    ///
    /// fn ready(req: &mut Request) -> StatusCode {
    ///     if req.is_stopping() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    /// }
    /// ```
    pub fn is_stopping(&self) -> bool {
        self.exchange.is_stopping()
    }

    /// Returns the values that middleware passes to inner handlers.
    pub fn extensions(&self) -> &Extensions {
        &self.data.get_or_init(Box::default).extensions
    }

    /// Returns a value of the extensions, without an allocation.
    pub(crate) fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.data.get()?.extensions.get()
    }

    /// Logs a line about the client. Only a few such lines are logged each second.
    pub(crate) fn log_client(&self, line: fmt::Arguments<'_>) {
        self.exchange.log_client(line);
    }

    /// Appends `id` to later log lines about this request.
    pub(crate) fn identify(&mut self, id: &str) {
        self.exchange.identify(id);
    }

    /// Returns the [`extensions`](Request::extensions) to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.data_mut().extensions
    }

    pub(super) fn data_mut(&mut self) -> &mut RequestData {
        self.data.get_or_init(Box::default);
        // cannot fail: the line above has made it
        self.data.get_mut().expect("it has just been made")
    }
}

/// The parser allows only ASCII in targets and names. An empty text stands in for the impossible case.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", self.method())
            .field("target", &self.target())
            .finish_non_exhaustive()
    }
}
