//! A client that leaves while its service waits, at each of several awaits, on each engine.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tower_service::Service;
use weftwork::{Running, Server};
use weftwork_tower::{RequestBody, serve_tower};

const PATIENCE: Duration = Duration::from_secs(20);
/// How often the service waits.
const AWAITS: usize = 4;

/// What the test and the service share.
#[derive(Default)]
struct Shared(Mutex<Seen>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// Awaits at which the service has arrived.
    begun: usize,
    /// Awaits that may end.
    allowed: usize,
    /// What was dropped, in this order: the guard of an await has its number, and that of the request has `AWAITS`.
    dropped: Vec<usize>,
    finished: usize,
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Notes its number when it is dropped.
struct Guard(Arc<Shared>, usize);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.change(|seen| seen.dropped.push(self.1));
    }
}

#[derive(Clone)]
struct Waits {
    shared: Arc<Shared>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

impl Waits {
    /// Holds a guard for each await that it has reached.
    async fn answer(self) -> http::Response<String> {
        let _request = Guard(self.shared.clone(), AWAITS);
        let mut guards = Vec::new();
        for number in 0..AWAITS {
            guards.push(Guard(self.shared.clone(), number));
            self.shared.change(|seen| seen.begun += 1);
            poll_fn(|cx| {
                // Before the look, so that no wake-up is lost.
                self.wakers.lock().unwrap().push(cx.waker().clone());
                match self.shared.change(|seen| seen.allowed > number) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        self.shared.change(|seen| seen.finished += 1);
        http::Response::new("done".to_owned())
    }

    /// Lets the service go on to its next await, or to its end.
    fn go_on(&self) {
        self.shared.change(|seen| seen.allowed += 1);
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn eventually(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        eventually(|| {
            self.shared.change(|seen| holds(seen).then_some(()).ok_or(format!("{what}: {seen:?}")))
        });
    }
}

impl Service<http::Request<RequestBody>> for Waits {
    type Response = http::Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<RequestBody>) -> Self::Future {
        let service = self.clone();
        Box::pin(async { Ok(service.answer().await) })
    }
}

/// Waits until something holds. Otherwise it names what does not.
fn eventually(holds: impl Fn() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(error) = holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {error}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the service on each engine, and leaves it at each await. `leave` gets the number of the await, from 0.
fn each(begin: impl Fn(&Running) -> TcpStream, leave: impl Fn(&str, &Running, TcpStream)) {
    for engine in ["adaptive:1", "reactor:1", "workers:2", "pool:1", "fibers:1"] {
        for number in 0..AWAITS {
            let case = format!("{engine}, await {number}");
            let service = Waits { shared: Arc::default(), wakers: Arc::default() };
            let server = Server::bind("127.0.0.1:0").unwrap().engine(engine.parse().unwrap());
            let server =
                server.settings(|s| s.http2_cleartext(true)).start(serve_tower(service.clone())).unwrap();
            let client = begin(&server);
            service.eventually(&case, |seen| seen.begun == 1);
            for begun in 2..number + 2 {
                service.go_on();
                service.eventually(&case, |seen| seen.begun == begun);
            }
            leave(&case, &server, client);
            // Guards of a list are dropped from its first to its last, before what was declared above it.
            let wanted: Vec<usize> = (0..=number).chain([AWAITS]).collect();
            service.eventually(&case, |seen| seen.dropped == wanted);
            // A wake-up of a future that is gone does nothing.
            service.go_on();
            assert_eq!(server.stats().requests, 1, "{case}");
            server.shutdown(PATIENCE);
            let seen = service.shared.change(|seen| seen.clone());
            assert_eq!((seen.begun, seen.finished, seen.dropped), (number + 1, 0, wanted), "{case}");
            // Nothing else holds the service.
            eventually(|| match Arc::strong_count(&service.shared) {
                1 => Ok(()),
                count => Err(format!("{case}: {count} have the service")),
            });
        }
    }
}

#[test]
fn the_future_is_dropped_at_any_await() {
    let begin = |server: &Running| {
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    };
    each(begin, |case, server, client| {
        drop(client);
        eventually(|| match server.stats().connections {
            0 => Ok(()),
            count => Err(format!("{case}: {count} connections")),
        });
    });
}

/// The connection is kept: it answers a PING.
#[test]
fn the_future_of_a_stream_is_dropped_at_any_await() {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    };
    let begin = |server: &Running| {
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // GET, http, "/", and `:authority: a` (RFC 7541 appendix A). The flags end the head and the stream.
        let head = frame(1, 5, 1, b"\x82\x86\x84\x41\x01a");
        client
            .write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, b""), &head].concat())
            .unwrap();
        client
    };
    each(begin, |case, server, mut client| {
        // RST_STREAM with CANCEL, and PING.
        let reset = [frame(3, 0, 1, &8_u32.to_be_bytes()), frame(6, 0, 0, b"pingpong")].concat();
        client.write_all(&reset).unwrap();
        let mut read = Vec::new();
        while !read.windows(8).any(|bytes| bytes == b"pingpong") {
            let mut bytes = [0; 100];
            let count = client.read(&mut bytes).unwrap();
            assert!(count > 0, "{case}: the connection ended");
            read.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(server.stats().http2_resets_received, 1, "{case}");
        eventually(|| match server.stats().http2_streams {
            0 => Ok(()),
            count => Err(format!("{case}: {count} streams")),
        });
    });
}
