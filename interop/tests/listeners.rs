//! An axum app behind other listeners: TLS, a Unix socket, several addresses, a proxy. And what a stop leaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;
use weftwork::rustls::pki_types::pem::PemObject;
use weftwork::rustls::pki_types::{CertificateDer, ServerName};
use weftwork::rustls::{ClientConfig, RootCertStore, crypto};
use weftwork::tls::Tls;
use weftwork::{Server, Settings};
use weftwork_interop::{PATIENCE, client, engines, eventually, start};
use weftwork_tower::serve_tower;

fn app() -> Router {
    let long = || async {
        let parts =
            tokio_stream::iter(0..500).map(|number| Ok::<_, std::io::Error>(format!("{number:1000}")));
        Body::from_stream(parts)
    };
    Router::new()
        .route("/", get(|uri: Uri, version: Version| async move { format!("{version:?} {}", uri.path()) }))
        .route("/long", get(long))
        .route("/echo", post(|body: Body| async move { body }))
        .route(
            "/peer",
            get(|peer: Option<axum::Extension<ConnectInfo<SocketAddr>>>| async move {
                if peer.is_some() { "an address" } else { "none" }
            }),
        )
}

/// What a client has got: the status and the body of each of three requests.
type Answers = Vec<(StatusCode, Bytes)>;

fn requests(authority: &str) -> Vec<hyper::Request<Full<Bytes>>> {
    let request = |method: &str, path: &str, body: Vec<u8>| {
        let request = hyper::Request::builder().method(method).uri(format!("https://{authority}{path}"));
        request.header(header::HOST, authority).body(Full::from(body)).unwrap()
    };
    vec![
        request("GET", "/", Vec::new()),
        request("GET", "/long", Vec::new()),
        request("POST", "/echo", vec![b'x'; 1 << 20]),
        request("GET", "/missing", Vec::new()),
    ]
}

/// Sends all requests on one connection.
async fn ask_over(socket: impl Read + Write + Send + Unpin + 'static, version: Version) -> Answers {
    let mut answers = Vec::new();
    if version == Version::HTTP_2 {
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await;
        let (mut client, connection) = connected.unwrap();
        tokio::spawn(connection);
        for mut request in requests("localhost") {
            request.headers_mut().remove(header::HOST);
            let response = client.send_request(request).await.unwrap();
            answers.push((response.status(), response.into_body().collect().await.unwrap().to_bytes()));
        }
        return answers;
    }
    let (mut client, connection) = hyper::client::conn::http1::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    for mut request in requests("localhost") {
        *request.uri_mut() = request.uri().path().parse().unwrap();
        client.ready().await.unwrap();
        let response = client.send_request(request).await.unwrap();
        answers.push((response.status(), response.into_body().collect().await.unwrap().to_bytes()));
    }
    answers
}

async fn over_tcp(address: SocketAddr, version: Version) -> Answers {
    ask_over(TokioIo::new(TcpStream::connect(address).await.unwrap()), version).await
}

fn handler(app: Router) -> weftwork_tower::TowerHandler<Router> {
    serve_tower(app).body_bytes_max(u64::MAX)
}

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

