//! Plain handlers that are mounted in an axum app, on every engine.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::get;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message as Sent;
use weftwork::{
    Feed, FeedLimits, Request, Response, Router, Running, Server, WebSocket, unbuffered, websocket,
};
use weftwork_interop::{PATIENCE, client, engines, eventually};
use weftwork_tower::into_service;

/// An axum app, the server within, and the number of its feeds whose client has left.
struct Site {
    address: SocketAddr,
    running: Running,
    left: Arc<AtomicUsize>,
}

async fn start(engine: weftwork::Engine) -> Site {
    let left = Arc::<AtomicUsize>::default();
    let running = Server::unbound().engine(engine).start(handlers(left.clone())).unwrap();
    let service = into_service(&running);
    let app = axum::Router::new()
        .route("/own", get(|| async { "own" }))
        .nest_service("/nested", service.clone())
        .fallback_service(service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Site { address, running, left }
}

fn handlers(left: Arc<AtomicUsize>) -> Router {
    Router::new()
        .any("/seen", |req: &mut Request| {
            let (host, fields) =
                (req.host().unwrap_or_default().to_owned(), req.header("x-field").unwrap_or_default());
            format!("{} {} {host} {fields}", req.method(), req.target())
        })
        .get("/blocks", |_: &mut Request| {
            std::thread::sleep(Duration::from_millis(20));
            "blocked"
        })
        .get("/panics", |_: &mut Request| -> &str { panic!("on purpose") })
        .post("/echo", unbuffered(echo))
        .get("/endless", move |_: &mut Request| {
            let (sender, feed) = Feed::new(FeedLimits::default());
            let left = left.clone();
            sender.send("first").unwrap();
            let kept = sender.clone();
            sender.on_closed(move || {
                drop(kept);
                left.fetch_add(1, Ordering::SeqCst);
            });
            Response::feed(feed)
        })
        .get("/cut", |_: &mut Request| {
            Response::stream(|out| {
                out.write_all(b"a part")?;
                out.flush()?;
                Err(std::io::Error::other("on purpose"))
            })
        })
        .get("/socket", |req: &mut Request| websocket(req, repeat))
}

/// Sends the head at once, and each part when it comes.
fn echo(req: &mut Request) -> Response {
    let mut body = req.take_body();
    let (sender, feed) = Feed::new(FeedLimits::default());
    Response::feed(feed.with_source(async move {
        while let Ok(Some(part)) = body.chunk().await {
            if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() || sender.send(part).is_err() {
                return;
            }
        }
    }))
}

fn repeat(mut socket: WebSocket) -> std::io::Result<()> {
    while let Some(message) = socket.read()? {
        socket.send(message)?;
    }
    Ok(())
}

impl Site {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = client().get(self.url(path)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_answer_within_axum() {
    for engine in engines() {
        let site = start(engine).await;
        assert_eq!(site.get("/own").await, (200, "own".into()), "{engine}");
        let sent = client().put(site.url("/nested/seen?a=b")).header("x-field", "kept").send().await.unwrap();
        let seen = sent.text().await.unwrap();
        assert_eq!(seen, format!("PUT /seen?a=b {} kept", site.address), "{engine}");
        assert_eq!(site.get("/missing").await.0, 404, "{engine}");
        assert_eq!(site.get("/panics").await.0, 500, "{engine}");
        let blocked = futures_util::future::join_all((0..20).map(|_| site.get("/blocks"))).await;
        assert_eq!(blocked, vec![(200, "blocked".to_owned()); 20], "{engine}");
        let head = client().head(site.url("/seen")).send().await.unwrap();
        assert_eq!(
            head.headers()["content-length"],
            format!("HEAD /seen {} ", site.address).len().to_string()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_and_used_again() {
    for engine in engines() {
        let site = start(engine).await;
        for _ in 0..20 {
            assert_eq!(site.get("/missing").await.0, 404, "{engine}");
        }
        // Another one may be begun before the first is seen to be free.
        assert!(site.running.stats().connections < 20, "{engine}: {}", site.running.stats().connections);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_streamed_both_ways() {
    for engine in engines() {
        let site = start(engine).await;
        let (sender, parts) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(1);
        let body = reqwest::Body::wrap_stream(ReceiverStream::new(parts));
        let mut answer = client().post(site.url("/echo")).body(body).send().await.unwrap();
        for number in 0..10 {
            let part = Bytes::from(format!("part {number}"));
            sender.send(Ok(part.clone())).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap().unwrap(), part, "{engine}");
        }
        drop(sender);
        assert_eq!(answer.chunk().await.unwrap(), None, "{engine}");
        let large = vec![b'x'; 1 << 20];
        let echoed = client().post(site.url("/echo")).body(large.clone()).send().await.unwrap();
        assert!(echoed.bytes().await.unwrap() == large, "{engine}");
        let cut = client().get(site.url("/cut")).send().await.unwrap();
        assert!(cut.bytes().await.is_err(), "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_is_noticed() {
    for engine in engines() {
        let site = start(engine).await;
        let mut answer = client().get(site.url("/endless")).send().await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "first", "{engine}");
        drop(answer);
        eventually("the feed is closed", || site.left.load(Ordering::SeqCst) == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes() {
    for engine in engines() {
        let site = start(engine).await;
        let (mut socket, _) = connect_async(format!("ws://{}/socket", site.address)).await.unwrap();
        for length in [1, 70_000] {
            socket.send(Sent::text("x".repeat(length))).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().len(), length, "{engine}");
        }
        socket.close(None).await.unwrap();
        assert!(matches!(socket.next().await, Some(Ok(Sent::Close(_)))), "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_ended_is_503() {
    for engine in engines() {
        let site = start(engine).await;
        assert_eq!(site.get("/blocks").await, (200, "blocked".into()), "{engine}");
        let running = site.running;
        tokio::task::spawn_blocking(|| running.shutdown(PATIENCE)).await.unwrap();
        let site = client().get(format!("http://{}/blocks", site.address)).send().await.unwrap();
        assert_eq!(site.status(), 503, "{engine}");
        assert!(site.text().await.unwrap().contains("takes no requests"), "{engine}");
    }
}
