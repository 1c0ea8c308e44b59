//! Futures that wait: the client leaves, the server stops, and there are many.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_stream::StreamExt;
use weftwork::{Running, Server};
use weftwork_interop::{PATIENCE, engines, eventually};
use weftwork_tower::{TowerHandler, serve_tower};

/// What happens to the futures of an app.
#[derive(Clone, Default)]
struct Seen {
    begun: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

/// Counts the end of a future, whatever it is.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Seen {
    fn counts(&self) -> [usize; 3] {
        [&self.begun, &self.finished, &self.dropped].map(|count| count.load(Ordering::SeqCst))
    }
}

async fn waits(State(seen): State<Seen>) -> &'static str {
    let _counts = Counts(seen.dropped.clone());
    let gone = seen.go.notified();
    seen.begun.fetch_add(1, Ordering::SeqCst);
    gone.await;
    seen.finished.fetch_add(1, Ordering::SeqCst);
    "waited"
}

async fn silent(State(seen): State<Seen>) -> Body {
    let counts = Counts(seen.dropped.clone());
    seen.begun.fetch_add(1, Ordering::SeqCst);
    Body::from_stream(tokio_stream::pending::<Result<Bytes, std::io::Error>>().map(move |part| {
        let _ = &counts;
        part
    }))
}

async fn events(
    State(seen): State<Seen>,
) -> Sse<impl tokio_stream::Stream<Item = Result<Event, std::io::Error>>> {
    let counts = Counts(seen.dropped.clone());
    seen.begun.fetch_add(1, Ordering::SeqCst);
    let first = tokio_stream::once(Ok(Event::default().data("first")));
    Sse::new(first.chain(tokio_stream::pending()).map(move |event| {
        let _ = &counts;
        event
    }))
}

/// Twenty parts, the last ones after a wait.
async fn half(State(seen): State<Seen>) -> Body {
    let counts = Counts(seen.dropped.clone());
    Body::from_stream(tokio_stream::iter(0..20).then(move |number| {
        let _ = &counts;
        let seen = seen.clone();
        async move {
            if number == 5 {
                let gone = seen.go.notified();
                seen.begun.fetch_add(1, Ordering::SeqCst);
                gone.await;
            }
            Ok::<_, std::io::Error>(format!("part {number}\n"))
        }
    }))
}

fn app() -> (Seen, Router) {
    let seen = Seen::default();
    let app = Router::new()
        .route("/waits", get(waits))
        .route("/silent", get(silent))
        .route("/half", get(half))
        .route("/events", get(events));
    (seen.clone(), app.with_state(seen))
}

fn connect(address: SocketAddr, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    client
}

fn rest_of(mut client: TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

/// Starts the app on each engine, in each way of polling.
fn each(check: impl Fn(&str, bool, Running, Seen)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for engine in engines() {
        for (way, make) in [
            ("in place", (|service, _| service) as fn(TowerHandler<Router>, &tokio::runtime::Handle) -> _),
            ("spawned", |service, handle| service.spawned(handle.clone())),
            ("detached", |service, _| service.detached()),
            ("spawned, detached", |service, handle| service.spawned(handle.clone()).detached()),
        ] {
            let (seen, app) = app();
            let service = make(serve_tower(app), runtime.handle());
            let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).start(service).unwrap();
            check(&format!("{engine}, {way}"), way.contains("detached"), server, seen);
        }
    }
}

/// Blocks until something holds.
fn until(what: &str, holds: impl FnMut() -> bool) {
    weftwork::wait(weftwork_tokio::Tokio::shared().unwrap().within(|| eventually(what, holds)));
}

#[test]
fn a_client_that_leaves_drops_its_future() {
    each(|case, is_detached, server, seen| {
        let client = connect(server.local_addr().unwrap(), "/waits");
        until(case, || seen.counts() == [1, 0, 0]);
        drop(client);
        if is_detached {
            seen.go.notify_one();
            until(case, || seen.counts() == [1, 1, 1]);
        } else {
            until(case, || seen.counts() == [1, 0, 1]);
        }
    });
}

