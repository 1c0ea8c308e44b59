//! Entity tags and conditional requests.

use std::hash::{DefaultHasher, Hasher};

use http::{HeaderValue, Method, StatusCode, header};
use weftwork_wire::fields::{Conditions, EntityTag, Precondition, Validators, date};

use super::{Middleware, Next, refusal};
use crate::message::{OF_CONTENT, Request, Response};

/// Adds an `ETag` computed from the content, and answers 304 if the client already has that content.
///
/// This middleware only revalidates and stores nothing. The handler always runs, and what it saves is network
/// transfer and work of the client. [`ResponseCache`](super::ResponseCache) answers without the handler and
/// computes tags in the same way. It applies to GET and HEAD responses with status 200:
///
/// - A response in memory gets a strong tag, a hash of its bytes, unless it has a tag or `no-store`. Streams
///   and files get no tag ([`files`](crate::files) set their own). An empty HEAD response gets no tag either,
///   because GET may send more. A [deferred](Response::later) response is sent unchanged.
/// - The conditions of the request are then evaluated in the order of RFC 9110 §13.2.2, with that tag and the
///   `Last-Modified` of the handler. The result is 304, 412, or the response. A response without a tag, such as
///   a stream, does not match an `If-Match` with a tag (412), except for an empty HEAD response.
///
/// The tag is the 64-bit hash of the standard library and the length. A new release may hash differently.
/// Everything is then sent once more. Put `Compression` outside of this middleware.
///
/// ```
/// use weftwork::middleware::ETags;
/// use weftwork::{TestClient, prelude::*};
///
/// let mut client = TestClient::new((|_: &mut Request| "the news").with(ETags::new()));
/// let first = client.get("/").send();
/// let tag = first.header("etag").unwrap();
/// assert_eq!(client.get("/").header("if-none-match", tag).send().status, StatusCode::NOT_MODIFIED);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ETags;

impl ETags {
    /// Creates the middleware. It has no options.
    pub fn new() -> ETags {
        ETags
    }
}

impl Middleware for ETags {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let mut response = next.run(req);
        if !matches!(*req.method(), Method::GET | Method::HEAD) || response.status() != StatusCode::OK {
            return response;
        }
        // The conditions apply to the final response, which is not known yet.
        if response.is_to_come() {
            return response;
        }
        // A handler for HEAD alone may leave out the content, so no tag can be computed.
        let is_left_out = *req.method() == Method::HEAD && response.body_bytes() == Some(0);
        if !is_left_out {
            name(&mut response);
        } else if given_tag(&response).is_none() && req.header_values("if-match").next().is_some() {
            return response;
        }
        answer(req, response)
    }
}

/// Adds a tag to `response`, unless it has one or none can be computed.
pub(super) fn name(response: &mut Response) {
    if let Some(tag) = tag_of(response) {
        response.append_header(header::ETAG, tag);
    }
}

/// Returns the response, or the result of the request's conditions.
pub(super) fn answer(req: &Request<'_>, response: Response) -> Response {
    match precondition(req, &response) {
        Precondition::Holds => response,
        Precondition::NotModified => not_modified(response),
        Precondition::Failed => refusal(
            StatusCode::PRECONDITION_FAILED,
            "the resource does not match the conditions of the request",
        ),
    }
}

fn precondition(req: &Request<'_>, response: &Response) -> Precondition {
    let current = Validators {
        tag: given_tag(response),
        modified: response.header(header::LAST_MODIFIED).and_then(|at| date(at.as_bytes())),
    };
    Conditions::of(req.fields()).precondition(true, &current)
}

/// Returns the tag that the response has, if it is valid.
fn given_tag(response: &Response) -> Option<EntityTag<'_>> {
    response.header_values(header::ETAG).next().and_then(|tag| EntityTag::parse(tag.as_bytes()))
}

