//! Logs the error that a handler returned, together with its request.

use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;

use super::drop_caught::Guarded;
use super::handler::RequestLine;
use super::into_response::IntoResponse;
use super::problem::SERVER_ERROR;
use super::request::Request;
use super::response::{Payload, Response};
use crate::error::{Error, OneLine};
use crate::transport::log_queue::log_line;

/// Error of a handler for the log, with the response for the client.
pub(crate) struct HandlerError {
    error: Guarded<Error>,
    pub(super) body: Bytes,
    is_logged: bool,
}

impl HandlerError {
    /// Logs the error with the request. `id` is the suffix of its log lines. Returns the response for the client.
    pub(crate) fn log(&mut self, line: &RequestLine<'_>, id: &str) -> Bytes {
        self.is_logged = true;
        log_line!(Error, "a handler failed at {line}: {}{}{id}", OneLine(&*self.error), Place(&self.error));
        std::mem::take(&mut self.body)
    }
}

/// Logs the error if another response replaces this one, so that no error is lost.
impl Drop for HandlerError {
    fn drop(&mut self) {
        if !self.is_logged {
            log_line!(
                Error,
                "a handler failed, and its own answer was not sent: {}{}",
                OneLine(&*self.error),
                Place(&self.error)
            );
        }
    }
}

/// Formats the place in the source where an error was converted, or nothing.
struct Place<'e>(&'e Error);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.location() {
            Some(at) => write!(f, " ({}:{})", at.file(), at.line()),
            None => Ok(()),
        }
    }
}

impl Response {
    /// Takes the error of the handler out of the response, if it is an `E`. If the response that `answer` makes of it is
    /// an error of the server with a body in memory, the log gets the error as before.
    pub(crate) fn answer_error<E: StdError + Send + Sync + 'static>(
        mut self,
        answer: impl FnOnce(E) -> Response,
    ) -> Response {
        let Payload::HandlerError(failed) = &mut self.payload else { return self };
        let Some(error) = (*failed.error).take::<E>() else { return self };
        let mut response = answer(error);
        match response.body().cloned() {
            Some(body) if response.status.is_server_error() && response.error().is_none() => {
                failed.body = body;
                response.payload = std::mem::replace(&mut self.payload, Payload::Empty);
            }
            _ => failed.is_logged = true,
        }
        response.in_place_of(self)
    }

    /// Returns the error that the handler returned, if the client is not to blame. The response is 500 with a
    /// [`Problem`](crate::Problem) that reveals no cause. The log gets the error with its causes after the response was
    /// sent. This is for middleware that reports errors elsewhere, or that sends a page of its own.
    /// [`with_body`](Response::with_body) keeps the error for the log.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn pages(req: &mut Request, next: Next) -> Response {
    ///     let response = next.run(req);
    ///     match response.error() {
    ///         Some(_) => response.with_body("<h1>Sorry</h1>").with_content_type(HeaderValue::from_static("text/html")),
    ///         None => response,
    ///     }
    /// }
    /// let site = |_: &mut Request| -> Result<String> { Ok(std::fs::read_to_string("/no/such/file")?) };
    /// let answer = weftwork::TestClient::new(site.with(pages)).get("/").send();
    /// assert_eq!((answer.status.as_u16(), answer.text()), (500, "<h1>Sorry</h1>"));
    /// ```
    pub fn error(&self) -> Option<&Error> {
        match &self.payload {
            Payload::HandlerError(failed) => Some(&*failed.error),
            _ => None,
        }
    }

    /// Returns the response for an error of the server.
    pub(super) fn failed(error: Error) -> Response {
        let failed = HandlerError {
            error: Guarded::new(error),
            body: Bytes::from_static(SERVER_ERROR),
            is_logged: false,
        };
        Response { payload: Payload::HandlerError(Box::new(failed)), ..Response::server_error() }
    }
}

impl Request<'_> {
    /// Runs the handler. If its body could not be read through `std::io`, an error of the handler is about that, and
    /// gets that status. Of an `io::Error` inside another error only its sources are visible, so parsers hide the
    /// [`BodyError`](super::BodyError) in it.
    #[inline]
    pub(crate) fn blame(&self, response: &mut Response) {
        if let Payload::HandlerError(failed) = &mut response.payload
            && let Some(why) = &self.exchange.quota().failed
        {
            self.tell_of(failed);
            *response = Error::from(why.clone()).into_response();
        }
    }

    #[cold]
    fn tell_of(&self, failed: &mut HandlerError) {
        failed.is_logged = true;
        let (line, error) = (self.exchange.request_line(), &*failed.error);
        self.exchange
            .log_client(format_args!("a handler failed over the body of its request at {line}: {error}"));
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    //! Tests the blame for an error if a parser reads the body and hides why it failed.

    use http::StatusCode;

    use crate::middleware::BodyLimit;
    use crate::{Extract, HandlerExt, Query, Request, Result, Router, TestClient, handler};

    fn parsed(req: &mut Request<'_>) -> Result<String> {
        let value: serde_json::Value = serde_json::from_reader(req.body())?;
        Ok(value.to_string())
    }

    fn parsed_with(_: Query<Vec<(String, String)>>, req: &mut Request<'_>) -> Result<String> {
        parsed(req)
    }

    struct Parsed(String);

    impl Extract for Parsed {
        const IS_BODY: bool = true;

        fn extract(req: &mut Request<'_>) -> Result<Parsed> {
            Ok(Parsed(parsed(req)?))
        }
    }

    fn taken(Parsed(text): Parsed) -> String {
        text
    }

    fn taken_if_it_can_be(parsed: Result<Parsed>) -> Result<String> {
        Ok(parsed?.0)
    }

    /// The handler got the error and continued.
    #[test]
    fn what_fails_of_a_handler_that_does_without_the_body_is_its_own() {
        fn tolerant(req: &mut Request<'_>) -> Result<String> {
            let error = req.body().limit(1).bytes().unwrap_err();
            Err(std::io::Error::other(format!("something else than {error}")))?
        }
        let answer = TestClient::new(tolerant).post("/").body("12345").send();
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn a_body_that_breaks_its_limit_below_a_parser_is_the_clients() {
        let site = Router::new().post("/plain", parsed).post("/typed", handler(parsed_with));
        let site = site.post("/taken", handler(taken)).post("/result", handler(taken_if_it_can_be));
        let mut client = TestClient::new(site.with(BodyLimit::new(10)));
        for path in ["/plain", "/typed", "/taken", "/result"] {
            let long = client.post(path).body("[1,2,3,4,5,6]").send();
            assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
            let chunked = client.post(path).chunks(["[1,2,3,", "4,5,6]"], std::time::Duration::ZERO).send();
            assert_eq!(chunked.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}, chunked");
            assert_eq!(client.post(path).body("[1]").send().text(), "[1]");
            assert_eq!(
                client.post(path).body("[1").send().status,
                StatusCode::INTERNAL_SERVER_ERROR,
                "{path}"
            );
        }
    }
}