#[test]
fn a_client_that_leaves_drops_a_silent_body() {
    each(|case, _, server, seen| {
        let client = connect(server.local_addr().unwrap(), "/silent");
        until(case, || seen.counts() == [1, 0, 0]);
        drop(client);
        until(case, || seen.counts() == [1, 0, 1]);
    });
}

#[test]
fn a_stop_waits_for_what_has_an_end() {
    each(|case, _, server, seen| {
        let address = server.local_addr().unwrap();
        let clients = ["/waits", "/half", "/waits", "/half"].map(|path| connect(address, path));
        until(case, || seen.counts() == [4, 0, 0]);
        let status = server.status();
        let stops = std::thread::spawn(move || server.shutdown(PATIENCE));
        until(case, || status.is_stopping());
        // Nothing has ended by the stop itself.
        assert_eq!(seen.counts(), [4, 0, 0], "{case}");
        seen.go.notify_waiters();
        for (number, client) in clients.into_iter().enumerate() {
            let text = rest_of(client);
            assert!(text.starts_with("HTTP/1.1 200"), "{case}: {text}");
            assert!(text.contains(if number % 2 == 0 { "waited" } else { "part 19" }), "{case}: {text}");
        }
        let report = stops.join().unwrap();
        assert_eq!(report.cut, 0, "{case}");
    });
}

#[test]
fn a_stop_ends_event_streams() {
    each(|case, _, server, seen| {
        let mut client = connect(server.local_addr().unwrap(), "/events");
        until(case, || seen.counts() == [1, 0, 0]);
        assert!(client.read(&mut [0; 10]).unwrap() > 0, "{case}");
        let report = server.shutdown(PATIENCE);
        assert!(report.cut == 0 && report.took < PATIENCE / 2, "{case}: {report}");
        assert!(rest_of(client).ends_with("0\r\n\r\n"), "{case}");
        // A runtime drops a task a moment later.
        until(case, || seen.counts() == [1, 0, 1]);
    });
}

#[test]
fn ten_thousand_futures_hold_no_thread() {
    let clients_max = (open_files() - 1000).min(20_000) / 2;
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let (seen, app) = app();
    let server = Server::bind("127.0.0.1:0").unwrap().start(serve_tower(app)).unwrap();
    let address = server.local_addr().unwrap();
    let before = threads();
    let clients: Vec<TcpStream> = (0..clients_max).map(|_| connect(address, "/waits")).collect();
    until("all wait", || seen.counts() == [clients_max, 0, 0]);
    // Other tests of this process have threads, too.
    assert!(threads() < before + clients_max / 10, "{before} threads, then {}", threads());
    seen.go.notify_waiters();
    for client in clients {
        assert!(rest_of(client).ends_with("waited"));
    }
}

#[test]
fn a_poll_that_blocks_holds_up_no_other_client() {
    let app = Router::new().route("/quick", get(|| async { "quick" })).route(
        "/blocks",
        get(|| async {
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_secs(2));
            "blocked"
        }),
    );
    let server = Server::bind("127.0.0.1:0").unwrap().engine("adaptive:1".parse().unwrap());
    let server = server.start(serve_tower(app)).unwrap();
    let address = server.local_addr().unwrap();
    let blocked: Vec<TcpStream> = (0..8).map(|_| connect(address, "/blocks")).collect();
    let begun = std::time::Instant::now();
    let mut quick = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        assert!(rest_of(connect(address, "/quick")).ends_with("quick"));
        quick += 1;
    }
    assert!(quick > 10, "{quick} while 8 polls blocked");
    for client in blocked {
        assert!(rest_of(client).ends_with("blocked"));
    }
}

/// Returns how many files this process may open.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}
