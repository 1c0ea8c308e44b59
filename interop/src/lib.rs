//! Programs of the async world on Weftwork: what the tests share.

pub mod grpc;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use reqwest::{Client, ClientBuilder, RequestBuilder};
use weftwork::http::{HeaderMap, StatusCode};
use weftwork::{Engine, Running, Server};
use weftwork_tower::serve_tower;

/// Time that any answer has on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The same app on hyper, and on each engine of Weftwork.
pub struct Sites {
    /// The address on hyper.
    pub hyper: SocketAddr,
    /// The servers of Weftwork.
    pub weft: Vec<Running>,
}

/// What a client has got.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// Fields that both servers must send alike.
    pub headers: BTreeMap<String, Vec<String>>,
    /// `Content-Length`, if hyper sends it, except that of a 204 or 304 (RFC 9110 section 8.6).
    pub length: Option<String>,
    /// The body, or that it was cut.
    pub body: Result<String, &'static str>,
}

/// Returns each engine, with two loops or threads.
pub fn engines() -> impl Iterator<Item = Engine> {
    ["adaptive:2", "reactor:2", "workers:2", "pool:2", "fibers:2"]
        .into_iter()
        .map(|name| name.parse().unwrap())
}

/// Starts an app on hyper and on each engine. Must be called on a thread of a runtime.
pub async fn start(app: Router) -> Sites {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hyper = listener.local_addr().unwrap();
    let served = app.clone().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
    Sites { hyper, weft: engines().map(|engine| start_on(engine, app.clone())).collect() }
}

/// Starts an app on an engine.
pub fn start_on(engine: Engine, app: Router) -> Running {
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).settings(|s| s.http2_cleartext(true));
    server.start(serve_tower(app).body_bytes_max(u64::MAX)).unwrap()
}

/// The status that is wanted, the method and path of a request, its fields, and its body.
pub type Line<'a> = (u16, &'a str, &'a [(&'a str, &'a str)], &'a str);

impl Sites {
    /// Asks each server the same, over HTTP/1.1 and over HTTP/2, and compares the answers. Returns that of hyper over
    /// HTTP/1.1.
    pub async fn same(&self, request: impl Fn(&Client, &str) -> RequestBuilder) -> Answer {
        let over_http1 = self.same_over(&client(), &request).await;
        self.same_over(&client_http2(), &request).await;
        over_http1
    }

    /// Asks each server the same by this client, and compares the answers. Returns that of hyper.
    pub async fn same_over(
        &self,
        client: &Client,
        request: impl Fn(&Client, &str) -> RequestBuilder,
    ) -> Answer {
        let wanted = ask(client, &format!("http://{}", self.hyper), &request).await;
        for server in &self.weft {
            let mut got = ask(client, &format!("http://{}", server.local_addr().unwrap()), &request).await;
            got.length = got.length.filter(|_| wanted.length.is_some());
            assert_eq!(got, wanted, "{}: left is Weftwork, right is hyper", server.engine());
        }
        wanted
    }

    /// Asks each server the same, line by line. Returns the answers.
    pub async fn check(&self, lines: &[Line<'_>]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for line in lines {
            let answer = self.same(|client, site| of_line(client, site, line)).await;
            assert_eq!(answer.status, line.0, "{line:?}: {answer:?}");
            answers.push(answer);
        }
        answers
    }

    /// Returns all addresses, that of hyper first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let weft = self.weft.iter().map(|server| server.local_addr().unwrap());
        [self.hyper].into_iter().chain(weft).collect()
    }
}

/// Returns the request of a line.
pub fn of_line(client: &Client, site: &str, line: &Line<'_>) -> RequestBuilder {
    let (_, request, fields, body) = *line;
    let (method, path) = request.split_once(' ').unwrap();
    let request = client.request(method.parse().unwrap(), format!("{site}{path}"));
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    if body.is_empty() { request } else { request.body(body.to_owned()) }
}

/// Returns a client that keeps no connection, so that each test ends its own.
pub fn client() -> Client {
    client_builder().build().unwrap()
}

/// Returns such a client that speaks HTTP/2.
pub fn client_http2() -> Client {
    client_builder().http2_prior_knowledge().build().unwrap()
}

/// Returns a client that keeps no connection and follows no redirect.
pub fn client_builder() -> ClientBuilder {
    Client::builder().pool_max_idle_per_host(0).timeout(PATIENCE).redirect(reqwest::redirect::Policy::none())
}

/// Asks a server, such as `http://127.0.0.1:8080`. In the answer, the address is `site`.
pub async fn ask(client: &Client, site: &str, request: impl Fn(&Client, &str) -> RequestBuilder) -> Answer {
    let response = request(client, site).send().await.unwrap();
    let named =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(site.trim_start_matches("http://"), "site");
    let (status, headers) = (response.status(), headers_of(response.headers(), named));
    let has_length = ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let length = response.headers().get("content-length").filter(|_| has_length);
    let length = length.map(|length| named(length.as_bytes()));
    let body = response.bytes().await.map(|bytes| named(&bytes)).map_err(|_| "cut");
    Answer { status, headers, length, body }
}

/// Returns the fields, except those that depend on the time, and on how a body is framed.
fn headers_of(map: &HeaderMap, named: impl Fn(&[u8]) -> String) -> BTreeMap<String, Vec<String>> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in map {
        if !["date", "content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
            fields.entry(name.to_string()).or_default().push(named(value.as_bytes()));
        }
    }
    fields
}

/// Waits until something holds, for as long as a busy machine may take.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
