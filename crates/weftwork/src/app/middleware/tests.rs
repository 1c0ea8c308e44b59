//! Tests that middleware runs in the documented order, and that the engine still sees the handler.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::*;
use crate::message::testing::{Canned, get};
use crate::message::{BodyWriter, Problem, StreamFilter, blocks};

/// Adds its letter to the field `x-way`, before and after the call.
fn mark(letter: &'static str) -> impl Middleware {
    let name = HeaderName::from_static("x-way");
    move |req: &mut Request<'_>, next: Next<'_>| {
        let way = req.extensions().get::<String>().cloned().unwrap_or_default();
        req.extensions_mut().insert(way + letter);
        let mut response = next.run(req);
        response.append_header(name.clone(), HeaderValue::from_static(letter));
        response
    }
}

#[test]
fn the_last_added_is_outermost() {
    let seen = |req: &mut Request<'_>| req.extensions().get::<String>().cloned();
    let handler = seen.with(mark("a")).with(mark("b"));
    let response = get("/", &handler);
    assert_eq!(response.body().unwrap(), "ba");
    let out: Vec<_> = response.header_values(HeaderName::from_static("x-way")).collect();
    assert_eq!(out, ["a", "b"]);
}

#[test]
fn a_middleware_may_answer_by_itself() {
    fn closed(_: &mut Request<'_>, _: Next<'_>) -> StatusCode {
        StatusCode::GONE
    }
    let handler = (|_: &mut Request<'_>| -> Response { panic!("not asked") }).with(Arc::new(closed));
    assert_eq!(get("/", &handler).status(), StatusCode::GONE);
}

#[test]
fn what_the_handler_says_of_blocking_passes_through() {
    let line = RequestLine::new(&Method::GET, b"/x");
    let pass = |req: &mut Request<'_>, next: Next<'_>| next.run(req);
    assert_eq!(blocks(|_: &mut Request<'_>| ()).with(pass).blocking(&line), Blocking::Always);
    let plain = |_: &mut Request<'_>| ();
    assert_eq!(plain.with(pass).blocking(&line), plain.blocking(&line));
}

/// Fields about access and the request's id also apply to the error. Fields about coding and caching do not.
#[test]
fn what_was_added_to_a_stream_that_does_not_begin_is_on_its_error() {
    fn busy(_: &mut Request<'_>) -> crate::Result<Response> {
        let why = Problem::new(StatusCode::SERVICE_UNAVAILABLE);
        let fields =
            [("etag", "\"1\""), ("cache-control", "max-age=9"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
        let mut meant = Response::stream(move |_| Err(std::io::Error::other(why)));
        for (name, value) in fields {
            meant.append_header(name, value);
        }
        Ok(meant)
    }
    let panics = || Response::stream(|_| panic!("as asked")).try_with_header("content-length", "5");
    let site = crate::Router::new().get("/busy", busy).get("/panics", panics).with(RequestIds::new());
    let mut client = crate::TestClient::new(site);
    let busy = client.get("/busy").header("x-request-id", "id-7").send();
    assert_eq!((busy.status.as_u16(), busy.header("x-request-id")), (503, Some("id-7")));
    assert_eq!(busy.headers.get_all("set-cookie").iter().count(), 2);
    assert_eq!((busy.header("etag"), busy.header("cache-control")), (None, None));
    assert_eq!(busy.header("content-type"), Some("application/problem+json"));
    let panicked = client.get("/panics").header("x-request-id", "id-8").send();
    assert_eq!((panicked.status.as_u16(), panicked.header("x-request-id")), (500, Some("id-8")));
}

/// Otherwise the error would fail for the same reason.
#[test]
fn an_error_response_has_no_fields_of_the_head_that_cannot_be_written() {
    let write = |fails| {
        move |_: &mut BodyWriter<'_>| if fails { Err(std::io::Error::other("as asked")) } else { Ok(()) }
    };
    for (fails, name) in [(false, "transfer-encoding"), (true, "transfer-encoding"), (true, "connection")] {
        let wrong = move || Response::stream(write(fails)).try_with_header(name, "chunked");
        let site = crate::Router::new().get("/", wrong).with(RequestIds::new());
        assert_eq!(crate::TestClient::new(site).get("/").send().status, 500, "{name}");
    }
}

/// A replacement would lack the fields that middleware has added.
#[test]
fn after_a_head_that_cannot_be_written_no_other_head_is_written() {
    type Write = fn(&mut BodyWriter<'_>) -> std::io::Result<()>;
    let writers: [Write; 4] = [
        |out| {
            let _ = std::io::Write::write_all(out, b"a");
            Ok(())
        },
        |out| {
            let _ = std::io::Write::write_all(out, b"a");
            let _ = std::io::Write::flush(out);
            std::io::Write::write_all(out, b"b")
        },
        |out| {
            let _ = std::io::Write::write_all(out, b"a");
            Err(std::io::Error::other("as asked"))
        },
        |out| {
            let mut out = std::io::BufWriter::new(out);
            std::io::Write::write_all(&mut out, b"hello")?;
            std::io::Write::flush(&mut out)
        },
    ];
    for (number, write) in writers.into_iter().enumerate() {
        let wrong = move || {
            let streamed = Response::stream(write).with_status(StatusCode::FORBIDDEN);
            streamed.try_with_header("transfer-encoding", "chunked")
        };
        let site = crate::Router::new().get("/", wrong);
        assert_eq!(crate::TestClient::new(site).get("/").send().status, 500, "{number}");
    }
}

#[test]
fn filters_see_what_is_streamed() {
    struct Twice;
    impl StreamFilter for Twice {
        fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> std::io::Result<()> {
            std::io::Write::write_all(out, &[data, data].concat())
        }
        fn finish(&mut self, out: &mut BodyWriter<'_>) -> std::io::Result<()> {
            std::io::Write::write_all(out, b".")
        }
    }
    let stream = || Response::stream(|out| std::io::Write::write_all(out, b"ab"));
    let sent = |response| Canned::asking("GET", "/", &[]).body_of(response);
    assert_eq!(sent(stream().filter_stream(Twice)), b"abab.");
    assert_eq!(sent(stream().filter_stream(Twice).filter_stream(Twice)), b"abababab...");
    assert_eq!(sent(Response::text("whole").filter_stream(Twice)), b"whole");
}

/// A rate limit that is cloned counts for both.
#[test]
fn middleware_is_cloned_with_what_it_counts() {
    fn is_cloned<M: Clone + std::fmt::Debug>(_: &M) {}
    is_cloned(&super::Cors::any_origin());
    is_cloned(&super::RequestIds::new());
    is_cloned(&super::ResponseCache::default());
    let limit = super::RateLimit::new(1, std::time::Duration::from_secs(3600)).unwrap();
    let site = crate::Router::new().get("/", || "tea").with(limit.clone());
    let mut clients = [crate::TestClient::new(site.clone()), crate::TestClient::new(site)];
    let statuses = clients.each_mut().map(|client| client.get("/").send().status.as_u16());
    assert_eq!(statuses, [200, 429]);
    is_cloned(&limit);
}
