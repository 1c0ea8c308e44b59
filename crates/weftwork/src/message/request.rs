//! A request, as a handler sees it: a view of the connection's buffer.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use weftwork_wire::Field;
use weftwork_wire::fields::media_type_quality;

use super::body::Body;
use super::client;
use super::exchange::Exchange;
use super::headers::CONNECTION_FIELDS;
use super::routed::Routed;
use super::texts::{form_decoded_lossy, plain_field_name};

/// A request. Its head stays in the connection's read buffer and nothing of it is copied until asked for.
pub struct Request<'c> {
    pub(super) exchange: &'c mut dyn Exchange,
    pub(super) deadline: Option<Instant>,
    pub(super) notes: OnceCell<Box<Notes>>,
}

/// What handlers have found out about a request or written to it. Most requests have none: all of it behind one pointer
/// is three lines less of a thread's stack, and one look in place of four when the request is dropped.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) headers: OnceCell<HeaderMap>,
    extensions: Extensions,
    pub(super) routed: Routed,
}

impl<'c> Request<'c> {
    pub(crate) fn new(exchange: &'c mut dyn Exchange) -> Request<'c> {
        Request { exchange, deadline: None, notes: OnceCell::new() }
    }

    /// The method; any token is possible.
    pub fn method(&self) -> &Method {
        &self.exchange.head().0.method
    }

    /// The request target as it was sent: path and query, a whole URI, `*`, or an authority.
    pub fn target(&self) -> &str {
        let (head, bytes) = self.exchange.head();
        ascii(head.target.of(bytes))
    }

    /// The path, still percent-encoded, without the query. A handler that is mounted at a prefix sees what is behind
    /// that, `/` at least.
    pub fn path(&self) -> &str {
        ascii(self.path_bytes())
    }

    /// The same: to see that it is text takes longer than to find its route.
    pub(crate) fn path_bytes(&self) -> &[u8] {
        let (head, bytes) = self.exchange.head();
        self.behind_prefix(head.path_in(bytes))
    }

    /// What a route is found by, in one look at the head.
    pub(crate) fn method_path_and_query(&self) -> (&Method, &[u8], &str) {
        let (head, bytes) = self.exchange.head();
        let query = head.query.map_or("", |query| ascii(query.of(bytes)));
        (&head.method, self.behind_prefix(head.path_in(bytes)), query)
    }

    fn behind_prefix<'r>(&'r self, whole: &'r [u8]) -> &'r [u8] {
        match self.prefix() {
            0 => whole,
            prefix => match whole.get(prefix..) {
                None | Some(b"") => b"/",
                Some(rest) => rest,
            },
        }
    }

    /// The path with the prefixes of mounts.
    pub(crate) fn whole_path(&self) -> &str {
        let (head, bytes) = self.exchange.head();
        ascii(head.path_in(bytes))
    }

    /// What is behind the `?`, still encoded.
    pub fn query(&self) -> Option<&str> {
        let (head, bytes) = self.exchange.head();
        head.query.map(|query| ascii(query.of(bytes)))
    }

    /// The first value of the query parameter `name`, without its percent-encoding (`+` is a space). Nothing
    /// is copied unless there is something to decode.
    pub fn query_value(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query()?.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decoded_lossy(key) == name).then(|| form_decoded_lossy(value))
        })
    }

    /// The host (and port) that the client asked for: of an absolute target, else the `Host` field.
    pub fn host(&self) -> Option<&str> {
        let (head, bytes) = self.exchange.head();
        head.authority.map(|authority| ascii(authority.of(bytes)))
    }

    /// 1.0 or 1.1.
    pub fn version(&self) -> Version {
        match self.exchange.head().0.version {
            weftwork_wire::Version::Http10 => Version::HTTP_10,
            weftwork_wire::Version::Http11 => Version::HTTP_11,
        }
    }

    /// The first value of the header `name` (case does not matter), when it is text.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        let name = name.as_ref().as_bytes();
        let value = self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name))?.1;
        std::str::from_utf8(value).ok()
    }

    /// Of these media types, the one that the client wants most, by its `Accept` (RFC 9110 section 12.5.1); the first of
    /// equals, so the one to prefer comes first. None: it takes none of them, which is a 406. Without the field it takes all.
    /// Parameters of a media type (`text/html; charset=utf-8`) are not compared. A weight that is malformed counts as the lowest
    /// that there is.
    ///
    /// The response says in `Vary` that it depends on this, for caches.
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
        // Of equals the first one: `max_by_key` takes the last.
        let best = wanted.rev().max_by_key(|(quality, _)| *quality);
        best.filter(|(quality, _)| *quality > 0).map(|(_, offered)| offered)
    }

    /// Every value of the header `name` (case does not matter), in order, as it came.
    pub fn header_values(&self, name: impl AsRef<str>) -> impl Iterator<Item = &[u8]> {
        let named =
            self.fields().filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_ref().as_bytes()));
        named.map(|(_, value)| value)
    }

    /// Every header as it came: name and value, in order.
    pub fn header_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let (head, bytes) = self.exchange.head();
        head.fields.iter().map(move |Field { name, value }| (ascii(name.of(bytes)), value.of(bytes)))
    }

    /// The headers that are for whoever answers in the end: what a proxy passes on. Left out are those for
    /// this connection alone, by their nature or because `Connection` names them (RFC 9110 section 7.6.1), also where
    /// their names are written with another character (`_`, `.`) for `-`: many a server takes that for the same.
    ///
    /// `Content-Length` is among them; a proxy frames its own request.
    pub fn end_to_end_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut options: Vec<String> = self.elements("connection").map(plain_field_name).collect();
        // A head has room for so many of them that no field may be compared with each.
        options.sort_unstable();
        self.header_lines().filter(move |(name, _)| {
            let name = plain_field_name(name.as_bytes());
            !CONNECTION_FIELDS.contains(&name.as_str()) && options.binary_search(&name).is_err()
        })
    }

    /// All headers as a map, made at the first call.
    pub fn headers(&self) -> &HeaderMap {
        self.notes.get_or_init(Box::default).headers.get_or_init(|| {
            let mut map = HeaderMap::with_capacity(self.exchange.head().0.fields.len());
            for (name, value) in self.header_lines() {
                // The head was parsed by rules at least as strict as these two.
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
                    map.append(name, value);
                }
            }
            map
        })
    }

    /// The body. It can be taken several times; each goes on where the last one stopped.
    pub fn body(&mut self) -> Body<'_> {
        Body::new(self.exchange)
    }

    /// The most bytes of the body that may be read: the setting `body_bytes_max` (2 MiB), if nothing has
    /// changed it for this request.
    pub fn body_bytes_max(&self) -> u64 {
        self.exchange.quota().limit
    }

    /// Lowers or raises that limit for all who read the body after this; [`Body::limit`] does the same. It holds also for
    /// [`BodyWriter::read_request`](crate::BodyWriter::read_request), which reads when all middleware has returned: one of your
    /// own that sets the limit for what is behind it leaves it so.
    pub fn set_body_bytes_max(&mut self, bytes: u64) {
        self.exchange.quota_mut().limit = bytes;
    }

    /// How many bytes of the body are still to be read, when the head said how many there are.
    pub fn body_left(&self) -> Option<u64> {
        self.exchange.body_left()
    }

    /// Fields behind a chunked body. They are there when the body has been read to its end; those of a small body, which is read
    /// ahead, from the start. They are never merged with the head's fields (RFC 9110 section 6.5.1).
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.exchange.trailers()
    }

    /// Sends an interim response (103 with `Link` fields, say) at once. Clients of 1.0 get none.
    ///
    /// # Errors
    /// The status is not 1xx, is 101, or the client has gone.
    pub fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        self.exchange.interim(status, fields)
    }

    /// Where the request came from, as far as it can be believed: what a log, a rate limit or an access rule wants.
    ///
    /// It starts at [`peer_addr`](Request::peer_addr), or at the client that a PROXY header has named. While that
    /// is one of the [`trusted_proxies`](crate::Settings::trusted_proxies), the address that it has added to the
    /// [`forwarded_header`](crate::Settings::forwarded_header) takes its place: the field is read from right to
    /// left, and everything left of the first address that is not trusted is what any client may have written.
    /// A proxy that names nobody (`unknown`) is itself the answer. Without trusted proxies (the default) it is the
    /// other end of the connection; none is a client on a Unix socket. An IPv4 address is always one: `192.0.2.7`, and not
    /// the `::ffff:192.0.2.7` that [`peer_addr`](Request::peer_addr) is at a listener for both families, such as `:8080`.
    pub fn client_addr(&self) -> Option<IpAddr> {
        client::address(&self.exchange.source(), self.fields())
    }

    /// The scheme by which the client asked, as far as that can be believed: `https` where the other end of the
    /// connection (or the client that a PROXY header has named) is one of the
    /// [`trusted_proxies`](crate::Settings::trusted_proxies) and says so, else `http`, which is what comes here.
    ///
    /// A proxy says it in `X-Forwarded-Proto`, of whose elements the last one counts; or in the `proto` of
    /// `Forwarded`, if that is the [`forwarded_header`](crate::Settings::forwarded_header), which is read as for
    /// [`client_addr`](Request::client_addr). A proxy that is trusted has to set it, and not to pass on what came.
    pub fn scheme(&self) -> &'static str {
        match client::said(&self.exchange.source(), self.fields(), "proto") {
            // Some proxies say `wss` of a WebSocket.
            Some(scheme) if ["https", "wss"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls)) => "https",
            _ => "http",
        }
    }

    /// The host that the client asked for, where a trusted proxy says so: see [`scheme`](Request::scheme).
    pub(crate) fn forwarded_host(&self) -> Option<String> {
        client::said(&self.exchange.source(), self.fields(), "host")
    }

    /// The host (and port) that the client asked for, as far as that can be believed: by way of a trusted proxy it is what
    /// that says, since such a one may ask for another, else [`host`](Request::host).
    pub(crate) fn authority(&self) -> Option<Cow<'_, str>> {
        self.forwarded_host().map(Cow::Owned).or_else(|| self.host().map(Cow::Borrowed))
    }

    /// The client that a trusted proxy has named in the `forwarded_header`; none where it has not sent one.
    pub(crate) fn forwarded_client(&self) -> Option<IpAddr> {
        let source = self.exchange.source();
        let name = source.settings.forwarded_header.name();
        let has_named = self.fields().any(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes()));
        self.client_addr().filter(|_| source.is_trusted() && has_named)
    }

    /// Who hands the request on is one of the trusted proxies.
    pub(crate) fn is_source_trusted(&self) -> bool {
        self.exchange.source().is_trusted()
    }

    /// Every header as it came, its name too: to see that names are text takes longer than to compare them.
    pub(crate) fn fields(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let (head, bytes) = self.exchange.head();
        head.fields.iter().map(move |Field { name, value }| (name.of(bytes), value.of(bytes)))
    }

    /// The other end of the connection; none on a Unix socket. Behind a proxy this is the proxy, also when it
    /// speaks the PROXY protocol: see [`client_addr`](Request::client_addr).
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.exchange.peer_addr()
    }

    /// Until when an answer makes sense: `request_timeout` after the request has come, or what
    /// [`set_deadline`](Request::set_deadline) said, whichever is sooner. None: nobody has set one (the default).
    ///
    /// Nothing stops a handler that goes on beyond it. It is there to be passed on: as the timeout of a database
    /// call, say.
    pub fn deadline(&self) -> Option<Instant> {
        [self.deadline, self.exchange.deadline()].into_iter().flatten().min()
    }

    /// How long it is until the [`deadline`](Request::deadline); zero when it has passed.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.deadline()?.saturating_duration_since(self.now()))
    }

    /// What time it is, by the clock that deadlines go by: the system's, or that of a
    /// [`TestClient`](crate::TestClient), which the test moves.
    pub fn now(&self) -> Instant {
        self.exchange.now()
    }

    /// The date and time, by the same clock as [`now`](Request::now): what expires by it can be tested.
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

    /// Sets a deadline for the handlers behind this one. A later one than there is changes nothing.
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

    /// Undoes [`set_deadline`](Request::set_deadline), for handlers beside those that it was for.
    pub(crate) fn restore_deadline(&mut self, before: Option<Instant>) {
        self.deadline = before;
    }

    /// Whether the client has left: the connection is broken, or the client has ended its side of it; or the server has waited for
    /// `drain_timeout`, and cuts its connections. One system call, which does not wait; for handlers that work for long, to ask now and then.
    ///
    /// A client that has only ended its sending side, and waits for the answer, looks the same. Few do. The library itself takes
    /// it for a leaver where nobody can tell them apart in time: while a request waits for a thread (503), a proxy for its
    /// upstream, a client for what comes [later](crate::Response::later) or with a delay, for a feed, or for the next part of a stream that
    /// [pauses](crate::BodyWriter::pause). Else it is answered.
    pub fn client_gone(&self) -> bool {
        self.exchange.client_gone()
    }

    /// The server has been told to stop. It may go on for a while ([`drain_delay`](crate::Settings::drain_delay)), so that
    /// a load balancer can find out: by a route of yours that answers 503 from then on.
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

    /// Our end of the connection; none on a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.exchange.local_addr()
    }

    /// Values that middleware hands to the handlers behind it.
    pub fn extensions(&self) -> &Extensions {
        &self.notes.get_or_init(Box::default).extensions
    }

    /// One of them, without room for any where there are none.
    pub(crate) fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.notes.get()?.extensions.get()
    }

    /// A line of the log about what clients have done, of which there are only a few a second.
    pub(crate) fn tell(&self, line: fmt::Arguments<'_>) {
        self.exchange.tell(line);
    }

    /// From now on lines of the log about it end with `id`.
    pub(crate) fn identify(&mut self, id: &str) {
        self.exchange.identify(id);
    }

    /// As [`extensions`](Request::extensions), to put values in.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.notes_mut().extensions
    }

    pub(super) fn notes_mut(&mut self) -> &mut Notes {
        self.notes.get_or_init(Box::default);
        // cannot fail: the line above has made it
        self.notes.get_mut().expect("it has just been made")
    }
}

/// The parser lets only ASCII pass in targets and names; an empty text stands in for what cannot be.
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
