//! Programs of the async world on Weftwork: what the tests share.

pub mod grpc;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use reqwest::{Client, RequestBuilder};
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

impl Sites {
    /// Asks each server the same, and compares the answers. Returns that of hyper.
    pub async fn same(&self, request: impl Fn(&Client, &str) -> RequestBuilder) -> Answer {
        let client = client();
        let wanted = ask(&client, self.hyper, &request).await;
        for server in &self.weft {
            let got = ask(&client, server.local_addr().unwrap(), &request).await;
            assert_eq!(got, wanted, "{}: left is Weftwork, right is hyper", server.engine());
        }
        wanted
    }
}

/// Returns a client that keeps no connection, so that each test ends its own.
pub fn client() -> Client {
    Client::builder()
        .pool_max_idle_per_host(0)
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap()
}

async fn ask(
    client: &Client,
    address: SocketAddr,
    request: impl Fn(&Client, &str) -> RequestBuilder,
) -> Answer {
    let response = request(client, &format!("http://{address}")).send().await.unwrap();
    let (status, headers) = (response.status(), headers_of(response.headers()));
    let bytes = response.bytes().await;
    let body = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|_| "cut");
    Answer { status, headers, body }
}

/// Returns the fields, except those that depend on the time, and on how a body is framed.
fn headers_of(map: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in map {
        if !["date", "content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            fields.entry(name.to_string()).or_default().push(value);
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
