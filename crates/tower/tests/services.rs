//! Services as handlers, without a runtime, on each engine.

use std::collections::VecDeque;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;
use weftwork::{HandlerExt, Next, Request, Router, Running, Server, TestClient};
use weftwork_tower::{RequestBody, TowerHandler, serve_tower};

const PATIENCE: Duration = Duration::from_secs(20);

type BoxError = Box<dyn Error + Send + Sync>;
type Answer = Result<http::Response<Parts>, BoxError>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A function as a service.
#[derive(Clone)]
struct ServiceFn<F>(F);

impl<F, A> Service<http::Request<RequestBody>> for ServiceFn<F>
where
    F: FnMut(http::Request<RequestBody>) -> A,
    A: Future<Output = Answer> + Send + 'static,
{
    type Response = http::Response<Parts>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Answering {
        Box::pin((self.0)(request))
    }
}

/// What a body has next.
enum Step {
    Data(&'static str),
    Fail,
    /// Once not ready, and woken at once.
    Later,
    Never(Arc<AtomicUsize>),
    Trailers(HeaderMap),
}

#[derive(Default)]
struct Parts {
    parts: VecDeque<Step>,
    length: Option<u64>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        for part in &self.parts {
            if let Step::Never(drops) = part {
                drops.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(Step::Never(_)) = self.parts.front() {
            return Poll::Pending;
        }
        match self.parts.pop_front() {
            None => Poll::Ready(None),
            Some(Step::Data(text)) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            Some(Step::Fail) => Poll::Ready(Some(Err("the body failed".into()))),
            Some(Step::Trailers(fields)) => Poll::Ready(Some(Ok(Frame::trailers(fields)))),
            Some(Step::Later | Step::Never(_)) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn parts(parts: impl Into<VecDeque<Step>>) -> http::Response<Parts> {
    http::Response::new(Parts { parts: parts.into(), length: None })
}

fn text(text: &'static str) -> http::Response<Parts> {
    parts([Step::Data(text)])
}

async fn all(mut body: RequestBody) -> Result<(Vec<u8>, Option<HeaderMap>), BoxError> {
    let (mut bytes, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((bytes, trailers))
}

async fn answer(request: http::Request<RequestBody>) -> Answer {
    let trailers = || HeaderMap::from_iter([(header::HeaderName::from_static("x-sum"), 7.into())]);
    Ok(match request.uri().path() {
        "/echo" => {
            let (bytes, _) = all(request.into_body()).await?;
            text(String::from_utf8(bytes)?.leak())
        }
        "/target" => text(format!("{} {} {:?}", request.method(), request.uri(), request.version()).leak()),
        "/headers" => {
            let mut response = text("");
            for value in request.headers().get_all("x-a") {
                response.headers_mut().append("x-b", value.clone());
            }
            response
        }
        "/extension" => text(request.extensions().get::<&'static str>().copied().unwrap_or("none")),
        "/parts" => parts([Step::Data("a"), Step::Later, Step::Data("b"), Step::Data("c")]),
        "/trailers" => parts([Step::Data("a"), Step::Trailers(trailers())]),
        "/late-trailers" => parts([Step::Data("a"), Step::Later, Step::Trailers(trailers())]),
        "/fails" => parts([Step::Data("a"), Step::Later, Step::Fail]),
        "/fails-at-once" => parts([Step::Fail]),
        "/length" => {
            let mut response = parts([Step::Later, Step::Data("four")]);
            response.body_mut().length = Some(4);
            response
        }
        "/unknown" => parts([Step::Later, Step::Data("four")]),
        "/none" => {
            let mut response = parts([]);
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            response
        }
        "/close" => {
            let mut response = text("bye");
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        "/error" => return Err("the service failed".into()),
        "/panic" => panic!("on purpose"),
        _ => text("hello"),
    })
}

fn site() -> TowerHandler<ServiceFn<impl Fn(http::Request<RequestBody>) -> Answering + Clone>> {
    serve_tower(ServiceFn(|request| Box::pin(answer(request)) as Answering))
}

#[test]
fn requests_and_responses_are_passed_on() {
    let mut client = TestClient::new(site());
    assert_eq!(client.post("/echo").body("a body").send().text(), "a body");
    let long = "x".repeat(300_000);
    assert_eq!(client.post("/echo").body(long.clone()).send().text(), long);
    assert_eq!(client.get("/target?a=b%20c").send().text(), "GET /target?a=b%20c HTTP/1.1");
    let answer = client.get("/headers").header("x-a", "1").header("x-a", "2").send();
    assert_eq!(answer.header_values("x-b").collect::<Vec<_>>(), ["1", "2"]);
    // The service names no type.
    assert_eq!(answer.header("content-type"), None);
    assert_eq!(client.get("/parts").send().text(), "abc");
    let length = client.get("/length").send();
    assert_eq!((length.header("content-length"), length.text()), (Some("4"), "four"));
    assert_eq!(client.get("/none").send().status, StatusCode::NO_CONTENT);
    assert_eq!(client.get("/error").send().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(client.get("/fails-at-once").send().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(client.get("/panic").send().status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[test]
fn the_path_is_that_below_the_mount() {
    let mut client = TestClient::new(Router::new().mount("/api", site()).fallback(|_: &mut Request| "outer"));
    assert_eq!(client.get("/api/target?x").send().text(), "GET /target?x HTTP/1.1");
    assert_eq!(client.get("/target").send().text(), "outer");
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let mut client = TestClient::new(site().body_bytes_max(10));
    assert_eq!(client.post("/echo").body("0123456789").send().text(), "0123456789");
    assert_eq!(client.post("/echo").body("0123456789a").send().status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn extensions_come_from_middleware_and_from_the_hook() {
    let hooked = site().extensions(|req, extensions| {
        assert_eq!(req.method(), Method::GET);
        extensions.insert("hook");
    });
    assert_eq!(TestClient::new(hooked).get("/extension").send().text(), "hook");
    let middleware = |req: &mut Request, next: Next| {
        req.extensions_mut().insert("middleware");
        next.run(req)
    };
    assert_eq!(TestClient::new(site().with(middleware)).get("/extension").send().text(), "middleware");
}

/// Sends a request with `head` on each engine, and passes on what comes until the end.
fn each(head: &str, check: impl Fn(&str, std::io::Result<String>)) {
    for engine in ["adaptive:1", "reactor:1", "workers:1", "pool:1", "fibers:1"] {
        let server = start(engine, site());
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        let read = client.read_to_string(&mut text).map(|_| text);
        check(engine, read);
    }
}

fn start(engine: &str, handler: impl weftwork::Handler) -> Running {
    Server::bind("127.0.0.1:0").unwrap().engine(engine.parse().unwrap()).start(handler).unwrap()
}

#[test]
fn trailers_follow_the_body() {
    for path in ["/trailers", "/late-trailers"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n");
        each(&head, |engine, read| {
            let text = read.unwrap();
            assert!(text.ends_with("1\r\na\r\n0\r\nx-sum: 7\r\n\r\n"), "{engine}: {text}");
        });
    }
}

#[test]
fn a_body_that_fails_is_cut() {
    each("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n", |engine, read| {
        // A reset, or an end without the last chunk.
        let is_whole = read.is_ok_and(|text| text.ends_with("0\r\n\r\n"));
        assert!(!is_whole, "{engine}");
    });
}

#[test]
fn a_head_of_unknown_length_declares_no_length() {
    each("HEAD /unknown HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", |engine, read| {
        let text = read.unwrap().to_ascii_lowercase();
        assert!(text.starts_with("http/1.1 200") && !text.contains("content-length"), "{engine}: {text}");
    });
    each("HEAD /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", |engine, read| {
        let text = read.unwrap().to_ascii_lowercase();
        assert!(text.contains("content-length: 4\r\n") && text.ends_with("\r\n\r\n"), "{engine}: {text}");
    });
}

#[test]
fn a_service_may_close_the_connection() {
    each("GET /close HTTP/1.1\r\nHost: a\r\n\r\n", |engine, read| {
        let text = read.unwrap();
        assert!(text.contains("Connection: close\r\n") && text.ends_with("bye"), "{engine}: {text}");
    });
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_silent_body_is_dropped_when_its_client_leaves() {
    for engine in ["adaptive:1", "reactor:1", "workers:1", "pool:1", "fibers:1"] {
        let drops = Arc::<AtomicUsize>::default();
        let theirs = drops.clone();
        let service = ServiceFn(move |_| {
            let body = parts([Step::Data("a"), Step::Later, Step::Never(theirs.clone())]);
            std::future::ready(Ok(body))
        });
        let server = start(engine, serve_tower(service));
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(client.read(&mut [0; 100]).unwrap() > 0);
        drop(client);
        eventually(engine, || drops.load(Ordering::SeqCst) == 1);
    }
}

/// Without a runtime, a thread of this crate polls what goes on.
#[test]
fn a_detached_request_goes_on_without_its_client() {
    let wakers = Arc::<Mutex<Vec<Waker>>>::default();
    let ends = Arc::<AtomicUsize>::default();
    let (theirs, their_ends) = (wakers.clone(), ends.clone());
    let service = ServiceFn(move |_| {
        let (wakers, ends) = (theirs.clone(), their_ends.clone());
        async move {
            let mut polls = 0;
            poll_fn(|cx| {
                polls += 1;
                wakers.lock().unwrap().push(cx.waker().clone());
                if polls == 4 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            ends.fetch_add(1, Ordering::SeqCst);
            Ok(text("done"))
        }
    });
    let server = start("adaptive:1", serve_tower(service).detached());
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let pending = || wakers.lock().unwrap().len();
    eventually("it is polled", || pending() == 1);
    drop(client);
    eventually("the thread polls it", || pending() == 2);
    for polls in 3..=4 {
        let waker = wakers.lock().unwrap().last().unwrap().clone();
        waker.wake();
        eventually("it is polled again", || pending() == polls);
    }
    eventually("it ends", || ends.load(Ordering::SeqCst) == 1);
}
