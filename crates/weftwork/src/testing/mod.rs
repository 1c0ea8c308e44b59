//! How does one test a handler without a port, a thread, or a wait?
//!
//! ```text
//! TestClient -- bytes --> parser -> handler -> encoder -- bytes --> TestResponse
//!      +------ its clock: moved by `advance`, and by handlers that sleep
//! ```

mod connection;
mod cookies;
mod events;
mod lockstep;
mod pipe;
mod request;
mod response;
#[cfg(test)]
mod tests;
#[cfg(feature = "websocket")]
mod websocket;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Method;

pub use connection::TestConnection;
use connection::TestServer;
use cookies::Cookies;
pub use events::{TestEvent, TestEvents};
use pipe::ClientStep;
pub use request::TestRequest;
#[cfg(test)]
pub(crate) use response::take_response;
pub use response::{NoResponse, TestResponse};
#[cfg(feature = "websocket")]
pub use websocket::TestWebSocket;

use crate::message::Handler;
use crate::server::check_states;
use crate::settings::Settings;
use crate::transport::context::Stage;
use crate::transport::counters::Counts;

/// A client for tests: sends requests to a handler through the real parser, connection and encoder, in memory.
///
/// There is no server, no port and no thread; nothing waits, and a test takes microseconds. Time is a clock of
/// the client's own, which [`advance`](TestClient::advance) and [`weftwork::sleep`](crate::sleep) move, so that
/// deadlines can be tested as well. Requests go over one kept-alive connection, as long as both sides keep it.
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
/// What engines do (threads, fairness, shutdown under load) needs a real server: [`Server`](crate::Server) at
/// port 0.
pub struct TestClient {
    server: Arc<TestServer>,
    peer: SocketAddr,
    connection: Option<TestConnection>,
    cookies: Option<Cookies>,
}

impl TestClient {
    /// A client of `handler`, with the default settings. Variables of the environment do not count.
    ///
    /// # Panics
    /// No server would start with this handler: its routes conflict, or a [`State`](crate::State) is missing. Or the process has
    /// no descriptor left.
    #[track_caller]
    pub fn new(handler: impl Handler) -> TestClient {
        if let Err(error) = handler.check().and_then(|()| check_states(&handler)) {
            panic!("{error}");
        }
        TestClient::start(Arc::new(handler), Settings::default())
    }

    /// Changes settings. The clock and the counters start again.
    ///
    /// ```
    /// # use weftwork::{ByteCount, Request, Result, TestClient};
    /// fn echo(req: &mut Request) -> Result<String> {
    ///     Ok(req.body().text()?)
    /// }
    /// let mut client = TestClient::new(echo).settings(|s| s.body_bytes_max(ByteCount(4)));
    /// assert_eq!(client.post("/").body("four").send().text(), "four");
    /// assert_eq!(client.post("/").body("fives").send().status, 413);
    /// ```
    ///
    /// # Panics
    /// No server could run with them, or the process has no descriptor left.
    #[must_use]
    #[track_caller]
    pub fn settings(self, change: impl FnOnce(Settings) -> Settings) -> TestClient {
        let settings = change(self.server.cx.settings.clone());
        if let Err(error) = settings.check() {
            panic!("{error}");
        }
        let TestClient { server, peer, cookies, .. } = self;
        TestClient { peer, cookies, ..TestClient::start(server.handler.clone(), settings) }
    }

    /// Keeps the cookies of responses and sends them back, as a browser does: by their `Path`, and until they are removed
    /// or their `Max-Age` is over on the client's clock. A request with a `Cookie` of its own sends just that one.
    /// Without it, the default, a request has what the test gives it.
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
    fn start(handler: Arc<dyn Handler>, settings: Settings) -> TestClient {
        let server = match TestServer::new(handler, settings) {
            Ok(server) => Arc::new(server),
            Err(error) => panic!("a test client could not be made: {error}"),
        };
        let peer = (Ipv4Addr::LOCALHOST, 50_000).into();
        TestClient { server, peer, connection: None, cookies: None }
    }

    /// Connects from this address from now on, as handlers see it; 127.0.0.1 otherwise.
    pub fn peer(&mut self, peer: SocketAddr) -> &mut TestClient {
        self.peer = peer;
        self.connection = None;
        self
    }

    /// A GET of `target`: path and query.
    pub fn get(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::GET, target)
    }

    /// A HEAD of `target`.
    pub fn head(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::HEAD, target)
    }

    /// A POST to `target`.
    pub fn post(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::POST, target)
    }

    /// A PUT to `target`.
    pub fn put(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::PUT, target)
    }

    /// A PATCH of `target`.
    pub fn patch(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::PATCH, target)
    }

    /// A DELETE of `target`.
    pub fn delete(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::DELETE, target)
    }

    /// An OPTIONS of `target`.
    pub fn options(&mut self, target: impl Into<String>) -> TestRequest<'_> {
        self.request(Method::OPTIONS, target)
    }

    /// A request with any method.
    pub fn request(&mut self, method: Method, target: impl Into<String>) -> TestRequest<'_> {
        TestRequest::new(self, method, target.into())
    }

    /// A WebSocket, to `target`: see [`TestRequest::websocket`].
    ///
    /// # Panics
    /// As there.
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub fn websocket(&mut self, target: impl Into<String>) -> TestWebSocket {
        self.get(target).websocket()
    }

    /// A stream of events, from `target`: see [`TestRequest::events`].
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn events(&mut self, target: impl Into<String>) -> TestEvents {
        self.get(target).events()
    }

    /// A connection of its own, byte by byte.
    ///
    /// # Panics
    /// The process has no descriptor left.
    #[track_caller]
    pub fn connect(&self) -> TestConnection {
        match TestConnection::open(&self.server, self.peer) {
            Ok(connection) => connection,
            Err(error) => panic!("a connection in memory could not be made: {error}"),
        }
    }

    /// Lets time pass: deadlines that come up end what they bound. The clock is that of all connections, but those that were
    /// opened by themselves, and streams of events and WebSockets, go on when they are looked at next; step by step, as time
    /// passes for a server, by their own `advance`.
    pub fn advance(&mut self, time: Duration) {
        match &mut self.connection {
            Some(connection) => connection.advance(time),
            None => self.server.advance_to(self.server.now().after(time)),
        }
    }

    /// How much time has passed on the client's clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.server.now().0)
    }

    /// The server is told to stop, as by SIGTERM: idle connections end (those that were opened by themselves when they are
    /// looked at next), and others with their next response. With a
    /// `drain_delay` it goes on as before, and [`Request::is_stopping`](crate::Request::is_stopping), until this is called
    /// once more. That call stands for the end of the `drain_delay`, not for a second SIGTERM, which cuts all requests of a
    /// real server at once.
    pub fn drain(&mut self) {
        let cx = &self.server.cx;
        if !cx.is_stopping() && !cx.settings.drain_delay.is_zero() {
            return cx.announce_stop();
        }
        cx.enter(Stage::Draining);
        if let Some(connection) = &mut self.connection {
            connection.run();
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.server.cx.counts()
    }

    fn exchange(
        &mut self,
        steps: Vec<ClientStep>,
        leave_after: Option<usize>,
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
        // What the server did not ask for is not sent.
        drop(connection.pipe.take_script());
        match answered {
            Err(none) if leave_after.is_some() => none.or_partial(),
            answered => {
                // Where there is no response, the next request would be taken for more of this one.
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
