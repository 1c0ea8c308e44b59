//! Time budgets for some handlers.

use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, header};

use super::{Middleware, Next, refusal};
use crate::message::{Request, Response};

/// Gives the inner handlers a time budget. When exceeded: 503 instead of the response.
///
/// A thread cannot be stopped safely, so the handler must check. Use [`Request::time_left`] as the timeout of a
/// query or a call, and compare [`Request::deadline`] with [`Request::now`] in loops. If a handler returns too
/// late, its response is dropped, so clients see the same result whether it checks or not. A request whose
/// deadline has already passed does not reach the handler. It may have waited for a thread, or an outer
/// deadline may be over.
///
/// A client gets no response while its handler blocks: the handler borrows the buffers of the connection. To end the wait
/// of the client, do the work on another thread and return [`Response::later`]. docs/middleware.md has an example.
///
/// If there are several deadlines, the earliest one counts. The time starts at this middleware, after a small
/// body of up to `body_ahead_bytes_max` was read. It ends when the response is known, not when it is sent. This
/// includes [deferred](Response::later) and [delayed](Response::with_delay) responses. Streams are limited by
/// `write_timeout`. In a proxy, 504 may fit better: see [`status`](Deadline::status).
///
/// ```
/// use std::time::Duration;
/// use weftwork::middleware::Deadline;
/// use weftwork::prelude::*;
///
/// fn report(req: &mut Request) -> String {
///     let timeout = req.time_left().unwrap_or(Duration::MAX);
///     format!("asked the database, for {timeout:?} at most\n")
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(report.with(Deadline::new(Duration::from_secs(2))));
/// ```
#[derive(Clone, Debug)]
pub struct Deadline {
    budget: Duration,
    status: StatusCode,
}

impl Deadline {
    /// Gives each request this time budget.
    pub fn new(budget: Duration) -> Deadline {
        Deadline { budget, status: StatusCode::SERVICE_UNAVAILABLE }
    }

    /// Sets the status. Default: 503.
    #[must_use]
    pub fn status(self, status: StatusCode) -> Deadline {
        Deadline { status, ..self }
    }

    fn run_within(&self, req: &mut Request<'_>, next: Next<'_>, deadline: Option<Instant>) -> Response {
        if is_over(req) {
            return self.timeout_response();
        }
        let response = next.run(req);
        if is_over(req) {
            return self.timeout_response();
        }
        let Some(deadline) = deadline else { return response };
        // A deferred response is known later.
        response.sent_by(req.now(), deadline, || self.timeout_response())
    }

    fn timeout_response(&self) -> Response {
        let response = refusal(self.status, "the response was not ready in time");
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            return response.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl Middleware for Deadline {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let around = req.deadline();
        // A budget beyond the range of the clock means no deadline.
        let deadline = req.now().checked_add(self.budget);
        if let Some(deadline) = deadline {
            req.set_deadline(deadline);
        }
        let response = self.run_within(req, next, deadline);
        // If the handler declined, the next handler has its own budget.
        req.restore_deadline(around);
        response
    }
}

fn is_over(req: &Request<'_>) -> bool {
    req.time_left().is_some_and(|left| left.is_zero())
}

#[cfg(test)]
mod tests {
    //! Tests that handlers see their deadline, and that no late response is sent.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::get;
    use crate::{Router, TestClient, TestConnection};

