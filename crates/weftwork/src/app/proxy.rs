//! A reverse proxy: a handler that has another server answer.
//!
//! ```text
//! client --request--> forward.rs --head, then body as it comes--> upstream.rs (kept connections)
//!        <--streamed, nothing gathered-- answer.rs <--status, fields, body as it comes--+
//!                       101: tunnel.rs, bytes both ways
//! ```

mod request;
mod response;
#[cfg(test)]
mod tests;
mod tunnel;
mod upstream;

use std::fmt;
use std::io;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use weftwork_wire::{Limits, ResponseFault};

use self::request::Upload;
use self::response::ProxyExchange;
use self::upstream::{Upstream, UpstreamConn};
use super::router::encoded;
use crate::error::{Error, OneLine, Result};
use crate::message::{Asked, Blocking, Handler, IntoResponse, Problem, Request, Response, plain_field_name};
use crate::transport::stream::is_timed_out;

/// A server that knows nothing of `Expect` does not say a word about it: after this the body is sent all the same.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A handler that passes requests on to one server, and its answers back.
///
/// Bodies are streamed in both directions: tokens of a language model, or events, come through as they are sent. Only the
/// first `body_ahead_bytes_max` of a request's body are gathered before anything is passed on, so that a client that sends
/// them slowly holds no thread; [`unbuffered`](crate::unbuffered) passes on those, too, as they come, which a conversation
/// over one request needs. Connections to the server are kept and used again.
///
/// Fields that are for one connection alone stay behind (RFC 9110 section 7.6.1); that the client takes trailers is said
/// anew. Others go through as they are, but for [`set_header`](Proxy::set_header), and `Max-Forwards` is counted (section
/// 7.6.2; 400 where it is not one number). A WebSocket goes through as a tunnel (others: [`Proxy::allow_upgrade`]). A
/// client that leaves ends its request there too, and so does one that only ends its sending side: it is looked for each
/// second.
///
/// A tunnel ends when both of its ends have ended their sides, or one has failed, or nothing has gone through for the time of
/// the setting `upgrade_idle_timeout`. When the server drains, tunnels go on until the drain deadline: those at their ends
/// know how to say goodbye, and the proxy does not. A tunnel holds two threads (in `fibers`: two fibers), and only the
/// first of them counts against `threads_max`.
///
/// `X-Forwarded-For`, `X-Forwarded-Host`, `X-Forwarded-Proto` and `Via` say who asked whom, and for what: by
/// [`Request::client_addr`] and [`Request::scheme`], so a client's own word is not believed, and that of a trusted proxy
/// is. `X-Real-IP` and further `X-Forwarded-...` fields are passed on for trusted proxies only, the former with the address that
/// `X-Forwarded-For` was found to say, if there is any; and other spellings of all these (`X_Forwarded_For`, `X.Forwarded.For`) for nobody. `Proxy`, which is no
/// field, stays behind. Where [`RequestIds`](crate::middleware::RequestIds) runs in front, the server gets
/// its id and its trace, and not what the client said of them.
///
/// The server is fixed: nothing in a request chooses where it goes. Routes in front of it compare paths as they were sent,
/// and to the server behind, another spelling may be the same path. So one that has another spelling gets 400: where a
/// letter, a digit or one of `-._~` is encoded (`/%61dmin`); with a segment `.` or `..`, encoded or not; with an empty
/// segment (`//admin`), but for the slashes of a URL in a path (`/web/https://a.example`). A route in front closes its path if
/// that is of such characters alone, unless the server behind takes still other paths for it: in upper case, with a slash at
/// the end, with `%2F` for `/`, with `;` and more behind. Where you do not know, guard all of it. (Of typed routes behind a
/// proxy, links with a value that is also the literal of another route, `/users/%6Eew`, get that 400, too.)
///
/// A client that expects `100 (Continue)` gets it when the server behind has said so, or has said nothing for a second,
/// also where the body is there already. An answer that comes before that is passed on, and the server gets nothing of
/// the body.
///
/// It answers 502 when that server cannot be reached or does not speak HTTP/1, and 504 when it is late: by the times below, or by
/// the [deadline](Request::deadline) of the request, whichever is sooner. Where that passes while the client still owes some of its
/// body, it is 408.
///
/// Each request holds a thread while it waits for the server, or, in the engine `fibers`, a fiber; in `reactor` its
/// loop waits, and all connections of it: use another engine there. A server that answers before it has the whole
/// request is listened to, but for bodies that [`Decompression`](crate::middleware::Decompression) decodes. It gets the rest
/// all the same, unless it refuses (4xx, 5xx), ends its side, or takes nothing for the `idle_timeout`, or the client pauses for
/// two seconds behind a whole answer. The setting
/// `body_bytes_max` bounds what goes there: 413, or the end of the connection where the answer has begun.
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
    set_headers: Vec<(HeaderName, Box<HeaderSource>)>,
}

