//! Tests that no text can make two events of one, and that a reconnecting client misses nothing.

use std::time::Duration;

use super::{Event, EventHub, sse};
use crate::{FeedLimits, OverflowStrategy, Request, TestClient};

#[track_caller]
fn check(event: Event, expected: &str) {
    assert_eq!(event.to_bytes(), expected);
}

#[test]
fn every_field_and_every_line_break() {
    check(Event::new(""), "data: \n\n");
    check(Event::new("one"), "data: one\n\n");
    check(Event::new("one\ntwo\r\nthree\rfour"), "data: one\ndata: two\ndata: three\ndata: four\n\n");
    check(Event::new("\n"), "data: \ndata: \n\n");
    check(Event::new("one\n\ntwo\n"), "data: one\ndata: \ndata: two\ndata: \n\n");
    check(Event::new("\r\r\n\n"), "data: \ndata: \ndata: \ndata: \n\n");
    check(Event::new(" é: x"), "data:  é: x\n\n");
    let all = Event::new("x").name("n").id("i").retry(Duration::from_secs(2));
    check(all, "retry: 2000\nid: i\nevent: n\ndata: x\n\n");
}

#[test]
fn no_text_passes_for_a_field() {
    check(Event::new("x\nevent: y\n\ndata: z"), "data: x\ndata: event: y\ndata: \ndata: data: z\n\n");
    check(Event::new("x").name("a\ndata: b\r\n\r\n"), "event: adata: b\ndata: x\n\n");
    check(Event::new("x").id("1\n2\r3\0\u{1}4\u{7f}"), "id: 1234\ndata: x\n\n");
}

#[cfg(feature = "json")]
#[test]
fn json_is_one_line() {
    check(Event::json("two\nlines").unwrap(), "data: \"two\\nlines\"\n\n");
}

fn hub() -> (EventHub, TestClient) {
    let hub = EventHub::default().with_history(3);
    let own = hub.clone();
    let client = TestClient::new(move |req: &mut Request| own.join(req));
    (hub, client)
}

/// Checks what a client with the last event id `last` gets, after events 1 to 5 were sent and three are stored.
#[track_caller]
fn comes_again(last: Option<&str>, expected: &str) {
    let (hub, client) = hub();
    for id in 1..=5 {
        hub.send(&Event::new(format!("event {id}")).id(id.to_string()));
    }
    let mut connection = client.connect();
    let field = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
    connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
    hub.close_all();
    assert_eq!(connection.response().text(), expected);
}

#[test]
fn a_client_that_comes_again_gets_what_it_missed() {
    let event = |id| format!("id: {id}\ndata: event {id}\n\n");
    comes_again(None, "");
    comes_again(Some("5"), "");
    comes_again(Some("4"), &event(5));
    comes_again(Some("3"), &(event(4) + &event(5)));
    // An id that is unknown, now or always: a gap, and all stored events.
    let gap = |id: &str| format!("event: gap\ndata: {id}\n\n{}{}{}", event(3), event(4), event(5));
    comes_again(Some("1"), &gap("1"));
    comes_again(Some("x"), &gap("x"));
    comes_again(Some(""), "");
    comes_again(Some("\u{e9}"), &gap("\u{e9}"));
}

#[test]
fn a_history_that_is_made_shorter_is_so_at_once() {
    let (hub, client) = hub();
    (1..=3).for_each(|id| _ = hub.send(&Event::new(format!("event {id}"))));
    let hub = hub.with_history(2);
    (4..=6).for_each(|id| _ = hub.send(&Event::new(format!("event {id}"))));
    let kept = |hub: &EventHub| {
        let mut connection = client.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: x\r\n\r\n");
        hub.close_all();
        connection.response().text().to_owned()
    };
    const GAP: &str = "event: gap\ndata: x\n\n";
    assert_eq!(kept(&hub), format!("{GAP}data: event 5\n\ndata: event 6\n\n"));
    // A hub without a history cannot know what is missing.
    assert_eq!(kept(&hub.with_history(0)), GAP);
}