#[tokio::test(flavor = "multi_thread")]
async fn tls_changes_no_answer() {
    let sites = start(app()).await;
    for engine in engines() {
        let tls = Tls::self_signed(["localhost"]).unwrap();
        let chain = tls.chain_pem();
        let server =
            Server::bind("127.0.0.1:0").unwrap().engine(engine).tls(tls).start(handler(app())).unwrap();
        for version in VERSIONS {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()).unwrap();
            let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
            let config = config.with_safe_default_protocol_versions().unwrap();
            let mut config = config.with_root_certificates(roots).with_no_client_auth();
            let protocol: &[u8] = if version == Version::HTTP_2 { b"h2" } else { b"http/1.1" };
            config.alpn_protocols = vec![protocol.to_vec()];
            let socket = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
            assert_eq!(socket.get_ref().1.alpn_protocol(), Some(protocol), "{engine}");
            let answers = ask_over(TokioIo::new(socket), version).await;
            assert!(answers == over_tcp(sites.hyper, version).await, "{engine} {version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_changes_no_answer() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path_of = |name: &str| folder.join(format!("{name}-{}.sock", std::process::id()));
    let hyper = path_of("hyper");
    let _ = std::fs::remove_file(&hyper);
    let listener = UnixListener::bind(&hyper).unwrap();
    tokio::spawn(async move { axum::serve(listener, app()).await.unwrap() });
    let connect = |path: std::path::PathBuf| async { TokioIo::new(UnixStream::connect(path).await.unwrap()) };
    for engine in engines() {
        let path = path_of(&engine.to_string());
        let server = Server::bind(format!("unix:{}", path.display())).unwrap().engine(engine);
        let server = server.settings(|settings: Settings| settings.http2_cleartext(true));
        let _server = server.start(handler(app())).unwrap();
        for version in VERSIONS {
            let answers = ask_over(connect(path.clone()).await, version).await;
            assert!(answers == ask_over(connect(hyper.clone()).await, version).await, "{engine} {version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_addresses_answers() {
    for engine in engines() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap().and_bind("127.0.0.2:0").unwrap();
        let server = server.and_listener(listener).unwrap().engine(engine).start(handler(app())).unwrap();
        assert_eq!(server.addresses().len(), 3);
        for address in server.addresses() {
            let response = client().get(format!("http://{address}/peer")).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), "an address", "{engine} {address}");
        }
    }
}

#[derive(Clone)]
struct Upstream {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
    other: reqwest::Client,
}

/// Passes a request on, by the client of hyper.
async fn pass_on(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{}{path}", upstream.address).parse().unwrap();
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().remove(header::HOST);
    match upstream.client.request(request).await {
        Ok(response) => response.into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Streams what the client of reqwest reads.
async fn fetch(State(upstream): State<Upstream>) -> Response {
    match upstream.other.get(format!("http://{}/long", upstream.address)).send().await {
        Ok(response) => Body::from_stream(response.bytes_stream()).into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_passes_bodies_on() {
    let inner = app()
        .route("/head", any(|| async { ([("x-a", "1"), ("x-a", "2")], StatusCode::ACCEPTED) }))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
        .route("/same", get(|| async { StatusCode::NOT_MODIFIED }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, inner).await.unwrap() });
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let upstream =
        Upstream { address, client: Client::builder(TokioExecutor::new()).build_http(), other: client() };
    let app = Router::new().route("/fetch", get(fetch)).fallback(pass_on);
    let sites = start(app.clone().with_state(upstream.clone())).await;
    let answers = sites
        .check(&[
            (200, "GET /", &[], ""),
            (200, "GET /long?a=b", &[], ""),
            (200, "POST /echo", &[], &"part ".repeat(100_000)),
            (200, "POST /echo", &[], ""),
            (202, "GET /head", &[], ""),
            (202, "HEAD /head", &[], ""),
            (200, "HEAD /long", &[], ""),
            (204, "GET /none", &[], ""),
            (304, "GET /same", &[], ""),
            (404, "GET /missing", &[], ""),
            (405, "DELETE /long", &[], ""),
            (200, "GET /fetch", &[], ""),
        ])
        .await;
    assert_eq!(answers[1].body, answers[11].body);
    let sites = start(app.with_state(Upstream { address: gone, ..upstream })).await;
    sites.check(&[(502, "GET /", &[], ""), (502, "POST /", &[], "body"), (502, "GET /fetch", &[], "")]).await;
}

/// Sends a request and returns its connection.
async fn begin(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    client
}

/// Returns all that is sent until the end of the connection, in small letters and without the date.
async fn rest_of(mut client: TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    let text = text.to_ascii_lowercase();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("date:")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The response is whole and says that the connection ends, and no client is taken any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_the_response_whole() {
    let (inside, go) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let (entered, gone) = (inside.clone(), go.clone());
    let app = Router::new().route(
        "/",
        get(move || {
            let (entered, gone) = (entered.clone(), gone.clone());
            async move {
                let gone = gone.notified();
                entered.fetch_add(1, Ordering::SeqCst);
                gone.await;
                "whole"
            }
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), Arc::<Notify>::default());
    let stopped = stop.clone();
    let serves =
        axum::serve(listener, app.clone()).with_graceful_shutdown(async move { stopped.notified().await });
    let served = tokio::spawn(async move { serves.await.unwrap() });
    let client = begin(address).await;
    eventually("it is inside", || inside.load(Ordering::SeqCst) == 1).await;
    stop.notify_one();
    // hyper is told by a task, and says nothing when it has been.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    let wanted = rest_of(client).await;
    served.await.unwrap();
    for (number, engine) in (2..).zip(engines()) {
        let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).start(handler(app.clone())).unwrap();
        let (address, status) = (server.local_addr().unwrap(), server.status());
        let client = begin(address).await;
        eventually("it is inside", || inside.load(Ordering::SeqCst) == number).await;
        let stops = std::thread::spawn(move || server.shutdown(PATIENCE));
        eventually("it stops", || status.is_stopping()).await;
        eventually("it takes nobody", || std::net::TcpStream::connect(address).is_err()).await;
        go.notify_one();
        assert_eq!(rest_of(client).await, wanted, "{engine}: left is Weftwork, right is hyper");
        assert_eq!(stops.join().unwrap().cut, 0, "{engine}");
    }
}
