//! Does middleware run in the order that is promised, and does the engine still see the handler?

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::*;
use crate::message::testing::{Canned, get};
use crate::message::{BodyWriter, StreamFilter, blocks};

/// Adds its letter to the field `x-way`, on the way in and on the way out.
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
    let asked = Asked::new(&Method::GET, b"/x");
    let pass = |req: &mut Request<'_>, next: Next<'_>| next.run(req);
    assert_eq!(blocks(|_: &mut Request<'_>| ()).with(pass).blocking(&asked), Blocking::Always);
    let plain = |_: &mut Request<'_>| ();
    assert_eq!(plain.with(pass).blocking(&asked), plain.blocking(&asked));
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
