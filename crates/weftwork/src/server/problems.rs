//! Gives the responses of the library itself another shape.

use http::StatusCode;

use super::Server;
use crate::app::middleware::{Middleware, Next};
use crate::message::{IntoResponse, Problem, ProblemShape, Request, Response};

impl Server {
    /// Sets the shape of the responses that the library makes itself, in one place: HTML pages, or the JSON that your clients
    /// know. By default, they are `application/problem+json` (RFC 9457), or a line of text if the request was rejected
    /// before it was complete.
    ///
    /// `shape` gets the status, the [`Problem`], and the request. The request is `None` if no handler got it: it was
    /// malformed, late or too large, or no thread was free. It is also `None` for a response that was sent
    /// [later](Response::later). These have a problem:
    ///
    /// - 404 if no route matches, 405, and 400, 413, 415 and 422 of typed arguments and bodies
    /// - rejections of the middleware in this library
    /// - 500 for errors and panics of handlers
    /// - 400, 408, 414, 431 and other statuses for requests that break a rule or a limit
    /// - 503 under overload
    /// - each [`Problem`] that your handlers return, unless middleware has replaced its body
    ///
    /// The response keeps the status of the problem if `shape` returns a success, as [`html`](crate::html) does. It keeps
    /// the headers of the problem and of middleware, except for those about its content. If no handler got the request,
    /// `shape` runs on a loop, so it must not block, and its body must be in memory. If it panics, the response has the
    /// default shape, and the log has the panic. The [side listener](Server::admin) has the default shape.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn page(status: StatusCode, problem: &Problem, _: Option<&Request>) -> Response {
    ///     html(format!("<h1>{status}</h1><p>{}", weftwork::escaped(&problem.to_string())))
    /// }
    /// let server = Server::bind("127.0.0.1:0")?.problems(page);
    ///
    /// let mut client = weftwork::TestClient::new(Router::new().get("/", || "home")).problems(page);
    /// let answer = client.get("/lost").send();
    /// assert_eq!((answer.status.as_u16(), answer.text()), (404, "<h1>404 Not Found</h1><p>there is nothing here"));
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    #[must_use]
    pub fn problems<R: IntoResponse>(
        self,
        shape: impl Fn(StatusCode, &Problem, Option<&Request<'_>>) -> R + Send + Sync + 'static,
    ) -> Server {
        Server { problems: Some(ProblemShape::new(shape)), ..self }
    }
}

impl Middleware for ProblemShape {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let response = next.run(req);
        if !response.is_to_come() {
            return self.apply(response, Some(req));
        }
        let shape = self.clone();
        // The response that stands in for it is not sent.
        response.map_final(move |response| match response.is_to_come() {
            true => response,
            false => shape.apply(response, None),
        })
    }
}
