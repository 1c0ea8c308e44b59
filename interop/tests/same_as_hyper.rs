//! Behaviours of the examples of axum. Each is asked over hyper and on every engine, and the answers are compared.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Form, Multipart, Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::services::{ServeDir, ServeFile};
use tower_http::timeout::TimeoutLayer;
use weftwork_interop::{Sites, start};

#[derive(Debug, Deserialize, Serialize)]
struct User {
    name: String,
    age: Option<u8>,
}

async fn get_of(sites: &Sites, path: &str) -> weftwork_interop::Answer {
    sites.same(|client, site| client.get(format!("{site}{path}"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_extractors_and_errors() {
    let app = Router::new()
        .route("/", get(|| async { Html("<h1>Hello</h1>") }).head(|| async { [("x-kind", "head")] }))
        .route("/users/{id}", get(|Path(id): Path<u32>| async move { format!("user {id}") }))
        .route("/query", get(|Query(user): Query<User>| async move { format!("{user:?}") }))
        .route("/json", post(|Json(user): Json<User>| async move { (StatusCode::CREATED, Json(user)) }))
        .route("/form", post(|Form(user): Form<User>| async move { format!("{user:?}") }))
        .route("/text", post(|text: String| async move { text }))
        .route("/method", any(|method: Method, uri: Uri| async move { format!("{method} {uri}") }))
        .route("/old", get(|| async { Redirect::permanent("/") }))
        .route("/empty", get(|| async {}))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
        .route("/cookies", get(|| async { [(header::SET_COOKIE, "a=1")].into_response() }))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                "slow"
            }),
        )
        .route("/error", get(|| async { Err::<(), _>((StatusCode::CONFLICT, "taken")) }))
        .route(
            "/peer",
            get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() }),
        )
        .nest(
            "/api",
            Router::new().route(
                "/{name}",
                get(|Path(name): Path<String>, uri: Uri| async move { format!("{name} {uri}") }),
            ),
        )
        .fallback(|uri: Uri| async move { (StatusCode::NOT_FOUND, format!("no {uri}")) });
    let sites = start(app).await;
    for path in [
        "/",
        "/users/7",
        "/users/x",
        "/query?name=Ada&age=7",
        "/query?age=x",
        "/method?a=b%20c",
        "/old",
        "/empty",
        "/none",
        "/cookies",
        "/slow",
        "/error",
        "/peer",
        "/api/a%20b",
        "/missing",
        "/a//b",
        "/users/7/",
    ] {
        get_of(&sites, path).await;
    }
    assert_eq!(get_of(&sites, "/slow").await.body.unwrap(), "slow");
    let post = |path: &'static str, kind: &'static str, body: &'static str| {
        move |client: &Client, site: &str| {
            client.post(format!("{site}{path}")).header(header::CONTENT_TYPE, kind).body(body)
        }
    };
    for (path, kind, body) in [
        ("/json", "application/json", r#"{"name":"Ada","age":7}"#),
        ("/json", "application/json", r#"{"name":"#),
        ("/json", "text/plain", "{}"),
        ("/form", "application/x-www-form-urlencoded", "name=Ada+L&age=7"),
        ("/form", "application/x-www-form-urlencoded", "age=7"),
        ("/text", "text/plain", "gr\u{fc}n"),
        ("/users/7", "text/plain", ""),
    ] {
        sites.same(post(path, kind, body)).await;
    }
    for method in [Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::PATCH] {
        for path in ["/", "/users/7", "/method", "/slow", "/missing"] {
            sites.same(|client, site| client.request(method.clone(), format!("{site}{path}"))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_middleware_and_panics() {
    async fn timed(request: Request, next: Next) -> Response {
        let path = request.uri().path().to_owned();
        let mut response = next.run(request).await;
        response.headers_mut().insert("x-path", path.parse().unwrap());
        response
    }
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let app = Router::new()
        .route("/state", get(|State(notes): State<Arc<Mutex<Vec<String>>>>| async move { notes.lock().unwrap().join(",") }))
        .route("/extension", get(|Extension(number): Extension<u32>| async move { number.to_string() }))
        .route("/panic", get(|| async { if true { panic!("on purpose") } }))
        .route("/late", get(|| async { tokio::time::sleep(Duration::from_secs(600)).await }))
        .route("/id", get(|headers: HeaderMap| async move { headers["x-request-id"].to_str().unwrap().len().to_string() }))
        .with_state(notes)
        .layer(Extension(7_u32))
        .layer(from_fn(timed))
        .layer(
            ServiceBuilder::new()
                .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
                .layer(CatchPanicLayer::new())
                .layer(CorsLayer::permissive())
                .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(100))),
        );
    let sites = start(app).await;
    for path in ["/state", "/extension", "/panic", "/late", "/id", "/missing"] {
        get_of(&sites, path).await;
    }
    sites
        .same(|client, site| {
            client
                .request(Method::OPTIONS, format!("{site}/state"))
                .header("origin", "http://a.test")
                .header("access-control-request-method", "GET")
        })
        .await;
    let app = Router::new().route("/", get(|| async { "x" })).layer(PropagateRequestIdLayer::x_request_id());
    let sites = start(app).await;
    sites.same(|client, site| client.get(site).header("x-request-id", "abc")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_events() {
    async fn events() -> Sse<impl tokio_stream::Stream<Item = Result<Event, Infallible>>> {
        let events = tokio_stream::iter(0..5).throttle(Duration::from_millis(2));
        Sse::new(events.map(|number| Ok(Event::default().event("tick").data(number.to_string()))))
            .keep_alive(KeepAlive::default())
    }
    let long = |count: u32| async move {
        Body::from_stream(
            tokio_stream::iter(0..count).map(|number| Ok::<_, Infallible>(format!("{number:8}").repeat(128))),
        )
    };
    let broken = || async {
        let parts = [Ok("a part"), Err(std::io::Error::other("on purpose"))];
        Body::from_stream(tokio_stream::iter(parts).throttle(Duration::from_millis(2)))
    };
    let app = Router::new()
        .route("/events", get(events))
        .route("/long", get(move || long(3000)))
        .route("/short", get(move || long(3)))
        .route("/broken", get(broken))
        .layer(CompressionLayer::new());
    let sites = start(app).await;
    let events = get_of(&sites, "/events").await;
    assert_eq!(events.body.unwrap().matches("event: tick").count(), 5);
    assert_eq!(get_of(&sites, "/long").await.body.unwrap().len(), 3000 * 1024);
    get_of(&sites, "/short").await;
    assert_eq!(get_of(&sites, "/broken").await.body, Err("cut"));
    sites.same(|client, site| client.head(format!("{site}/long"))).await;
    let packed = sites
        .same(|client, site| client.get(format!("{site}/short")).header("accept-encoding", "gzip"))
        .await;
    assert_eq!(packed.headers["content-encoding"], ["gzip"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let app = Router::new()
        .nest_service(
            "/docs",
            ServeDir::new(&folder).not_found_service(ServeFile::new(folder.join("http2.md"))),
        )
        .route_service("/one", ServeFile::new(folder.join("https.md")));
    let sites = start(app).await;
    let whole = get_of(&sites, "/docs/engines.md").await.body.unwrap();
    for path in ["/one", "/docs/missing", "/docs/../Cargo.toml", "/docs/coming-from", "/docs/coming-from/"] {
        get_of(&sites, path).await;
    }
    let part = sites
        .same(|client, site| client.get(format!("{site}/docs/engines.md")).header("range", "bytes=10-19"))
        .await;
    assert_eq!((part.status, part.body.unwrap()), (StatusCode::PARTIAL_CONTENT, whole[10..20].to_owned()));
    sites
        .same(|client, site| client.get(format!("{site}/docs/engines.md")).header("range", "bytes=99999999-"))
        .await;
    sites.same(|client, site| client.head(format!("{site}/docs/engines.md"))).await;
    let date = "Fri, 01 Jan 2100 00:00:00 GMT";
    sites
        .same(|client, site| client.get(format!("{site}/docs/engines.md")).header("if-modified-since", date))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads() {
    async fn parts(mut form: Multipart) -> Result<String, axum::extract::multipart::MultipartError> {
        let mut told = String::new();
        while let Some(field) = form.next_field().await? {
            let (name, file) =
                (field.name().unwrap_or_default().to_owned(), field.file_name().map(str::to_owned));
            told += &format!("{name} {file:?} {}\n", field.bytes().await?.len());
        }
        Ok(told)
    }
    async fn count(body: Body) -> String {
        let (mut stream, mut count) = (body.into_data_stream(), 0);
        while let Some(part) = stream.next().await {
            count += part.unwrap().len();
        }
        count.to_string()
    }
    let app = Router::new()
        .route("/parts", post(parts))
        .route("/count", post(count))
        .route("/bytes", post(|bytes: Bytes| async move { bytes.len().to_string() }))
        .route(
            "/limited",
            post(|bytes: Bytes| async move { bytes.len().to_string() })
                .layer(RequestBodyLimitLayer::new(1000)),
        )
        .route(
            "/unlimited",
            post(|bytes: Bytes| async move { bytes.len().to_string() }).layer(DefaultBodyLimit::disable()),
        )
        .route("/ignored", post(|| async { "not read" }));
    let sites = start(app).await;
    let form = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--x\r\nContent-Disposition: form-data; name=\"f\"; \
                filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nfile\r\n--x--\r\n";
    let told = sites
        .same(|client, site| {
            client
                .post(format!("{site}/parts"))
                .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
                .body(form)
        })
        .await;
    assert_eq!(told.body.unwrap(), "a None 5\nf Some(\"f.txt\") 4\n");
    for (path, count) in [
        ("/count", 10),
        ("/count", 3 << 20),
        ("/bytes", 1 << 20),
        ("/unlimited", 3 << 20),
        ("/limited", 999),
        ("/ignored", 10),
    ] {
        let told =
            sites.same(|client, site| client.post(format!("{site}{path}")).body(vec![b'x'; count])).await;
        assert_eq!(told.status, StatusCode::OK, "{path}");
    }
    // In chunks, and refused by the app.
    let chunked = |count: usize| {
        move |client: &Client, site: &str| {
            let parts = (0..count).map(|_| Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1000])));
            client.post(format!("{site}/count")).body(reqwest::Body::wrap_stream(tokio_stream::iter(parts)))
        }
    };
    assert_eq!(sites.same(chunked(5)).await.body.unwrap(), "5000");
    assert_eq!(sites.same(chunked(2500)).await.body.unwrap(), "2500000");
    let refused =
        sites.same(|client, site| client.post(format!("{site}/limited")).body(vec![b'x'; 1001])).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    sites.same(|client, site| client.post(format!("{site}/bytes")).body(vec![b'x'; 2_100_000])).await;
}

/// More than both kernels and all queues hold: the request and the response are on their way at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_is_echoed_as_it_arrives() {
    let app = Router::new()
        .route("/echo", post(|body: Body| async move { body }))
        .route("/length", post(|body: Body| async move { ([(header::CONTENT_LENGTH, 32 << 20)], body) }));
    let sites = start(app).await;
    let part = Bytes::from(vec![b'x'; 1 << 20]);
    let post = |client: &Client, url: String| {
        let parts = tokio_stream::iter(vec![Ok::<_, Infallible>(part.clone()); 32]);
        client.post(url).body(reqwest::Body::wrap_stream(parts))
    };
    let echoed = sites.same(|client, site| post(client, format!("{site}/echo"))).await;
    assert_eq!(echoed.body.unwrap().len(), 32 << 20);
    // hyper is not asked: its response ends before the last chunk of the request, and then hyper may reset the connection.
    for server in &sites.weft {
        let url = format!("http://{}/length", server.local_addr().unwrap());
        let echoed = post(&weftwork_interop::client(), url).send().await.unwrap();
        assert_eq!(echoed.bytes().await.unwrap().len(), 32 << 20, "{}", server.engine());
    }
}

/// Each part is answered before the next one is sent.
#[tokio::test(flavor = "multi_thread")]
async fn an_echo_is_a_dialog() {
    let sites = start(Router::new().route("/echo", post(|body: Body| async move { body }))).await;
    let weft = sites.weft.iter().map(|server| server.local_addr().unwrap());
    for address in [sites.hyper].into_iter().chain(weft) {
        let (sender, parts) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(1);
        let body = reqwest::Body::wrap_stream(tokio_stream::wrappers::ReceiverStream::new(parts));
        let client = weftwork_interop::client();
        let mut answer = client.post(format!("http://{address}/echo")).body(body).send().await.unwrap();
        for number in 0..10 {
            let part = Bytes::from(format!("part {number}"));
            sender.send(Ok(part.clone())).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap().unwrap(), part);
        }
        drop(sender);
        assert_eq!(answer.chunk().await.unwrap(), None);
    }
}
