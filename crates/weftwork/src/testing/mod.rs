//! A test client that calls a handler without a port, a thread or a wait.
//!
//! ```text
//! TestClient -- bytes --> parser -> handler -> encoder -- bytes --> TestResponse
//!      +------ its clock: moved by `advance`, and by handlers that sleep
//! ```

mod connection;
mod cookies;
mod events;
mod http2;
mod lockstep;
mod pipe;
mod request;
mod response;
mod secured;
#[cfg(test)]
mod tests;
#[cfg(feature = "websocket")]
mod websocket;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

pub use connection::TestConnection;
use connection::TestServer;
use cookies::Cookies;
pub use events::{TestEvent, TestEvents};
use http2::Http2Connection;
pub use http2::PendingResponse;
use pipe::ClientStep;
pub use request::TestRequest;
#[cfg(test)]
pub(crate) use response::take_response;
pub use response::{NoResponse, TestResponse};
use secured::Secured;
#[cfg(feature = "websocket")]
pub use websocket::TestWebSocket;

use crate::app::extract::IntoHandler;
use crate::app::middleware::HandlerExt;
use crate::message::{Handler, IntoResponse, Problem, ProblemShape, Request};
use crate::server::check_states;
use crate::settings::Settings;
use crate::transport::events::ServerStats;

/// A client for tests. It sends requests to a handler through the real parser, connection and encoder, in
/// memory.
///
/// There is no server, no port and no thread. Nothing waits, and a test takes microseconds. The client has its
/// own clock, which [`advance`](TestClient::advance) and [`weftwork::sleep`](crate::sleep) move, so that tests
/// can check deadlines. Requests use one keep-alive connection, as long as both sides keep it.
///
/// ```
/// use weftwork::prelude::*;
/// use weftwork::TestClient;
///
/// fn greet(req: &mut Request) -> String {
///     format!("hello, {}", req.query_value("name").unwrap_or_else(|| "world".into()))
/// }
///
/// let mut client = TestClient::new(greet);
/// assert_eq!(client.get("/").send().text(), "hello, world");
///
/// let answer = client.get("/").query("name", "Ada & Bob").header("accept", "text/plain").send();
/// assert_eq!(answer.status, StatusCode::OK);
/// assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
/// assert_eq!(answer.text(), "hello, Ada & Bob");
/// ```
///
/// To test an engine (threads, fairness, shutdown under load), use a real [`Server`](crate::Server) at port 0.
pub struct TestClient {
    server: Arc<TestServer>,
    peer: SocketAddr,
    connection: Option<TestConnection>,
    cookies: Option<Cookies>,
    secured: Secured,
    is_http2: bool,
    http2: Option<Http2Connection>,
}

impl TestClient {
    /// Creates a client of `handler` with the default settings. Environment variables are ignored.
    ///
    /// # Panics
    /// Panics if a server would not start with this handler, because its routes conflict or a
    /// [`State`](crate::State) is missing. Also panics if the process has no descriptor left.
    #[track_caller]
    pub fn new<M>(handler: impl IntoHandler<M>) -> TestClient {
        let handler = handler.into_handler();
        if let Err(error) = handler.check().and_then(|()| check_states(&handler)) {
            panic!("{error}");
        }
        TestClient::start(Arc::new(handler), Settings::default(), None)
    }

    /// Changes settings. The clock and the counters restart.
    ///
    /// ```
    /// # use weftwork::{Request, Result, TestClient};
    /// fn echo(req: &mut Request) -> Result<String> {
    ///     Ok(req.body().text()?)
    /// }
    /// let mut client = TestClient::new(echo).settings(|s| s.body_bytes_max(4));
    /// assert_eq!(client.post("/").body("four").send().text(), "four");
    /// assert_eq!(client.post("/").body("fives").send().status, 413);
    /// ```
    ///
    /// # Panics
    /// Panics if a server could not run with these settings, or if the process has no descriptor left.
    #[must_use]
    #[track_caller]
    pub fn settings(self, change: impl FnOnce(Settings) -> Settings) -> TestClient {
        let settings = change(self.server.cx.settings.clone());
        if let Err(error) = settings.check() {
            panic!("{error}");
        }
        let problems = self.server.cx.problems.clone();
        let server = TestClient::start(self.server.handler.clone(), settings, problems);
        TestClient { server: server.server, connection: None, http2: None, ..self }
    }

