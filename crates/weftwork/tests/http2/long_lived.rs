//! Tests of responses that outlive their handlers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weftwork::prelude::StatusCode;
use weftwork::{Event, EventHub, Feed, FeedLimits, FeedSender, Request, Response, ResponseSender, Running, sse};

use super::CASE;
use crate::support::{Http2Client, TIMEOUT, eventually, noise};

const HOUR: Duration = Duration::from_secs(3600);

/// A server whose long-lived responses come from the test.
struct Fed {
    server: Running,
    feeds: Arc<Mutex<Vec<FeedSender>>>,
    senders: Arc<Mutex<Vec<ResponseSender>>>,
    hub: EventHub,
}

fn start() -> Fed {
    let (feeds, senders, hub) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default(), EventHub::default());
    let (own_feeds, own_senders, own_hub) = (feeds.clone(), senders.clone(), hub.clone());
    let server = CASE.start(move |req: &mut Request| match req.path() {
        "/feed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            own_feeds.lock().unwrap().push(sender);
            Response::feed(feed)
        }
        "/later" => {
            let (sender, response) = Response::later(HOUR, Response::new(StatusCode::NO_CONTENT));
            own_senders.lock().unwrap().push(sender);
            response
        }
        "/delayed" => Response::text("delayed").with_delay(Duration::from_millis(20)),
        "/hub" => own_hub.join(req),
        "/count" => sse(req, |events| {
            for number in 0..3 {
                events.send(&Event::new(number.to_string()))?;
                events.wait(Duration::from_millis(1))?;
            }
            Ok(())
        }),
        _ => Response::text("hello"),
    });
    Fed { server, feeds, senders, hub }
}

impl Fed {
    #[track_caller]
    fn feed(&self) -> FeedSender {
        eventually("the handler answers", || !self.feeds.lock().unwrap().is_empty());
        self.feeds.lock().unwrap().remove(0)
    }

    #[track_caller]
    fn sender(&self) -> ResponseSender {
        eventually("the handler answers", || !self.senders.lock().unwrap().is_empty());
        self.senders.lock().unwrap().remove(0)
    }

    #[track_caller]
    fn is_well(&self) {
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

#[test]
fn feeds_arrive_in_order_beside_each_other() {
    let fed = start();
    let mut client = Http2Client::connect(&fed.server);
    let feeds: Vec<_> = (0..10).map(|_| (client.get("/feed"), fed.feed())).collect();
    for round in 1..=20 {
        for (_, feed) in &feeds {
            feed.send(format!("{round:04}")).unwrap();
        }
        for (stream, _) in &feeds {
            client.wait_for_bytes(*stream, 4 * round);
        }
    }
    let quick = client.get("/");
    client.answer(quick).is(200, "hello");
    let text: String = (1..=20).map(|round| format!("{round:04}")).collect();
    for (stream, feed) in feeds {
        feed.close();
        client.answer(stream).is(200, &text);
    }
    drop(client);
    fed.is_well();
}

#[test]
fn a_long_message_of_a_feed_arrives() {
    let fed = start();
    let mut client = Http2Client::connect(&fed.server);
    let (stream, feed) = (client.get("/feed"), fed.feed());
    feed.send(noise(60_000)).unwrap();
    client.wait_for_bytes(stream, 60_000);
    feed.send(noise(60_000)).unwrap();
    feed.close();
    client.answer(stream).is(200, [noise(60_000), noise(60_000)].concat());
}

#[test]
fn a_feed_sees_that_its_client_has_gone() {
    let fed = start();
    let mut client = Http2Client::connect(&fed.server);
    let (stream, feed) = (client.get("/feed"), fed.feed());
    client.wait_for_head(stream);
    client.reset(stream);
    eventually("the feed ends", || feed.is_closed());
    let (_, feed) = (client.get("/feed"), fed.feed());
    client.vanish();
    eventually("the feed ends", || feed.is_closed());
    fed.is_well();
}

#[test]
fn later_responses_arrive() {
    let fed = start();
    let mut client = Http2Client::connect(&fed.server);
    let waiting: Vec<_> = (0..10).map(|_| (client.get("/later"), fed.sender())).collect();
    let quick = client.get("/");
    client.answer(quick).is(200, "hello");
    for (number, (stream, sender)) in waiting.into_iter().enumerate().rev() {
        let sent = sender.send(Response::bytes(noise(10_000 * number)));
        assert!(sent.is_ok());
        client.answer(stream).is(200, noise(10_000 * number));
    }
    let delayed = client.get("/delayed");
    client.answer(delayed).is(200, "delayed");
}

#[test]
fn events_arrive() {
    let fed = start();
    let mut client = Http2Client::connect(&fed.server);
    let count = client.get("/count");
    client.answer(count).is(200, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    let members = client.get_all(["/hub", "/hub"]);
    eventually("both are members", || fed.hub.clients() == 2);
    fed.hub.send(&Event::new("news"));
    members.iter().for_each(|member| client.wait_for_bytes(*member, "data: news\n\n".len()));
    client.reset(members[0]);
    eventually("one is left", || fed.hub.clients() == 1);
    fed.hub.close_all();
    client.answer(members[1]).is(200, "data: news\n\n");
    assert!(TIMEOUT < HOUR);
}
