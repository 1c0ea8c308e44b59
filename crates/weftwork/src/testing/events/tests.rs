//! Tests that a test client reads events as a page would, whichever thread sends them, and that its clock lets
//! the handler continue.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{EventHub, FeedLimits, Request, Response, TestClient, sse};

fn all(stream: &[u8]) -> Vec<TestEvent> {
    let mut lines = EventParser::default();
    let whole = {
        lines.text.extend_from_slice(stream);
        std::iter::from_fn(|| lines.next_event()).collect()
    };
    let (mut lines, mut dribbled) = (EventParser::default(), Vec::new());
    for byte in stream {
        lines.text.push(*byte);
        dribbled.extend(lines.next_event());
    }
    assert_eq!(dribbled, whole, "byte by byte");
    whole
}

fn event(name: Option<&str>, data: &str, id: Option<&str>, retry: Option<u64>) -> TestEvent {
    TestEvent {
        name: name.map(Into::into),
        data: data.into(),
        id: id.map(Into::into),
        retry: retry.map(Duration::from_millis),
    }
}

#[test]
fn events_are_read_as_a_page_reads_them() {
    assert_eq!(all(b"data: a\n\ndata:b\n\n"), [event(None, "a", None, None), event(None, "b", None, None)]);
    assert_eq!(all(b"data: a\r\ndata: b\r\rdata: c\n\n").len(), 2);
    assert_eq!(all(b"data: a\r\n\r\n:\n\ndata\n\n"), [event(None, "a", None, None), TestEvent::default()]);
    let full = b"\xef\xbb\xbfretry: 10\nid: 7\nevent: n\ndata:  x\ndata: y\nother: z\n\n";
    assert_eq!(all(full), [event(Some("n"), " x\ny", Some("7"), Some(10))]);
    assert_eq!(all(b"id: 7\nretry: 5x\nevent: lost\n\ndata: half"), [], "no data is no event");
    for sent in [
        Event::new(""),
        Event::new("a\r\nb\n").name("n").id("i").retry(Duration::from_secs(2)),
        Event::new("ü").id(""),
    ] {
        assert_eq!(all(&sent.to_bytes()), [TestEvent::from(sent)]);
    }
}

#[test]
fn a_hub_has_many_readers() {
    let hub = EventHub::default();
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request<'_>| own.join(req));
    let (mut one, mut two) = (client.events("/"), client.events("/"));
    assert_eq!(one.headers()["content-type"], "text/event-stream");
    assert_eq!(one.read(), None);
    assert_eq!(hub.send(&Event::new("tea")), 2);
    assert_eq!((one.read(), two.read()), (Some(Event::new("tea").into()), Some(Event::new("tea").into())));
    drop(two);
    assert_eq!(hub.clients(), 1, "it has left");
    one.advance(Duration::from_secs(3600));
    assert_eq!(one.read(), None, "heartbeats are no events");
    client.drain();
    assert!(one.is_over());
    assert_eq!(one.read(), None);
    let retry = one.retry().unwrap();
    assert!((Duration::from_secs(1)..=Duration::from_secs(5)).contains(&retry), "{retry:?}");
}

/// Bytes before the end are read after it.
#[test]
fn an_interim_response_is_not_the_head_of_a_stream() {
    let hub = EventHub::default();
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request<'_>| {
        req.interim(http::StatusCode::EARLY_HINTS, &[]).unwrap();
        own.join(req)
    });
    let mut page = client.events("/");
    hub.send(&Event::new("tea"));
    assert_eq!(page.read(), Some(Event::new("tea").into()));
}

#[test]
fn a_stream_that_ends_is_read_to_its_end() {
    let hub = EventHub::<()>::new(FeedLimits::default());
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request<'_>| own.join(req));
    let mut page = client.events("/");
    hub.send(&Event::new("last"));
    hub.close_all();
    assert!(page.is_over());
    assert_eq!((page.read().map(|event| event.data), page.read()), (Some("last".into()), None));
}