    fn wait_until_it_is_over(req: &mut Request<'_>) -> &'static str {
        while req.time_left().is_some_and(|left| !left.is_zero()) {
            std::thread::yield_now();
        }
        "too late"
    }

    #[test]
    fn a_quick_handler_sees_its_budget_and_answers() {
        let budget = Duration::from_secs(1000);
        let seen = move |req: &mut Request<'_>| {
            let left = req.time_left().unwrap();
            assert!(left <= budget && left > budget / 2);
            "in time"
        };
        assert_eq!(get("/", &seen.with(Deadline::new(budget))).body().unwrap(), "in time");
        let unbounded =
            (|req: &mut Request<'_>| assert_eq!(req.time_left(), None)).with(Deadline::new(Duration::MAX));
        assert_eq!(get("/", &unbounded).status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn what_others_bring_has_to_be_there_in_time() {
        let (kept, senders) = std::sync::mpsc::channel();
        let handler = move |_: &mut Request<'_>| {
            let (sender, response) = Response::later(Duration::from_secs(60), StatusCode::NO_CONTENT);
            kept.send(sender).unwrap();
            response
        };
        let mut client = TestClient::new(handler.with(Deadline::new(Duration::from_secs(2)))).connect();
        let ask = |client: &mut TestConnection| {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            senders.recv().unwrap()
        };
        let sender = ask(&mut client);
        client.advance(Duration::from_secs(1));
        sender.send("in time").unwrap();
        assert_eq!(client.response().text(), "in time");
        let sender = ask(&mut client);
        client.advance(Duration::from_secs(2));
        let answer = client.response();
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (StatusCode::SERVICE_UNAVAILABLE, Some("1"))
        );
        assert!(sender.is_closed());
        // The response may be sent in two steps.
        let sender = ask(&mut client);
        let (_last, again) = Response::later(Duration::from_secs(60), StatusCode::NO_CONTENT);
        sender.send(again).unwrap();
        client.advance(Duration::from_secs(2));
        assert_eq!(client.response().status, StatusCode::SERVICE_UNAVAILABLE);
        drop(ask(&mut client));
        assert_eq!(
            client.response().status,
            StatusCode::NO_CONTENT,
            "nobody brings it, which is known in time"
        );
    }

    /// The timeout is a response of its own: only the fields of middleware are added.
    #[test]
    fn what_is_sent_instead_has_nothing_of_what_was_to_come() {
        let age = |response: Response| response.with_header(header::AGE, HeaderValue::from_static("1"));
        let (kept, senders) = std::sync::mpsc::channel();
        let handler = move |_: &mut Request<'_>| {
            let placeholder = age(Response::new(StatusCode::NO_CONTENT));
            let (sender, response) = Response::later(Duration::from_secs(60), placeholder);
            kept.send(sender).unwrap();
            response
        };
        let named = |req: &mut Request<'_>, next: Next<'_>| {
            let response = next.run(req).with_header(header::SERVER, HeaderValue::from_static("outer"));
            // For the response that it takes for a success.
            response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("public"))
        };
        let budget = Duration::from_secs(2);
        let handler = handler.with(Deadline::new(budget)).with(named);
        let mut client = TestClient::new(handler).connect();
        for brings in [false, true] {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let sender = senders.recv().unwrap();
            if brings {
                let placeholder = age(Response::new(StatusCode::NO_CONTENT));
                let (again, response) = Response::later(Duration::from_secs(60), placeholder);
                sender.send(response).unwrap();
                client.advance(budget / 2);
                assert!(!again.is_closed());
                client.advance(budget / 2);
            } else {
                client.advance(budget);
            }
            let answer = client.response();
            assert_eq!(
                (answer.status, answer.header("age"), answer.header("server")),
                (StatusCode::SERVICE_UNAVAILABLE, None, Some("outer")),
                "{brings}"
            );
            assert_eq!(answer.header("cache-control"), None, "{brings}");
        }
    }

    #[test]
    fn the_soonest_deadline_says_what_is_sent() {
        for (inner, outer, status) in [(1, 2, 504), (2, 1, 503)] {
            let (kept, senders) = std::sync::mpsc::channel();
            let handler = move |_: &mut Request<'_>| {
                let (sender, response) = Response::later(Duration::from_secs(60), StatusCode::NO_CONTENT);
                kept.send(sender).unwrap();
                response
            };
            let gateway = Deadline::new(Duration::from_secs(inner)).status(StatusCode::GATEWAY_TIMEOUT);
            let handler = handler.with(gateway).with(Deadline::new(Duration::from_secs(outer)));
            let mut client = TestClient::new(handler).connect();
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let _sender = senders.recv().unwrap();
            client.advance(Duration::from_secs(1));
            assert_eq!(client.response().status, status);
        }
    }

    #[test]
    fn what_is_only_held_back_is_known_in_time() {
        let handler = |_: &mut Request<'_>| Response::text("in time").with_delay(Duration::from_secs(2));
        let mut client = TestClient::new(handler.with(Deadline::new(Duration::from_secs(1)))).connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client.advance(Duration::from_secs(2));
        assert_eq!(client.response().text(), "in time");
    }

    #[test]
    fn what_comes_too_late_is_dropped() {
        let late = get("/", &wait_until_it_is_over.with(Deadline::new(Duration::from_millis(1))));
        assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(late.header(header::RETRY_AFTER).unwrap(), "1");
        let gateway = Deadline::new(Duration::from_millis(1)).status(StatusCode::GATEWAY_TIMEOUT);
        let late = get("/", &wait_until_it_is_over.with(gateway));
        assert_eq!((late.status(), late.header(header::RETRY_AFTER)), (StatusCode::GATEWAY_TIMEOUT, None));
    }

    #[test]
    fn a_budget_ends_with_the_handlers_that_have_it() {
        let declines =
            (|_: &mut Request<'_>| Response::decline()).with(Deadline::new(Duration::from_secs(1000)));
        let left = |req: &mut Request<'_>| format!("{:?}", req.time_left());
        let site = Router::new().get("/", declines).fallback(left);
        assert_eq!(get("/", &site).body().unwrap(), "None");
        let more = |req: &mut Request<'_>| (req.time_left() > Some(Duration::from_secs(1000))).to_string();
        let declines =
            (|_: &mut Request<'_>| Response::decline()).with(Deadline::new(Duration::from_secs(1000)));
        let site =
            Router::new().get("/", declines).fallback(more).with(Deadline::new(Duration::from_secs(2000)));
        assert_eq!(get("/", &site).body().unwrap(), "true");
    }

    #[test]
    fn a_request_that_is_late_already_is_not_begun() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = calls.clone();
        let counting = move |_: &mut Request<'_>| counter.fetch_add(1, Ordering::Relaxed).to_string();
        let nested =
            counting.with(Deadline::new(Duration::from_secs(1000))).with(Deadline::new(Duration::ZERO));
        assert_eq!(get("/", &nested).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }
}
