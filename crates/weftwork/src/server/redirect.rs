//! The redirect listener: a small server of its own that sends clients of plain HTTP to HTTPS.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, header};

use super::tls::RunningTls;
use super::{Address, Running, Server};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::message::{Blocking, Handler, IntoResponse, Problem, Request, RequestLine, Response};
use crate::settings::Settings;
use crate::transport::listener::Listener;

/// No request of the listener waits for anything, and the engine needs two threads.
const THREADS_MAX: usize = 2;
/// The listener faces the same clients as the site, and each needs it for one request.
const CONNECTIONS_MAX: usize = 1024;
/// A client that was redirected has no more requests here.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for requests in flight when the site is told to stop.
const DRAIN: Duration = Duration::from_millis(500);
/// The port that a URL with `https` need not name.
const HTTPS_PORT: u16 = 443;

impl Server {
    /// Adds a listener for plain HTTP that answers each request with 308 to the same host and path with `https`. The port is
    /// the setting `https_port`, or else that of the first TLS address. Each call adds an address.
    ///
    /// The listener has its own event loop and 1,024 connections. It reads no `WEFT_...` variables, and closes with the site.
    /// A request without `Host` gets 400. Browsers that have seen `Strict-Transport-Security` do not come back here: see
    /// the setting `hsts_max_age`.
    ///
    /// ```no_run
    /// # use weftwork::prelude::*;
    /// # use weftwork::Tls;
    /// let tls = Tls::from_files("fullchain.pem", "privkey.pem")?;
    /// Server::bind("[::]:443")?.tls(tls).redirect_from("[::]:80")?.run(|_: &mut Request| "hello")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// See [`bind`](Server::bind). [`start`](Server::start) fails if no address of the server has TLS.
    pub fn redirect_from(mut self, address: impl fmt::Display) -> Result<Server> {
        let settings = |settings: Settings| {
            let settings = settings.threads_max(THREADS_MAX).connections_max(CONNECTIONS_MAX);
            settings.standby_kept(0).idle_timeout(IDLE_TIMEOUT)
        };
        let server = match self.redirect.take() {
            Some(server) => server.and_bind(address)?,
            None => Server::unbound().without_env().and_bind(address)?.settings(settings),
        };
        self.redirect = Some(Box::new(server.engine(Engine::Adaptive { loops: Some(1) })));
        Ok(self)
    }
}

/// Starts the redirect listener of a server with these listeners, if it has one.
pub(super) fn start(
    server: Option<Box<Server>>,
    site: &[Listener],
    settings: &Settings,
    tls: &RunningTls,
) -> Result<Option<Box<Running>>> {
    let Some(server) = server else { return Ok(None) };
    let port = match (settings.https_port, site.iter().find(|listener| listener.tls().is_some())) {
        (_, None) => {
            return Err(Error::usage(
                "a redirect needs an address with TLS: give the server a certificate (Server::tls), and keep one address without plain+",
            ));
        }
        (0, Some(listener)) => match listener.address() {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => HTTPS_PORT,
        },
        (port, Some(_)) => port,
    };
    Ok(Some(Box::new(server.start(tls.answer_challenges(Arc::new(ToHttps { port })))?)))
}

impl Running {
    /// Returns the addresses of the [redirect listener](Server::redirect_from), with their real ports. Without a redirect
    /// listener, the list is empty.
    pub fn redirect_addresses(&self) -> &[Address] {
        self.redirect.as_ref().map_or(&[], |redirect| redirect.addresses())
    }

    /// Ends the redirect listener, before the site drains.
    pub(super) fn end_redirect(&mut self) {
        if let Some(redirect) = self.redirect.take() {
            redirect.shutdown(DRAIN);
        }
    }
}

struct ToHttps {
    port: u16,
}

impl Handler for ToHttps {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let Some(host) = req.host().map(without_port).filter(|host| !host.is_empty()) else {
            let why = "the request names no host, so it cannot be redirected";
            return Problem::new(StatusCode::BAD_REQUEST).detail(why).into_response();
        };
        let mut location = format!("https://{host}");
        if self.port != HTTPS_PORT {
            location.push_str(&format!(":{}", self.port));
        }
        location.push_str(if req.path() == "*" { "/" } else { req.path() });
        if let Some(query) = req.query() {
            location.push('?');
            location.push_str(query);
        }
        let redirect = Response::new(StatusCode::PERMANENT_REDIRECT);
        redirect.try_with_header(header::LOCATION, location).unwrap_or_else(|error| error.into_response())
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        Blocking::Never
    }
}

/// Returns a host without its port. An IPv6 address keeps its brackets.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the `Location` for each form of a target.

    use super::*;
    use crate::testing::TestClient;

    #[test]
    fn host_and_path_stay_and_the_port_is_that_of_https() {
        let rows = [
            (443, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"),
            (443, "GET /b%20c?d=e HTTP/1.1\r\nHost: a.example:80\r\n\r\n", "https://a.example/b%20c?d=e"),
            (
                8443,
                "POST /form HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 0\r\n\r\n",
                "https://a.example:8443/form",
            ),
            (8443, "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", "https://[::1]:8443/"),
            (443, "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "https://[2001:db8::1]/"),
            (443, "GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://b.example/x"),
            (443, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"),
            (443, "GET /?a=//b HTTP/1.1\r\nHost: a.example:\r\n\r\n", "https://a.example/?a=//b"),
        ];
        for (port, request, location) in rows {
            let mut connection = TestClient::new(ToHttps { port }).connect();
            connection.send(request);
            let response = connection.response();
            assert_eq!(
                (response.status.as_u16(), response.header("location")),
                (308, Some(location)),
                "{request}"
            );
        }
    }

    #[test]
    fn a_request_without_a_host_gets_400() {
        for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n"] {
            let mut connection = TestClient::new(ToHttps { port: 443 }).connect();
            connection.send(request);
            assert_eq!(connection.response().status, StatusCode::BAD_REQUEST, "{request}");
        }
    }
}