    /// Sets the shape of the responses that the library makes itself. See [`Server::problems`](crate::Server::problems). The
    /// clock and the counters restart.
    ///
    /// # Panics
    /// Panics if the process has no descriptor left.
    #[must_use]
    #[track_caller]
    pub fn problems<R: IntoResponse>(
        self,
        shape: impl Fn(StatusCode, &Problem, Option<&Request<'_>>) -> R + Send + Sync + 'static,
    ) -> TestClient {
        let (shape, settings) = (ProblemShape::new(shape), self.server.cx.settings.clone());
        let handler = Arc::new(self.server.handler.clone().with(shape.clone()));
        let server = TestClient::start(handler, settings, Some(shape));
        TestClient { server: server.server, connection: None, http2: None, ..self }
    }

    /// Stores the cookies of responses and sends them back as a browser does. The `Path` counts, and so does
    /// `Max-Age` on the client's clock. A request with its own `Cookie` sends only that one. Default: no
    /// cookies are stored.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// use weftwork::TestClient;
    ///
    /// let cookie = HeaderValue::from_static("user=ada; Path=/; Max-Age=60");
    /// let log_in = move |_: &mut Request| Response::text("welcome").with_header(header::SET_COOKIE, cookie.clone());
    /// let whoami = |req: &mut Request| req.header("cookie").unwrap_or("nobody").to_owned();
    /// let mut client = TestClient::new(Router::new().post("/login", log_in).get("/", whoami)).keep_cookies();
    /// assert_eq!(client.get("/").send().text(), "nobody");
    /// client.post("/login").send();
    /// assert_eq!(client.get("/").send().text(), "user=ada");
    /// client.advance(std::time::Duration::from_secs(60));
    /// assert_eq!(client.get("/").send().text(), "nobody");
    /// ```
    #[must_use]
    pub fn keep_cookies(self) -> TestClient {
        TestClient { cookies: Some(Cookies::default()), ..self }
    }

    #[track_caller]
    fn start(handler: Arc<dyn Handler>, settings: Settings, problems: Option<ProblemShape>) -> TestClient {
        let server = match TestServer::new(handler, settings, problems) {
            Ok(server) => Arc::new(server),
            Err(error) => panic!("cannot create a test client: {error}"),
        };
        let peer = (Ipv4Addr::LOCALHOST, 50_000).into();
        TestClient {
            server,
            peer,
            connection: None,
            cookies: None,
            secured: None,
            is_http2: false,
            http2: None,
        }
    }

    /// Sets the address of the client, as handlers see it, for new connections. Default: 127.0.0.1.
    pub fn peer(&mut self, peer: SocketAddr) -> &mut TestClient {
        self.peer = peer;
        (self.connection, self.http2) = (None, None);
        self
    }

    /// Creates a GET request for `target`: path and query.
    pub fn get(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::GET, target)
    }

