//! Answers errors of one type as that type says.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;

use super::{Middleware, Next};
use crate::message::{IntoResponse, Request, Response};

/// Sets the response for an error type of yours that handlers convert with `?` to [`Error`](crate::Error). Without it,
/// that response is 500, because `?` sees only a [`std::error::Error`]. Add it once, around all handlers.
///
/// A handler that returns `Result<T, AppError>` itself needs no middleware: its `AppError` answers as it says. Other
/// types are not changed, and neither is an `AppError` that is only the cause of another error. Contexts
/// ([`Context`](crate::Context)) do not hide it. If the response is an error of the server (5xx), the log gets the error.
///
/// ```
/// use weftwork::middleware::HandleError;
/// use weftwork::prelude::*;
///
/// #[derive(Debug)]
/// struct NotFound;
///
/// impl std::fmt::Display for NotFound {
///     fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { f.write_str("no such page") }
/// }
/// impl std::error::Error for NotFound {}
/// impl IntoResponse for NotFound {
///     fn into_response(self) -> Response { (StatusCode::NOT_FOUND, "no such page\n").into_response() }
/// }
///
/// fn page(_: &mut Request) -> Result<String> { Err(NotFound)? }
///
/// let site = Router::new().get("/page", page).with(HandleError::new(NotFound::into_response));
/// assert_eq!(weftwork::TestClient::new(site).get("/page").send().status, 404);
/// ```
pub struct HandleError<E, F> {
    answer: F,
    error: PhantomData<fn(E)>,
}

impl<E, F, R> HandleError<E, F>
where
    E: StdError + Send + Sync + 'static,
    F: Fn(E) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    /// Answers errors of type `E` with `answer`, for example `AppError::into_response`, or
    /// `|error: sqlx::Error| (StatusCode::SERVICE_UNAVAILABLE, "later\n")`.
    pub fn new(answer: F) -> HandleError<E, F> {
        HandleError { answer, error: PhantomData }
    }
}

impl<E, F, R> Middleware for HandleError<E, F>
where
    E: StdError + Send + Sync + 'static,
    F: Fn(E) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        next.run(req).answer_error(|error| (self.answer)(error).into_response())
    }
}

impl<E, F: Clone> Clone for HandleError<E, F> {
    fn clone(&self) -> Self {
        HandleError { answer: self.answer.clone(), error: PhantomData }
    }
}

impl<E, F> fmt::Debug for HandleError<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleError").field("error", &std::any::type_name::<E>()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Tests which errors are answered, and that the log gets those of the server.

    use http::StatusCode;

    use super::*;
    use crate::{Context, Error, HandlerExt, Problem, Result, Router, TestClient};

    #[derive(Debug)]
    enum AppError {
        NoSuchPage,
        Broken,
    }

    impl fmt::Display for AppError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl StdError for AppError {}

    impl IntoResponse for AppError {
        fn into_response(self) -> Response {
            match self {
                AppError::NoSuchPage => (StatusCode::NOT_FOUND, "no such page").into_response(),
                AppError::Broken => (StatusCode::BAD_GATEWAY, "broken").into_response(),
            }
        }
    }

    fn site() -> Router {
        let own = |_: &mut Request<'_>| Err::<(), _>(AppError::NoSuchPage);
        Router::new()
            .get("/own", own)
            .get("/missing", || -> Result<()> { Err(AppError::NoSuchPage)? })
            .get("/context", || -> Result<()> { Err(AppError::NoSuchPage).context("no user")? })
            .get("/broken", || -> Result<()> { Err(AppError::Broken)? })
            .get("/cause", || -> Result<()> { Err(std::io::Error::other(AppError::NoSuchPage))? })
            .get("/problem", || -> Result<()> { Err(Problem::new(StatusCode::CONFLICT))? })
    }

    #[test]
    fn an_error_of_that_type_answers_as_it_says() {
        let mut plain = TestClient::new(site());
        let mut handled = TestClient::new(site().with(HandleError::new(AppError::into_response)));
        let rows = [("own", 404, 404), ("missing", 500, 404), ("context", 500, 404), ("broken", 500, 502)];
        for (name, before, after) in rows.into_iter().chain([("cause", 500, 500), ("problem", 409, 409)]) {
            let path = format!("/{name}");
            assert_eq!(plain.get(&path).send().status, before, "{name}");
            assert_eq!(handled.get(&path).send().status, after, "{name}");
        }
        assert_eq!(handled.get("/missing").send().text(), "no such page");
        assert_eq!(handled.get("/broken").send().text(), "broken");
    }

    #[test]
    fn an_error_of_the_server_is_kept_for_the_log() {
        let line = line!() + 1;
        let failed = |_: &mut Request<'_>| -> Result<()> { Err(AppError::Broken)? };
        let outer = move |req: &mut Request<'_>, next: Next<'_>| {
            let response = next.run(req);
            let error = response.error().expect("the error");
            assert_eq!(
                (error.to_string().as_str(), error.location().map(|at| at.line())),
                ("Broken", Some(line))
            );
            response
        };
        let site = failed.with(HandleError::new(AppError::into_response)).with(outer);
        assert_eq!(TestClient::new(site).get("/").send().text(), "broken");
    }

    #[test]
    fn fields_of_inner_middleware_stay() {
        let marked = |req: &mut Request<'_>, next: Next<'_>| {
            let mut response = next.run(req);
            response
                .append_header(http::HeaderName::from_static("x-id"), http::HeaderValue::from_static("7"));
            response
        };
        let site = site().with(marked).with(HandleError::new(AppError::into_response));
        assert_eq!(TestClient::new(site).get("/missing").send().header("x-id"), Some("7"));
    }

    #[test]
    fn a_context_keeps_what_a_client_sees() {
        let problem = |_: &mut Request<'_>| -> Result<()> {
            Err(Error::client(StatusCode::GONE, "gone")).context("a secret")?
        };
        let answer = TestClient::new(problem).get("/").send();
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (410, r#"{"title":"Gone","status":410,"detail":"gone"}"#)
        );
    }
}
