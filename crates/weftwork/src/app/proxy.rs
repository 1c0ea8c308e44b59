//! A reverse proxy: a handler that forwards requests to an upstream server.
//!
//! ```text
//! client --request--> request.rs --head, then body as it arrives--> upstream.rs (idle connections)
//!        <--streamed, not buffered-- response.rs <--status, fields, body as it arrives--+
//!                       101: tunnel.rs, bytes both ways
//! ```

mod attempts;
mod failure;
mod request;
mod response;
#[cfg(feature = "_tls")]
mod secure;
#[cfg(test)]
mod tests;
mod tunnel;
mod upload;
mod upstream;

use std::fmt;
use std::sync::Once;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weftwork_wire::Limits;

use self::attempts::{DEADLINE, time_left};
use self::failure::{Failure, NO_ANSWER};
use self::upstream::{Protocol, Upstream};
use super::path_form::normal_form;
use super::router::encoded;
use crate::error::{Error, OneLine, Result};
use crate::message::{
    Blocking, Handler, IntoResponse, Request, RequestLine, Response, note_proxy, plain_field_name,
};
use crate::transport::log_queue::log_line;

/// A handler that forwards requests to one upstream server and returns its responses.
///
/// **Streaming.** Bodies are streamed in both directions. Tokens of a language model, or events, arrive as they
/// are sent. Only the first `body_ahead_bytes_max` bytes of a request body are buffered before the proxy
/// forwards anything, so a client that sends them slowly holds no thread. If a request needs a conversation in
/// both directions, [`unbuffered`](crate::unbuffered) forwards these bytes as they arrive too. Connections to
/// the server are kept and reused.
///
/// **HTTP/2.** A server with TLS chooses between HTTP/2 and HTTP/1.1 (see [`http2`](Proxy::http2)). Up to 100 requests
/// share a connection of HTTP/2, or fewer if the server says so. Then there is another connection. A thread reads each of
/// them. A response of which 256 KiB wait for its client stops at the server, and delays no other. A request that the
/// server has not begun (GOAWAY, `REFUSED_STREAM`) is sent again, up to twice, if its body was at most 64 KiB so far.
/// Trailers are forwarded in both directions, so gRPC works. A server that speaks HTTP/1.1 gets none. An upgrade, and a
/// user that is known by the connection (NTLM), use HTTP/1.1.
///
/// **Fields.** Fields for a single connection are not forwarded (RFC 9110 section 7.6.1). That the client
/// accepts trailers is stated again for the new connection. Other fields are forwarded unchanged, except fields
/// of [`set_header`](Proxy::set_header). `Max-Forwards` is decremented (section 7.6.2), and gets 400 if it is
/// not a single number. A WebSocket is forwarded as a tunnel. For other protocols, see
/// [`Proxy::allow_upgrade`]. If a client disconnects, or ends its sending side, its upstream request ends too.
/// The proxy checks for that every second.
///
/// **Tunnels.** A tunnel ends if both sides have ended, if one side fails, or if no byte passes for the time of
/// the setting `upgrade_idle_timeout`. When the server drains, tunnels continue until the drain deadline,
/// because only the endpoints know how to close their protocol. A tunnel holds two threads (in `fibers`: two
/// fibers). Only the first one counts against `threads_max`.
///
/// **Client identity.** `X-Forwarded-For`, `X-Forwarded-Host`, `X-Forwarded-Proto` and `Via` state the client
/// and the requested host. They come from [`Request::client_addr`] and [`Request::scheme`], so the proxy trusts
/// what a trusted proxy says and not what a client says. `X-Real-IP` and other `X-Forwarded-...` fields are
/// forwarded for trusted proxies only. `X-Real-IP` then has the address from `X-Forwarded-For`, if there is
/// one. Other spellings of these names (`X_Forwarded_For`, `X.Forwarded.For`) are never forwarded, and neither
/// is `Proxy`, which is not a valid field. If [`RequestIds`](crate::middleware::RequestIds) runs in front, the
/// server gets its id and trace instead of the client's.
///
/// **Paths.** The upstream server is fixed, and nothing in a request selects it. The server gets the path as it
/// was sent, and may treat several forms as the same path. Routes and middleware in front therefore compare its
/// normal form (RFC 3986 section 6.2.2), which is also [`Request::path`]:
///
/// - Encoded letters, digits and `-._~` are decoded (`/%61dmin` is `/admin`).
/// - Segments `.` and `..`, encoded or not, are resolved.
/// - An empty segment is removed (`//admin`), except in a URL within a path (`/web/https://a.example`).
///
/// A path that leaves the mount of the proxy by `..` gets 400, and so does a path that servers read in different
/// ways (`/..%2Fa`, `/..;/a`, `/a//../b`). If a function calls the proxy, instead of a router, the normal form is
/// not known in front of that function. Every other form then gets 400.
///
/// A route in front thus guards a path of such characters. It does not if the server accepts more forms: upper
/// case, a final slash, `%2F` for `/`, or `;` and more text. If you are not sure, guard all paths.
///
/// **Expect.** If a client expects `100 (Continue)`, it gets it as soon as the server sends it, or after a
/// second of silence, even if the body has already arrived. An earlier response is forwarded, and the server
/// gets no body.
///
/// **Errors.** The answer is 502 if the server cannot be reached or does not speak HTTP. It is 504 if the
/// server exceeds a timeout below or the [deadline](Request::deadline) of the request, whichever is sooner. If
/// the deadline passes while the client is still sending its body, the answer is 408.
///
/// **Threads.** A request holds a thread while it waits for the server, or a fiber in the engine `fibers`. In
/// `reactor`, all connections of the loop wait, so use another engine there.
///
/// **Early responses.** If the server responds before it has the whole request, the response is forwarded at
/// once, except for bodies that the middleware `Decompression` decodes. The rest of the
/// request is still sent, unless the server rejects the request (4xx, 5xx), ends its side, or reads nothing for
/// the `idle_timeout`. It also ends if the client pauses for two seconds after a complete response. The setting
/// `body_bytes_max` limits the body. When exceeded: 413, or the connection closes if the response has started.
///
/// ```no_run
/// use weftwork::{Proxy, Server};
/// use std::time::Duration;
///
/// let models = Proxy::to("http://127.0.0.1:11434")?.response_timeout(Duration::from_secs(300));
/// Server::bind("127.0.0.1:8080")?.run(models)
/// # ; weftwork::Result::<()>::Ok(())
/// ```
pub struct Proxy {
    upstream: Upstream,
    options: Options,
    prefix_warning: Once,
    set_headers: Vec<(HeaderName, Box<HeaderSource>)>,
}

