//! Tests of what happens to changes by middleware when the response is sent later.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use http::{StatusCode, header};

use super::*;
use crate::message::{BodyWriter, Request};
use crate::{HandlerExt, Next, TestClient, TestConnection};

const HOUR: Duration = Duration::from_secs(3600);

/// A client that has sent a request. The sender answers it, or the client has left if there is no sender.
fn deferred(
    change: impl Fn(Response) -> Response + Send + Sync + 'static,
) -> (TestConnection, ResponseSender) {
    let (kept, senders): (Sender<ResponseSender>, Receiver<ResponseSender>) = channel();
    let handler = move |_: &mut Request| {
        let (sender, response) =
            Response::later(HOUR, Response::new(StatusCode::GONE).with_header(header::AGE, 1));
        kept.send(sender).unwrap();
        response
    };
    let changed = move |req: &mut Request, next: Next| change(next.run(req));
    let mut client = TestClient::new(handler.with(changed)).connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    (client, senders.try_recv().unwrap())
}

/// Records what it is told.
struct Listens(Sender<String>);

impl StreamFilter for Listens {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        self.0.send(format!("{} bytes", data.len())).unwrap();
        io::Write::write_all(out, data)
    }
    fn answered(&mut self, response: &Response) {
        self.0.send(response.status().to_string()).unwrap();
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.send("dropped".to_owned()).unwrap();
    }
}

/// The header comes from middleware, whether or not the placeholder had one before.
#[test]
fn headers_set_on_the_placeholder_are_on_the_sent_response() {
    for (set, wanted) in [(None, None), (Some(7), Some("7"))] {
        let (mut client, sender) = deferred(move |mut response| {
            if let Some(age) = set {
                response.set_header(header::AGE, age);
            }
            response
        });
        sender.send("sent later").unwrap();
        let answer = client.response();
        assert_eq!((answer.text(), answer.header("age")), ("sent later", wanted));
    }
}

/// The placeholder has a header of its own, so middleware added nothing.
#[test]
fn security_headers_are_those_of_the_sent_response() {
    let (kept, senders): (Sender<ResponseSender>, Receiver<ResponseSender>) = channel();
    let handler = move |_: &mut Request| {
        let own = HeaderValue::from_static("SAMEORIGIN");
        let placeholder = Response::text("nothing").with_header(header::X_FRAME_OPTIONS, own);
        let (sender, response) = Response::later(HOUR, placeholder);
        kept.send(sender).unwrap();
        response
    };
    let safe = handler.with(crate::middleware::SecurityHeaders::new());
    let mut client = TestClient::new(safe).connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    senders.try_recv().unwrap().send("sent later").unwrap();
    let answer = client.response();
    assert_eq!((answer.text(), answer.header("x-frame-options")), ("sent later", Some("DENY")));
}

#[test]
fn headers_of_middleware_go_along_and_those_of_the_other_response_do_not() {
    let cookie = |value: &'static str| (header::SET_COOKIE, HeaderValue::from_static(value));
    let (mut client, sender) = deferred(move |response| {
        let (name, value) = cookie("a=1");
        response
            .with_header(name, value)
            .with_header(header::SERVER, HeaderValue::from_static("outer"))
            .with_close()
    });
    let (name, value) = cookie("b=2");
    let sent = Response::text("news")
        .with_header(name, value)
        .with_header(header::SERVER, HeaderValue::from_static("own"));
    sender.send(sent).unwrap();
    let answer = client.response();
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "news"));
    assert_eq!(answer.header_values("set-cookie").count(), 2);
    assert_eq!((answer.header("server"), answer.header("age")), (Some("own"), None));
    assert!(client.is_closed());
}

/// For a field with several values, each response adds only its own values.
#[test]
fn what_middleware_adds_to_headers_of_the_other_response_goes_along() {
    let handler = |_: &mut Request| {
        let otherwise = Response::new(StatusCode::GONE)
            .with_header(header::SET_COOKIE, HeaderValue::from_static("gone=1"))
            .with_header(header::VARY, HeaderValue::from_static("accept"));
        let (sender, response) = Response::later(HOUR, otherwise);
        sender.send("news").unwrap();
        response
    };
    let added = |req: &mut Request, next: Next| {
        let response =
            next.run(req).with_appended_header(header::SET_COOKIE, HeaderValue::from_static("user=1"));
        response.with_appended_header(header::VARY, HeaderValue::from_static("origin"))
    };
    let answer = TestClient::new(handler.with(added)).get("/").send();
    for (name, value) in [("set-cookie", "user=1"), ("vary", "origin")] {
        assert_eq!(answer.header_values(name).collect::<Vec<_>>(), [value]);
    }
}

#[test]
fn what_middleware_makes_of_the_other_response_is_sent() {
    let (mut client, sender) = deferred(|response| response.with_status(StatusCode::ACCEPTED));
    drop(sender);
    let answer = client.response();
    assert_eq!((answer.status, answer.header("age")), (StatusCode::ACCEPTED, Some("1")));
}

/// An empty body would be taken for the client's own data.
#[test]
fn a_body_not_read_before_deferring_is_an_error() {
    const SECOND: Duration = Duration::from_secs(1);
    let echo = |out: &mut BodyWriter<'_>| {
        let mut part = [0; 9];
        let count = out.read_request(&mut part)?;
        io::Write::write_all(out, &part[..count])
    };
    let mut client =
        TestClient::new(move |_: &mut Request| Response::stream(echo).with_delay(SECOND)).connect();
    for (body, status) in [("\r\n", 200), ("Content-Length: 5\r\n\r\n12345", 500)] {
        client.send(format!("POST / HTTP/1.1\r\nHost: x\r\n{body}"));
        client.advance(SECOND);
        assert_eq!(client.response().status, status, "{body:?}");
    }
}

