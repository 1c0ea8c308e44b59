//! Tests that each of many requests on one connection gets its response, whatever its siblings do.

use std::io::{self, Write};
use std::sync::mpsc::channel;

use weftwork::http::{HeaderName, HeaderValue};
use weftwork::{Request, Response};
use weftwork_wire::{ErrorCode, Http2Settings, Limits};

use super::CASE;
use crate::support::{Http2Client, noise};

#[test]
fn a_request_is_answered() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for _ in 0..3 {
        let stream = client.get("/seen/path?query");
        client.answer(stream).is(200, "GET a /seen/path query ");
    }
    drop(client);
    site.is_well();
}

/// A client of HTTP/1.1 gets HTTP/1.1 at the same address.
#[test]
fn both_protocols_share_an_address() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.get("/");
    site.client().get("/").is(200, "hello");
    client.answer(stream).is(200, "hello");
}

#[test]
fn a_hundred_requests_at_once_are_answered_in_any_order() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let paths: Vec<_> = (0..100).map(|number| format!("/bytes/{number}")).collect();
    let streams = client.get_all(paths.iter().map(String::as_str));
    for (number, stream) in streams.into_iter().enumerate().rev() {
        client.answer(stream).is(200, noise(number));
    }
    assert_eq!(site.calls(), 100);
    drop(client);
    site.is_well();
}

/// They come in several segments, and each handler is in progress while the next ones arrive.
#[test]
fn thousands_of_requests_on_one_connection_are_answered() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for _ in 0..30 {
        let streams = client.get_all((0..100).map(|_| "/"));
        streams.into_iter().for_each(|stream| client.answer(stream).is(200, "hello"));
    }
    assert_eq!(site.calls(), 3000);
}

#[test]
fn a_handler_that_blocks_delays_no_sibling() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let blocked = client.get(gate);
    site.inside.gate.wait_for(1);
    let quick = client.get_all((0..99).map(|_| "/"));
    quick.into_iter().for_each(|stream| client.answer(stream).is(200, "hello"));
    assert!(!client.has_answer(blocked));
    site.inside.gate.open();
    client.answer(blocked).is(200, "passed");
}

#[test]
fn many_handlers_block_at_once() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let blocked = client.get_all((0..50).map(|_| gate));
    site.inside.gate.wait_for(50);
    let quick = client.get_all((0..50).map(|_| "/"));
    quick.into_iter().for_each(|stream| client.answer(stream).is(200, "hello"));
    site.inside.gate.open();
    blocked.into_iter().for_each(|stream| client.answer(stream).is(200, "passed"));
    drop(client);
    site.is_well();
}

#[test]
fn a_request_beyond_the_limit_is_refused() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site_with(|settings| settings.http2_streams_max(2));
    let mut client = Http2Client::connect(&site.running);
    let blocked = client.get_all([gate, gate]);
    site.inside.gate.wait_for(2);
    let refused = client.get("/");
    assert_eq!(client.wait_for_reset(refused), ErrorCode::REFUSED_STREAM);
    site.inside.gate.open();
    blocked.into_iter().for_each(|stream| client.answer(stream).is(200, "passed"));
    let next = client.get("/");
    client.answer(next).is(200, "hello");
}

#[test]
fn a_response_to_head_has_no_body() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for (path, length) in [("/bytes/70000", Some("70000")), ("/stream/70000", None)] {
        let stream = client.request("HEAD", path, &[], true);
        let answer = client.answer(stream);
        answer.is(200, "");
        assert_eq!(answer.field("content-length"), length);
    }
    for status in [204, 304] {
        let stream = client.get(&format!("/status/{status}"));
        client.answer(stream).is(status, "");
    }
}