/// What a header says to the server, of a request.
type HeaderSource = dyn Fn(&Request<'_>) -> Option<HeaderValue> + Send + Sync;

#[derive(Clone, Debug)]
struct Options {
    strip: String,
    keep_host: bool,
    upgrades: Vec<String>,
    response_timeout: Duration,
    idle_timeout: Duration,
    limits: Limits,
}

impl Proxy {
    /// A proxy to the server at `url`: `http://host:port`, perhaps with a path that is put before every other. Its
    /// name is looked up now, and again when no address of it answers, but once in 5 s at most. Of several addresses the one
    /// that answered last comes first.
    ///
    /// # Errors
    /// It is no such URL, or the name is not known.
    pub fn to(url: &str) -> Result<Proxy> {
        let upstream = Upstream::new(url)?;
        let options = Options {
            strip: String::new(),
            keep_host: false,
            upgrades: vec!["websocket".to_owned()],
            response_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            limits: Limits::default(),
        };
        Ok(Proxy { upstream, options, set_headers: Vec::new() })
    }

    /// Leaves `prefix` out of the path that is passed on; requests without it get 404. Default: none.
    #[must_use]
    pub fn strip_prefix(mut self, prefix: &str) -> Proxy {
        self.options.strip = encoded(prefix.trim_end_matches('/'));
        self
    }

    /// Passes on the `Host` that the client asked for, and not that of the URL.
    #[must_use]
    pub fn keep_host(mut self) -> Proxy {
        self.options.keep_host = true;
        self
    }

    /// Says this header to the server: what `value` gives for a request, and nothing where that is none. What the client says
    /// under this name, in any spelling, is not passed on. Default: what a client says goes through.
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
    /// It is one that the proxy has to say itself: what frames the message, what is for one connection, `Host` (see
    /// [`keep_host`](Proxy::keep_host)), and the fields that say who asked whom.
    pub fn set_header(
        mut self,
        name: HeaderName,
        value: impl Fn(&Request<'_>) -> Option<HeaderValue> + Send + Sync + 'static,
    ) -> Result<Proxy> {
        if !request::may_be_set(&plain_field_name(name.as_str().as_bytes())) {
            return Err(Error::usage(format!("{name} is not to be set: a Proxy says that itself")));
        }
        self.set_headers.retain(|(known, _)| *known != name);
        self.set_headers.push((name, Box::new(value)));
        Ok(self)
    }

    /// Also passes on upgrades to this protocol, for which the connection becomes a tunnel: what goes through it is seen
    /// by the server behind alone. Default: `websocket` and no other. A request that asks for another one is passed on
    /// without that wish. With `h2c`, say, clients could send the server requests of which this one knows nothing.
    #[must_use]
    pub fn allow_upgrade(mut self, protocol: &str) -> Proxy {
        self.options.upgrades.push(protocol.to_owned());
        self
    }

    /// How long a connection to the server may take, with all its addresses: 504 after that. Default 5 s. The request
    /// for which its name is looked up again waits for the system's resolver as well, and that has bounds of its own.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Proxy {
        self.upstream.connect_timeout = timeout;
        self
    }

    /// How long the server may think before its answer begins: 504 after that. Default 60 s. Interim responses (1xx) are passed
    /// on, and are no beginning.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Proxy {
        self.options.response_timeout = timeout;
        self
    }

    /// How long the server may pause within an answer, or take nothing of a request: it is broken off after that.
    /// Default 60 s.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Proxy {
        self.options.idle_timeout = timeout;
        self
    }

    /// How many connections to the server are kept when nobody needs them. Default 32.
    #[must_use]
    pub fn idle_connections_max(mut self, connections: usize) -> Proxy {
        self.upstream.idle_max = connections;
        self
    }

    fn forward(&self, req: &mut Request<'_>) -> Result<Response, Failure> {
        let forwards = request::forwards_left(req)?;
        if forwards == Some(0) {
            return Ok(final_recipient(req));
        }
        let head = request::head(req, forwards, self)?;
        let (conn, is_reused) = self.upstream.acquire(time_left(req))?;
        let may_repeat = is_reused && may_repeat(req);
        let mut exchange = self.exchange(req, &head, conn);
        let received = match exchange.send_request(req) {
            // It may have closed the kept connection before it saw the request, or may have died of it: RFC 9110 section
            // 9.2.2 lets it have the request once more. Another kept connection could be as dead.
            Err(Failure::Closed) if may_repeat && exchange.conn.has_received_nothing => {
                exchange = self.exchange(req, &head, self.upstream.connect_new(time_left(req))?);
                exchange.send_request(req)
            }
            received => received,
        };
        exchange.relay_response(req, received?)
    }

    fn exchange(&self, req: &Request<'_>, head: &[u8], mut conn: UpstreamConn) -> ProxyExchange {
        conn.queue(head);
        let (server, options) = (self.upstream.authority().clone(), self.options.clone());
        let wait = CONTINUE_WAIT.min(time_left(req));
        let continue_by = request::expects_continue(req).then(|| upstream::from_now(wait));
        ProxyExchange {
            conn,
            server,
            options,
            continue_by,
            upload: Upload::of(req),
            idle_pool: self.upstream.idle_pool(),
        }
    }
}

