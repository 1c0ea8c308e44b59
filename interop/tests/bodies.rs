//! Bodies that are unpacked, stored, buffered, parsed by type, followed by trailers, or refused: compared with hyper.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Form, Json, Router};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;
use weftwork_interop::{PATIENCE, client, eventually, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_body_is_unpacked() {
    let layers = ServiceBuilder::new().layer(RequestDecompressionLayer::new()).layer(CompressionLayer::new());
    let app = Router::new().route("/", post(|text: String| async move { text.repeat(2) })).layer(layers);
    let sites = start(app).await;
    let text = "a text that is longer than it is packed ".repeat(50_000);
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let pack = |coding: &'static str, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        move |client: &reqwest::Client, site: &str| {
            client.post(site).header(header::CONTENT_ENCODING, coding).body(bytes.clone())
        }
    };
    let answer = sites.same(pack("gzip", &packed)).await;
    assert_eq!((answer.status, answer.body.unwrap().len()), (StatusCode::OK, 2 * text.len()));
    assert_eq!(sites.same(pack("gzip", b"not packed")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(sites.same(pack("gzip", &packed[..100])).await.status, StatusCode::BAD_REQUEST);
    let other = sites.same(pack("compress", b"x")).await;
    assert_eq!(other.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let both =
        sites.same(|client, site| pack("gzip", &packed)(client, site).header("accept-encoding", "gzip"));
    assert_eq!(both.await.headers["content-encoding"], ["gzip"]);
}

/// Counts the stored files, and those that are whole.
#[derive(Default)]
struct Stored {
    begun: AtomicUsize,
    whole: AtomicUsize,
    ended: AtomicUsize,
}

struct Ends(Arc<Stored>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn store(State(stored): State<Arc<Stored>>, Path(name): Path<String>, body: Body) -> Response {
    let _ends = Ends(stored.clone());
    let number = stored.begun.fetch_add(1, Ordering::SeqCst);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{number}-{name}"));
    let mut file = tokio::fs::File::create(&path).await.unwrap();
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let Ok(part) = part else { return StatusCode::BAD_REQUEST.into_response() };
        file.write_all(&part).await.unwrap();
    }
    file.flush().await.unwrap();
    stored.whole.fetch_add(1, Ordering::SeqCst);
    tokio::fs::read(path).await.unwrap().into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_stored_as_it_arrives() {
    let stored = Arc::<Stored>::default();
    let app = Router::new().route("/{name}", put(store)).with_state(stored.clone());
    let sites = start(app).await;
    for length in [0, 1, 100_000, 5 << 20] {
        let bytes: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
        let sent =
            |client: &reqwest::Client, site: &str| client.put(format!("{site}/file")).body(bytes.clone());
        let answer = sites.same(sent).await;
        assert_eq!(answer.body.unwrap(), String::from_utf8_lossy(&bytes));
    }
    // The client leaves in the middle, and the handler never takes the body for whole.
    let whole = stored.whole.load(Ordering::SeqCst);
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        for address in sites.addresses() {
            let (begun, ended) = (stored.begun.load(Ordering::SeqCst), stored.ended.load(Ordering::SeqCst));
            let mut client = TcpStream::connect(address).await.unwrap();
            let head = format!("PUT /cut HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n1\r\nx\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            eventually("it begins", || stored.begun.load(Ordering::SeqCst) > begun).await;
            drop(client);
            eventually("it ends", || stored.ended.load(Ordering::SeqCst) > ended).await;
        }
    }
    assert_eq!(stored.whole.load(Ordering::SeqCst), whole);
}

/// Puts what it has seen of both bodies into a field.
async fn watch(request: Request, next: Next) -> Result<Response, (StatusCode, String)> {
    let failed = |error: axum::Error| (StatusCode::BAD_REQUEST, format!("a body was not read: {error}"));
    let (head, body) = request.into_parts();
    let sent = to_bytes(body, 1 << 20).await.map_err(failed)?;
    let seen = format!("{} {}", sent.len(), String::from_utf8_lossy(&sent[..sent.len().min(10)]));
    let response = next.run(Request::from_parts(head, Body::from(sent))).await;
    let (mut head, body) = response.into_parts();
    let got = to_bytes(body, 1 << 20).await.map_err(failed)?;
    head.headers.insert("x-seen", format!("{seen}, {}", got.len()).parse().unwrap());
    Ok(Response::from_parts(head, Body::from(got)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_middleware_reads_both_bodies() {
    let app = Router::new()
        .route("/", post(|text: String| async move { format!("got {}", text.len()) }).get(|| async { "get" }))
        .layer(from_fn(watch));
    let sites = start(app).await;
    let answers = sites
        .check(&[
            (200, "GET /", &[], ""),
            (200, "HEAD /", &[], ""),
            (200, "POST /", &[], "some text"),
            (200, "POST /", &[], &"long ".repeat(50_000)),
            (400, "POST /", &[], &"x".repeat((1 << 20) + 1)),
            (404, "POST /missing", &[], "unread"),
        ])
        .await;
    assert_eq!(answers[2].headers["x-seen"], ["9 some text, 5"]);
}

#[derive(Debug, Deserialize)]
struct Note {
    text: String,
    stars: u8,
}

/// JSON or a form, as `Content-Type` says.
struct JsonOrForm<T>(T);

impl<S, T> FromRequest<S> for JsonOrForm<T>
where
    S: Send + Sync,
    Json<T>: FromRequest<()>,
    Form<T>: FromRequest<()>,
{
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        match kind.unwrap_or_default() {
            kind if kind.starts_with("application/json") => {
                let read = Json::<T>::from_request(request, &()).await;
                read.map(|Json(value)| JsonOrForm(value)).map_err(IntoResponse::into_response)
            }
            kind if kind.starts_with("application/x-www-form-urlencoded") => {
                let read = Form::<T>::from_request(request, &()).await;
                read.map(|Form(value)| JsonOrForm(value)).map_err(IntoResponse::into_response)
            }
            _ => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response()),
        }
    }
}

/// A note that keeps the rules.
struct Valid(Note);

impl<S: Send + Sync> FromRequest<S> for Valid {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let JsonOrForm(note) = JsonOrForm::<Note>::from_request(request, state).await?;
        match note {
            Note { stars: 0..=5, ref text } if !text.is_empty() => Ok(Valid(note)),
            note => {
                let told = serde_json::json!({ "error": "invalid", "stars": note.stars });
                Err((StatusCode::UNPROCESSABLE_ENTITY, Json(told)).into_response())
            }
        }
    }
}

/// The raw bytes, after which another extractor reads them.
struct Twice(Bytes, String);

impl<S: Send + Sync> FromRequest<S> for Twice {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.map_err(|_| StatusCode::BAD_REQUEST.into_response())?.to_bytes();
        let again = Request::from_parts(head, Body::from(bytes.clone()));
        let text = String::from_request(again, state).await.map_err(IntoResponse::into_response)?;
        Ok(Twice(bytes, text))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extractors_read_the_body() {
    let app = Router::new()
        .route("/", post(|JsonOrForm(note): JsonOrForm<Note>| async move { format!("{note:?}") }))
        .route("/valid", post(|Valid(note): Valid| async move { note.text }))
        .route("/twice", post(|Twice(bytes, text): Twice| async move { format!("{} {text}", bytes.len()) }));
    let sites = start(app).await;
    let json = &[("content-type", "application/json")][..];
    let form = &[("content-type", "application/x-www-form-urlencoded")][..];
    let answers = sites
        .check(&[
            (200, "POST /", json, r#"{"text":"a","stars":7}"#),
            (200, "POST /", form, "text=a+b&stars=7"),
            (422, "POST /", json, r#"{"text":"a"}"#),
            (400, "POST /", json, "{"),
            (422, "POST /", form, "text=a"),
            (415, "POST /", &[("content-type", "text/plain")], "text"),
            (415, "POST /", &[], ""),
            (200, "POST /valid", json, r#"{"text":"a","stars":5}"#),
            (422, "POST /valid", json, r#"{"text":"a","stars":6}"#),
            (422, "POST /valid", form, "text=&stars=1"),
            (200, "POST /twice", &[], "twice"),
            (405, "GET /twice", &[], ""),
        ])
        .await;
    assert_eq!(answers[10].body.as_deref(), Ok("5 twice"));
}

type Frames = StreamBody<tokio_stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

/// A part, and a field after it.
fn with_trailer(part: &str, name: &'static str, value: &str) -> Frames {
    let trailers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
    let frames = vec![Ok(Frame::data(Bytes::from(part.to_owned()))), Ok(Frame::trailers(trailers))];
    StreamBody::new(tokio_stream::iter(frames))
}

async fn trailers(request: Request) -> Response {
    let body = request.into_body().collect().await.unwrap();
    let sum = body.trailers().map(|fields| fields["x-sum"].clone());
    let told = with_trailer(&format!("{sum:?}"), "x-length", &body.to_bytes().len().to_string());
    ([(header::TRAILER, "x-length")], Body::new(told)).into_response()
}

/// Returns the body and the trailers of the answer.
async fn ask_with_trailers(
    address: SocketAddr,
    version: Version,
    te: Option<&str>,
) -> (Bytes, Option<HeaderMap>) {
    let mut request = hyper::Request::post(format!("http://{address}/")).header(header::TRAILER, "x-sum");
    if let Some(te) = te {
        request = request.header(header::TE, te);
    }
    if version == Version::HTTP_11 {
        request = request.header(header::HOST, "x");
    }
    let request = request.body(with_trailer("a part", "x-sum", "42")).unwrap();
    let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let response: hyper::Response<Incoming> = if version == Version::HTTP_2 {
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await;
        let (mut client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client.send_request(request).await.unwrap()
    } else {
        let (mut client, connection) = hyper::client::conn::http1::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        client.send_request(request).await.unwrap()
    };
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned();
    (body.to_bytes(), trailers)
}

/// RFC 9110 section 6.5. Over HTTP/2, hyper sends trailers to a client that has not asked for them, too.
#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_both_ways() {
    let sites = start(Router::new().route("/", post(trailers))).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let wanted = ask_with_trailers(sites.hyper, version, Some("trailers")).await;
        assert_eq!(wanted.0, "Some(\"42\")", "{version:?}");
        assert_eq!(wanted.1.as_ref().unwrap()["x-length"], "6", "{version:?}");
        for server in &sites.weft {
            let (address, engine) = (server.local_addr().unwrap(), server.engine());
            let got = ask_with_trailers(address, version, Some("trailers")).await;
            assert_eq!(got, wanted, "{version:?}: left is Weftwork ({engine}), right is hyper");
            let unasked = ask_with_trailers(address, version, None).await;
            assert_eq!(unasked, (wanted.0.clone(), None), "{version:?} {engine}");
        }
    }
}

/// Sends without an end, and looks for the response when it cannot send.
fn send_endlessly(address: SocketAddr, client: reqwest::Client) -> Result<StatusCode, reqwest::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let parts = tokio_stream::iter(std::iter::repeat(Ok::<_, Infallible>("x".repeat(1000))));
        let request = client.post(format!("http://{address}/")).body(reqwest::Body::wrap_stream(parts));
        request.send().await.map(|response| response.status())
    })
}

/// Over hyper, the client of HTTP/1.1 mostly reads nothing, because a reset fails its sending.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_an_end_is_413() {
    let app = Router::new().route("/", post(|bytes: Bytes| async move { bytes.len().to_string() }));
    let sites = start(app).await;
    for server in &sites.weft {
        for client in [client(), weftwork_interop::client_http2()] {
            let address = server.local_addr().unwrap();
            let sends = tokio::task::spawn_blocking(move || send_endlessly(address, client));
            let answer = tokio::time::timeout(PATIENCE, sends).await.expect("an answer").unwrap();
            assert_eq!(answer.unwrap(), StatusCode::PAYLOAD_TOO_LARGE, "{}", server.engine());
        }
    }
}