/// Returns a tag computed from the response, if possible.
fn tag_of(response: &Response) -> Option<HeaderValue> {
    let body = response.body().filter(|_| response.header_values(header::ETAG).next().is_none())?;
    let is_kept =
        |value: &HeaderValue| !value.to_str().unwrap_or_default().to_ascii_lowercase().contains("no-store");
    if !response.header_values(header::CACHE_CONTROL).all(is_kept) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    // The same bytes with another coding or type are another representation.
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
        hasher.write(response.header_values(name).next().map_or(&[][..], HeaderValue::as_bytes));
        hasher.write_u8(0);
    }
    HeaderValue::try_from(format!("\"{:016x}-{:x}\"", hasher.finish(), body.len())).ok()
}

/// Returns a 304. Fields that describe content are not repeated (RFC 9110 §15.4.5).
fn not_modified(response: Response) -> Response {
    let mut response = response.without_body().with_status(StatusCode::NOT_MODIFIED);
    for name in &OF_CONTENT {
        response.remove_header(name);
    }
    response
}

#[cfg(test)]
mod tests {
    //! Tests that the tag changes with the content, and that a client with the tag gets no content.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::{Canned, get};

    fn page(_: &mut Request<'_>) -> Response {
        Response::text("a page").with_header(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"))
    }

    fn ask(method: &str, fields: &[(&str, &str)]) -> Response {
        Canned::asking(method, "/", fields).call(&page.with(ETags::new()))
    }

    fn tag() -> String {
        ask("GET", &[]).header(header::ETAG).unwrap().to_owned()
    }

    #[test]
    fn the_tag_is_strong_and_stands_for_the_content() {
        assert!(tag().starts_with('"') && tag() == tag());
        let typed = get("/", &(|_: &mut Request<'_>| Response::html("a page")).with(ETags::new()));
        assert_ne!(typed.header(header::ETAG).unwrap(), tag().as_str(), "another type");
        let longer = get("/", &(|_: &mut Request<'_>| "a page!").with(ETags::new()));
        assert_ne!(longer.header(header::ETAG).unwrap(), tag().as_str());
    }

    #[test]
    fn a_client_with_the_current_version_gets_304() {
        for known in [tag(), format!("W/{}", tag()), format!("\"x\", {}", tag()), "*".into()] {
            let response = ask("GET", &[("If-None-Match", &known)]);
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!((response.body_bytes(), response.content_type()), (Some(0), None));
            assert_eq!(response.header(header::ETAG).unwrap(), tag().as_str());
            assert_eq!(response.header(header::CACHE_CONTROL).unwrap(), "max-age=60");
        }
        assert_eq!(ask("HEAD", &[("If-None-Match", &tag())]).status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn a_304_does_not_describe_content() {
        for digest in ["content-digest", "content-md5"] {
            let digested = move |_: &mut Request<'_>| {
                Response::text("a page").try_with_header(digest, "sha-256=:AA==:").unwrap()
            };
            let known = tag();
            let mut canned = Canned::asking("GET", "/", &[("If-None-Match", &known)]);
            let response = canned.call(&digested.with(ETags::new()));
            assert_eq!((response.status().as_u16(), response.header(digest)), (304, None), "{digest}");
        }
    }

    #[test]
    fn a_client_with_another_version_gets_the_whole() {
        for known in ["\"x\"", "", "x"] {
            let response = ask("GET", &[("If-None-Match", known)]);
            assert_eq!(
                (response.status(), response.body().unwrap().as_ref()),
                (StatusCode::OK, &b"a page"[..])
            );
        }
        assert_eq!(ask("GET", &[("If-Match", "\"x\"")]).status(), StatusCode::PRECONDITION_FAILED);
        assert_eq!(ask("GET", &[("If-Match", &tag())]).status(), StatusCode::OK);
        assert_eq!(ask("POST", &[("If-None-Match", "*")]).status(), StatusCode::OK);
        assert_eq!(ask("POST", &[]).header(header::ETAG), None);
    }

    #[test]
    fn validators_of_the_handler_are_used() {
        let at = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        let own = move |_: &mut Request<'_>| {
            let tag = HeaderValue::from_static("\"own\"");
            Response::stream(|_| Ok(()))
                .with_header(header::LAST_MODIFIED, at.clone())
                .with_header(header::ETAG, tag)
        };
        let site = own.with(ETags::new());
        let status = |name, value| Canned::asking("GET", "/", &[(name, value)]).call(&site).status().as_u16();
        assert_eq!(status("If-None-Match", "\"own\""), 304);
        assert_eq!(status("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"), 304);
        assert_eq!(status("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT"), 200);
        assert_eq!(status("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT"), 412);
        assert_eq!(status("X-Other", "x"), 200);
    }

    /// RFC 9110 §13.1.1 and §13.1.2: `*` matches every representation, and a tag matches no representation
    /// without one.
    #[test]
    fn what_has_no_validator_meets_conditions_too() {
        type Make = fn() -> Response;
        let kinds: [(&str, Make); 3] = [
            ("an unquoted tag", || {
                Response::text("x").with_header(header::ETAG, HeaderValue::from_static("unquoted"))
            }),
            ("a stream", || Response::stream(|_| Ok(()))),
            ("no-store", || {
                Response::text("x").with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
            }),
        ];
        for (kind, make) in kinds {
            let site = (move |_: &mut Request<'_>| make()).with(ETags::new());
            for (name, value, want) in [
                ("If-None-Match", "*", 304),
                ("If-None-Match", "\"x\"", 200),
                ("If-Match", "\"x\"", 412),
                ("If-Match", "*", 200),
                ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT", 200),
            ] {
                for method in ["GET", "HEAD"] {
                    let answer = Canned::asking(method, "/", &[(name, value)]).call(&site);
                    assert_eq!(answer.status().as_u16(), want, "{method} of {kind} with {name}: {value}");
                }
            }
        }
    }

    /// A handler for HEAD alone need not return what GET would send.
    #[test]
    fn what_head_leaves_out_gets_no_name() {
        let own = |_: &mut Request<'_>| Response::text("");
        let tag = |method| {
            let response = Canned::asking(method, "/", &[]).call(&own.with(ETags::new()));
            response.header(header::ETAG).map(str::to_owned)
        };
        assert_eq!(tag("HEAD"), None);
        for empty in [|| Response::text(""), || Response::new(StatusCode::OK)] {
            let site = (move |_: &mut Request<'_>| empty()).with(ETags::new());
            let status =
                |name, value| Canned::asking("HEAD", "/", &[(name, value)]).call(&site).status().as_u16();
            assert_eq!(status("If-Match", "\"x\""), 200, "GET may send what has this tag");
            assert_eq!(status("If-None-Match", "*"), 304);
        }
        assert!(tag("GET").is_some());
        assert_eq!(ask("HEAD", &[]).header(header::ETAG), Some(self::tag().as_str()));
    }

    #[test]
    fn what_has_no_name_gets_none() {
        let tagged = |response: fn() -> Response| {
            get("/", &(move |_: &mut Request<'_>| response()).with(ETags::new()))
                .header(header::ETAG)
                .is_some()
        };
        assert!(tagged(|| Response::text("x")));
        assert!(!tagged(|| Response::stream(|_| Ok(()))));
        assert!(!tagged(|| Response::text("x").with_status(StatusCode::NOT_FOUND)));
        assert!(!tagged(|| {
            Response::text("x")
                .with_header(header::CACHE_CONTROL, HeaderValue::from_static("private, No-Store"))
        }));
    }

    /// The fallback of a later response has no tag of that response. Otherwise a client that polls would be
    /// told
    /// at once, again and again, that nothing has changed.
    #[test]
    fn what_is_to_come_is_waited_for() {
        let (kept, senders) = std::sync::mpsc::channel();
        let news = move |req: &mut Request<'_>| {
            let (sender, later) = Response::later(
                std::time::Duration::from_secs(60),
                page(req).with_header(header::ETAG, HeaderValue::from_static("\"1\"")),
            );
            kept.send(sender).unwrap();
            later
        };
        let mut client = crate::TestClient::new(news.with(ETags::new())).connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"1\"\r\n\r\n");
        senders.recv().unwrap().send("news").unwrap();
        assert_eq!(client.response().text(), "news");
    }
}