    /// Creates a HEAD request for `target`.
    pub fn head(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::HEAD, target)
    }

    /// Creates a POST request for `target`.
    pub fn post(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::POST, target)
    }

    /// Creates a PUT request for `target`.
    pub fn put(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::PUT, target)
    }

    /// Creates a PATCH request for `target`.
    pub fn patch(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::PATCH, target)
    }

    /// Creates a DELETE request for `target`.
    pub fn delete(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::DELETE, target)
    }

    /// Creates an OPTIONS request for `target`.
    pub fn options(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::OPTIONS, target)
    }

    /// Creates a request with any method.
    pub fn request(&mut self, method: Method, target: impl Into<String>) -> TestRequest<'_> {
        TestRequest::new(self, method, target.into())
    }

    /// Opens a WebSocket to `target`. See [`TestRequest::websocket`].
    ///
    /// # Panics
    /// Same as [`TestRequest::websocket`].
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub fn websocket(&mut self, target: impl Into<String>) -> TestWebSocket {
        self.get(target).websocket()
    }

    /// Opens an event stream of `target`. See [`TestRequest::events`].
    ///
    /// # Panics
    /// Same as [`TestRequest::events`].
    #[track_caller]
    pub fn events(&mut self, target: impl Into<String>) -> TestEvents {
        self.get(target).events()
    }

    /// Opens a separate connection that is used byte by byte.
    ///
    /// # Panics
    /// Panics if the process has no descriptor left.
    #[track_caller]
    pub fn connect(&self) -> TestConnection {
        match TestConnection::open(&self.server, self.peer, self.secured.clone()) {
            Ok(connection) => connection,
            Err(error) => panic!("cannot create a connection in memory: {error}"),
        }
    }

    /// Advances the clock of all connections. Deadlines that pass take effect. Separate connections, event
    /// streams and WebSockets continue when they are used next. To move them step by step, as time passes for a
    /// server, use their own `advance`.
    pub fn advance(&mut self, time: Duration) {
        match (&mut self.connection, &mut self.http2) {
            (Some(connection), _) => connection.advance(time),
            (None, Some(http2)) => http2.advance(time),
            (None, None) => self.server.advance_to(self.server.now().after(time)),
        }
    }

    /// Returns the time that has passed on the client's clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.server.now().0)
    }

    /// Tells the server to stop, as SIGTERM does. All responses then say `Connection: close`. Idle connections close when
    /// they were idle for the setting `drain_idle_timeout`, on the client's clock. Separate connections notice it when they
    /// are used next. With a `drain_delay`, the server goes on, and
    /// [`Request::is_stopping`](crate::Request::is_stopping) returns true, until the next call. The second call stands for
    /// the end of the `drain_delay`. It does not stand for a second SIGTERM, which closes all requests of a real server at
    /// once.
    pub fn drain(&mut self) {
        let cx = &self.server.cx;
        if !cx.is_stopping() && !cx.settings.drain_delay.is_zero() {
            return cx.announce_stop();
        }
        cx.begin_drain(cx.settings.drain_timeout);
        if let Some(connection) = &mut self.connection {
            connection.run();
        }
        if let Some(http2) = &mut self.http2 {
            http2.run();
        }
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> ServerStats {
        self.server.cx.stats()
    }

    /// Returns the response to a request that was [begun](TestRequest::begin).
    ///
    /// # Panics
    /// Panics if there is no response. See [`TestRequest::try_send`].
    #[track_caller]
    pub fn finish(&mut self, pending: PendingResponse) -> TestResponse {
        let answered = match &mut self.http2 {
            Some(connection) => connection.finish(&pending),
            None => Err(NoResponse::new("the connection has ended", b"")),
        };
        answered.unwrap_or_else(|none| panic!("{none}"))
    }

    fn over_http2<T>(&mut self, act: impl FnOnce(&mut Http2Connection) -> T) -> T {
        let kept = self.http2.take().and_then(|mut kept| (!kept.is_closed()).then_some(kept));
        let mut connection = match kept {
            Some(kept) => kept,
            None => match Http2Connection::open(&self.server, self.peer, self.secured.clone()) {
                Ok(connection) => connection,
                Err(error) => panic!("cannot create a connection in memory: {error}"),
            },
        };
        let done = act(&mut connection);
        self.http2 = Some(connection);
        done
    }

    fn exchange(
        &mut self,
        steps: Vec<ClientStep>,
        leave_after: Option<u64>,
    ) -> Result<TestResponse, NoResponse> {
        let kept = self.connection.take().and_then(|mut kept| (!kept.is_closed()).then_some(kept));
        let mut connection = kept.unwrap_or_else(|| self.connect());
        match leave_after {
            Some(bytes) => connection.pipe.take_at_most(bytes, true),
            None => connection.pipe.take_all(),
        }
        for step in steps {
            connection.pipe.push_step(step);
        }
        connection.run();
        connection.advance_to_response();
        let answered = connection.try_response();
        // Steps that the server did not wait for are dropped.
        drop(connection.pipe.take_script());
        match answered {
            Err(none) if leave_after.is_some() => none.or_partial(),
            answered => {
                // Without a response, the next request would be taken for a part of this one.
                match connection.is_closed() || answered.is_err() {
                    true => connection.end(),
                    false => self.connection = Some(connection),
                }
                answered
            }
        }
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