/// Returns the value of a header for a request to the server.
type HeaderSource = dyn Fn(&Request<'_>) -> Option<HeaderValue> + Send + Sync;

#[derive(Clone, Debug)]
struct Options {
    strip: String,
    sends_own_host: bool,
    upgrades: Vec<String>,
    response_timeout: Duration,
    idle_timeout: Duration,
    limits: Limits,
    /// Fields of `set_header`.
    set_names: Vec<HeaderName>,
}

impl Proxy {
    /// Creates a proxy to the server at `url`: `http://host:port`, `https://host:port` or `h2c://host:port`, with an
    /// optional path that is put before every request path. `https` needs the feature `tls` or `tls-ring`. `h2c` is HTTP/2
    /// in clear, without asking (RFC 9113 section 3.3), as gRPC servers speak it.
    ///
    /// The name is looked up now. It is looked up again once a minute (see [`lookup_age_max`](Proxy::lookup_age_max)),
    /// and if no address answers, at most once in 5 s. Of several addresses, the one that answered last is tried
    /// first.
    ///
    /// # Errors
    /// Fails if `url` has another form, if the name is unknown, or if it is `https` without one of these features.
    pub fn to(url: &str) -> Result<Proxy> {
        let upstream = Upstream::new(url)?;
        let options = Options {
            strip: String::new(),
            sends_own_host: false,
            upgrades: vec!["websocket".to_owned()],
            response_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            limits: Limits { head_bytes_max: 256 << 10, fields_max: 1000, ..Limits::default() },
            set_names: Vec::new(),
        };
        note_proxy();
        Ok(Proxy { upstream, options, prefix_warning: Once::new(), set_headers: Vec::new() })
    }

    /// Removes `prefix` from the path of forwarded requests. Requests without the prefix get 404. Default:
    /// none.
    ///
    /// `Location` and `Content-Location` of responses are not changed, as in Caddy and Traefik. Tell the server its prefix, if
    /// its own links begin with `/`.
    #[must_use]
    pub fn strip_prefix(mut self, prefix: &str) -> Proxy {
        self.options.strip = encoded(prefix.trim_end_matches('/'));
        self
    }

    /// Sends the host of the URL as `Host`, instead of the host that the client requested. Use it for a server
    /// that answers only to its own name. Such a server often refuses the `Origin` of a page, and may write its
    /// own name into `Location` and links, unless it reads `X-Forwarded-Host`. Default: the client's host, as in
    /// Caddy and Traefik.
    #[must_use]
    pub fn upstream_host(mut self) -> Proxy {
        self.options.sends_own_host = true;
        self
    }

    /// Sets a header of forwarded requests. `value` returns the value for a request, or `None` for no header.
    /// The client's values of this name, in any spelling, are not forwarded. Default: headers of the client are
    /// forwarded.
    ///
    /// ```
    /// use weftwork::http::{HeaderName, HeaderValue, header};
    /// use weftwork::middleware::User;
    /// use weftwork::{Proxy, Request};
    ///
    /// fn user(req: &Request) -> Option<HeaderValue> {
    ///     HeaderValue::try_from(req.extensions().get::<User>()?.to_string()).ok()
    /// }
    ///
    /// Proxy::to("http://127.0.0.1:11434")?
    ///     .set_header(HeaderName::from_static("x-remote-user"), user)?
    ///     .set_header(header::AUTHORIZATION, |_| Some(HeaderValue::from_static("Bearer this-server")))?
    ///     .set_header(header::COOKIE, |_| None)?;
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for headers that the proxy sets itself: fields that frame the message, fields for a single
    /// connection, `Host` (see [`upstream_host`](Proxy::upstream_host)), and the fields that state the client.
    pub fn set_header(
        mut self,
        name: HeaderName,
        value: impl Fn(&Request<'_>) -> Option<HeaderValue> + Send + Sync + 'static,
    ) -> Result<Proxy> {
        if !request::may_be_set(&plain_field_name(name.as_str().as_bytes())) {
            return Err(Error::usage(format!("cannot set {name}: a Proxy sets it itself")));
        }
        self.set_headers.retain(|(known, _)| *known != name);
        self.options.set_names.push(name.clone());
        self.set_headers.push((name, Box::new(value)));
        Ok(self)
    }

    /// Allows upgrades to another protocol. The connection becomes a tunnel, and only the server sees its
    /// content. Default: `websocket` only. A request for another protocol is forwarded without the upgrade. Be
    /// careful with `h2c`: clients could then send requests that this server does not see.
    #[must_use]
    pub fn allow_upgrade(mut self, protocol: &str) -> Proxy {
        self.options.upgrades.push(protocol.to_owned());
        self
    }

    /// Sets how long connecting to the server may take, with all its addresses and the TLS handshake. Default: 5 s. When exceeded:
    /// 504. If the name is looked up again, that request also waits for the system's resolver, which has its
    /// own timeouts.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Proxy {
        self.upstream.connect_timeout = timeout;
        self
    }

    /// Sets how long to wait for the upstream's final response to start. Default: 60 s. When exceeded: 504.
    /// Interim (1xx) responses are forwarded and do not count.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Proxy {
        self.options.response_timeout = timeout;
        self
    }

    /// Sets how long the server may pause within a response, or read nothing of a request. Default: 60 s. When
    /// exceeded: the exchange is aborted.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Proxy {
        self.options.idle_timeout = timeout;
        self
    }

    /// Sets how old the addresses of the server may be, from the last look-up of its name. Default: 60 s. A
    /// request after that time waits for a new look-up, for 1 s at most. Connections to addresses that the name
    /// no longer has are not used again. If the look-up fails, the addresses stay. The failure is logged.
    ///
    /// A URL with an address instead of a name needs no look-up.
    #[must_use]
    pub fn lookup_age_max(mut self, age: Duration) -> Proxy {
        self.upstream.addresses.age_max = age;
        self
    }

    /// Sets the maximum size of the head of a response from the server, in bytes. It also limits the trailers of
    /// a response. Default: 256 KiB. When exceeded: 502, and a line in the log. Over HTTP/2, nine frames are the
    /// maximum too: 144 KiB, or less if the server sends small frames. A larger head ends the connection.
    #[must_use]
    pub fn response_head_bytes_max(mut self, bytes: u32) -> Proxy {
        self.options.limits.head_bytes_max = bytes;
        self
    }

    /// Sets the maximum number of field lines of a response from the server. It also limits the trailers of a
    /// response. Default: 1,000. When exceeded: 502, and a line in the log.
    #[must_use]
    pub fn response_fields_max(mut self, lines: u32) -> Proxy {
        self.options.limits.fields_max = lines;
        self
    }

    /// Sets whether a server with TLS is offered HTTP/2 (ALPN). Default: true, as in Caddy and Traefik. Without TLS, the
    /// URL decides: `http://` or `h2c://`.
    ///
    /// ```no_run
    /// use weftwork::Proxy;
    ///
    /// let one_request_a_connection = Proxy::to("https://10.0.0.7:8443")?.http2(false);
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    #[must_use]
    pub fn http2(mut self, offers: bool) -> Proxy {
        if self.upstream.protocol != Protocol::Http2 && self.upstream.is_tls() {
            self.upstream.protocol = if offers { Protocol::Either } else { Protocol::Http1 };
        }
        self
    }

    /// Sets how many idle connections to the server are kept. Default: 32. Those of HTTP/2 count apart, and are kept for
    /// a minute. A connection that the server may have
    /// authenticated is not one of them.
    #[must_use]
    pub fn idle_connections_max(mut self, connections: usize) -> Proxy {
        self.upstream.idle_max = connections;
        self
    }
}

impl Handler for Proxy {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.forward(req).unwrap_or_else(|failure| {
            if let Some(why) = failure.for_log() {
                warn(self.upstream.authority(), why);
            }
            failure.into_response()
        })
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        Blocking::Always
    }

    #[cfg(feature = "_tls")]
    fn check(&self) -> Result<()> {
        self.upstream.tls.as_ref().map_or(Ok(()), upstream::UpstreamTls::check)
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        let rest = line.path().strip_prefix(self.options.strip.as_str())?;
        Some(format!("{}{}", self.options.strip, normal_form(rest)?))
    }
}

fn warn(server: &str, why: impl fmt::Display) {
    log_line!(Warn, "proxy to {server}: {}", OneLine(why));
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Proxy");
        shown.field("to", &self.upstream.authority()).field("options", &self.options);
        #[cfg(feature = "_tls")]
        shown.field("tls", &self.upstream.tls);
        shown.field("headers", &self.set_headers.iter().map(|(name, _)| name).collect::<Vec<_>>()).finish()
    }
}
