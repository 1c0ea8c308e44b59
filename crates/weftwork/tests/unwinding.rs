//! Tests that values of the user which panic as they are dropped do not end the process, although another panic unwinds or several of
//! them go at once. Each case is a process of its own.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};
use std::time::Duration;

use weftwork::http::HeaderValue;
use weftwork::{
    BodyWriter, Error, Event, EventHub, Feed, FeedLimits, IntoResponse, Request, Response, StreamFilter,
    TestClient, UpgradeHandler,
};

const CASE: &str = "WEFTWORK_TEST_UNWINDING";

/// Panics as it is dropped.
#[derive(Clone, Debug)]
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("a value panics");
    }
}

#[derive(Debug)]
struct Failed(#[allow(dead_code)] Mine);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as asked")
    }
}

impl std::error::Error for Failed {}

struct Filter(#[allow(dead_code)] Mine);

impl StreamFilter for Filter {
    fn write(&mut self, _: &[u8], _: &mut BodyWriter<'_>) -> std::io::Result<()> {
        Ok(())
    }
}

struct Receiver(#[allow(dead_code)] Mine);

impl UpgradeHandler for Receiver {
    fn on_data(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
}

/// Panics as it is polled, too.
struct Broken(#[allow(dead_code)] Mine);

impl Future for Broken {
    type Output = &'static str;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<&'static str> {
        panic!("a future panics")
    }
}

struct Otherwise(Response, #[allow(dead_code)] Mine);

impl IntoResponse for Otherwise {
    fn into_response(self) -> Response {
        self.0
    }
}

fn with_extensions(mut response: Response) -> Response {
    response.extensions_mut().insert(Mine);
    response.extensions_mut().insert(Some(Mine));
    response
}

fn streamed() -> Response {
    let mine = Mine;
    Response::stream(move |_| {
        drop(mine);
        Ok(())
    })
}

/// A hub with two clients.
fn hub() -> EventHub<Mine> {
    let hub = EventHub::<Mine>::default();
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request| {
        let _ = own.join_as(req, Mine);
        own.join_as(req, Mine)
    });
    let _ = catch_unwind(AssertUnwindSafe(|| client.get("/").send()));
    hub
}

/// What is held while a panic unwinds, or dropped without one.
fn made(case: &str) -> Box<dyn Any> {
    match case {
        "error" => Box::new(Error::from(Failed(Mine)).into_response()),
        "extensions" => Box::new(with_extensions(Response::text("hello"))),
        "stream" => Box::new(with_extensions(streamed())),
        "filter" => Box::new(streamed().filter_stream(Filter(Mine))),
        "later" => {
            let (sender, response) =
                Response::later(Duration::from_secs(60), with_extensions(Response::text("late")));
            sender.on_closed(|| panic!("a callback panics"));
            let mine = Mine;
            let changed = response.map_final(move |response| {
                let _ = &mine;
                response
            });
            Box::new((with_extensions(changed), sender))
        }
        "feed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            sender.on_closed(|| panic!("a callback panics"));
            Box::new((with_extensions(Response::feed(feed)), sender))
        }
        "receiver" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            let response = Response::upgrade_fed(HeaderValue::from_static("echo"), feed, Receiver(Mine));
            Box::new((with_extensions(response), sender))
        }
        "future" => Box::new(Response::when(Broken(Mine))),
        "otherwise" => {
            let otherwise = with_extensions(Response::text("late"));
            Box::new(Response::when_within(Duration::from_secs(60), Otherwise(otherwise, Mine), Broken(Mine)))
        }
        "hub" => Box::new(hub()),
        #[cfg(feature = "websocket")]
        "sockets" => Box::new(sockets()),
        _ => panic!("no case {case}"),
    }
}

/// A hub with two sockets.
#[cfg(feature = "websocket")]
fn sockets() -> weftwork::WebSocketHub<Mine> {
    use weftwork::{WebSocketHub, WebSockets};
    let hub = WebSocketHub::<Mine>::new(WebSockets::new(), |_, _, _| {});
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request| own.join_as(req, Mine));
    let open = [client.websocket("/"), client.websocket("/")];
    std::mem::forget(open);
    hub
}

const CASES: &[&str] = &[
    "error",
    "extensions",
    "stream",
    "filter",
    "later",
    "feed",
    "receiver",
    "future",
    "otherwise",
    "hub",
    #[cfg(feature = "websocket")]
    "sockets",
];

fn run(case: &str) {
    let held = catch_unwind(AssertUnwindSafe(|| {
        let _held = made(case);
        panic!("a handler panics")
    }));
    assert!(held.is_err());
    // Without another panic, those of the values are passed on, or logged.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(made(case))));
    std::mem::forget(dropped);
    if case == "hub" {
        let hub = hub();
        let _ = catch_unwind(AssertUnwindSafe(|| hub.send(&Event::new("news"))));
    }
    println!("the case has ended");
}

#[test]
fn values_that_panic_do_not_end_the_process() {
    if let Ok(case) = std::env::var(CASE) {
        return run(&case);
    }
    for case in CASES {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "values_that_panic_do_not_end_the_process", "--nocapture"]).env(CASE, case);
        let output = child.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("the case has ended"),
            "{case}: {}: {said}",
            output.status
        );
    }
}