/// More events than may wait for a client, by number or by bytes: all of them arrive, and then the new ones.
#[test]
fn a_long_backlog_comes_whole() {
    let limits = FeedLimits { messages_max: 10, bytes_max: 1000, overflow: OverflowStrategy::Disconnect };
    for overflow in [OverflowStrategy::Disconnect, OverflowStrategy::DropOldest] {
        let hub = EventHub::new(FeedLimits { overflow, ..limits }).with_history(300);
        let events: Vec<Event> = (0..300).map(|id| Event::new(id.to_string()).id(id.to_string())).collect();
        for event in &events {
            hub.send(event);
        }
        let own = hub.clone();
        let client = TestClient::new(move |req: &mut Request| own.join(req));
        let mut connection = client.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: unknown\r\n\r\n");
        assert_eq!(hub.send(&Event::new("new")), 1);
        hub.close_all();
        let expected: String =
            events.iter().map(|event| String::from_utf8(event.to_bytes().to_vec()).unwrap()).collect();
        let expected = format!("event: gap\ndata: unknown\n\n{expected}data: new\n\n");
        assert!(connection.response().text() == expected, "{overflow:?}");
    }
}

/// Nothing is sent while the loop of a client is busy elsewhere, and that is not the client's fault.
#[test]
fn a_burst_does_not_disconnect_a_client_that_reads() {
    let (hub, client) = hub();
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..3000 {
        assert_eq!(hub.send(&Event::new("x")), 1);
    }
    hub.close_all();
    assert!(connection.response().text() == "data: x\n\n".repeat(3000));
}

#[test]
fn a_hub_removes_clients_that_left() {
    let (hub, client) = hub();
    let mut connections: Vec<_> = (0..5).map(|_| client.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert_eq!(hub.clients(), 5);
    connections.truncate(2);
    assert_eq!(hub.send(&Event::new("x")), 2);
    hub.close_all();
    assert_eq!(hub.clients(), 0);
}

/// Returns a hub whose clients are named by their request, and get `first` before everything else.
fn named(first: &'static [&'static str]) -> (EventHub<String>, TestClient) {
    let hub = EventHub::default().with_history(3);
    let own: EventHub<String> = hub.clone();
    let client = TestClient::new(move |req: &mut Request| {
        let name = req.query_value("name").unwrap_or_default().into_owned();
        own.join_with(req, name, first.iter().map(|data| Event::new(*data)))
    });
    (hub, client)
}

#[test]
fn an_event_may_go_to_some_clients_only() {
    let (hub, client) = named(&[]);
    let mut connections = ["ann", "bob", "ann"].map(|name| {
        let mut connection = client.connect();
        connection.send(format!("GET /?name={name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        connection
    });
    assert_eq!(hub.send(&Event::new("all")), 3);
    assert_eq!(hub.send_where(&Event::new("ann's"), |name| name == "ann"), 2);
    assert_eq!(hub.send_where(&Event::new("bob's"), |name| name == "bob"), 1);
    assert_eq!(hub.send_where(&Event::new("nobody's"), |_| false), 0);
    // The closure may call the hub.
    assert_eq!(hub.send_where(&Event::new("three's"), |_| hub.clients() == 3), 3);
    hub.close_all();
    let expected = |own: &str| format!("data: all\n\ndata: {own}\n\ndata: three's\n\n");
    for (connection, own) in connections.iter_mut().zip(["ann's", "bob's", "ann's"]) {
        assert_eq!(connection.response().text(), expected(own));
    }
}

/// A client whose leaving is sent to the others.
struct Guest(EventHub<Guest>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.send(&Event::new("a guest has left"));
    }
}

#[test]
fn a_value_may_ask_the_hub_as_it_goes() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let hub = EventHub::<Guest>::default();
        let own = hub.clone();
        let client = TestClient::new(move |req: &mut Request| own.join_with(req, Guest(own.clone()), []));
        let come = || {
            let mut connection = client.connect();
            connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            connection
        };
        drop(come());
        assert_eq!(hub.send(&Event::new("to nobody")), 0);
        drop(come());
        assert_eq!(hub.clients(), 0);
        drop(come());
        assert_eq!(hub.send_where(&Event::new("to nobody"), |_| true), 0);
        for _ in 0..20 {
            drop(come());
        }
        let _stays = come();
        hub.close_all();
        done.send(hub.clients())
    });
    assert_eq!(is_done.recv_timeout(std::time::Duration::from_secs(20)), Ok(0), "it waits for itself");
}