/// The answer to a request that must not go further (RFC 9110 section 7.6.2). It is for us then; of what this proxy can do
/// itself there is nothing to tell, and TRACE it does not do.
fn final_recipient(req: &Request<'_>) -> Response {
    let is_known = *req.method() == Method::OPTIONS;
    Response::new(if is_known { StatusCode::NO_CONTENT } else { StatusCode::NOT_IMPLEMENTED })
}

/// How long anybody waits for the answer.
fn time_left(req: &Request<'_>) -> Duration {
    req.time_left().unwrap_or(Duration::MAX)
}

const DEADLINE: &str = "the deadline of the request";

/// It can be sent again: twice is as once, and there is no body that would be used up.
fn may_repeat(req: &Request<'_>) -> bool {
    req.method().is_idempotent() && req.body_left() == Some(0)
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

    fn blocking(&self, _: &Asked<'_>) -> Blocking {
        Blocking::Always
    }
}

fn warn(server: &str, why: impl fmt::Display) {
    log::warn!("proxy to {server}: {}", OneLine(why));
}

/// Why a request was not passed on, or came to nothing.
enum Failure {
    /// The request is not for this proxy.
    Request(StatusCode, &'static str),
    /// The client's body could not be read.
    Client(Error),
    Unreachable(io::Error),
    /// The server ended the connection before its answer was there.
    Closed,
    /// For longer than this option allows.
    Timeout(&'static str),
    Socket(io::Error),
    Malformed(ResponseFault),
    /// It switched to a protocol that nobody asked for.
    UnexpectedUpgrade,
}

impl Failure {
    /// From an error of the connection to the server, whose wait this option bounds.
    fn of(error: io::Error, bound: &'static str) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut => Failure::Timeout(bound),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Socket(error),
        }
    }

    fn for_log(&self) -> Option<String> {
        match self {
            Failure::Request(..) | Failure::Client(_) => None,
            Failure::Unreachable(error) => Some(format!("cannot be reached: {error}")),
            Failure::Closed => Some("closed the connection before it responded".to_owned()),
            Failure::Timeout(bound) => Some(format!("timed out ({bound})")),
            Failure::Socket(error) => Some(error.to_string()),
            Failure::Malformed(fault) => Some(fault.to_string()),
            Failure::UnexpectedUpgrade => Some("switched to a protocol that was not requested".to_owned()),
        }
    }
}

/// The detail of a 502 where the server has answered, and not as it should.
const NO_ANSWER: &str = "no valid response from the upstream server";

impl IntoResponse for Failure {
    /// What a client learns is that it was the other server, and no more of it.
    fn into_response(self) -> Response {
        let (status, detail) = match self {
            Failure::Client(error) => return error.into_response(),
            Failure::Request(status, why) => (status, why),
            Failure::Timeout(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream server did not respond in time")
            }
            Failure::Unreachable(error) if is_timed_out(&error) => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream server could not be reached in time")
            }
            Failure::Unreachable(_) => (StatusCode::BAD_GATEWAY, "the upstream server could not be reached"),
            Failure::Closed | Failure::Socket(_) | Failure::Malformed(_) | Failure::UnexpectedUpgrade => {
                (StatusCode::BAD_GATEWAY, NO_ANSWER)
            }
        };
        Problem::new(status).detail(detail).into_response()
    }
}

impl From<ResponseFault> for Failure {
    fn from(fault: ResponseFault) -> Failure {
        Failure::Malformed(fault)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("to", &self.upstream.authority())
            .field("options", &self.options)
            .field("headers", &self.set_headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}