fn ticks(req: &mut Request<'_>, sent: &Arc<AtomicUsize>) -> Response {
    struct Left(Arc<AtomicUsize>);
    impl Drop for Left {
        fn drop(&mut self) {
            self.0.store(usize::MAX, Ordering::Relaxed);
        }
    }
    let left = Left(sent.clone());
    sse(req, move |events| {
        loop {
            let number = left.0.fetch_add(1, Ordering::Relaxed);
            events.send(&Event::new(number.to_string()))?;
            if !events.wait(Duration::from_secs(10))? {
                return events.send(&Event::new("bye"));
            }
        }
    })
}

fn ticking() -> (Arc<AtomicUsize>, TestClient) {
    let sent = Arc::new(AtomicUsize::new(0));
    let own = sent.clone();
    (sent, TestClient::new(move |req: &mut Request<'_>| ticks(req, &own)))
}

#[test]
fn a_handler_comes_as_far_as_the_clock() {
    let (sent, mut client) = ticking();
    let mut page = client.events("/");
    let data = |page: &mut TestEvents| page.read().map(|event| event.data);
    assert_eq!((data(&mut page).as_deref(), data(&mut page)), (Some("0"), None));
    page.advance(Duration::from_millis(9_999));
    assert_eq!(data(&mut page), None);
    page.advance(Duration::from_millis(1));
    assert_eq!((data(&mut page).as_deref(), data(&mut page)), (Some("1"), None));
    page.advance(Duration::from_secs(20));
    assert_eq!((data(&mut page).as_deref(), data(&mut page).as_deref()), (Some("2"), Some("3")));
    assert_eq!((client.elapsed(), sent.load(Ordering::Relaxed)), (Duration::from_secs(30), 4));
    client.advance(Duration::from_secs(10));
    assert_eq!(data(&mut page).as_deref(), Some("4"), "whoever moves the clock");
    drop(page);
    assert_eq!(sent.load(Ordering::Relaxed), usize::MAX, "the handler is over when its client has left");
}

#[test]
fn a_handler_sees_that_the_server_stops() {
    let (_, mut client) = ticking();
    let mut page = client.events("/");
    client.drain();
    assert_eq!(page.read().map(|event| event.data).as_deref(), Some("0"));
    assert_eq!(page.read().map(|event| event.data).as_deref(), Some("bye"));
    assert!(page.is_over());
}

#[test]
fn a_request_may_have_more_than_a_path() {
    let echo = |req: &mut Request<'_>| {
        let told = format!("{:?} {:?}", req.header("accept"), req.header("last-event-id"));
        sse(req, move |events| events.send(&Event::new(told)))
    };
    let mut client = TestClient::new(echo);
    let mut page = client.get("/").header("last-event-id", "7").events();
    assert_eq!(
        page.read().map(|event| event.data).as_deref(),
        Some(r#"Some("text/event-stream") Some("7")"#)
    );
    assert!(page.is_over());
}

#[test]
fn cookies_are_kept() {
    let visit = |req: &mut Request<'_>| {
        let visits = req.header("cookie").map_or(1, |cookie| cookie.len());
        let cookie = format!("visits={visits}; Path=/");
        sse(req, |_| Ok(())).with_header(http::header::SET_COOKIE, cookie)
    };
    let mut client = TestClient::new(visit).keep_cookies();
    client.events("/");
    assert_eq!(client.events("/").headers()["set-cookie"], "visits=8; Path=/");
}

#[test]
#[should_panic(expected = "not an event stream: 404")]
fn what_is_no_stream_is_shown() {
    TestClient::new(|_: &mut Request<'_>| Response::decline()).events("/");
}

#[test]
#[should_panic(expected = "not an event stream")]
fn a_stream_of_something_else_is_shown() {
    let written = |_: &mut Request<'_>| Response::stream(|out| out.write_all(b"text"));
    TestClient::new(written).events("/");
}