#[test]
fn an_event_is_not_sent_to_a_client_that_left() {
    let (hub, client) = named(&[]);
    let mut connections: Vec<_> = (0..3).map(|_| client.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    connections.truncate(1);
    let calls = std::cell::Cell::new(0);
    let sent = hub.send_where(&Event::new("x"), |_| {
        calls.set(calls.get() + 1);
        true
    });
    assert_eq!((sent, calls.get()), (1, 1));
}

/// Order: missed events, first events, new events. Events that were sent to some clients are not in the
/// history.
#[test]
fn first_events_come_between_what_was_and_what_will_be() {
    let (hub, client) = named(&["state", "more"]);
    (1..=2).for_each(|id| _ = hub.send(&Event::new(id.to_string()).id(id.to_string())));
    let mut present = client.connect();
    present.send("GET /?name=ann HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(hub.send_where(&Event::new("secret"), |_| true), 1);
    let mut again = client.connect();
    again.send("GET /?name=bob HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 1\r\n\r\n");
    assert_eq!(hub.send(&Event::new("new")), 2);
    hub.close_all();
    let first = "data: state\n\ndata: more\n\n";
    assert_eq!(present.response().text(), format!("{first}data: secret\n\ndata: new\n\n"));
    assert_eq!(again.response().text(), format!("id: 2\ndata: 2\n\n{first}data: new\n\n"));
}

#[test]
fn a_writer_sends_heartbeats_while_it_waits_and_has_the_last_id() {
    let client = TestClient::new(|req: &mut Request| {
        sse(req, |events| {
            let last = events.last_event_id().unwrap_or("none").to_owned();
            events.send(&Event::new(last))?;
            assert!(events.wait(Duration::from_secs(40))?);
            events.send(&Event::new("last"))
        })
    });
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 7\r\n\r\n");
    let response = connection.response();
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.text(), "data: 7\n\n:\n\n:\n\ndata: last\n\n");
}

/// The idle time counts, not the length of one wait: many writers poll every second.
#[test]
fn a_writer_sends_heartbeats_across_many_short_waits() {
    let mut client = TestClient::new(|req: &mut Request| {
        sse(req, |events| {
            let second = Duration::from_secs(1);
            (0..32).try_for_each(|_| events.wait(second).map(drop))?;
            events.send(&Event::new("news"))?;
            (0..15).try_for_each(|_| events.wait(second).map(drop))
        })
    });
    assert_eq!(client.get("/").send().text(), ":\n\n:\n\ndata: news\n\n");
}

/// Clients that all return in the same moment would be a load that the new server has never seen.
#[test]
fn clients_are_told_to_return_at_different_times() {
    const CLIENTS: usize = 200;
    let (hub, mut client) = hub();
    let mut connections: Vec<_> = (0..CLIENTS).map(|_| client.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert_eq!(hub.clients(), CLIENTS);
    client.drain();
    // Each connection notices the stop when it is used.
    connections.iter_mut().for_each(|connection| drop(connection.received()));
    let mut ended = Vec::new();
    for _ in 0..5 {
        let before = connections.len();
        connections.retain_mut(|connection| {
            connection.advance(Duration::ZERO);
            !connection.is_closed()
        });
        ended.push(before - connections.len());
        client.advance(Duration::from_secs(1));
    }
    // Fifty in a second.
    assert!(ended[0] < CLIENTS / 10 && ended[1..].iter().all(|count| *count > CLIENTS / 10), "{ended:?}");
    assert!(connections.is_empty());
}

/// However many clients there are, half of the time to drain is left for the last ones.
#[test]
fn clients_are_told_within_half_of_the_time_to_drain() {
    const CLIENTS: usize = 2000;
    let (_hub, client) = hub();
    let mut client = client.settings(|settings| settings.drain_timeout(Duration::from_secs(1)));
    let mut connections: Vec<_> = (0..CLIENTS).map(|_| client.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    client.drain();
    connections.iter_mut().for_each(|connection| drop(connection.received()));
    let mut open = || {
        connections.retain_mut(|connection| {
            connection.advance(Duration::ZERO);
            !connection.is_closed()
        });
        connections.len()
    };
    let first = open();
    assert!(first > CLIENTS / 2, "{first}");
    client.advance(Duration::from_millis(510));
    assert_eq!(open(), 0);
}

#[test]
fn the_reconnection_time_is_random_within_its_range() {
    let mut times: Vec<u64> = (0..20)
        .map(|_| {
            let (_hub, mut client) = hub();
            let mut connection = client.connect();
            connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.drain();
            connection.advance(Duration::from_secs(1));
            let response = connection.response();
            let retry = response.text().strip_prefix("retry: ").and_then(|rest| rest.strip_suffix("\n\n"));
            retry.unwrap().parse().unwrap()
        })
        .collect();
    assert!(times.iter().all(|time| (1000..=5000).contains(time)), "{times:?}");
    times.sort_unstable();
    times.dedup();
    assert!(times.len() > 10, "{times:?}");
}