#[test]
fn an_expected_100_comes_before_the_body_and_103_before_the_response() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let fields = [("expect", "100-continue"), ("content-length", "5")];
    let stream = client.request("POST", "/echo", &fields, false);
    client.wait("100", |client| client.interim(stream) == [100]);
    client.send_data(stream, b"hello", true);
    client.answer(stream).is(200, "hello");
    let unasked = client.post_at_once("/echo", &fields, b"hello");
    client.answer(unasked).is(200, "hello");
    assert!(client.interim(unasked).is_empty(), "the body has come already");
    let ignored = client.request("POST", "/ignore", &fields, false);
    client.answer(ignored).is(200, "not read");
    assert!(client.interim(ignored).is_empty());
    let early = client.get("/early");
    client.answer(early).is(200, "final");
    assert_eq!(client.interim(early), [103]);
}

#[test]
fn trailers_pass_both_ways() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for (fields, body, seen) in [
        (&[("x", "head")][..], "body", "body|x-sum=7|head: x=head"),
        (&[("x", "head"), ("content-length", "4")], "body", "body|x-sum=7|head: x=head"),
        (&[], "", "|x-sum=7"),
        (&[("content-length", "0")], "", "|x-sum=7"),
    ] {
        for waits in [false, true] {
            let stream = client.request("POST", "/trailers", fields, false);
            if !body.is_empty() {
                client.send_data(stream, body.as_bytes(), false);
            }
            if waits {
                // What has arrived was read then.
                client.ping();
            }
            client.send_trailers(stream, &[("x-sum", "7")]);
            client.answer(stream).is(200, seen);
        }
    }
    let sum = [("x-sum".to_owned(), "7".to_owned())];
    let te = [("te", "trailers")];
    let none = &[][..];
    for (path, fields, body, trailers) in [
        ("/trailers-out", &te[..], "body sent", &sum[..]),
        ("/trailers-later", &te, "body sent", &sum),
        ("/trailers-out/first", &te, "sent", &sum),
        ("/trailers-out/declared", &te, "body kept", none),
        ("/trailers-out", &[], "body kept", none),
    ] {
        let stream = client.request("GET", path, fields, true);
        let answer = client.answer(stream);
        answer.is(200, body);
        assert_eq!(answer.trailers, trailers, "{path}");
    }
}

/// A part of them fills the pipe between the handler and the connection, which sends them whole.
#[test]
fn long_trailers_pass_behind_a_body() {
    let (written, is_written) = channel();
    let handler = move |_: &mut Request| {
        let written = written.clone();
        Response::stream(move |out| {
            out.write_all(&noise(20_000))?;
            out.flush()?;
            let value = HeaderValue::from_bytes(&[b'v'; 1000]).map_err(io::Error::other)?;
            let fields: Vec<_> =
                (0..90).map(|_| (HeaderName::from_static("x-long"), value.clone())).collect();
            out.trailers(&fields)?;
            written.send(()).map_err(io::Error::other)
        })
    };
    let running = CASE.bind(|settings| settings).start(handler).unwrap();
    let mut client =
        Http2Client::connect_with(&running, &Http2Settings { window: 0, ..Http2Settings::default() });
    client.limits = Limits { head_bytes_max: 1 << 20, ..Limits::default() };
    let stream = client.request("GET", "/", &[("te", "trailers")], true);
    is_written.recv().unwrap();
    client.wait_for_head(stream);
    client.grant(stream, 1 << 20);
    let answer = client.answer(stream);
    assert_eq!((answer.body, answer.trailers.len()), (noise(20_000), 90));
}

#[test]
fn a_head_beyond_the_limit_is_answered_with_431() {
    let site = CASE.site_with(|settings| settings.head_bytes_max(2048));
    let mut client = Http2Client::connect_with(&site.running, &Http2Settings::default());
    let sibling = client.request("POST", "/echo", &[], false);
    let long = client.request("GET", "/", &[("x", &"x".repeat(3000))], true);
    assert_eq!(client.answer(long).status, 431);
    client.send_data(sibling, b"goes on", true);
    client.answer(sibling).is(200, "goes on");
    assert_eq!((site.calls(), client.goaways), (1, vec![]));
}