#[test]
fn a_middleware_may_answer_by_itself() {
    let (mut client, sender) = deferred(|response| response.with_body("mine"));
    assert_eq!(client.response().text(), "mine");
    assert!(sender.is_closed());
    assert_eq!(sender.send("late"), Err(ResponseClosed));
}

#[test]
fn filters_see_the_sent_response() {
    let listened = |bring: &dyn Fn(ResponseSender, TestConnection)| {
        let (events, received) = channel();
        let (client, sender) = deferred(move |response| response.filter_stream(Listens(events.clone())));
        bring(sender, client);
        received.try_iter().collect::<Vec<_>>()
    };
    let whole = listened(&|sender, mut client| {
        sender.send("news").unwrap();
        assert_eq!(client.response().text(), "news");
    });
    assert_eq!(whole, ["200 OK", "dropped"]);
    let streamed = listened(&|sender, mut client| {
        sender.send(Response::stream(|out| io::Write::write_all(out, b"news"))).unwrap();
        assert_eq!(client.response().text(), "news");
    });
    assert_eq!(streamed, ["200 OK", "4 bytes", "dropped"]);
    let otherwise = listened(&|sender, mut client| {
        drop(sender);
        assert_eq!(client.response().status, StatusCode::GONE);
    });
    assert_eq!(otherwise, ["410 Gone", "dropped"]);
    let left = listened(&|sender, mut client| {
        client.reset();
        assert!(sender.is_closed());
    });
    assert_eq!(left, ["dropped"]);
}

/// The value belongs to the user, like a handler.
#[test]
fn a_filter_that_panics_over_what_is_sent_costs_that_response() {
    struct Odd;
    impl StreamFilter for Odd {
        fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
            io::Write::write_all(out, data)
        }
        fn answered(&mut self, _: &Response) {
            panic!("as asked");
        }
    }
    let (mut client, sender) = deferred(|response| response.filter_stream(Odd));
    sender.send("sent later").unwrap();
    let answer = client.response();
    assert_eq!((answer.status, answer.closes()), (StatusCode::INTERNAL_SERVER_ERROR, true));
}

/// A tunnel may be sent later. Any other response to CONNECT closes the connection, and no other one is a 2xx.
#[test]
fn a_deferred_response_may_open_a_tunnel() {
    for (placeholder, bring, status) in [
        (StatusCode::BAD_GATEWAY, Some(true), 200),
        (StatusCode::NO_CONTENT, Some(true), 200),
        (StatusCode::BAD_GATEWAY, Some(false), 501),
        (StatusCode::BAD_GATEWAY, None, 502),
        (StatusCode::NO_CONTENT, None, 501),
    ] {
        let (kept, senders) = channel();
        let handler = move |_: &mut Request| {
            let (sender, response) = Response::later(HOUR, placeholder);
            kept.send(sender).unwrap();
            response
        };
        let mut client = TestClient::new(handler).connect();
        client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
        let sender = senders.try_recv().unwrap();
        match bring {
            Some(true) => sender.send(Response::tunnel(|_| Ok(()))).unwrap(),
            Some(false) => sender.send("no tunnel").unwrap(),
            None => drop(sender),
        }
        let answer = client.response();
        let is_closing = bring != Some(true);
        assert_eq!(
            (answer.status.as_u16(), answer.closes()),
            (status, is_closing),
            "{placeholder} {bring:?}"
        );
    }
}

/// A change that makes a response later changes it once.
#[test]
fn a_change_that_delays_is_made_once() {
    const SECOND: Duration = Duration::from_secs(1);
    let slow = |req: &mut Request, next: Next| {
        next.run(req).map_final(|response| match response.status() {
            StatusCode::UNAUTHORIZED => response.with_delay(SECOND),
            _ => response,
        })
    };
    let handler = |_: &mut Request| StatusCode::UNAUTHORIZED;
    let mut client = TestClient::new(handler.with(slow)).connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.advance(SECOND);
    assert_eq!(client.response().status, StatusCode::UNAUTHORIZED);

    let (kept, senders) = channel();
    let handler = move |_: &mut Request| {
        let (sender, response) = Response::later(HOUR, StatusCode::NO_CONTENT);
        kept.send(sender).unwrap();
        response
    };
    let mut client = TestClient::new(handler.with(slow)).connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    senders.try_recv().unwrap().send(StatusCode::UNAUTHORIZED).unwrap();
    // The server notices it.
    client.advance(Duration::ZERO);
    client.advance(SECOND);
    assert_eq!(client.response().status, StatusCode::UNAUTHORIZED);
}

/// The loop could not check in time, because the machine was busy.
#[test]
fn a_response_sent_in_time_counts_even_if_it_is_polled_late() {
    for (is_brought, status) in [(true, StatusCode::OK), (false, StatusCode::SERVICE_UNAVAILABLE)] {
        let (sender, response) = Response::later(HOUR, StatusCode::GONE);
        let (moment, deadline) = (Instant::now(), Instant::now() + HOUR / 2);
        let response = response.sent_by(moment, deadline, || Response::new(StatusCode::SERVICE_UNAVAILABLE));
        if is_brought {
            sender.send("in time").unwrap();
        }
        let Payload::LongLived(long_lived) = response.payload else { panic!("it is there") };
        let LongLived::Deferred(later) = *long_lived else { panic!("it does not come later") };
        assert_eq!(later.take(Response::default(), deadline, LaterReason::Timeout).status(), status);
    }
}
