//! Tests that an error with a response sends that response, wherever the error came from.

use std::io::Write;

use http::StatusCode;

use crate::{
    Error, ErrorClass, Extract, HandlerExt, Next, Request, Response, Result, Router, TestClient, html, text,
};

fn login() -> Response {
    let page = html("<h1>Log in</h1>").with_status(StatusCode::UNAUTHORIZED);
    page.try_with_header("x-from", "login").unwrap()
}

#[track_caller]
fn check_login(client: &mut TestClient, path: &str) {
    let answer = client.get(path).send();
    assert_eq!((answer.status, answer.text()), (StatusCode::UNAUTHORIZED, "<h1>Log in</h1>"), "{path}");
    assert_eq!(answer.header("x-from"), Some("login"), "{path}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
}

struct User;

impl Extract for User {
    fn extract(req: &mut Request<'_>) -> Result<User> {
        req.bearer_token().map(|_| User).ok_or_else(login).map_err(Error::from)
    }
}

#[test]
fn a_response_as_an_error_ends_a_handler_an_argument_and_a_middleware() {
    fn plain(_: &mut Request<'_>) -> Result<String> {
        Err(login())?
    }
    fn typed(_: User) -> &'static str {
        "in"
    }
    fn with_request(_: User, _: &mut Request<'_>) -> &'static str {
        "in"
    }
    fn optional(user: Result<User>) -> Result<&'static str> {
        user.map(|_| "in")
    }
    fn guard(req: &mut Request<'_>, next: Next<'_>) -> Result<Response> {
        User::extract(req)?;
        Ok(next.run(req))
    }
    let site = Router::new().get("/plain", plain).get("/typed", typed).get("/request", with_request);
    let site = site.get("/optional", optional).get("/guarded", (|_: &mut Request<'_>| "in").with(guard));
    let mut client = TestClient::new(site);
    for path in ["/plain", "/typed", "/request", "/optional", "/guarded"] {
        check_login(&mut client, path);
    }
    for path in ["/typed", "/request", "/optional", "/guarded"] {
        assert_eq!(client.get(path).header("authorization", "Bearer x").send().text(), "in", "{path}");
    }
}

#[test]
fn a_response_as_an_error_is_not_logged_as_a_failure() {
    let error = Error::response((StatusCode::BAD_GATEWAY, "down"));
    assert_eq!(error.class(), ErrorClass::Client(StatusCode::BAD_GATEWAY), "so it is not logged");
    assert_eq!(error.to_string(), "answered with 502 Bad Gateway");
    let outer = |req: &mut Request<'_>, next: Next<'_>| {
        let response = next.run(req);
        assert!(response.error().is_none());
        response
    };
    let site =
        |_: &mut Request<'_>| -> Result<()> { Err(Error::response((StatusCode::BAD_GATEWAY, "down"))) };
    let answer = TestClient::new(site.with(outer)).get("/").send();
    assert_eq!((answer.status, answer.text()), (StatusCode::BAD_GATEWAY, "down"));
}

/// A body of any kind is sent, and so is the absence of a body.
#[test]
fn a_response_as_an_error_is_sent_unchanged() {
    let streams = |_: &mut Request<'_>| -> Result<()> { Err(Response::stream(|out| out.write_all(b"tea")))? };
    let declines = |_: &mut Request<'_>| -> Result<()> { Err(Response::decline())? };
    let fails = |_: &mut Request<'_>| -> Result<()> {
        let failed: Result<()> = Err(Error::internal("no tea"));
        Err(crate::IntoResponse::into_response(failed))?
    };
    let keeps = |req: &mut Request<'_>, next: Next<'_>| {
        let response = next.run(req);
        assert_eq!(response.error().map(Error::message), Some("no tea"), "a failure stays one");
        response
    };
    let site =
        Router::new().get("/stream", streams).get("/decline", declines).get("/fail", fails.with(keeps));
    let mut client = TestClient::new(site.fallback(|| text("else")));
    assert_eq!(client.get("/stream").send().text(), "tea");
    assert_eq!(client.get("/decline").send().text(), "else");
    assert_eq!(client.get("/fail").send().status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[test]
fn an_error_is_small_and_goes_to_other_threads() {
    fn takes<E: Send + Sync + 'static>(_: E) {}
    takes(Error::response(Response::stream(|_| Ok(()))));
    assert!(size_of::<Error>() <= 7 * size_of::<usize>(), "{} bytes", size_of::<Error>());
}
