//! Tests that `blocking` and `sleep` behave the same on every engine, and that the adaptive engine hands its
//! loop over.

#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Client, ENGINES, eventually};
use weftwork::http::Method;
use weftwork::{Blocking, Handler, Request, RequestLine, Response, Server};

/// Declares that it never blocks, so that only its own calls can hand the loop over.
struct Pauses(Arc<support::SiteState>);

impl Handler for Pauses {
    fn call(&self, req: &mut Request<'_>) -> Response {
        assert_eq!(*req.method(), Method::GET);
        let inside = self.0.clone();
        match req.path() {
            "/blocking" => Response::text(weftwork::blocking(move || {
                inside.gate.pass();
                "done"
            })),
            "/sleep" => {
                weftwork::sleep(Duration::from_millis(20));
                Response::text("slept")
            }
            "/panic" => weftwork::blocking(|| panic!("as asked")),
            "/nested" => Response::text(weftwork::blocking(|| weftwork::blocking(|| "inner"))),
            _ => Response::text("quick"),
        }
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        Blocking::Never
    }
}

#[test]
fn blocking_works_in_every_engine() {
    for &engine in ENGINES {
        let inside = Arc::<support::SiteState>::default();
        inside.gate.open();
        let server = Server::bind("127.0.0.1:0").unwrap().engine(engine);
        let running = server.start(Pauses(inside)).unwrap();
        let mut client = Client::connect(&running);
        client.get("/blocking").is(200, "done");
        client.get("/nested").is(200, "inner");
        let begun = Instant::now();
        client.get("/sleep").is(200, "slept");
        assert!(begun.elapsed() >= Duration::from_millis(20), "{engine}");
        assert_eq!(client.get("/panic").status, 500, "{engine}");
        client.ends();
        eventually("the panic is counted", || running.stats().panics == 1);
        Client::connect(&running).get("/blocking").is(200, "done");
    }
}

/// If the machine stops a handler before its call, its loop is taken over as from a handler that blocks.
#[test]
fn the_adaptive_loop_is_handed_over_before_the_wait() {
    let is_handed_over = || {
        let inside = Arc::<support::SiteState>::default();
        let server = Server::bind("127.0.0.1:0").unwrap().engine(ENGINES[0]);
        let running = server.start(Pauses(inside.clone())).unwrap();
        let mut blocked = Client::connect(&running);
        blocked.send("GET /blocking HTTP/1.1\r\nHost: a\r\n\r\n");
        inside.gate.wait_for(1);
        let counts = running.stats();
        assert_eq!(counts.loops_handed_off + counts.loops_retaken, 1);
        Client::connect(&running).get("/").is(200, "quick");
        inside.gate.open();
        blocked.answer().is(200, "done");
        counts.loops_handed_off == 1
    };
    eventually("it is handed over by who blocks", is_handed_over);
}
